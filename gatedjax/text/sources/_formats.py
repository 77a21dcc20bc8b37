"""Labelled texts in JSON, in fastText's format, in a folder per class, and in workbooks."""

import collections
import contextlib
import itertools
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from gatedjax._utils.limits import MOST_TEXT_BYTES
from gatedjax._utils.missing import missing
from gatedjax.data.files._unpack import TooLarge, allowance, open_compressed
from gatedjax.text.sources import _lines
from gatedjax.text.sources._csv import open_grid
from gatedjax.text.sources._memory import LOOK, open_dicts, open_tuples
from gatedjax.text.sources._table import EMPTY, Aside, Columns, Row, Source

WORKBOOKS = (".xlsx", ".xlsm")  # read by openpyxl, row by row
PREFIX = "__label__"
# fastText splits only at these spaces; Unicode's other spaces are characters of a label.
_SPACE = r" \t\v\f\r\n"
_LABEL = re.compile(rf"(?<![^{_SPACE}]){PREFIX}([^{_SPACE}]*)[{_SPACE}]*")
_PARTS = {"train", "test", "dev", "val", "valid", "validation"}
_EXPECTED = (
    'an array of objects, [{"text": "...", "label": "..."}, ...], or an array of pairs, '
    '[["text", "label"], ...]'
)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    # JSON allows a name twice, and Python would silently take the last value.
    if len(value) < len(pairs):
        counts = collections.Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"names must be different, got {twice[:40]!r} more than once")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_object)


def _parse(text: str) -> tuple[object, str, int]:
    """Returns the value of a JSON text, the reason why there is none or "", and its line."""
    try:
        return _DECODER.decode(text), "", 1
    except json.JSONDecodeError as error:
        return None, f"{error.msg} at character {error.colno}", error.lineno
    except RecursionError:
        return None, "nested too deep", 1
    except ValueError as error:  # A repeated name, or a number of 5,000 digits.
        return None, str(error), 1


def open_json_lines(file: _lines.TextFile) -> Source:
    """Opens a file with a JSON object in each line, with columns by name."""

    def rows() -> Iterator[object]:
        for number, line, problem in file.lines():
            reason = problem if line.strip() else EMPTY
            if reason is None:
                value, reason, _ = _parse(line.rstrip("\r\n"))
                if isinstance(value, dict):
                    yield value
                    continue
                kind = type(value).__name__
                reason = f"not JSON: {reason}" if reason else f"not an object but a {kind}"
            yield Aside(str(file.path), number, reason)

    return open_dicts(str(file.path), rows)


def open_json(file: _lines.TextFile) -> Source:
    """Opens a .json file: an array of objects or of pairs, or an object in each line."""
    # Many data sets with an object in each line have this ending.
    filled = (line.strip() for _, line, _ in file.lines() if line.strip())
    first = list(itertools.islice(filled, 2))
    if len(first) == 2 and all(line[0] == "{" and line[-1] == "}" for line in first):
        return open_json_lines(file)
    name = str(file.path)
    # A byte beyond the limit is read, so that a longer file is refused instead of cut.
    with open_compressed(file.path) as stream:
        data = stream.read(MOST_TEXT_BYTES + 1)
    if len(data) > MOST_TEXT_BYTES:
        raise ValueError(
            f"{name}: a .json file must have at most {MOST_TEXT_BYTES:,} bytes, because it is "
            "read at once: write a .jsonl file with an object in each line"
        )
    text = data.decode(_lines.check_encoding(file.encoding), "surrogateescape")
    value, reason, line = _parse(text)
    if reason:
        bad = _lines.fault(text, file.encoding)
        hint = f"; {bad}{_lines.suggest_encoding(file.path, file.encoding)}" if bad else ""
        raise ValueError(f"{name}:{line}: the file must be JSON: {reason}{hint}")
    if not isinstance(value, list):
        raise ValueError(
            f"{name}: a .json file must have {_EXPECTED}, got a {type(value).__name__}"
        )
    if value and isinstance(value[0], dict):
        return open_dicts(name, lambda: value)
    return open_tuples(name, value)


def open_fast_text(file: _lines.TextFile) -> Source:
    """Opens a text file in fastText's format: a text with labels "__label__NAME" in each line."""
    name = str(file.path)

    def rows(columns: Columns) -> Iterator[Row]:
        lines = file.lines()
        # Only the first lines are searched for labels, because a large file takes long to read.
        first = list(itertools.islice(lines, LOOK))
        is_labelled = any(PREFIX in text for _, text, _ in first)
        if columns.label is not None and first and not is_labelled:
            raise ValueError(
                f"{name}: a .txt file must have labels as {PREFIX}NAME, got none in its first "
                f"{len(first)} lines: add them, or give a table with a header the ending .csv or "
                ".tsv"
            )
        needs_label = columns.label is not None and columns.target != "labels"
        for number, text, problem in itertools.chain(first, lines):
            labels = _LABEL.findall(text)
            if not text.strip():
                problem = EMPTY
            elif problem is None and needs_label and not labels:
                problem = f"no {PREFIX}NAME"
            if problem is not None:
                yield Aside(name, number, problem)
            else:
                yield name, number, (_LABEL.sub("", text).strip(), labels)

    return Source(name, rows, single=True)


def open_folder(path: Path, encoding: str) -> Source:
    """Opens a folder with a folder per class; each .txt file is a text."""

    def rows(columns: Columns) -> Iterator[Row]:
        # The files are sorted, because the order of a file system differs between machines. Hidden
        # files, such as .DS_Store, are no texts.
        inner = [entry for entry in sorted(path.iterdir()) if not entry.name.startswith(".")]
        classes = [entry.name for entry in inner if entry.is_dir()]
        if columns.label is not None and not classes:
            raise ValueError(
                f"{path} must have a folder with .txt files for each class, got no folder"
            )
        # A data set with folders such as train and test would otherwise be two classes.
        if classes and {name.lower() for name in classes} <= _PARTS:
            raise ValueError(
                f"{path}: its folders must be classes, got the parts {', '.join(classes)}: give "
                "the path of a part"
            )
        for entry in inner:
            if entry.is_dir():
                for file in sorted(entry.rglob("*")):
                    if not file.is_dir() and not file.name.startswith("."):
                        yield _read_whole(file, encoding, entry.name)
            elif columns.label is None:
                yield _read_whole(entry, encoding, "")
            else:
                yield Aside(str(entry), 1, "not in the folder of a class")

    return Source(str(path), rows, single=True)


def _read_whole(path: Path, encoding: str, label: str) -> Row:
    """Returns the text of a file with its label, or an `Aside` if it cannot be used."""
    if not path.is_file():
        return Aside(str(path), 1, "not a regular file")
    if path.suffix.lower() != ".txt":
        return Aside(str(path), 1, "not a .txt file")
    try:
        if path.stat().st_size > _lines.LONGEST:
            return Aside(str(path), 1, f"longer than {_lines.LONGEST:,} bytes")
        lines = list(_lines.TextFile(path, encoding).lines())
    except (OSError, ValueError) as error:
        return Aside(str(path), 1, str(error))
    for number, _, problem in lines:
        if problem is not None:
            return Aside(str(path), number, problem)
    return str(path), 1, ("".join(line for _, line, _ in lines), label)


def open_workbook(path: Path, header: tuple[str, ...] | None) -> Source:
    """Opens the first sheet with cells; `header` has the names of a sheet without a header."""
    name = next((sheet for sheet, _, _ in _cells(path)), str(path))
    return open_grid(name, lambda: ((number, row) for _, number, row in _cells(path)), header)


def _cells(path: Path) -> Iterator[tuple[str, int, tuple[object, ...]]]:
    """Yields the name of the sheet, and the number and the cells of each row from the first with a
    value; an empty row has none. A damaged file raises errors of many types in openpyxl, also while
    rows are read.
    """
    try:
        import openpyxl
    except ImportError:
        raise ValueError(missing(f"{path} needs", "openpyxl")) from None
    try:
        # The sizes bound the memory, because zipfile unpacks no more than the sizes it lists.
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
        if size > allowance(path):
            raise TooLarge(path, allowance(path))
        # With `data_only` a formula has the value that was stored with the workbook.
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        with contextlib.closing(book):
            for sheet in book.worksheets:
                name = f"{path} [{sheet.title}]" if len(book.worksheets) > 1 else str(path)
                width = 0
                for number, row in enumerate(sheet.iter_rows(values_only=True), 1):
                    is_filled = any(value is not None and str(value).strip() for value in row)
                    width = width or len(row) * is_filled
                    if width:
                        # Empty cells at the end of a row are not stored.
                        cells = (*row, *[None] * (width - len(row)))[:width]
                        yield name, number, cells if is_filled else ()
                if width:
                    return
    except (OSError, ValueError):
        raise
    except Exception as error:
        raise ValueError(
            f"{path} must be a workbook that openpyxl can read, got a damaged file or another "
            f"format: {error}"
        ) from error
