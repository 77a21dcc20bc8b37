"""Metrics of the predictions of a classifier: accuracy, F1, likelihood and calibration."""

from collections.abc import Sequence

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.analysis._scores import class_scores
from gatedjax.analysis._text import render_table

Label = str | int | float | bool
# Number of bins of the calibration, by the probability of the predicted class.
_BINS = 15
# Probabilities below this count as this in the likelihood, because log 0 is not finite.
_LEAST = 1e-12
# A confusion matrix of more classes is too wide for a terminal, so its largest cells are listed.
_WIDEST, _MOST_CONFUSIONS = 10, 10


def classification_metrics(
    labels: np.ndarray,
    probabilities: np.ndarray,
    classes: Sequence[Label],
    predicted: np.ndarray | None = None,
    sample_weight: np.ndarray | None = None,
) -> Json:
    """Computes the metrics of predicted class probabilities for n labelled texts.

    With p_ic the probability of class c for text i and y_i its label:

        nll = -mean_i log p_iy
        brier = mean_i sum_c (p_ic - [c = y_i])^2                from 0 to 2 (Brier 1950)
        ece = sum_b n_b / n |accuracy_b - confidence_b|          15 equal bins of max_c p_ic

    The dict for JSON has n, accuracy, macro_f1 (over the classes in labels or predictions), nll,
    brier, ece (Guo et al. 2017), per_class (a score with denominator 0 is 0), confusion (rows are
    true classes) and bins (without a prediction their means are None). `predicted` None is the
    first of the most probable classes. Labels count from 0; rows of probabilities must sum to 1.

        >>> probabilities = np.array([[0.75, 0.25], [0.5, 0.5]])
        >>> metrics = classification_metrics(np.array([0, 1]), probabilities, ["good", "bad"])
        >>> print(metrics["accuracy"], metrics["confusion"])
        0.5 [[1, 0], [1, 0]]

    Args:
      labels: int [n], the true classes, from 0.
      probabilities: [n, C]; the rows sum to 1. The first of the largest probabilities in a row is
        predicted.
      classes: the names of the C classes.
      predicted: int [n], the predicted classes; None predicts the most probable.
      sample_weight: [n], the weight of each text in the means and in `confusion`; None is 1. The
        numbers n remain numbers of texts, and "effective_n" is added, see `count_effective`.

    Returns:
      A dict that can be written as JSON: n (the number of texts), accuracy, macro_f1 (over the
      classes that occur in labels or predictions), nll, brier, ece, per_class (label, precision,
      recall, f1 and n; a score with denominator 0 is 0), confusion (rows are true classes) and bins
      (from, to, n, and the mean confidence and accuracy, which are None if n is 0).

    Raises:
      TypeError: if labels are not integers.
      ValueError: if there is no label, shapes do not agree, a label is not in [0, C), or a row is
        not a probability distribution.

    Reference: Guo et al. 2017 (ece); Brier 1950.
    """
    labels, probabilities = np.asarray(labels), np.asarray(probabilities, np.float64)
    if not np.issubdtype(labels.dtype, np.integer):
        raise TypeError(f"labels must be integers, got {labels.dtype}")
    n = len(labels)
    if probabilities.shape != (n, len(classes)) or labels.ndim != 1 or not n:
        raise ValueError(
            f"probabilities must have shape [n, {len(classes)}] and labels [n], n > 0, "
            f"got {probabilities.shape} and {labels.shape}"
        )
    sums = probabilities.sum(1)
    # NaN fails the comparison, so that it is refused too.
    proper = (probabilities >= 0).all(1) & (np.abs(sums - 1) < 1e-3)
    if not proper.all():
        row = int(np.argmin(proper))
        raise ValueError(
            f"probabilities must be at least 0 and sum to 1, got {probabilities[row].tolist()} "
            f"in row {row}"
        )
    # A label outside of the classes is refused below, with a message that names it.
    truth = probabilities[np.arange(n), np.clip(labels, 0, len(classes) - 1)]
    squares = np.square(probabilities).sum(1)
    predicted = probabilities.argmax(1) if predicted is None else predicted
    confidence = probabilities[np.arange(n), predicted]
    return metrics_of(labels, predicted, truth, confidence, squares, classes, sample_weight)


def metrics_of(
    labels: np.ndarray,
    predicted: np.ndarray,
    truth: np.ndarray,
    best: np.ndarray,
    squares: np.ndarray,
    classes: Sequence[Label],
    sample_weight: np.ndarray | None = None,
) -> Json:
    """Computes `classification_metrics` of n texts without the matrix of probabilities: `truth` and
    `best` are the probabilities of the true and of the predicted class, `squares` the sums of all
    squares.
    """
    n = len(labels)
    scores = class_scores(labels, predicted, len(classes), sample_weight)
    counts = np.bincount(labels, minlength=len(classes))
    # Each pair (true, predicted) is a number, so that a single count gives the whole matrix.
    cells = np.bincount(
        labels * len(classes) + predicted, sample_weight, minlength=len(classes) ** 2
    )
    # This is sum_c (p_c - [c = y])^2 without a matrix of the labels.
    brier = squares - 2 * truth + 1
    bins, masses = _bins(best, predicted == labels, sample_weight)
    gaps = [b["n"] and abs(b["accuracy"] - b["confidence"]) for b in bins]
    return {
        "n": n,
        **describe_effective(sample_weight),
        "accuracy": scores.accuracy,
        "macro_f1": scores.macro,
        "nll": float(np.average(-np.log(np.maximum(truth, _LEAST)), weights=sample_weight)),
        "brier": float(np.average(brier, weights=sample_weight)),
        "ece": float(sum(mass * gap for mass, gap in zip(masses, gaps, strict=True)) / sum(masses)),
        "per_class": [
            {
                "label": label,
                "precision": float(scores.precision[i]),
                "recall": float(scores.recall[i]),
                "f1": float(scores.f1[i]),
                "n": int(counts[i]),
            }
            for i, label in enumerate(classes)
        ],
        "confusion": cells.reshape(len(classes), len(classes)).tolist(),
        "bins": bins,
    }


def count_effective(weights: np.ndarray | None, count: int) -> float:
    """Returns the number of texts of equal weight that give a mean of the same standard error.

    It is (sum w)^2 / sum w^2.

        >>> count_effective(np.array([2.0, 2.0, 0.0]), 3), count_effective(None, 3)
        (2.0, 3)

    Args:
      weights: [n], the weights w of the texts; None is 1 for each.
      count: the number n of texts.

    Reference: Kish 1965.
    """
    return count if weights is None else float(weights.sum() ** 2 / np.square(weights).sum())


def describe_effective(weights: np.ndarray | None) -> Json:
    """Returns {"effective_n": the number of `count_effective`} for the metrics of weighted texts.

    `weights` are [n]; without weights, None, the result is {}.
    """
    return {} if weights is None else {"effective_n": count_effective(weights, len(weights))}


def measure_error(values: np.ndarray, weights: np.ndarray | None) -> float:
    """Returns the standard error of the mean of values, [n], with weights [n] or None.

    With the mean m it is sqrt(sum w^2 (v - m)^2) / sum w.
    """
    weights = np.ones(len(values)) if weights is None else weights
    distances = weights * (values - np.average(values, weights=weights))
    return float(np.sqrt(np.square(distances).sum()) / weights.sum())


def _bins(
    confidence: np.ndarray, correct: np.ndarray, weights: np.ndarray | None
) -> tuple[list[Json], list[float]]:
    """Returns the 15 bins of the calibration; bin k is (k / 15, (k + 1) / 15]."""
    edges = np.linspace(0, 1, _BINS + 1)
    # A probability slightly above 1, by rounding, is in the last bin.
    place = np.clip(np.searchsorted(edges, confidence) - 1, 0, _BINS - 1)
    counts = np.bincount(place, minlength=_BINS)
    masses = np.bincount(place, weights, _BINS)
    each = 1.0 if weights is None else weights
    sums = [np.bincount(place, each * part, _BINS) for part in (confidence, correct)]
    bins = []
    for k, count in enumerate(counts.tolist()):
        mean, right = (float(part[k] / masses[k]) if count else None for part in sums)
        bins.append(
            {
                "from": float(edges[k]),
                "to": float(edges[k + 1]),
                "n": count,
                "confidence": mean,
                "accuracy": right,
            }
        )
    return bins, masses.tolist()


def render_metrics(metrics: Json, unit: str = "texts") -> str:
    """Formats metrics for a terminal: a line, a table by class, the confusion, the calibration."""
    names = [str(entry["label"]) for entry in metrics["per_class"]]
    parts = [
        f"{metrics['n']} {unit}: accuracy {metrics['accuracy']:.4f}, macro F1 "
        f"{metrics['macro_f1']:.4f}, log loss {metrics['nll']:.4f}, Brier {metrics['brier']:.4f}, "
        f"calibration error {metrics['ece']:.4f}\n",
        render_table(
            ("class", "precision", "recall", "F1", unit),
            [
                (name, *(f"{entry[key]:.3f}" for key in ("precision", "recall", "f1")), entry["n"])
                for name, entry in zip(names, metrics["per_class"], strict=True)
            ],
        ),
        _confusion(names, metrics["confusion"], unit),
        render_table(
            ("confidence", unit, "mean", "accuracy"),
            [
                (
                    f"{b['from']:.2f} to {b['to']:.2f}",
                    b["n"],
                    *(f"{b[key]:.3f}" for key in ("confidence", "accuracy")),
                )
                for b in metrics["bins"]
                if b["n"]
            ],
        ),
    ]
    return "\n".join(parts)


def _confusion(names: Sequence[str], confusion: Sequence[Sequence[int]], unit: str) -> str:
    """Formats the confusion matrix, or for many classes the most frequent confusions."""
    if len(names) <= _WIDEST:
        rows = [(name, *row) for name, row in zip(names, confusion, strict=True)]
        return render_table(("true \\ predicted", *names), rows)
    wrong = [
        (-count, i, j)
        for i, row in enumerate(confusion)
        for j, count in enumerate(row)
        if count and i != j
    ]
    return render_table(
        ("true", "predicted", unit),
        [(names[i], names[j], -count) for count, i, j in sorted(wrong)[:_MOST_CONFUSIONS]],
    )
