"""The target of a class for each text, and the metrics of classes: accuracy, F1, calibration."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.lexicon import ClassHead, Readings
from gatedjax.text.targets import _base
from gatedjax.text.targets._base import Names, Target, Weights

# Number of bins of the calibration, by the probability of the predicted class.
_BINS = 15
# Smallest probability in the likelihood, because log 0 is not finite.
_LEAST = 1e-12


@dataclasses.dataclass(frozen=True)
class ClassTarget(Target):
    """The target of a classifier, a class for each text. The most probable class is predicted, or
    with a threshold the class `positive` if its probability is at least the threshold.
    """

    positive: int | None = None  # a position in two classes; None: no threshold
    threshold: float = 0.5

    kind: ClassVar[str] = "text"
    metrics: ClassVar[Mapping[str, str]] = {"accuracy": "accuracy", "macro_f1": "macro F1"}

    @classmethod
    def of_labels(
        cls, labels: Sequence[Any], counts: Sequence[int], options: Any, has_columns: bool = False
    ) -> "ClassTarget":
        target = cls(tuple(labels))
        return target if options.threshold is None else target.with_threshold(options.threshold)

    def make_head(self, targets: np.ndarray, weights: Weights = None) -> ClassHead:
        return ClassHead(len(self.classes))

    def with_threshold(self, threshold: Any) -> "ClassTarget":
        if len(self.classes) != 2:
            raise ValueError(
                "threshold must be left out unless there are two classes, or several labels for "
                f"each text, got {threshold!r} for {len(self.classes)} classes"
            )
        thresholds = _base.find_thresholds(threshold, self.classes)
        if len(thresholds) != 1:
            first, second = self.classes
            raise ValueError(
                f"threshold must be for one of the two classes, got {threshold!r}: name the class, "
                f"as threshold {first}=0.3 or {second}=0.3 (in Python {{{first!r}: 0.3}})"
            )
        ((position, number),) = thresholds.items()
        return dataclasses.replace(self, positive=position, threshold=number)

    def decision_to_json(self) -> Json:
        if self.positive is None:
            return {}
        return {"positive": self.positive, "threshold": self.threshold}

    def with_decision(self, value: Json) -> "ClassTarget":
        if not value:
            return self
        positive, threshold = value["positive"], float(value["threshold"])
        if positive not in (0, 1) or len(self.classes) != 2:
            raise ValueError(f"positive must be 0 or 1 for two classes, got {positive!r}")
        return dataclasses.replace(self, positive=positive, threshold=threshold)

    def decide(self, readings: Readings) -> np.ndarray:
        if self.positive is None:
            return readings.probabilities.argmax(1)
        # A probability equal to the threshold reaches it, as for several labels.
        is_positive = readings.probabilities[:, self.positive] >= self.threshold
        return np.where(is_positive, self.positive, 1 - self.positive)

    def score_texts(self, targets: np.ndarray, readings: Readings) -> np.ndarray:
        return np.asarray(self.decide(readings) == targets, np.float64)

    def measure(
        self, targets: np.ndarray, readings: Readings, unknown: Names = (), weights: Weights = None
    ) -> Json:
        probabilities = np.asarray(readings.probabilities, np.float64)
        predicted = self.decide(readings)
        rows = np.arange(len(targets))
        truth, best = probabilities[rows, targets], probabilities[rows, predicted]
        squares = np.square(probabilities).sum(1)
        metrics = measure_predicted(targets, predicted, truth, best, squares, self.classes, weights)
        if readings.is_read:
            metrics["few_words"] = _measure_few(readings, best, predicted == targets, weights)
        return metrics

    def repeat_prior(self, prior: np.ndarray, count: int) -> Readings:
        # The most frequent class is predicted whatever threshold there is.
        return super().repeat_prior(np.eye(len(prior))[prior.argmax()], count)

    def measure_effect(self, parts: np.ndarray, columns: Sequence[int]) -> float:
        return abs(float(parts[columns[0]] - parts.mean()))

    def render_rule(self, bias: np.ndarray) -> str:
        if self.positive is None:
            return "The class with the largest sum is predicted; the parts are exact."
        return (
            f"{self.classes[self.positive]} is predicted if its probability is at least "
            f"{self.threshold:g}; the parts are exact."
        )


def _measure_few(
    readings: Readings, confidence: np.ndarray, correct: np.ndarray, weights: Weights
) -> Json:
    """Returns the accuracy and the mean probability of texts with at most one word read."""
    rows = np.flatnonzero([np.count_nonzero(gates) <= 1 for gates in readings.is_read])
    weights = None if weights is None else weights[rows]
    names = {"accuracy": correct, "confidence": confidence}
    means = {
        name: float(np.average(values[rows], weights=weights)) if len(rows) else None
        for name, values in names.items()
    }
    return {"n": len(rows), **means}


def measure_predicted(
    labels: np.ndarray,
    predicted: np.ndarray,
    truth: np.ndarray,
    best: np.ndarray,
    squares: np.ndarray,
    classes: Names,
    weights: Weights = None,
) -> Json:
    """Computes the metrics of n predicted classes: `truth` and `best` are the probabilities of the
    true and of the predicted class, `squares` the sums of the squares of all probabilities.

        nll = -mean_i log p_iy
        brier = mean_i sum_c (p_ic - [c = y_i])^2                from 0 to 2 (Brier 1950)
        ece = sum_b n_b / n |accuracy_b - confidence_b|          15 equal bins of max_c p_ic

    The macro F1 is over the classes in labels or predictions, and a score with denominator 0 is 0.
    Weights count in the means and in the confusion (rows are true classes); the numbers n remain
    numbers of texts. Reference: Guo et al. 2017 (ece); Brier 1950.
    """
    from sklearn.metrics import precision_recall_fscore_support

    confusion = _base.count_pairs(labels, predicted, len(classes), weights)
    options: Any = {"labels": np.arange(len(classes)), "zero_division": 0}
    scores = precision_recall_fscore_support(labels, predicted, sample_weight=weights, **options)
    occurs = confusion.sum(0) + confusion.sum(1) > 0
    counts = np.bincount(labels, minlength=len(classes))
    # This is sum_c (p_c - [c = y])^2 without a matrix of the labels.
    brier = squares - 2 * truth + 1
    bins, ece = _calibrate(best, predicted == labels, weights)
    return {
        "n": len(labels),
        **_base.describe_effective(weights),
        "accuracy": float(confusion.trace() / confusion.sum()),
        "macro_f1": float(scores[2][occurs].mean()),
        "nll": float(np.average(-np.log(np.maximum(truth, _LEAST)), weights=weights)),
        "brier": float(np.average(brier, weights=weights)),
        "ece": ece,
        "per_class": _base.list_scores(classes, scores, n=counts.tolist()),
        "confusion": confusion.tolist(),
        "bins": bins,
    }


def _calibrate(
    confidence: np.ndarray, correct: np.ndarray, weights: Weights
) -> tuple[list[Json], float]:
    """Returns the 15 bins of the calibration, bin k of (k / 15, (k + 1) / 15], and its error."""
    edges = np.linspace(0, 1, _BINS + 1)
    # A probability slightly above 1, by rounding, is in the last bin.
    place = np.clip(np.searchsorted(edges, confidence) - 1, 0, _BINS - 1)
    counts = np.bincount(place, minlength=_BINS)
    masses = np.bincount(place, weights, _BINS)
    unit = 1.0 if weights is None else weights
    sums = [np.bincount(place, unit * part, _BINS) for part in (confidence, correct)]
    bins = []
    error = 0.0
    for k, count in enumerate(counts.tolist()):
        mean, right = (float(part[k] / masses[k]) if count else None for part in sums)
        if mean is not None and right is not None:
            error += masses[k] * abs(right - mean)
        bins.append(
            {
                "from": float(edges[k]),
                "to": float(edges[k + 1]),
                "n": count,
                "confidence": mean,
                "accuracy": right,
            }
        )
    return bins, float(error / masses.sum())
