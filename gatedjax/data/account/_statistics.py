"""Counts of a source, the held-out split, and the overlap of two sources."""

import collections
import dataclasses

import numpy as np

from gatedjax.data.files._source import Source


@dataclasses.dataclass(frozen=True)
class DatasetStatistics:
    """One row of a table of data sets."""

    name: str
    split: str
    n: int
    mean_length: float
    max_length: int
    num_classes: int
    class_counts: dict[str, int]
    vocabulary_size: int
    """Distinct lower-cased words."""


def dataset_statistics(source: Source) -> DatasetStatistics:
    """Counts texts, words and classes of a source."""
    lengths: list[int] = []
    words: set[str] = set()
    labels: collections.Counter[int] = collections.Counter()
    for example in source:
        lengths.append(len(example["tokens"]))
        words.update(map(str.lower, example["tokens"]))
        labels[example["label"]] += 1
    return DatasetStatistics(
        name=source.info.name,
        split=source.info.split,
        n=len(lengths),
        mean_length=round(float(np.mean(lengths)), 3) if lengths else 0.0,
        max_length=max(lengths, default=0),
        num_classes=len(source.info.class_names),
        class_counts={name: labels[i] for i, name in enumerate(source.info.class_names)},
        vocabulary_size=len(words),
    )


def overlap(a: Source, b: Source) -> int:
    """Returns how many examples of `b` have a text (lower-cased words) that also occurs in `a`."""
    seen = {" ".join(example["tokens"]).lower() for example in a}
    return sum(" ".join(example["tokens"]).lower() in seen for example in b)


def stratified_split(
    labels: np.ndarray, fraction: float = 0.1, *, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Splits indices in two so that every class is shared out in the same proportion.

    The held-out part has round(n * fraction) examples; what rounding leaves over goes to the
    classes with the largest remainders.

    Args:
      labels: int [n].
      fraction: share held out, in (0, 1).
      seed: chooses which examples.

    Returns:
      (kept, held out), both sorted: disjoint, and together all indices.

    Raises:
      ValueError: if `fraction` is outside (0, 1).
    """
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must be between 0 and 1, got {fraction}")
    labels = np.asarray(labels)
    generator = np.random.default_rng(seed)
    classes, counts = np.unique(labels, return_counts=True)
    wanted = counts * fraction
    take = np.floor(wanted).astype(int)
    missing = round(len(labels) * fraction) - int(take.sum())
    take[np.argsort(take - wanted, kind="stable")[:missing]] += 1
    held = np.zeros(len(labels), bool)
    for label, count in zip(classes, take, strict=True):
        held[generator.permutation(np.flatnonzero(labels == label))[:count]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)
