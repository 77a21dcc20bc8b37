"""Lines of raw files, and files of a text each, which are parsed or set aside with a reason."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from gatedjax.data.files._paths import AnyPath, PairPath, split_lines
from gatedjax.data.files._source import Quarantined


class LineError(ValueError):
    """Raised for a line that cannot be used; `line` is its number in a block of lines, or 0."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(reason)
        self.line = line


@dataclasses.dataclass(frozen=True)
class FileRow:
    """A well-formed item of a data set: a line, a block of lines, or a file."""

    index: int  # in the official part, from 0
    label: int  # 0 in sets without classes
    content: Any  # the result of the parser, such as a text or a tree
    file: str = ""  # the place of the text, a file or FILE:LINE, if its line is not index + 1


@dataclasses.dataclass(frozen=True)
class FileRows:
    """The well-formed and the malformed lines of an official part of a data set."""

    rows: tuple[FileRow, ...]  # sorted by their index
    quarantine: tuple[Quarantined, ...]
    counted: int | None = None  # lines that the reader counted before it parsed them
    note: str | None = None  # a description of a text that replaces the official text

    @property
    def lines(self) -> int:
        """The number of lines that were read."""
        return len(self.rows) + len(self.quarantine) if self.counted is None else self.counted


def decode(data: bytes, encoding: str = "utf-8") -> str:
    """Decodes a line or file; raises LineError for invalid bytes and for NUL characters."""
    # NUL is valid UTF-8, but in a text it is the sign of a damaged or binary file.
    if b"\0" in data:
        raise LineError("NUL character")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise LineError(f"not {encoding}: byte 0x{data[error.start]:02x}") from error


def parse_lines(
    path: AnyPath,
    parse: Callable[[str], Any],
    encoding: str = "utf-8",
    *,
    selects: Callable[[bytes], bool] = lambda line: True,
) -> Iterator[tuple[int, Any]]:
    """Yields (number from 1, result of `parse` or the LineError) for each selected line."""
    for number, line in enumerate(split_lines(path), start=1):
        if not selects(line):
            continue
        try:
            yield number, parse(check_text(decode(line.removesuffix(b"\r"), encoding)))
        except LineError as error:
            yield number, error


def _place(path: AnyPath, number: int, index: int) -> str:
    # Lines of other parts, or that are no sentences, may come before.
    return "" if number == index + 1 else f"{path}:{number}"


def read_lines(
    path: AnyPath,
    parse: Callable[[str], tuple[int, Any]],
    encoding: str = "utf-8",
    *,
    selects: Callable[[bytes], bool] = lambda line: True,
) -> FileRows:
    """Parses the selected lines of a file; a line whose `parse` raises LineError is set aside."""
    rows, quarantine, index = [], [], 0
    for number, result in parse_lines(path, parse, encoding, selects=selects):
        if isinstance(result, LineError):
            quarantine.append(Quarantined(str(path), number, str(result)))
        else:
            label, content = result
            rows.append(FileRow(index, label, content, _place(path, number, index)))
        index += 1
    return FileRows(tuple(rows), tuple(quarantine), counted=index)


def read_pairs(
    path: PairPath,
    sides: tuple[Iterable[tuple[int, Any]], Iterable[tuple[int, Any]]],  # as of `parse_lines`
    nouns: str,
    join: Callable[[Any, Any], tuple[Any, ...]] = lambda source, target: (source, target),
) -> FileRows:
    """Joins the lines of a source and a target file; a pair that `join` refuses, or with an
    unusable line, is set aside once.
    """
    sources, targets = map(list, sides)
    # With different numbers of lines it is unknown where the pairs are shifted, so no pair can be
    # trusted.
    if len(sources) != len(targets):
        raise ValueError(
            f"{nouns} must have the same number of lines, got {len(sources):,} in {path.source} "
            f"and {len(targets):,} in {path.target}"
        )
    rows, quarantine = [], []
    for index, ((first, source), (second, target)) in enumerate(zip(sources, targets, strict=True)):
        if isinstance(source, LineError):
            quarantine.append(Quarantined(str(path.source), first, str(source)))
            continue
        try:
            if isinstance(target, LineError):
                raise target
            rows.append(FileRow(index, 0, join(source, target), _place(path.source, first, index)))
        except LineError as error:
            quarantine.append(Quarantined(str(path.target), second, str(error)))
    return FileRows(tuple(rows), tuple(quarantine), counted=len(sources))


def check_text(text: str) -> str:
    """Returns the line `text`; raises LineError if it is empty or has a carriage return inside."""
    if not text.strip():
        raise LineError("empty line")
    if "\r" in text:
        # A carriage return ends lines in old Mac files, which would be read as a single line.
        raise LineError("carriage return inside the line")
    return text


File = tuple[str, bytes | None]
"""Name and content of a file; the content is None if it is not a regular file."""


def files_of(folder: Path, prefix: str = "") -> Iterator[File]:
    """Yields (name, content) of each entry of a folder."""
    for file in folder.iterdir():
        yield f"{prefix}{file.name}", file.read_bytes() if file.is_file() else None


def read_files(
    path: Path,
    files: Iterable[File],
    parse: Callable[[str, bytes], tuple[int, Any]],
    *,
    noun: str,
    ends: tuple[str, ...],
) -> FileRows:
    """Parses the files of a part; files with other endings are set aside."""
    rows, quarantine = [], []
    # Sorted by name, so that ids do not depend on the order of the archive or the file system.
    ordered = sorted(files, key=lambda file: file[0])

    def is_text(name: str) -> bool:
        # Hidden files are not texts: .DS_Store, and the ._ copies that macOS puts into archives.
        return name.endswith(ends) and not name.rpartition("/")[2].startswith(".")

    for index, (name, data) in enumerate(file for file in ordered if is_text(file[0])):
        try:
            if data is None:
                raise LineError("not a regular file")
            rows.append(FileRow(index, *parse(name, data), file=name))
        except LineError as error:
            quarantine.append(Quarantined(f"{path}/{name}", error.line, str(error)))
    for name, _ in ordered:
        if not is_text(name):
            reason = f"not a {noun}: no {ends[0]} file"
            quarantine.append(Quarantined(f"{path}/{name}", 0, reason))
    # Files with other endings are counted too, because each of them is set aside.
    return FileRows(tuple(rows), tuple(quarantine), counted=len(ordered))
