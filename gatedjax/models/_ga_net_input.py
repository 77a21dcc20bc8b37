"""GA-Net with gates on the input: the backbone reads only the open words.

In the network of the paper the backbone reads all words, so that the states of the open words,
which attention sees, also depend on the closed words. Here

    h = BiLSTM(g_1 x_1, ..., g_T x_T)                 soft gates: training, "expected"
    h = BiLSTM(x_{t_1}, ..., x_{t_K}),  g_{t_k} = 1   hard gates: evaluation, straight-through

and the rest is equal to `ga_net`. With hard gates the output is the output for the text without the
closed words; only the auxiliary network, which chooses, reads all words. A soft gate near 0 is a
step of the LSTM with an input near 0, whereas a closed gate removes the step. Both hide the word
from attention, and they agree better after training with a low tau.

A straight-through estimator needs the derivative of the loss at hard gates, also at closed ones.
There the hard network is continued to gates between 0 and 1 by an LSTM whose state moves by the
share g_t of each step, see `functional.skip_lstm`.
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
from gatedjax.models._checks import Batch
from gatedjax.models._ga_net_parts import Encoded, GANetOutput, Gates, open_one


def read_scaled_words(
    net: Any, encoded: Encoded, gates: Gates, batch: Batch, *, train: bool = False
) -> Encoded:
    """Computes the states and scores of words that are multiplied with their soft gates."""
    values = gates.values
    # [*S, B, T, E]: a gate multiplies all features of its word.
    xs = _repeat_words(encoded, values) * values[..., None].astype(encoded.words.dtype)
    return _run_backbone(
        net, encoded, xs, jnp.broadcast_to(encoded.mask, values.shape), batch, train=train
    )


def skip_closed_words(
    net: Any, encoded: Encoded, gates: Gates, batch: Batch, *, train: bool = False
) -> Encoded:
    """Computes states and scores of the open words, equal to `read_open_words`. Unlike that
    function it has a derivative at all gates, which straight-through training needs.
    """
    values, closed = open_one(net.config, encoded, gates)
    # With the rule "soft" a text with all gates closed is read whole.
    if net.config.gates.empty == "soft":
        values = jnp.where(closed[..., None], 1.0, values)
    return _run_backbone(
        net, encoded, encoded.words, encoded.mask, batch, train=train, gates=values
    )


def read_open_words(
    net: Any, encoded: Encoded, gates: Gates, batch: Batch, *, train: bool = False
) -> GANetOutput:
    """Computes the output of a text from its open words, which move to the front. It equals, to the
    last bit, the output for the text without its closed words.
    """
    values, is_open, closed = _select_words(net, encoded, gates)
    axes = values.ndim - 1
    # The words move only within their text, so that a batch on several devices stays where it is.
    xs, packed, slots = on_rows(_pack, _repeat_words(encoded, values), is_open, axes=axes)
    short = _run_backbone(net, encoded, xs, packed, batch, train=train)
    weights = F.masked_softmax(short.scores, packed)
    pooled = net.pool_states(short.states, weights)
    logits = net.classify(pooled, batch, train=train)
    attention, scores = on_rows(_unpack, (weights, short.scores), slots, is_open, axes=axes)
    return GANetOutput(
        logits=logits,
        attention=attention,
        gates=jnp.where(jnp.broadcast_to(encoded.mask, values.shape), values, 0),
        gate_logits=encoded.gate_logits,
        scores=scores,
        closed=closed,
    )


def read_into_slots(
    net: Any, encoded: Encoded, gates: Gates, capacity: int, batch: Batch
) -> GANetOutput:
    """Computes `read_open_words`, without scores, in `capacity` steps if they have room."""
    values, is_open, closed = _select_words(net, encoded, gates)
    size = is_open.shape[-1]
    indices, valid, excess = F.open_indices(is_open, capacity=min(capacity, size))

    def pool(net: Any, words: Array, valid: Array, slots: Array) -> tuple[Array, Array]:
        words = jnp.where(valid[..., None], words, 0)
        read = _run_backbone(net, encoded, words, valid, batch)
        weights = F.masked_softmax(read.scores, valid)
        return net.pool_states(read.states, weights), _unpack(weights, slots, is_open)

    def short(net: Any) -> tuple[Array, Array]:
        words = jnp.take_along_axis(encoded.words, indices[..., None], axis=1)
        return pool(net, words, valid, jnp.cumsum(is_open, axis=-1) - 1)

    def long(net: Any) -> tuple[Array, Array]:
        return pool(net, *_pack(encoded.words, is_open))

    if capacity >= size:
        vector, attention = long(net)
    else:
        # Both branches are compiled, because only the data show if the open words have room.
        vector, attention = nn.cond(jnp.any(excess > 0), long, short, net)
    return GANetOutput(
        logits=net.classify(vector, batch),
        attention=attention,
        gates=jnp.where(encoded.mask, values, 0),
        gate_logits=encoded.gate_logits,
        closed=closed,
    )


def _select_words(
    net: Any, encoded: Encoded, gates: Gates
) -> tuple[Float[Array, "*S B T"], Bool[Array, "*S B T"], Bool[Array, "*S B"]]:
    """Returns (values, is_open, closed) for the hard gates of a batch of texts."""
    values, closed = open_one(net.config, encoded, gates)
    mask = jnp.broadcast_to(encoded.mask, values.shape)
    is_open = mask & (values > 0)
    # With the rule "soft" a text with all gates closed is read whole.
    if net.config.gates.empty == "soft":
        is_open = jnp.where(closed[..., None], mask, is_open)
    return values, is_open, closed


def _run_backbone(
    net: Any,
    encoded: Encoded,
    xs: Float[Array, "*S B T E"],
    mask: Bool[Array, "*S B T"],
    batch: Batch,
    *,
    train: bool = False,
    gates: Float[Array, "B T"] | None = None,
) -> Encoded:
    """Runs the backbone on gated words, and returns `encoded` with the new results."""
    # Dropout belongs to training, where the network reads a single draw.
    if xs.ndim == 3:
        ids = batch.get("example_id")
        outputs = net.backbone(xs, mask, deterministic=not train, example_id=ids, gates=gates)
        states, last = net.merge_directions(*outputs)
        return dataclasses.replace(
            encoded, states=states, last=last, mask=mask, scores=net.score(states)
        )
    # The axis of rows comes first when draws and rows are merged, because it may be sharded.
    by_row = [jnp.swapaxes(x, 0, 1) for x in (xs, mask)]
    flat = [x.reshape(-1, *x.shape[2:]) for x in by_row]
    states, _ = net.merge_directions(*net.backbone(*flat))
    states = jnp.swapaxes(states.reshape(*by_row[1].shape, -1), 0, 1)
    return dataclasses.replace(encoded, states=states, mask=mask, scores=net.score(states))


def _repeat_words(encoded: Encoded, gates: Float[Array, "*S B T"]) -> Float[Array, "*S B T E"]:
    return jnp.broadcast_to(encoded.words, (*gates.shape, encoded.words.shape[-1]))


def _pack(
    words: Float[Array, "*B T E"], is_open: Bool[Array, "*B T"]
) -> tuple[Float[Array, "*B T E"], Bool[Array, "*B T"], Array]:
    """Moves the open words of each text to the front."""
    # A stable sort keeps the order of the open words.
    order = jnp.argsort(~is_open, axis=-1, stable=True)
    packed = jnp.take_along_axis(is_open, order, axis=-1)
    moved = jnp.take_along_axis(words, order[..., None], axis=-2)
    # The argsort of a permutation is its inverse.
    return jnp.where(packed[..., None], moved, 0), packed, jnp.argsort(order, axis=-1)


def _unpack(values: Tree, slots: Array, is_open: Bool[Array, "*B T"]) -> Tree:
    back = lambda x: jnp.where(is_open, jnp.take_along_axis(x, slots, axis=-1), 0)  # noqa: E731
    return jax.tree.map(back, values)
