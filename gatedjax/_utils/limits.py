"""The largest sizes that files, model folders and options may have, all in one place.

What is larger is a mistake or an attack. Unchecked it ends in an abort of the process, in a loop
without an end or in all of the memory; a limit ends in one line that names it.
"""

import os
from pathlib import Path

MOST_CHARACTERS = 1 << 25
"""Of a line of text, and of a record of several lines: a field of 10 MB is one, a file is not."""
MOST_TEXT_BYTES = 1 << 28
"""Of a text that is read whole: a document for a reader, all lines for a translator."""
MOST_JSON_BYTES = 1 << 27
"""Of a JSON file of a model or a run: a vocabulary of a million words has some 15 MB."""
MOST_COLUMNS = 10_000
"""Of a table."""
MOST_LENGTH = 1 << 20
"""Words of a text that a model reads."""
MOST_WORDS = 10_000_000
"""Of a vocabulary."""
MOST_WIDTH = 1 << 16
"""Of a layer, and of all other sizes of a network that have no limit of their own."""
MOST_LAYERS = 1000
"""Of a network; layers are traced one after the other."""
MOST_BATCH = 1 << 16
"""Examples of a batch."""
MOST_DRAWS = 1 << 20
"""Draws of a measurement."""
MOST_STEPS = 2**31 - 1
"""Of a training: JAX counts them in 32 bits."""
MOST_SEED = 2**32 - 1
"""The largest seed: JAX takes 32 bits of it, so that a larger one would be another one's twin."""


def check_most(name: str, value: float, most: int) -> None:
    """Raises ValueError, with the limit in its message, if a value is larger."""
    if value > most:
        raise ValueError(f"{name} must be at most {most:,}, got {value:,}")


def read_limited(path: str | Path, most: int = MOST_JSON_BYTES) -> bytes:
    """Returns the content of a file.

    Raises:
      OSError: if it cannot be read.
      ValueError: if it has more bytes than `most`, of which no more are read.
    """
    with Path(path).open("rb") as file:
        # a device or a pipe has no size before it is read
        if os.fstat(file.fileno()).st_size <= most and len(content := file.read(most + 1)) <= most:
            return content
    raise ValueError(f"{path}: at most {most:,} bytes are read, and it has more")
