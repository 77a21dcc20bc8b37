"""Names of splits, and the validation part that is held out of the training texts."""

import numpy as np

from gatedjax.data.files._lines import FileRows
from gatedjax.data.sets._declaration import DataSet

SPLITS = ("train", "validation", "test", "train_full")
HELD_OUT = 0.1
SPLIT_SEED = 20_200_820
"""Fixed, so that "validation" has the same examples in all runs."""


def hold_out(
    declared: DataSet, rows: FileRows, fraction: float = HELD_OUT
) -> tuple[FileRows, FileRows]:
    """Divides the rows of an official training part; returns (train rows, validation rows)."""
    labels = np.array([row.label for row in rows.rows], int)
    if declared.hold_out is None:
        parts = stratified_split(labels, fraction, seed=SPLIT_SEED)
    else:
        parts = declared.hold_out(labels)
    # Lines that were set aside belong to the whole part, whose report lists them.
    train, validation = (FileRows(tuple(rows.rows[i] for i in part), ()) for part in parts)
    return train, validation


def stratified_split(
    labels: np.ndarray, fraction: float = 0.1, *, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Splits n indices in two parts with the same proportions of the classes, both sorted. The
    held-out part has round(n * fraction); after rounding down, the classes with the largest
    remainders get an example more.

        >>> train, validation = stratified_split(np.array([0, 0, 1, 1]), 0.5)
        >>> len(train), len(validation)
        (2, 2)
    """
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must be in (0, 1), got {fraction}")
    labels = np.asarray(labels)
    generator = np.random.default_rng(seed)
    classes, counts = np.unique(labels, return_counts=True)
    shares = counts * fraction
    take = np.floor(shares).astype(int)
    missing = round(len(labels) * fraction) - int(take.sum())
    # A stable sort chooses among equal remainders in the same way on all machines.
    take[np.argsort(take - shares, kind="stable")[:missing]] += 1
    is_held_out = np.zeros(len(labels), bool)
    for label, count in zip(classes, take, strict=True):
        is_held_out[generator.permutation(np.flatnonzero(labels == label))[:count]] = True
    return np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)
