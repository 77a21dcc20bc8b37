"""Labelled texts in Parquet files, Arrow files and tables of pyarrow."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gatedjax._utils.missing import missing
from gatedjax.text._memory import InRows

ENDS = {".parquet": "parquet", ".arrow": "ipc"}
"""Endings of files, and the name of their format in pyarrow."""
# Rows that are converted to Python objects at a time; this bounds their memory.
_ROWS = 4096


@dataclasses.dataclass(frozen=True)
class _Rows:
    """The rows of a `pyarrow.dataset.Dataset` as dicts, which can be read several times."""

    name: str
    data: Any

    def __iter__(self) -> Iterator[dict[str, object]]:
        with _faults(self.name):
            for batch in self.data.to_batches(batch_size=_ROWS):
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


def open_arrow(data: Any, name: str) -> InRows:
    """Opens a Parquet or Arrow file, or a table; class numbers of `datasets` become names."""
    try:
        from pyarrow.dataset import dataset
    except ImportError:
        raise ValueError(missing(f"{name} needs", "pyarrow")) from None
    with _faults(name):
        if not isinstance(data, Path):
            source = dataset(data)
        elif ENDS[data.suffix.lower()] == "ipc" and _is_stream(data):
            import pyarrow

            # The package `datasets` writes streams, which have no table of contents. The file is
            # mapped, so that its values are not in memory.
            with pyarrow.memory_map(str(data)) as file:
                source = dataset(pyarrow.ipc.open_stream(file).read_all())
        else:
            source = dataset(data, format=ENDS[data.suffix.lower()])
    classes = _class_names((source.schema.metadata or {}).get(b"huggingface", b"{}"))
    return InRows(name, _Rows(name, source), classes, tuple(source.schema.names))


def _class_names(description: bytes) -> dict[str, list[str]]:
    """Returns the names of the classes of each column that has them, by the name of the column.

    `description` is the JSON about the columns that the package `datasets` writes into a file.
    Content of another form, which another program has written, names no classes.
    """
    try:
        facts = json.loads(description)
    except (ValueError, RecursionError):
        return {}
    features = _entry(_entry(facts, "info"), "features")
    columns = features if isinstance(features, dict) else {}
    classes = {name: _entry(feature, "names") for name, feature in columns.items()}
    return {
        name: names
        for name, names in classes.items()
        if names and isinstance(names, list) and all(isinstance(item, str) for item in names)
    }


def _entry(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None
