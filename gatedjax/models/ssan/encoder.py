"""SSAN (Geng et al. 2020): a Transformer encoder in which tokens select the tokens to attend to.

    s = Q_s K_s^T,  A_ij ~ Bernoulli(sigmoid(s_ij)),  e = Q K^T / sqrt(D/M)
    W_ij = A_ij exp(e_ij) / sum_k A_ik exp(e_ik)

Without a layer in `select_layers` it is the standard encoder (SAN), the paper's baseline.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import flax.linen as nn
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._utils.field_docs import document_fields
from gatedjax._utils.fields import RATE, at_least, check_fields, check_options
from gatedjax._utils.limits import MOST_LAYERS, MOST_LENGTH
from gatedjax._utils.types import Tree
from gatedjax.functional._export import exportable
from gatedjax.models._checks import Batch, check_batch, schedule
from gatedjax.models._classification import word_vectors
from gatedjax.models.ssan.selector import SelectorConfig
from gatedjax.models.transformer.encoder import (
    EncoderLayer,
    LayerBytes,
    Norm,
    add_positions,
    draw_layer_bytes,
    scaled_embedding,
)
from gatedjax.nn._attention_inputs import Relative, check_relative
from gatedjax.nn._types import Table

Positions = Literal["sinusoidal", "learned", "none"]


@document_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SSANOrder:
    """The options by which the encoder sees the order of the words, as keywords with defaults."""

    positions: Positions = "sinusoidal"
    """Vectors of positions that are added to the words: sinusoids for any length, a learned table,
    or none."""
    max_length: Annotated[int, at_least(1, MOST_LENGTH)] = 512
    """Number of positions of the learned table. A longer text is an error."""
    relative: Relative = "none"
    """Learned bias of attention per head and offset of the key, in addition to positions: "none",
    "learned" with initial values 0, or "local", where initially one head of each layer attends to
    the word before and one to the word after."""
    max_offset: Annotated[int, at_least(1)] = 8
    """Largest offset with a separate bias."""

    def __post_init__(self) -> None:
        check_options(self)


@document_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SSANDropout:
    """Dropout rates of the layers in training, in [0, 1), as keywords."""

    dropout: Annotated[float, RATE] = 0.1
    """Dropout rate on the embedded words and on the results of the sublayers."""
    attention_dropout: Annotated[float, RATE] = 0.1
    """Dropout rate on attention weights."""
    relu_dropout: Annotated[float, RATE] = 0.1
    """Dropout rate inside the feed-forward networks."""

    def __post_init__(self) -> None:
        check_options(self)


@document_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SSANMemory:
    """The options that save memory of the attention, as keywords."""

    block: Annotated[int | None, at_least(1, MOST_LENGTH)] = None
    """Number of queries that the attention processes at a time, for long texts. Attention weights
    of all pairs are neither stored nor returned. None processes all queries at once."""
    remat: bool = False
    """True computes the attention again for the gradient instead of storing it."""

    def __post_init__(self) -> None:
        check_options(self)


@document_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SSANConfig:
    """The configuration of the encoder, as keywords with defaults. num_heads must divide hidden.

    >>> config = SSANConfig(num_layers=2, gates=SelectorConfig(select_layers=(2,)))
    >>> config.attention(1)["selector"], config.attention(2)["selector"]
    ('none', 'st_gumbel')
    """

    gates: SelectorConfig = dataclasses.field(default=SelectorConfig())
    """Layers that select, and options for training their selections."""
    share_heads: bool = False
    """True shares a selection between all heads of a layer. The authors' code has a selection per
    head."""
    num_layers: Annotated[int, at_least(1, MOST_LAYERS)] = 6
    """Number of layers of the encoder."""
    hidden: Annotated[int, at_least(1)] = 128
    """Width d of words and layers."""
    filter_size: Annotated[int, at_least(1)] = 512
    """Hidden width of the feed-forward networks."""
    num_heads: Annotated[int, at_least(1)] = 4
    """Number of heads of each attention."""
    norm: Norm = "pre"
    """Place of the layer normalisation: before each sublayer, or after its residual connection."""
    order: SSANOrder = SSANOrder()
    """Options by which the encoder sees the order of the words."""
    dropouts: SSANDropout = SSANDropout()
    """Dropout rates of the layers."""
    freeze_embeddings: bool = False
    """True keeps the word vectors fixed in training."""
    memory: SSANMemory = SSANMemory()
    """Options that save memory of the attention."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Dtype of the computation. Parameters, softmax, noise and the loss stay float32."""

    def __post_init__(self) -> None:
        check_options(self)
        if self.hidden % self.num_heads:
            raise ValueError(f"num_heads must divide hidden={self.hidden}, got {self.num_heads}")
        check_relative(self.order.relative, self.num_heads)
        layers = self.gates.select_layers
        if layers != (0,) and (
            len(set(layers)) < len(layers) or not all(1 <= x <= self.num_layers for x in layers)
        ):
            raise ValueError(
                f"select_layers must be different layers in [1, {self.num_layers}] or, for no "
                f"selection, 0, got {layers}"
            )

    def attention(self, layer: int) -> dict[str, Tree]:
        """Returns keyword arguments for the `nn.SelectiveSelfAttention` of a layer.

        The result is a dict by the names of the options, such as "num_heads" and "selector". layer
        is the number of the layer, from 1.
        """
        return {
            "num_heads": self.num_heads,
            "selector": self.gates.selector_of(layer),
            "share_heads": self.share_heads,
            "empty": self.gates.empty,
            "cap": self.gates.cap,
            "temperature": self.gates.temperature,
            "relative": self.order.relative,
            "max_offset": self.order.max_offset,
            "dropout": self.dropouts.attention_dropout,
            "block": self.memory.block,
            "remat": self.memory.remat,
        }


@exportable
@struct.dataclass
class SSANEncoderOutput:
    """The output of an `SSANEncoder` for B texts of N words.

    Attributes:
      states: states of the last layer [B, N, d], of the width d = `hidden`, 0 at padding.
      selections: an `nn.Selection` for each layer, with its attention weights and selections.
    """

    states: Array
    selections: tuple[gnn.Selection, ...]


class SSANEncoder(nn.Module):
    """A Transformer encoder with layers in which tokens may select the tokens to attend to.

        >>> import jax
        >>> config = SSANConfig(num_layers=1, hidden=8, num_heads=2, filter_size=16)
        >>> model = SSANEncoder(config, vocab_size=50)
        >>> batch = {"tokens": jnp.array([[7, 9, 3]]), "lengths": jnp.array([3])}
        >>> init = model.init_with_output
        >>> output, variables = jax.eval_shape(init, jax.random.key(0), batch)
        >>> print(output.states.shape, output.selections[0].gates.shape)
        (1, 3, 8) (1, 2, 3, 3)

    Call the network with a batch of B texts of at most N words, {"tokens": int [B, N], "lengths":
    int [B]}. Training draws from the PRNG streams "dropout" and "gate". The draws depend on the
    number of the row, or on "example_id": int [B] if the batch has it. With a `final_temperature`
    the batch also needs "step": int [B], the number of the training step, repeated in each row.

    Attributes:
      config: an `SSANConfig`, the options of the encoder.
      vocab_size: rows of the embedding table, padding included.
      embeddings: a pretrained table [vocab_size, d] as the initial word vectors, or None. Without
        it the vectors are drawn from normal(0, 1/d), and multiplied by sqrt(d) in the network, for
        the width d = `hidden`.
      embedding_dim: width of the word vectors, also in these rules, if they are mapped to the width
        `hidden` by a linear layer; None means `hidden`, without such a layer.

    Reference: Geng et al. 2020, "How Does Selective Mechanism Improve Self-Attention Networks?".
    """

    config: SSANConfig
    vocab_size: int
    embeddings: Table | None = None
    embedding_dim: int | None = None

    @nn.compact
    def __call__(self, batch: Batch, *, train: bool = False) -> SSANEncoderOutput:
        """Encodes texts.

        Args:
          batch: "tokens" int [B, N] and "lengths" int [B] of B texts of at most N words; optionally
            "example_id" int [B], the examples to which random bits belong (default: row numbers).
          train: True runs the network with dropout and drawn selections, from the PRNG streams
            "dropout" and "gate".

        Returns:
          An `SSANEncoderOutput` with the states and the selections of each layer.

        Raises:
          ValueError: also if a text is longer than the table of learned positions.
        """
        check_fields(self)
        c = self.config
        check_batch(batch, tokens="B N", lengths="B")
        tokens = batch["tokens"]
        mask = F.length_mask(batch["lengths"], tokens.shape[1])
        dtype = jnp.dtype(c.dtype)
        width = c.hidden if self.embedding_dim is None else self.embedding_dim
        init = scaled_embedding(width)
        states = word_vectors(self, width, embedding_init=init, name="embed")(tokens)
        # Drawn vectors are scaled to unit variance, whereas pretrained vectors keep their scale.
        if self.embeddings is None:
            states = states * jnp.asarray(width**0.5, dtype)
        if self.embedding_dim is not None:
            states = nn.Dense(c.hidden, dtype=dtype, name="projection")(states)
        states, selections = run_layers(self, self._add_positions(states), mask, batch, train)
        # The biases of the layers give padding states other than 0.
        states = jnp.where(mask[..., None], states, jnp.zeros_like(states))
        return SSANEncoderOutput(states=states, selections=selections)

    def _add_positions(self, states: Float[Array, "B N D"]) -> Float[Array, "B N D"]:
        """Returns the states, N word vectors of width D, plus vectors of positions."""
        c, size = self.config, states.shape[1]
        if c.order.positions == "sinusoidal":
            return add_positions(states)
        if c.order.positions == "learned":
            longest = c.order.max_length
            if size > longest:
                raise ValueError(f"tokens.shape[1] must be at most {longest}, got {size}")
            shape = (longest, c.hidden)
            table = self.param("position_embedding", nn.initializers.normal(c.hidden**-0.5), shape)
            return states + table[None, :size].astype(states.dtype)
        return states


def run_layers(
    module: Any,
    states: Float[Array, "B N D"],
    mask: Bool[Array, "B N"],
    batch: Batch,
    train: bool,
    **options: Any,
) -> tuple[Float[Array, "B N D"], tuple[gnn.Selection, ...]]:
    """Runs dropout on the inputs, all layers, and the last normalisation, for the compact method of
    a network with an `SSANConfig`; `options` are those of all `EncoderLayer`s. Returns the states,
    with any values at padding, and the selection of each layer.
    """
    c: SSANConfig = module.config
    ids, dtype, rates = batch.get("example_id"), jnp.dtype(c.dtype), c.dropouts
    layer_bytes: Sequence[LayerBytes | None] = [None] * c.num_layers
    # A network without dropout need not have the stream "dropout".
    if train and max(rates.dropout, rates.attention_dropout, rates.relu_dropout) > 0:
        first, layer_bytes = draw_layer_bytes(
            module,
            ids,
            states.shape[:2],
            layers=c.num_layers,
            sublayers=2,
            # An attention in blocks draws the bytes of each block itself, because bytes for all
            # pairs would be as large as the weights that blocks avoid.
            keys=states.shape[1:2] if c.memory.block is None else (),
            heads=c.num_heads,
            features=c.hidden,
            hidden=c.filter_size,
        )
        states = F.byte_dropout(states, rates.dropout, first)
    # Evaluation opens selections by a threshold and has no temperature.
    temperature = schedule(c.gates, batch.get("step")) if train and c.gates.selective else None
    selections = []
    for layer in range(1, c.num_layers + 1):
        states, selection = EncoderLayer(
            c.attention(layer),
            c.filter_size,
            norm=c.norm,
            dropout=rates.dropout,
            relu_dropout=rates.relu_dropout,
            dtype=dtype,
            name=f"layer_{layer}",
            **options,
        )(
            states,
            mask,
            deterministic=not train,
            example_id=ids,
            temperature=temperature,
            dropout_bytes=layer_bytes[layer - 1],
        )
        selections.append(selection)
    # With normalisation before the sublayers the last sum is not normalised yet.
    if c.norm == "pre":
        states = nn.LayerNorm(dtype=dtype, name="norm")(states)
    return states, tuple(selections)
