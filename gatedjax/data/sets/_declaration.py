"""A data set as one value: `load`, its TFDS builder and the check of its files follow from it."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gatedjax.data.files._lines import LineError, Row, Rows, read_lines
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

Options = Mapping[str, str]
"""Option of a data set -> value."""
Record = Mapping[str, Any]
"""An example as TFDS stores it."""
Examples = Sequence[Example]
ReadPart = Callable[[str], Rows]
"""Reads an official part."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfdsForm:
    """The TFDS form that gatedjax builds of a set, without TensorFlow: a record for every row."""

    description: str
    config_description: str = ""
    """Of a set that is a configuration of one builder; see `DataSet.config`."""
    features: Mapping[str, object]
    """Name -> `str`, `[str]` for several texts, the names of classes, or a NumPy type."""
    record: Callable[[Row], Record]
    row: Callable[[Record], tuple]
    """What `record` made -> (label, content) or (label, content, file) of the row."""
    version: str = "1.0.0"
    registered: bool = True
    """Whether `tfds.builder(name)` finds it; False where TFDS has another set of that name."""
    complete: bool = True
    """Whether all parts must be there; else any of them will do."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSet:
    """All that the library knows of a data set with files."""

    name: str
    official: Mapping[str, int | None]
    """Lines of every part; None where no number is published."""
    where: str
    """Where the files come from, for messages."""
    files: Places
    read: Callable[[Any, str], Rows]
    """(file, part) -> its rows; `by_lines` makes one of a parser of lines."""
    examples: Callable[[Rows, int, Options], Examples]
    """(rows, first id, options) -> examples; `each` and `lazily` make one from that of a row."""
    classes: tuple[str, ...] | Callable[[Options], tuple[str, ...]]
    tfds: TfdsForm | None = None
    """None for a set that TFDS itself builds."""
    tfds_rows: Callable[[Sequence[Record], str], Rows] | None = None
    """Of such a set: (records, part) -> rows."""

    aliases: Mapping[str, Options] = dataclasses.field(default_factory=dict)
    """Other names of the set -> the options that they mean."""
    family: tuple[str, str, str] | None = None
    """Name of several sets of one kind, its option, and the value that means this one; the first
    set declared is the default."""
    config: tuple[str, str, str] | None = None
    """As `family`, of sets that are configurations of one TFDS builder; there is no default."""
    options: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Option -> values, the default first."""
    of_part: Callable[[str, Options], Options] = lambda part, options: options
    """(part, options) -> the options as they hold for that part."""

    unit: str = "lines"
    """What a row is."""
    count: Callable[[Any], int] = count_lines
    """Counts the lines of a raw file in another way than `read`, to check it."""
    by_line: bool = True
    """Whether row i is line i + 1 of its file."""
    ids_per_row: Callable[[Options], int] = lambda options: 1
    """How many example ids a row takes: id // this is the row."""
    skipped: Callable[[Rows, Options], dict[str, int]] = lambda rows, options: {}
    """Well-formed lines that no example is made of: reason -> count."""
    spans: Callable[[Rows, Examples, Options], SpanCounts | None] = lambda rows, examples, o: None
    """(rows, examples, options) -> the account of examples that are spans of lines."""
    notes: Callable[[Rows], Mapping[str, int]] = lambda rows: {}
    """Rows that are used and yet out of the ordinary: what is -> count."""
    hold_out: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None
    """Labels of the official training part -> (train, validation); None: a stratified share."""
    source: Callable[[Any, SourceInfo, ReadReport, ReadPart], Source] = (
        lambda examples, info, report, read_part: Source(examples, info, report)
    )
    """(examples, info, report, reader of parts) -> what `load` returns."""

    def report(self, rows: Rows, piece: Rows, examples: Examples, options: Options) -> ReadReport:
        """The account of an official part, and of the spans of the piece of it that is used."""
        skipped = self.skipped(rows, options)
        return ReadReport(
            lines=rows.lines,
            used=len(rows.rows) - sum(skipped.values()),
            quarantine=rows.quarantine,
            skipped=skipped,
            spans=self.spans(piece, examples, options),
            notes=self.notes(rows),
        )

    def class_names(self, options: Options) -> tuple[str, ...]:
        """The classes under some options."""
        return self.classes(options) if callable(self.classes) else self.classes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embedded:
    """A data set that needs no files."""

    name: str
    origin: str
    sizes: Mapping[str, int]
    source: Callable[[str], Source]
    """Split -> source."""
    unit: str = "lines"
    """What an example is, in reports."""


def generated(
    name: str,
    sizes: Mapping[str, int],
    classes: tuple[str, ...],
    make: Callable[[str, int], Example],
    *,
    unit: str = "lines",
) -> Embedded:
    """A set whose examples are a function of (split, index); those of a split are made once."""

    @functools.cache
    def examples(split: str) -> tuple[Example, ...]:
        return tuple(make(split, index) for index in range(sizes[split]))

    def source(split: str) -> Source:
        split = "train" if split == "train_full" else split
        copies = [dict(example) for example in examples(split)]
        return Source(copies, SourceInfo(name, split, classes))

    return Embedded(name=name, origin="made by gatedjax", sizes=sizes, source=source, unit=unit)


ID_BASE = {"train": 0, "validation": 100_000_000, "test": 200_000_000}
"""First example id of every part."""


def by_lines(
    parse: Callable[[str], tuple[int, Any]], encoding: str = "utf-8"
) -> Callable[[AnyPath, str], Rows]:
    """Reads files of which every line is a row."""
    return lambda path, part: read_lines(path, parse, encoding)


def each(make: Callable[[Row, int], Example]) -> Callable[[Rows, int, Options], Examples]:
    """Makes an example of every row, of the row and its id."""
    return lambda rows, base, options: [make(row, base + row.index) for row in rows.rows]


def lazily(
    make: Callable[[Row, int], Example], *, once: bool = False
) -> Callable[[Rows, int, Options], Examples]:
    """Makes examples when they are asked for; `once` keeps them."""
    return lambda rows, base, options: RowExamples(rows, base, make, once=once)


class RowExamples(Sequence[Example]):
    """One example a row, made when it is asked for."""

    def __init__(
        self, rows: Rows, base: int, make: Callable[[Row, int], Example], *, once: bool = False
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


def numbered(records: Sequence[Record], content: Callable[[Record], Any], name: str) -> Rows:
    """Rows of records that TFDS prepared itself, by their position there."""
    rows, quarantine = [], []
    for index, record in enumerate(records):
        try:
            rows.append(Row(index, int(record["label"]), content(record)))
        except (UnicodeDecodeError, LineError) as error:
            quarantine.append(Quarantined(name, index + 1, str(error)))
    return Rows(tuple(rows), tuple(quarantine), counted=len(records))
