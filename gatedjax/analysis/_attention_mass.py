"""Attention by the distance of query and key."""

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from gatedjax.analysis._checks import check_lengths, check_numbers


@dataclasses.dataclass(frozen=True, eq=False)
class DistanceCounts:
    """Attention by the distance of query and key; counts of parts of a data set can be added.

    The distances of positions are r = 0, ..., R - 1, and W_ij is the attention weight of query i on
    key j.

    Attributes:
      mass: float64 [R], sum of W_ij with |i - j| = r over all sentences.
      pairs: int [R], number of pairs (i, j) with |i - j| = r.
      queries: number of queries.
      empty: number of queries without any weight (no key was selected); their shares are 0.
    """

    mass: np.ndarray
    pairs: np.ndarray
    queries: int
    empty: int

    def __add__(self, other: "DistanceCounts") -> "DistanceCounts":
        # Parts of a data set have different longest sentences, and therefore different largest
        # distances.
        size = max(len(self.mass), len(other.mass))
        grow = lambda a: np.pad(a, (0, size - len(a)))  # noqa: E731
        return DistanceCounts(
            grow(self.mass) + grow(other.mass),
            grow(self.pairs) + grow(other.pairs),
            self.queries + other.queries,
            self.empty + other.empty,
        )

    def shares(self) -> np.ndarray:
        """Returns float [R]: for each distance r the mean over the queries of their weight at r.

        There are R distances, from 0. The weights of the two keys at distance r, left and right of
        a query, are summed.
        """
        # Without queries all masses are 0, and the shares are then 0 and not NaN.
        return self.mass / max(self.queries, 1)

    def per_neighbour(self) -> np.ndarray:
        """Returns float [R]: for each distance r the mean weight of a pair of query and key at r.

        There are R distances, from 0. Unlike a share it is not lower because queries near the ends
        have fewer neighbours.
        """
        return self.mass / np.maximum(self.pairs, 1)

    @property
    def empty_rate(self) -> float:
        """The share of the queries without any weight; NaN without queries."""
        return self.empty / self.queries if self.queries else float("nan")


def distance_counts(weights: ArrayLike, lengths: ArrayLike) -> DistanceCounts:
    """Sums the attention weights of self-attention by the distance of query and key.

        share(r) = mean over queries i of the sum over j with |i - j| = r of W_ij

        >>> weights = [[[0.5, 0.5], [0.0, 1.0]]]
        >>> print(distance_counts(weights, [2]).shares())
        [0.75 0.25]

    Args:
      weights: W [B, N, N] for B sentences of at most N words, the axis of queries before that of
        keys; values at padding are ignored.
      lengths: int [B], the number of words of each sentence.

    Returns:
      The counts, from distance 0 (the word itself) to N - 1.

    Reference: Geng et al. 2020 (SSAN), figures 2 and 4.
    """
    weights, real = check_weights(weights, lengths)
    n = weights.shape[-1]
    both = real[:, :, None] & real[:, None, :]
    # Padding is replaced and not multiplied by 0, because it may be NaN.
    real_weights = np.where(both, weights, 0.0)
    check_numbers("weights", real_weights, 0, where=" at real words")
    distances = np.abs(np.arange(n)[:, None] - np.arange(n)[None, :]).ravel()
    mass = np.bincount(distances, real_weights.sum(axis=0).ravel(), minlength=n)
    pairs = np.bincount(distances, both.sum(axis=0).ravel(), minlength=n).astype(np.int64)
    rows = real_weights.sum(axis=-1)[real]
    return DistanceCounts(mass[:n], pairs[:n], int(real.sum()), int(np.sum(rows == 0)))


def check_weights(weights: ArrayLike, lengths: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Returns attention weights as float64 [B, N, N] and a mask bool [B, N], True at real words."""
    weights = np.asarray(weights, np.float64)
    if weights.ndim != 3 or weights.shape[1] != weights.shape[2]:
        raise ValueError(f"weights must have shape [B, N, N], got {weights.shape}")
    return weights, check_lengths(lengths, weights.shape, "weights")[1]
