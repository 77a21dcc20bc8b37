"""X, y and sample_weight in the forms of scikit-learn, as lists of texts, labels and weights."""

from collections.abc import Mapping, Sequence, Sized
from typing import Any

import numpy as np

from gatedjax.text.sources._labels import Label, is_zero_or_one, read_label, read_target


def list_texts(texts: Any, kind: str) -> list[tuple[Any, ...]]:
    """Returns (text,) or, for pairs, (first, second) of each example."""
    if isinstance(texts, str):
        raise TypeError(f"X must be a list of texts, got the text {texts[:40]!r}: pass [text]")
    items = _to_list(texts, "X")
    if kind == "pair":
        return [tuple(row) for row in items]
    for number, item in enumerate(items):
        if not isinstance(item, str):
            raise TypeError(f"X must be a list of texts, got {item!r:.40} at position {number}")
    return [(text,) for text in items]


def is_pair_of_texts(texts: Any, kind: str) -> bool:
    """Returns True for a single example of a model of pairs, (first, second)."""
    is_sequence = isinstance(texts, list | tuple) and len(texts) > 0
    return kind == "pair" and is_sequence and isinstance(texts[0], str)


def list_labels(values: Any) -> list[Label]:
    """Returns the labels in a list, an array or a column."""
    items = _to_list(values, "y")
    # `tolist` of an array with two dimensions returns a list of lists.
    if items and isinstance(items[0], list):
        remedy = "MultiLabelTextClassifier learns several labels for each text"
        raise ValueError(
            f"y must have one dimension, got the row {items[0]!r:.40}: "
            f"{'give y.ravel()' if len(items[0]) == 1 else remedy}"
        )
    return items


def _to_list(values: Any, name: str) -> list[Any]:
    # `list` of a frame or of a dict returns the names of its columns, not the values.
    if isinstance(values, Mapping) or hasattr(values, "columns"):
        raise TypeError(
            f"{name} must be a list, an array or one column of a frame, got "
            f"{type(values).__name__}: pass one of its columns"
        )
    return values.tolist() if hasattr(values, "tolist") else list(values)


def check_lengths(texts: Sized, labels: Sized) -> None:
    """Raises ValueError unless there is a label for each text, and at least one."""
    if len(texts) != len(labels):
        raise ValueError(f"X and y must have the same length, got {len(texts)} and {len(labels)}")
    if not len(labels):
        raise ValueError("y must have at least one label, got none: give texts and their labels")


def check_targets(labels: Sequence[Any], form: str) -> None:
    """Raises ValueError for the first label without the form of a `Columns.target`."""
    # A line of a file without a label is set aside, but a missing label in y is the caller's error.
    for position, label in enumerate(labels):
        try:
            read_target("label", label, form)
        except ValueError as error:
            kind = "finite numbers" if form == "number" else "labels: texts or finite numbers"
            raise ValueError(
                f"y must be {kind}, got {label!r:.40} at position {position} ({error}): give "
                "its label, or leave the text out"
            ) from None


def read_weights(sample_weight: Any, count: int) -> np.ndarray:
    """Returns the weights of `count` texts, float64 [count]."""
    weights = np.asarray(sample_weight, np.float64)
    if weights.shape != (count,):
        raise ValueError(
            f"sample_weight must have a number for each of the {count} texts, got the shape "
            f"{weights.shape}"
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise ValueError(
            "sample_weight must be finite numbers of at least 0, and some above 0, got "
            f"{weights[:5].tolist()} first"
        )
    return weights


def read_label_lists(y: Any) -> tuple[list[list[Any]], tuple[Label, ...] | None]:
    """Returns the labels of each text, and the names of the columns of an array or a frame."""
    names = None
    # Frames and sparse matrices are recognised by their attributes, so that no package is imported.
    if hasattr(y, "columns") and hasattr(y, "to_numpy"):
        names = tuple(read_label("y", name) for name in y.columns)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(
                f"y must have columns with different names, got {twice!r} twice: rename a column"
            )
        y = y.to_numpy()
    y = y.toarray() if hasattr(y, "toarray") else y
    # NumPy makes an array of objects of lists of different lengths.
    if not isinstance(y, np.ndarray) or (y.dtype == object and y.ndim == 1):
        return _read_lists(list(y)), None
    problem, remedy = "", "a list of the lists of labels"
    # Only numbers are compared with 0 and 1, because a comparison of pandas.NA raises an error.
    is_numeric = y.dtype.kind in "biuf"
    is_bit = np.isin(y, (0, 1)) if is_numeric else np.zeros(y.shape, bool)
    if not is_numeric or y.ndim not in (1, 2):
        problem = f"{y.dtype} of shape {y.shape}"
    elif y.ndim == 1:
        problem = f"the shape {y.shape}"
        remedy = "y[:, None] for a single label" if is_bit.all() else remedy
    elif not is_bit.all():
        row, column = np.argwhere(~is_bit)[0].tolist()
        problem = f"{y[row, column]} in row {row}, column {column}"
        remedy = f"0 or 1, or {remedy}"
    if problem:
        raise ValueError(
            f"y must be an array of 0 and 1 with a column for each label, got {problem}: give "
            f"{remedy}"
        )
    names = tuple(range(y.shape[1])) if names is None else names
    return [[names[i] for i in np.flatnonzero(row)] for row in y], names


def _read_lists(rows: list[Any]) -> list[list[Any]]:
    for number, row in enumerate(rows):
        if row is None or (isinstance(row, float) and row != row):
            raise ValueError(
                f"y must be a list of the lists of labels, got {row!r} at position {number}: "
                "write [] for a text without a label, or leave the text out"
            )
        if isinstance(row, str) or not hasattr(row, "__iter__"):
            raise ValueError(
                f"y must be a list of the lists of labels, or an array of 0 and 1, got "
                f"{row!r:.40} at {number}: write [{row!r:.20}] for a single label"
            )
    rows = [list(row) for row in rows]
    first = rows[0] if rows else []
    # Such lists are the rows of an array. As lists of labels, each label once, all would be equal.
    are_bits = all(len(row) == len(first) and is_zero_or_one(row) for row in rows)
    if first and are_bits and any(len(set(row)) < len(row) or row != first for row in rows):
        raise ValueError(
            f"y must be a list of the lists of labels, got rows of 0 and 1, such as "
            f"{first!r:.40}: give np.asarray(y) for an array with a column for each label, or "
            "texts as the names of labels"
        )
    return rows
