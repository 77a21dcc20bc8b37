"""Layers of a Transformer encoder, with selective self-attention where it is wanted."""

from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._types import Options, Tree
from gatedjax.functional._types import Dtype
from gatedjax.nn._keys import example_keys
from gatedjax.nn._selective import unit_scaling
from gatedjax.nn._types import Initializer

Norm = Literal["pre", "post"]


def dropout_rows(
    module: nn.Module, inputs: Array, rate: float, example_id: Array | None, deterministic: bool
) -> Array:
    """Dropout with bits per example from the module's stream "dropout"."""
    if deterministic or rate == 0.0:
        return inputs
    keys = example_keys(module, "dropout", example_id, len(inputs))
    return F.example_dropout(inputs, rate, keys)


def add_positions(inputs: Float[Array, "B N D"]) -> Float[Array, "B N D"]:
    """Adds sinusoidal positions, of any length."""
    size, width = inputs.shape[1:]
    return inputs + F.sinusoids(np.arange(size), width, inputs.dtype)[None]


class LayerBytes(NamedTuple):
    """Random bytes of a layer's dropout, drawn with those of all other layers.

    Attributes:
      attention: for the attention weights [B, M, N, N]; None where the layer draws them.
      results: for the results of attention and feed-forward network [B, N, 2 D].
      hidden: for the hidden layer of the latter [B, N, F].
    """

    attention: Array | None
    results: Array
    hidden: Array


def draw_layer_bytes(
    module: nn.Module,
    example_id: Array | None,
    shape: tuple[int, ...],
    *,
    layers: int,
    heads: int,
    features: int,
    hidden: int,
    pairs: bool = True,
) -> tuple[Array, list[LayerBytes]]:
    """Random bytes of all layers, from two draws: programs compile faster and run faster.

    Args:
      module: whose stream "dropout" is used.
      example_id: what the bits of a row are keyed to; None takes row numbers.
      shape: B and N.
      layers, heads, features, hidden: of the stack.
      pairs: draw those of the attention weights as well.

    Returns:
      Those of the inputs of the stack [B, N, D], and of every layer.
    """
    rows, size = shape
    keys = example_keys(module, "dropout", example_id, rows)
    own = 2 * features + hidden
    draws = F.feature_bytes(keys, size, features + layers * own)
    attention = None
    if pairs:
        keys = example_keys(module, "dropout", example_id, rows)
        attention = F.pair_bytes(keys, layers * heads, jnp.arange(size), size)
    # drawn once, and not again for every layer that reads a part of them
    draws, attention = jax.lax.optimization_barrier((draws, attention))
    made = []
    for layer in range(layers):
        start = features + layer * own
        made.append(
            LayerBytes(
                None if attention is None else attention[:, layer * heads : (layer + 1) * heads],
                draws[..., start : start + 2 * features],
                draws[..., start + 2 * features : start + own],
            )
        )
    return draws[..., :features], made


class FeedForward(nn.Module):
    """W_2 relu(W_1 x + b_1) + b_2, with dropout after the rectifier.

    Attributes:
      hidden: width of the layer between.
      dropout: on it.
    """

    hidden: int
    dropout: float = 0.0
    kernel_init: Initializer = unit_scaling
    dtype: Dtype = None

    @nn.compact
    def __call__(
        self,
        inputs: Float[Array, "B N D"],
        *,
        deterministic: bool = True,
        example_id: Int[Array, " B"] | None = None,
        dropout_bytes: UInt[Array, "B N F"] | None = None,
    ) -> Float[Array, "B N D"]:
        """Returns the output, of the width of the inputs; draws the bytes of dropout if needed."""
        types: Options = {"kernel_init": self.kernel_init, "dtype": self.dtype}
        hidden = nn.relu(nn.Dense(self.hidden, name="wide", **types)(inputs))
        if deterministic or dropout_bytes is None:
            hidden = dropout_rows(self, hidden, self.dropout, example_id, deterministic)
        else:
            hidden = F.byte_dropout(hidden, self.dropout, dropout_bytes)
        return nn.Dense(inputs.shape[-1], name="narrow", **types)(hidden)


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network, each around a residual connection.

        pre:  x + dropout(f(norm(x)))      post:  norm(x + dropout(f(x)))

    Attributes:
      attention: options of `nn.SelectiveSelfAttention`.
      filter_size: hidden width of the feed-forward network.
      norm: where layer normalisation stands.
      feed_forward_first: the feed-forward network before the attention (DeepAtt).
      dropout: on the result of each of the two.
      relu_dropout: inside the feed-forward network.
    """

    attention: Any
    filter_size: int
    norm: Norm = "pre"
    feed_forward_first: bool = False
    dropout: float = 0.0
    relu_dropout: float = 0.0
    kernel_init: Initializer = unit_scaling
    dtype: Dtype = None

    @nn.compact
    def __call__(
        self,
        inputs: Float[Array, "B N D"],
        mask: Bool[Array, "B N"] | None = None,
        *,
        deterministic: bool = True,
        example_id: Int[Array, " B"] | None = None,
        temperature: float | Array | None = None,
        dropout_bytes: LayerBytes | None = None,
    ) -> tuple[Float[Array, "B N D"], gnn.Selection]:
        """Returns (states, what the attention did); draws the bytes of dropout if needed."""
        drawn = None if deterministic else dropout_bytes
        options: Options = {"deterministic": deterministic, "example_id": example_id}
        attend = gnn.SelectiveSelfAttention(
            **dict(self.attention),
            kernel_init=self.kernel_init,
            dtype=self.dtype,
            name="attention",
        )
        feed_forward = FeedForward(
            self.filter_size,
            self.relu_dropout,
            kernel_init=self.kernel_init,
            dtype=self.dtype,
            name="feed_forward",
        )
        selection = gnn.Selection()
        order = ("feed_forward", "attention")
        for name in order if self.feed_forward_first else reversed(order):
            norm = nn.LayerNorm(dtype=self.dtype, name=f"{name}_norm")
            before = norm(inputs) if self.norm == "pre" else inputs
            if name == "attention":
                pairs = None if drawn is None else drawn.attention
                change, selection = attend(
                    before, mask, temperature=temperature, dropout_bytes=pairs, **options
                )
            else:
                hidden = None if drawn is None else drawn.hidden
                change = feed_forward(before, dropout_bytes=hidden, **options)
            if drawn is None:
                change = dropout_rows(self, change, self.dropout, example_id, deterministic)
            else:
                own = jnp.split(drawn.results, 2, axis=-1)[name == "attention"]
                change = F.byte_dropout(change, self.dropout, own)
            inputs = inputs + change
            if self.norm == "post":
                inputs = norm(inputs)
        return inputs, selection


def scaled_embedding(width: int) -> Tree:
    """Initialises word vectors that are multiplied by sqrt(width) when they are looked up."""

    def normal(key: Array, shape: tuple[int, ...], dtype: Dtype = jnp.float32) -> Array:
        return jax.random.normal(key, shape, dtype) * width**-0.5

    return normal
