"""A limit for the size of unpacked files, because 8 GB of zeros fit into a file of 36 MB.

The limit holds for each .gz file and each member of an archive. It is checked during unpacking; the
size in the header of a file is used only to refuse the file earlier. Files that are read in pieces
(word vectors, all members of an archive) may be larger than the limit: up to `RATIO` times the size
of the packed file.
"""

import contextlib
import contextvars
import gzip
import io
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO, cast

LIMIT = 1 << 30
"""The default limit in bytes. The largest raw file of the sets of `load` has 0.8 GB (WMT14)."""
RATIO = 32
"""Largest ratio of unpacked to packed size; for texts and images it is 3 to 10."""
VARIABLE = "GATEDJAX_UNPACK_LIMIT"
"""The environment variable for another limit, in a format of `parse_size`."""

# A context variable keeps the limit of a call from other threads.
_LIMIT: contextvars.ContextVar[int | None] = contextvars.ContextVar("unpack_limit", default=None)


class TooLarge(ValueError):
    """Raised if a file unpacks to more bytes than the limit, by default 1 GiB."""


class Damaged(ValueError):
    """Raised for a packed file that is truncated or damaged."""

    def __init__(self, name: object, kind: str, error: object) -> None:
        self.reason = f"truncated or damaged {kind}: {error}"
        super().__init__(f"{name}: {self.reason}")


def parse_size(text: str) -> int:
    """Returns the number of bytes of a size such as "1000000", "500MB" or "2GiB"."""
    match = re.fullmatch(r"(\d{1,15})\s*(?:([KMGT])(i?)B)?", text.strip(), re.ASCII)
    if not match or int(match[1]) == 0:
        raise ValueError(f"a size must be bytes, as in 500MB or 2GiB, got {text!r}")
    power = "KMGT".index(match[2]) + 1 if match[2] else 0
    return int(match[1]) * (1024 if match[3] else 1000) ** power


def limit() -> int:
    """Returns the largest allowed unpacked size in bytes."""
    size = _LIMIT.get()
    if size is not None:
        return size
    text = os.environ.get(VARIABLE)
    try:
        return LIMIT if text is None else parse_size(text)
    except ValueError as error:
        raise ValueError(f"{VARIABLE}: {error}") from None


@contextlib.contextmanager
def limit_unpacking(size: int | None) -> Iterator[None]:
    """Sets the largest allowed unpacked size inside a `with` block; None does not change it."""
    if size is not None and size < 1:
        raise ValueError(f"unpack_limit must be at least 1 byte, got {size}")
    token = _LIMIT.set(_LIMIT.get() if size is None else size)
    try:
        yield
    finally:
        _LIMIT.reset(token)


def allowance(path: Path) -> int:
    """Returns the largest allowed unpacked size, in bytes, of a file that is read in pieces."""
    return max(limit(), RATIO * path.stat().st_size)


def too_large(name: object, allowed: int) -> TooLarge:
    """Returns the `TooLarge` error for the file or member `name` with more than `allowed` bytes."""
    return TooLarge(
        f"{name}: unpacks to more than {allowed:,} bytes, the limit. If it is meant to, raise the "
        f"limit: unpack_limit=... (--unpack-limit), or the environment variable {VARIABLE}=8GiB"
    )


class _Bounded(io.RawIOBase):
    """A stream of unpacked bytes that raises TooLarge after a number of bytes."""

    def __init__(self, file: IO[bytes], name: object, allowed: int) -> None:
        self._file, self._name, self._allowed = file, name, allowed
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        # The bytes are counted after they are read, so at most a buffer more than the limit is
        # unpacked.
        data = self._file.read(len(buffer))
        self._count += len(data)
        if self._count > self._allowed:
            raise too_large(self._name, self._allowed)
        buffer[: len(data)] = data
        return len(data)


def bound_size(file: IO[bytes], name: object, allowed: int) -> BinaryIO:
    """Returns a stream with the same bytes that raises TooLarge after a number of bytes."""
    return cast(BinaryIO, io.BufferedReader(_Bounded(file, name, allowed)))


@contextlib.contextmanager
def open_gzip(file: IO[bytes], name: object, allowed: int | None = None) -> Iterator[BinaryIO]:
    """Opens a .gz file inside a `with` block; reading may raise `Damaged` or `TooLarge`."""
    try:
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield bound_size(
                cast(IO[bytes], unpacked), name, limit() if allowed is None else allowed
            )
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Damaged(name, "compressed file", error) from error
