"""SSAN (Geng et al. 2020): a Transformer encoder in which tokens select whom they attend to.

    s = Q_s K_s^T,  A_ij ~ Bernoulli(sigmoid(s_ij)),  e = Q K^T / sqrt(D/M)
    W_ij = A_ij exp(e_ij) / sum_k A_ik exp(e_ik)

Without a layer in `select_layers` it is the standard encoder (SAN), the paper's baseline.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import flax.linen as nn
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._utils.choices import check_choices
from gatedjax._utils.groups import with_groups
from gatedjax._utils.limits import MOST_WIDTH, check_most
from gatedjax._utils.numbers import make_plain
from gatedjax._utils.types import Tree
from gatedjax.functional._export import exportable
from gatedjax.models._checks import check_at_least, check_batch, check_rates
from gatedjax.models._classification import word_vectors
from gatedjax.models._schedule import schedule
from gatedjax.models._types import Batch
from gatedjax.models.ssan.selector import SelectorConfig
from gatedjax.models.transformer.encoder import (
    EncoderLayer,
    LayerBytes,
    Norm,
    add_positions,
    draw_layer_bytes,
    scaled_embedding,
)
from gatedjax.nn._relative import Relative, check_relative
from gatedjax.nn._types import Table

Positions = Literal["sinusoidal", "learned", "none"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SSANOrder:
    """What tells the encoder the order of the words."""

    positions: Positions = "sinusoidal"
    """What tells the encoder the order: sinusoids for any length, a table, or nothing."""
    max_length: int = 512
    """Positions of the learned table; a longer text is refused."""
    relative: Relative = "none"
    """Beside positions, a learned bias of attention per head and offset of the key: none, one that
    starts at 0, or local: in every layer one head starts at the word before, one at that after."""
    max_offset: int = 8
    """Largest offset with a bias of its own."""

    def __post_init__(self) -> None:
        make_plain(self)
        check_choices(self)
        check_at_least(self, 1, "max_length")
        check_most("max_offset", self.max_offset, MOST_WIDTH)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SSANDropout:
    """Dropout rates of the layers."""

    dropout: float = 0.1
    """On the embedded words and on the result of every sublayer."""
    attention_dropout: float = 0.1
    """On attention weights."""
    relu_dropout: float = 0.1
    """Inside the feed-forward networks."""

    def __post_init__(self) -> None:
        make_plain(self)
        check_rates(self, "dropout", "attention_dropout", "relu_dropout")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SSANMemory:
    """How much memory the attention takes."""

    block: int | None = None
    """Queries at a time, for long texts: attention over pairs is never stored, nor returned."""
    remat: bool = False
    """Compute the attention again for the gradient instead of storing it."""

    def __post_init__(self) -> None:
        make_plain(self)
        if self.block is not None:
            check_at_least(self, 1, "block")


@with_groups
@dataclasses.dataclass(frozen=True, kw_only=True)
class SSANConfig:
    """Everything that the paper fixes or leaves open about the encoder."""

    gates: SelectorConfig = dataclasses.field(default=SelectorConfig())
    """Which layers select, and how their selections are trained."""
    share_heads: bool = False
    """One selection for all heads of a layer; the authors' code has one each."""
    num_layers: int = 6
    """Layers of the encoder."""
    hidden: int = 128
    """Width d of words and layers."""
    filter_size: int = 512
    """Hidden width of the feed-forward networks."""
    num_heads: int = 4
    """Heads of every attention."""
    norm: Norm = "pre"
    """Layer normalisation before every sublayer, or after its residual connection."""
    order: SSANOrder = SSANOrder()
    """What tells the encoder the order of the words."""
    dropouts: SSANDropout = SSANDropout()
    """Dropout rates of the layers."""
    freeze_embeddings: bool = False
    """Keep word vectors as they are."""
    memory: SSANMemory = SSANMemory()
    """How much memory the attention takes."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Compute dtype; parameters, softmax, noise and the loss stay float32."""

    def __post_init__(self) -> None:
        make_plain(self)
        check_choices(self)
        check_at_least(self, 1, "num_layers", "hidden", "filter_size", "num_heads")
        if self.hidden % self.num_heads:
            raise ValueError(f"num_heads must divide hidden {self.hidden}, got {self.num_heads}")
        check_relative(self.order.relative, self.order.max_offset, self.num_heads)
        layers = self.gates.select_layers
        if layers != (0,) and (
            len(set(layers)) < len(layers) or not all(1 <= x <= self.num_layers for x in layers)
        ):
            raise ValueError(
                f"select_layers must be layers in [1, {self.num_layers}], or 0 for none, "
                f"got {layers}"
            )

    def attention(self, layer: int) -> dict[str, Tree]:
        """The options of the attention of a layer (from 1)."""
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
    """What one pass computed.

    Attributes:
      states: of the last layer [B, N, d], 0 at padding.
      selections: what the attention of every layer did (see `nn.Selection`).
    """

    states: Array
    selections: tuple[gnn.Selection, ...]


class SSANEncoder(nn.Module):
    """A Transformer encoder whose layers may select whom they attend to.

    Attributes:
      config: the encoder.
      vocab_size: rows of the embedding table, padding included.
      embeddings: a pretrained table to start from, or None. It is used as it is; without one the
        table is drawn from normal(0, 1/d) and multiplied by sqrt(d).

    Call with a batch {"tokens": int [B, N], "lengths": int [B]}; training draws from the streams
    "dropout" and "gate", keyed to "example_id": int [B] (row numbers if absent), and a temperature
    that changes needs "step": int [B], the number of the step in every row.

    Reference: Geng et al. 2020, "How Does Selective Mechanism Improve Self-Attention Networks?".
    """

    config: SSANConfig
    vocab_size: int
    embeddings: Table | None = None

    @nn.compact
    def __call__(self, batch: Batch, *, train: bool = False) -> SSANEncoderOutput:
        """Encodes the texts; to train, with dropout and drawn selections.

        Raises:
          ValueError: also if a text is longer than the table of learned positions.
        """
        c = self.config
        check_batch(batch, tokens="B N", lengths="B")
        tokens = batch["tokens"]
        mask = F.length_mask(batch["lengths"], tokens.shape[1])
        dtype = jnp.dtype(c.dtype)
        init = scaled_embedding(c.hidden)
        states = word_vectors(self, c.hidden, table_init=init, name="embed")(tokens)
        if self.embeddings is None:
            states = states * jnp.asarray(c.hidden**0.5, dtype)
        states, selections = run_layers(self, self._placed(states), mask, batch, train)
        states = jnp.where(mask[..., None], states, jnp.zeros_like(states))
        return SSANEncoderOutput(states=states, selections=selections)

    def _placed(self, states: Float[Array, "B N D"]) -> Float[Array, "B N D"]:
        c, size = self.config, states.shape[1]
        if c.order.positions == "sinusoidal":
            return add_positions(states)
        if c.order.positions == "learned":
            longest = c.order.max_length
            if size > longest:
                raise ValueError(f"tokens must have at most {longest} columns, got {size}")
            shape = (longest, c.hidden)
            table = self.param("positions", nn.initializers.normal(c.hidden**-0.5), shape)
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
    """Dropout of the inputs, and the layers with their last normalisation.

    Args:
      module: with an `SSANConfig`; its compact method calls this, and it has the layers.
      states: inputs of the first layer.
      mask: true where there is a word.
      batch: see `SSANEncoder`.
      train: dropout and drawn selections if True.
      **options: of every `EncoderLayer`.

    Returns:
      The states, with anything at padding, and what the attention of every layer did.
    """
    c: SSANConfig = module.config
    ids, dtype, rates = batch.get("example_id"), jnp.dtype(c.dtype), c.dropouts
    drawn: Sequence[LayerBytes | None] = [None] * c.num_layers
    if train and max(rates.dropout, rates.attention_dropout, rates.relu_dropout) > 0:
        first, drawn = draw_layer_bytes(
            module,
            ids,
            states.shape[:2],
            layers=c.num_layers,
            sublayers=2,
            keys=states.shape[1:2] if c.memory.block is None else (),
            heads=c.num_heads,
            features=c.hidden,
            hidden=c.filter_size,
        )
        states = F.byte_dropout(states, rates.dropout, first)
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
            dropout_bytes=drawn[layer - 1],
        )
        selections.append(selection)
    if c.norm == "pre":
        states = nn.LayerNorm(dtype=dtype, name="norm")(states)
    return states, tuple(selections)
