"""Metrics of several labels for each text, of predicted numbers, and of grades."""

from collections.abc import Sequence

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.analysis._text import render_table
from gatedjax.text._table import Label

# A label has a threshold of its own if it occurs in so many validation texts. The F1 of fewer texts
# is too noisy to choose a threshold.
_LEAST_TEXTS = 10


def label_metrics(
    targets: np.ndarray, predicted: np.ndarray, labels: Sequence[Label], unknown: Sequence[Label]
) -> Json:
    """Computes the metrics of predicted sets of labels.

        F1 = 2 TP / (2 TP + FP + FN)

    The micro F1 counts the pairs of a text and a label; the macro F1 is the mean over the labels
    that occur in targets or predictions. Unknown labels, the last columns of `targets` [n, L + U],
    count as missed in the micro F1 and in the subset accuracy, the share of texts with all labels
    right, and have no part in the macro F1. "decisions" in the dict is half of 2 TP + FP + FN.

        >>> targets = np.array([[True, False], [True, True]])
        >>> metrics = label_metrics(targets, targets[:, ::-1], ["a", "b"], [])
        >>> round(metrics["micro_f1"], 3), metrics["subset_accuracy"]
        (0.667, 0.5)
    """
    in_model = targets[:, : len(labels)]
    # The counts of each label; the micro F1 follows from their sums.
    right = (in_model & predicted).sum(0)
    positive, num_predicted = in_model.sum(0), predicted.sum(0)
    f1 = _divide(2 * right, positive + num_predicted)
    occurs = positive + num_predicted > 0
    all_positive = int(targets.sum())
    is_exact = (in_model == predicted).all(1) & ~targets[:, len(labels) :].any(1)
    counts = targets[:, len(labels) :].sum(0).tolist()
    return {
        "n": len(targets),
        "micro_f1": _ratio(2 * right.sum(), all_positive + num_predicted.sum()),
        "micro_precision": _ratio(right.sum(), num_predicted.sum()),
        "micro_recall": _ratio(right.sum(), all_positive),
        "macro_f1": float(f1[occurs].mean()) if occurs.any() else 0.0,
        "subset_accuracy": float(is_exact.mean()),
        "decisions": float(all_positive + num_predicted.sum()) / 2,
        "labels": [
            {
                "label": label,
                "precision": _ratio(right[i], num_predicted[i]),
                "recall": _ratio(right[i], positive[i]),
                "f1": float(f1[i]),
                "n": int(positive[i]),
                "predicted": int(num_predicted[i]),
            }
            for i, label in enumerate(labels)
        ],
        "without_label": {
            "n": int((~targets.any(1)).sum()),
            "predicted": int((~predicted.any(1)).sum()),
        },
        "unknown": [
            {"label": label, "n": count} for label, count in zip(unknown, counts, strict=True)
        ],
    }


def real_metrics(targets: np.ndarray, predicted: np.ndarray) -> Json:
    """Computes the metrics of predicted numbers.

        RMSE = sqrt(mean (v - y)^2),  MAE = mean |v - y|,  R^2 = 1 - mean (v - y)^2 / var y

    and Spearman's correlation of ranks. The last two are None if the targets, or for "spearman" the
    predictions, are all equal; "rmse_error" is the standard error of the RMSE.

        >>> metrics = real_metrics(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 5.0]))
        >>> round(metrics["rmse"], 3), metrics["mae"] == 2 / 3, metrics["spearman"]
        (1.155, True, 1.0)
    """
    errors = predicted - targets
    squares = errors**2
    rmse = float(np.sqrt(squares.mean()))
    variance = float(targets.var())
    spearman = None
    if len(np.unique(targets)) > 1 and len(np.unique(predicted)) > 1:
        # Imported here, because it takes longer than a prediction.
        from scipy.stats import spearmanr

        spearman = float(spearmanr(targets, predicted).statistic)
    # The error of the mean of the squares, by the delta method.
    of_squares = float(squares.std()) / len(targets) ** 0.5
    return {
        "n": len(targets),
        "rmse": rmse,
        "mae": float(np.abs(errors).mean()),
        "r2": 1 - float(squares.mean()) / variance if variance > 0 else None,
        "spearman": spearman,
        "rmse_error": of_squares / (2 * rmse) if rmse > 0 else 0.0,
    }


def ordinal_metrics(targets: np.ndarray, predicted: np.ndarray, grades: Sequence[Label]) -> Json:
    """Computes the metrics of predicted grades.

        kappa = 1 - sum w O / sum w E,  w_ij = (i - j)^2

    with the counts O of pairs of true and predicted grades, and the counts E that follow from the
    sums of the rows and columns of O (Cohen 1968). The dict has "kappa" None if all texts have the
    same grade, and "mae_error", the standard error of the mean distance "mae".

        >>> metrics = ordinal_metrics(np.array([0, 1, 2]), np.array([0, 1, 1]), ["a", "b", "c"])
        >>> round(metrics["mae"], 3), round(metrics["kappa"], 3)
        (0.333, 0.667)
    """
    count = len(grades)
    confusion = np.bincount(targets * count + predicted, minlength=count**2).reshape(count, count)
    distances = np.abs(targets - predicted)
    # Far grades count more than near grades, with the square of their distance.
    weights = (np.arange(count)[:, None] - np.arange(count)) ** 2
    expected = confusion.sum(1)[:, None] * confusion.sum(0) / len(targets)
    chance = float((weights * expected).sum())
    return {
        "n": len(targets),
        "accuracy": float((distances == 0).mean()),
        "mae": float(distances.mean()),
        "kappa": 1 - float((weights * confusion).sum()) / chance if chance > 0 else None,
        "mae_error": float(distances.std()) / len(targets) ** 0.5,
        "grades": list(grades),
        "confusion": confusion.tolist(),
    }


def choose_thresholds(probabilities: np.ndarray, targets: np.ndarray) -> tuple[float, ...]:
    """Chooses the threshold of each label with the largest F1. A label that occurs in fewer than
    ten texts has the threshold of the largest micro F1 of all labels, because the F1 of few texts
    is noisy (Yang 2001). All are 0.5 if no text has a label.

        >>> choose_thresholds(np.array([[0.2], [0.3], [0.4]]), np.array([[False], [True], [True]]))
        (0.25,)
    """
    if not targets.any():
        return (0.5,) * targets.shape[1]
    common = _choose_threshold(probabilities.ravel(), targets.ravel())
    return tuple(
        _choose_threshold(probabilities[:, i], targets[:, i])
        if targets[:, i].sum() >= _LEAST_TEXTS
        else common
        for i in range(targets.shape[1])
    )


def _choose_threshold(probabilities: np.ndarray, targets: np.ndarray) -> float:
    """Returns the threshold with the largest F1, in the middle between two probabilities."""
    order = np.argsort(-probabilities, kind="stable")
    ranked = probabilities[order]
    # The entry k - 1 has the number of right texts if the first k texts are predicted.
    right = np.cumsum(targets[order])
    f1 = 2 * right / (np.arange(1, len(ranked) + 1) + targets.sum())
    # Equal probabilities cannot be separated by a threshold.
    f1[:-1][ranked[:-1] == ranked[1:]] = -1
    best = int(np.argmax(f1))
    # The middle between two texts is the best guess for new texts with probabilities between them.
    following = ranked[best + 1] if best + 1 < len(ranked) else 0.0
    return float((ranked[best] + following) / 2)


def render_label_table(metrics: Json) -> str:
    """Formats the scores of each label, and sentences about unknown and missing labels."""
    rows = [
        (
            str(entry["label"]),
            *(f"{entry[key]:.3f}" for key in ("precision", "recall", "f1")),
            entry["n"],
            entry["predicted"],
        )
        for entry in metrics["labels"]
    ]
    lines = [render_table(("label", "precision", "recall", "F1", "texts", "predicted"), rows)]
    without = metrics["without_label"]
    lines.append(
        f"texts without a label: {without['n']:,}; without a predicted label: "
        f"{without['predicted']:,}"
    )
    if metrics["unknown"]:
        lines.append(render_unknown(metrics["unknown"]))
    return "\n".join(lines)


def render_unknown(unknown: Sequence[Json]) -> str:
    """Returns the sentence about labels that the model does not have."""
    listing = ", ".join(f"{entry['label']!r} {entry['n']:,}" for entry in unknown[:5])
    remainder = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
    total = sum(entry["n"] for entry in unknown)
    return (
        f"labels that the model does not have, which count as missed: {total:,} in the texts "
        f"({listing}{remainder}); the macro F1 is the mean without them"
    )


def render_grade_table(metrics: Json) -> str:
    """Formats the counts of true and predicted grades as a table for a terminal."""
    names = [str(grade) for grade in metrics["grades"]]
    rows = [(name, *row) for name, row in zip(names, metrics["confusion"], strict=True)]
    return render_table(("true \\ predicted", *names), rows)


def _divide(numbers: np.ndarray, by: np.ndarray) -> np.ndarray:
    return np.where(by > 0, numbers / np.maximum(by, 1), 0.0)


def _ratio(number: float, by: float) -> float:
    return float(number / by) if by else 0.0
