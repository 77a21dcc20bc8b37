"""Where the mass of a self-attention goes: by distance, by part of speech, from pieces to words."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from gatedjax.analysis._brackets import PUNCTUATION

CONTENT = ("Noun", "Verb", "Adj")
CONTENT_FREE = ("Prep", "Dete", "Punc", "Others")
TAG_CLASSES = CONTENT + CONTENT_FREE
"""The rows of the paper's table 7."""

_EXACT = {
    **dict.fromkeys(("IN", "TO"), "Prep"),
    **dict.fromkeys(("DT", "PDT", "WDT"), "Dete"),
    **dict.fromkeys((*PUNCTUATION, "-LRB-", "-RRB-", "(", ")", '"', "HYPH", "NFP"), "Punc"),
}
_PREFIX = {"NN": "Noun", "VB": "Verb", "JJ": "Adj"}


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
    weights, real = _checked(weights, lengths)
    n = weights.shape[-1]
    both = real[:, :, None] & real[:, None, :]
    real_weights = np.where(both, weights, 0.0)
    _refuse(real_weights)
    apart = np.abs(np.arange(n)[:, None] - np.arange(n)[None, :]).ravel()
    mass = np.bincount(apart, real_weights.sum(axis=0).ravel(), minlength=n)
    pairs = np.bincount(apart, both.sum(axis=0).ravel(), minlength=n).astype(np.int64)
    rows = real_weights.sum(axis=-1)[real]
    return DistanceCounts(mass[:n], pairs[:n], int(real.sum()), int(np.sum(rows == 0)))


def tag_class(tag: str) -> str:
    """The row of the paper's table 7 that a Penn tag belongs to; MD is among "Others"."""
    if tag in _EXACT:
        return _EXACT[tag]
    return _PREFIX.get(tag[:2], "Others")


@dataclasses.dataclass(frozen=True)
class TagCounts:
    """Attention by the class of the key's tag; counts of parts of a data set can be added.

    Attributes:
      mass: class -> sum of the weights on keys of that class.
    """

    mass: Mapping[str, float]

    def __add__(self, other: "TagCounts") -> "TagCounts":
        return TagCounts({name: self.mass[name] + other.mass[name] for name in TAG_CLASSES})

    def shares(self) -> dict[str, float]:
        """The share of all mass that each class has, and "Content" and "Content-free" in all.

        0 everywhere if there is no mass.
        """
        total = sum(self.mass.values())
        shares = {name: self.mass[name] / total if total else 0.0 for name in TAG_CLASSES}
        shares["Content"] = sum(shares[name] for name in CONTENT)
        shares["Content-free"] = sum(shares[name] for name in CONTENT_FREE)
        return shares


def tag_counts(weights: ArrayLike, tags: Sequence[str]) -> TagCounts:
    """Sums the attention of a sentence by the tag of the key.

    Args:
      weights: W [N', N'] of one sentence; what follows the last word is padding and ignored.
      tags: Penn tags of its words.

    Reference: Geng et al. 2020 (SSAN), table 7.
    """
    weights, _ = _checked(np.asarray(weights)[None], [len(tags)])
    real_weights = weights[0, : len(tags), : len(tags)]
    _refuse(real_weights)
    mass = dict.fromkeys(TAG_CLASSES, 0.0)
    for tag, received in zip(tags, real_weights.sum(axis=0), strict=True):
        mass[tag_class(tag)] += float(received)
    return TagCounts(mass)


def word_of_piece(pieces: Sequence[str], *, continued: str = "@@") -> np.ndarray:
    """Which word every piece belongs to, for pieces that mark that the word goes on.

    Args:
      pieces: as "pedestri@@ ans".
      continued: what a piece ends with if the next one belongs to the same word.

    Returns:
      int [n], from 0.
    """
    ends = np.array([not piece.endswith(continued) for piece in pieces], int)
    return np.concatenate([[0], np.cumsum(ends)[:-1]]) if len(pieces) else np.zeros(0, int)


def merge_pieces(weights: ArrayLike, word: ArrayLike) -> np.ndarray:
    """Attention between words out of attention between pieces.

    A word attends with the mean of its pieces and receives the sum of what its pieces receive, so
    that rows keep their sum.

    Args:
      weights: W [..., n, n] over pieces, without padding.
      word: int [n], the word of every piece: from 0, not falling, none left out.

    Returns:
      W [..., N, N] over words.

    Reference: spec of SSAN; the paper does not say how it goes from pieces to words.
    """
    weights, word = np.asarray(weights, np.float64), np.asarray(word, int)
    n = len(word)
    if weights.shape[-2:] != (n, n):
        raise ValueError(f"weights must be [..., {n}, {n}] for {n} pieces, got {weights.shape}")
    steps = np.diff(word)
    if n and (word[0] != 0 or np.any((steps != 0) & (steps != 1))):
        raise ValueError("word must number the words 0, 1, ... in order")
    member = np.zeros((int(word[-1]) + 1 if n else 0, n))
    member[word, np.arange(n)] = 1.0
    mean = member / np.maximum(member.sum(axis=1, keepdims=True), 1.0)
    return mean @ weights @ member.T


def _checked(weights: ArrayLike, lengths: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    weights, lengths = np.asarray(weights, np.float64), np.asarray(lengths)
    if weights.ndim != 3 or weights.shape[1] != weights.shape[2]:
        raise ValueError(f"weights must be [B, N, N], got {weights.shape}")
    n = weights.shape[-1]
    if lengths.shape != weights.shape[:1]:
        raise ValueError(f"lengths must have shape {weights.shape[:1]}, got {lengths.shape}")
    if np.any((lengths < 0) | (lengths > n)):
        raise ValueError(f"lengths must be in [0, {n}], got {lengths.min()} to {lengths.max()}")
    return weights, np.arange(n)[None, :] < lengths[:, None]


def _refuse(weights: np.ndarray) -> None:
    if np.any(weights < 0) or not np.all(np.isfinite(weights)):
        raise ValueError("weights must be finite and at least 0 at real words")
