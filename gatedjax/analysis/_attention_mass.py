"""Attention by the distance of query and key."""

import dataclasses

import numpy as np
from numpy.typing import ArrayLike


@dataclasses.dataclass(frozen=True, eq=False)
class DistanceCounts:
    """Attention by the distance of query and key; counts of parts of a data set can be added.

    Attributes:
      mass: float64 [R], sum of W_ij with |i - j| = r over all sentences.
      pairs: int [R], how many such (i, j) there were.
      queries: number of queries.
      empty: queries without any weight (nothing was selected); they count with share 0.
    """

    mass: np.ndarray
    pairs: np.ndarray
    queries: int
    empty: int

    def __add__(self, other: "DistanceCounts") -> "DistanceCounts":
        size = max(len(self.mass), len(other.mass))
        grow = lambda a: np.pad(a, (0, size - len(a)))  # noqa: E731
        return DistanceCounts(
            grow(self.mass) + grow(other.mass),
            grow(self.pairs) + grow(other.pairs),
            self.queries + other.queries,
            self.empty + other.empty,
        )

    def shares(self) -> np.ndarray:
        """share(r): the mean over the queries of their weight at distance r, both sides summed."""
        return self.mass / max(self.queries, 1)

    def per_neighbour(self) -> np.ndarray:
        """The mean weight of a key at distance r: ends of sentences have fewer neighbours."""
        return self.mass / np.maximum(self.pairs, 1)

    @property
    def empty_rate(self) -> float:
        """Share of the queries without any weight; NaN without queries."""
        return self.empty / self.queries if self.queries else float("nan")


def distance_counts(weights: ArrayLike, lengths: ArrayLike) -> DistanceCounts:
    """Sums attention by distance.

        share(r) = mean over queries i of the sum over j with |i - j| = r of W_ij

    Args:
      weights: W [B, N, N], queries before keys; what stands at padding is ignored.
      lengths: int [B].

    Returns:
      The counts, from distance 0 (the word itself) to N - 1.

    Reference: Geng et al. 2020 (SSAN), figures 2 and 4.
    """
    weights, real = checked(weights, lengths)
    n = weights.shape[-1]
    both = real[:, :, None] & real[:, None, :]
    real_weights = np.where(both, weights, 0.0)
    refuse(real_weights)
    apart = np.abs(np.arange(n)[:, None] - np.arange(n)[None, :]).ravel()
    mass = np.bincount(apart, real_weights.sum(axis=0).ravel(), minlength=n)
    pairs = np.bincount(apart, both.sum(axis=0).ravel(), minlength=n).astype(np.int64)
    rows = real_weights.sum(axis=-1)[real]
    return DistanceCounts(mass[:n], pairs[:n], int(real.sum()), int(np.sum(rows == 0)))


def checked(weights: ArrayLike, lengths: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    weights, lengths = np.asarray(weights, np.float64), np.asarray(lengths)
    if weights.ndim != 3 or weights.shape[1] != weights.shape[2]:
        raise ValueError(f"weights must be [B, N, N], got {weights.shape}")
    n = weights.shape[-1]
    if lengths.shape != weights.shape[:1]:
        raise ValueError(f"lengths must have shape {weights.shape[:1]}, got {lengths.shape}")
    if np.any((lengths < 0) | (lengths > n)):
        raise ValueError(f"lengths must be in [0, {n}], got {lengths.min()} to {lengths.max()}")
    return weights, np.arange(n)[None, :] < lengths[:, None]


def refuse(weights: np.ndarray) -> None:
    if np.any(weights < 0) or not np.all(np.isfinite(weights)):
        raise ValueError("weights must be finite and at least 0 at real words")
