"""Texts that occur more than once in a corpus, and texts with several labels."""

import dataclasses
from typing import Any

import numpy as np

from gatedjax._utils.terminal import render_count
from gatedjax._utils.types import Json
from gatedjax.text._table import Label


def equal_texts(corpus: Any) -> np.ndarray:
    """Returns for each text the first position of the same words; tagged sentences all differ."""
    if corpus.digests is None:
        return np.arange(len(corpus))
    # Hashes are compared, because the texts lie in files and memory has only their hashes.
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


@dataclasses.dataclass(frozen=True)
class Duplicates:
    """The texts of a corpus that occur more than once, compared by their words."""

    texts: int  # different texts that occur more than once
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
        sentences = [
            f"{render_count(self.copies, 'line')} with a text that an earlier line has "
            f"({render_count(self.texts, 'text')} more than once)"
        ]
        if self.conflicts:
            shown = "; ".join(
                " and ".join(f"{label!r} in line {line:,}" for line, label in example)
                for example in self.examples
            )
            sentences.append(
                f"{render_count(self.conflicts, 'text')} with different labels "
                f"({render_count(self.lines, 'line')}), so that no model is right on all lines: "
                f"{shown}"
            )
        return sentences


def find_duplicates(corpus: Any) -> Duplicates:
    """Counts the texts of a `Corpus` that occur more than once or have several labels."""
    first = equal_texts(corpus)
    if corpus.is_tagged or len(np.unique(first)) == len(first):
        return Duplicates(0, 0, 0, 0, ())
    counts = np.bincount(first, minlength=len(first))
    number = len(corpus.classes)
    pairs = np.unique(first * number + corpus.labels)
    several = np.bincount(pairs // number, minlength=len(first)) > 1
    examples = []
    for text in np.flatnonzero(several)[:3]:
        copies = np.flatnonzero(first == text)
        _, places = np.unique(corpus.labels[copies], return_index=True)
        examples.append(
            tuple(
                (int(corpus.lines[i]), corpus.classes[int(corpus.labels[i])])
                for i in copies[np.sort(places)][:3]
            )
        )
    return Duplicates(
        int(np.sum(counts > 1)),
        len(first) - int(np.sum(counts > 0)),
        int(np.sum(several)),
        int(np.sum(counts[several])),
        tuple(examples),
    )


def count_overlap(corpus: Any, other: Any) -> int:
    """Counts the texts of `other` that are in `corpus`, both read with the same `Numbers`."""
    if corpus.digests is None or other.digests is None:
        return 0
    return int(np.sum(np.isin(other.digests, corpus.digests)))
