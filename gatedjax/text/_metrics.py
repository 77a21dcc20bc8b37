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
    return metrics_of(labels, predicted, truth, confidence, squares, classes)


def metrics_of(
    labels: np.ndarray,
    predicted: np.ndarray,
    truth: np.ndarray,
    best: np.ndarray,
    squares: np.ndarray,
    classes: Sequence[Label],
) -> Json:
    """Computes `classification_metrics` of n texts without the matrix of probabilities: `truth` and
    `best` are the probabilities of the true and of the predicted class, `squares` the sums of all
    squares.
    """
    n = len(labels)
    scores = class_scores(labels, predicted, len(classes))
    # Each pair (true, predicted) is a number, so that a single count gives the whole matrix.
    cells = np.bincount(labels * len(classes) + predicted, minlength=len(classes) ** 2)
    # This is sum_c (p_c - [c = y])^2 without a matrix of the labels.
    brier = squares - 2 * truth + 1
    bins = _bins(best, predicted == labels)
    return {
        "n": n,
        "accuracy": scores.accuracy,
        "macro_f1": scores.macro,
        "nll": float(-np.log(np.maximum(truth, _LEAST)).mean()),
        "brier": float(brier.mean()),
        "ece": sum(b["n"] * abs(b["accuracy"] - b["confidence"]) for b in bins if b["n"]) / n,
        "per_class": [
            {
                "label": label,
                "precision": float(scores.precision[i]),
                "recall": float(scores.recall[i]),
                "f1": float(scores.f1[i]),
                "n": int(scores.support[i]),
            }
            for i, label in enumerate(classes)
        ],
        "confusion": cells.reshape(len(classes), len(classes)).tolist(),
        "bins": bins,
    }


def _bins(confidence: np.ndarray, correct: np.ndarray) -> list[Json]:
    """Returns the 15 bins of the calibration; bin k is (k / 15, (k + 1) / 15]."""
    edges = np.linspace(0, 1, _BINS + 1)
    # A probability slightly above 1, by rounding, is in the last bin.
    place = np.clip(np.searchsorted(edges, confidence) - 1, 0, _BINS - 1)
    counts = np.bincount(place, minlength=_BINS)
    sums = [np.bincount(place, part, _BINS) for part in (confidence, correct)]
    bins = []
    for k, count in enumerate(counts.tolist()):
        mean, right = (float(part[k] / count) if count else None for part in sums)
        bins.append(
            {
                "from": float(edges[k]),
                "to": float(edges[k + 1]),
                "n": count,
                "confidence": mean,
                "accuracy": right,
            }
        )
    return bins


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
