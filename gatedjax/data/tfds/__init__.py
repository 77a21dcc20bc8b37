"""Sets in TFDS form: their builders, and how they are prepared and opened."""
