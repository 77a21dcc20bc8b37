"""The share of open gates, and their agreement with true labels."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from gatedjax.analysis._checks import check_lengths, check_numbers
from gatedjax.analysis._scores import MatchCounts


class Density(NamedTuple):
    """Densities of gates, the result of `density`; NaN without rows that have tokens.

    Attributes:
      sentence: mean over the rows of their share of open gates.
      token: number of open gates divided by number of tokens, with all rows pooled.
      empty_rate: share of the rows in which all gates are closed.
    """

    sentence: float
    token: float
    empty_rate: float


class TruthScores(NamedTuple):
    """Agreement of gates and true labels, the result of `gate_truth`.

    Attributes:
      precision: share of the open gates that are at true tokens; 0 if no gate is open.
      recall: share of the true tokens that have an open gate; 0 if there is no true token.
      f1: the harmonic mean of precision and recall; 0 if both are 0.
      support: number of true tokens.
    """

    precision: float
    recall: float
    f1: float
    support: int


def pad(rows: Sequence[Any], value: float = 0) -> np.ndarray:
    """Stacks rows of different lengths into an array [N, T] that is padded at the right.

        >>> print(pad([[1, 2, 3], [4]]))
        [[1 2 3]
         [4 0 0]]

    Args:
      rows: N sequences of numbers or bools.
      value: the number at the padded positions.

    Returns:
      An array in the common dtype of the rows; T is the largest length.
    """
    arrays = [np.asarray(row) for row in rows]
    for i, array in enumerate(arrays):
        if array.ndim != 1:
            raise ValueError(f"rows[{i}] must have shape [T], got {array.shape}")
    # Empty rows are skipped because an empty list has dtype float64.
    dtypes = [array.dtype for array in arrays if array.size] or [np.dtype(np.float32)]
    size = max((array.size for array in arrays), default=0)
    out = np.full((len(arrays), size), value, np.result_type(*dtypes))
    for row, array in zip(out, arrays, strict=True):
        row[: array.size] = array
    return out


def density(gates: ArrayLike, lengths: ArrayLike) -> Density:
    """Computes the density of gates: the share of open gates.

    sentence = mean_b (sum_t g_bt / len_b);  token = sum_bt g_bt / sum_b len_b,
    where g_bt is the gate of token t of row b, and len_b the number of tokens of the row.

        >>> density([[1, 0, 0, 0], [1, 1, 0, 0]], [4, 2])
        Density(sentence=0.625, token=0.5, empty_rate=0.0)

    Args:
      gates: [N, T] hard or soft gates of N rows of at most T tokens, or open probabilities; values
        at padding are ignored.
      lengths: int [N], number of real tokens; rows of length 0 do not count.

    Returns:
      The two densities, and the share of rows without an open gate.
    """
    gates, real, lengths = _check_rows(gates, lengths, "gates")
    # Padding is replaced and not multiplied by 0, because it may be NaN.
    gates = np.where(real, gates, 0).astype(np.float64)
    check_numbers("gates", gates, 0, where=" at real tokens")
    has_tokens = lengths > 0
    rows = int(has_tokens.sum())
    if rows == 0:
        return Density(float("nan"), float("nan"), float("nan"))
    sums = gates.sum(axis=-1)
    share = float((sums[has_tokens] / lengths[has_tokens]).sum())
    closed = int(np.sum(has_tokens & ~np.any(gates > 0, axis=-1)))
    return Density(share / rows, float(sums.sum()) / int(lengths.sum()), closed / rows)


def gate_truth(gates: ArrayLike, truth: ArrayLike, lengths: ArrayLike) -> TruthScores:
    """Compares open gates with the tokens that are known to matter, all tokens pooled (micro).

        >>> gate_truth([[1, 1, 0, 0]], [[False, True, True, False]], [4])
        TruthScores(precision=0.5, recall=0.5, f1=0.5, support=2)

    Args:
      gates: [N, T] for N rows of at most T tokens; a gate above 0 (or True) is open.
      truth: [N, T'] bool, True at the tokens that matter. The padded lengths T and T' may differ,
        but neither may be less than the largest length.
      lengths: int [N], number of real tokens; values at padding are ignored.

    Returns:
      Precision, recall, F1 and the number of true tokens.
    """
    gates, real, lengths = _check_rows(gates, lengths, "gates")
    truth, true_real, _ = _check_rows(truth, lengths, "truth")
    # The two arrays may be padded to different widths.
    size = int(lengths.max(initial=0))
    is_open = ((gates > 0) & real)[:, :size]
    is_true = ((truth > 0) & true_real)[:, :size]
    hits, support = int(np.sum(is_open & is_true)), int(is_true.sum())
    return TruthScores(*MatchCounts(hits, int(is_open.sum()), support).value(), support)


def _check_rows(
    values: ArrayLike, lengths: ArrayLike, name: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the values [N, T], a mask bool [N, T] of their places, and the lengths int64 [N]."""
    values = np.asarray(values)
    if values.ndim != 2:
        raise ValueError(f"{name} must have shape [N, T], got {values.shape}")
    lengths, real = check_lengths(lengths, values.shape, name)
    return values, real, lengths
