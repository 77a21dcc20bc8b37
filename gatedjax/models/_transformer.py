"""Layers of a Transformer encoder, with selective self-attention where it is wanted."""

from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax.nn._attention import _sinusoids
from gatedjax.nn._selective import unit_scaling

Norm = Literal["pre", "post"]


def dropout_rows(
    module: nn.Module, inputs: Array, rate: float, example_id: Array | None, deterministic: bool
) -> Array:
    """Dropout with bits per example from the module's stream "dropout"."""
    if deterministic or rate == 0.0:
        return inputs
    if example_id is None:
        example_id = jnp.arange(inputs.shape[0])
    keys = F.example_keys(module.make_rng("dropout"), example_id)
    return F.example_dropout(inputs, rate, keys)


def add_positions(inputs: Float[Array, "B N D"], start: int | Array = 0) -> Float[Array, "B N D"]:
    """Adds sinusoidal positions from start on, of any length.

    The table of N positions is a constant of the program; with a traced start (a decoder that goes
    on) the angles are computed.
    """
    size, width = inputs.shape[1], inputs.shape[2]
    if isinstance(start, int):
        table = jnp.asarray(_sinusoids(start + size, width)[start:], inputs.dtype)
    else:
        table = sinusoids(jnp.arange(size) + start, width).astype(inputs.dtype)
    return inputs + table[None]


def sinusoids(positions: Int[Array, "N"], width: int) -> Float[Array, "N D"]:
    """The rows of the table of sinusoidal positions: sin in even features, cos in odd ones."""
    feature = jnp.arange(width)
    rates = 10_000.0 ** (-2.0 * (feature // 2) / width)
    angles = positions.astype(jnp.float32)[:, None] * rates[None, :]
    return jnp.where((feature % 2 == 0)[None, :], jnp.sin(angles), jnp.cos(angles))


class FeedForward(nn.Module):
    """W_2 relu(W_1 x + b_1) + b_2, with dropout after the rectifier.

    Attributes:
      hidden: width of the layer between.
      dropout: on it.
    """

    hidden: int
    dropout: float = 0.0
    kernel_init: Any = unit_scaling
    dtype: Any = None

    @nn.compact
    def __call__(
        self,
        inputs: Float[Array, "B N D"],
        *,
        deterministic: bool = True,
        example_id: Int[Array, "B"] | None = None,
    ) -> Float[Array, "B N D"]:
        """Returns the output, of the width of the inputs."""
        types: dict[str, Any] = {"kernel_init": self.kernel_init, "dtype": self.dtype}
        hidden = nn.relu(nn.Dense(self.hidden, name="wide", **types)(inputs))
        hidden = dropout_rows(self, hidden, self.dropout, example_id, deterministic)
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
    kernel_init: Any = unit_scaling
    dtype: Any = None

    @nn.compact
    def __call__(
        self,
        inputs: Float[Array, "B N D"],
        mask: Bool[Array, "B N"] | None = None,
        *,
        deterministic: bool = True,
        example_id: Int[Array, "B"] | None = None,
        temperature: float | Array | None = None,
    ) -> tuple[Float[Array, "B N D"], gnn.Selection]:
        """Returns (states, what the attention did)."""
        options: dict[str, Any] = {"deterministic": deterministic, "example_id": example_id}
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
                change, selection = attend(before, mask, temperature=temperature, **options)
            else:
                change = feed_forward(before, **options)
            inputs = inputs + dropout_rows(self, change, self.dropout, example_id, deterministic)
            if self.norm == "post":
                inputs = norm(inputs)
        return inputs, selection


def scaled_embedding(width: int) -> Any:
    """Initialises word vectors that are multiplied by sqrt(width) when they are looked up."""

    def normal(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
        return jax.random.normal(key, shape, dtype) * width**-0.5

    return normal
