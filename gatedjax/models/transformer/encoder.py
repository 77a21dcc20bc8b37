"""Layers of a Transformer encoder, with or without selective self-attention."""

from typing import Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._utils.types import Keywords, Tree
from gatedjax.functional._types import Dtype
from gatedjax.nn._keys import example_keys
from gatedjax.nn._selective import unit_scaling
from gatedjax.nn._types import Initializer

Norm = Literal["pre", "post"]


def dropout_rows(
    module: nn.Module, inputs: Array, rate: float, example_id: Array | None, deterministic: bool
) -> Array:
    """Returns inputs after dropout with bits per example, from the stream "dropout" of a module."""
    if deterministic or rate == 0.0:
        return inputs
    keys = example_keys(module, "dropout", example_id, len(inputs))
    return F.example_dropout(inputs, rate, keys)


def add_positions(inputs: Float[Array, "B N D"]) -> Float[Array, "B N D"]:
    """Returns inputs plus sinusoidal vectors of positions, of the same shape and dtype."""
    size, width = inputs.shape[1:]
    return inputs + F.sinusoids(np.arange(size), width, inputs.dtype)[None]


class LayerBytes(NamedTuple):
    """Random bytes (uint8) for the dropout of a layer, from `draw_layer_bytes`."""

    attention: tuple[Array, ...]  # [B, M, N, keys] of each attention; () if the layer draws them
    results: list[Array]  # [B, N, D] of each sublayer
    hidden: Array  # [B, N, F]


def draw_layer_bytes(
    module: nn.Module,
    example_id: Array | None,
    shape: tuple[int, ...],
    *,
    layers: int,
    sublayers: int,
    keys: tuple[int, ...],
    heads: int,
    features: int,
    hidden: int,
) -> tuple[Array, list[LayerBytes]]:
    """Draws the bytes for the inputs and all layers, as few large draws, which run faster."""
    rows, size = shape
    # Each kind of bytes has a key, because equal keys would give equal bits.
    streams = [example_keys(module, "dropout", example_id, rows) for _ in range(1 + len(keys))]
    # The last axis of `flat` has the bytes of the inputs, then for each layer the bytes of the
    # results of its sublayers and of its hidden layer.
    width = sublayers * features + hidden
    flat = F.feature_bytes(streams[0], size, features + layers * width)
    pairs = [
        F.pair_bytes(stream, layers * heads, jnp.arange(size), count)
        for stream, count in zip(streams[1:], keys, strict=True)
    ]
    # Without the barrier the compiler would draw the bytes again for each layer.
    flat, pairs = jax.lax.optimization_barrier((flat, pairs))
    layer_bytes = []
    for layer in range(layers):
        part = slice(layer * heads, (layer + 1) * heads)
        block = flat[..., features + layer * width :][..., :width]
        *results, inner = jnp.split(block, np.arange(1, sublayers + 1) * features, axis=-1)
        layer_bytes.append(LayerBytes(tuple(pair[:, part] for pair in pairs), results, inner))
    return flat[..., :features], layer_bytes


class FeedForward(nn.Module):
    """W_2 relu(W_1 x + b_1) + b_2, with dropout after the rectifier."""

    hidden: int
    dropout: float = 0.0
    kernel_init: Initializer = unit_scaling
    dtype: Dtype = None

    @nn.compact
    def __call__(
        self, inputs: Float[Array, "B N D"], dropout_bytes: UInt[Array, "B N F"] | None = None
    ) -> Float[Array, "B N D"]:
        """Returns the result for each token; dropout acts only if its bytes are given."""
        types: Keywords = {"kernel_init": self.kernel_init, "dtype": self.dtype}
        hidden = nn.relu(nn.Dense(self.hidden, name="wide", **types)(inputs))
        if dropout_bytes is not None:
            hidden = F.byte_dropout(hidden, self.dropout, dropout_bytes)
        return nn.Dense(inputs.shape[-1], name="narrow", **types)(hidden)


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network, each around a residual connection.

        pre:  x + dropout(f(norm(x)))      post:  norm(x + dropout(f(x)))

    f is a sublayer, and `norm` selects one of the two forms.
    """

    attention: Keywords
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
        """Returns the states and the selection. Dropout inside and behind the sublayers acts only
        if its bytes are given; the attention draws those of its weights itself if they are missing.
        """
        attend = gnn.SelectiveSelfAttention(
            **dict(self.attention), kernel_init=self.kernel_init, dtype=self.dtype, name="attention"
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
                # The attention draws its bytes itself if the layer has none for it.
                pairs = dropout_bytes.attention if dropout_bytes else ()
                change, selection = attend(
                    before,
                    mask,
                    deterministic=deterministic,
                    example_id=example_id,
                    temperature=temperature,
                    dropout_bytes=pairs[0] if pairs else None,
                )
            else:
                change = feed_forward(before, dropout_bytes and dropout_bytes.hidden)
            if dropout_bytes is not None:
                # The bytes for the result of the feed-forward network come first, whatever the
                # order of the sublayers.
                result_bytes = dropout_bytes.results[name == "attention"]
                change = F.byte_dropout(change, self.dropout, result_bytes)
            # Dropout acts on the change only, so that the residual path stays intact.
            inputs = inputs + change
            if self.norm == "post":
                inputs = norm(inputs)
        return inputs, selection


def scaled_embedding(width: int) -> Tree:
    """Returns an initialiser of vectors that the network multiplies by sqrt(width)."""

    def normal(key: Array, shape: tuple[int, ...], dtype: Dtype = jnp.float32) -> Array:
        return jax.random.normal(key, shape, dtype) * width**-0.5

    return normal
