"""Declarations of data sets, from which `load`, the TFDS builders and `data check` are derived."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gatedjax.data.files._lines import FileRow, FileRows, LineError, read_lines
from gatedjax.data.files._paths import AnyPath, Places
from gatedjax.data.files._source import (
    Example,
    Quarantined,
    ReadReport,
    Source,
    SourceInfo,
)
from gatedjax.data.text._tokenize import tokenize

SetOptions = Mapping[str, str]
"""Option of a data set -> value."""
Record = Mapping[str, Any]
"""An example in the form in which TFDS stores it."""
Examples = Sequence[Example]
ReadPart = Callable[[str], FileRows]
"""Reads an official part."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfdsForm:
    """The TFDS form of a data set that gatedjax builds without TensorFlow: a record per row.

    By default the texts among the features are the content of a row, a text or a tuple of texts in
    their order, and the names of classes are its label. Another content needs `record` and `row`.
    """

    description: str
    config_description: str = ""  # of a set that is a configuration of a builder
    features: Mapping[str, object]  # name -> `str`, `[str]`, names of classes, or a NumPy type
    record: Callable[[FileRow], Record] | None = None
    # -> (label, content) or (label, content, file)
    row: Callable[[Record], tuple[Any, ...]] | None = None
    version: str = "1.0.0"
    registered: bool = True  # False if TFDS has another set of that name
    complete: bool = True  # False if any part is enough

    def to_record(self, row: FileRow) -> Record:
        """Returns the fields of a row that TFDS stores."""
        if self.record is not None:
            return self.record(row)
        names, labels = self._names()
        content = row.content if len(names) > 1 else (row.content,)
        return dict(zip(names, content, strict=True)) | dict.fromkeys(labels, row.label)

    def to_row(self, record: Record) -> tuple[Any, ...]:
        """Returns (label, content) or (label, content, file), the inverse of `to_record`."""
        if self.row is not None:
            return self.row(record)
        names, labels = self._names()
        texts = tuple(record[name].decode() for name in names)
        label = int(record[labels[0]]) if labels else 0
        return label, texts if len(texts) > 1 else texts[0]

    def _names(self) -> tuple[list[str], list[str]]:
        """Returns (names of the texts, names of the label) among the features."""
        features = self.features.items()
        labels = [name for name, kind in features if isinstance(kind, tuple)]
        return [name for name, kind in features if kind is str], labels


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
    config: str = ""  # of the TFDS builder of the family; "" if the set has a builder of its own
    # Option -> its values, the default first.
    options: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    of_part: Callable[[str, SetOptions], SetOptions] = lambda part, options: options

    unit: str = "lines"
    ids_per_row: Callable[[SetOptions], int] = lambda options: 1  # row = (id - first id) // n
    # Reason -> number of well-formed lines that give no example; of unusual lines in `notes`.
    skipped: Callable[[FileRows, SetOptions], dict[str, int]] = lambda rows, options: {}
    notes: Callable[[FileRows], Mapping[str, int]] = lambda rows: {}
    # Labels [n] -> positions of the (training, validation) rows; None is a stratified split.
    hold_out: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None
    source: Callable[[Any, SourceInfo, ReadReport, ReadPart], Source] = (
        lambda examples, info, report, read_part: Source(examples, info, report)
    )

    def report(self, rows: FileRows, options: SetOptions) -> ReadReport:
        """Returns the report of the rows of a part."""
        skipped = self.skipped(rows, options)
        return ReadReport(
            lines=rows.lines,
            used=len(rows.rows) - sum(skipped.values()),
            quarantine=rows.quarantine,
            skipped=skipped,
            notes=self.notes(rows),
        )

    @property
    def builder(self) -> str:
        """The name of the TFDS builder."""
        return self.family[0] if self.family and self.config else self.name

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
    origin: str = "made by gatedjax",
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

    return Embedded(name=name, origin=origin, sizes=sizes, source=source, unit=unit)


ID_BASE = {"train": 0, "validation": 100_000_000, "test": 200_000_000}
"""The first example id of each part."""


def by_lines(
    parse: Callable[[str], tuple[int, Any]], encoding: str = "utf-8"
) -> Callable[[AnyPath, str], FileRows]:
    """Returns a function that maps (path, part) to rows, in which each line is a row."""
    return lambda path, part: read_lines(path, parse, encoding)


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


SPLITS = ("train", "validation", "test", "train_full")
HELD_OUT = 0.1
SPLIT_SEED = 20_200_820
"""Fixed, so that "validation" has the same examples in all runs."""


def hold_out(
    declared: DataSet, rows: FileRows, fraction: float = HELD_OUT
) -> tuple[FileRows, FileRows]:
    """Divides the rows of an official training part; returns (train rows, validation rows)."""
    labels = np.array([row.label for row in rows.rows], int)
    if declared.hold_out is None:
        parts = stratified_split(labels, fraction, seed=SPLIT_SEED)
    else:
        parts = declared.hold_out(labels)
    # Lines that were set aside belong to the whole part, whose report lists them.
    train, validation = (FileRows(tuple(rows.rows[i] for i in part), ()) for part in parts)
    return train, validation


def stratified_split(
    labels: np.ndarray, fraction: float = 0.1, *, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Splits n indices in two parts with the same proportions of the classes, both sorted. The
    held-out part has round(n * fraction); after rounding down, the classes with the largest
    remainders get an example more.

        >>> train, validation = stratified_split(np.array([0, 0, 1, 1]), 0.5)
        >>> len(train), len(validation)
        (2, 2)
    """
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must be in (0, 1), got {fraction}")
    labels = np.asarray(labels)
    generator = np.random.default_rng(seed)
    classes, counts = np.unique(labels, return_counts=True)
    shares = counts * fraction
    take = np.floor(shares).astype(int)
    missing = round(len(labels) * fraction) - int(take.sum())
    # A stable sort chooses among equal remainders in the same way on all machines.
    take[np.argsort(take - shares, kind="stable")[:missing]] += 1
    is_held_out = np.zeros(len(labels), bool)
    for label, count in zip(classes, take, strict=True):
        is_held_out[generator.permutation(np.flatnonzero(labels == label))[:count]] = True
    return np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)


def text_example(row: FileRow, example_id: int) -> Example:
    """Returns the example of a row with a text as its content."""
    text: str = row.content
    return {"tokens": tokenize(text), "label": row.label, "example_id": example_id, "text": text}
