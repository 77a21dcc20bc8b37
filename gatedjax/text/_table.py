"""Tables of labelled texts: records of usable lines, and lines that are set aside."""

import collections
import dataclasses
import difflib
import math
import shlex
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, cast

from gatedjax._utils.limits import MOST_COLUMNS
from gatedjax._utils.terminal import printable

Label = str | int | float | bool
Labels = tuple[Label, ...]
"""Several labels of a text, as in fastText's "__label__a __label__b text" or a list in JSON."""
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
_SHOWN = 12


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """A usable line of a table."""

    line: int
    """The line where the record begins, from 1; for rows in memory the number of the row."""
    inputs: tuple[str, ...]
    """The text, or both texts of a pair."""
    label: Label | Labels | None
    """The label, or the tuple of several labels, see `read_label`; None if no label is read."""
    where: str
    """The name of the file; messages begin with f"{where}:{line}"."""


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
        if self.target not in READERS:
            raise ValueError(
                f"columns.target must be one of {', '.join(map(repr, READERS))}, got "
                f"{self.target!r}"
            )
        if isinstance(self.inputs, str) or not self.inputs or len(set(self.wanted)) < self.count:
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
            check_names("columns.header", self.header, self)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The names of all columns that are read: of the texts, then of the label."""
        return self.inputs if self.label is None else (*self.inputs, self.label)

    @property
    def count(self) -> int:
        """The number of columns that are read."""
        return len(self.wanted)


def parse_header(text: str | None) -> tuple[str, ...] | None:
    """Returns the names of columns in a text with commas, such as `--columns label,,text`.

    >>> parse_header("label,,text")
    ('label', '', 'text')
    """
    return None if text is None else tuple(name.strip() for name in text.split(","))


Cells = tuple[str, int, Sequence[object]]
"""File, line, and the unchecked values of `Columns.wanted`; None for a missing value."""


class Form(Protocol):
    """A source of rows: a file of some format, or values in memory."""

    @property
    def name(self) -> str:
        """The name of the source, for messages."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns; None if the columns have no names."""

    def check(self, columns: Columns) -> None:
        """Raises ValueError if the columns cannot be read, by the header or the first rows."""

    def rows(self, columns: Columns) -> Iterator[Cells | Aside]:
        """Yields each row as `Cells`, with the values of `columns.wanted`, or as an `Aside`."""


@dataclasses.dataclass(frozen=True)
class Table:
    """Labelled texts, an iterable of `Record` and `Aside`. Each pass reads the source again, with a
    single record in memory.
    """

    form: Form
    columns: Columns

    @property
    def name(self) -> str:
        """The name of the source, for messages."""
        return self.form.name

    def __iter__(self) -> Iterator[Record | Aside]:
        for row in self.form.rows(self.columns):
            yield row if isinstance(row, Aside) else _record(*row, self.columns)


def _record(where: str, line: int, values: Sequence[object], columns: Columns) -> Record | Aside:
    """Returns the record of a row of values, or an `Aside` with the reason why it is unusable."""
    count = len(columns.inputs)
    try:
        inputs = tuple(map(_text, columns.inputs, values[:count]))
        read_cell = READERS[columns.target]
        label = None if columns.label is None else read_cell(columns.label, values[count])
    except ValueError as error:
        return Aside(where, line, str(error))
    return Record(line, inputs, label, where)


def _read_labels(name: str, value: object) -> Label | Labels:
    if not _is_list(value):
        return read_label(name, value)
    labels = _read_list(name, value)
    if not labels:
        raise ValueError(f"{name} must be a label or several, got an empty list")
    return labels[0] if len(labels) == 1 else labels


def _read_any_labels(name: str, value: object) -> Labels:
    """Returns the tuple of the labels in a cell: a list, a single label, or an empty text."""
    if not _is_list(value):
        return () if isinstance(value, str) and not value.strip() else (read_label(name, value),)
    cells = list(cast(Iterable[object], value))
    # An array of 0 and 1 would be read as the labels 0 and 1; a list has each label once.
    if is_zero_or_one(cells) and len(set(cells)) < len(cells):
        raise ValueError(
            f"{name} must be a list of labels, got the indicator {value!r:.40}: write the names "
            "of the labels"
        )
    return _read_list(name, value)


def is_zero_or_one(cells: Iterable[Any]) -> bool:
    """Returns True if all cells are 0, 1 or truth values, as in a row of an array with a column for
    each label.
    """
    # The texts "0" and "1" are labels.
    plain = [cell.item() if getattr(cell, "ndim", None) == 0 else cell for cell in cells]
    return all(isinstance(cell, bool | int | float) and cell in (0, 1) for cell in plain)


def parse_number(label: Label) -> float:
    """Returns the number that a label is or, as a text, has in the usual notation. Other texts
    raise a ValueError, and integers beyond the floats an OverflowError.

        >>> parse_number("3.5"), parse_number(" -1e3 ")
        (3.5, -1000.0)
    """
    # `float` reads underscores as in the source code of Python, where "1_0" is 10. In data such a
    # text is more likely a name or an error.
    if "_" in str(label):
        raise ValueError(f"a number must have no underscore, got {label!r:.40}")
    return float(label)


def _read_number(name: str, value: object) -> float:
    """Returns the finite number in a cell, which may be a text such as "3.5"."""
    label = read_label(name, value)
    # `float` would read true as 1.
    if isinstance(label, bool):
        raise ValueError(f"{name} must be a number, got {label}")
    try:
        number = parse_number(label)
    except (ValueError, OverflowError):
        raise ValueError(f"{name} must be a number, got {label!r:.40}") from None
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {label!r:.40}")
    return number


READERS: dict[str, Callable[[str, object], Label | Labels]] = {
    "class": _read_labels,
    "labels": _read_any_labels,
    "number": _read_number,
}
"""The functions that read the cell of a label, by the form of the label."""


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple) or getattr(value, "ndim", 0) == 1


def _read_list(name: str, value: object) -> Labels:
    labels = [read_label(name, item) for item in cast(Iterable[object], value)]
    # The types count too, because 1 equals True.
    return tuple({(type(label), label): label for label in labels}.values())


def _text(name: str, value: object) -> str:
    """Returns the text in a cell of the column `name`; bytes are decoded as UTF-8."""
    if isinstance(value, bytes):  # The texts of TFDS are bytes.
        value = value.decode("utf-8", "surrogateescape")
    # The two words are a reason in the report of lines that are set aside, which counts reasons.
    if _missing(value) or (isinstance(value, str) and not value.strip()):
        raise ValueError(f"no {name}")
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text, got {_describe_value(value)}")
    return _check_text(str(value))  # This converts a string of NumPy to str.


def read_label(name: str, value: object) -> Label:
    """Normalises a label, by the same rule in files, rows, columns, y and classes. A text gets
    Unicode's form NFC without outer spaces, so that a label has a single spelling, and stays a text
    if it looks like a number. NumPy's numbers and truth values become Python's.

        >>> read_label("label", " good "), read_label("label", "1")
        ('good', '1')
    """
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a number of NumPy
        value = value.item()
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    if _missing(value) or (isinstance(value, str) and not value.strip()):
        raise ValueError(f"no {name}")
    if isinstance(value, str):
        # A subclass of str, such as a string of NumPy, becomes a plain str.
        return compose(_check_text(str.__str__(value)))
    if not isinstance(value, bool | int | float):
        raise ValueError(f"{name} must be a text or a number, got {_describe_value(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")
    # `int` turns a subclass of int, such as a member of an IntEnum, into a plain number.
    return value if isinstance(value, bool | float) else int(value)


def compose(text: str) -> str:
    """Returns the text in Unicode's form NFC, without spaces around it."""
    return unicodedata.normalize("NFC", text).strip()


def _missing(value: object) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _describe_value(value: object) -> str:
    return f"{type(value).__name__} {printable(repr(value))[:40]}"


def _check_text(text: str) -> str:
    problem = fault(text, "Unicode")
    if problem:
        raise ValueError(problem)
    return text


def fault(text: str, encoding: str) -> str | None:
    """Returns a text with the reason why a text cannot be used, or None if it can."""
    if "\0" in text:
        return "NUL character"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            code = ord(text[error.start])
            if 0xDC80 <= code <= 0xDCFF:
                return f"not {encoding}: byte 0x{code - 0xDC00:02x}"
            return f"half of a surrogate pair: U+{code:04X}"
    return None


def match_names(names: Sequence[str], columns: Columns) -> tuple[str, ...]:
    """Returns the name in a source of each column that is read, of the texts, then of the label:
    the wanted name if the source has it, else its single name that differs only in capitals and
    outer spaces, else the wanted name.

        >>> match_names(("Text", "LABEL"), Columns())
        ('Text', 'LABEL')
    """
    folded: dict[str, list[str]] = {}
    for name in names:
        if name not in columns.wanted:
            folded.setdefault(name.strip().casefold(), []).append(name)
    return tuple(
        alike[0]
        if name not in names and len(alike := folded.get(name.casefold(), [])) == 1
        else name
        for name in columns.wanted
    )


def check_names(
    where: str, names: Sequence[str], columns: Columns, *, header: bool = False
) -> None:
    """Checks that the columns are among the names in a source."""
    if len(names) > MOST_COLUMNS:
        raise ValueError(
            f"{where}: a table must have at most {MOST_COLUMNS:,} columns, got {len(names):,}"
        )
    twice = sorted(name for name, n in collections.Counter(names).items() if name and n > 1)
    if twice:
        raise ValueError(
            f"{where}: columns must have different names, got {_quote_names(twice)} more than once"
        )
    missing = [name for name in match_names(names, columns) if name not in names]
    if missing:
        available = _quote_names(names) if any(names) else "columns without names"
        options = "--text" if columns.label is None else "--text and --label"
        suggestion = suggest(names, columns)
        hint = suggestion or f"give the names with {options}" * (len(names) >= columns.count)
        first = ""
        if header and not suggestion:
            first = "; the first line must be the header"
            if len(names) >= columns.count:
                order = ",".join([*columns.wanted, *[""] * (len(names) - columns.count)])
                first += f"; of a file without a header name the columns, as --columns {order}"
        raise ValueError(
            f"{where}: columns must include {' and '.join(map(repr, missing))}, got {available}"
            f"{': ' * bool(hint)}{hint}{first}"
        )


def suggest(names: Sequence[str], columns: Columns) -> str:
    """Returns options that select the likely columns, such as "--text review --label stars", or ""
    if unclear.
    """
    unused = [name for name in names if name.strip() and name not in columns.wanted]
    assigned: dict[str, str] = {name: name for name in columns.wanted if name in names}
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
        lambda role, name: unused if len(unused) == columns.count - len(assigned) == 1 else [],
    )
    for test in tests:
        for role, name in zip((*roles, "label"), columns.wanted, strict=False):
            role = "label" if name == columns.label else role
            match = next(iter(test(role, name)), None) if name not in assigned else None
            if match is not None:
                assigned[name] = match
                unused.remove(match)
    if len(assigned) < columns.count:
        return ""
    hint = f"--text {shlex.join(assigned[name] for name in columns.inputs)}"
    label = "" if columns.label is None else f" --label {shlex.quote(assigned[columns.label])}"
    return printable(hint + label)


def _quote_names(names: Sequence[str]) -> str:
    quoted = [repr(name if len(name) <= 40 else f"{name[:40]}...") for name in names[:_SHOWN]]
    return ", ".join(quoted) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
