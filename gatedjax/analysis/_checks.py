"""Checks of arrays; the message has the first number that is refused."""

import numpy as np
from numpy.typing import ArrayLike


def check_numbers(
    name: str, values: np.ndarray, low: float = -np.inf, high: float = np.inf, where: str = ""
) -> None:
    """Raises ValueError unless all values are finite and in [low, high]; `where` completes the
    message, such as " at real words".
    """
    good = np.isfinite(values) & (values >= low) & (values <= high)
    if not np.all(good):
        condition = "finite" if low == -np.inf else f"finite and at least {low:g}"
        condition = f"in [{low:g}, {high:g}]" if high < np.inf else condition
        raise ValueError(f"{name} must be {condition}{where}, got {values[~good][0]}")


def check_lengths(
    lengths: ArrayLike, shape: tuple[int, ...], name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Checks the lengths [N] of the rows of an array `name` of `shape` (N, T, ...); returns them as
    int64, and a mask bool [N, T], True before each length.
    """
    array = np.asarray(lengths)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"lengths must be integers, got dtype {array.dtype}")
    if array.shape != shape[:1]:
        raise ValueError(
            f"lengths must have shape {shape[:1]}, one for each row of {name}, got {array.shape}"
        )
    if np.any((array < 0) | (array > shape[1])):
        raise ValueError(
            f"lengths must be in [0, {shape[1]}], the width of {name}, got {array.min()} to "
            f"{array.max()}"
        )
    return array.astype(np.int64), mask_before(array, shape[1])


def mask_before(lengths: np.ndarray, size: int) -> np.ndarray:
    """Returns a mask bool [N, size], True at the positions before each length."""
    return np.arange(size)[None, :] < lengths[:, None]


def check_scores(name: str, scores: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    """Returns scores as float64; raises ValueError unless they have the shape of the tokens."""
    array = np.asarray(scores, np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, that of tokens, got {array.shape}")
    return array
