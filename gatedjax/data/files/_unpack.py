"""Packed files and archives, with a limit for what comes out: 8 GB of zeros fit into 36 MB.

The limit holds for each .gz file and each member of an archive. It is checked during unpacking; the
size in the header of a file is used only to refuse the file earlier. Files that are read in pieces
(word vectors, all members of an archive) may be larger than the limit: up to `RATIO` times the size
of the packed file.
"""

import bz2
import contextlib
import contextvars
import dataclasses
import gzip
import importlib
import io
import lzma
import os
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, cast

from gatedjax._utils.missing import missing

LIMIT = 1 << 30
"""The default limit in bytes. The largest raw file of the sets of `load` has 0.8 GB (WMT14)."""
RATIO = 32
"""Largest ratio of unpacked to packed size; for texts and images it is 3 to 10."""
VARIABLE = "GATEDJAX_UNPACK_LIMIT"
"""The environment variable for another limit, in a format of `parse_size`."""

# A context variable keeps the limit of a call from other threads.
_LIMIT: contextvars.ContextVar[int | None] = contextvars.ContextVar("unpack_limit", default=None)


class TooLarge(ValueError):
    """Raised if a file or member `name` unpacks to more than `allowed` bytes, by default 1 GiB."""

    def __init__(self, name: object, allowed: int) -> None:
        super().__init__(
            f"{name}: unpacks to more than {allowed:,} bytes, the limit. If it is meant to, raise "
            "the limit: unpack_limit=... (--unpack-limit), or the environment variable "
            f"{VARIABLE}=8GiB"
        )


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
            raise TooLarge(self._name, self._allowed)
        buffer[: len(data)] = data
        return len(data)


def bound_size(file: IO[bytes], name: object, allowed: int) -> BinaryIO:
    """Returns a stream with the same bytes that raises TooLarge after a number of bytes."""
    return cast(BinaryIO, io.BufferedReader(_Bounded(file, name, allowed)))


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


def check_member(name: object, info: zipfile.ZipInfo) -> None:
    """Raises ValueError for a member of a .zip file that cannot be unpacked within a limit."""
    if info.flag_bits & 1:
        raise ValueError(f"{name}: the file inside must not be encrypted: unpack it first")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        # zipfile unpacks a whole block of another method at once, without a limit.
        raise ValueError(
            f"{name}: the file inside must be stored or deflated, got compression method "
            f"{info.compress_type}: unpack it first"
        )


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
    check_member(path, files[0])
    return files[0]


@contextlib.contextmanager
def open_compressed(path: Path, *, allowed: int | None = None) -> Iterator[BinaryIO]:
    """Opens a file, unpacked if it is packed (`ENDS`); reading may raise Damaged or TooLarge."""
    ending = path.suffix.lower()
    with path.open("rb") as file:
        if ending not in ENDS:
            yield file
            return
        most = allowance(path) if allowed is None else allowed
        if ending != ".zip":
            with unpack(file, ending, path, most) as unpacked:
                yield unpacked
            return
        with (
            reporting_damage(path, "zip file"),
            zipfile.ZipFile(file) as archive,
            archive.open(_member(path)) as inner,
        ):
            yield bound_size(inner, path, most)


@contextlib.contextmanager
def unpack(file: IO[bytes], ending: str, name: object, allowed: int) -> Iterator[BinaryIO]:
    """Opens the unpacked stream of a packed stream; reading may raise Damaged or TooLarge."""
    open_stream = OPENERS.get(ending) or (lambda file: _open_zstd(file, name))
    with reporting_damage(name, "compressed file"), contextlib.closing(open_stream(file)) as stream:
        yield bound_size(stream, name, allowed)


def _open_zstd(file: IO[bytes], name: object) -> Any:
    """Opens a .zst file with Python 3.14, with the package zstandard, or with pyarrow."""
    with contextlib.suppress(ImportError):
        # The standard library is tried first, because it needs no package.
        return importlib.import_module("compression.zstd").ZstdFile(file)
    with contextlib.suppress(ImportError):
        decompressor = importlib.import_module("zstandard").ZstdDecompressor()
        return decompressor.stream_reader(file, read_across_frames=True, closefd=False)
    with contextlib.suppress(ImportError):
        return importlib.import_module("pyarrow").CompressedInputStream(file, "zstd")
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
        """Returns the unpacked content; raises ValueError without this member, or TooLarge."""
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
            info = unpacked.getinfo(self.member)
            check_member(self, info)
            with unpacked.open(info) as file:
                data = bound_size(file, self, limit()).read()
        # A truncated member may unpack without an error.
        if len(data) != info.file_size:
            sizes = f"{info.file_size:,} bytes, as its directory states, got {len(data):,}"
            raise Damaged(self, "zip file", f"it must have {sizes}")
        return data


def members(
    archive: Path, selects: Callable[[str], bool]
) -> Generator[tuple[str, bytes | None], None, None]:
    """Yields (name, content) of the selected members of a tar file; None for no regular file."""
    largest, allowed = limit(), allowance(archive)
    size = 0
    # The stream is bounded too, because tarfile reads some headers of any length as a whole.
    with (
        reporting_damage(archive, "archive"),
        _open_archive(archive) as file,
        tarfile.open(fileobj=bound_size(file, archive, allowed), mode="r|") as unpacked,
    ):
        for member in unpacked:
            # Also members that are not selected have a limit, because the stream unpacks them to
            # pass over them.
            if member.size > largest:
                raise TooLarge(f"{archive}/{member.name}", largest)
            if member.isdir() or not selects(member.name):
                continue
            content = None
            if member.isfile():
                # Sizes are summed, because a member may have holes, which no stream counts.
                size += member.size
                if size > allowed:
                    raise TooLarge(archive, allowed)
                reader = unpacked.extractfile(member)
                content = reader.read() if reader else b""
            yield member.name, content


def _open_archive(archive: Path) -> IO[bytes]:
    # The first bytes decide how the archive is packed, because its name may be wrong.
    start = _first_bytes(archive)
    ending = next((ending for magic, ending in _MAGIC.items() if start.startswith(magic)), "")
    opener: Callable[[Any], Any] = OPENERS.get(ending, lambda path: path.open("rb"))
    return cast(IO[bytes], opener(archive))


def _first_bytes(archive: Path) -> bytes:
    with archive.open("rb") as file:
        return file.read(6)
