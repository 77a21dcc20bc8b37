"""A constant about filler rows, for data and training, which do not import each other."""

FILLER_ID = -1
"""The example id of filler rows; no text has it."""
