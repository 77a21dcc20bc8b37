"""Which words attention selects, and which selected words stand side by side."""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

THRESHOLD = 0.95
"""A word is selected where its rescaled weight is above this, as in the paper."""


class Runs(NamedTuple):
    """What `runs` returns, one entry per run, in the order of the rows and then of the words.

    Attributes:
      row: int [R, A] index of the row of each run; A is the number of axes before the last.
      start: int [R] first word.
      length: int [R] number of words, at least 1.
    """

    row: np.ndarray
    start: np.ndarray
    length: np.ndarray


@dataclasses.dataclass(frozen=True)
class Selection:
    """What one layer selects of one sentence.

    Attributes:
      layer: from 0.
      positions: of the selected words, from 0.
      words: the selected words in their order.
      phrases: the runs of two or more of them, words joined by a space.
    """

    layer: int
    positions: tuple[int, ...]
    words: tuple[str, ...]
    phrases: tuple[str, ...]


def normalise(
    attention: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    how: Literal["minmax", "max"] = "minmax",
    rtol: float = 1e-6,
) -> np.ndarray:
    """Rescales the attention of every row to [0, 1], so that rows of any length compare.

    minmax: r_n = (a_n - min a) / (max a - min a);  max: r_n = a_n / max a; both over the real
    words of the row. If the weights are equal (also: one word), r_n = 1 for each of them.

    Args:
      attention: [*B, N], weights over the N words of the last axis: [B, N], a layer axis as in
        [B, L, N], a query axis as in [B, Q, N].
      mask: bool, True at real words: of the shape of `attention`, or of its first axes and N, as
        [B, N] is for [B, L, N]; None means that all are real.
      how: "minmax" or "max".
      rtol: weights count as equal if max - min <= rtol max |a|. The default is a few roundings of
        float32, which min-max would otherwise blow up to 0 and 1.

    Returns:
      r as float64 [*B, N]; 0 at padding, whatever stands there. A row without a real word is 0.

    Reference: Guo 2017 (AGT), section 3.1. Deviation: the paper does not say how it rescales;
      min-max puts both 0 and 1 in every row, as its figure 2 has them.
    """
    if how not in ("minmax", "max"):
        raise ValueError(f"how must be 'minmax' or 'max', got {how!r}")
    values, real = _real(attention, mask, "attention")
    values = np.where(real, values, 0.0)
    if not np.all(np.isfinite(values)):
        raise ValueError("attention must be finite at real words")
    if how == "max" and np.any(values < 0):
        raise ValueError(f"attention must be >= 0 for how='max', got {values.min()}")
    if not values.size:
        return values
    low = np.min(values, -1, keepdims=True, where=real, initial=np.inf)
    high = np.max(values, -1, keepdims=True, where=real, initial=-np.inf)
    some = real.any(-1, keepdims=True)
    low, high = np.where(some, low, 0.0), np.where(some, high, 0.0)
    flat = high - low <= rtol * np.maximum(abs(low), abs(high))
    base = low if how == "minmax" else np.zeros_like(low)
    scaled = (values - base) / np.where(flat, 1.0, high - base)
    return np.where(real, np.where(flat, 1.0, scaled), 0.0)


def select(
    r: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    threshold: float = THRESHOLD,
    rule: Literal["threshold", "median_of_sentence"] = "threshold",
) -> np.ndarray:
    """Chooses words by their rescaled attention.

    threshold: r_n > threshold; median_of_sentence: r_n > median of r over the real words of the
    row. Both are strict: a word at the limit is not selected. If all r are equal, as `normalise`
    makes them for equal weights, the first rule selects every word and the second none.

    Args:
      r: [*B, N] of `normalise`.
      mask: as there; without one, padding counts in the median.
      threshold: 0.95 in the paper; 0.5 is its relaxed form ("more than the median" read as half
        of the full attention: a sentence's median cannot select more than half of its words).
      rule: "threshold" or "median_of_sentence", which ignores `threshold`.

    Returns:
      bool [*B, N], False at padding.

    Reference: Guo 2017 (AGT), section 3.1.
    """
    if rule not in ("threshold", "median_of_sentence"):
        raise ValueError(f"rule must be 'threshold' or 'median_of_sentence', got {rule!r}")
    values, real = _real(r, mask, "r")
    if rule == "threshold" or not values.size:
        return (values > threshold) & real
    # padding sorts to the end, and the middle is that of the real words
    ordered = np.sort(np.where(real, values, np.inf), -1)
    count = real.sum(-1, keepdims=True)
    middle = [
        np.take_along_axis(ordered, np.maximum(place, 0), -1)
        for place in ((count - 1) // 2, np.minimum(count // 2, values.shape[-1] - 1))
    ]
    return (values > (middle[0] + middle[1]) / 2) & real


def runs(selected: ArrayLike) -> Runs:
    """Finds the maximal runs of selected words: those of two or more are phrases.

    A run is words that stand side by side in the text. A model that reads a bag of words (AGT: a
    permutation of the words permutes its attention and changes nothing else) knows nothing of the
    order, so its "phrases" are words that it selects each by itself and that happen to be
    neighbours. Compare with a shuffled text before calling them composition.

    Args:
      selected: bool [*B, N] of `select`, False at padding.

    Returns:
      Row, start and length of every run.

    Reference: Guo 2017 (AGT), section 3.1.
    """
    flags = _selected(selected)
    edges = np.diff(flags.astype(np.int8), axis=-1, prepend=0, append=0)
    # both in the order of rows and words, so that the k-th start belongs to the k-th end
    starts, ends = np.argwhere(edges == 1), np.argwhere(edges == -1)
    return Runs(starts[:, :-1], starts[:, -1], ends[:, -1] - starts[:, -1])


def selected_words(
    tokens: Sequence[Sequence[str]], selected: ArrayLike, layer: int = 0
) -> collections.Counter[str]:
    """Counts the words that a layer selects, lower-cased.

    Args:
      tokens: the words of each of B sentences, without padding.
      selected: bool [B, L, N] of `select`, or [B, N] for one layer.
      layer: which one, from 0; negative ones count from the end.

    Returns:
      Word -> how often it is selected, every occurrence counted.

    Raises:
      ValueError: also if padding is selected.

    Reference: Guo 2017 (AGT), section 3.2: most frequent in the first layer are n't, never, not.
    """
    flags = _selected(selected)
    if flags.ndim == 2:
        flags = flags[:, None]
    if flags.ndim != 3 or len(flags) != len(tokens):
        raise ValueError(
            f"selected must have shape [{len(tokens)}, L, N] or [{len(tokens)}, N], "
            f"got {np.shape(selected)}"
        )
    if not -flags.shape[1] <= layer < flags.shape[1]:
        raise ValueError(f"layer must be one of {flags.shape[1]}, got {layer}")
    counts: collections.Counter[str] = collections.Counter()
    for b, words in enumerate(tokens):
        row = flags[b, layer]
        _fits(words, row, f"tokens[{b}]")
        counts.update(words[n].lower() for n in np.flatnonzero(row).tolist())
    return counts


def first_words(
    tokens: Sequence[Sequence[str]], r: ArrayLike, *, threshold: float = THRESHOLD
) -> collections.Counter[str]:
    """Counts the words whose r in the first layer is above the threshold, lower-cased.

    Args:
      tokens: the words of each of B sentences, without padding.
      r: [B, L, N] of `normalise` (0 at padding).
      threshold: as in `select`, at least 0.

    Returns:
      Word -> count, as of `selected_words` with layer 0.
    """
    if threshold < 0:
        raise ValueError(f"threshold must be at least 0, got {threshold}")
    return selected_words(tokens, select(r, threshold=threshold), 0)


def trace(tokens: Sequence[str], selected: ArrayLike) -> list[Selection]:
    """Tells layer by layer what is selected of one sentence.

    Args:
      tokens: its words, without padding.
      selected: bool [L, N] of `select`.

    Returns:
      One entry per layer. On phrases see the caveat of `runs`.

    Raises:
      ValueError: also if padding is selected.
    """
    flags = _selected(selected)
    if flags.ndim != 2:
        raise ValueError(f"selected must have shape [L, N], got {flags.shape}")
    layers = []
    for layer, row in enumerate(flags):
        _fits(tokens, row, "tokens")
        positions = tuple(int(n) for n in np.flatnonzero(row))
        row_runs = runs(row)
        phrases = tuple(
            " ".join(tokens[start : start + length])
            for start, length in zip(row_runs.start, row_runs.length, strict=True)
            if length > 1
        )
        layers.append(Selection(layer, positions, tuple(tokens[n] for n in positions), phrases))
    return layers


def _fits(words: Sequence[str], row: np.ndarray, name: str) -> None:
    if len(words) > len(row):
        raise ValueError(f"{name} has {len(words)} words, selected only {len(row)}")
    if row[len(words) :].any():
        raise ValueError(f"selected must be False after the {len(words)} words of {name}")


def _selected(selected: ArrayLike) -> np.ndarray:
    flags = np.asarray(selected)
    if flags.dtype != bool:
        raise TypeError(f"selected must be bool, got dtype {flags.dtype}")
    if not flags.ndim:
        raise ValueError("selected must have at least the axis of words, got shape ()")
    return flags


def _real(values: ArrayLike, mask: ArrayLike | None, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The values as float64 [*B, N], and where they are those of real words, bool [*B, N]."""
    values = np.asarray(values).astype(np.float64)
    shape = values.shape
    if not shape:
        raise ValueError(f"{name} must have at least the axis of words, got shape ()")
    if mask is None:
        return values, np.ones(shape, bool)
    mask = np.asarray(mask)
    if mask.dtype != bool:
        raise TypeError(f"mask must be bool, got dtype {mask.dtype}")
    leading = mask.shape[:-1]
    if not mask.ndim or mask.shape[-1] != shape[-1] or leading != shape[:-1][: len(leading)]:
        raise ValueError(
            f"mask must have the shape {shape} of {name}, or its first axes and the last, "
            f"got {mask.shape}"
        )
    between = (1,) * (len(shape) - mask.ndim)
    return values, np.broadcast_to(mask.reshape(*leading, *between, shape[-1]), shape)
