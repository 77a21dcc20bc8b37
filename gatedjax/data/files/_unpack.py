"""How much may come out of a packed file: 8 GB of zeros fit into 36 MB, and no text is like that.

One limit holds for every .gz file and every member of an archive, and is checked while they are
unpacked: what a file says of itself is believed only where that refuses it sooner. What is read a
piece at a time (word vectors, all members of an archive) may be longer if the packed file is: up to
`RATIO` times its size.
"""

import contextlib
import contextvars
import gzip
import io
import os
import re
from collections.abc import Iterator
from typing import BinaryIO, Protocol

LIMIT = 1 << 30
"""Bytes, by default. The largest raw file of the sets that `load` knows has 0.8 GB (WMT14)."""
RATIO = 32
"""Texts and images pack 3 to 10 to one."""
VARIABLE = "GATEDJAX_UNPACK_LIMIT"
"""Environment variable with another limit, as `parse_size` reads it."""

_PIECE = 1 << 20
_chosen: contextvars.ContextVar[int | None] = contextvars.ContextVar("unpack_limit", default=None)


class Stream(Protocol):
    """What is read of an unpacked file."""

    def read(self, size: int, /) -> bytes: ...
    def readline(self, size: int, /) -> bytes: ...


class TooLarge(ValueError):
    """More would be unpacked than the limit allows."""


def parse_size(text: str) -> int:
    """Bytes of a size such as "1000000", "500MB" or "2GiB"."""
    match = re.fullmatch(r"(\d{1,15})\s*(?:([KMGT])(i?)B)?", text.strip(), re.ASCII)
    if not match or int(match[1]) == 0:
        raise ValueError(f"a size must be bytes, as in 500MB or 2GiB, got {text!r}")
    power = "KMGT".index(match[2]) + 1 if match[2] else 0
    return int(match[1]) * (1024 if match[3] else 1000) ** power


def limit() -> int:
    """The limit that holds here: that of `limited`, or of the environment, or the default."""
    size = _chosen.get()
    if size is not None:
        return size
    text = os.environ.get(VARIABLE)
    try:
        return LIMIT if text is None else parse_size(text)
    except ValueError as error:
        raise ValueError(f"{VARIABLE}: {error}") from None


@contextlib.contextmanager
def limited(size: int | None) -> Iterator[None]:
    """Sets the limit in bytes for what is read inside; None leaves it as it is."""
    if size is not None and size < 1:
        raise ValueError(f"unpack_limit must be at least 1 byte, got {size}")
    token = _chosen.set(_chosen.get() if size is None else size)
    try:
        yield
    finally:
        _chosen.reset(token)


def allowance(packed: int) -> int:
    """Bytes that may come out of a file of `packed` bytes that is read a piece at a time."""
    return max(limit(), RATIO * packed)


def too_large(name: object, allowed: int) -> TooLarge:
    """The error for a file or member that has more bytes than are allowed."""
    return TooLarge(
        f"{name}: unpacks to more than {allowed:,} bytes, the limit. If it is meant to, raise the "
        f"limit: unpack_limit=... (--unpack-limit), or the environment variable {VARIABLE}=8GiB"
    )


def read_limited(file: Stream, name: object) -> bytes:
    """Reads an unpacked stream to its end."""
    allowed = limit()
    whole = io.BytesIO()
    while piece := file.read(min(_PIECE, allowed + 1 - whole.tell())):
        whole.write(piece)
        if whole.tell() > allowed:
            raise too_large(name, allowed)
    return whole.getvalue()


def gunzip(file: BinaryIO, name: object) -> bytes:
    """Unpacks a .gz file."""
    with gzip.GzipFile(fileobj=file) as unpacked:
        return read_limited(unpacked, name)


class Counted:
    """An unpacked stream that ends with TooLarge when more has come than is allowed."""

    def __init__(self, file: Stream, name: object, allowed: int) -> None:
        self._file = file
        self._name = name
        self._allowed = allowed
        self._count = 0

    def read(self, size: int) -> bytes:
        """Up to `size` bytes."""
        return self._checked(self._file.read(size))

    def readline(self, size: int) -> bytes:
        """Up to `size` bytes of a line."""
        return self._checked(self._file.readline(size))

    def _checked(self, data: bytes) -> bytes:
        self._count += len(data)
        if self._count > self._allowed:
            raise too_large(self._name, self._allowed)
        return data
