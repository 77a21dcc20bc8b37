"""Raw files: found, opened (plain or .gz), and every line parsed or set aside with a reason."""

import dataclasses
import gzip
import io
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gatedjax.data.files import _zip
from gatedjax.data.files._pair import PairPath
from gatedjax.data.files._part import PartPath
from gatedjax.data.files._source import Quarantined
from gatedjax.data.files._tar import TarPath
from gatedjax.data.files._unpack import gunzip
from gatedjax.data.files._zip import in_zip as in_zip

BOM = b"\xef\xbb\xbf"

AnyPath = Path | zipfile.Path | TarPath | PairPath | PartPath


class LineError(ValueError):
    """Why a line cannot be used.

    Args:
      reason: the message.
      line: which line it is (from 1), where several lines are one example; 0 if that is not known.
    """

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(reason)
        self.line = line


@dataclasses.dataclass(frozen=True)
class Row:
    """A well-formed line: its position in the official part (from 0), class and content."""

    index: int
    label: int
    content: Any
    file: str = ""
    """Where the text is, in sets that have not one text a line: its own file, or "file:line"."""


@dataclasses.dataclass(frozen=True)
class Rows:
    """An official part of a data set: rows by index, lines set aside, and how many were read."""

    rows: tuple[Row, ...]
    quarantine: tuple[Quarantined, ...]
    counted: int | None = None
    """Lines as whoever read them counted them, before any was parsed; None if nobody did."""
    note: str | None = None
    """Which text this is if it stands for the official one; None if it is that."""

    @property
    def lines(self) -> int:
        """Number of lines read."""
        return self.accounted if self.counted is None else self.counted

    @property
    def accounted(self) -> int:
        """Number of lines that are a row or were set aside; equals `lines`, or some were lost."""
        return len(self.rows) + len(self.quarantine)


def find(folders: Sequence[Path], name: str) -> Path | None:
    """Returns the file of this name, plain or .gz, in the first folder that has one."""
    for folder in folders:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    return None


def read_bytes(path: AnyPath) -> bytes:
    """Reads a file, unpacking .gz, without a byte-order mark.

    Raises:
      ValueError: if the compressed file is cut short or damaged, or unpacks to more than the limit.
    """
    try:
        if path.suffix != ".gz":
            data = _raw(path)
        elif isinstance(path, Path):
            with path.open("rb") as file:
                data = gunzip(file, path)
        else:
            data = gunzip(io.BytesIO(_raw(path)), path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}: truncated or damaged compressed file: {error}") from error
    return data.removeprefix(BOM)


def _raw(path: AnyPath) -> bytes:
    return _zip.read(path) if isinstance(path, zipfile.Path) else path.read_bytes()


def count_lines(path: AnyPath) -> int:
    """Counts the lines of a file in another way than `read_lines`, to check it."""
    return sum(1 for _ in io.BytesIO(read_bytes(path)))


def decode(data: bytes, encoding: str) -> str:
    """Decodes a text, refusing what no text file should hold.

    Raises:
      LineError: on broken UTF-8 or a NUL character.
    """
    if b"\0" in data:
        raise LineError("NUL character")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise LineError(f"not {encoding}: byte 0x{data[error.start]:02x}") from error


def read_lines(path: AnyPath, parse: Callable[[str], tuple[int, Any]], encoding: str) -> Rows:
    r"""Parses a file line by line; "\n" and "\r\n" end a line.

    Args:
      path: the file, plain or .gz.
      parse: line -> (label, content); raises LineError for a malformed one.
      encoding: of the text.

    Returns:
      All lines: parsed, or set aside with the reason.
    """
    rows, quarantine = [], []
    lines = read_bytes(path).split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    for index, line in enumerate(lines):
        try:
            text = decode(line.removesuffix(b"\r"), encoding)
            if not text.strip():
                raise LineError("empty line")
            if "\r" in text:
                # line ends of old Macs: all that follows would pass for the text of this line
                raise LineError("carriage return inside the line")
            rows.append(Row(index, *parse(text)))
        except LineError as error:
            quarantine.append(Quarantined(str(path), index + 1, str(error)))
    return Rows(tuple(rows), tuple(quarantine), counted=len(lines))
