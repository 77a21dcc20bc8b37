"""Files inside a tar archive: one that is read as a path is, or all of a kind in one pass."""

import bz2
import contextlib
import dataclasses
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable, Generator
from pathlib import Path, PurePosixPath
from typing import IO, cast

from gatedjax.data.files import _unpack

_OPENERS: dict[bytes, Callable[..., object]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, OSError)


@dataclasses.dataclass(frozen=True)
class TarPath:
    """A member of an archive, compressed or not; a leading "./" of its name does not matter."""

    archive: Path
    member: str

    @property
    def suffix(self) -> str:
        """Of the member."""
        return PurePosixPath(self.member).suffix

    def read_bytes(self) -> bytes:
        """Reads the member."""
        contents = members(self.archive, lambda name: name.removeprefix("./") == self.member)
        with contextlib.closing(contents):
            for _, data in contents:
                if data is not None:
                    return data
        raise ValueError(f"{self.archive}: no {self.member} in it")

    def __str__(self) -> str:
        return f"{self.archive}/{self.member}"


def members(
    archive: Path, selects: Callable[[str], bool]
) -> Generator[tuple[str, bytes | None], None, None]:
    """Reads the members of an archive in one pass.

    Args:
      archive: a tar file, plain or packed.
      selects: name -> whether to read it.

    Yields:
      (name, content) of everything that is selected but folders; None for what is no regular file.

    Raises:
      ValueError: if the archive is cut short or damaged, if any member is larger
        than the limit, or if all together are larger than the archive's allowance.
    """
    largest, allowed = _unpack.limit(), _unpack.allowance(archive.stat().st_size)
    size = 0
    try:
        with _opened(archive) as file:
            # tarfile reads some headers whole, however long: it gets no more than is allowed
            stream = cast(IO[bytes], _unpack.Counted(file, archive, allowed))
            with tarfile.open(fileobj=stream, mode="r|") as unpacked:
                for member in unpacked:
                    if member.size > largest:
                        raise _unpack.too_large(f"{archive}/{member.name}", largest)
                    if member.isdir() or not selects(member.name):
                        continue
                    content = None
                    if member.isfile():
                        # a member may have holes, which no stream counts
                        size += member.size
                        if size > allowed:
                            raise _unpack.too_large(archive, allowed)
                        reader = unpacked.extractfile(member)
                        content = reader.read() if reader else b""
                    yield member.name, content
    except _DAMAGED as error:
        raise ValueError(f"{archive}: truncated or damaged archive: {error}") from error


def _opened(archive: Path) -> IO[bytes]:
    with archive.open("rb") as file:
        start = file.read(6)
    opener = next((opener for magic, opener in _OPENERS.items() if start.startswith(magic)), open)
    return cast(IO[bytes], opener(archive, "rb"))
