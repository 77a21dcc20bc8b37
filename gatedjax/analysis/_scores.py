"""F1 by class of a classifier, averaged in the ways that papers do."""

import dataclasses
from typing import NamedTuple, Self

import numpy as np


@dataclasses.dataclass(frozen=True)
class ClassScores:
    """Scores of a single-label classifier, from its confusion matrix.

    Attributes:
      precision, recall, f1: by class; 0 where there is nothing to divide by.
      support: examples of every class.
      accuracy: which is also micro-averaged F1.
      weighted: F1 averaged by support.
      macro: F1 averaged over the classes that occur in labels or predictions.
    """

    precision: np.ndarray
    recall: np.ndarray
    f1: np.ndarray
    support: np.ndarray
    accuracy: float
    weighted: float
    macro: float


def class_scores(label: np.ndarray, predicted: np.ndarray, num_classes: int) -> ClassScores:
    """Scores predictions by class.

    Args:
      label: class of every example.
      predicted: what was predicted.
      num_classes: C.
    """
    label, predicted = np.asarray(label), np.asarray(predicted)
    if label.shape != predicted.shape or label.ndim != 1 or not len(label):
        raise ValueError(
            f"label and predicted must be lists of one length, got {label.shape} and "
            f"{predicted.shape}"
        )
    for name, values in {"label": label, "predicted": predicted}.items():
        if values.min() < 0 or values.max() >= num_classes:
            raise ValueError(
                f"{name} must be in [0, {num_classes}), got {values.min()} to {values.max()}"
            )
    hits = np.bincount(label[label == predicted], minlength=num_classes).astype(float)
    support = np.bincount(label, minlength=num_classes)
    predictions = np.bincount(predicted, minlength=num_classes)
    f1 = ratio(2 * hits, support + predictions)
    return ClassScores(
        precision=ratio(hits, predictions),
        recall=ratio(hits, support),
        f1=f1,
        support=support,
        accuracy=float(hits.sum() / len(label)),
        weighted=float(f1 @ support / len(label)),
        macro=float(f1[support + predictions > 0].mean()),
    )


def ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    return np.where(bottom > 0, top / np.maximum(bottom, 1), 0.0)


class MatchScores(NamedTuple):
    """Scores of what was predicted, each in [0, 1]; 0 where there is nothing to divide by.

    Attributes:
      precision: share of what was predicted that is gold.
      recall: share of what is gold that was predicted.
      f1: their harmonic mean.
    """

    precision: float
    recall: float
    f1: float


@dataclasses.dataclass(frozen=True)
class MatchCounts:
    """Counts of what was predicted and of what is gold; those of a corpus are added."""

    matched: int = 0
    predicted: int = 0
    gold: int = 0

    def __add__(self, other: Self) -> Self:
        return type(self)(
            self.matched + other.matched, self.predicted + other.predicted, self.gold + other.gold
        )

    def _shares(self) -> tuple[float, float, float]:
        """The numbers of `MatchScores` (micro)."""
        precision = self.matched / self.predicted if self.predicted else 0.0
        recall = self.matched / self.gold if self.gold else 0.0
        both = self.predicted + self.gold
        return precision, recall, 2 * self.matched / both if both else 0.0
