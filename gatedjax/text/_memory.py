"""Labelled texts in memory: rows, columns, frames, and data sets of other packages.

Objects of pandas, polars and datasets are recognised by their attributes, so that none of these
packages is imported.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from gatedjax.text._table import Aside, Cells, Columns, Form, check_names, match_names

# Rows in which names of columns are looked for, because a stream may be long.
_LOOK = 100


@dataclasses.dataclass(frozen=True)
class InColumns:
    """Columns with their values: a frame, or a dict of lists or arrays."""

    name: str  # for messages
    headed: tuple[tuple[str, Iterable[object]], ...]  # the name and the values of each column

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(name for name, _ in self.headed)

    def check(self, columns: Columns) -> None:
        """Raises ValueError if a column is missing, lengths differ, or there is no row."""
        check_names(self.name, self.names, columns)
        by_name = dict(self.headed)
        names = match_names(self.names, columns)
        lengths = {name: _length(self.name, name, by_name[name]) for name in names}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{name!r} {length:,}" for name, length in lengths.items())
            raise ValueError(f"{self.name}: columns must have the same length, got {counts}")
        if not all(lengths.values()):
            raise ValueError(f"{self.name} must have a row, got none")

    def rows(self, columns: Columns) -> Iterator[Cells | Aside]:
        """Yields the values of each row in `columns` as `Cells`: (name, number, values)."""
        by_name = dict(self.headed)
        names = match_names(self.names, columns)
        values = zip(*(by_name[name] for name in names), strict=True)
        for number, row in enumerate(values, 1):
            yield self.name, number, row


def _length(where: str, name: str, values: object) -> int:
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise ValueError(f"{where}: column {name!r} must be a list or array, got {_kind(values)}")
    if (axes := getattr(values, "ndim", 1)) != 1:
        raise ValueError(f"{where}: column {name!r} must have one dimension, got {axes}")
    return len(values)


@dataclasses.dataclass(frozen=True)
class InRows:
    """Rows that are dicts, from a list or a data set."""

    name: str  # for messages
    data: Iterable[object]  # dicts from column to value; an `Aside` is an unusable row
    # Column -> the names for its class numbers.
    classes: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    named: tuple[str, ...] | None = None  # None takes the columns of the first rows

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, from the data set or from its first rows."""
        if self.named is not None:
            return self.named
        first = [row for row in itertools.islice(self.data, _LOOK) if isinstance(row, Mapping)]
        return tuple(dict.fromkeys(str(name) for row in first for name in row))

    def check(self, columns: Columns) -> None:
        """Raises ValueError if there is no row, or a column is missing."""
        if next(iter(self.data), None) is None:
            raise ValueError(f"{self.name} must have a row, got none")
        check_names(self.name, self.names, columns)

    def rows(self, columns: Columns) -> Iterator[Cells | Aside]:
        """Yields the values of each row in `columns` as `Cells`: (name, number, values)."""
        names = match_names(self.names, columns)
        classes = self.classes.get("" if columns.label is None else names[-1])
        for number, row in enumerate(self.data, 1):
            if isinstance(row, Aside):
                yield row
                continue
            if not isinstance(row, Mapping):
                yield Aside(self.name, number, f"not a dict but {_kind(row)}")
                continue
            values = [row.get(name) for name in names]
            if classes and columns.label is not None:
                values[-1] = class_name(classes, values[-1])
            yield self.name, number, values


def class_name(classes: Sequence[str], label: object) -> object:
    """Returns the name of the class with a number; None for a number without a class, such as -1,
    and the label itself if it is no number.
    """
    try:
        number = int(label)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return label
    return classes[number] if 0 <= number < len(classes) else None


@dataclasses.dataclass(frozen=True)
class InTuples:
    """Rows in memory that are tuples, or texts without labels."""

    data: Sequence[object]  # (text, label), (premise, hypothesis, label), or without labels
    name: str = "rows"

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns of pairs if the first row has three values, else None."""
        size = _size(self.data[0]) if len(self.data) else 0
        return ("premise", "hypothesis", "label") if size == 3 else None

    def check(self, columns: Columns) -> None:
        """Raises ValueError if there is no row, or the first row does not fit the columns."""
        if not len(self.data):
            raise ValueError(f"{self.name} must have a row, got none")
        if self._values(self.data[0], columns) is None:
            raise ValueError(
                f"rows must be {self._describe_row(columns)}, a dict of columns or a frame, got "
                f"{_kind(self.data[0])}"
            )

    def rows(self, columns: Columns) -> Iterator[Cells | Aside]:
        """Yields the values of each row in `columns` as `Cells`: (name, number, values)."""
        for number, row in enumerate(self.data, 1):
            values = self._values(row, columns)
            if values is None:
                reason = f"must be {self._describe_row(columns)}, got {_kind(row)}"
                yield Aside(self.name, number, reason)
            else:
                yield self.name, number, values

    def _values(self, row: object, columns: Columns) -> Sequence[object] | None:
        if isinstance(row, str | None) and columns.wanted == columns.inputs[:1]:
            return (row,)
        size = _size(row)
        # A row may have a label that is not needed.
        fits = size == columns.count or (columns.label is None and size == columns.count + 1)
        return cast(Sequence[object], row)[: columns.count] if fits else None

    def _describe_row(self, columns: Columns) -> str:
        prefix = "a text or " if columns.wanted == columns.inputs[:1] else ""
        return f"{prefix}({', '.join(columns.wanted)}{',' * (columns.count == 1)})"


def _size(row: object) -> int:
    is_row = isinstance(row, tuple | list) or getattr(row, "ndim", 0) == 1
    return len(cast(Sequence[object], row)) if is_row else 0


def _kind(value: object) -> str:
    size = _size(value)
    return f"a {type(value).__name__}" + (f" of {size} value{'s' * (size != 1)}" if size else "")


def form_of(data: object, split: str) -> Form:
    """Returns the `Form` of rows, columns, a frame or a data set in memory. `split` selects a part
    of a dict of data sets.
    """
    if isinstance(data, Mapping):
        # `datasets.load_dataset` without a split returns a dict of data sets.
        if data and all(hasattr(value, "column_names") for value in data.values()):
            if split not in data:
                names = ", ".join(map(repr, data))
                raise ValueError(f"split must be one of {names}, got {split!r}")
            return form_of(data[split], split)
        return InColumns("columns", tuple((str(name), data[name]) for name in data))
    # A lazy frame of polars. The type is checked, because a column may have the name "collect".
    if hasattr(type(data), "collect"):
        raise TypeError(
            f"data must be a frame in memory, got {type(data).__name__}: call .collect()"
        )
    if hasattr(data, "column_names") and hasattr(data, "features"):
        return dataset_form("rows", cast(Iterable[object], data))
    if hasattr(data, "columns") and hasattr(data, "__getitem__"):
        return _frame_form(data)
    if not isinstance(data, Iterable) or isinstance(data, bytes):
        raise TypeError(
            "data must be a path, the name of a data set, rows, a dict of columns or a frame, "
            f"got {_kind(data)}"
        )
    # A table is read several times, and an iterator only once.
    rows = data if isinstance(data, list | tuple) else list(data)
    if rows and isinstance(rows[0], Mapping):
        return InRows("rows", rows)
    return InTuples(rows)


def _frame_form(frame: Any) -> Form:
    keys = list(frame.columns)
    twice = len(set(map(str, keys))) < len(keys)
    # For a name that occurs twice pandas returns a frame, so values are not read; `check` fails.
    return InColumns("frame", tuple((str(key), () if twice else frame[key]) for key in keys))


def dataset_form(name: str, data: Iterable[object]) -> Form:
    """Returns the `Form` of a data set of `datasets`, whole or streamed, with names in place of
    class numbers.
    """
    features = getattr(data, "features", None) or {}
    classes = {key: getattr(feature, "names", None) for key, feature in features.items()}
    names = getattr(data, "column_names", None)
    return InRows(
        name,
        data,
        {key: tuple(class_names) for key, class_names in classes.items() if class_names},
        None if names is None else tuple(names),
    )
