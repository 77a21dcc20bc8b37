"""Lines of raw files, every one of them parsed or set aside with a reason."""

import dataclasses
from collections.abc import Callable
from typing import Any

from gatedjax.data.files._paths import AnyPath, split_lines
from gatedjax.data.files._source import Quarantined


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

    def first_aside(self) -> str:
        """The first line that was set aside, as the end of a message."""
        return f", first {self.quarantine[0]}" if self.quarantine else ""


def decode(data: bytes, encoding: str = "utf-8") -> str:
    """Decodes a text, refusing what no text file should hold: broken UTF-8, NUL (LineError)."""
    if b"\0" in data:
        raise LineError("NUL character")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise LineError(f"not {encoding}: byte 0x{data[error.start]:02x}") from error


def read_lines(
    path: AnyPath, parse: Callable[[str], tuple[int, Any]], encoding: str = "utf-8"
) -> Rows:
    r"""Parses a file line by line; "\n" and "\r\n" end a line.

    Args:
      path: the file, plain or .gz.
      parse: line -> (label, content); raises LineError for a malformed one.
      encoding: of the text.

    Returns:
      All lines: parsed, or set aside with the reason.
    """
    rows, quarantine = [], []
    lines = split_lines(path)
    for index, line in enumerate(lines):
        try:
            rows.append(Row(index, *parse(checked(decode(line.removesuffix(b"\r"), encoding)))))
        except LineError as error:
            quarantine.append(Quarantined(str(path), index + 1, str(error)))
    return Rows(tuple(rows), tuple(quarantine), counted=len(lines))


def checked(text: str) -> str:
    """The text of a line, if it is one."""
    if not text.strip():
        raise LineError("empty line")
    if "\r" in text:
        # line ends of old Macs: all that follows would pass for the text of this line
        raise LineError("carriage return inside the line")
    return text
