"""Labelled texts in memory: rows, columns, frames and data sets of other packages, by their shape.

pandas, polars and datasets are known by what their objects can do; nothing of them is imported.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from gatedjax.text._table import Aside, Cells, Columns, Form, check_names

_LOOK = 100


@dataclasses.dataclass(frozen=True)
class InColumns:
    """Names with their values: a frame, or a dict of lists or arrays."""

    name: str
    headed: tuple[tuple[str, Iterable[object]], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(name for name, _ in self.headed)

    def check(self, columns: Columns) -> None:
        """Refuses columns that are not there, of different lengths, or without a row."""
        check_names(self.name, self.names, columns)
        found = dict(self.headed)
        lengths = {name: _length(self.name, name, found[name]) for name in columns.wanted}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{name!r} {length:,}" for name, length in lengths.items())
            raise ValueError(f"{self.name}: columns must have one length, got {shown}")
        if not all(lengths.values()):
            raise ValueError(f"{self.name}: there is no row")

    def rows(self, columns: Columns) -> Iterator[Cells | Aside]:
        """Every row, numbered from 1."""
        found = dict(self.headed)
        values = zip(*(found[name] for name in columns.wanted), strict=True)
        for number, row in enumerate(values, 1):
            yield self.name, number, row


def _length(where: str, name: str, values: object) -> int:
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise ValueError(f"{where}: column {name!r} must be a list or array, got {_kind(values)}")
    if getattr(values, "ndim", 1) != 1:
        raise ValueError(f"{where}: column {name!r} must have one dimension")
    return len(values)


@dataclasses.dataclass(frozen=True)
class InRows:
    """Dicts, of a list or of a data set, and what is set aside of it.

    A label that is the number of a class gets its name.
    """

    name: str
    data: Iterable[object]
    classes: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    named: tuple[str, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Those that the data set states, or those of the first rows."""
        if self.named is not None:
            return self.named
        first = [row for row in itertools.islice(self.data, _LOOK) if isinstance(row, Mapping)]
        return tuple(dict.fromkeys(str(name) for row in first for name in row))

    def check(self, columns: Columns) -> None:
        """Refuses columns that are not there."""
        if next(iter(self.data), None) is None:
            raise ValueError(f"{self.name}: there is no row")
        check_names(self.name, self.names, columns)

    def rows(self, columns: Columns) -> Iterator[Cells | Aside]:
        """Every row, numbered from 1."""
        classes = self.classes.get(columns.label or "")
        for number, row in enumerate(self.data, 1):
            if isinstance(row, Aside):
                yield row
                continue
            if not isinstance(row, Mapping):
                yield Aside(self.name, number, f"not a dict but {_kind(row)}")
                continue
            values = [row.get(name) for name in columns.wanted]
            if classes and columns.label is not None:
                values[-1] = class_name(classes, values[-1])
            yield self.name, number, values


def class_name(classes: Sequence[str], label: object) -> object:
    """The name of a class; None for the -1 that stands for an unknown one."""
    try:
        number = int(label)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return label
    return classes[number] if 0 <= number < len(classes) else None


@dataclasses.dataclass(frozen=True)
class InTuples:
    """Tuples (text, ..., label), or texts alone."""

    data: Sequence[object]
    name: str = "rows"

    @property
    def names(self) -> tuple[str, ...] | None:
        """Pairs of texts are known by their three values."""
        size = _size(self.data[0]) if len(self.data) else 0
        return ("premise", "hypothesis", "label") if size == 3 else None

    def check(self, columns: Columns) -> None:
        """Refuses rows of which the first is of another kind."""
        if not len(self.data):
            raise ValueError(f"{self.name}: there is no row")
        if self._values(self.data[0], columns) is None:
            wanted = f"rows must be {self._wanted(columns)}"
            raise ValueError(f"{wanted}, a dict of columns or a frame, got {_kind(self.data[0])}")

    def rows(self, columns: Columns) -> Iterator[Cells | Aside]:
        """Every row, numbered from 1."""
        for number, row in enumerate(self.data, 1):
            values = self._values(row, columns)
            if values is None:
                reason = f"must be {self._wanted(columns)}, got {_kind(row)}"
                yield Aside(self.name, number, reason)
            else:
                yield self.name, number, values

    def _values(self, row: object, columns: Columns) -> Sequence[object] | None:
        if isinstance(row, str | None) and columns.wanted == columns.inputs[:1]:
            return (row,)
        size = _size(row)
        # where no label is wanted there may be one
        fits = size == columns.count or (columns.label is None and size == columns.count + 1)
        return cast(Sequence[object], row)[: columns.count] if fits else None

    def _wanted(self, columns: Columns) -> str:
        one = "a text or " if columns.wanted == columns.inputs[:1] else ""
        return f"{one}({', '.join(columns.wanted)}{',' * (columns.count == 1)})"


def _size(row: object) -> int:
    """Number of values; 0 for what is no row of them."""
    is_row = isinstance(row, tuple | list) or getattr(row, "ndim", 0) == 1
    return len(cast(Sequence[object], row)) if is_row else 0


def _kind(value: object) -> str:
    size = _size(value)
    return f"a {type(value).__name__}" + (f" of {size} value{'s' * (size != 1)}" if size else "")


def form_of(data: object, split: str) -> Form:
    """How values in memory are read."""
    if isinstance(data, Mapping):
        if data and all(hasattr(value, "column_names") for value in data.values()):
            if split not in data:
                names = ", ".join(map(repr, data))
                raise ValueError(f"the data have no split {split!r}; there are {names}")
            return form_of(data[split], split)
        return InColumns("columns", tuple((str(name), data[name]) for name in data))
    if hasattr(type(data), "collect"):  # of polars; a column may have that name, its type not
        raise TypeError("data must be a frame with its rows: call .collect() of this lazy one")
    if hasattr(data, "column_names") and hasattr(data, "features"):
        return dataset_form("rows", cast(Iterable[object], data))
    if hasattr(data, "columns") and hasattr(data, "__getitem__"):
        return _frame_form(data)
    if not isinstance(data, Iterable) or isinstance(data, bytes):
        raise TypeError(
            "data must be a path, the name of a data set, rows, a dict of columns or a frame, "
            f"got {_kind(data)}"
        )
    rows = data if isinstance(data, list | tuple) else list(data)
    if rows and isinstance(rows[0], Mapping):
        return InRows("rows", rows)
    return InTuples(rows)


def _frame_form(frame: Any) -> Form:
    keys = list(frame.columns)
    twice = len(set(map(str, keys))) < len(keys)
    # of two columns with a name pandas gives a frame: the names say it, and nothing is read
    return InColumns("frame", tuple((str(key), () if twice else frame[key]) for key in keys))


def dataset_form(name: str, data: Iterable[object]) -> Form:
    """A data set of `datasets`, whole or streamed: rows are dicts, features name the classes."""
    features = getattr(data, "features", None) or {}
    classes = {key: getattr(feature, "names", None) for key, feature in features.items()}
    names = getattr(data, "column_names", None)
    return InRows(
        name,
        data,
        {key: tuple(found) for key, found in classes.items() if found},
        None if names is None else tuple(names),
    )
