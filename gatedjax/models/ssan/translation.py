"""SSAN (Geng et al. 2020), translation: a Transformer with a selective encoder.

    p(y | x) = prod_t softmax(E z_t),  z_t = decoder(y_1 .. y_{t-1}, encoder(x))

The decoder is standard. Without a layer in `select_layers` the network is the standard Transformer,
the paper's baseline.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._utils.field_docs import document_fields
from gatedjax._utils.fields import RATE, at_least, check_fields
from gatedjax._utils.limits import MOST_LAYERS
from gatedjax._utils.types import Keywords, Output, Params, Tree
from gatedjax.functional._devices import take_rows
from gatedjax.functional._export import exportable
from gatedjax.models._checks import Batch, Metrics, Predictions, check_batch
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
from gatedjax.models.transformer.search import Found, beam_search, check_search
from gatedjax.training import Ratio

PAD, UNK, START, STOP = 0, 1, 2, 3
"""Reserved ids of both languages: padding, unknown, before the first token, after the last."""
NEVER = (PAD, UNK, START)
"""Ids that are never tokens of a translation."""


@document_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SSANTranslatorConfig(SSANConfig):
    """The configuration of encoder and decoder, as keywords with defaults.

    >>> SSANTranslatorConfig(num_layers=2, decoder_layers=1).hidden
    256
    """

    hidden: Annotated[int, at_least(1)] = 256
    """Width d of words and layers."""
    filter_size: Annotated[int, at_least(1)] = 1024
    """Hidden width of the feed-forward networks."""
    decoder_layers: Annotated[int, at_least(1, MOST_LAYERS)] = 6
    """Number of layers of the decoder."""
    share_embeddings: bool = True
    """True shares a table of word vectors between both languages, which then share a vocabulary."""
    tie_output: bool = True
    """True scores target words with their word vectors instead of a separate matrix."""
    label_smoothing: Annotated[float, RATE] = 0.1
    """Share of the probability that the training target spreads evenly over all words."""


@exportable
@struct.dataclass
class SSANTranslatorOutput:
    """The output of an `SSANTranslator` for B sources of N words and targets of T words.

    Attributes:
      logits: scores of the next target word [B, T, V], float32, for V target words.
      encoded: states of the encoder [B, N, d], of the width d = `hidden`, 0 at padding.
      selections: an `nn.Selection` for each encoder layer, with its attention weights and
        selections.
      baseline: the expected reward of the estimator "reinforce", a scalar; None for other
        estimators.
    """

    logits: Array
    encoded: Array
    selections: tuple[gnn.Selection, ...]
    baseline: Array | None = None


class SSANTranslator(nn.Module):
    """A Transformer with encoder and decoder; the layers of the encoder may have a selector.

        >>> sizes = {"num_layers": 1, "decoder_layers": 1, "hidden": 8, "filter_size": 16}
        >>> model = SSANTranslator(SSANTranslatorConfig(**sizes), vocab_size=50)
        >>> batch = {"tokens": jnp.array([[7, 9, 3]]), "lengths": jnp.array([3])}
        >>> batch |= {"targets": jnp.array([[8, 3]]), "target_lengths": jnp.array([2])}
        >>> output, _ = jax.eval_shape(model.init_with_output, jax.random.key(0), batch)
        >>> print(output.logits.shape)
        (1, 2, 50)

    Call the network with a batch {"tokens": int [B, N], "lengths": int [B], "targets": int [B, T],
    "target_lengths": int [B]}: ids of N source and T target words, both ending with the stop token
    3. The decoder reads the targets shifted by a position, after the start token 2. `SSANEncoder`
    describes the PRNG streams and the optional arrays of training.

    Attributes:
      config: an `SSANTranslatorConfig`, the options of the network.
      vocab_size: vocabulary size of the source, and of the target if they share embeddings.
      target_vocab_size: vocabulary size of the target; None means vocab_size.

    Reference: Geng et al. 2020 (SSAN), section 3.3; Vaswani et al. 2017.
    """

    config: SSANTranslatorConfig
    vocab_size: int
    target_vocab_size: int | None = None

    def setup(self) -> None:
        """Creates the encoder, the decoder layers and the target embedding as attributes."""
        check_fields(self)
        c = self.config
        dtype = jnp.dtype(c.dtype)
        target_size = self.target_vocab_size or self.vocab_size
        if c.share_embeddings and target_size != self.vocab_size:
            raise ValueError(
                f"target_vocab_size must be {self.vocab_size} for share_embeddings=True, got "
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
        # Only "pre" leaves the sum of the last layer without a normalisation.
        if c.norm == "pre":
            self.decoder_norm = nn.LayerNorm(dtype=dtype)
        shape, init = (target_size, c.hidden), scaled_embedding(c.hidden)
        if not c.share_embeddings:
            self.target_embedding = self.param("target_embedding", init, shape)
        if not c.tie_output:
            self.output_embedding = self.param("output_embedding", init, shape)
        if c.order.positions == "learned":
            positions = nn.initializers.normal(c.hidden**-0.5)
            longest = (c.order.max_length, c.hidden)
            self.position_embedding = self.param("position_embedding", positions, longest)
        self.baseline = loss_parameters(self, c.gates)

    def __call__(self, batch: Batch, *, train: bool = False) -> SSANTranslatorOutput:
        """Scores each target word, given the source and the target words before it.

        Args:
          batch: "tokens" int [B, N] (N source words), "lengths" [B], "targets" int [B, T] (T target
            words) and "target_lengths" [B]. All end with the stop token 3.
          train: True runs the network with dropout and drawn selections, from the PRNG streams
            "dropout" and "gate".

        Returns:
          An `SSANTranslatorOutput` with the scores of the next words and the selections.

        Raises:
          ValueError: also if a text is longer than the table of learned positions.
        """
        check_batch(batch, tokens="B N", lengths="B", targets="B T", target_lengths="B")
        targets, lengths = batch["targets"], batch["target_lengths"]
        encoded = self.encode(batch, train=train)
        # The decoder predicts word t from the words before it, so its inputs are the targets
        # shifted by one.
        before = jnp.pad(targets, ((0, 0), (1, 0)), constant_values=START)[:, :-1]
        states = self._add_positions(self._embed(before))
        c = self.config
        decoder_bytes: Sequence[LayerBytes | None] = [None] * c.decoder_layers
        if (
            train
            and max(c.dropouts.dropout, c.dropouts.attention_dropout, c.dropouts.relu_dropout) > 0
        ):
            first, decoder_bytes = self._draw(batch)
            states = F.byte_dropout(states, c.dropouts.dropout, first)
        mask = causal_mask(F.length_mask(lengths, targets.shape[1]))
        source_mask = self._source_mask(batch)
        for layer, layer_bytes in zip(self.decoder, decoder_bytes, strict=True):
            states = layer(states, mask, layer.source(encoded.states), source_mask, layer_bytes)
        return SSANTranslatorOutput(
            logits=self._logits(states),
            encoded=encoded.states,
            selections=encoded.selections,
            baseline=self.baseline,
        )

    def encode(self, batch: Batch, *, train: bool = False) -> SSANEncoderOutput:
        """Encodes the sources of a batch.

        batch has "tokens" int [B, N] (N words per source) and "lengths" int [B]; train=True draws
        selections and dropout. Returns the states [B, N, d], of the width d, and an `nn.Selection`
        per layer.
        """
        return self.encoder(batch, train=train)

    def start(self, batch: Batch, beams: int, size: int) -> dict[str, Tree]:
        """Computes the arrays that `step` needs.

        Args:
          batch: "tokens" int [B, N] and "lengths" int [B] of B sources of at most N words.
          beams: K, the number of targets per source.
          size: T, the maximum number of tokens of a target.

        Returns:
          A dict: "source", for each decoder layer a pair of keys and values [B, M, N, H] of M heads
          of width H; "mask" [B, 1, 1, N], True at real tokens of the source; and "cache", for each
          decoder layer a pair of keys and values [B, K, M, T, H], all 0.

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
        """Computes the log-probabilities of the next tokens.

        Args:
          tokens: the tokens at `position` of each of K targets of B sources.
          cache: keys and values of the tokens before, a pair for each layer of the decoder: "cache"
            of `start`, or the cache that the last step returned.
          position: the position, from 0.
          source: keys and values of the source for each layer: "source" of `start`.
          mask: True at the real ones of N tokens of the source: "mask" of `start`.

        Returns:
          The log-probabilities of the V words at position + 1, and the cache with `tokens`.
        """
        states = self._embed(tokens)
        if self.config.order.positions == "sinusoidal":
            place = F.sinusoids(position[None], self.config.hidden, states.dtype)
            states = states + place[None]
        elif self.config.order.positions == "learned":
            states = states + self.position_embedding[position].astype(states.dtype)[None, None]
        filled = []
        for layer, before, memory in zip(self.decoder, cache, source, strict=True):
            states, new_cache = layer.step(states, before, position, memory, mask)
            filled.append(new_cache)
        log_probs = jax.nn.log_softmax(self._logits(states), axis=-1)
        return log_probs, filled

    def _draw(self, batch: Batch) -> tuple[Array, list[LayerBytes]]:
        """Draws the random bytes for the dropout of the decoder."""
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
        if not self.config.share_embeddings:
            return self.target_embedding
        table = self.encoder.variables["params"]["embed"]["embedding"]
        # The encoder stops the gradient only where it looks words up, and the decoder uses the same
        # table.
        return jax.lax.stop_gradient(table) if self.config.freeze_embeddings else table

    def _embed(self, tokens: Int[Array, "*B"]) -> Float[Array, "*B D"]:
        vectors = take_rows(self._table(), tokens).astype(jnp.dtype(self.config.dtype))
        # The table has the standard deviation 1 / sqrt(d), and inputs are scaled to unit variance,
        # as in the authors' code.
        return vectors * jnp.asarray(self.config.hidden**0.5, vectors.dtype)

    def _add_positions(self, states: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        if self.config.order.positions == "sinusoidal":
            return add_positions(states)
        if self.config.order.positions == "learned":
            size = states.shape[1]
            self._check_size(size, "targets.shape[1]")
            return states + self.position_embedding[None, :size].astype(states.dtype)
        return states

    def _check_size(self, size: int, name: str) -> None:
        longest = self.config.order.max_length
        if self.config.order.positions == "learned" and size > longest:
            raise ValueError(f"{name} must be at most {longest}, got {size}")

    def _source_mask(self, batch: Batch) -> Bool[Array, "B 1 1 N"]:
        return F.length_mask(batch["lengths"], batch["tokens"].shape[1])[:, None, None]

    def _logits(self, states: Float[Array, "*B D"]) -> Float[Array, "*B V"]:
        # With normalisation before the sublayers the last sum is not normalised yet.
        if self.config.norm == "pre":
            states = self.decoder_norm(states)
        table = self._table() if self.config.tie_output else self.output_embedding
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
    """Translates a batch. Compile it with `jax.jit` and the options as static arguments.

        >>> sizes = {"num_layers": 1, "decoder_layers": 1, "hidden": 8, "filter_size": 16}
        >>> model = SSANTranslator(SSANTranslatorConfig(**sizes), vocab_size=50)
        >>> batch = {"tokens": jnp.array([[7, 9, 3]]), "lengths": jnp.array([3])}
        >>> targets = {"targets": jnp.array([[8, 3]]), "target_lengths": jnp.array([2])}
        >>> variables = jax.eval_shape(model.init, jax.random.key(0), batch | targets)
        >>> best = jax.eval_shape(lambda p: translate(model, p, batch), variables["params"])
        >>> best.tokens.shape
        (1, 4, 53)

    Args:
      model: the network.
      params: the parameters of the network.
      batch: "tokens" int [B, N] and "lengths" int [B] of B sources of at most N words.
      beam_size: number of targets that the search follows; 1 is greedy search.
      length_penalty: alpha, which favours long targets (Wu et al. 2016, eq. 14); without effect for
        a beam_size of 1.
      extra: the maximum number of tokens of a target, beyond the length of its source.

    Returns:
      A `Found` with `tokens` int [B, beam_size, N + extra], the best targets of each source with
      their stop tokens, the best first and 0 after the end, and their `scores` [B, beam_size],
      log-probabilities divided by the length penalty, but undivided for a beam_size of 1. They
      depend neither on padding nor on the rest of the batch.

    Raises:
      ValueError: if an option is out of range.
    """
    if extra < 1:
        raise ValueError(f"extra must be at least 1, got {extra}")
    # The size of the loop is static, so it follows from the padded sources; `limits` below has the
    # limit of each target.
    size = batch["tokens"].shape[1] + extra
    check_search(beam_size, length_penalty, size)
    variables = {"params": params}
    arrays: Tree = model.apply(variables, batch, beam_size, size, method=SSANTranslator.start)

    def step(tokens: Array, cache: Tree, position: Array) -> tuple[Array, Tree]:
        """Returns (log-probabilities [B, K, V] of V next words, cache) for the search."""
        log_probs, cache = model.apply(
            variables,
            tokens,
            cache,
            position,
            arrays["source"],
            arrays["mask"],
            method=SSANTranslator.step,
        )
        # Training never has these ids as next words, but the softmax gives them a probability.
        return log_probs.at[..., jnp.array(NEVER)].set(-jnp.inf), cache

    options: Keywords = {"size": size, "start": START, "stop": STOP}
    # The limit of a target depends on its source and not on the padding of the batch.
    limits = batch["lengths"].astype(jnp.int32) + extra
    # The score of greedy search is the log-probability, which is not divided.
    alpha = 0.0 if beam_size == 1 else length_penalty
    return beam_search(step, arrays["cache"], limits, beam_size=beam_size, alpha=alpha, **options)


@dataclasses.dataclass(frozen=True)
class SSANTranslationTask(SelectorTask):
    """The task for training an `SSANTranslator` with smoothed cross-entropy per word.

    A batch has the arrays of `training.Task` and `SSANTranslator`. The metrics are "loss" (not
    smoothed), "perplexity" and "accuracy" per word, and for a layer with a selector, such as
    layer 1, "selected_1" and "empty_1": the share of pairs of source words that are selected, and
    of words that select no word. The predictions are "nll", the negative log-likelihood of each
    target, and "words", its length.

        >>> SSANTranslationTask(SSANTranslator(SSANTranslatorConfig(), vocab_size=50)).frozen
        ()

    Attributes:
      model: the network.
    """

    model: SSANTranslator

    by_word: ClassVar[bool] = True

    def _cost(self, output: Output, batch: Batch) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
        words = batch["target_lengths"].astype(jnp.float32)
        real = F.length_mask(batch["target_lengths"], batch["targets"].shape[1])
        smoothing = self.model.config.label_smoothing
        smoothed = smoothed_cross_entropy(output.logits, batch["targets"], smoothing)
        return jnp.sum(jnp.where(real, smoothed, 0), axis=1), words

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
    targets = batch["targets"]
    right = (jnp.argmax(logits, axis=-1) == targets).astype(jnp.float32)
    real = F.length_mask(batch["target_lengths"], targets.shape[1])
    return smoothed_cross_entropy(logits, targets, 0.0), right, real
