"""Files that are compressed: .gz, .bz2, .xz, .zst, and .zip with a single file.

The unpacked stream has a limit, see `gatedjax.data.files._unpack`.
"""

import bz2
import contextlib
import gzip
import importlib
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, cast

from gatedjax._utils.missing import missing
from gatedjax.data.files._unpack import Damaged, allowance, bound_size

ENDS = (".gz", ".bz2", ".xz", ".zst", ".zip")
"""Endings of compressed files."""
_DAMAGED = (
    EOFError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    struct.error,
    NotImplementedError,
)


def inner_name(path: Path) -> str:
    """Returns the name of the file that is compressed in a file: "a.csv" for "a.csv.gz"."""
    if path.suffix.lower() not in ENDS:
        return path.name
    return _member(path).filename if path.suffix.lower() == ".zip" else path.stem


def _member(path: Path) -> zipfile.ZipInfo:
    """Returns the entry of the only file in the .zip file `path`."""
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
    except (*_DAMAGED, UnicodeDecodeError) as error:
        raise Damaged(path, "zip file", error) from error
    # macOS adds a folder __MACOSX and hidden files to an archive, which are no data of the user.
    members = [
        info
        for info in infos
        if not info.is_dir()
        and not info.filename.startswith("__MACOSX/")
        and not PurePosixPath(info.filename).name.startswith(".")
    ]
    if len(members) != 1:
        names = ", ".join(repr(info.filename[:60]) for info in members[:4]) or "none"
        raise ValueError(
            f"{path}: a .zip file must have a single file inside, got {len(members)} ({names}"
            f"{', ...' * (len(members) > 4)}): unpack it, and give the file that is to be read"
        )
    if members[0].flag_bits & 1:
        raise ValueError(f"{path}: the file inside must not be encrypted: unpack it first")
    if members[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        # zipfile unpacks a whole block of another method at once, without a limit.
        raise ValueError(
            f"{path}: the file inside must be stored or deflated, got compression method "
            f"{members[0].compress_type}: unpack it first"
        )
    return members[0]


@contextlib.contextmanager
def open_compressed(path: Path) -> Iterator[BinaryIO]:
    """Opens a file, unpacked if it is packed (`ENDS`); reading may raise Damaged or TooLarge."""
    ending = path.suffix.lower()
    if ending not in ENDS:
        with path.open("rb") as file:
            yield file
        return
    noun = "zip file" if ending == ".zip" else "compressed file"
    with path.open("rb") as file:
        try:
            with _unpack(file, ending, path) as unpacked:
                yield bound_size(unpacked, path, allowance(path))
        except _DAMAGED as error:
            raise Damaged(path, noun, error) from error
        except Exception as error:
            # Libraries of zstd have classes of errors of their own, and bz2 and gzip raise an
            # OSError without a number.
            is_foreign = type(error).__name__ in ("ZstdError", "ArrowInvalid")
            if is_foreign or (isinstance(error, OSError) and error.errno is None):
                raise Damaged(path, noun, error) from error
            raise


@contextlib.contextmanager
def _unpack(file: IO[bytes], ending: str, path: Path) -> Iterator[IO[bytes]]:
    """Opens the stream of unpacked bytes of `file`, for a `with` block."""
    if ending == ".zip":
        member = _member(path)
        with zipfile.ZipFile(file) as archive, archive.open(member) as unpacked:
            yield unpacked
        return
    stream: Any
    if ending == ".gz":
        stream = gzip.GzipFile(fileobj=file)
    elif ending == ".bz2":
        stream = bz2.BZ2File(file)
    elif ending == ".xz":
        stream = lzma.LZMAFile(file)  # noqa: SIM115 (closed below)
    else:
        stream = _open_zstd(file, path)
    with contextlib.closing(stream):
        yield cast(IO[bytes], stream)


def _open_zstd(file: IO[bytes], path: Path) -> Any:
    """Opens a .zst file with Python 3.14, with the package zstandard, or with pyarrow."""
    with contextlib.suppress(ImportError):
        # The standard library is tried first, because it needs no package.
        return importlib.import_module("compression.zstd").ZstdFile(file)
    with contextlib.suppress(ImportError):
        decompressor = importlib.import_module("zstandard").ZstdDecompressor()
        return decompressor.stream_reader(file, read_across_frames=True, closefd=False)
    with contextlib.suppress(ImportError):
        return importlib.import_module("pyarrow").CompressedInputStream(file, "zstd")
    raise ValueError(missing(f"{path} needs", "zstandard"))
