"""Tables with delimiters between the fields; a field in quotes may have several lines."""

import collections
import csv
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

from gatedjax.text.sources._lines import LONGEST, TextFile, suggest_encoding
from gatedjax.text.sources._table import EMPTY, REPEATED, Aside, Columns, Row, Source

Cells = tuple[int, Sequence[object] | str]
"""The line where a record begins, and its cells, or the reason why it cannot be used."""
# The byte-order mark, with which each part of a joined file begins.
_ORDER = "\ufeff"


def open_grid(
    name: str, records: Callable[[], Iterator[Cells]], header: tuple[str, ...] | None
) -> Source:
    """Opens a source of records; `header` has the names of the columns if there is no header."""
    # Empty lines may precede the header.
    line, first = next((record for record in records() if record[1]), (0, ()))
    if not first:
        raise ValueError(f"{name} must have a labelled text, got an empty file")
    titles = tuple("" if cell is None else str(cell).strip() for cell in first)
    if header is not None:
        shown = ", ".join(map(repr, header))
        if len(header) != len(titles):
            raise ValueError(
                f"{name}: columns.header must name all {len(titles)} columns of the first line, "
                f"got {len(header)}: {shown}"
            )
        # A file with a header would otherwise have a text "text" of the class "label".
        cells = [(title, cell) for title, cell in zip(header, titles, strict=True) if title]
        if all(title.casefold() == cell.casefold() for title, cell in cells):
            raise ValueError(
                f"{name}: columns.header must be left out for a file with a header, got the names "
                f"of its first line: {shown}"
            )
    names = titles if header is None else header
    header_line, heads = (line, first) if header is None else (0, ())
    starts = [f"{mark}{head}" for mark in ("", _ORDER) for head in heads[:1]]

    def rows(columns: Columns) -> Iterator[Row]:
        places = [names.index(column) for column in columns.wanted]
        for line, cells in records():
            if line <= header_line:
                continue
            if isinstance(cells, str):
                yield Aside(name, line, cells)
            elif not cells:
                yield Aside(name, line, EMPTY)
            elif len(cells) != len(names):
                where = "the header" if header is None else "--columns"
                s = "s" * (len(cells) != 1)
                yield Aside(name, line, f"{len(cells)} field{s} where {where} has {len(names)}")
            # In a file with a single column, such a line may be a text.
            elif len(cells) > 1 and cells[1:] == heads[1:] and cells[0] in starts:
                yield Aside(name, line, REPEATED)
            else:
                yield name, line, [cells[place] for place in places]

    return Source(name, rows, names, headed=header is None)


MARKS = {".csv": (",", ";", "\t", "|"), ".tsv": ("\t",), ".tab": ("\t",)}
"""Endings of files, and the delimiters that may be between their fields."""
_Line = tuple[int, str, str | None]  # see `TextFile.lines`


def open_csv(file: TextFile, ending: str, header: tuple[str, ...] | None) -> Source:
    """Opens a .csv, .tsv or .tab file; `header` has the names of a file without a header."""
    # All delimiters are tried, because spreadsheets in many countries write semicolons into .csv
    # files. The first is used unless only another splits the line.
    firsts = {
        mark: next((record for record in read_records(file, mark) if record[1]), (0, []))
        for mark in MARKS[ending]
    }
    # With a wrong delimiter text follows a name in quotes, so that there are no fields.
    counts = {m: len(fields) * isinstance(fields, list) for m, (_, fields) in firsts.items()}
    most = max(counts, key=lambda m: (header is not None and counts[m] == len(header), counts[m]))
    default = MARKS[ending][0]
    mark = most if header or counts[default] < 2 <= counts[most] else default
    line, fields = firsts[mark]
    if isinstance(fields, str):
        hint = ""
        if fields.startswith("not "):
            hint = suggest_encoding(file.path, file.encoding)
            hint = hint or "; give its encoding with --encoding"
        noun = "first line" if header else "header"
        raise ValueError(f"{file.path}:{line}: the {noun} must be readable: {fields}{hint}")
    return open_grid(str(file.path), functools.partial(read_records, file, mark), header)


def read_records(file: TextFile, mark: str) -> Iterator[tuple[int, list[str] | str]]:
    """Yields for each record, the header included, the line where it begins, and its fields or the
    reason why it cannot be used. Quotes that are not balanced spoil only their line; with tabs
    between the fields they are part of the text.
    """
    # The limit of the process is 128 KiB by default.
    csv.field_size_limit(max(LONGEST, csv.field_size_limit()))
    again, lines = collections.deque[_Line](), file.lines()
    tabs, width, total, reread = mark == "\t", 0, 0, 0

    def take() -> _Line | None:
        return again.popleft() if again else next(lines, None)

    for line in iter(take, None):
        number, text, problem = line
        total += len(text)
        plain = text.rstrip("\r\n").split(mark)
        if '"' not in text:
            fields = plain if len(plain) > 1 or plain[0] else []
            width = width or len(fields)
            yield number, problem or fields
            continue
        pending: list[_Line] = []
        try:
            # Without `strict` the reader would silently accept text after a closing quote.
            text_lines = _record(itertools.chain([line], iter(take, None)), pending)
            cells: list[str] | str = next(csv.reader(text_lines, delimiter=mark, strict=True))
        except csv.Error as error:
            cells, balanced = _explain(number, pending[-1][0], str(error)), False
        else:
            # In a file with tabs a word may begin with a quote that is not closed nearby. If each
            # line has all columns, the quote belongs to the text.
            counts = {text.count("\t") + 1 for _, text, _ in pending}
            balanced = not (tabs and len(pending) > 1 and width > 1 and counts == {width})
        if balanced:
            problem = next(filter(None, (problem for _, _, problem in pending)), None)
        else:
            # The first line is not read again, because it is yielded below.
            again.extendleft(reversed(pending[1:]))
            reread += sum(len(text) for _, text, _ in pending[1:])
            cells = plain if tabs else cells
        # Each quote that is not closed reads lines again. The limit keeps the time proportional to
        # the size of the file.
        if reread > 4 * (total + LONGEST):
            raise ValueError(
                f"{file.path}:{number}: quotes around fields must be closed, got too many that are "
                "not: write a quote inside a field in quotes twice"
            )
        width = width or len(cells if isinstance(cells, list) else plain)
        yield number, problem or cells


def _record(lines: Iterable[_Line], pending: list[_Line]) -> Iterator[str]:
    """Yields lines to a `csv.reader` until its record is complete; all of them are in `pending`."""
    size = 0
    for line in lines:
        pending.append(line)
        size += len(line[1])
        # A quote that is never closed would otherwise read the rest of the file into memory.
        if len(pending) > 1 and size > LONGEST:
            raise csv.Error("no end of a field")
        yield line[1]


def _explain(first: int, last: int, error: str) -> str:
    if "end of data" in error or "no end" in error or "field limit" in error:
        return "a quote opens a field here that no quote closes"
    where = "" if first == last else f", which closes in line {last}"
    return f"text after a field in quotes{where}: a quote inside such a field is written twice"
