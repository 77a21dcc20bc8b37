"""Labelled texts in Parquet files, Arrow files and tables of pyarrow."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gatedjax._utils.missing import missing
from gatedjax.text._memory import InRows

ENDS = {".parquet": "parquet", ".arrow": "ipc", ".feather": "ipc"}
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
    # The package `datasets` writes its description of the columns into the metadata of the schema.
    facts = json.loads((source.schema.metadata or {}).get(b"huggingface", b"{}"))
    features = facts.get("info", {}).get("features", {})
    classes = {name: feature["names"] for name, feature in features.items() if feature.get("names")}
    return InRows(name, _Rows(name, source), classes, tuple(source.schema.names))
