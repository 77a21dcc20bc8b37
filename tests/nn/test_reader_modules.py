"""The modules of the GA Reader: a hop, and characters."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import functional as F
from gatedjax import nn as gnn
from tests._weights import weights_of
from tests.tolerances import F32


def gru_both_ways(params, xs, mask, **options):
    weights = [weights_of(F.GRUWeights, params, direction=way) for way in ("forward", "backward")]
    return F.bidirectional(functools.partial(F.gru, **options), *weights, xs, mask)


GRU = {"reset_after": True, "recurrent_bias": False}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gating", "token_attention"), [("multiply", True), ("concat", False), (None, True)]
)
def test_a_hop_equals_the_functional_calls(gating, token_attention, rng, np_rng):
    document, query = (
        jnp.asarray(np_rng.normal(size=s), jnp.float32) for s in [(2, 5, 3), (2, 4, 2)]
    )
    masks = F.length_mask(jnp.array([5, 2]), 5), F.length_mask(jnp.array([1, 4]), 4)
    hop = gnn.GatedAttentionHop(3, gating=gating, token_attention=token_attention, gru=GRU)
    params = jax.jit(hop.init)(rng, document, query)["params"]

    @jax.jit
    def both(params):
        found = hop.apply({"params": params}, document, query, *masks)
        _, read = gru_both_ways(params["document"], document, masks[0], reset_after=True)
        final, asked = gru_both_ways(params["query"], query, masks[1], reset_after=True)
        summary = jnp.concatenate(final, axis=-1)
        want = (read, asked, summary)
        if gating is not None and token_attention:
            want += F.gated_attention(read, asked, masks[1], gating=gating)
        elif gating is not None:
            want += F.gated_attention(read, summary, gating=gating)
        return found, want

    found, want = both(params)
    for got, wanted in zip(found, want, strict=False):
        np.testing.assert_allclose(got, wanted, **F32)
    assert (found.gated is None) == (found.attention is None) == (gating is None)


CHARACTERS = np.array([[3, 1, 2, 0], [4, 0, 0, 0], [0, 0, 0, 0], [1, 2, 3, 4]], np.int32)
LENGTHS = np.array([3, 1, 0, 9], np.int32)


@pytest.mark.slow
def test_characters_are_read_both_ways_from_their_ends(rng):
    module = gnn.CharacterEncoder(5, 6, hidden=4, char_features=3, gru=GRU)
    params = jax.jit(module.init)(rng, CHARACTERS, LENGTHS)["params"]
    params = jax.tree.map(lambda p: p + 0.1, params)

    mask = np.arange(4) < LENGTHS[:, None]
    # padding, of any width and with anything on it, changes nothing; leading axes are free
    wide = np.pad(CHARACTERS, ((0, 0), (0, 3)), constant_values=2)
    wide[1, 1:] = 4
    short = np.minimum(LENGTHS, 4)  # a length beyond the axis is cut

    # the lengths are arguments: known ones beyond the axis are refused, and traced ones are cut
    @jax.jit
    def run(params, lengths):
        def apply(params, characters, lengths):
            return module.apply({"params": params}, characters, lengths)

        states = params["embedding"][CHARACTERS]
        (ahead, back), _ = gru_both_ways(params["gru"], states, mask, reset_after=True)
        dense = params["projection"]
        want = jnp.concatenate([ahead, back], -1) @ dense["kernel"] + dense["bias"][None]
        again = apply(params, wide.reshape(2, 2, 7), short.reshape(2, 2)).reshape(4, 6)
        empty = jax.grad(lambda p: jnp.sum(apply(p, CHARACTERS, lengths * 0)))(params)
        return apply(params, CHARACTERS, lengths), want, again, empty

    words, want, again, gradient = jax.tree.map(np.asarray, run(params, LENGTHS))
    np.testing.assert_allclose(words, np.where(LENGTHS[:, None] > 0, want, 0), **F32)
    np.testing.assert_allclose(again, words, **F32)
    assert all((g == 0).all() for g in jax.tree.leaves(gradient))
