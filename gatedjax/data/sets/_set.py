"""What `load` knows of a data set."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gatedjax.data.files._lines import AnyPath, Rows, count_lines
from gatedjax.data.files._source import Example, ReadReport, Source, SourceInfo, SpanCounts


@dataclasses.dataclass(frozen=True)
class Set:
    """How to read one data set."""

    official: Mapping[str, int | None]
    """Lines of every part; None where no number is published."""
    where: str
    files: Callable[[Path, str], tuple[AnyPath | None, str]]
    """(manual_dir, part) -> (the raw file or None, what was looked for)."""
    read: Callable[[Any, str], Rows]
    examples: Callable[[Rows, int, dict[str, str]], Sequence[Example]]
    """(rows, first id, options) -> examples."""
    classes: Callable[[dict[str, str]], tuple[str, ...]]
    options: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Option -> values, the default first."""
    of_part: Callable[[str, dict[str, str]], dict[str, str]] = lambda part, options: options
    """(part, options) -> the options as they hold for that part."""
    spans: Callable[[Rows, Any, dict[str, str]], SpanCounts | None] = lambda rows, made, o: None
    """(rows, examples, options) -> the account of examples that are spans of lines."""
    hold_out: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None
    """Labels of the official training part -> (kept, validation); None: a stratified share."""
    skipped: Callable[[Rows, dict[str, str]], dict[str, int]] = lambda rows, options: {}
    """(rows, options) -> well-formed lines that no example is made of: reason -> count."""
    count: Callable[[AnyPath], int] = count_lines
    """Counts the lines of a raw file in another way than `read`, to check it."""
    by_line: bool = True
    """Whether row i is line i + 1 of its file."""
    ids_per_row: int = 1
    """How many example ids a row takes: id // this is the row."""
    unit: str = "lines"
    """What a row is."""
    notes: Callable[[Rows], Mapping[str, int]] = lambda rows: {}
    """Rows that are used and yet out of the ordinary: what is -> count."""
    source: Callable[[Sequence[Example], SourceInfo, ReadReport, Callable[[str], Rows]], Source] = (
        lambda examples, info, report, part: Source(examples, info, report)
    )
    """Makes the result; the last argument reads an official part."""
