"""A file inside a zip archive, whose directory may be wrong about it."""

import copy
import struct
import zipfile
import zlib
from pathlib import Path

from gatedjax.data.files import _unpack

_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError, struct.error)
# size fields of a header: written after the data, or in an extra field because they are large
_LATER, _ELSEWHERE = 0x08, 0xFFFFFFFF


def in_zip(archive: Path, member: str) -> zipfile.Path:
    """Returns a file inside a zip archive."""
    try:
        path = zipfile.Path(archive, member)
    except _DAMAGED as error:
        raise ValueError(f"{archive}: truncated or damaged zip file: {error}") from error
    if not path.is_file():
        raise ValueError(f"{archive}: no {member} in it")
    return path


def read(path: zipfile.Path) -> bytes:
    """Reads a file of an archive."""
    root, name = path.root, f"{path.root.filename}/{path.at}"
    info = root.getinfo(path.at)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        # zipfile unpacks the others without a bound, and no data set uses them
        raise ValueError(f"{name}: packed by method {info.compress_type}, which is not read here")
    allowed = _unpack.limit()
    if info.file_size > allowed:
        raise _unpack.too_large(name, allowed)
    # zipfile stops where the directory says that the data end, and compares checksums there: it is
    # told of more, a block that it unpacks at once, and asked for one byte of it
    longer = copy.copy(info)
    longer.file_size = info.file_size + (1 << 16)
    try:
        _check_header(root, info)
        with root.open(longer) as file:
            data = file.read(info.file_size + 1)
    except _DAMAGED as error:
        raise ValueError(f"{name}: truncated or damaged zip file: {error}") from error
    if len(data) != info.file_size:
        raise ValueError(
            f"{name}: damaged zip file: its directory says {info.file_size:,} bytes, "
            f"it has {'more' if len(data) > info.file_size else f'{len(data):,}'}"
        )
    return data


def _check_header(root: zipfile.ZipFile, info: zipfile.ZipInfo) -> None:
    """Compares the sizes in the header before the data with those of the directory."""
    if root.filename is None:
        return
    with open(root.filename, "rb") as file:
        file.seek(info.header_offset)
        fields = struct.unpack("<4s5H3L2H", file.read(30))
    if fields[2] & _LATER:
        return
    for what, told, listed in (
        ("packed", fields[7], info.compress_size),
        ("unpacked", fields[8], info.file_size),
    ):
        if told not in (listed, _ELSEWHERE):
            raise zipfile.BadZipFile(
                f"{what} size is {listed:,} in the directory, {told:,} in the file's own header"
            )
