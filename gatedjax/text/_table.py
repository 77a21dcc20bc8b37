"""Tables of labelled texts: the record of a line, the line set aside, and what decides between."""

import collections
import dataclasses
import difflib
import math
import shlex
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from gatedjax._utils.limits import MOST_COLUMNS
from gatedjax._utils.terminal import printable

Label = str | int | float | bool
EMPTY = "empty line"
"""The reason of lines set aside with which nothing is lost."""

_LIKELY = {
    "text": "text review sentence comment content body message tweet document question title query",
    "label": "label sentiment class category target intent topic polarity rating stars score y",
    "premise": "premise sentence1 text1 question1 sentence_a text_a s1",
    "hypothesis": "hypothesis sentence2 text2 question2 sentence_b text_b s2",
}
_SHOWN = 12


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """A usable line."""

    line: int
    """Where the record begins in its file, from 1; of rows in memory the number from 1."""
    inputs: tuple[str, ...]
    label: Label | None
    """See `read_label`; None where none was asked for."""
    where: str
    """The file as it was given: messages say f"{where}:{line}"."""


@dataclasses.dataclass(frozen=True, slots=True)
class Aside:
    """A line that cannot be used, and why."""

    where: str
    line: int
    reason: str

    def __str__(self) -> str:
        return printable(f"{self.where}:{self.line}: {self.reason}").replace("\n", "\\n")


@dataclasses.dataclass(frozen=True)
class Columns:
    """Names of the columns that are read.

    Attributes:
      inputs: of the texts: one, or two for pairs.
      label: of the label; None where none is wanted.
    """

    inputs: tuple[str, ...] = ("text",)
    label: str | None = "label"

    def __post_init__(self) -> None:
        if isinstance(self.inputs, str) or not self.inputs or len(set(self.wanted)) < self.count:
            raise ValueError(
                "columns must be different names, a tuple of the texts' and the label's, got "
                f"{self.inputs!r} and {self.label!r}"
            )

    @property
    def wanted(self) -> tuple[str, ...]:
        """The texts' columns, then the label's if there is one."""
        return self.inputs if self.label is None else (*self.inputs, self.label)

    @property
    def count(self) -> int:
        """How many columns are read."""
        return len(self.wanted)


Cells = tuple[str, int, Sequence[object]]
"""File, line, and the values of `Columns.wanted` as they were found; None for a missing one."""


class Form(Protocol):
    """Something that has rows: a file of some format, or values in memory."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """Its columns; None where it has no names for them."""

    def check(self, columns: Columns) -> None:
        """Raises ValueError if it cannot have these columns."""

    def rows(self, columns: Columns) -> Iterator[Cells | Aside]:
        """All rows from the first."""


@dataclasses.dataclass(frozen=True)
class Table:
    """Labelled texts; every pass reads them again from the start and holds one record at a time."""

    form: Form
    columns: Columns

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.form.name

    def __iter__(self) -> Iterator[Record | Aside]:
        for row in self.form.rows(self.columns):
            yield row if isinstance(row, Aside) else _record(*row, self.columns)


def _record(where: str, line: int, values: Sequence[object], columns: Columns) -> Record | Aside:
    count = len(columns.inputs)
    try:
        inputs = tuple(map(_text, columns.inputs, values[:count]))
        label = None if columns.label is None else read_label(columns.label, values[count])
    except ValueError as error:
        return Aside(where, line, str(error))
    return Record(line, inputs, label, where)


def _text(name: str, value: object) -> str:
    if isinstance(value, bytes):  # as TFDS has texts
        value = value.decode("utf-8", "surrogateescape")
    if _missing(value) or (isinstance(value, str) and not value.strip()):
        raise ValueError(f"no {name}")
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text, got {_shown(value)}")
    return _whole(str(value))  # numpy's texts become plain ones


def read_label(name: str, value: object) -> Label:
    """Returns a label by the one rule for every source of labels: files, rows, columns, y, classes.

    A text is composed (NFC) and loses the spaces around it, so that one label has one spelling. It
    stays a text where it looks like a number. Numbers and truth values of NumPy become Python's.

    Args:
      name: of its column, for messages.
      value: as it was found.

    Raises:
      ValueError: if it is missing, empty, not finite, or of another type.
    """
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a number of numpy's
        value = value.item()
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    if _missing(value) or (isinstance(value, str) and not value.strip()):
        raise ValueError(f"no {name}")
    if isinstance(value, str):
        return compose(_whole(str.__str__(value)))
    if not isinstance(value, bool | int | float):
        raise ValueError(f"{name} must be a text or a number, got {_shown(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")
    return value if isinstance(value, bool | float) else int(value)


def compose(text: str) -> str:
    """The text in Unicode's form NFC, without spaces around it."""
    return unicodedata.normalize("NFC", text).strip()


def _missing(value: object) -> bool:
    """None, NaN, and what pandas has for them, which cannot be compared."""
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _shown(value: object) -> str:
    return f"{type(value).__name__} {printable(repr(value))[:40]}"


def _whole(text: str) -> str:
    problem = fault(text, "Unicode")
    if problem:
        raise ValueError(problem)
    return text


def fault(text: str, encoding: str) -> str | None:
    """Why a text is none: NUL, bytes that were no characters (see `surrogateescape`); or None."""
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


def check_names(
    where: str, names: Sequence[str], columns: Columns, *, header: bool = False
) -> None:
    """Refuses columns that are not among the names, with what to ask for instead.

    Args:
      where: the names are, for messages.
      names: those that there are.
      columns: those that are wanted.
      header: whether the names are the first line of a file, which may have no header.
    """
    if len(names) > MOST_COLUMNS:
        raise ValueError(f"{where}: at most {MOST_COLUMNS:,} columns are read, got {len(names):,}")
    twice = sorted(name for name, n in collections.Counter(names).items() if name and n > 1)
    if twice:
        raise ValueError(f"{where}: columns must have different names, twice: {_quoted(twice)}")
    missing = [name for name in columns.wanted if name not in names]
    if missing:
        there = f"there are {_quoted(names)}" if any(names) else "there are none with a name"
        options = "--text" if columns.label is None else "--text and --label"
        near = suggest(names, columns)
        hint = near or f"{options} name others" * (len(names) >= columns.count)
        first = "; the first line must be the header" * (header and not near)
        raise ValueError(
            f"{where}: there is no column {' and no '.join(map(repr, missing))}; {there}"
            f"{': ' * bool(hint)}{hint}{first}"
        )


def suggest(names: Sequence[str], columns: Columns) -> str:
    """The options that name the likely columns, or "" if it is not clear which those are."""
    left = [name for name in names if name.strip() and name not in columns.wanted]
    found: dict[str, str] = {name: name for name in columns.wanted if name in names}
    roles = ("text",) if len(columns.inputs) == 1 else ("premise", "hypothesis")
    tests: tuple[Callable[[str, str], Iterable[str]], ...] = (
        lambda role, name: [one for one in left if one.lower() == name.lower()],
        lambda role, name: difflib.get_close_matches(name, left, n=1, cutoff=0.75),
        lambda role, name: [
            one for likely in _LIKELY[role].split() for one in left if one.lower() == likely
        ],
        lambda role, name: left if len(left) == columns.count - len(found) == 1 else [],
    )
    for test in tests:
        for role, name in zip((*roles, "label"), columns.wanted, strict=False):
            role = "label" if name == columns.label else role
            near = next(iter(test(role, name)), None) if name not in found else None
            if near is not None:
                found[name] = near
                left.remove(near)
    if len(found) < columns.count:
        return ""
    hint = f"--text {shlex.join(found[name] for name in columns.inputs)}"
    label = "" if columns.label is None else f" --label {shlex.quote(found[columns.label])}"
    return printable(hint + label)


def _quoted(names: Sequence[str]) -> str:
    shown = [repr(name if len(name) <= 40 else f"{name[:40]}...") for name in names[:_SHOWN]]
    return ", ".join(shown) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
