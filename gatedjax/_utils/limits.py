"""Upper limits for files, model folders and options.

A larger size is a mistake or an attack. Without a check the process might abort, loop without end
or use up the memory. With a limit it ends with a message of a single line.
"""

import codecs
import os
from pathlib import Path

from gatedjax._utils.write import naming

MOST_CHARACTERS = 1 << 25
"""The most characters of a line of text, or of a record of several lines."""
MOST_TEXT_BYTES = 1 << 28
"""The most bytes of a text that is read at once: a document, or all lines for a translator."""
MOST_JSON_BYTES = 1 << 27
"""The most bytes of a JSON file of a model or a run; a million words have about 15 MB."""
MOST_COLUMNS = 10_000
"""The most columns of a table."""
MOST_LENGTH = 1 << 20
"""The most words of a text that a model reads."""
MOST_WORDS = 10_000_000
"""The most words of a vocabulary."""
MOST_WIDTH = 1 << 16
"""The largest width of a layer, and the limit of all sizes of a network without another limit."""
MOST_LAYERS = 1000
"""The most layers of a network, because each layer is traced separately."""
MOST_BATCH = 1 << 16
"""The most examples of a batch."""
MOST_DRAWS = 1 << 20
"""The most draws of a measurement."""
MOST_STEPS = 2**31 - 1
"""The most steps of a run, because JAX counts them in 32 bits."""
MOST_SEED = 2**32 - 1
"""The largest seed. JAX uses 32 bits, so that a larger seed would equal a smaller one."""


def check_most(name: str, value: float, most: int) -> None:
    """Raises ValueError if a value is larger than the limit `most`; the message has `name`."""
    if value > most:
        raise ValueError(f"{name} must be at most {most:,}, got {value:,}")


def read_limited(path: str | Path, most: int = MOST_JSON_BYTES) -> bytes:
    """Reads a file; raises ValueError, after `most` + 1 bytes, if it has more than `most`."""
    with naming(Path(path)), Path(path).open("rb") as file:
        # The size of a device or a pipe is unknown before it is read.
        if os.fstat(file.fileno()).st_size <= most and len(content := file.read(most + 1)) <= most:
            return content
    raise ValueError(f"{path} must have at most {most:,} bytes, got more")


def decode_text(content: bytes, path: str | Path) -> str:
    """Decodes a file in UTF-8; a byte-order mark would become a part of its first word.

    >>> decode_text(b"\\xef\\xbb\\xbfAnna saw Emil.", "story.txt")
    'Anna saw Emil.'
    """
    try:
        return content.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} must be UTF-8, got other bytes: {error}: convert the file to UTF-8"
        ) from error
