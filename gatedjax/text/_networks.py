"""The networks by name: what is built for texts of one's own, and how its output is read."""

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
from gatedjax.text._shapes import ShapedVocabulary
from gatedjax.training import Ratio

Config = Any
Batch = Mapping[str, Any]
Reading = dict[str, Any]
"""Of a batch: "probabilities" [B, C], "density" [B], "kept", a bool [B, T] for each text, and where
there are any "attention" [B, T] and "gates" [B, T], the probabilities that they are open."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network:
    """A network as `gatedjax train --model NAME` makes it."""

    about: str
    config: Config
    """With the defaults for texts of one's own."""
    kind: Callable[..., nn.Module]
    task: Callable[[Any], Any]
    read: Callable[[Output, Batch], Reading]
    width: Callable[[Config, int], Config] = lambda c, d: dataclasses.replace(c, embedding_dim=d)
    """The configuration for word vectors of this width."""
    with_vectors: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What the configuration has otherwise where there is a file of word vectors."""
    starts_from_counts: bool = True
    """Whether word vectors begin with `log_ratios` where there is no file of them."""
    vectors: int = 100
    """Width of the word vectors where there is no file of them."""
    vector_std: float | None = None
    """Scale word vectors to this standard deviation; None takes them as they are."""
    vocabulary: type[Vocabulary] = Vocabulary
    """What words become ids by."""

    @property
    def gated(self) -> bool:
        """Whether there are gates, with modes and a density that can be held."""
        return isinstance(self.config, models.GANetConfig) and self.config.system == "ganet"

    def make(self, config: Config, *, words: int, classes: int, vectors: Any = None) -> Any:
        """The Flax module."""
        return self.kind(config, vocab_size=words, num_classes=classes, embeddings=vectors)

    def reading(self, module: Any) -> Callable[[Params, Batch], Reading]:
        """A pure function of (params, batch)."""

        def read(params: Params, batch: Batch) -> Reading:
            output = module.apply({"params": params}, batch)
            return {"probabilities": nn.softmax(output.logits), **self.read(output, batch)}

        return read


def _mask(batch: Batch, name: str = "tokens", lengths: str = "lengths") -> jax.Array:
    return F.length_mask(batch[lengths], batch[name].shape[1])


def _density(kept: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.sum(kept, axis=1) / jnp.maximum(jnp.sum(mask, axis=1), 1)


def _all(output: Output, batch: Batch) -> Reading:
    mask = _mask(batch)
    return {"kept": (mask,), "density": jnp.ones(len(mask))}


def _ga_net(output: Output, batch: Batch) -> Reading:
    mask = _mask(batch)
    if output.attention is None:
        return _all(output, batch)
    # without gates it is local attention that leaves out words, those outside of its window
    kept = mask & ((output.attention if output.gates is None else output.gates) > 0)
    more = {"attention": output.attention, "kept": (kept,), "density": _density(kept, mask)}
    if output.gate_logits is not None:
        more["gates"] = jnp.where(mask, nn.sigmoid(output.gate_logits), 0)
    return more


def _agt(output: Output, batch: Batch) -> Reading:
    more = _all(output, batch)
    if output.attention is not None:
        more["attention"] = jnp.mean(output.attention, axis=1)
    return more


def _selected(selections: Any, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(words that more than half of the words select, share of the pairs), over layers, heads."""
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
    kept, density = _selected(output.selections, mask)
    received = [s.weights for s in output.selections if s.weights is not None]
    more: Reading = {"kept": (kept,), "density": density}
    if received:
        weights = jnp.mean(jnp.stack(received), axis=(0, 2))
        total = jnp.sum(weights * mask[:, :, None], axis=1)
        more["attention"] = total / jnp.maximum(jnp.sum(total, axis=1, keepdims=True), 1e-9)
    return more


def _nli(output: Output, batch: Batch) -> Reading:
    first, one = _selected((output.premise,), _mask(batch))
    second, other = _selected(
        (output.hypothesis,), _mask(batch, "hypothesis", "hypothesis_lengths")
    )
    return {"kept": (first, second), "density": (one + other) / 2}


def _heads(config: Config, width: int) -> Config:
    heads = next(h for h in (config.num_heads, 4, 2, 1) if width % h == 0)
    return dataclasses.replace(config, hidden=width, num_heads=heads)


def _ga(system: str) -> Config:
    gates = models.GateConfig(test_gate="threshold", density=0.5, gate_bias_init=1.0)
    return models.GANetConfig(
        system=system,  # type: ignore[arg-type]
        hidden=64,
        num_layers=1,
        aux="fnn",
        aux_hidden=32,
        gates=gates if system == "ganet" else models.GateConfig(),
        dropouts=GANetDropout(embedding_dropout=0.5, pool_dropout=0.5),
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
    """Evaluates under the gates of prediction, and no others: one pass, a small program.

    Where a density is held, those are the `likeliest` of a batch; `held_at` makes the same of a
    trained network.
    """

    def evaluate(self, params: Params, batch: Batch) -> tuple[Any, Any]:
        """See `gatedjax.training.Task`."""
        variables, weight = {"params": params}, batch["weight"]
        output: Output = self.model.apply(variables, batch)
        density = self.model.config.gates.density
        if density is not None:
            mask = _mask(batch) & (weight > 0)[:, None]
            gates = likeliest(output.gate_logits, mask, density).astype(jnp.float32)
            forced: Output = self.model.apply(
                variables, batch, gates[None], method=models.GANet.with_gates
            )
            output = output.replace(logits=forced.logits[0], gates=forced.gates[0])
        metrics = class_metrics(output.logits, batch["label"], weight)
        if output.gates is not None:
            metrics["density"] = Ratio.of(F.gate_penalty(output.gates, _mask(batch)), weight)
        return metrics, {}


def likeliest(logits: jax.Array, mask: jax.Array, density: float) -> jax.Array:
    """The likeliest of the words of a batch that are about this share of them; at least one.

    Words of equal logits are chosen together or not at all, whichever is nearer to the share.
    """
    ranked = -jnp.sort(-jnp.where(mask, logits, -jnp.inf).ravel())
    wanted = density * jnp.sum(mask)
    least = ranked[jnp.maximum(jnp.round(wanted).astype(int), 1) - 1]
    above, from_it = (mask & (logits > least)), (mask & (logits >= least))
    without, with_it = jnp.sum(above), jnp.sum(from_it)
    nearer = (without == 0) | (jnp.abs(with_it - wanted) <= jnp.abs(wanted - without))
    return jnp.where(nearer, from_it, above)


def held_at(params: Params, probabilities: np.ndarray, density: float) -> Params:
    """The parameters with the gates' bias at which about this share of words has an open gate.

    The bias lies between two words whose gates differ: words with one gate open or close together,
    whichever is nearer to the share.

    Args:
      params: of a `GANet`.
      probabilities: [n] that the gates of some words are open.
      density: the share.
    """
    clipped = np.clip(probabilities.astype(np.float64), 1e-9, 1 - 1e-7)
    logits, counts = np.unique(np.log(clipped) - np.log1p(-clipped), return_counts=True)
    shares = np.cumsum(counts[::-1])[::-1] / np.sum(counts)  # open from each logit on
    lowest = int(np.argmin(np.abs(shares - density)))
    below = logits[lowest - 1] if lowest else logits[0] - 2
    cut = (logits[lowest] + below) / 2
    gate = params["auxiliary"]["gate"]
    moved = {**gate, "bias": (gate["bias"] - cut).astype(gate["bias"].dtype)}
    return {**params, "auxiliary": {**params["auxiliary"], "gate": moved}}


_GA_NET: Tree = {
    "kind": models.GANet,
    "task": _Thresholded,
    "read": _ga_net,
    "with_vectors": {
        "hidden": 100,
        "dropouts.embedding_dropout": 0.3,
        "dropouts.pool_dropout": 0.3,
    },
}
_RAU: Tree = {"kind": models.RAUClassifier, "task": models.RAUTask, "read": _all}
TEXT: dict[str, Network] = {
    "ganet": Network(about="a BiLSTM whose gates choose the words", config=_ga("ganet"), **_GA_NET),
    "soft": Network(about="a BiLSTM with soft attention", config=_ga("soft"), **_GA_NET),
    "local": Network(about="a BiLSTM with local attention", config=_ga("local"), **_GA_NET),
    "bilstm": Network(about="a BiLSTM's last states", config=_ga("bilstm"), **_GA_NET),
    "agt": Network(
        about="an attention gated transformation of the words",
        config=models.AGTConfig(
            num_layers=6, hidden=64, attention_hidden=64, embedding_dim=100, head_hidden=()
        ),
        kind=models.AGT,
        task=models.AGTTask,
        read=_agt,
    ),
    "rau": Network(about="recurrent attention units", config=_rau("rau"), **_RAU),
    "gru": Network(about="a GRU", config=_rau("gru"), **_RAU),
    "lstm": Network(about="an LSTM", config=_rau("lstm"), **_RAU),
    "ssan": Network(
        about="a Transformer encoder that selects whom words attend to",
        config=models.SSANProbeConfig(
            gates=_selector((1,)),
            num_layers=1,
            hidden=100,
            filter_size=200,
            head_hidden=(),
        ),
        kind=models.SSANProbe,
        task=models.SSANProbeTask,
        read=_ssan,
        width=_heads,
    ),
}
"""For one text: what `--model` names."""

_NLI: Tree = {"kind": models.SSANNLI, "task": models.SSANNLITask, "read": _nli}
PAIR: dict[str, Network] = {
    name: Network(
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
"""For two texts."""


class _Tagger(models.SSANTagger):
    """For sentences in which no predicate is marked."""

    def __call__(self, batch: Batch, *, train: bool = False) -> Any:
        unmarked = {**batch, "is_predicate": jnp.zeros_like(batch["tokens"])}
        return super().__call__(unmarked, train=train)


class _TaggingTask(models.SSANTaggingTask):
    """Evaluates without telling what is predicted."""

    def _predictions(self, output: Output, batch: Batch) -> Any:
        return {}


def _halves(config: Config, width: int) -> Config:
    return _heads(dataclasses.replace(config, embedding_dim=width, hidden=2 * width), 2 * width)


TAGS: dict[str, Network] = {
    name: Network(
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
        read=_all,
        width=_halves,
        vectors=64,
        # sqrt(hidden) makes them about as large as the sinusoids of the positions
        vector_std=0.1,
        vocabulary=ShapedVocabulary,
    )
    for name, about, layers in (
        ("ssan", "a Transformer encoder that selects whom words attend to", (1,)),
        ("san", "a Transformer encoder", (0,)),
    )
}
"""For a tag of every word."""
