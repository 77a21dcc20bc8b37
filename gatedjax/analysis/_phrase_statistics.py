"""Distributions per layer: rescaled attention, lengths of phrases, values of gates."""

import dataclasses
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from gatedjax.analysis._checks import check_numbers
from gatedjax.analysis._phrases import _check_selected, _check_values, runs


@dataclasses.dataclass(frozen=True, eq=False)
class LayerHistogram:
    """A histogram for each of L layers; the counts of parts of a data set can be added.

    Histograms of lengths can be added even if they have different numbers of bins.

    Attributes:
      counts: int [L, K], the number of values in each bin.
      edges: float [K + 1], the edges of the K bins. A bin includes its lower edge, the last bin
        also its upper edge. Histograms of lengths 1, 2, ... have the edges 0.5, 1.5, ...
      open_end: True if the last bin also counts larger values; `mean` is then too low.
    """

    counts: np.ndarray
    edges: np.ndarray
    open_end: bool = False

    @property
    def centres(self) -> np.ndarray:
        """The middle of each of the K bins, float [K]; the lengths in a histogram of lengths."""
        return (self.edges[:-1] + self.edges[1:]) / 2

    @property
    def probability(self) -> np.ndarray:
        """The share of each of K bins in the values of each of L layers, float [L, K].

        It is 0 in all bins of a layer without values.
        """
        return self.counts / np.maximum(self.counts.sum(-1, keepdims=True), 1)

    @property
    def mean(self) -> np.ndarray:
        """The mean of each of the L layers, float [L]; NaN in a layer without values.

        It is computed from the centres of the bins, which is exact for lengths.
        """
        total = self.counts.sum(-1)
        return np.where(total > 0, self.counts @ self.centres / np.maximum(total, 1), np.nan)

    def __add__(self, other: "LayerHistogram") -> "LayerHistogram":
        # The histogram with fewer bins gets empty ones. That is wrong if its last bin also counts
        # longer runs, so it is refused then.
        small, large = sorted((self, other), key=lambda part: len(part.edges))
        missing = len(large.edges) - len(small.edges)
        edges = large.edges[: len(small.edges)]
        fits = np.array_equal(edges, small.edges) and not (
            missing and (small.open_end or not _are_lengths(small.edges))
        )
        if len(small.counts) != len(large.counts) or not fits:
            raise ValueError(
                f"histograms to add must have the same layers and bins, got {self.counts.shape} "
                f"and {other.counts.shape}"
            )
        return LayerHistogram(
            np.pad(small.counts, ((0, 0), (0, missing))) + large.counts,
            large.edges,
            small.open_end or large.open_end,
        )


class GateHistogram(NamedTuple):
    """Values of gates, the result of `gate_histogram`.

    Attributes:
      pooled: a `LayerHistogram` of all components of all sentences, with a histogram per layer.
      sentence_means: float [B, L] for B sentences and L layers, the mean over the components of the
        gates; NaN for sentences that do not count.
    """

    pooled: LayerHistogram
    sentence_means: np.ndarray


def weight_histogram(
    r: ArrayLike, mask: ArrayLike | None = None, *, bins: int = 20
) -> LayerHistogram:
    """Computes the distribution of the rescaled attention r over all real words, per layer.

        >>> r = [[[0.0, 1.0, 1.0], [0.0, 0.5, 1.0]]]  # [B, L, N]
        >>> print(weight_histogram(r, bins=2).counts)
        [[1 2]
         [1 2]]

    Args:
      r: rescaled attention in [0, 1] from `normalise`, [B, L, N] for B sentences, L layers and N
        words, or [B, N] for a single layer. Axes between L and N are pooled.
      mask: bool, True at real words, of the shape of `r` or of its first axes and N (for example
        [B, N]); None means that all words are real.
      bins: number of bins of equal width in [0, 1].

    Returns:
      A histogram per layer.

    Reference: Guo 2017 (AGT), figure 2 (top): spikes at 0 and 1.
    """
    values, real = _check_values(r, mask, "r")
    check_numbers("r", values[real], 0, 1, " at real words (rescale it with normalise)")
    return _compute_histogram(_split_layers(values), _split_layers(real), bins)


def weight_mass(
    r: ArrayLike, mask: ArrayLike | None = None, *, low: float, high: float
) -> np.ndarray:
    """Computes the share of the real words with low <= r <= high, per layer.

        >>> r = [[[0.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.5, 1.0]]]  # [B, L, N]
        >>> print(weight_mass(r, low=0.95, high=1.0))
        [0.75 0.25]

    Args:
      r: rescaled attention in [0, 1] from `normalise`, [B, L, N] for B sentences, L layers and N
        words, or [B, N] for a single layer. Axes between L and N are pooled.
      mask: bool, True at real words, of the shape of `r` or of its first axes and N (for example
        [B, N]); None means that all words are real.
      low: the least r that counts.
      high: the largest r that counts.

    Returns:
      float [L]; NaN for a layer without real words.
    """
    values, real = _check_values(r, mask, "r")
    inside = _split_layers((values >= low) & (values <= high) & real).sum((1, 2))
    total = _split_layers(real).sum((1, 2))
    return np.where(total > 0, inside / np.maximum(total, 1), np.nan)


def phrase_length_histogram(
    selected: ArrayLike, *, min_length: int = 1, max_length: int | None = None
) -> LayerHistogram:
    """Computes the distribution of the lengths of runs of selected words, per layer.

        >>> selected = np.array([[True, True, False, True]])
        >>> print(phrase_length_histogram(selected).counts)
        [[1 1]]

    Args:
      selected: bool [B, L, N] from `select`, True at selected words, for B sentences, L layers and
        N words; or [B, N] for a single layer.
      min_length: shorter runs do not count; 1 counts single words, 2 only phrases.
      max_length: longer runs count as runs of this length; None has a bin for each length.

    Returns:
      A histogram of the lengths 1, 2, ... per layer, with counts of 0 below min_length. A run of
      two or more words is a phrase only by name: the words are selected independently (see `runs`).

    Reference: Guo 2017 (AGT), figure 2 (bottom).
    """
    layer, length, num_layers = _find_lengths(selected, min_length)
    open_end = max_length is not None
    if max_length is None:
        max_length = int(length.max(initial=min_length))
    elif max_length < min_length:
        raise ValueError(f"max_length must be at least min_length={min_length}, got {max_length}")
    counts = np.zeros((num_layers, max_length), np.int64)
    # `add.at` counts each run, also if several runs have the same layer and length.
    np.add.at(counts, (layer, np.minimum(length, max_length) - 1), 1)
    return LayerHistogram(counts, np.arange(max_length + 1) + 0.5, open_end)


def mean_phrase_length(selected: ArrayLike, *, min_length: int = 1) -> np.ndarray:
    """Computes the mean length of the runs of selected words, per layer.

        >>> print(mean_phrase_length(np.array([[True, True, False, True]])))
        [1.5]

    Args:
      selected: bool [B, L, N] from `select`, True at selected words, for B sentences, L layers and
        N words; or [B, N] for a single layer.
      min_length: shorter runs do not count.

    Returns:
      float [L]; NaN for a layer without a run that counts.
    """
    layer, length, num_layers = _find_lengths(selected, min_length)
    count = np.bincount(layer, minlength=num_layers)
    total = np.bincount(layer, length, minlength=num_layers)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def gate_histogram(
    gates: ArrayLike, rows: ArrayLike | None = None, *, bins: int = 20
) -> GateHistogram:
    """Computes the distribution of gate values per layer, and the mean gates of each sentence.

        >>> histogram = gate_histogram([[[0.0, 0.25, 1.0, 1.0]]], bins=2)  # [B, L, D]
        >>> print(histogram.pooled.counts, histogram.sentence_means)
        [[2 2]] [[0.5625]]

    Args:
      gates: [B, L, D] in [0, 1] for B sentences, L layers and D components, such as the L - 1
        transform gates of AGT.
      rows: bool [B], False at rows that do not count (filler rows); None counts all rows.
      bins: number of bins of equal width in [0, 1].

    Returns:
      A histogram per layer with all components of all rows, and the mean over the components for
      each row and layer.

    Reference: Guo 2017 (AGT), figure 3: near 0 (carry) in the middle layers.
    """
    values = np.asarray(gates).astype(np.float64)
    if values.ndim != 3 or not values.shape[-1]:
        raise ValueError(f"gates must have shape [B, L, D] with D at least 1, got {values.shape}")
    counted = np.ones(len(values), bool) if rows is None else np.asarray(rows)
    if counted.dtype != bool:
        raise TypeError(f"rows must be bool, got dtype {counted.dtype}")
    if counted.shape != values.shape[:1]:
        raise ValueError(f"rows must have shape {values.shape[:1]}, got {counted.shape}")
    real = np.broadcast_to(counted[:, None, None], values.shape)
    check_numbers("gates", values[real], 0, 1)
    pooled = _compute_histogram(_split_layers(values), _split_layers(real), bins)
    # NaN marks the rows that do not count, so that the result has a row for each sentence.
    means = np.where(real, values, np.nan).mean(-1)
    return GateHistogram(pooled, means)


def _compute_histogram(layers: np.ndarray, real_layers: np.ndarray, bins: int) -> LayerHistogram:
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    counts = [
        np.histogram(values[real], bins, (0.0, 1.0))[0]
        for values, real in zip(layers, real_layers, strict=True)
    ]
    return LayerHistogram(np.array(counts).reshape(-1, bins), np.linspace(0.0, 1.0, bins + 1))


def _are_lengths(edges: np.ndarray) -> bool:
    return bool(np.array_equal(edges, np.arange(len(edges)) + 0.5))


def _find_lengths(selected: ArrayLike, min_length: int) -> tuple[np.ndarray, np.ndarray, int]:
    if min_length < 1:
        raise ValueError(f"min_length must be at least 1, got {min_length}")
    layers = _split_layers(_check_selected(selected))
    all_runs = runs(layers)
    counted = all_runs.length >= min_length
    return all_runs.row[counted, 0], all_runs.length[counted], len(layers)


def _split_layers(values: np.ndarray) -> np.ndarray:
    # [B, L, ..., N] becomes [L, R, N]; [B, N] and [N] are a single layer.
    layers = np.moveaxis(values, 1, 0) if values.ndim > 2 else values[None]
    rows = int(np.prod(layers.shape[1:-1]))
    return layers.reshape(len(layers), rows, values.shape[-1])
