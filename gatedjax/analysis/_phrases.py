"""Words that attention selects, and runs of selected words that are adjacent in the text."""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from gatedjax._utils.choices import check_choice
from gatedjax.analysis._checks import check_numbers

THRESHOLD = 0.95
"""The threshold of the paper: words with a higher rescaled weight are selected."""


class Runs(NamedTuple):
    """R runs of selected words, in the order of the rows and then of the words.

    Attributes:
      row: int [R, A], the index of the row (such as sentence and layer) of each run; A is the
        number of axes before the axis of words.
      start: int [R], the position of the first word.
      length: int [R], the number of words, at least 1.
    """

    row: np.ndarray
    start: np.ndarray
    length: np.ndarray


@dataclasses.dataclass(frozen=True)
class Selection:
    """The words that a layer selects from a sentence.

    Attributes:
      layer: index of the layer, from 0.
      positions: positions of the selected words, from 0.
      words: the selected words in the order of the text.
      phrases: the runs of two or more selected words, joined by spaces.
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
    """Rescales the attention of each row to [0, 1], so that rows of different lengths compare.

    minmax: r_n = (a_n - min a) / (max a - min a);  max: r_n = a_n / max a; both over the real
    words of the row. If all weights of a row are equal (or it has a single word), r_n = 1.

        >>> print(normalise([[0.5, 0.25, 0.25]]))
        [[1. 0. 0.]]

    Args:
      attention: [*B, N], weights over the N words of the last axis; *B are any number of axes, such
        as [B, N] for B sentences, [B, L, N] with L layers or [B, Q, N] with Q queries.
      mask: bool, True at real words, of the shape of `attention` or of its first axes and N (for
        example [B, N] for attention [B, L, N]); None means that all words are real.
      how: "minmax" or "max".
      rtol: weights count as equal if max - min <= rtol max |a|. The default is a few rounding
        errors of float32, which min-max would otherwise amplify to 0 and 1.

    Returns:
      r as float64 [*B, N]; 0 at padding, and in rows without real words.

    Reference: Guo 2017 (AGT), section 3.1. Deviation: the paper does not specify the rescaling;
      min-max gives 0 and 1 in each row, as in the figure 2 of the paper.
    """
    check_choice(("minmax", "max"), how=how)
    values, real = _check_values(attention, mask, "attention")
    values = np.where(real, values, 0.0)
    check_numbers("attention", values, where=" at real words")
    if how == "max" and np.any(values < 0):
        raise ValueError(f"attention must be at least 0 for how='max', got {values.min()}")
    if not values.size:
        return values
    low = np.min(values, -1, keepdims=True, where=real, initial=np.inf)
    high = np.max(values, -1, keepdims=True, where=real, initial=-np.inf)
    # In a row without real words the limits would stay infinite.
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
    """Selects words by their rescaled attention.

    threshold: r_n > threshold; median_of_sentence: r_n > median of r over the real words of the
    row. Both are strict: a word at the limit is not selected. If all r of a row are 1 because its
    weights are equal (see `normalise`), the first rule selects all words and the second selects no
    word.

        >>> print(select([[1.0, 0.5, 0.0]]))
        [[ True False False]]

    Args:
      r: rescaled attention [*B, N] in [0, 1] from `normalise`; *B are any number of axes, such as
        sentences and layers, and N words are the last axis.
      mask: bool, True at real words, of the shape of `r` or of its first axes and N; None means
        that all words are real, so that padding counts in the median.
      threshold: 0.95 in the paper. 0.5 is its relaxed form, if "more than the median" means half of
        the full attention; the median of a sentence cannot select more than half of its words.
      rule: "threshold", or "median_of_sentence", which ignores `threshold`.

    Returns:
      bool [*B, N], True at selected words, False at padding.

    Reference: Guo 2017 (AGT), section 3.1.
    """
    check_choice(("threshold", "median_of_sentence"), rule=rule)
    values, real = _check_values(r, mask, "r")
    if rule == "threshold" or not values.size:
        return (values > threshold) & real
    # The median of no values is not defined, so that rows without words get zeros.
    words = np.where(real.any(-1, keepdims=True), np.where(real, values, np.nan), 0.0)
    return (values > np.nanmedian(words, -1, keepdims=True)) & real


def runs(selected: ArrayLike) -> Runs:
    """Finds the maximal runs of selected words; runs of two or more words are phrases.

    The words of a run are adjacent in the text. A model of a bag of words does not depend on the
    order of the words: in AGT a permutation of the words only permutes the attention. Its "phrases"
    are words that are selected independently and happen to be neighbours. Compare them with the
    phrases of a shuffled text before you interpret them as composition.

        >>> result = runs(np.array([[True, True, False, True]]))
        >>> print(result.start, result.length)
        [0 3] [2 1]

    Args:
      selected: bool [*B, N] from `select`, True at selected words, False at padding; *B are any
        number of axes, such as sentences and layers, and N words are the last axis.

    Returns:
      The row, start and length of each run.

    Reference: Guo 2017 (AGT), section 3.1.
    """
    flags = _check_selected(selected)
    # A 0 on both sides gives runs at the ends of a row a start and an end.
    edges = np.diff(flags.astype(np.int8), axis=-1, prepend=0, append=0)
    # Both are in the order of rows and words, so that the k-th start belongs to the k-th end.
    starts, ends = np.argwhere(edges == 1), np.argwhere(edges == -1)
    return Runs(starts[:, :-1], starts[:, -1], ends[:, -1] - starts[:, -1])


def selected_words(
    tokens: Sequence[Sequence[str]], selected: ArrayLike, layer: int = 0
) -> collections.Counter[str]:
    """Counts how often a layer selects each word, in lower case, over B sentences.

        >>> selected_words([["Not", "good"], ["not"]], np.array([[True, False], [True, False]]))
        Counter({'not': 2})

    Args:
      tokens: the words of each of B sentences, without padding.
      selected: bool [B, L, N] from `select`, True at selected words, for B sentences, L layers and
        N words; or [B, N] for a single layer.
      layer: index of the layer, from 0; a negative index counts from the end.

    Returns:
      A counter {lower-cased word: number of its selected occurrences}.

    Raises:
      TypeError: if `selected` is not bool.
      ValueError: if the shapes do not fit, there is no such layer, or padding is selected.

    Reference: Guo 2017 (AGT), section 3.2: most frequent in the first layer are n't, never, not.
    """
    flags = _check_selected(selected)
    if flags.ndim == 2:
        # A single layer gets an axis of layers of size 1, so that one rule serves both forms.
        flags = flags[:, None]
    if flags.ndim != 3 or len(flags) != len(tokens):
        raise ValueError(
            f"selected must have shape [{len(tokens)}, L, N] or [{len(tokens)}, N], "
            f"got {np.shape(selected)}"
        )
    if not -flags.shape[1] <= layer < flags.shape[1]:
        raise ValueError(f"layer must be in [{-flags.shape[1]}, {flags.shape[1]}), got {layer}")
    counts: collections.Counter[str] = collections.Counter()
    for b, words in enumerate(tokens):
        row = flags[b, layer]
        _check_fits(words, row, f"tokens[{b}]")
        counts.update(words[n].lower() for n in np.flatnonzero(row).tolist())
    return counts


def first_words(
    tokens: Sequence[Sequence[str]], r: ArrayLike, *, threshold: float = THRESHOLD
) -> collections.Counter[str]:
    """Counts the words to which the first layer pays much attention, in lower case.

        >>> first_words([["Not", "good"]], [[[1.0, 0.0], [1.0, 1.0]]])
        Counter({'not': 1})

    Args:
      tokens: the words of each of B sentences, without padding.
      r: rescaled attention [B, L, N] from `normalise` (0 at padding) for B sentences, L layers and
        N words.
      threshold: the rescaled attention above which a word counts, at least 0.

    Returns:
      A counter {lower-cased word: number of its occurrences with r > threshold}.
    """
    # Padding has r = 0, so that a negative threshold would select it.
    if threshold < 0:
        raise ValueError(f"threshold must be at least 0, got {threshold}")
    return selected_words(tokens, select(r, threshold=threshold), 0)


def trace(tokens: Sequence[str], selected: ArrayLike) -> list[Selection]:
    """Lists the words and phrases that each layer selects from a sentence.

        >>> trace(["not", "good"], np.array([[True, False], [True, True]]))[1].phrases
        ('not good',)

    Args:
      tokens: the words of the sentence, without padding.
      selected: bool [L, N] from `select` for L layers, N at least the number of words.

    Returns:
      A `Selection` per layer. A phrase is a run of two or more neighbouring selected words.

    Raises:
      ValueError: if `selected` has another number of axes, is shorter than the words, or selects
        padding.
    """
    flags = _check_selected(selected)
    if flags.ndim != 2:
        raise ValueError(f"selected must have shape [L, N], got {flags.shape}")
    layers = []
    for layer, row in enumerate(flags):
        _check_fits(tokens, row, "tokens")
        positions = tuple(int(n) for n in np.flatnonzero(row))
        row_runs = runs(row)
        phrases = tuple(
            " ".join(tokens[start : start + length])
            for start, length in zip(row_runs.start, row_runs.length, strict=True)
            if length > 1
        )
        layers.append(Selection(layer, positions, tuple(tokens[n] for n in positions), phrases))
    return layers


def _check_fits(words: Sequence[str], row: np.ndarray, name: str) -> None:
    """Raises ValueError if `row`, bool [N], is shorter than the words, or selects padding."""
    if len(words) > len(row):
        raise ValueError(
            f"selected must have a value for each of the {len(words)} words of {name}, got "
            f"{len(row)}"
        )
    if row[len(words) :].any():
        raise ValueError(
            f"selected must be False after the {len(words)} words of {name}, got True at position "
            f"{len(words) + int(row[len(words) :].argmax())}"
        )


def _check_selected(selected: ArrayLike) -> np.ndarray:
    flags = np.asarray(selected)
    if flags.dtype != bool:
        raise TypeError(f"selected must be bool, got dtype {flags.dtype}")
    if not flags.ndim:
        raise ValueError("selected must have at least an axis, that of the words, got shape ()")
    return flags


def _check_values(
    values: ArrayLike, mask: ArrayLike | None, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the values as float64 [*B, N], and a bool mask of that shape, True at words."""
    values = np.asarray(values).astype(np.float64)
    shape = values.shape
    if not shape:
        raise ValueError(f"{name} must have at least an axis, that of the words, got shape ()")
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
