"""Texts that occur more than once in a corpus, and texts with several labels."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from gatedjax._utils.terminal import join_first, render_count
from gatedjax._utils.types import Json
from gatedjax.text.sources._labels import Label


def equal_texts(corpus: Any) -> np.ndarray:
    """Returns for each text the first position of the same words; tagged sentences all differ."""
    if corpus.digests is None:
        return np.arange(len(corpus))
    _, first, inverse = np.unique(corpus.digests, return_index=True, return_inverse=True)
    return first[inverse]


def single_text_classes(corpus: Any) -> list[Label]:
    """Returns the classes that have only copies of a single text, so that they cannot be split."""
    if corpus.is_tagged:
        return []
    # A pair of a text and a class is a single number, because it is faster to sort numbers.
    number = len(corpus.classes)
    pairs = np.unique(equal_texts(corpus) * number + corpus.labels)
    counts = np.bincount(pairs % number, minlength=number)
    return [label for label, count in zip(corpus.classes, counts, strict=True) if count < 2]


def render_single(labels: Sequence[Label], noun: str = "classes") -> str:
    """Returns a sentence about classes or labels that only a single text has."""
    # A line with hundreds of names is not read.
    names = join_first([repr(label) for label in labels], 5)
    return f"{noun} with a single text are learned, and validation cannot check them: {names}"


@dataclasses.dataclass(frozen=True)
class Duplicates:
    """The texts of a corpus that occur more than once, compared by their words."""

    copies: int  # lines that repeat an earlier text
    conflicts: int  # different texts with several labels
    lines: int  # lines with a text that has several labels
    examples: tuple[tuple[tuple[int, Label], ...], ...]  # (line, label) in up to three conflicts

    def to_report(self) -> Json:
        """Returns the numbers for `report.json`, a dict, or {} without copies."""
        return {"copies": self.copies, "conflicts": self.conflicts} if self.copies else {}

    def render(self) -> list[str]:
        """Returns a sentence about copies and a sentence about contradictions, if there are any."""
        if not self.copies:
            return []
        sentences = [render_count(self.copies, "duplicate line")]
        shown = "; ".join(
            " and ".join(f"{label!r} in line {line:,}" for line, label in example)
            for example in self.examples
        )
        if self.conflicts == 1 and self.lines == 2:
            sentences.append(f"one text has two labels ({shown}); one of them must be wrong")
        elif self.conflicts:
            sentences.append(
                f"{render_count(self.conflicts, 'text')} with different labels on "
                f"{self.lines:,} lines, some of which must be wrong: {shown}"
            )
        return sentences


def find_duplicates(corpus: Any) -> Duplicates:
    """Counts the texts of a `Corpus` that occur more than once or have several labels."""
    if corpus.is_tagged:
        return Duplicates(0, 0, 0, ())
    first = equal_texts(corpus)
    counts = np.bincount(first)
    number = len(corpus.classes)
    pairs = np.unique(first * number + corpus.labels)
    several = np.bincount(pairs // number) > 1
    examples = []
    for text in np.flatnonzero(several)[:3]:
        copies = np.flatnonzero(first == text)
        _, places = np.unique(corpus.labels[copies], return_index=True)
        shown = copies[np.sort(places)][:3]
        lines, labels = corpus.lines[shown].tolist(), corpus.labels[shown].tolist()
        examples.append(
            tuple((line, corpus.classes[i]) for line, i in zip(lines, labels, strict=True))
        )
    return Duplicates(
        copies=len(first) - int(np.sum(counts > 0)),
        conflicts=int(np.sum(several)),
        lines=int(np.sum(counts[several])),
        examples=tuple(examples),
    )


def count_overlap(corpus: Any, other: Any) -> int:
    """Counts the texts of `other` that are in `corpus`, both read with the same `Numbers`."""
    if corpus.digests is None or other.digests is None:
        return 0
    return int(np.sum(np.isin(other.digests, corpus.digests)))
