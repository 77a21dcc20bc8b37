"""GA-Net whose gates act on the input: the backbone reads the open words alone.

In the network of the paper the backbone reads every word and tells its neighbours of it, so what
attention sees of the open words rests on the closed ones too. Here

    h = BiLSTM(g_1 x_1, ..., g_T x_T)           where gates are soft: training, "expected"
    h = BiLSTM(x_{t_1}, ..., x_{t_K}),  g_{t_k} = 1   where they are hard

and the rest as in `ga_net`. With hard gates nothing behind the auxiliary network has read a closed
word: it computes what it would compute had the words been deleted. (The auxiliary network reads
them all; it chooses.) A soft gate near 0 leaves a step of the LSTM on a vector near 0, which a
closed gate does not: the two agree in what attention sees, and better where tau is low in training.
"""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gatedjax import functional as F
from gatedjax._utils.types import Tree
from gatedjax.functional._devices import on_rows
from gatedjax.models._ga_net_parts import (
    Encoded,
    GANetOutput,
    Gates,
    like,
    merge_directions,
    open_one,
    pool_states,
)
from gatedjax.models._types import Batch


def read_scaled_words(
    net: Any, encoded: Encoded, gates: Gates, batch: Batch, *, train: bool = False
) -> Encoded:
    """Computes states and scores of the words times their soft gates.

    Args:
      net: a `GANet`, bound.
      encoded: what its `encode` returned.
      gates: of one pass or of several draws.
      batch, train: as of a call.
    """
    values = gates.values
    xs = _draws_of(encoded, values) * values[..., None].astype(encoded.words.dtype)
    return _read(net, encoded, xs, like(encoded.mask, values), batch, train=train)


def read_open_words(
    net: Any, encoded: Encoded, gates: Gates, batch: Batch, *, train: bool = False
) -> GANetOutput:
    """Computes the output of the open words: they move to the front, and the rest is padding.

    So it is what the network computes of a text without the other words, to the last bit.

    Args:
      net, encoded, gates, batch, train: as of `read_scaled_words`; the gates are 0 or 1.
    """
    values, kept, closed = _words_read(net, encoded, gates)
    axes = values.ndim - 1
    xs, packed, slots = on_rows(_packed, _draws_of(encoded, values), kept, axes=axes)
    short = _read(net, encoded, xs, packed, batch, train=train)
    weights = F.masked_softmax(short.scores, packed)
    pooled = pool_states(net.config, short.states, weights)
    logits = net.classify(pooled, batch, train=train)
    attention, scores = on_rows(_unpacked, (weights, short.scores), slots, kept, axes=axes)
    return GANetOutput(
        logits=logits,
        attention=attention,
        gates=jnp.where(like(encoded.mask, values), values, 0),
        gate_logits=encoded.gate_logits,
        scores=scores,
        closed=closed,
    )


def read_into_slots(
    net: Any, encoded: Encoded, gates: Gates, capacity: int, batch: Batch
) -> GANetOutput:
    """Computes the output of the open words by a backbone of `capacity` steps.

    Args:
      net, encoded, gates, batch: as of `read_open_words`, in evaluation.
      capacity: a batch with a text of more open words is read by as many steps as it has words.
    """
    values, kept, closed = _words_read(net, encoded, gates)
    size = kept.shape[-1]
    indices, valid, excess = F.open_indices(kept, min(capacity, size))

    def pooled(net: Any, words: Array, valid: Array) -> tuple[Array, Array]:
        words = jnp.where(valid[..., None], words, 0)
        short = _read(net, encoded, words, valid, batch)
        weights = F.masked_softmax(short.scores, valid)
        return pool_states(net.config, short.states, weights), weights

    def short(net: Any) -> tuple[Array, Array]:
        words = jnp.take_along_axis(encoded.words, indices[..., None], axis=1)
        vector, weights = pooled(net, words, valid)
        return vector, _unpacked(weights, jnp.cumsum(kept, axis=-1) - 1, kept)

    def long(net: Any) -> tuple[Array, Array]:
        words, packed, slots = _packed(encoded.words, kept)
        vector, weights = pooled(net, words, packed)
        return vector, _unpacked(weights, slots, kept)

    if capacity >= size:
        vector, attention = long(net)
    else:
        vector, attention = nn.cond(jnp.any(excess > 0), long, short, net)
    return GANetOutput(
        logits=net.classify(vector, batch),
        attention=attention,
        gates=jnp.where(encoded.mask, values, 0),
        gate_logits=encoded.gate_logits,
        closed=closed,
    )


def _words_read(
    net: Any, encoded: Encoded, gates: Gates
) -> tuple[Float[Array, "*S B T"], Bool[Array, "*S B T"], Bool[Array, "*S B"] | None]:
    """Returns the gates after the `empty` rule, the words that are read, and the empty rows."""
    values, closed = open_one(net.config, encoded, gates)
    mask = like(encoded.mask, values)
    kept = mask & (values > 0)
    if net.config.gates.empty == "soft" and closed is not None:
        kept = jnp.where(closed[..., None], mask, kept)
    return values, kept, closed


def _read(
    net: Any,
    encoded: Encoded,
    xs: Float[Array, "*S B T E"],
    mask: Bool[Array, "*S B T"],
    batch: Batch,
    *,
    train: bool = False,
) -> Encoded:
    """Returns `encoded` with the states and scores of gated words, of every draw of them."""
    if xs.ndim == 3:
        ids = batch.get("example_id")
        found = net.backbone(xs, mask, deterministic=not train, example_id=ids)
        states, last = merge_directions(net.config.merge, *found)
        return dataclasses.replace(
            encoded, states=states, last=last, mask=mask, scores=net.score(states)
        )
    # rows first: their axis may be sharded
    by_row = [jnp.swapaxes(x, 0, 1) for x in (xs, mask)]
    flat = [x.reshape(-1, *x.shape[2:]) for x in by_row]
    states, _ = merge_directions(net.config.merge, *net.backbone(*flat))
    states = jnp.swapaxes(states.reshape(*by_row[1].shape, -1), 0, 1)
    return dataclasses.replace(encoded, states=states, mask=mask, scores=net.score(states))


def _draws_of(encoded: Encoded, gates: Float[Array, "*S B T"]) -> Float[Array, "*S B T E"]:
    """Returns the word vectors, once for every draw of the gates."""
    return jnp.broadcast_to(encoded.words, (*gates.shape, encoded.words.shape[-1]))


def _packed(
    words: Float[Array, "*B T E"], kept: Bool[Array, "*B T"]
) -> tuple[Float[Array, "*B T E"], Bool[Array, "*B T"], Array]:
    """Moves the words that are kept to the front.

    Returns:
      The words, with 0 behind them; which places hold one; the place of every word.
    """
    order = jnp.argsort(~kept, axis=-1, stable=True)
    packed = jnp.take_along_axis(kept, order, axis=-1)
    moved = jnp.take_along_axis(words, order[..., None], axis=-2)
    return jnp.where(packed[..., None], moved, 0), packed, jnp.argsort(order, axis=-1)


def _unpacked(values: Tree, slots: Array, kept: Bool[Array, "*B T"]) -> Tree:
    """Returns the values of moved words in the order of the text, 0 where a word is not kept."""
    back = lambda x: jnp.where(kept, jnp.take_along_axis(x, slots, axis=-1), 0)  # noqa: E731
    return jax.tree.map(back, values)
