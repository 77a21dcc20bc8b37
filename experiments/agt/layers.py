"""Words that the layers of a trained network select, and their gates, over the test sentences."""

import collections
import math
from collections.abc import Callable

import jax
import numpy as np

from experiments.agt import reported
from experiments.core.kinds import Array, Json, Params, Records
from gatedjax import data as gdata
from gatedjax.analysis import phrases
from gatedjax.analysis._phrase_statistics import LayerHistogram
from gatedjax.models import AGT

MOST_FREQUENT = 50
"""The number of words of the first layer in a record."""
BINS = 20
"""The bins of attention and gates; the first and the last bin are [0, 0.05) and [0.95, 1]."""


def shuffle_words(selected: np.ndarray, mask: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Shuffles the words of each sentence, in the same order for all of its layers. `selected` is
    bool [B, L, N], and `mask` [B, N] is True at words."""
    # Padding has the key infinity and sorts behind all words, so that no word moves into padding.
    # The stable order keeps the padding where it was.
    order = np.argsort(np.where(mask, rng.random(mask.shape), np.inf), axis=-1, kind="stable")
    return np.take_along_axis(selected, np.broadcast_to(order[:, None], selected.shape), -1)


def facts(model: AGT, params: Params, test: gdata.Batches) -> Json:
    """Returns the entries of a record about the layers: those of `statistics`, and "examples"."""
    return {**statistics(model, params, test), "examples": examples(model, params, test.encoded)}


def _forward(model: AGT) -> Callable[..., Array]:
    """Returns a compiled forward pass (parameters, batch) whose output is on the host."""
    run = jax.jit(lambda params, batch: model.apply({"params": params}, batch))
    return lambda params, batch: jax.device_get(run(params, batch))


def statistics(model: AGT, params: Params, test: gdata.Batches) -> Json:
    """Computes distributions per layer over a test set, and the words of the first layer.

    The entry "layers" has counts of rescaled attention, of lengths of runs (in the order of the
    text, and with the words of each sentence in random order) and of gates, with the paper's
    observations of them; "first_words" the most frequent words of the first layer; "paper_words"
    the [rank, count] of the paper's three words. They are None for a network without attention.
    """
    if model.config.system == "average":
        return {"layers": None, "first_words": None, "paper_words": None}
    # The seed is fixed, because a repeated measurement must give the same record.
    forward, rng = _forward(model), np.random.default_rng(0)
    histograms: dict[str, LayerHistogram] = {}
    words: collections.Counter[str] = collections.Counter()
    gate_sum, gate_count = np.zeros(()), 0
    for step in range(len(test)):
        rows, batch = test.rows(step), test[step]
        output = forward(params, {name: batch[name] for name in ("tokens", "lengths")})
        # The last batch is filled up with rows of length 0. Only its first n rows are texts.
        n = len(rows)
        mask = np.arange(batch["tokens"].shape[1]) < np.asarray(batch["lengths"])[:n, None]
        r = phrases.normalise(output.attention[:n], mask)
        selected = phrases.select(r, mask, threshold=reported.THRESHOLD)
        # The sum runs over millions of gates, and float32 would lose digits of the mean.
        gates = output.gates[:n].astype(np.float64)
        parts = {
            "attention": phrases.weight_histogram(r, mask, bins=BINS),
            "runs": phrases.phrase_length_histogram(selected),
            "shuffled_runs": phrases.phrase_length_histogram(shuffle_words(selected, mask, rng)),
            "gates": phrases.gate_histogram(gates, bins=BINS).pooled,
        }
        for name, part in parts.items():
            histograms[name] = histograms[name] + part if name in histograms else part
        words.update(phrases.selected_words([test.encoded.tokens(i) for i in rows], selected))
        gate_sum = gate_sum + gates.sum((0, 2))
        gate_count += n * gates.shape[2]
    # Words with equal counts are ordered by spelling, because the order of a Counter depends on the
    # order of the texts.
    ranked = sorted(words.items(), key=lambda pair: (-pair[1], pair[0]))
    ranks = {word: rank for rank, (word, _) in enumerate(ranked, start=1)}
    return {
        "layers": summary(histograms, gate_sum / max(gate_count, 1)),
        "first_words": [list(pair) for pair in ranked[:MOST_FREQUENT]],
        "paper_words": {word: [ranks.get(word), words[word]] for word in reported.FIRST_WORDS},
    }


def summary(histograms: dict[str, LayerHistogram], mean_gate: np.ndarray) -> Json:
    """Returns the distributions as lists, and a number per layer for each observation."""
    attention = histograms["attention"].probability
    means = {
        "mass_low": attention[:, 0],
        "mass_high": attention[:, -1],
        "mean_run": histograms["runs"].mean,
        "mean_phrase": above_first(histograms["runs"]).mean,
        "mean_run_shuffled": histograms["shuffled_runs"].mean,
        "mean_phrase_shuffled": above_first(histograms["shuffled_runs"]).mean,
        "mean_gate": mean_gate,
    }
    return {
        "threshold": reported.THRESHOLD,
        **{name: histogram.counts.tolist() for name, histogram in histograms.items()},
        **{
            name: [None if math.isnan(v) else round(v, 6) for v in values.tolist()]
            for name, values in means.items()
        },
    }


def above_first(histogram: LayerHistogram) -> LayerHistogram:
    """Returns the histogram without its first bin; for lengths, the runs of two or more words."""
    counts = histogram.counts.copy()
    # The first bin is emptied and not cut off, so that the edges of the histogram stay valid.
    counts[:, :1] = 0
    return LayerHistogram(counts, histogram.edges, histogram.open_end)


def in_unit(counts: Array) -> LayerHistogram:
    """Returns the histogram of recorded counts of values in [0, 1]."""
    array = np.asarray(counts, np.int64).reshape(-1, BINS)
    return LayerHistogram(array, np.linspace(0.0, 1.0, BINS + 1))


def of_lengths(counts: Array, longest: int) -> LayerHistogram:
    """Returns the histogram of recorded counts of lengths. `counts` [layers, lengths] begin at
    length 1. The bin of `longest` also counts longer lengths."""
    array = np.asarray(counts, np.int64)
    open_end = array.shape[1] > longest
    if open_end:
        # The last bin of the figure collects all longer runs, because a few very long runs would
        # stretch its axis.
        tail = array[:, longest - 1 :].sum(1, keepdims=True)
        array = np.concatenate([array[:, : longest - 1], tail], axis=1)
    return LayerHistogram(array, np.arange(array.shape[1] + 1) + 0.5, open_end)


def find(encoded: gdata.Encoded, beginning: str) -> int | None:
    """Returns the index of the first text that begins with these words, ignoring case; or None."""
    first = beginning.split()
    for index in range(len(encoded)):
        if [word.lower() for word in encoded.tokens(index)[: len(first)]] == first:
            return index
    return None


def examples(model: AGT, params: Params, encoded: gdata.Encoded) -> Records:
    """Returns attention and gates of the paper's three sentences that a test set has. The embedded
    corpus has none of them, so its first three sentences are used instead."""
    if model.config.system == "average":
        return []
    if encoded.info.name == "polarity":
        indices = dict(enumerate(range(3), start=1))
    else:
        places = {number: find(encoded, text) for number, text in enumerate(reported.EXAMPLES, 1)}
        indices = {number: index for number, index in places.items() if index is not None}
    forward, names = _forward(model), encoded.info.class_names
    sentences = []
    for number, index in indices.items():
        # A sentence is a batch of its own without padding. Each length compiles a program, but
        # there are only three sentences.
        ids = np.asarray(encoded.ids[index])
        batch = {"tokens": ids[None], "lengths": np.array([len(ids)], np.int32)}
        output = forward(params, batch)
        sentences.append(
            {
                "number": number,
                "tokens": list(encoded.tokens(index)),
                "label": names[int(encoded.labels[index])],
                "predicted": names[int(np.argmax(output.logits[0]))],
                "attention": np.round(phrases.normalise(output.attention[0]), 4).tolist(),
                "gates": phrases.gate_histogram(output.gates, bins=BINS).pooled.counts.tolist(),
            }
        )
    return sentences
