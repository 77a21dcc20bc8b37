"""Sources: examples by index, with an account of all lines that were read."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gatedjax._utils.terminal import printable

Example = dict[str, Any]
"""{"tokens": tuple of str, "label": int, "example_id": int} and extras of the data set."""


@dataclasses.dataclass(frozen=True)
class SourceInfo:
    """The description of a split of a data set.

    Attributes:
      name: the name of the data set.
      split: the name of the split, such as "train".
      class_names: the names of the classes: class `i` is called `class_names[i]`.
      substitute: a description of how the data differ from the official set; None if they are
        equal.
    """

    name: str
    split: str
    class_names: tuple[str, ...]
    substitute: str | None = None


@dataclasses.dataclass(frozen=True)
class Quarantined:
    """A line (in a folder of texts: a file) that was set aside, with the reason.

    Attributes:
      file: the name of the file.
      line: the line number from 1; 0 stands for the whole file.
      reason: the reason, as a message.
    """

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        # The name of a member of an archive may contain any character.
        return printable(f"{self.file}:{self.line}: {self.reason}")


@dataclasses.dataclass(frozen=True)
class ReadReport:
    """The account of an official part of a data set: lines = used + set aside + skipped.

    A split that is held out of the official training part has the report of the whole part.

    Attributes:
      lines: the number of lines that were read.
      used: the number of lines that give examples.
      quarantine: a `Quarantined` for each line that was set aside, with its number and the reason.
      skipped: well-formed lines left out on purpose: reason -> count.
      notes: unusual lines that are used: reason -> count; a line may have several reasons.
    """

    lines: int
    used: int
    quarantine: tuple[Quarantined, ...] = ()
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    notes: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def reconciles(self) -> bool:
        """True if lines = used + set aside + skipped."""
        return self.lines == self.used + len(self.quarantine) + sum(self.skipped.values())


class Source(Sequence[Example]):
    """A random-access sequence of examples.

        >>> info = SourceInfo("reviews", "train", class_names=("bad", "good"))
        >>> source = Source([{"tokens": ("dull",), "label": 0, "example_id": 7}], info)
        >>> len(source), source.info.class_names[source[0]["label"]]
        (1, 'bad')

    Args:
      examples: a sequence of dicts with "tokens", "label" and "example_id".
      info: a `SourceInfo` with the name of the data set, the split and the names of the classes.
      report: a `ReadReport` with the numbers of lines that were read, used, set aside and skipped;
        None means that each example is a line and all were used.

    Attributes:
      info: the argument, a `SourceInfo`.
      report: the numbers of lines, a `ReadReport`.
    """

    def __init__(
        self, examples: Sequence[Example], info: SourceInfo, report: ReadReport | None = None
    ) -> None:
        self._examples = examples
        self.info = info
        self.report = report or ReadReport(lines=len(examples), used=len(examples))

    @property
    def quarantine(self) -> tuple[Quarantined, ...]:
        """The lines that were set aside, each with its file, line number and the reason."""
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


def overlap(a: Source, b: Source) -> int:
    """Counts the texts of a source that also occur in another, such as the training split.

    Texts are the same if their lower-cased tokens are.

        >>> from gatedjax.data import load
        >>> overlap(load("polarity", "train"), load("polarity", "test"))
        0

    Args:
      a: the source to search, such as the training split.
      b: the source that has the counted texts.

    Returns:
      The number of examples of `b` with the text of an example of `a`.
    """
    seen = {" ".join(example["tokens"]).lower() for example in a}
    return sum(" ".join(example["tokens"]).lower() in seen for example in b)
