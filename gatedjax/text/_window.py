"""The fit of lexicons whose gates see the neighbours of a word."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from itertools import compress

import numpy as np

from gatedjax.lexicon import (
    DENSITIES,
    Lexicon,
    WindowLexicon,
    compute_gains,
    fit_lexicon,
)
from gatedjax.lexicon._features import Words, number_words
from gatedjax.lexicon._fit import drop_unweighted
from gatedjax.lexicon._pooling import find_cut as find_cut
from gatedjax.lexicon._window import add_logits, find_neighbours
from gatedjax.text._windows import split_starts

# Words that occur less often share a gate, which also serves words that training has not seen.
_LEAST = 2
# Initial gates: the mean logit, and the largest distance from it in standard deviations.
_START, _SPREAD = 3.0, 3.0
# The gates are trained on pieces of texts of at most this number of words, because the arrays are
# padded to the longest.
_LONGEST = 512


def fit_window(
    texts: Sequence[Sequence[str]],
    labels: np.ndarray,
    num_classes: int,
    densities: Sequence[float] = DENSITIES,
    *,
    sample_weight: np.ndarray | None = None,
    seed: int = 0,
    room_for: Sequence[Sequence[str]] | None = None,
) -> Iterator[WindowLexicon]:
    """Fits lexicons with gates that see the neighbours, and yields one for each density.

    A lexicon of all words gives the initial class scores, and the initial gate logits: 3 + the
    standardised logarithm of the mean gain of a word, by which the cross-entropy rises without it.
    `fit_gates` trains the gates, the threshold sets the share of open training words to the
    density, and a new lexicon is fitted to the open words. `room_for` has the texts of a later fit,
    so that both fits use the same compiled program.
    """
    # JAX is imported for a fit and not for a prediction.
    from gatedjax.models.window import Room, fit_gates

    labels = np.asarray(labels)
    if sample_weight is not None:
        texts, labels, sample_weight = drop_unweighted(texts, labels, sample_weight)
    first = next(fit_lexicon(texts, labels, num_classes, [1.0], sample_weight=sample_weight))
    numbered = number_words(texts)
    counts = np.bincount(numbered.ids, minlength=len(numbered.types))
    # The gate of rare words comes after those of the frequent words.
    frequent = np.flatnonzero(counts >= _LEAST)
    gate_of = np.full(len(counts), len(frequent))
    gate_of[frequent] = np.arange(len(frequent))
    words = tuple(numbered.types[i] for i in frequent.tolist())
    weights, squares = first.weigh(numbered.types)
    size = len(frequent) + 1
    initial_logits = _initial_logits(
        first, texts, numbered, labels, weights, squares, gate_of, size, sample_weight
    )
    starts, owners = split_starts(np.cumsum([0, *map(len, texts)]), _LONGEST)
    ids = np.split(numbered.ids, starts[1:-1])
    piece_weight = sample_weight
    if len(owners) > len(texts):
        # The pieces of a text have the weight of the text.
        weight = np.ones(len(texts)) if sample_weight is None else sample_weight
        piece_weight = (weight / np.bincount(owners))[owners]
    # The bias of two classes is stored as a single number, their difference.
    bias = first.bias if num_classes > 2 else np.concatenate([-first.bias / 2, first.bias / 2])
    larger = texts if room_for is None else room_for
    room = Room(
        texts=len(split_starts(np.cumsum([0, *map(len, larger)]), _LONGEST)[1]),
        words=len({word for text in larger for word in text}),
        length=min(max(map(len, larger)), _LONGEST),
    )
    neighbours = find_neighbours(gate_of[numbered.ids], numbered.rows, len(initial_logits))
    for density in densities:
        if density == 1:
            everything = np.zeros((len(words) + 2, 3), np.float32)
            yield WindowLexicon(words, everything, -1.0, first, density)
            continue
        gates = fit_gates(
            ids,
            labels[owners],
            gate_of,
            initial_logits,
            weights,
            bias,
            squares,
            density,
            seed=seed,
            room=room,
            sample_weight=piece_weight,
        )
        if len(frequent) == len(counts):
            # No rare word has trained the gate of unknown words.
            gates[-2] = gates[:-2].mean(axis=0)
        logits = add_logits(gates, neighbours)
        lexicon = WindowLexicon(words, gates, find_cut(logits, density), first, density)
        yield _with_reader(lexicon, texts, labels, sample_weight)


def _with_reader(
    lexicon: WindowLexicon,
    texts: Sequence[Sequence[str]],
    labels: np.ndarray,
    sample_weight: np.ndarray | None,
) -> WindowLexicon:
    """Returns the lexicon with new weights of the classes, which are fitted to its open words."""
    selected = [
        list(compress(text, gates.tolist()))
        for text, gates in zip(texts, lexicon.select(texts), strict=True)
    ]
    fit = fit_lexicon(selected, labels, lexicon.num_classes, [1.0], sample_weight=sample_weight)
    reader = next(fit)
    # A word that is closed in all training texts is known too.
    words = tuple(dict.fromkeys((*reader.words, *itertools.chain.from_iterable(texts))))
    reader = dataclasses.replace(reader, words=words, is_open=np.ones(len(words), bool))
    return dataclasses.replace(lexicon, reader=reader)


def _initial_logits(
    first: Lexicon,
    texts: Sequence[Sequence[str]],
    numbered: Words,
    labels: np.ndarray,
    weights: np.ndarray,
    squares: np.ndarray,
    gate_of: np.ndarray,
    size: int,
    sample_weight: np.ndarray | None,
) -> np.ndarray:
    """Returns the initial gate logits [size] from the mean gains of the words of each gate."""
    logits = np.log(np.maximum(first.read(texts).probabilities, 1e-30))
    length = np.sqrt(np.bincount(numbered.rows, squares[numbered.ids], numbered.num_texts))
    shares = weights[numbered.ids] / np.maximum(length, 1e-9)[numbered.rows, None]
    # The gain of a word is how much the loss would rise without it, so it estimates which gates
    # should be open.
    gains = compute_gains(logits, shares, numbered.rows, labels)
    if sample_weight is not None:
        gains = gains * sample_weight[numbered.rows]
    gates = gate_of[numbered.ids]
    means = np.bincount(gates, gains, size) / (np.bincount(gates, minlength=size) + 1)
    positive = means > 0
    if not positive.any():
        return np.full(size, _START)
    # A word that raises the loss gets the lowest logit.
    logs = np.log(np.where(positive, means, means[positive].min()))
    return _START + np.clip((logs - logs.mean()) / max(logs.std(), 1e-9), -_SPREAD, _SPREAD)
