"""How many gates are open, and whether they are the right ones."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class Density(NamedTuple):
    """What `density` returns; NaN where there is nothing to average.

    Attributes:
      sentence: mean over rows of the share of open gates.
      token: open gates over tokens, all rows together.
      empty_rate: share of the rows in which every gate is closed.
    """

    sentence: float
    token: float
    empty_rate: float


class TruthScores(NamedTuple):
    """What `gate_truth` returns.

    Attributes:
      precision: share of the open gates that are on true tokens; 0 if no gate is open.
      recall: share of the true tokens whose gate is open; 0 if there is no true token.
      f1: their harmonic mean; 0 if both are 0.
      support: number of true tokens.
    """

    precision: float
    recall: float
    f1: float
    support: int


def pad(rows: Sequence[Any], value: float = 0) -> np.ndarray:
    """Stacks one-dimensional rows of several lengths into [N, T], filled at the right.

    Args:
      rows: sequences of numbers or bools.
      value: what to fill with.

    Returns:
      An array of the common dtype of the rows; T is the longest length.
    """
    arrays = [np.asarray(row) for row in rows]
    for i, array in enumerate(arrays):
        if array.ndim != 1:
            raise ValueError(f"rows[{i}] must have one axis, got shape {array.shape}")
    # an empty list has dtype float64, which must not decide
    dtypes = [array.dtype for array in arrays if array.size] or [np.dtype(np.float32)]
    size = max((array.size for array in arrays), default=0)
    out = np.full((len(arrays), size), value, np.result_type(*dtypes))
    for row, array in zip(out, arrays, strict=True):
        row[: array.size] = array
    return out


def density(gates: ArrayLike, lengths: ArrayLike) -> Density:
    """The share of open gates.

    sentence = mean_b (sum_t g_bt / len_b);  token = sum g / sum len.

    Args:
      gates: [N, T] hard or soft gates, or open probabilities; what stands at padding is ignored.
      lengths: [N] number of real tokens; rows of length 0 do not count.

    Returns:
      The densities and the rate of rows without an open gate; NaN without rows that have tokens.
    """
    gates, real, lengths = _rows(gates, lengths, "gates")
    gates = np.where(real, gates, 0).astype(np.float64)
    if np.any(gates < 0) or not np.all(np.isfinite(gates)):
        raise ValueError("gates must be finite and >= 0 at real tokens")
    has_tokens = lengths > 0
    rows = int(has_tokens.sum())
    if rows == 0:
        return Density(float("nan"), float("nan"), float("nan"))
    sums = gates.sum(axis=-1)
    share = float((sums[has_tokens] / lengths[has_tokens]).sum())
    closed = int(np.sum(has_tokens & ~np.any(gates > 0, axis=-1)))
    return Density(share / rows, float(sums.sum()) / int(lengths.sum()), closed / rows)


def gate_truth(gates: ArrayLike, truth: ArrayLike, lengths: ArrayLike) -> TruthScores:
    """Compares the open gates with the tokens that truly matter, all tokens pooled (micro).

    Args:
      gates: [N, T]; open is > 0 (or True).
      truth: [N, T'] bool, True at the tokens that matter; T and T' reach the longest length.
      lengths: [N] number of real tokens; the rest is ignored.

    Returns:
      Precision, recall, F1 and the number of true tokens.
    """
    gates, real, lengths = _rows(gates, lengths, "gates")
    truth, true_real, _ = _rows(truth, lengths, "truth")
    size = int(lengths.max(initial=0))
    is_open = ((gates > 0) & real)[:, :size]
    is_true = ((truth > 0) & true_real)[:, :size]
    hits = int(np.sum(is_open & is_true))
    opened, support = int(is_open.sum()), int(is_true.sum())
    return TruthScores(
        precision=hits / opened if opened else 0.0,
        recall=hits / support if support else 0.0,
        f1=2 * hits / (opened + support) if hits else 0.0,
        support=support,
    )


def _rows(
    values: ArrayLike, lengths: ArrayLike, name: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    values, lengths = np.asarray(values), np.asarray(lengths)
    if values.ndim != 2:
        raise ValueError(f"{name} must have shape [N, T], got {values.shape}")
    if lengths.shape != values.shape[:1]:
        raise ValueError(
            f"lengths must have shape {values.shape[:1]}, one per row of {name}, "
            f"got {lengths.shape}"
        )
    if lengths.size and not np.issubdtype(lengths.dtype, np.integer):
        raise ValueError(f"lengths must be integers, got dtype {lengths.dtype}")
    lengths = lengths.astype(np.int64)
    if np.any((lengths < 0) | (lengths > values.shape[1])):
        raise ValueError(
            f"lengths must be in [0, {values.shape[1]}], the width of {name}, "
            f"got {lengths.min()} to {lengths.max()}"
        )
    return values, np.arange(values.shape[1])[None, :] < lengths[:, None], lengths
