"""Metrics of several labels for each text, of predicted numbers, and of grades."""

from collections.abc import Sequence

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.analysis._scores import ratio
from gatedjax.analysis._text import render_table
from gatedjax.text._metrics import count_effective, describe_effective, measure_error
from gatedjax.text._table import Label

# A label has a threshold of its own if it occurs in so many validation texts. The F1 of fewer texts
# is too noisy to choose a threshold.
_LEAST_TEXTS = 10


def label_metrics(
    targets: np.ndarray,
    predicted: np.ndarray,
    labels: Sequence[Label],
    unknown: Sequence[Label],
    sample_weight: np.ndarray | None = None,
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

    Args:
      targets: bool [n, L + U], the labels of the texts: first the L labels of the model.
      predicted: bool [n, L], the predicted labels.
      labels: the names of the L labels.
      unknown: the names of the U unknown labels.
      sample_weight: [n], the weight of each text in the scores; None is 1. The numbers n and
        predicted remain numbers of texts, and "effective_n" is added, see `count_effective`.

    Returns:
      A dict for JSON: n, micro_f1, micro_precision, micro_recall, macro_f1, subset_accuracy (the
      share of the texts of which all labels are right), decisions (half of 2 TP + FP + FN), labels
      (a list of dicts with label, precision, recall, f1, the number n of texts with it and the
      number predicted), without_label (a dict with n, the number of texts without a label, and
      predicted, the number without a predicted label), and unknown, a list of dicts with the label
      and its number of texts n.
    """
    in_model = targets[:, : len(labels)]
    each = np.ones(len(targets)) if sample_weight is None else sample_weight
    each = each * (count_effective(sample_weight, len(targets)) / each.sum())
    # The weighted counts of each label; the micro F1 follows from their sums.
    right, positive, num_predicted = (
        (each[:, None] * counted).sum(0) for counted in (in_model & predicted, in_model, predicted)
    )
    f1 = ratio(2 * right, positive + num_predicted)
    occurs = positive + num_predicted > 0
    all_positive = (each[:, None] * targets).sum()
    is_exact = (in_model == predicted).all(1) & ~targets[:, len(labels) :].any(1)
    counts = targets.sum(0).tolist()
    times = predicted.sum(0).tolist()
    return {
        "n": len(targets),
        **describe_effective(sample_weight),
        "micro_f1": _ratio(2 * right.sum(), all_positive + num_predicted.sum()),
        "micro_precision": _ratio(right.sum(), num_predicted.sum()),
        "micro_recall": _ratio(right.sum(), all_positive),
        "macro_f1": float(f1[occurs].mean()) if occurs.any() else 0.0,
        "subset_accuracy": float(np.average(is_exact, weights=sample_weight)),
        "decisions": float(all_positive + num_predicted.sum()) / 2,
        "labels": [
            {
                "label": label,
                "precision": _ratio(right[i], num_predicted[i]),
                "recall": _ratio(right[i], positive[i]),
                "f1": float(f1[i]),
                "n": counts[i],
                "predicted": times[i],
            }
            for i, label in enumerate(labels)
        ],
        "without_label": {
            "n": int((~targets.any(1)).sum()),
            "predicted": int((~predicted.any(1)).sum()),
        },
        "unknown": [
            {"label": label, "n": count}
            for label, count in zip(unknown, counts[len(labels) :], strict=True)
        ],
    }


def real_metrics(
    targets: np.ndarray, predicted: np.ndarray, sample_weight: np.ndarray | None = None
) -> Json:
    """Computes the metrics of predicted numbers.

        RMSE = sqrt(mean (v - y)^2),  MAE = mean |v - y|,  R^2 = 1 - mean (v - y)^2 / var y

    and Spearman's correlation of ranks. The last two are None if the targets, or for "spearman" the
    predictions, are all equal; "rmse_error" is the standard error of the RMSE.

        >>> metrics = real_metrics(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 5.0]))
        >>> round(metrics["rmse"], 3), metrics["mae"] == 2 / 3, metrics["spearman"]
        (1.155, True, 1.0)

    Args:
      targets: [n], the numbers y.
      predicted: [n], the predictions v.
      sample_weight: [n], the weight of each text; None is 1. With weights there is "effective_n",
        see `count_effective`.

    Returns:
      A dict for JSON: n, rmse, mae, r2, spearman, and rmse_error, the standard error of the RMSE;
      r2 and spearman are None if the targets, or for spearman the predictions, are all equal.
    """
    errors = predicted - targets
    squares = errors**2
    mean_square = float(np.average(squares, weights=sample_weight))
    rmse = mean_square**0.5
    variance = _covariance(targets, targets, sample_weight)
    # The error of the mean of the squares, by the delta method.
    of_squares = measure_error(squares, sample_weight)
    return {
        "n": len(targets),
        **describe_effective(sample_weight),
        "rmse": rmse,
        "mae": float(np.average(np.abs(errors), weights=sample_weight)),
        "r2": 1 - mean_square / variance if variance > 0 else None,
        "spearman": _correlate_ranks(targets, predicted, sample_weight),
        "rmse_error": of_squares / (2 * rmse) if rmse > 0 else 0.0,
    }


def _covariance(first: np.ndarray, second: np.ndarray, weights: np.ndarray | None) -> float:
    """Returns the covariance of two arrays [n] with weights [n], or None for equal weights."""
    first, second = (part - np.average(part, weights=weights) for part in (first, second))
    return float(np.average(first * second, weights=weights))


def _correlate_ranks(
    first: np.ndarray, second: np.ndarray, weights: np.ndarray | None
) -> float | None:
    """Returns Spearman's correlation of two arrays [n], or None if one of them is constant."""
    ranks = []
    for values in (first, second):
        different, place = np.unique(values, return_inverse=True)
        if len(different) == 1:
            return None
        masses = np.bincount(place, weights)
        ranks.append((np.cumsum(masses) - masses / 2)[place])
    spreads = [_covariance(rank, rank, weights) for rank in ranks]
    return _covariance(ranks[0], ranks[1], weights) / float(np.sqrt(spreads[0] * spreads[1]))


def ordinal_metrics(
    targets: np.ndarray,
    predicted: np.ndarray,
    grades: Sequence[Label],
    sample_weight: np.ndarray | None = None,
) -> Json:
    """Computes the metrics of predicted grades.

        kappa = 1 - sum w O / sum w E,  w_ij = (i - j)^2

    with the counts O of pairs of true and predicted grades, and the counts E that follow from the
    sums of the rows and columns of O (Cohen 1968). The dict has "kappa" None if all texts have the
    same grade, and "mae_error", the standard error of the mean distance "mae".

        >>> metrics = ordinal_metrics(np.array([0, 1, 2]), np.array([0, 1, 1]), ["a", "b", "c"])
        >>> round(metrics["mae"], 3), round(metrics["kappa"], 3)
        (0.333, 0.667)

    Args:
      targets: int [n], the true grades, from 0.
      predicted: int [n], the predicted grades.
      grades: the names of the grades, from the lowest to the highest.
      sample_weight: [n], the weight of each text, also in `confusion`; None is 1. With weights
        there is "effective_n", see `count_effective`.

    Returns:
      A dict for JSON: n, accuracy, mae (the mean distance in grades), kappa (None if all texts have
      the same grade), mae_error (the standard error of mae), grades, and confusion (rows are true
      grades).

    Reference: Cohen 1968 (weighted kappa).
    """
    count = len(grades)
    cells = np.bincount(targets * count + predicted, sample_weight, minlength=count**2)
    confusion = cells.reshape(count, count)
    distances = np.abs(targets - predicted)
    # Far grades count more than near grades, with the square of their distance.
    weights = (np.arange(count)[:, None] - np.arange(count)) ** 2
    expected = confusion.sum(1)[:, None] * confusion.sum(0) / confusion.sum()
    chance = float((weights * expected).sum())
    return {
        "n": len(targets),
        **describe_effective(sample_weight),
        "accuracy": float(np.average(distances == 0, weights=sample_weight)),
        "mae": float(np.average(distances, weights=sample_weight)),
        "kappa": 1 - float((weights * confusion).sum()) / chance if chance > 0 else None,
        "mae_error": measure_error(distances, sample_weight),
        "grades": list(grades),
        "confusion": confusion.tolist(),
    }


def choose_thresholds(
    probabilities: np.ndarray, targets: np.ndarray, sample_weight: np.ndarray | None = None
) -> tuple[float, ...]:
    """Chooses the threshold of each label with the largest F1.

    A label that occurs in fewer than ten of the texts has the threshold with the largest micro F1
    of all labels, because the F1 of few texts is noisy.

        >>> choose_thresholds(np.array([[0.2], [0.3], [0.4]]), np.array([[False], [True], [True]]))
        (0.25,)

    Args:
      probabilities: [n, L], the probability of each of L labels for n texts.
      targets: bool [n, L], True where a text has a label.
      sample_weight: [n], the weight of each text in the F1; None is 1.

    Returns:
      The L thresholds, all 0.5 if no text has a label. A label is predicted if its probability is
      at least the threshold.

    Reference: Yang 2001 (thresholds of rare categories).
    """
    if not targets.any():
        return (0.5,) * targets.shape[1]
    weights = np.ones(len(targets)) if sample_weight is None else sample_weight
    of_pairs = np.repeat(weights, targets.shape[1])
    common = _choose_threshold(probabilities.ravel(), targets.ravel(), of_pairs)
    return tuple(
        _choose_threshold(probabilities[:, i], targets[:, i], weights)
        if targets[:, i].sum() >= _LEAST_TEXTS
        else common
        for i in range(targets.shape[1])
    )


def _choose_threshold(probabilities: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> float:
    """Returns the threshold with the largest F1, in the middle between two probabilities."""
    order = np.argsort(-probabilities, kind="stable")
    ranked = probabilities[order]
    # The entry k - 1 has the weight of the right texts if the first k texts are predicted.
    right = np.cumsum((weights * targets)[order])
    f1 = 2 * right / (np.cumsum(weights[order]) + (weights * targets).sum())
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


def _ratio(number: float, by: float) -> float:
    return float(number / by) if by else 0.0
