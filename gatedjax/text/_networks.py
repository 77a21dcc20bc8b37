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
from gatedjax.text._shapes import ShapedVocabulary
from gatedjax.training import Ratio

Config = Any
Batch = Mapping[str, Any]
Reading = dict[str, Any]
"""The output of a network for a batch: "probabilities" [B, C], "density" [B], "kept", a bool [B, T]
for each text, "attention" [B, T] if the network has attention, and "gates" [B, T], the probability
that each gate is open, if it has gates."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkEntry:
    """A network of `gatedjax train --model NAME`, with defaults and the functions that use it.

    `about` is a text that describes it, and `config` its default configuration. The functions are
    `kind`, which builds the Flax module from a configuration and sizes, `task`, which maps the
    module to the training task, and `summarize`, which maps (output, batch) to the dict of arrays
    of `reading` without the probabilities.

    The remaining fields determine the word vectors: `width` maps (configuration, width of a vector)
    to the changed configuration, `with_vectors` is a dict of the changes of the configuration for a
    file of vectors, `starts_from_counts` is True if the vectors start from `log_ratios`, `vectors`
    is their width without a file, `vector_std` their standard deviation or None, and `vocabulary`
    the class of the vocabulary.
    """

    about: str
    """A description in a few words."""
    config: Config
    """The configuration with the defaults for your texts."""
    kind: Callable[..., nn.Module]
    """Builds the module from the configuration and sizes; see `make`."""
    task: Callable[[Any], Any]
    """Builds the training task from the module."""
    summarize: Callable[[Output, Batch], Reading]
    """Maps the output for a batch to a `Reading` without "probabilities"."""
    width: Callable[[Config, int], Config] = lambda c, d: dataclasses.replace(c, embedding_dim=d)
    """Returns the configuration for word vectors of a width."""
    with_vectors: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Changes of the configuration when there is a file of word vectors."""
    starts_from_counts: bool = True
    """True if word vectors start from `log_ratios` when there is no file of them."""
    vectors: int = 100
    """Width of the word vectors when there is no file of them."""
    vector_std: float | None = None
    """Standard deviation to which word vectors are scaled; None does not scale them."""
    vocabulary: type[Vocabulary] = Vocabulary
    """The class of the vocabulary."""

    @property
    def gated(self) -> bool:
        """True for a network with gates, gate modes and a density that can be set."""
        return isinstance(self.config, models.GANetConfig) and self.config.system == "ganet"

    @property
    def selects_pairs(self) -> bool:
        """True for an SSAN, of which "density" is the share of the pairs of words."""
        return self.summarize in (_ssan, _nli)

    def make(self, config: Config, *, words: int, classes: int, vectors: Any = None) -> Any:
        """Builds the Flax module.

        Args:
          config: the configuration of the network.
          words: size of the vocabulary.
          classes: number of classes.
          vectors: word vectors [words, width] to start from, or None.

        Returns:
          The module.
        """
        return self.kind(config, vocab_size=words, num_classes=classes, embeddings=vectors)

    def reading(self, module: Any) -> Callable[[Params, Batch], Reading]:
        """Returns a pure function that maps (params, batch) to the outputs of the network.

        `batch` is the dict of `pad_texts` for B examples. The outputs are a dict of arrays, with T
        padded words and C classes: "probabilities" [B, C]; "density" [B], the share of the words
        that attention can see; "kept", for each text of an example a bool [B, T], True at these
        words; and if the network has them "attention" [B, T] and "gates" [B, T], the open
        probabilities.

        Args:
          module: the Flax module that `make` returns.
        """

        def summarize(params: Params, batch: Batch) -> Reading:
            """Returns a dict of the arrays that a prediction needs.

            It has "probabilities" [B, C] of C classes; "kept", a tuple of the masks bool [B, T] of
            the words that the network uses, a mask for each text of an example; and "density" [B],
            the share of these words. `params` are the parameters of the network, and `batch` has
            "tokens" [B, T] and "lengths" [B] of B texts of T padded words.
            """
            output = module.apply({"params": params}, batch)
            return {"probabilities": nn.softmax(output.logits), **self.summarize(output, batch)}

        return summarize


def _mask(batch: Batch, name: str = "tokens", lengths: str = "lengths") -> jax.Array:
    """Returns bool [B, T] for B texts of T padded words: True at words, False at padding.

    `name` is the key of the padded ids [B, T] in `batch`, and `lengths` that of the numbers of
    words [B]; "hypothesis" and "hypothesis_lengths" are the keys of the second texts of pairs.
    """
    return F.length_mask(batch[lengths], batch[name].shape[1])


def _density(is_open: jax.Array, mask: jax.Array) -> jax.Array:
    """Returns [B], the share of the words with an open gate in each of B texts of T padded words.

    Args:
      is_open: bool [B, T], True at words with an open gate.
      mask: bool [B, T], True at words, False at padding.
    """
    return jnp.sum(is_open, axis=1) / jnp.maximum(jnp.sum(mask, axis=1), 1)


# The next functions are the `summarize` of networks: each maps the output for a batch to a
# `Reading` without "probabilities". `_all` is for networks that leave out no word.
def _all(output: Output, batch: Batch) -> Reading:
    """Returns the reading of a network without gates, which uses all words.

    The dict has a tuple of the mask of all real words, bool [B, T], as "kept", and ones [B] as
    "density". `output` is the result of the network for the batch: "tokens" [B, T] and "lengths"
    [B] of B texts of T padded words.
    """
    mask = _mask(batch)
    return {"kept": (mask,), "density": jnp.ones(len(mask))}


def _ga_net(output: Output, batch: Batch) -> Reading:
    """Returns the reading of a GA-Net: its open words, attention and open probabilities.

    The dict has `kept`, a tuple of the mask of open words, bool [B, T], their share `density` [B],
    `attention` [B, T] and, with gates, `gates` [B, T]. `output` is a `GANetOutput` for the batch:
    "tokens" [B, T] and "lengths" [B] of B texts of T padded words.
    """
    mask = _mask(batch)
    if output.attention is None:
        return _all(output, batch)
    # Without gates, local attention leaves out the words outside of its window.
    is_open = mask & ((output.attention if output.gates is None else output.gates) > 0)
    reading = {
        "attention": output.attention,
        "kept": (is_open,),
        "density": _density(is_open, mask),
    }
    if output.gate_logits is not None:
        reading["gates"] = jnp.where(mask, nn.sigmoid(output.gate_logits), 0)
    return reading


def _agt(output: Output, batch: Batch) -> Reading:
    """Returns the reading of an AGT: all words, with the mean attention of its layers.

    The dict has `kept`, a tuple of the mask of all real words, bool [B, T], ones [B] as `density`,
    and `attention` [B, T]. `output` is an `AGTOutput` for the batch: "tokens" [B, T] and "lengths"
    [B] of B texts of T padded words.
    """
    reading = _all(output, batch)
    if output.attention is not None:
        reading["attention"] = jnp.mean(output.attention, axis=1)
    return reading


def _pool_selections(selections: Any, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Reduces the gates of pairs of words in all layers of SSAN to a gate for each word.

    A gate of a pair decides whether a word, the query, may attend to another word, the key.

    Args:
      selections: for each layer its output, with `gates` [B, M, T, T] over queries and keys, True
        at open pairs, or None; B is the number of texts, T that of their padded words, and M the
        number of heads, or 1 if they share a selector.
      mask: bool [B, T], True at the words.

    Returns:
      Bool [B, T], True at the words that more than half of the words select, as a mean over layers
      and heads; and the share of open pairs [B].
    """
    gates = [s.gates for s in selections if s.gates is not None]
    if not gates:
        return mask, jnp.ones(len(mask))
    queries = jnp.sum(mask, axis=1).clip(1)[:, None]
    share = jnp.mean(
        jnp.stack([jnp.mean(jnp.sum(g * mask[:, None, :, None], 2), 1) / queries for g in gates]), 0
    )
    return mask & (share > 0.5), jnp.sum(share * mask, axis=1) / queries[:, 0]


def _ssan(output: Output, batch: Batch) -> Reading:
    """Returns the reading of an SSAN: the selected words, and the attention that words receive.

    The dict has `kept`, a tuple of the mask of selected words, bool [B, T], `density` [B], the
    share of the pairs of words that are selected, and `attention` [B, T], which sums to 1 over the
    words of a text. `output` has the `selections` of the layers for the batch: "tokens" [B, T] and
    "lengths" [B] of B texts of T padded words.
    """
    mask = _mask(batch)
    is_selected, density = _pool_selections(output.selections, mask)
    received = [s.weights for s in output.selections if s.weights is not None]
    reading: Reading = {"kept": (is_selected,), "density": density}
    if received:
        weights = jnp.mean(jnp.stack(received), axis=(0, 2))
        # Queries at padding are no words, so their attention does not count.
        total = jnp.sum(weights * mask[:, :, None], axis=1)
        reading["attention"] = total / jnp.maximum(jnp.sum(total, axis=1, keepdims=True), 1e-9)
    return reading


def _nli(output: Output, batch: Batch) -> Reading:
    """Returns the reading of an `SSANNLI`: the selected words of both sentences.

    The dict has `kept`, a tuple of two masks of selected words, bool [B, T] for B pairs of
    sentences of T padded words, and `density` [B], the mean over both sentences of the share of
    pairs of words that are selected. `output` is an `SSANNLIOutput` for the batch: "tokens" and
    "hypothesis" [B, T], "lengths" and "hypothesis_lengths" [B].
    """
    first, first_density = _pool_selections((output.premise,), _mask(batch))
    second, second_density = _pool_selections(
        (output.hypothesis,), _mask(batch, "hypothesis", "hypothesis_lengths")
    )
    return {"kept": (first, second), "density": (first_density + second_density) / 2}


def _heads(config: Config, width: int) -> Config:
    """Returns the configuration of SSAN with the width of its word vectors as width of its states.

    `config` is the configuration before the change, and `width` is the number of components of a
    word vector. The number of heads is reduced to 4, 2 or 1 unless it divides the width.
    """
    # Each head gets an equal share of the width.
    heads = next(h for h in (config.num_heads, 4, 2, 1) if width % h == 0)
    return dataclasses.replace(config, hidden=width, num_heads=heads)


def _ga(system: str) -> Config:
    """Returns the default configuration of a network of `GANet` by the name of its system.

    `system` is "ganet", "soft", "local" or "bilstm", see `GANetConfig`.
    """
    if system == "ganet":
        return _gated_by_words()
    return models.GANetConfig(
        system=system,  # type: ignore[arg-type]
        hidden=64,
        num_layers=1,
        aux="fnn",
        aux_hidden=32,
        dropouts=GANetDropout(embedding_dropout=0.5, pool_dropout=0.5),
    )


def _gated_by_words() -> models.GANetConfig:
    """Returns the default configuration of the network "ganet", whose gates act on its input."""
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
    """Returns the configuration of a recurrent classifier with a cell, "rau", "gru" or "lstm"."""
    return models.RAUConfig(
        cell=cell,  # type: ignore[arg-type]
        hidden=64,
        dropouts=RAUDropout(embedding_dropout=0.5, state_dropout=0.5),
    )


def _selector(layers: tuple[int, ...]) -> models.SelectorConfig:
    """Returns the configuration of selectors in the layers with these numbers, from 1."""
    return models.SelectorConfig(select_layers=layers, cap=0.0)


class _Thresholded(models.GANetTask):
    """A training task that evaluates only with test-time gates, so that its program is small.

    It is constructed like `GANetTask`, from a `GANet`; a task computes the loss and the metrics of
    a batch.

    With a fixed density the open gates are the `likeliest` of a batch; `held_at` changes the bias
    of a trained network so that prediction opens the same share.
    """

    def evaluate(self, params: Params, batch: Batch) -> tuple[Any, Any]:
        """Computes (metrics, predictions) of a batch with the test-time gates.

        The metrics are a dict from "loss", "accuracy" and, with gates, "density" to `Ratio` (a sum
        and a count); the predictions are an empty dict.

        Args:
          params: the parameters of the network.
          batch: B texts of T padded words: "tokens" [B, T], "lengths" [B], "label" [B] and "weight"
            [B], 1 for texts and 0 for filler rows.
        """
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
    """Selects the words of a batch with the largest gate logits, a given share of all words.

    Words with equal logits are selected together or not at all, whichever is nearer to the share.

        >>> mask = jnp.array([[True, True, True, True, False]])
        >>> print(likeliest(jnp.array([[0.0, 2.0, 1.0, -1.0, 9.0]]), mask, 0.5))
        [[False  True  True False False]]

    Args:
      logits: [B, T], the logits of the gates of B texts of T padded words.
      mask: bool [B, T], True at words.
      density: share in [0, 1] of all words in the batch that is selected; at least a word is
        selected.

    Returns:
      bool [B, T], True at selected words.
    """
    ranked = -jnp.sort(-jnp.where(mask, logits, -jnp.inf).ravel())
    target = density * jnp.sum(mask)
    least = ranked[jnp.maximum(jnp.round(target).astype(int), 1) - 1]
    above, from_it = (mask & (logits > least)), (mask & (logits >= least))
    without, with_it = jnp.sum(above), jnp.sum(from_it)
    nearer = (without == 0) | (jnp.abs(with_it - target) <= jnp.abs(target - without))
    return jnp.where(nearer, from_it, above)


def held_at(params: Params, probabilities: np.ndarray, density: float) -> Params:
    """Changes the bias of the gates so that about a given share of words has an open gate.

    The new threshold lies between two different probabilities: gates with equal probabilities are
    open together or closed together, whichever is nearer to the share.

    Args:
      params: parameters of a `GANet`.
      probabilities: [n], the probabilities that the gates of n words are open.
      density: the share of open gates.

    Returns:
      The parameters, a tree like `params`, with another bias of the gates.
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
        about="a BiLSTM that reads the words that gates choose", config=_ga("ganet"), **_GA_NET
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
            gates=_selector((1,)),
            num_layers=1,
            hidden=100,
            filter_size=200,
            head_hidden=(),
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
    """A tagger for sentences without a marked predicate.

    It is constructed like `SSANTagger`. A batch has "tokens" [B, T] and "lengths" [B] of B
    sentences of T padded words; no word is marked as the predicate, which `SSANTagger` needs. The
    output has the `logits` [B, T, C] of C tags for each word.
    """

    def __call__(self, batch: Batch, *, train: bool = False) -> Any:
        """Runs the network without a marked predicate.

        `batch` has "tokens" int [B, T] and "lengths" int [B] of B sentences of T padded words.
        train=True adds dropout and drawn selections, from the PRNG streams "dropout" and "gate".
        The result is an `SSANTaggerOutput` with the scores of C tags, `logits` [B, T, C], and
        `selections`.
        """
        unmarked = {**batch, "is_predicate": jnp.zeros_like(batch["tokens"])}
        return super().__call__(unmarked, train=train)


class _TaggingTask(models.SSANTaggingTask):
    """A tagging task that returns metrics but no predictions when it evaluates.

    It is constructed like `SSANTaggingTask`, and the predictions of its `evaluate` are {}.
    """

    def _predictions(self, output: Output, batch: Batch) -> Any:
        """Returns {}, because a tagging model records no predictions in training."""
        return {}


def _halves(config: Config, width: int) -> Config:
    """Returns the configuration of the tagger for word vectors of a width.

    `config` is the configuration before the change, and `width` the number of components of a word
    vector. The states are twice as wide, because the vector of the predicate is appended to that of
    a word.
    """
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
