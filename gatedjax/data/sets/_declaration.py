"""Declarations of data sets, from which `load`, the TFDS builders and `data check` are derived."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gatedjax.data.files._lines import FileRow, FileRows, LineError, read_lines
from gatedjax.data.files._paths import AnyPath, count_lines
from gatedjax.data.files._places import Places
from gatedjax.data.files._source import (
    Example,
    Quarantined,
    ReadReport,
    Source,
    SourceInfo,
    SpanCounts,
)

SetOptions = Mapping[str, str]
"""Option of a data set -> value."""
Record = Mapping[str, Any]
"""An example in the form in which TFDS stores it."""
Examples = Sequence[Example]
ReadPart = Callable[[str], FileRows]
"""Reads an official part."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfdsForm:
    """The TFDS form of a data set that gatedjax builds without TensorFlow: a record per row."""

    description: str
    config_description: str = ""  # of a set that is a configuration of a builder
    features: Mapping[str, object]  # name -> `str`, `[str]`, names of classes, or a NumPy type
    record: Callable[[FileRow], Record]
    row: Callable[[Record], tuple]  # -> (label, content) or (label, content, file)
    version: str = "1.0.0"
    registered: bool = True  # False if TFDS has another set of that name
    complete: bool = True  # False if any part is enough


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSet:
    """The declaration of a data set with files: its parts, readers, classes and options."""

    name: str
    official: Mapping[str, int | None]  # part -> published number of lines
    where: str  # the address of the files, for messages
    files: Places
    read_rows: Callable[[Any, str], FileRows]  # (file, part) -> rows, as of `by_lines`
    examples: Callable[[FileRows, int, SetOptions], Examples]  # (rows, first id, options)
    classes: tuple[str, ...] | Callable[[SetOptions], tuple[str, ...]]
    tfds: TfdsForm | None = None  # None for a set that TFDS builds, which has `tfds_rows`
    tfds_rows: Callable[[Sequence[Record], str], FileRows] | None = None

    aliases: Mapping[str, SetOptions] = dataclasses.field(default_factory=dict)
    family: tuple[str, str, str] | None = None  # (family, its option, value for this set)
    config: tuple[str, str, str] | None = None  # the same of a TFDS builder, without a default
    # Option -> its values, the default first.
    options: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    of_part: Callable[[str, SetOptions], SetOptions] = lambda part, options: options

    unit: str = "lines"
    count: Callable[[Any], int] = count_lines  # independent of `read_rows`, which it checks
    by_line: bool = True  # row i is line i + 1 of its file
    ids_per_row: Callable[[SetOptions], int] = lambda options: 1  # row = (id - first id) // n
    # Reason -> number of well-formed lines that give no example; of unusual lines in `notes`.
    skipped: Callable[[FileRows, SetOptions], dict[str, int]] = lambda rows, options: {}
    spans: Callable[[FileRows, Examples, SetOptions], SpanCounts | None] = (
        lambda rows, examples, o: None
    )
    notes: Callable[[FileRows], Mapping[str, int]] = lambda rows: {}
    # Labels [n] -> positions of the (training, validation) rows; None is a stratified split.
    hold_out: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None
    source: Callable[[Any, SourceInfo, ReadReport, ReadPart], Source] = (
        lambda examples, info, report, read_part: Source(examples, info, report)
    )

    def report(
        self, rows: FileRows, piece: FileRows, examples: Examples, options: SetOptions
    ) -> ReadReport:
        """Returns the report of a part; only its account of spans is about the rows `piece`."""
        skipped = self.skipped(rows, options)
        return ReadReport(
            lines=rows.lines,
            used=len(rows.rows) - sum(skipped.values()),
            quarantine=rows.quarantine,
            skipped=skipped,
            spans=self.spans(piece, examples, options),
            notes=self.notes(rows),
        )

    def class_names(self, options: SetOptions) -> tuple[str, ...]:
        """Returns the names of the classes for given options, option -> value."""
        return self.classes(options) if callable(self.classes) else self.classes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embedded:
    """A data set that needs no files."""

    name: str
    origin: str
    sizes: Mapping[str, int]
    source: Callable[[str], Source]
    unit: str = "lines"


def generate_set(
    name: str,
    sizes: Mapping[str, int],
    classes: tuple[str, ...],
    make: Callable[[str, int], Example],
    *,
    unit: str = "lines",
) -> Embedded:
    """Declares a data set whose examples `make(split, index)` are computed, once per split."""

    @functools.cache
    def examples(split: str) -> tuple[Example, ...]:
        return tuple(make(split, index) for index in range(sizes[split]))

    def source(split: str) -> Source:
        split = "train" if split == "train_full" else split
        # The examples are cached, so callers get copies that they may change.
        copies = [dict(example) for example in examples(split)]
        return Source(copies, SourceInfo(name, split, classes))

    return Embedded(name=name, origin="made by gatedjax", sizes=sizes, source=source, unit=unit)


ID_BASE = {"train": 0, "validation": 100_000_000, "test": 200_000_000}
"""The first example id of each part."""


def by_lines(
    parse: Callable[[str], tuple[int, Any]], encoding: str = "utf-8"
) -> Callable[[AnyPath, str], FileRows]:
    """Returns a function that maps (path, part) to rows, in which each line is a row."""
    return lambda path, part: read_lines(path, parse, encoding)


def eagerly(
    make: Callable[[FileRow, int], Example],
) -> Callable[[FileRows, int, SetOptions], Examples]:
    """Returns a function that maps (rows, first example id, options) to a list of examples."""
    return lambda rows, base, options: [make(row, base + row.index) for row in rows.rows]


def lazily(
    make: Callable[[FileRow, int], Example], *, once: bool = False
) -> Callable[[FileRows, int, SetOptions], Examples]:
    """Returns a function (rows, first id, options) -> examples made on access, kept if `once`."""
    return lambda rows, base, options: RowExamples(rows, base, make, once=once)


class RowExamples(Sequence[Example]):
    """Examples of rows by position, made on access."""

    def __init__(
        self,
        rows: FileRows,
        base: int,
        make: Callable[[FileRow, int], Example],
        *,
        once: bool = False,
    ) -> None:
        self.rows, self.base, self._make = rows, base, make
        self._examples: list[Example | None] | None = [None] * len(rows.rows) if once else None

    def __len__(self) -> int:
        return len(self.rows.rows)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        example = None if self._examples is None else self._examples[index]
        if example is None:
            row = self.rows.rows[index]
            example = self._make(row, self.base + row.index)
            if self._examples is not None:
                self._examples[index] = example
        return example


def number_records(
    records: Sequence[Record], content: Callable[[Record], Any], name: str
) -> FileRows:
    """Converts records that TFDS prepared, dicts, to rows, numbered by their position from 0."""
    rows, quarantine = [], []
    for index, record in enumerate(records):
        try:
            rows.append(FileRow(index, int(record["label"]), content(record)))
        except (UnicodeDecodeError, LineError) as error:
            quarantine.append(Quarantined(name, index + 1, str(error)))
    return FileRows(tuple(rows), tuple(quarantine), counted=len(records))
