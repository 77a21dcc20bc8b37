"""Streams as a shell makes them."""

import contextlib
import os
from collections.abc import Iterator
from typing import TextIO


@contextlib.contextmanager
def unread() -> Iterator[TextIO]:
    """A pipe whose reader has gone, as of `... | head` that has enough."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        yield stream
