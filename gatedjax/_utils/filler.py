"""What data and training, which do not import each other, agree on about filler rows."""

FILLER_ID = -1
"""Example id of a row that only fills a batch up; no text has it."""
