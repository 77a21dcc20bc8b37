"""Tables with commas, tabs or bars between the fields; a field in quotes may have several lines."""

import csv
import dataclasses
from collections import deque
from collections.abc import Iterator, Sequence

from gatedjax.text._lines import LONGEST, TextFile, suggest_encoding
from gatedjax.text._table import EMPTY, REPEATED, Aside, Cells, Columns, check_names, match_names

_DELIMITERS = {
    ".csv": (",", ";", "\t", "|"),
    **dict.fromkeys((".tsv", ".tab"), ("\t",)),
}
# The mark of byte order, which begins each of several files that were joined.
_MARK = "\ufeff"
ENDS = tuple(_DELIMITERS)
"""Endings of files with delimiters between the fields."""
Fields = tuple[int, list[str] | str]
"""The line where a record begins, and its fields, or the reason why it cannot be used."""


class _Lines:
    """Lines for `csv.reader`, stored until their record is complete, to be read again if needed."""

    def __init__(self, lines: Iterator[tuple[int, str]]) -> None:
        self._lines, self._again = lines, deque[tuple[int, str]]()
        self.pending: list[tuple[int, str]] = []
        # The characters that were read from the file, that were put back, and of `pending`.
        self.read = self.reread = self._size = 0

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        if self._again:
            line = self._again.popleft()
        else:
            line = next(self._lines)
            self.read += len(line[1])
        self._size += len(line[1])
        # A quote that is never closed would otherwise read the rest of the file into memory.
        if self.pending and self._size > LONGEST:
            self._again.appendleft(line)
            raise csv.Error(f"no end of a field within {LONGEST:,} characters")
        self.pending.append(line)
        return line[1]

    def discard(self) -> None:
        self.pending.clear()
        self._size = 0

    def give_back(self) -> None:
        # The first line is not read again, because the caller yields it, as a record or a fault.
        self.reread += self._size
        self._again.extendleft(reversed(self.pending[1:]))
        self.discard()


def _split(line: str) -> list[str]:
    return line.rstrip("\r\n").split("\t")


def _records(file: TextFile, delimiter: str) -> Iterator[Fields]:
    """Yields (line, fields or reason) for each record, the header included. Quotes that are not
    balanced spoil only the first line; with tabs they are part of the text.
    """
    if csv.field_size_limit() < LONGEST:  # The limit of the process, by default 128 KiB.
        csv.field_size_limit(LONGEST)
    lines, tabs, width = _Lines(file.lines()), delimiter == "\t", 0
    while True:
        try:
            # Without `strict` the reader would silently accept text after a closing quote.
            for fields in csv.reader(lines, delimiter=delimiter, strict=True):
                line, first = lines.pending[0]
                width = width or len(fields)
                problems = (file.fault(text) for _, text in lines.pending)
                if problem := next(filter(None, problems), None):
                    lines.discard()
                    yield line, problem
                # In a file with tabs a word may begin with a quote that closes nowhere near. If
                # each line has all columns, the quote belongs to the text.
                elif tabs and len(lines.pending) > 1 and _is_record_each(lines.pending, width):
                    lines.give_back()
                    yield line, _split(first)
                    break  # A new csv.reader is needed, because this reader has consumed the lines.
                else:
                    lines.discard()
                    yield line, fields
            else:
                return
        except csv.Error as error:
            (line, first), last = lines.pending[0], lines.pending[-1][0]
            lines.give_back()
            # Each quote that is not closed reads lines again. The limit keeps the time proportional
            # to the size of the file.
            if lines.reread > 4 * (lines.read + LONGEST):
                message = (
                    f"{file.path}:{line}: quotes around fields must be closed, got too many that "
                    f"are not: {error}: write a quote inside a field in quotes twice"
                )
                raise ValueError(message) from None
            width = width or len(_split(first))
            problem = file.fault(first)
            yield line, problem or (_split(first) if tabs else _reason(line, last, str(error)))


def _is_record_each(lines: list[tuple[int, str]], width: int) -> bool:
    return width > 1 and all(text.count("\t") == width - 1 for _, text in lines)


def _reason(first: int, last: int, error: str) -> str:
    if "end of data" in error or "no end" in error or "field limit" in error:
        return "a quote opens a field here that no quote closes"
    where = "" if first == last else f", which closes in line {last}"
    return f"text after a field in quotes{where}: a quote inside such a field is written twice"


@dataclasses.dataclass(frozen=True)
class Delimited:
    """A .csv, .tsv or .tab file; a .csv file may have ";", "|" or tabs as delimiters."""

    file: TextFile
    kind: str
    header: tuple[str, ...] | None = None  # the names of a file without a header

    @property
    def name(self) -> str:
        """The path of the file."""
        return self.file.name

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self._header()[1]

    def _header(self) -> tuple[str, tuple[str, ...]]:
        """Returns the delimiter, the first unless only another splits the header, and the names."""
        # All delimiters are tried, because spreadsheets in many countries write semicolons into
        # .csv files.
        headers = [(mark, self._first(mark)) for mark in _DELIMITERS[self.kind]]
        if self.header is not None:
            counts = {mark: _count(fields) for mark, fields in headers}
            fitting = [mark for mark, count in counts.items() if count == len(self.header)]
            if fitting:
                self._check_first(dict(headers)[fitting[0]])
                return fitting[0], self.header
            reason = next((fields for _, fields in headers if isinstance(fields, str)), "")
            if not max(counts.values()):
                raise ValueError(reason)
            raise ValueError(
                f"{self.name}: columns.header must name all {max(counts.values())} columns of the "
                f"first line, got {len(self.header)}: {', '.join(map(repr, self.header))}"
            )
        first, most = headers[0], max(headers, key=lambda header: _count(header[1]))
        delimiter, names = most if _count(first[1]) < 2 <= _count(most[1]) else first
        if isinstance(names, str):
            raise ValueError(names)
        return delimiter, names

    def _check_first(self, fields: Sequence[str] | str) -> None:
        # A file with a header would otherwise have a text "text" of the class "label".
        names = self.header or ()
        pairs = [(name, field) for name, field in zip(names, fields, strict=False) if name]
        if pairs and all(name.casefold() == field.casefold() for name, field in pairs):
            raise ValueError(
                f"{self.name}: columns.header must be left out for a file with a header, got the "
                f"names of its first line: {', '.join(map(repr, names))}"
            )

    def _first(self, delimiter: str) -> tuple[str, ...] | str:
        """Returns the stripped fields of the first record, or the reason why it is unreadable."""
        for line, fields in _records(self.file, delimiter):
            if isinstance(fields, str):
                hint = ""
                if fields.startswith("not "):
                    hint = suggest_encoding(self.file.path, self.file.encoding)
                    hint = hint or "; give its encoding with --encoding"
                noun = "first line" if self.header else "header"
                return f"{self.name}:{line}: the {noun} cannot be read: {fields}{hint}"
            if fields:
                return tuple(name.strip() for name in fields)
        return f"{self.name} must have a labelled text, got an empty file"

    def check(self, columns: Columns) -> None:
        """Raises ValueError if the header lacks a column, or there is no line after the header."""
        check_names(self.name, self.names, columns, header=self.header is None)
        if next(self.rows(columns), None) is None:
            raise ValueError(f"{self.name} must have a row after the header, got none")

    def rows(self, columns: Columns) -> Iterator[Cells | Aside]:
        """Yields (file, line, values) for each record after the header, or an `Aside`."""
        delimiter, names = self._header()
        places = [names.index(name) for name in match_names(names, columns)]
        header: list[str] | str | None = [] if self.header is None else None
        for line, fields in _records(self.file, delimiter):
            if header is not None and not header:
                header = fields  # Empty lines may precede the header.
            elif isinstance(fields, str):
                yield Aside(self.name, line, fields)
            elif not fields:
                yield Aside(self.name, line, EMPTY)
            # In a file with a single column, such a line may be a text.
            elif len(fields) > 1 and [fields[0].removeprefix(_MARK), *fields[1:]] == header:
                yield Aside(self.name, line, REPEATED)
            elif len(fields) != len(names):
                where = "--columns" if self.header else "the header"
                reason = f"{_fields(len(fields))} where {where} has {len(names)}"
                yield Aside(self.name, line, reason)
            else:
                yield self.name, line, [fields[place] for place in places]


def _count(names: tuple[str, ...] | str) -> int:
    # With a wrong delimiter text follows a name in quotes, so that the header is not a tuple.
    return 0 if isinstance(names, str) else len(names)


def _fields(count: int) -> str:
    return f"{count} field{'s' * (count != 1)}"
