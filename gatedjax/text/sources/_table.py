"""The table of labelled texts: columns by their names, records, and lines that are set aside.

A format opens a `Source` with rows of unchecked cells. `Table` turns each row into a `Record`, by
the rule of texts and labels in `gatedjax.text.sources._labels`.
"""

import collections
import dataclasses
import difflib
import math
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gatedjax._utils.choices import check_choice
from gatedjax._utils.limits import MOST_COLUMNS
from gatedjax._utils.terminal import join_first, printable, render_count
from gatedjax.text.sources._labels import TARGETS, Label, Labels, read_target, read_text
from gatedjax.text.sources._lines import suggest_encoding

EMPTY = "empty line"
"""The reason for empty lines."""
REPEATED = "repeats the header"
"""The reason for a later line with the names of the columns, as after `cat a.csv b.csv`."""
WITHOUT_DATA = (EMPTY, REPEATED)
"""The reasons that do not count against `max_aside`, because no data are lost."""

_LIKELY = {
    "text": "text review sentence comment content body message tweet document question title query",
    "label": "label sentiment class category target intent topic polarity rating stars score y",
    "premise": "premise sentence1 text1 question1 sentence_a text_a s1",
    "hypothesis": "hypothesis sentence2 text2 question2 sentence_b text_b s2",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """A usable line of a table."""

    line: int  # where the record begins, from 1; for rows in memory the number of the row
    inputs: tuple[str, ...]  # the text, or both texts of a pair
    label: Label | Labels | None  # a label or several, see `read_target`; None if none is read
    where: str  # the name of the file; messages begin with f"{where}:{line}"


@dataclasses.dataclass(frozen=True, slots=True)
class Aside:
    """A line that cannot be used, and the reason."""

    where: str  # the name of the file
    line: int  # from 1
    reason: str

    def __str__(self) -> str:
        return printable(f"{self.where}:{self.line}: {self.reason}").replace("\n", "\\n")


@dataclasses.dataclass(frozen=True)
class Columns:
    """The names of the columns that are read.

        >>> Columns(("review",), "stars").wanted
        ('review', 'stars')

    Capitals do not matter: "text" also finds the column "Text", unless a column is named exactly
    "text".

    Attributes:
      inputs: the column of the text, or the two columns of a pair.
      label: the column of the label; None reads no label.
      header: the names of all columns, in order, of a file whose first line is not a header; an
        empty name stands for a column that is not read. None takes the names from the source.
      target: the form of the label: "class" (a label, or several labels that a model with classes
        refuses), "labels" (a tuple of any number of labels) or "number".

    Raises:
      ValueError: if two of the names are equal, inputs is not a tuple, a name that is read is not
        in `header`, or `target` is unknown.
    """

    inputs: tuple[str, ...] = ("text",)
    label: str | None = "label"
    header: tuple[str, ...] | None = None
    target: str = "class"

    def __post_init__(self) -> None:
        check_choice(TARGETS, **{"columns.target": self.target})
        names = () if isinstance(self.inputs, str) or not self.inputs else self.wanted
        if not names or len(set(names)) < len(names):
            raise ValueError(
                "columns must be a tuple of names of texts and a different name of the label, got "
                f"{self.inputs!r} and {self.label!r}"
            )
        if self.header is not None:
            if isinstance(self.header, str) or not any(self.header):
                raise ValueError(
                    "columns.header must be a tuple with the names of all columns, got "
                    f"{self.header!r}"
                )
            find_columns("columns.header", self.header, self)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The names of all columns that are read: of the texts, then of the label."""
        return self.inputs if self.label is None else (*self.inputs, self.label)


def parse_header(text: str | None) -> tuple[str, ...] | None:
    """Returns the names of columns in a text with commas, such as `--columns label,,text`."""
    return None if text is None else tuple(name.strip() for name in text.split(","))


Row = tuple[str, int, Sequence[object]] | Aside
"""File, line, and the unchecked values of `Columns.wanted`; None for a missing value."""


@dataclasses.dataclass(frozen=True)
class Source:
    """An opened source of rows: a file of some format, a folder, a data set or values in memory."""

    name: str  # for messages
    # Yields all rows, each time from the first; it is called with the source's own names.
    rows: Callable[[Columns], Iterator[Row]]
    names: tuple[str, ...] | None = None  # of the columns; None if the values of a row have none
    headed: bool = False  # True if the names are in the first line
    single: bool = False  # True if a row has a single text, so that there are no pairs
    width: int = 0  # the number of values of the first row, where columns have no names


@dataclasses.dataclass(frozen=True)
class Table:
    """Labelled texts, an iterable of `Record` and `Aside` that reads its source in each pass."""

    name: str  # of the source, for messages
    source: Source
    columns: Columns  # as they were asked for
    found: Columns  # by their names in the source
    records: Sequence[Record | Aside] | None = None  # those of a table in memory

    def load(self) -> "Table":
        """Returns the table with its records in memory, for several passes."""
        return self if self.records else dataclasses.replace(self, records=list(self))

    def __iter__(self) -> Iterator[Record | Aside]:
        if self.records:
            yield from self.records
            return
        inputs, name, target = self.columns.inputs, self.columns.label, self.columns.target
        label = None
        for row in self.source.rows(self.found):
            if isinstance(row, Aside):
                yield row
                continue
            where, line, values = row
            try:
                texts = tuple(map(read_text, inputs, values))
                if name is not None:
                    label = read_target(name, values[len(inputs)], target)
            except ValueError as error:
                yield Aside(where, line, str(error))
            else:
                yield Record(line, texts, label, where)


def find_columns(
    where: str, names: Sequence[str], columns: Columns, *, headed: bool = False
) -> Columns:
    """Returns `columns` with the names of a source: the wanted name if the source has it, else its
    single name that differs only in capitals and outer spaces. A missing column is refused.
    """
    if len(names) > MOST_COLUMNS:
        raise ValueError(
            f"{where}: a table must have at most {MOST_COLUMNS:,} columns, got {len(names):,}"
        )
    twice = sorted(name for name, n in collections.Counter(names).items() if name and n > 1)
    if twice:
        raise ValueError(
            f"{where}: columns must have different names, got {_quote_names(twice)} more than once"
        )
    folded = collections.defaultdict[str, list[str]](list)
    for name in names:
        if name not in columns.wanted:
            folded[name.strip().casefold()].append(name)
    matched = {}
    for name in columns.wanted:
        alike = [name] if name in names else folded[name.casefold()]
        if len(alike) == 1:
            matched[name] = alike[0]
    if len(matched) < len(columns.wanted):
        missing = " and ".join(repr(name) for name in columns.wanted if name not in matched)
        available = _quote_names(names) if any(names) else "columns without names"
        raise ValueError(
            f"{where}: columns must include {missing}, got {available}"
            f"{_hint(names, columns, headed)}"
        )
    label = None if columns.label is None else matched[columns.label]
    inputs = tuple(matched[name] for name in columns.inputs)
    return Columns(inputs, label, target=columns.target)


def _hint(names: Sequence[str], columns: Columns, headed: bool) -> str:
    """Returns the end of the message about a missing column, with the text to type."""
    if suggestion := _suggest(names, columns):
        return f": {suggestion}"
    spare = len(names) - len(columns.wanted)
    options = "--text" if columns.label is None else "--text and --label"
    hint = f": give the names with {options}" if spare >= 0 else ""
    if headed:
        hint += "; the first line must be the header"
        if spare >= 0:
            order = ",".join([*columns.wanted, *[""] * spare])
            hint += f"; of a file without a header name the columns, as --columns {order}"
    return hint


def _suggest(names: Sequence[str], columns: Columns) -> str:
    """Returns options that select the likely columns, such as "--text review", or ""."""
    unused = [name for name in names if name.strip() and name not in columns.wanted]
    assigned: dict[str, str] = {name: name for name in columns.wanted if name in names}
    count = len(columns.wanted)
    roles = ("text",) if len(columns.inputs) == 1 else ("premise", "hypothesis")
    # The tests go from the surest to the weakest. A column that a test assigned is not available to
    # the later tests.
    tests: tuple[Callable[[str, str], Iterable[str]], ...] = (
        lambda role, name: [column for column in unused if column.lower() == name.lower()],
        lambda role, name: difflib.get_close_matches(name, unused, n=1, cutoff=0.75),
        lambda role, name: [
            column
            for likely in _LIKELY[role].split()
            for column in unused
            if column.lower() == likely
        ],
        lambda role, name: unused if len(unused) == count - len(assigned) == 1 else [],
    )
    for test in tests:
        for role, name in zip((*roles, "label"), columns.wanted, strict=False):
            role = "label" if name == columns.label else role
            match = next(iter(test(role, name)), None) if name not in assigned else None
            if match is not None:
                assigned[name] = match
                unused.remove(match)
    if len(assigned) < count:
        return ""
    hint = f"--text {shlex.join(assigned[name] for name in columns.inputs)}"
    label = "" if columns.label is None else f" --label {shlex.quote(assigned[columns.label])}"
    return printable(hint + label)


def _quote_names(names: Sequence[str]) -> str:
    return join_first([repr(n if len(n) <= 40 else f"{n[:40]}...") for n in names])


MAX_ASIDE = 0.01
"""Default of `max_aside`: the largest share of the lines that may be set aside."""
_BYTE = re.compile(r"not (\S+): byte 0x")
# Lines and different reasons have limits, so that a source with a million bad lines needs no more
# memory than a source with a few.
_KEPT, _SHOWN, _REASONS = 5, 3, 100


def check_share(max_aside: float) -> None:
    """Raises ValueError unless `max_aside`, a greatest share of lines, is a number in [0, 1]."""
    if not 0 <= max_aside <= 1:
        raise ValueError(f"max_aside must be in [0, 1], got {max_aside}")


class Asides:
    """A counter of the lines (or other records) of a source that are set aside, by the reason."""

    def __init__(self, name: str, unit: str = "lines") -> None:
        self._name, self._unit = name, unit
        self.count = self._lost = 0
        self.first: list[Aside] = []
        self.reasons: collections.Counter[str] = collections.Counter()
        self._first_lost: list[Aside] = []

    def add(self, aside: Aside) -> None:
        """Counts a line that is set aside, and stores it in `first` if it is among the first."""
        self.count += 1
        known = aside.reason in self.reasons or len(self.reasons) < _REASONS
        self.reasons[aside.reason if known else "other reasons"] += 1
        if len(self.first) < _KEPT:
            self.first.append(aside)
        if aside.reason in WITHOUT_DATA:
            return
        self._lost += 1
        if len(self._first_lost) < _SHOWN:
            self._first_lost.append(aside)

    def sift(self, rows: Iterable[Any]) -> Iterator[Any]:
        """Counts the lines of `rows` that are set aside, and yields the other rows."""
        for row in rows:
            if isinstance(row, Aside):
                self.add(row)
            else:
                yield row

    def check(self, used: int, max_aside: float) -> None:
        """Raises ValueError if no record was used, or too many lost data."""
        if not used:
            record = "a tagged sentence" if self._unit == "sentences" else "a labelled text"
            listing = ""
            if self.first:
                listing = (
                    f": {render_count(self.count, self._unit[:-1])} cannot be used, the first is "
                )
                listing += f"{self.first[0]}{self._hint()}"
            raise ValueError(f"{self._name} must have {record}, got none{listing}")
        total = self._lost + used
        if self._lost / total > max_aside:
            reasons = "; ".join(map(str, self._first_lost))
            # The share is rounded up, so that the value that the message suggests suffices.
            share = math.ceil(100 * self._lost / total) / 100
            raise ValueError(
                f"{self._name}: {self._lost:,} of {total:,} {self._unit} cannot be used "
                f"({self._lost / total:.1%}, must be at most {max_aside:.1%}): {reasons}"
                f"{self._hint()}; max_aside={share:.2f} leaves them out"
            )

    def _hint(self) -> str:
        # The search reads a file again, so it is limited to the files of the lines that are shown.
        files = {
            aside.where: byte[1]
            for aside in self._first_lost
            if (byte := _BYTE.match(aside.reason))
        }
        hints = {suggest_encoding(Path(where), name) for where, name in files.items()}
        # Files with different encodings get no hint, because the option holds for all files.
        return hints.pop() if len(hints) == 1 else ""
