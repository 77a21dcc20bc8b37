"""Scores of classifiers and of sets of predictions: precision, recall, F1 and their averages."""

import dataclasses
from typing import NamedTuple, Self

import numpy as np


@dataclasses.dataclass(frozen=True)
class ClassScores:
    """Scores of a classifier that predicts a class for each example; C is the number of classes.

    Attributes:
      precision: [C] share of the predictions of a class that are correct; 0 without predictions.
      recall: [C] share of the examples of a class that are predicted correctly; 0 without examples.
      f1: [C] harmonic mean of precision and recall; 0 for a class that does not occur.
      support: [C] number of examples with each class as their label, or the sum of their weights.
      accuracy: share of correct predictions, which is also the micro-averaged F1.
      weighted: mean of F1 over the classes, weighted by support.
      macro: mean of F1 over the classes that occur in labels or predictions.
    """

    precision: np.ndarray
    recall: np.ndarray
    f1: np.ndarray
    support: np.ndarray
    accuracy: float
    weighted: float
    macro: float


def class_scores(
    label: np.ndarray,
    predicted: np.ndarray,
    num_classes: int,
    sample_weight: np.ndarray | None = None,
) -> ClassScores:
    """Computes precision, recall and F1 of each class, and their averages.

        >>> label, predicted = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 0])
        >>> scores = class_scores(label, predicted, num_classes=2)
        >>> print(scores.f1, scores.accuracy)
        [0.5 0.5] 0.5

    Args:
      label: int [N], the class of each of N examples.
      predicted: int [N], the predicted class of each example.
      num_classes: C, the number of classes.
      sample_weight: [N], the weight with which each example counts, also in `support`; None is 1.

    Returns:
      The scores.
    """
    label, predicted = np.asarray(label), np.asarray(predicted)
    if label.shape != predicted.shape or label.ndim != 1 or not len(label):
        raise ValueError(
            "label and predicted must have the same shape [N] with N at least 1, got "
            f"{label.shape} and {predicted.shape}"
        )
    for name, values in {"label": label, "predicted": predicted}.items():
        if values.min() < 0 or values.max() >= num_classes:
            raise ValueError(
                f"{name} must be in [0, {num_classes}), got {values.min()} to {values.max()}"
            )
    right = label == predicted
    of_right = None if sample_weight is None else sample_weight[right]
    hits = np.bincount(label[right], of_right, num_classes).astype(float)
    support = np.bincount(label, sample_weight, num_classes)
    predictions = np.bincount(predicted, sample_weight, num_classes)
    # This form of F1 is also defined for a class without predictions or without examples.
    f1 = ratio(2 * hits, support + predictions)
    return ClassScores(
        precision=ratio(hits, predictions),
        recall=ratio(hits, support),
        f1=f1,
        support=support,
        accuracy=float(hits.sum() / support.sum()),
        weighted=float(f1 @ support / support.sum()),
        macro=float(f1[support + predictions > 0].mean()),
    )


def ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """Returns `top` / `bottom` elementwise for arrays of counts; 0 where `bottom` is 0."""
    return np.divide(top, bottom, out=np.zeros(np.shape(top)), where=bottom > 0)


class MatchScores(NamedTuple):
    """Scores of predicted items against gold items, each in [0, 1]; 0 if the denominator is 0."""

    precision: float
    recall: float
    f1: float


@dataclasses.dataclass(frozen=True)
class MatchCounts:
    """Counts of predicted and gold items; the counts of the parts of a corpus can be added."""

    matched: int = 0
    predicted: int = 0
    gold: int = 0

    def __add__(self, other: Self) -> Self:
        return type(self)(
            self.matched + other.matched, self.predicted + other.predicted, self.gold + other.gold
        )

    def value(self) -> MatchScores:
        """Returns the scores of all items pooled (micro)."""
        precision = self.matched / self.predicted if self.predicted else 0.0
        recall = self.matched / self.gold if self.gold else 0.0
        both = self.predicted + self.gold
        return MatchScores(precision, recall, 2 * self.matched / both if both else 0.0)
