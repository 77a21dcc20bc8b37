"""Runs that learnt nothing from their inputs: one rule for the records of every paper."""

from typing import Any

import numpy as np

from experiments.core.kinds import Array, Json, Record

COLLAPSED = "collapsed"
MARGIN = 0.0005
"""Nats: how near to the entropy of the labels a training loss counts as equal to it."""
RULE = (
    '"Collapsed": the training loss of the last third stays within .0005 of the entropy of the '
    "labels, or all test predictions are one class."
)

# Class counts of (validation, test) of data sets, by class, for records that are older than their
# predictions: a network that knows one class has its share right in both.
_COUNTS = {
    "sst1": ((139, 289, 229, 279, 165), (279, 633, 389, 510, 399)),
}


def entropy(counts: Array) -> float:
    """-sum p log p in nats of the shares of these counts; no constant has a smaller loss."""
    p = np.asarray(counts, np.float64)
    p = p[p > 0] / p.sum()
    return float(-(p * np.log(p)).sum())


def facts(train_labels: Any, predicted: Any) -> Json:
    """What a record has for `collapsed`: of labels [n] of training, predictions [m] of the test."""
    _, counts = np.unique(np.asarray(train_labels), return_counts=True)
    return {
        "label_entropy": round(entropy(counts), 6),
        "predicted_classes": np.bincount(np.asarray(predicted, np.int64)).tolist(),
    }


def collapsed(record: Record) -> bool:
    """Whether the run of a record became a constant.

    Either its training loss stays within `MARGIN` of the entropy of the labels over the last third
    of its curve, or its predictions for the test examples are one class. Records that are older
    than these facts are judged by what they have: the confusion matrix, the labels of the test
    examples in place of those of the training examples, or the shares of classes.
    """
    return _one_class(record) or _at_entropy(record)


def _one_class(record: Record) -> bool:
    if "predicted_classes" in record:
        return sum(count > 0 for count in record["predicted_classes"]) == 1
    if "confusion" in record:
        return int(np.count_nonzero(np.sum(record["confusion"], axis=0))) == 1
    counts = _COUNTS.get(record.get("data", ""))
    if counts is None:
        return False
    reached = [record.get(part, {}).get("accuracy") for part in ("validation", "test")]
    if None in reached:
        return False
    shares = np.array([np.array(part) / sum(part) for part in counts])
    return bool(np.any(np.all(np.abs(shares - np.array(reached)[:, None]) < 1e-7, axis=0)))


def _at_entropy(record: Record) -> bool:
    support = record.get("support")
    known = record.get("label_entropy", None if support is None else entropy(support))
    points = [point for point in record.get("train_curve") or () if point[1] is not None]
    if known is None or not points:
        return False
    last = [loss for step, loss, *_ in points if step > points[-1][0] * 2 / 3]
    return all(abs(loss - known) <= MARGIN for loss in last)
