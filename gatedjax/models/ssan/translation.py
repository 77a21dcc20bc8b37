"""SSAN (Geng et al. 2020), translation: a Transformer whose encoder selects whom it attends to.

    p(y | x) = prod_t softmax(E z_t),  z_t = decoder(y_1 .. y_{t-1}, encoder(x))

The decoder is the standard one. Without a layer in `select_layers` the whole is the standard
Transformer, the paper's baseline.
"""

import dataclasses
from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._utils.groups import with_groups
from gatedjax._utils.types import Options, Output, Params, Tree
from gatedjax.functional._devices import take_rows
from gatedjax.functional._export import exportable
from gatedjax.models._checks import check_at_least, check_batch, check_rates
from gatedjax.models._types import Batch, Metrics, Predictions
from gatedjax.models.ssan.encoder import SSANConfig, SSANEncoder, SSANEncoderOutput
from gatedjax.models.ssan.selector import SelectorTask, loss_parameters
from gatedjax.models.transformer.decoder import (
    DecoderLayer,
    KeyValue,
    causal_mask,
    empty_cache,
    smoothed_cross_entropy,
)
from gatedjax.models.transformer.encoder import (
    LayerBytes,
    add_positions,
    draw_layer_bytes,
    scaled_embedding,
)
from gatedjax.models.transformer.search import Found, beam_search, check_search, greedy_search
from gatedjax.training import Ratio

PAD, UNK, START, STOP = 0, 1, 2, 3
"""The ids that both languages reserve: padding, unknown, before the first token, after the last."""
NEVER = (PAD, UNK, START)
"""What is never a token of a translation."""


@with_groups
@dataclasses.dataclass(frozen=True, kw_only=True)
class SSANTranslatorConfig(SSANConfig):
    """Encoder and decoder."""

    hidden: int = 256
    """Width d of words and layers."""
    filter_size: int = 1024
    """Hidden width of the feed-forward networks."""
    decoder_layers: int = 6
    """Layers of the decoder."""
    share_embeddings: bool = True
    """One table for the words of both languages, which then have one vocabulary."""
    tie_output: bool = True
    """Score target words with their own vectors, without a matrix for it."""
    label_smoothing: float = 0.1
    """Share of the target's mass that training gives to all words alike."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "decoder_layers")
        check_rates(self, "label_smoothing")


@exportable
@struct.dataclass
class SSANTranslatorOutput:
    """What one pass over source and target computed.

    Attributes:
      logits: scores of the next target word [B, T, V], float32.
      encoded: states of the encoder [B, N, d], 0 at padding.
      selections: what the attention of every encoder layer did (see `nn.Selection`).
      baseline: expected reward of the estimator "reinforce", else None.
    """

    logits: Array
    encoded: Array
    selections: tuple[gnn.Selection, ...]
    baseline: Array | None = None


class SSANTranslator(nn.Module):
    """An encoder-decoder Transformer whose encoder layers may select.

    Attributes:
      config: the network.
      vocab_size: of the source, and of the target if they share embeddings.
      target_vocab_size: of the target; None is vocab_size.

    Call with a batch {"tokens": int [B, N], "lengths": int [B], "targets": int [B, T],
    "target_lengths": int [B]}: ids of source and target, both ending with the stop token 3; the
    decoder reads the targets shifted by one, after the start token 2. Training draws from the
    streams "dropout" and "gate", keyed to "example_id".

    Reference: Geng et al. 2020 (SSAN), section 3.3; Vaswani et al. 2017.
    """

    config: SSANTranslatorConfig
    vocab_size: int
    target_vocab_size: int | None = None

    def setup(self) -> None:
        """Creates the layers."""
        c = self.config
        dtype = jnp.dtype(c.dtype)
        target_size = self.target_vocab_size or self.vocab_size
        if c.share_embeddings and target_size != self.vocab_size:
            raise ValueError(
                f"target_vocab_size must be {self.vocab_size} with share_embeddings, got "
                f"{target_size}"
            )
        self.encoder = SSANEncoder(c, self.vocab_size)
        self.decoder = [
            DecoderLayer(
                c.num_heads,
                c.hidden,
                c.filter_size,
                norm=c.norm,
                dropout=c.dropouts.dropout,
                attention_dropout=c.dropouts.attention_dropout,
                relu_dropout=c.dropouts.relu_dropout,
                dtype=dtype,
            )
            for _ in range(c.decoder_layers)
        ]
        if c.norm == "pre":
            self.decoder_norm = nn.LayerNorm(dtype=dtype)
        shape, init = (target_size, c.hidden), scaled_embedding(c.hidden)
        if not c.share_embeddings:
            self.target_table = self.param("target_table", init, shape)
        if not c.tie_output:
            self.output_table = self.param("output_table", init, shape)
        if c.order.positions == "learned":
            positions = nn.initializers.normal(c.hidden**-0.5)
            self.positions = self.param("positions", positions, (c.order.max_length, c.hidden))
        self.baseline = loss_parameters(self, c.gates)

    def __call__(self, batch: Batch, *, train: bool = False) -> SSANTranslatorOutput:
        """Scores every target word after those before it.

        To train, with dropout and drawn selections.

        Raises:
          ValueError: also if a text is longer than the table of learned positions.
        """
        check_batch(batch, tokens="B N", lengths="B", targets="B T", target_lengths="B")
        targets, lengths = batch["targets"], batch["target_lengths"]
        encoded = self.encode(batch, train=train)
        before = jnp.pad(targets, ((0, 0), (1, 0)), constant_values=START)[:, :-1]
        states = self._placed(self._embed(before))
        c = self.config
        drawn: Sequence[LayerBytes | None] = [None] * c.decoder_layers
        if (
            train
            and max(c.dropouts.dropout, c.dropouts.attention_dropout, c.dropouts.relu_dropout) > 0
        ):
            first, drawn = self._draw(batch)
            states = F.byte_dropout(states, c.dropouts.dropout, first)
        mask = causal_mask(F.length_mask(lengths, targets.shape[1]))
        source_mask = self._source_mask(batch)
        for layer, layer_bytes in zip(self.decoder, drawn, strict=True):
            states = layer(states, mask, layer.source(encoded.states), source_mask, layer_bytes)
        return SSANTranslatorOutput(
            logits=self._logits(states),
            encoded=encoded.states,
            selections=encoded.selections,
            baseline=self.baseline,
        )

    def encode(self, batch: Batch, *, train: bool = False) -> SSANEncoderOutput:
        """Encodes the sources."""
        return self.encoder(batch, train=train)

    def start(self, batch: Batch, beams: int, size: int) -> dict[str, Tree]:
        """Everything that `step` needs to write K targets of at most `size` tokens per source.

        Returns:
          {"source": keys and values per layer, "mask": of the source, "cache": what `step` fills,
          leaves [B, K, ...]}.

        Raises:
          ValueError: if size is beyond the table of learned positions.
        """
        c = self.config
        self._check_size(size, "size")
        states = self.encode(batch).states
        dtype = jnp.dtype(c.dtype)
        rows, width = states.shape[0], c.hidden // c.num_heads
        return {
            "source": [layer.source(states) for layer in self.decoder],
            "mask": self._source_mask(batch),
            "cache": [
                empty_cache(rows, beams, c.num_heads, size, width, dtype) for _ in self.decoder
            ],
        }

    def step(
        self,
        tokens: Int[Array, "B K"],
        cache: list[tuple[Array, Array]],
        position: Int[Array, ""],
        source: list[KeyValue],
        mask: Bool[Array, "B 1 1 N"],
    ) -> tuple[Float[Array, "B K V"], list[tuple[Array, Array]]]:
        """Log-probabilities of the token after the one at `position`, and the cache with it."""
        states = self._embed(tokens)
        if self.config.order.positions == "sinusoidal":
            place = F.sinusoids(position[None], self.config.hidden, states.dtype)
            states = states + place[None]
        elif self.config.order.positions == "learned":
            states = states + self.positions[position].astype(states.dtype)[None, None]
        filled = []
        for layer, before, memory in zip(self.decoder, cache, source, strict=True):
            states, one = layer.step(states, before, position, memory, mask)
            filled.append(one)
        log_probs = jax.nn.log_softmax(self._logits(states), axis=-1)
        return log_probs, filled

    def _draw(self, batch: Batch) -> tuple[Array, list[LayerBytes]]:
        """The random bytes of the decoder's dropout."""
        c = self.config
        return draw_layer_bytes(
            self,
            batch.get("example_id"),
            batch["targets"].shape,
            layers=c.decoder_layers,
            sublayers=3,
            keys=(batch["targets"].shape[1], batch["tokens"].shape[1]),
            heads=c.num_heads,
            features=c.hidden,
            hidden=c.filter_size,
        )

    def _table(self) -> Float[Array, "V D"]:
        """The vectors of target words."""
        if not self.config.share_embeddings:
            return self.target_table
        table = self.encoder.variables["params"]["embed"]["table"]
        return jax.lax.stop_gradient(table) if self.config.freeze_embeddings else table

    def _embed(self, tokens: Int[Array, "*B"]) -> Float[Array, "*B D"]:
        vectors = take_rows(self._table(), tokens).astype(jnp.dtype(self.config.dtype))
        return vectors * jnp.asarray(self.config.hidden**0.5, vectors.dtype)

    def _placed(self, states: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        if self.config.order.positions == "sinusoidal":
            return add_positions(states)
        if self.config.order.positions == "learned":
            size = states.shape[1]
            self._check_size(size, "targets")
            return states + self.positions[None, :size].astype(states.dtype)
        return states

    def _check_size(self, size: int, name: str) -> None:
        longest = self.config.order.max_length
        if self.config.order.positions == "learned" and size > longest:
            raise ValueError(f"{name} must be at most {longest} positions long, got {size}")

    def _source_mask(self, batch: Batch) -> Bool[Array, "B 1 1 N"]:
        return F.length_mask(batch["lengths"], batch["tokens"].shape[1])[:, None, None]

    def _logits(self, states: Float[Array, "*B D"]) -> Float[Array, "*B V"]:
        if self.config.norm == "pre":
            states = self.decoder_norm(states)
        table = self._table() if self.config.tie_output else self.output_table
        return jnp.einsum(
            "...d,vd->...v", states, table.astype(states.dtype), preferred_element_type=jnp.float32
        )


def translate(
    model: SSANTranslator,
    params: Params,
    batch: Batch,
    *,
    beam_size: int = 4,
    length_penalty: float = 0.6,
    extra: int = 50,
) -> Found:
    """Translates a batch; compile it with `jax.jit` and the options as static arguments.

    Args:
      model: the network.
      params: its parameters.
      batch: "tokens" and "lengths" of the sources.
      beam_size: targets that are followed; 1 is greedy search.
      length_penalty: alpha, which favours long targets (see `length_penalty` in the paper of
        Wu et al. 2016); without effect for a beam of 1.
      extra: a target has at most this many tokens more than its source.

    Returns:
      The best targets of every source with their stop token, and their scores. What a source
      becomes depends on neither padding nor the rest of the batch.
    """
    if extra < 1:
        raise ValueError(f"extra must be at least 1, got {extra}")
    size = batch["tokens"].shape[1] + extra
    check_search(beam_size, length_penalty, size)
    variables = {"params": params}
    begun: Tree = model.apply(variables, batch, beam_size, size, method=SSANTranslator.start)

    def step(tokens: Array, cache: Tree, position: Array) -> tuple[Array, Tree]:
        log_probs, cache = model.apply(
            variables,
            tokens,
            cache,
            position,
            begun["source"],
            begun["mask"],
            method=SSANTranslator.step,
        )
        return log_probs.at[..., jnp.array(NEVER)].set(-jnp.inf), cache

    options: Options = {"size": size, "start": START, "stop": STOP}
    limits = batch["lengths"].astype(jnp.int32) + extra
    if beam_size == 1:
        return greedy_search(step, begun["cache"], limits, **options)
    return beam_search(
        step, begun["cache"], limits, beam_size=beam_size, alpha=length_penalty, **options
    )


@dataclasses.dataclass(frozen=True)
class SSANTranslationTask(SelectorTask):
    """How an `SSANTranslator` is trained and evaluated: smoothed cross-entropy of target words.

    Metrics: "loss" (not smoothed), "perplexity" and "accuracy" per word, "selected_L" and
    "empty_L". Predictions: what every example cost.

    Attributes:
      model: the network.
    """

    model: SSANTranslator

    def _cost(self, output: Output, batch: Batch) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
        words = batch["target_lengths"].astype(jnp.float32)
        real = F.length_mask(batch["target_lengths"], batch["targets"].shape[1])
        smoothing = self.model.config.label_smoothing
        smoothed = smoothed_cross_entropy(output.logits, batch["targets"], smoothing)
        return jnp.sum(jnp.where(real, smoothed, 0), axis=1), words

    def _trained(self, cost: Float[Array, " B"], weight: Float[Array, " B"]) -> Metrics:
        return {}  # "loss" is per word, as in evaluation

    def _metrics(self, output: Output, batch: Batch) -> Metrics:
        nll, right, real = (value.reshape(-1) for value in _scores(output.logits, batch))
        weight = real.astype(jnp.float32)
        loss = Ratio.of(nll, weight)
        return {"loss": loss, "perplexity": loss, "accuracy": Ratio.of(right, weight)}

    def _predictions(self, output: Output, batch: Batch) -> Predictions:
        nll, _, real = _scores(output.logits, batch)
        return {
            "example_id": batch["example_id"],
            "words": batch["target_lengths"],
            "nll": jnp.sum(jnp.where(real, nll, 0), axis=1),
        }


def _scores(logits: Array, batch: Batch) -> tuple[Array, Array, Array]:
    """(negative log-likelihood, whether it was guessed, whether it is real) of every word."""
    targets = batch["targets"]
    right = (jnp.argmax(logits, axis=-1) == targets).astype(jnp.float32)
    real = F.length_mask(batch["target_lengths"], targets.shape[1])
    return smoothed_cross_entropy(logits, targets, 0.0), right, real
