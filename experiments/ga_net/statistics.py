"""Table 1: the numbers of texts, words and classes of the data sets."""

import collections
import dataclasses

import numpy as np

from gatedjax.data import Source


@dataclasses.dataclass(frozen=True)
class DatasetStatistics:
    """A row of a table of data sets."""

    name: str
    split: str
    n: int
    mean_length: float
    max_length: int
    num_classes: int
    class_counts: dict[str, int]
    vocabulary_size: int
    """The number of distinct lower-cased words."""


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
