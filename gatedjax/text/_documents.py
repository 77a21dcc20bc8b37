"""Labelled texts in a JSON document, or in a sheet of a workbook (.xlsx)."""

import contextlib
import dataclasses
import functools
import itertools
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gatedjax._utils.limits import MOST_TEXT_BYTES
from gatedjax._utils.missing import missing
from gatedjax.data.files._compressed import open_compressed
from gatedjax.data.files._unpack import allowance, too_large
from gatedjax.text._formats import DECODER, JsonLines
from gatedjax.text._lines import TextFile, check_encoding, suggest_encoding
from gatedjax.text._memory import InRows, InTuples
from gatedjax.text._table import (
    EMPTY,
    Aside,
    Cells,
    Columns,
    Form,
    check_names,
    fault,
    match_names,
)

_EXPECTED = (
    'an array of objects, [{"text": "...", "label": "..."}, ...], or an array of pairs, '
    '[["text", "label"], ...]'
)


def open_json(file: TextFile) -> Form:
    """Opens a .json file: an array of objects or of pairs, or an object in each line."""
    # Many data sets with an object in each line have this ending.
    if _has_lines(file):
        return JsonLines(file)
    # A byte more than the limit is read, so that a longer file is noticed and not cut.
    with open_compressed(file.path) as stream:
        data = stream.read(MOST_TEXT_BYTES + 1)
    if len(data) > MOST_TEXT_BYTES:
        raise ValueError(
            f"{file.name}: a .json file must have at most {MOST_TEXT_BYTES:,} bytes, because it is "
            "read at once: write a .jsonl file with an object in each line"
        )
    text = data.decode(check_encoding(file.encoding), "surrogateescape")
    value = _decode(text, file)
    if not isinstance(value, list):
        raise ValueError(
            f"{file.name}: a .json file must have {_EXPECTED}, got a {type(value).__name__}"
        )
    if not value:
        raise ValueError(f"{file.name} must have a labelled text, got an empty array")
    if isinstance(value[0], dict):
        return InRows(file.name, value)
    return InTuples(value, file.name)


def _has_lines(file: TextFile) -> bool:
    """Returns True if the first two lines of `file` that are not empty are each a JSON object."""
    lines = (line for _, line in file.lines() if line.strip())
    first = list(itertools.islice(lines, 2))
    if len(first) < 2:
        return False
    try:
        return all(isinstance(json.loads(line), dict) for line in first)
    except (ValueError, RecursionError):
        return False


def _decode(text: str, file: TextFile) -> object:
    """Returns the value of a JSON document; raises ValueError with the place of a fault."""
    try:
        return DECODER.decode(text)
    except json.JSONDecodeError as error:
        bad = fault(text, file.encoding)
        hint = suggest_encoding(file.path, file.encoding) if bad else ""
        reason = f"; {bad}{hint}" if bad else ""
        raise ValueError(
            f"{file.name}:{error.lineno}: the file must be JSON: {error.msg} at character "
            f"{error.colno}{reason}"
        ) from None
    except RecursionError:
        raise ValueError(
            f"{file.name}: the JSON must have fewer levels, got arrays or objects that are nested "
            "too deep"
        ) from None
    except ValueError as error:  # A repeated name, or a number of 5,000 digits.
        raise ValueError(f"{file.name}: the file must be JSON that can be read: {error}") from None


@dataclasses.dataclass(frozen=True)
class Workbook:
    """The first sheet with cells of an .xlsx file, read by openpyxl, a row at a time."""

    path: Path
    header: tuple[str, ...] | None = None  # the names of a sheet without a header

    @property
    def name(self) -> str:
        """The path of the file, with the name of the sheet if there are several sheets."""
        sheets, sheet = self._sheets
        return f"{self.path} [{sheet}]" if sheets > 1 else str(self.path)

    @functools.cached_property
    def _sheets(self) -> tuple[int, str]:
        with self._open() as book:
            for sheet in book.worksheets:
                if any(_is_filled(row) for row in sheet.iter_rows(values_only=True)):
                    return len(book.worksheets), sheet.title
        raise ValueError(f"{self.path} must have a labelled text, got an empty workbook")

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        try:
            import openpyxl
        except ImportError:
            raise ValueError(missing(f"{self.path} needs", "openpyxl")) from None
        try:
            # The sizes bound the memory, because zipfile unpacks no more than the sizes it lists.
            with zipfile.ZipFile(self.path) as archive:
                size = sum(info.file_size for info in archive.infolist())
            if size > allowance(self.path):
                raise too_large(self.path, allowance(self.path))
            # With `data_only` a formula has the value that was stored with the workbook.
            book = openpyxl.load_workbook(self.path, read_only=True, data_only=True)
        except (OSError, ValueError):
            raise
        except Exception as error:  # openpyxl raises errors of many types for a damaged file
            raise ValueError(
                f"{self.path} must be a workbook that openpyxl can read, got a damaged file or "
                f"another format: {error}"
            ) from error
        try:
            yield book
        finally:
            book.close()

    def _rows(self) -> Iterator[tuple[int, tuple[object, ...]]]:
        """Yields the number of each row, from 1, and the values of its cells."""
        _, sheet = self._sheets
        with self._open() as book:
            rows = enumerate(book[sheet].iter_rows(values_only=True), 1)
            while True:
                try:
                    number, row = next(rows)
                except StopIteration:
                    return
                except Exception as error:  # the rows are parsed as they are read
                    raise ValueError(
                        f"{self.path} must be a workbook that openpyxl can read, got a damaged "
                        f"sheet: {error}"
                    ) from error
                yield number, row

    @functools.cached_property
    def _first(self) -> tuple[int, tuple[object, ...]]:
        return next(((number, row) for number, row in self._rows() if _is_filled(row)), (0, ()))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        if self.header is not None:
            return self.header
        _, row = self._first
        return tuple("" if value is None else str(value).strip() for value in row)

    def check(self, columns: Columns) -> None:
        """Raises ValueError if a column is missing, or there is no row after the header."""
        number, row = self._first
        if self.header is not None and len(self.header) != len(row):
            raise ValueError(
                f"{self.name}: columns.header must name all {len(row)} columns of the first row, "
                f"got {len(self.header)}: {', '.join(map(repr, self.header))}"
            )
        check_names(self.name, self.names, columns, header=self.header is None)
        if next(self.rows(columns), None) is None:
            raise ValueError(
                f"{self.name} must have a row after the header, row {number}, got none"
            )

    def rows(self, columns: Columns) -> Iterator[Cells | Aside]:
        """Yields (name, row number, values) for each row, or an `Aside` for an empty row."""
        name, names = self.name, self.names
        places = [names.index(wanted) for wanted in match_names(names, columns)]
        first, _ = self._first
        for number, row in self._rows():
            if number < first + (self.header is None):
                continue
            if _is_filled(row):
                # A row may be shorter than the header, because empty cells at its end are not
                # stored.
                yield name, number, [row[place] if place < len(row) else None for place in places]
            else:
                yield Aside(name, number, EMPTY)


def _is_filled(row: tuple[object, ...]) -> bool:
    return any(value is not None and str(value).strip() for value in row)
