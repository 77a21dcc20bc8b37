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
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO, cast

LIMIT = 1 << 30
"""Bytes, by default. The largest raw file of the sets that `load` knows has 0.8 GB (WMT14)."""
RATIO = 32
"""Texts and images pack 3 to 10 to one."""
VARIABLE = "GATEDJAX_UNPACK_LIMIT"
"""Environment variable with another limit, as `parse_size` reads it."""

_LIMIT: contextvars.ContextVar[int | None] = contextvars.ContextVar("unpack_limit", default=None)


class TooLarge(ValueError):
    """More would be unpacked than the limit allows."""


class Damaged(ValueError):
    """A packed file is cut short or damaged.

    Args:
      name: of the file.
      kind: of the file.
      error: what the standard library says.

    Attributes:
      reason: the message without the name.
    """

    def __init__(self, name: object, kind: str, error: object) -> None:
        self.reason = f"truncated or damaged {kind}: {error}"
        super().__init__(f"{name}: {self.reason}")


def parse_size(text: str) -> int:
    """Bytes of a size such as "1000000", "500MB" or "2GiB"."""
    match = re.fullmatch(r"(\d{1,15})\s*(?:([KMGT])(i?)B)?", text.strip(), re.ASCII)
    if not match or int(match[1]) == 0:
        raise ValueError(f"a size must be bytes, as in 500MB or 2GiB, got {text!r}")
    power = "KMGT".index(match[2]) + 1 if match[2] else 0
    return int(match[1]) * (1024 if match[3] else 1000) ** power


def limit() -> int:
    """Returns the limit: of `limit_unpacking`, else of the environment, else the default."""
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
    """Sets the limit in bytes for what is read inside; None leaves it as it is."""
    if size is not None and size < 1:
        raise ValueError(f"unpack_limit must be at least 1 byte, got {size}")
    token = _LIMIT.set(_LIMIT.get() if size is None else size)
    try:
        yield
    finally:
        _LIMIT.reset(token)


def allowance(path: Path) -> int:
    """Returns the bytes that may come out of a packed file that is read a piece at a time."""
    return max(limit(), RATIO * path.stat().st_size)


def too_large(name: object, allowed: int) -> TooLarge:
    """The error for a file or member that has more bytes than are allowed."""
    return TooLarge(
        f"{name}: unpacks to more than {allowed:,} bytes, the limit. If it is meant to, raise the "
        f"limit: unpack_limit=... (--unpack-limit), or the environment variable {VARIABLE}=8GiB"
    )


class _Bounded(io.RawIOBase):
    """A stream that ends with TooLarge when more has come than is allowed."""

    def __init__(self, file: IO[bytes], name: object, allowed: int) -> None:
        self._file, self._name, self._allowed = file, name, allowed
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._file.read(len(buffer))
        self._count += len(data)
        if self._count > self._allowed:
            raise too_large(self._name, self._allowed)
        buffer[: len(data)] = data
        return len(data)


def bound_size(file: IO[bytes], name: object, allowed: int) -> BinaryIO:
    """Returns an unpacked stream from which no more bytes come than are allowed.

    Args:
      file: the stream.
      name: of the packed file, for the message of TooLarge.
      allowed: how many bytes.
    """
    return cast(BinaryIO, io.BufferedReader(_Bounded(file, name, allowed)))


@contextlib.contextmanager
def open_gzip(file: IO[bytes], name: object, allowed: int | None = None) -> Iterator[BinaryIO]:
    """Opens a .gz file for reading.

    Args:
      file: the packed file.
      name: of it, for messages.
      allowed: how many bytes may come out of it; None is the limit.

    Raises:
      Damaged, TooLarge: also from the code that reads the stream.
    """
    try:
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield bound_size(
                cast(IO[bytes], unpacked), name, limit() if allowed is None else allowed
            )
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Damaged(name, "compressed file", error) from error
