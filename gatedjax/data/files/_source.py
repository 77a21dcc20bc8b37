"""What `load` returns: examples by index, and an account of every line that was read."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gatedjax._utils.terminal import printable

Example = dict[str, Any]
"""{"tokens": tuple of str, "label": int, "example_id": int} and extras of the data set."""


@dataclasses.dataclass(frozen=True)
class SourceInfo:
    """Which data this is."""

    name: str
    split: str
    class_names: tuple[str, ...]
    """Class `i` is called `class_names[i]`."""
    substitute: str | None = None
    """How the data differ from the official set; None if they do not."""


@dataclasses.dataclass(frozen=True)
class Quarantined:
    """A line (for a folder of texts: a file) that was set aside, and why."""

    file: str
    line: int
    """From 1; 0 where the whole file is meant."""
    reason: str

    def __str__(self) -> str:
        # a member of an archive may be called anything
        return printable(f"{self.file}:{self.line}: {self.reason}")


@dataclasses.dataclass(frozen=True)
class SpanCounts:
    """The account of the labelled spans of trees that were taken apart: found = used + skipped."""

    found: int
    """Spans of the well-formed trees, as their opening brackets count them."""
    used: int
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Spans left out on purpose: reason -> count."""

    @property
    def reconciles(self) -> bool:
        """Whether every span is accounted for."""
        return self.found == self.used + sum(self.skipped.values())


@dataclasses.dataclass(frozen=True)
class ReadReport:
    """The account of the official part a source was read from: lines = used + set aside + skipped.

    A split that is cut from the official training part carries the report of that whole part.
    """

    lines: int
    used: int
    quarantine: tuple[Quarantined, ...] = ()
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Well-formed lines left out on purpose: reason -> count."""
    spans: SpanCounts | None = None
    """What became of the spans, where the examples are spans of the lines."""
    notes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Used lines that are out of the ordinary: what is -> count; a line may be in several."""

    @property
    def reconciles(self) -> bool:
        """Whether every line, and every span, is accounted for."""
        lines = self.used + len(self.quarantine) + sum(self.skipped.values())
        return self.lines == lines and (self.spans is None or self.spans.reconciles)


class Source(Sequence[Example]):
    """A random-access sequence of examples.

    Args:
      examples: any sequence of dicts with "tokens", "label" and "example_id".
      info: name, split and classes.
      report: what became of the lines; by default all were used.
    """

    def __init__(
        self, examples: Sequence[Example], info: SourceInfo, report: ReadReport | None = None
    ) -> None:
        self._examples = examples
        self.info = info
        self.report = report or ReadReport(lines=len(examples), used=len(examples))

    @property
    def quarantine(self) -> tuple[Quarantined, ...]:
        """The lines that were set aside."""
        return self.report.quarantine

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self._examples[i] for i in range(*index.indices(len(self)))]
        return self._examples[index]

    def __iter__(self) -> Iterator[Example]:
        return iter(self._examples)

    def __repr__(self) -> str:
        return f"Source({self.info.name!r}, {self.info.split!r}, {len(self)} examples)"
