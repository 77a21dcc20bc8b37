"""Trained models and one's own text. Nothing is imported here: some parts need no JAX."""
