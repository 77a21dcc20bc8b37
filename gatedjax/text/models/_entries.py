"""The networks by name: their defaults for your texts, and readers of their outputs."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from gatedjax import functional as F
from gatedjax import models
from gatedjax._utils.types import Output, Params, Tree
from gatedjax.data.text._vocabulary import Vocabulary
from gatedjax.models._classification import class_metrics
from gatedjax.models.ga_net import GANetDropout
from gatedjax.models.rau import RAUDropout
from gatedjax.text.corpus._shapes import ShapedVocabulary
from gatedjax.training import Ratio

Config = Any
Batch = Mapping[str, Any]
Reading = dict[str, Any]
"""The output of a network for a batch: "probabilities" [B, C], "share" [B], "read", a bool [B, T]
for each text, "attention" [B, T] if the network has attention, and "gates" [B, T], the probability
that each gate is open, if it has gates."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkEntry:
    """A network of `gatedjax train --model NAME`, with defaults and the functions that use it."""

    about: str  # in a few words
    config: Config  # with the defaults for your texts
    kind: Callable[..., nn.Module]  # builds the module from the configuration and sizes, see `make`
    task: Callable[[Any], Any]  # builds the training task from the module
    summarize: Callable[[Output, Batch], Reading]  # of an output, without "probabilities"
    # The configuration for word vectors of a width.
    width: Callable[[Config, int], Config] = lambda c, d: dataclasses.replace(c, embedding_dim=d)
    # Changes of the configuration when there is a file of word vectors.
    with_vectors: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Without such a file: whether vectors start from `log_ratios`, and their width.
    starts_from_counts: bool = True
    vectors: int = 100
    vector_std: float | None = None  # to which word vectors are scaled; None does not scale them
    vocabulary: type[Vocabulary] = Vocabulary

    @property
    def gated(self) -> bool:
        """True for a network with gates, gate modes and a density that can be set."""
        return isinstance(self.config, models.GANetConfig) and self.config.system == "ganet"

    @property
    def selects_pairs(self) -> bool:
        """True for an SSAN: its "density" is the share of the pairs of words."""
        return self.summarize in (_ssan, _nli)

    def make(self, config: Config, *, words: int, classes: int, vectors: Any = None) -> Any:
        """Builds the Flax module, with word vectors [words, width] to start from, or None."""
        return self.kind(config, vocab_size=words, num_classes=classes, embeddings=vectors)


def _mask(batch: Batch, name: str = "tokens", lengths: str = "lengths") -> jax.Array:
    return F.length_mask(batch[lengths], batch[name].shape[1])


# The next functions are the `summarize` of networks: each maps the output for a batch to a
# `Reading` without "probabilities". `_all` is for networks that leave out no word.
def _all(output: Output, batch: Batch) -> Reading:
    mask = _mask(batch)
    return {"read": (mask,), "share": jnp.ones(len(mask))}


def _ga_net(output: Output, batch: Batch) -> Reading:
    mask = _mask(batch)
    if output.attention is None:
        return _all(output, batch)
    # Without gates, local attention leaves out the words outside of its window.
    is_open = mask & ((output.attention if output.gates is None else output.gates) > 0)
    share = jnp.sum(is_open, axis=1) / jnp.maximum(jnp.sum(mask, axis=1), 1)
    reading = {"attention": output.attention, "read": (is_open,), "share": share}
    if output.gate_logits is not None:
        reading["gates"] = jnp.where(mask, nn.sigmoid(output.gate_logits), 0)
    return reading


def _agt(output: Output, batch: Batch) -> Reading:
    reading = _all(output, batch)
    if output.attention is not None:
        reading["attention"] = jnp.mean(output.attention, axis=1)
    return reading


def _pool_selections(selections: Any, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the words that most words select, bool [B, T], and the share of pairs, [B]."""
    gates = [s.gates for s in selections if s.gates is not None]
    if not gates:
        return mask, jnp.ones(len(mask))
    queries = jnp.sum(mask, axis=1).clip(1)[:, None]
    share = jnp.mean(
        jnp.stack([jnp.mean(jnp.sum(g * mask[:, None, :, None], 2), 1) / queries for g in gates]), 0
    )
    return mask & (share > 0.5), jnp.sum(share * mask, axis=1) / queries[:, 0]


def _ssan(output: Output, batch: Batch) -> Reading:
    mask = _mask(batch)
    is_selected, density = _pool_selections(output.selections, mask)
    received = [s.weights for s in output.selections if s.weights is not None]
    reading: Reading = {"read": (is_selected,), "share": density}
    if received:
        weights = jnp.mean(jnp.stack(received), axis=(0, 2))
        # Queries at padding are no words, so their attention does not count.
        total = jnp.sum(weights * mask[:, :, None], axis=1)
        reading["attention"] = total / jnp.maximum(jnp.sum(total, axis=1, keepdims=True), 1e-9)
    return reading


def _nli(output: Output, batch: Batch) -> Reading:
    first, first_density = _pool_selections((output.premise,), _mask(batch))
    second, second_density = _pool_selections(
        (output.hypothesis,), _mask(batch, "hypothesis", "hypothesis_lengths")
    )
    return {"read": (first, second), "share": (first_density + second_density) / 2}


def _heads(config: Config, width: int) -> Config:
    # Each head gets an equal share of the width.
    heads = next(h for h in (config.num_heads, 4, 2, 1) if width % h == 0)
    return dataclasses.replace(config, hidden=width, num_heads=heads)


def _ga(system: str) -> Config:
    return models.GANetConfig(
        system=system,  # type: ignore[arg-type]
        hidden=64,
        num_layers=1,
        aux="fnn",
        aux_hidden=32,
        dropouts=GANetDropout(embedding_dropout=0.5, pool_dropout=0.5),
    )


def _gated_by_words() -> models.GANetConfig:
    # The network "fnn" sees a word without its neighbours, so that removing a closed word changes
    # neither another gate nor the states of the open words. Gates that start open and are cooled
    # let the reader learn from all words before it loses them.
    gates = models.GateConfig(
        gates_on="input",
        test_gate="threshold",
        density=0.5,
        gate_bias_init=2.0,
        temperature=1.0,
        final_temperature=0.4,
        temperature_steps=400,
    )
    return models.GANetConfig(
        hidden=48,
        num_layers=1,
        aux="fnn",
        aux_hidden=32,
        gates=gates,
        dropouts=GANetDropout(embedding_dropout=0.4, pool_dropout=0.4),
    )


def _rau(cell: str) -> Config:
    return models.RAUConfig(
        cell=cell,  # type: ignore[arg-type]
        hidden=64,
        dropouts=RAUDropout(embedding_dropout=0.5, state_dropout=0.5),
    )


def _selector(layers: tuple[int, ...]) -> models.SelectorConfig:
    return models.SelectorConfig(select_layers=layers, cap=0.0)


class _Thresholded(models.GANetTask):
    """A training task that evaluates only with test-time gates, so that its program is small."""

    def evaluate(self, params: Params, batch: Batch) -> tuple[Any, Any]:
        """Computes (metrics, predictions); with a density the open gates are the `likeliest`."""
        variables, weight = {"params": params}, batch["weight"]
        output: Output = self.model.apply(variables, batch)
        density = self.model.config.gates.density
        if density is not None:
            mask = _mask(batch) & (weight > 0)[:, None]
            gates = likeliest(output.gate_logits, mask, density).astype(jnp.float32)
            # Validation uses the share of open gates that prediction will have, because `held_at`
            # moves the threshold only after training.
            forced: Output = self.model.apply(
                variables, batch, gates[None], method=models.GANet.with_gates
            )
            output = output.replace(logits=forced.logits[0], gates=forced.gates[0])
        metrics = class_metrics(output.logits, batch["label"], weight)
        if output.gates is not None:
            metrics["density"] = Ratio.of(F.gate_penalty(output.gates, _mask(batch)), weight)
        return metrics, {}


def likeliest(logits: jax.Array, mask: jax.Array, density: float) -> jax.Array:
    """Selects the words of a batch with the largest gate logits [B, T], about the share `density`
    of all words and at least a word. Words with equal logits are selected alike, whichever is
    nearer to the share.

        >>> mask = jnp.array([[True, True, True, True, False]])
        >>> print(likeliest(jnp.array([[0.0, 2.0, 1.0, -1.0, 9.0]]), mask, 0.5))
        [[False  True  True False False]]
    """
    ranked = -jnp.sort(-jnp.where(mask, logits, -jnp.inf).ravel())
    target = density * jnp.sum(mask)
    least = ranked[jnp.maximum(jnp.round(target).astype(int), 1) - 1]
    above, from_it = (mask & (logits > least)), (mask & (logits >= least))
    without, with_it = jnp.sum(above), jnp.sum(from_it)
    nearer = (without == 0) | (jnp.abs(with_it - target) <= jnp.abs(target - without))
    return jnp.where(nearer, from_it, above)


def held_at(params: Params, probabilities: np.ndarray, density: float) -> Params:
    """Changes the bias of the gates so that about a given share of words has an open gate. Gates of
    equal probability are open or closed alike, whichever is nearer to the share.
    """
    # A probability that was rounded to 0 or 1 would have an infinite logit.
    clipped = np.clip(probabilities.astype(np.float64), 1e-9, 1 - 1e-7)
    logits, counts = np.unique(np.log(clipped) - np.log1p(-clipped), return_counts=True)
    # The share of open gates if the threshold is just below each logit.
    shares = np.cumsum(counts[::-1])[::-1] / np.sum(counts)
    lowest = int(np.argmin(np.abs(shares - density)))
    # No gate has a logit below the smallest, so a threshold below it opens all gates.
    below = logits[lowest - 1] if lowest else logits[0] - 2
    cut = (logits[lowest] + below) / 2
    gate = params["auxiliary"]["gate"]
    moved = {**gate, "bias": (gate["bias"] - cut).astype(gate["bias"].dtype)}
    return {**params, "auxiliary": {**params["auxiliary"], "gate": moved}}


_GA_NET: Tree = {
    "kind": models.GANet,
    "task": _Thresholded,
    "summarize": _ga_net,
    "with_vectors": {
        "hidden": 100,
        "dropouts.embedding_dropout": 0.3,
        "dropouts.pool_dropout": 0.3,
    },
}
_RAU: Tree = {"kind": models.RAUClassifier, "task": models.RAUTask, "summarize": _all}
TEXT: dict[str, NetworkEntry] = {
    "ganet": NetworkEntry(
        about="a BiLSTM that reads the words that gates choose",
        config=_gated_by_words(),
        **_GA_NET,
    ),
    "soft": NetworkEntry(about="a BiLSTM with soft attention", config=_ga("soft"), **_GA_NET),
    "local": NetworkEntry(about="a BiLSTM with local attention", config=_ga("local"), **_GA_NET),
    "bilstm": NetworkEntry(about="a BiLSTM's last states", config=_ga("bilstm"), **_GA_NET),
    "agt": NetworkEntry(
        about="an attention gated transformation of the words",
        config=models.AGTConfig(
            num_layers=6, hidden=64, attention_hidden=64, embedding_dim=100, head_hidden=()
        ),
        kind=models.AGT,
        task=models.AGTTask,
        summarize=_agt,
    ),
    "rau": NetworkEntry(about="recurrent attention units", config=_rau("rau"), **_RAU),
    "gru": NetworkEntry(about="a GRU", config=_rau("gru"), **_RAU),
    "lstm": NetworkEntry(about="an LSTM", config=_rau("lstm"), **_RAU),
    "ssan": NetworkEntry(
        about="a Transformer encoder that selects whom words attend to",
        config=models.SSANProbeConfig(
            gates=_selector((1,)), num_layers=1, hidden=100, filter_size=200, head_hidden=()
        ),
        kind=models.SSANProbe,
        task=models.SSANProbeTask,
        summarize=_ssan,
        width=_heads,
    ),
}
"""The networks for single texts, by their names for `--model`."""

_NLI: Tree = {"kind": models.SSANNLI, "task": models.SSANNLITask, "summarize": _nli}
PAIR: dict[str, NetworkEntry] = {
    name: NetworkEntry(
        about=about,
        config=models.SSANNLIConfig(gates=_selector(layers), hidden=100, embedding_dim=100),
        starts_from_counts=False,
        **_NLI,
    )
    for name, about, layers in (
        ("ssan", "self-attention over words that are selected", (1,)),
        ("san", "self-attention", (0,)),
    )
}
"""The networks for pairs of texts."""


class _Tagger(models.SSANTagger):
    """A tagger for sentences without a marked predicate."""

    def __call__(self, batch: Batch, *, train: bool = False) -> Any:
        unmarked = {**batch, "is_predicate": jnp.zeros_like(batch["tokens"])}
        return super().__call__(unmarked, train=train)


class _TaggingTask(models.SSANTaggingTask):
    """A tagging task that returns metrics but no predictions when it evaluates."""

    def _predictions(self, output: Output, batch: Batch) -> Any:
        return {}


def _halves(config: Config, width: int) -> Config:
    # The vector of the predicate is appended to that of each word, which doubles the width.
    return _heads(dataclasses.replace(config, embedding_dim=width, hidden=2 * width), 2 * width)


TAGS: dict[str, NetworkEntry] = {
    name: NetworkEntry(
        about=about,
        config=models.SSANTaggerConfig(
            gates=_selector(layers),
            num_layers=2,
            embedding_dim=64,
            hidden=128,
            filter_size=256,
            num_heads=4,
        ),
        kind=lambda config, vocab_size, num_classes, embeddings: _Tagger(
            config, vocab_size, num_classes, embeddings
        ),
        task=lambda module: _TaggingTask(module, 0),
        summarize=_all,
        width=_halves,
        vectors=64,
        # After the factor sqrt(hidden) vectors are about as large as the sinusoids of positions.
        vector_std=0.1,
        vocabulary=ShapedVocabulary,
    )
    for name, about, layers in (
        ("ssan", "a Transformer encoder that selects whom words attend to", (1,)),
        ("san", "a Transformer encoder", (0,)),
    )
}
"""The networks for a tag per word."""


def networks(kind: str) -> dict[str, NetworkEntry]:
    """Returns the networks for a kind of model by name; none for a kind that only a lexicon has."""
    return {"text": TEXT, "pair": PAIR, "tags": TAGS}.get(kind, {})
