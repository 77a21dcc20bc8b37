"""Labelled texts in memory: rows, columns, frames, data sets, and tables and files of Arrow.

Objects of pandas, polars, pyarrow and datasets are recognised by their attributes, so that none of
these packages is imported.
"""

import contextlib
import functools
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from gatedjax._utils.choices import check_choice
from gatedjax._utils.missing import missing
from gatedjax.text.sources._table import Aside, Columns, Row, Source

LOOK = 100
"""The rows in which names of columns are looked for, because a source may be long."""
ARROW = {".parquet": "parquet", ".arrow": "ipc"}
"""Endings of files of Arrow, and the name of their format in pyarrow."""
# Rows that are converted to Python objects at a time; this bounds their memory.
_BATCH = 4096

Names = Mapping[str, Sequence[str] | None]
"""Column -> the names for its class numbers."""


def open_values(data: Any, split: str) -> Source:
    """Opens values in memory; `split` selects a part of a dict of data sets."""
    if isinstance(data, Mapping):
        # `datasets.load_dataset` without a split returns a dict of data sets.
        if data and all(hasattr(value, "column_names") for value in data.values()):
            check_choice(tuple(data), split=split)
            return open_values(data[split], split)
        return _open_columns("columns", data, list(data))
    # A lazy frame of polars. The type is checked, because a column may have the name "collect".
    if hasattr(type(data), "collect"):
        raise TypeError(
            f"data must be a frame in memory, got {type(data).__name__}: call .collect()"
        )
    if hasattr(data, "schema") and hasattr(data, "to_batches"):
        return open_arrow("table", data)
    if hasattr(data, "column_names") and hasattr(data, "features"):
        return open_dataset("rows", data)
    if hasattr(data, "columns") and hasattr(data, "__getitem__"):
        return _open_columns("frame", data, list(data.columns))
    if not isinstance(data, Iterable) or isinstance(data, bytes):
        raise TypeError(
            "data must be a path, the name of a data set, rows, a dict of columns or a frame, "
            f"got {_kind(data)}"
        )
    # A table is read several times, and an iterator only once.
    rows = data if isinstance(data, list | tuple) else list(data)
    if rows and isinstance(rows[0], Mapping):
        return open_dicts("rows", lambda: rows)
    return open_tuples("rows", rows)


def _open_columns(name: str, data: Any, keys: Sequence[Any]) -> Source:
    """Opens a frame, or a dict of lists or arrays."""
    by_name = {str(key): key for key in keys}

    def rows(columns: Columns) -> Iterator[Row]:
        values = {column: data[by_name[column]] for column in columns.wanted}
        for column, cells in values.items():
            if isinstance(cells, str | bytes) or not hasattr(cells, "__len__"):
                raise ValueError(
                    f"{name}: column {column!r} must be a list or array, got {_kind(cells)}"
                )
            if (axes := getattr(cells, "ndim", 1)) != 1:
                raise ValueError(f"{name}: column {column!r} must have one dimension, got {axes}")
        if len({len(cells) for cells in values.values()}) > 1:
            counts = ", ".join(f"{column!r} {len(cells):,}" for column, cells in values.items())
            raise ValueError(f"{name}: columns must have the same length, got {counts}")
        for number, row in enumerate(zip(*values.values(), strict=True), 1):
            yield name, number, row

    return Source(name, rows, tuple(map(str, keys)))


def open_tuples(name: str, data: Sequence[object]) -> Source:
    """Opens rows (text, label) or (premise, hypothesis, label), perhaps without labels."""

    def rows(columns: Columns) -> Iterator[Row]:
        count = len(columns.wanted)
        is_text = columns.wanted == columns.inputs[:1]
        for number, row in enumerate(data, 1):
            # A row may have a label that is not needed.
            if _size(row) == count or (columns.label is None and _size(row) == count + 1):
                yield name, number, cast(Sequence[object], row)[:count]
            elif is_text and isinstance(row, str | None):
                yield name, number, (row,)
            else:
                form = f"({', '.join(columns.wanted)}{',' * (count == 1)})"
                form = f"{'a text or ' * is_text}{form}"
                if number == 1:
                    raise ValueError(
                        f"rows must be {form}, a dict of columns or a frame, got {_kind(row)}"
                    )
                yield Aside(name, number, f"must be {form}, got {_kind(row)}")

    return Source(name, rows, width=_size(data[0]) if len(data) else 0)


def open_dicts(
    name: str,
    make_rows: Callable[[], Iterable[object]],
    names: Iterable[str] | None = None,
    classes: Names | None = None,
) -> Source:
    """Opens rows that are dicts from column to value, or an `Aside`; `make_rows` is called for each
    pass. Without `names` the first rows name the columns.
    """
    if names is None:
        first = [row for row in itertools.islice(make_rows(), LOOK) if isinstance(row, Mapping)]
        names = dict.fromkeys(str(column) for row in first for column in row)

    def rows(columns: Columns) -> Iterator[Row]:
        label = columns.label
        class_names = None if label is None or classes is None else classes.get(label)
        for number, row in enumerate(make_rows(), 1):
            if isinstance(row, Mapping):
                values = [row.get(column) for column in columns.wanted]
                if class_names:
                    values[-1] = _class_name(class_names, values[-1])
                yield name, number, values
            elif isinstance(row, Aside):
                yield row
            else:
                yield Aside(name, number, f"not a dict but {_kind(row)}")

    return Source(name, rows, tuple(names) or None)


def _class_name(classes: Sequence[str], label: Any) -> object:
    try:
        number = int(label)
    except (TypeError, ValueError):
        return label
    # A number without a class, such as -1, is a missing label.
    return classes[number] if 0 <= number < len(classes) else None


def _size(row: Any) -> int:
    return len(row) if isinstance(row, tuple | list) or getattr(row, "ndim", 0) == 1 else 0


def _kind(value: object) -> str:
    size = _size(value)
    return f"a {type(value).__name__}" + (f" of {size} value{'s' * (size != 1)}" if size else "")


def open_dataset(name: str, data: Any) -> Source:
    """Opens a data set of `datasets`, whole or streamed, with names in place of class numbers."""
    features = getattr(data, "features", None) or {}
    classes = {key: getattr(feature, "names", None) for key, feature in features.items()}
    return open_dicts(name, lambda: data, getattr(data, "column_names", None), classes)


def open_arrow(name: str, data: Any) -> Source:
    """Opens a table or a `Path` of Arrow; class numbers of the package `datasets` become names."""
    try:
        from pyarrow.dataset import dataset
    except ImportError:
        raise ValueError(missing(f"{name} needs", "pyarrow")) from None
    with _faults(name):
        form = ARROW[data.suffix.lower()] if isinstance(data, Path) else None
        if form == "ipc" and _is_stream(data):
            import pyarrow

            # The package `datasets` writes streams, which have no table of contents. The file is
            # mapped, so that its values are not in memory.
            with pyarrow.memory_map(str(data)) as file:
                data, form = pyarrow.ipc.open_stream(file).read_all(), None
        source = dataset(data, format=form)
    classes = _class_names((source.schema.metadata or {}).get(b"huggingface", b"{}"))
    return open_dicts(name, functools.partial(_batches, name, source), source.schema.names, classes)


def _batches(name: str, source: Any) -> Iterator[dict[str, object]]:
    with _faults(name):
        for batch in source.to_batches(batch_size=_BATCH):
            # Without this check the wrong offsets of a damaged file would be read as memory.
            batch.validate(full=True)
            yield from batch.to_pylist()


@contextlib.contextmanager
def _faults(name: str) -> Iterator[None]:
    """Turns an error of pyarrow in its block into a ValueError with one line."""
    # Imported here, because pyarrow is optional.
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, SystemError) as error:
        raise ValueError(
            f"{name} must be data that pyarrow can read, got damaged data or another format: "
            f"{str(error).splitlines()[0]}"
        ) from error


def _is_stream(path: Path) -> bool:
    # A stream begins with a continuation mark, before the length of its first message.
    with path.open("rb") as file:
        return file.read(4) == b"\xff\xff\xff\xff"


def _class_names(description: bytes) -> Names:
    """Returns the names of classes that the package `datasets` wrote, {} for other content."""
    try:
        features = json.loads(description)["info"]["features"]
        named = {key: feature["names"] for key, feature in features.items() if "names" in feature}
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return {}
    return {
        key: names
        for key, names in named.items()
        if isinstance(names, list) and all(isinstance(name, str) for name in names)
    }
