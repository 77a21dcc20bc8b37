"""Packed files, and files inside archives, which are read without unpacking them to a folder."""

import bz2
import contextlib
import dataclasses
import gzip
import importlib
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, cast

from gatedjax._utils.missing import missing


class Damaged(ValueError):
    """Raised for a packed file that is truncated or damaged."""

    def __init__(self, name: object, kind: str, error: object) -> None:
        self.reason = f"truncated or damaged {kind}: {error}"
        super().__init__(f"{name}: {self.reason}")


ENDS = (".gz", ".bz2", ".xz", ".zst", ".zip")
"""Endings of compressed files."""
OPENERS: dict[str, Callable[[Any], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
"""Openers of a path or a stream, by the ending of the file."""
_DAMAGED = (
    EOFError,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    struct.error,
    NotImplementedError,
)


@contextlib.contextmanager
def reporting_damage(name: object, noun: str) -> Iterator[None]:
    """Raises Damaged for the file `name` in place of the errors of libraries that unpack it."""
    try:
        yield
    except _DAMAGED as error:
        raise Damaged(name, noun, error) from error
    except Exception as error:
        # Libraries of zstd have classes of errors of their own, and bz2 and gzip raise an OSError
        # without a number.
        is_foreign = type(error).__name__ in ("ZstdError", "ArrowInvalid")
        if is_foreign or (isinstance(error, OSError) and error.errno is None):
            raise Damaged(name, noun, error) from error
        raise


def inner_name(path: Path) -> str:
    """Returns the name of the file that is compressed in a file: "a.csv" for "a.csv.gz"."""
    if path.suffix.lower() not in ENDS:
        return path.name
    return _member(path).filename if path.suffix.lower() == ".zip" else path.stem


def _is_hidden(name: str) -> bool:
    # macOS adds such files to an archive, which are no data of the user.
    return name.startswith("__MACOSX/") or name.rpartition("/")[2].startswith(".")


def _member(path: Path) -> zipfile.ZipInfo:
    """Returns the entry of the only file in the .zip file `path`."""
    try:
        with reporting_damage(path, "zip file"), zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
    except UnicodeDecodeError as error:
        raise Damaged(path, "zip file", error) from error
    files = [info for info in infos if not info.is_dir() and not _is_hidden(info.filename)]
    if len(files) != 1:
        names = ", ".join(repr(info.filename[:60]) for info in files[:4]) or "none"
        raise ValueError(
            f"{path}: a .zip file must have a single file inside, got {len(files)} ({names}"
            f"{', ...' * (len(files) > 4)}): unpack it, and give the file that is to be read"
        )
    if files[0].flag_bits & 1:
        raise ValueError(f"{path}: the file inside must not be encrypted: unpack it first")
    return files[0]


@contextlib.contextmanager
def open_compressed(path: Path) -> Iterator[BinaryIO]:
    """Opens a file, unpacked if it is packed (`ENDS`); reading may raise Damaged."""
    ending = path.suffix.lower()
    with path.open("rb") as file:
        if ending not in ENDS:
            yield file
        elif ending != ".zip":
            with unpack(file, ending, path) as unpacked:
                yield unpacked
        else:
            member = _member(path)
            with (
                reporting_damage(path, "zip file"),
                zipfile.ZipFile(file) as archive,
                archive.open(member) as inner,
            ):
                yield cast(BinaryIO, inner)


@contextlib.contextmanager
def unpack(file: IO[bytes], ending: str, name: object) -> Iterator[BinaryIO]:
    """Opens the unpacked stream of a packed stream; reading may raise Damaged."""
    open_stream = OPENERS.get(ending) or (lambda file: _open_zstd(file, name))
    with reporting_damage(name, "compressed file"), contextlib.closing(open_stream(file)) as stream:
        yield stream


def _open_zstd(file: IO[bytes], name: object) -> Any:
    """Opens a .zst file with Python 3.14, with the package zstandard, or with pyarrow."""
    with contextlib.suppress(ImportError):
        # The standard library is tried first, because it needs no package.
        return importlib.import_module("compression.zstd").ZstdFile(file)
    with contextlib.suppress(ImportError):
        decompressor = importlib.import_module("zstandard").ZstdDecompressor()
        stream = decompressor.stream_reader(file, read_across_frames=True, closefd=False)
        return io.BufferedReader(stream)  # which reads lines
    with contextlib.suppress(ImportError):
        stream = importlib.import_module("pyarrow").CompressedInputStream(file, "zstd")
        return io.BufferedReader(stream)
    raise ValueError(missing(f"{name} needs", "zstandard"))


_MAGIC = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ\x00": ".xz"}


@dataclasses.dataclass(frozen=True)
class ArchivePath:
    """A file inside a zip or tar file; in a tar file a leading "./" of its name does not matter."""

    archive: Path
    member: str

    @property
    def suffix(self) -> str:
        """The ending of the name of the member with its dot, such as ".txt", or ""."""
        return PurePosixPath(self.member).suffix

    def __str__(self) -> str:
        return f"{self.archive}/{self.member}"

    def read_bytes(self) -> bytes:
        """Returns the unpacked content; raises ValueError without this member."""
        # Two bytes are not enough, because a tar file begins with the name of its first member.
        if _first_bytes(self.archive).startswith((b"PK\x03\x04", b"PK\x05\x06")):
            data = self._read_zip()
        else:
            inside = members(self.archive, lambda name: name.removeprefix("./") == self.member)
            # Closing the generator leaves the rest of the archive packed.
            with contextlib.closing(inside):
                data = next((data for _, data in inside if data is not None), None)
        if data is None:
            raise ValueError(f"{self.archive}: the archive must contain {self.member}, got none")
        return data

    def _read_zip(self) -> bytes | None:
        with reporting_damage(self, "zip file"), zipfile.ZipFile(self.archive) as unpacked:
            if self.member not in unpacked.namelist():
                return None
            size, data = unpacked.getinfo(self.member).file_size, unpacked.read(self.member)
        # A truncated member may unpack without an error.
        if len(data) != size:
            raise Damaged(
                self,
                "zip file",
                f"it must have {size:,} bytes, as its directory states, got {len(data):,}",
            )
        return data


def members(
    archive: Path, selects: Callable[[str], bool]
) -> Generator[tuple[str, bytes | None], None, None]:
    """Yields (name, content) of the selected members of a tar file; None for no regular file."""
    # A stream, because tarfile would take the end of a truncated file for that of the archive.
    with (
        reporting_damage(archive, "archive"),
        _open_archive(archive) as file,
        tarfile.open(fileobj=file, mode="r|") as unpacked,
    ):
        for member in unpacked:
            if not member.isdir() and selects(member.name):
                reader = unpacked.extractfile(member) if member.isfile() else None
                yield member.name, reader.read() if reader else None


def _open_archive(archive: Path) -> IO[bytes]:
    # The first bytes decide how the archive is packed, because its name may be wrong.
    start = _first_bytes(archive)
    ending = next((ending for magic, ending in _MAGIC.items() if start.startswith(magic)), "")
    opener: Callable[[Any], Any] = OPENERS.get(ending, lambda path: path.open("rb"))
    return cast(IO[bytes], opener(archive))


def _first_bytes(archive: Path) -> bytes:
    with archive.open("rb") as file:
        return file.read(6)
