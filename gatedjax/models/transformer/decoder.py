"""Layers of a Transformer decoder, for whole targets and for single tokens with a cache."""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt

from gatedjax import functional as F
from gatedjax._utils.types import Keywords
from gatedjax.functional._pairs import causal_pairs, put
from gatedjax.functional._types import Dtype
from gatedjax.models.transformer.encoder import FeedForward, LayerBytes, Norm
from gatedjax.nn._selective import unit_scaling
from gatedjax.nn._types import Initializer

# The form of `LayerBytes` for two attentions and three sublayers, so that evaluation unpacks it
# like the bytes of training.
_NOTHING_DRAWN: Any = ((None, None), (None, None, None), None)
KeyValue = tuple[Float[Array, "B M N H"], Float[Array, "B M N H"]]


class DecoderAttention(nn.Module):
    """Multi-head attention that projects keys and values separately, so that they can be cached."""

    num_heads: int
    features: int
    dropout: float = 0.0
    kernel_init: Initializer = unit_scaling
    dtype: Dtype = None

    def setup(self) -> None:
        """Creates the projections, with the names and shapes of `nn.SelectiveSelfAttention`."""
        types: Keywords = {"kernel_init": self.kernel_init, "dtype": self.dtype}
        heads = (self.num_heads, self.features // self.num_heads)
        self.query = nn.DenseGeneral(heads, **types)
        self.key = nn.DenseGeneral(heads, **types)
        self.value = nn.DenseGeneral(heads, **types)
        self.out = nn.DenseGeneral(self.features, axis=(-2, -1), **types)

    def project(self, states: Float[Array, "B N D"]) -> KeyValue:
        """Returns the keys and the values [B, M, N, H] of N states per row, as a pair."""
        return jnp.swapaxes(self.key(states), 1, 2), jnp.swapaxes(self.value(states), 1, 2)

    def __call__(
        self,
        queries: Float[Array, "B Q D"],
        keys_and_values: KeyValue,
        mask: Bool[Array, "B 1 Q N"],
        dropout_bytes: UInt[Array, "B M Q N"] | None = None,
    ) -> Float[Array, "B Q D"]:
        """Attends from queries to projected keys and values."""
        key, value = keys_and_values
        query = jnp.swapaxes(self.query(queries), 1, 2)
        weights = F.masked_softmax(F.scaled_dot_product(query, key), mask)
        if dropout_bytes is not None:
            weights = F.byte_dropout(weights, self.dropout, dropout_bytes)
        mixed = jnp.einsum("bmqk,bmkd->bmqd", weights.astype(value.dtype), value)
        return self.out(jnp.swapaxes(mixed, 1, 2))


class DecoderLayer(nn.Module):
    """Attention to the target so far, attention to the source, and a feed-forward network, as in
    the Transformer, because the paper selects only in the encoder.
    """

    num_heads: int
    features: int
    filter_size: int
    norm: Norm = "pre"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    relu_dropout: float = 0.0
    dtype: Dtype = None

    def setup(self) -> None:
        """Creates both attentions, the feed-forward network and their layer norms as attributes."""
        attention: Keywords = {"dropout": self.attention_dropout, "dtype": self.dtype}
        self.self_attention = DecoderAttention(self.num_heads, self.features, **attention)
        self.source_attention = DecoderAttention(self.num_heads, self.features, **attention)
        self.feed_forward = FeedForward(self.filter_size, self.relu_dropout, dtype=self.dtype)
        self.self_norm = nn.LayerNorm(dtype=self.dtype)
        self.source_norm = nn.LayerNorm(dtype=self.dtype)
        self.feed_forward_norm = nn.LayerNorm(dtype=self.dtype)

    def source(self, states: Float[Array, "B N D"]) -> KeyValue:
        """Computes the keys and values of the encoded source, which all target tokens share."""
        return self.source_attention.project(states)

    def __call__(
        self,
        inputs: Float[Array, "B T D"],
        mask: Bool[Array, "B 1 T T"],
        source: KeyValue,
        source_mask: Bool[Array, "B 1 1 N"],
        dropout_bytes: LayerBytes | None = None,
    ) -> Float[Array, "B T D"]:
        """Computes the states of a whole target."""
        (to_target, to_source), results, hidden = dropout_bytes or _NOTHING_DRAWN

        def to_itself(states: Array) -> Array:
            keys_and_values = self.self_attention.project(states)
            return self.self_attention(states, keys_and_values, mask, to_target)

        def to_the_source(states: Array) -> Array:
            return self.source_attention(states, source, source_mask, to_source)

        inputs = self._around(inputs, self.self_norm, to_itself, results[0])
        inputs = self._around(inputs, self.source_norm, to_the_source, results[1])
        feed_forward = functools.partial(self.feed_forward, dropout_bytes=hidden)
        return self._around(inputs, self.feed_forward_norm, feed_forward, results[2])

    def step(
        self,
        inputs: Float[Array, "B K D"],
        cache: tuple[Float[Array, "B K M T H"], Float[Array, "B K M T H"]],
        position: Int[Array, ""],
        source: KeyValue,
        source_mask: Bool[Array, "B 1 1 N"],
    ) -> tuple[Float[Array, "B K D"], tuple[Array, Array]]:
        """Computes the states of the next token of each of the K targets of a source."""
        rows, beams, _ = inputs.shape
        keys_and_values: list[Array] = []

        def to_itself(states: Array) -> Array:
            """Returns the states that the next tokens get from attention to the targets so far."""
            # Targets become rows, because each target has separate keys and values.
            flat = states.reshape(rows * beams, 1, -1)
            for old, new in zip(cache, self.self_attention.project(flat), strict=True):
                new = new.reshape(rows, beams, *new.shape[1:])
                keys_and_values.append(put(old, new, position))
            key, value = (x.reshape(rows * beams, *x.shape[2:]) for x in keys_and_values)
            # Entries of the cache behind the position are still 0 and must not be seen.
            so_far = causal_pairs(position[None], key.shape[2])[None, None]
            return self.self_attention(flat, (key, value), so_far).reshape(states.shape)

        def to_the_source(states: Array) -> Array:
            # The source has no axis K, because the K targets are its queries.
            return self.source_attention(states, source, source_mask)

        inputs = self._around(inputs, self.self_norm, to_itself)
        inputs = self._around(inputs, self.source_norm, to_the_source)
        inputs = self._around(inputs, self.feed_forward_norm, self.feed_forward)
        return inputs, (keys_and_values[0], keys_and_values[1])

    def _around(
        self, inputs: Array, norm: nn.LayerNorm, sublayer: Any, dropout_bytes: Array | None = None
    ) -> Array:
        change = sublayer(norm(inputs) if self.norm == "pre" else inputs)
        if dropout_bytes is not None:
            change = F.byte_dropout(change, self.dropout, dropout_bytes)
        inputs = inputs + change
        return norm(inputs) if self.norm == "post" else inputs


def empty_cache(
    rows: int, beams: int, heads: int, size: int, width: int, dtype: jnp.dtype
) -> tuple[Array, Array]:
    """Returns an empty cache of a layer, a pair (keys, values) of zeros."""
    shape = (rows, beams, heads, size, width)
    return jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)


def causal_mask(mask: Bool[Array, "B T"]) -> Bool[Array, "B 1 T T"]:
    """Returns a mask, True where a query may see a key: at real positions not after the query."""
    size = mask.shape[1]
    before = causal_pairs(jnp.arange(size), size)
    # [B, 1, T, T]: all heads have the same mask, and padding is excluded as a key only.
    return before[None, None] & mask[:, None, None, :]


def smoothed_cross_entropy(
    logits: Float[Array, "*B V"], targets: Int[Array, "*B"], smoothing: float
) -> Float[Array, "*B"]:
    """Computes the cross-entropy with label smoothing, which spreads a share s over all V classes.

        l = -(1 - s) log p_y - (s / V) sum_v log p_v

    The result is in nats (Szegedy et al. 2016).
    """
    # The sum over the vocabulary needs float32.
    logits = logits.astype(jnp.float32)
    total = jax.nn.logsumexp(logits, axis=-1)
    of_target = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    # log p_v = logit_v - total, so the sum over classes needs the mean of the logits and no array
    # of log p.
    return total - (1 - smoothing) * of_target - smoothing * jnp.mean(logits, axis=-1)
