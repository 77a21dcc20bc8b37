"""The attention of trained encoders over sentences that are given as words, and its shares."""

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike

from experiments.core.kinds import Batch, Params
from experiments.ssan.config import ProbeConfig, ReorderingConfig, RunConfig, TranslationConfig
from experiments.ssan.experiment import experiment
from experiments.ssan.sentences import sentences
from gatedjax.analysis.trees import PUNCTUATION
from gatedjax.data.batches._texts import one_pass
from gatedjax.models import SSANTranslator
from gatedjax.models.ssan.translation import STOP
from gatedjax.text.models._translator import open_translator
from gatedjax.training import restore_params

BATCH = 64
Words = Sequence[str]
GLUED = frozenset({".", ",", ":", "''", "-RRB-", "POS", "HYPH"})
"""The Penn tags of words that follow the previous word without a space in running text."""


@dataclasses.dataclass(frozen=True, eq=False)
class Encoder:
    """A trained encoder: its configuration, its parameters `params`, and its functions."""

    config: RunConfig
    apply: Callable[[Any, Any], tuple[Any, ...]]
    """Function of (parameters, batch) that returns the attention [B, M, N, N] of each layer."""
    params: Params
    pieces: Callable[[Words, Sequence[bool]], tuple[list[int], list[int]]]
    """Function of (words, True for each word glued to the word before it) that returns the ids and,
    for each id, the index of its word."""
    end: tuple[int, ...] = ()
    """The ids at the end of each sentence that belong to no word."""


def load_encoder(config: RunConfig, workdir: Path) -> Encoder:
    """Loads the encoder of a finished run. Raises FileNotFoundError if the run has not finished,
    and ValueError if the network of the run does not encode whole sentences."""
    if not (workdir / "results.json").exists():
        raise FileNotFoundError(
            f"{workdir} must be the work folder of a finished run, got no results.json: train it "
            "with python -m experiments.ssan.tables table1 | table2 | table3 | table4 | table5"
        )
    if isinstance(config, TranslationConfig):
        return _translator(config, workdir)
    if not isinstance(config, ProbeConfig | ReorderingConfig):
        raise ValueError(f"preset must have an encoder of whole sentences, got {config.preset!r}")
    vocabulary, run = sentences(config).vocabulary, experiment(config)
    model, first = run.task.model, run.test[0]
    # Shapes suffice to load the parameters, so none are initialised.
    like = jax.eval_shape(lambda: run.task.init(jax.random.key(0), first))
    params, _ = restore_params(workdir, like)

    def weights(params: Params, batch: Batch) -> tuple[Any, ...]:
        return tuple(s.weights for s in model.apply({"params": params}, batch).selections)

    def pieces(words: Words, glued: Sequence[bool]) -> tuple[list[int], list[int]]:
        return vocabulary.encode(words), list(range(len(words)))

    return Encoder(config, jax.jit(weights), params, pieces)


def _translator(config: TranslationConfig, workdir: Path) -> Encoder:
    trained = open_translator(workdir)

    def weights(params: Params, batch: Batch) -> tuple[Any, ...]:
        encoded: Any = trained.model.apply({"params": params}, batch, method=SSANTranslator.encode)
        return tuple(s.weights for s in encoded.selections)

    return Encoder(config, jax.jit(weights), trained.params, trained.bpe.encode_words, end=(STOP,))


def attention(
    encoder: Encoder,
    texts: Sequence[Words],
    *,
    glued: Sequence[Sequence[bool]] | None = None,
    layer: int = 1,
    head: int | None = None,
) -> list[np.ndarray]:
    """Computes the attention between the words of sentences, in evaluation mode.

    The attention between pieces of words is merged (see `merge_pieces`), and attention to the end
    of the sentence is left out.

    `glued` is True for words that follow the previous word without a space; only networks of pieces
    use it. Layers count from 1, heads from 0; without a head the mean over heads is taken. Returns
    an array [n, n] of queries and keys for each sentence of n words.
    """
    model = encoder.config.model
    if not 1 <= layer <= model.num_layers:
        raise ValueError(f"layer must be in [1, {model.num_layers}], got {layer}")
    if head is not None and not 0 <= head < model.num_heads:
        raise ValueError(f"head must be in [0, {model.num_heads}), got {head}")
    glued = [[False] * len(words) for words in texts] if glued is None else glued
    ids, owners = [], []
    for words, joined in zip(texts, glued, strict=True):
        numbers, places = encoder.pieces(words, joined)
        ids.append(np.array([*numbers, *encoder.end], np.int32))
        owners.append(np.array(places, int))
    # Batches come in the order of lengths, and the results belong into the order of the texts.
    maps: list[np.ndarray] = [np.zeros((0, 0))] * len(texts)
    for batch, rows in one_pass(ids, BATCH):
        inputs = {name: batch[name] for name in ("tokens", "lengths", "example_id")}
        weights = np.asarray(encoder.apply(encoder.params, inputs)[layer - 1], np.float64)
        chosen_weights = weights.mean(axis=1) if head is None else weights[:, head]
        for row, index in rows:
            size = len(owners[index])
            # The cut to `size` removes padding and the end of the sentence.
            maps[index] = merge_pieces(chosen_weights[row, :size, :size], owners[index])
    return maps


def merge_pieces(weights: ArrayLike, word: ArrayLike) -> np.ndarray:
    """Computes the attention between words from the attention between pieces.

    The queries of a word are averaged over its pieces, and the weights on its pieces are summed, so
    that the sums of rows stay the same.

    Reference: spec of SSAN; the paper does not describe how pieces become words.

    `word` [n] is the index of the word of each piece: it starts at 0 and rises in steps of 0 or 1.
    """
    weights, word = np.asarray(weights, np.float64), np.asarray(word, int)
    n = len(word)
    # As products with a matrix of 0 and 1, both sums work for any leading axes.
    member = np.zeros((int(word[-1]) + 1 if n else 0, n))
    member[word, np.arange(n)] = 1.0
    mean = member / np.maximum(member.sum(axis=1, keepdims=True), 1.0)
    return mean @ weights @ member.T


# Attention by the part of speech of the key, for table 7 ------------------------------------------

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


def tag_class(tag: str) -> str:
    """Returns the row of the paper's table 7 for a Penn tag; MD belongs to "Others"."""
    if tag in _EXACT:
        return _EXACT[tag]
    return _PREFIX.get(tag[:2], "Others")


def by_tag(weights: np.ndarray, tags: Sequence[str]) -> Mapping[str, float]:
    """Sums the attention [N, N] within a sentence by the class of the key's tag. Reference: Geng et
    al. 2020 (SSAN), table 7."""
    mass: collections.defaultdict[str, float] = collections.defaultdict(float)
    for tag, received in zip(tags, weights.sum(axis=0), strict=True):
        mass[tag_class(tag)] += float(received)
    return mass


def shares_of(mass: Mapping[str, float]) -> dict[str, float]:
    """Returns each class's share of all attention, and the sums "Content" and "Content-free". All
    shares are 0 if there is no attention."""
    total = sum(mass.values())
    shares = {name: mass.get(name, 0.0) / total if total else 0.0 for name in TAG_CLASSES}
    shares["Content"] = sum(shares[name] for name in CONTENT)
    shares["Content-free"] = sum(shares[name] for name in CONTENT_FREE)
    return shares
