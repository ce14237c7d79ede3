"""What the vision experiments share: presets, the work of a cell, pages."""
