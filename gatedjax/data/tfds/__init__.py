"""Data sets in TFDS form: builders, preparation and reading."""
