"""Files inside tar and zip archives: a member as a path, or many members in a single pass."""

import bz2
import contextlib
import dataclasses
import gzip
import lzma
import struct
import tarfile
import zipfile
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
# zipfile raises RuntimeError for an encrypted member, and struct.error for a truncated header.
_DAMAGED_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError, struct.error)


@dataclasses.dataclass(frozen=True)
class ArchivePath:
    """A member of an archive, the base class of `TarPath` and `ZipPath`, which read its content."""

    archive: Path
    member: str

    @property
    def suffix(self) -> str:
        """The ending of the name of the member with its dot, such as ".txt", or ""."""
        return PurePosixPath(self.member).suffix

    def __str__(self) -> str:
        return f"{self.archive}/{self.member}"

    def read_bytes(self) -> bytes:
        """Returns the unpacked content; raises ValueError without this member, or TooLarge."""
        raise NotImplementedError

    def _missing(self) -> ValueError:
        return ValueError(f"{self.archive}: the archive must contain {self.member}, got none")


class TarPath(ArchivePath):
    """A member of a tar file, packed or not; a leading "./" of its name does not matter."""

    def read_bytes(self) -> bytes:
        contents = members(self.archive, lambda name: name.removeprefix("./") == self.member)
        # Closing the generator leaves the rest of the archive packed.
        with contextlib.closing(contents):
            for _, data in contents:
                if data is not None:
                    return data
        raise self._missing()


class ZipPath(ArchivePath):
    """A member of a zip file."""

    def read_bytes(self) -> bytes:
        try:
            with zipfile.ZipFile(self.archive) as unpacked:
                if self.member not in unpacked.namelist():
                    raise self._missing()
                info = unpacked.getinfo(self.member)
                if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    # zipfile unpacks other methods without a bound, and no data set uses them.
                    raise ValueError(
                        f"{self}: the member must be stored or deflated, got compression method "
                        f"{info.compress_type}: unpack the archive"
                    )
                with unpacked.open(info) as file:
                    data = _unpack.bound_size(file, self, _unpack.limit()).read()
        except _DAMAGED_ZIP as error:
            raise _unpack.Damaged(self, "zip file", error) from error
        # A truncated member may unpack without an error.
        if len(data) != info.file_size:
            raise _unpack.Damaged(
                self,
                "zip file",
                f"it must have {info.file_size:,} bytes, as its directory states, got "
                f"{len(data):,}",
            )
        return data


def members(
    archive: Path, selects: Callable[[str], bool]
) -> Generator[tuple[str, bytes | None], None, None]:
    """Yields (name, content) of the selected members of a tar file; None for no regular file."""
    largest, allowed = _unpack.limit(), _unpack.allowance(archive)
    size = 0
    try:
        # The stream is bounded too, because tarfile reads some headers of any length as a whole.
        with (
            _open_archive(archive) as file,
            tarfile.open(fileobj=_unpack.bound_size(file, archive, allowed), mode="r|") as unpacked,
        ):
            for member in unpacked:
                # Also members that are not selected have a limit, because the stream unpacks them
                # to pass over them.
                if member.size > largest:
                    raise _unpack.too_large(f"{archive}/{member.name}", largest)
                if member.isdir() or not selects(member.name):
                    continue
                content = None
                if member.isfile():
                    # Sizes are summed, because a member may have holes, which no stream counts.
                    size += member.size
                    if size > allowed:
                        raise _unpack.too_large(archive, allowed)
                    reader = unpacked.extractfile(member)
                    content = reader.read() if reader else b""
                yield member.name, content
    except _DAMAGED as error:
        raise _unpack.Damaged(archive, "archive", error) from error


def _open_archive(archive: Path) -> IO[bytes]:
    with archive.open("rb") as file:
        # The first bytes decide how the archive is packed, because its name may be wrong.
        start = file.read(6)
    opener = next((opener for magic, opener in _OPENERS.items() if start.startswith(magic)), open)
    return cast(IO[bytes], opener(archive, "rb"))
