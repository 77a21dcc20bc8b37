"""Splits and their example ids, and the part of the training texts that is held out."""

import numpy as np

from gatedjax.data.files._lines import Rows
from gatedjax.data.sets._declaration import DataSet

SPLITS = ("train", "validation", "test", "train_full")
HELD_OUT = 0.1
SPLIT_SEED = 20_200_820
"""Fixed, so that "validation" means the same examples in every run."""


def hold_out(declared: DataSet, rows: Rows, fraction: float = HELD_OUT) -> tuple[Rows, Rows]:
    """Cuts an official training part in (train, validation)."""
    labels = np.array([row.label for row in rows.rows], int)
    if declared.hold_out is None:
        parts = stratified_split(labels, fraction, seed=SPLIT_SEED)
    else:
        parts = declared.hold_out(labels)
    train, validation = (Rows(tuple(rows.rows[i] for i in part), ()) for part in parts)
    return train, validation


def stratified_split(
    labels: np.ndarray, fraction: float = 0.1, *, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Splits indices in two so that every class is shared out in the same proportion.

    The held-out part has round(n * fraction) examples; what rounding leaves over goes to the
    classes with the largest remainders.

    Args:
      labels: int [n].
      fraction: share held out, in (0, 1).
      seed: chooses which examples.

    Returns:
      (kept, held out), both sorted: disjoint, and together all indices.

    Raises:
      ValueError: if `fraction` is outside (0, 1).
    """
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must be between 0 and 1, got {fraction}")
    labels = np.asarray(labels)
    generator = np.random.default_rng(seed)
    classes, counts = np.unique(labels, return_counts=True)
    shares = counts * fraction
    take = np.floor(shares).astype(int)
    missing = round(len(labels) * fraction) - int(take.sum())
    take[np.argsort(take - shares, kind="stable")[:missing]] += 1
    held = np.zeros(len(labels), bool)
    for label, count in zip(classes, take, strict=True):
        held[generator.permutation(np.flatnonzero(labels == label))[:count]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)
