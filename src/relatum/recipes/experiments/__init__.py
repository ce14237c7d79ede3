"""What the reproductions share: cells that stay, intervals over seeds, pages."""
