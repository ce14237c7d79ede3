"""Laws of the latent-class theory on random finite models."""
