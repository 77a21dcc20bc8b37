"""`Recurrent` stacks any cell: against the layers of this library and Flax's loop."""

import functools
import re

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gatedjax import nn as gnn
from gatedjax import nnx as gnnx
from tests._drawn import drawn

B, T, D, H = 3, 5, 2, 3
XS = np.random.default_rng(0).normal(size=(B, T, D)).astype(np.float32)
LENGTHS = np.array([5, 2, 0], np.int32)
RESETS = np.arange(T) == np.array([2, 1, 3])[:, None]
STACK = {"num_layers": 2, "bidirectional": True}


class Plain(nn.RNNCellBase):
    """A cell with the protocol of Flax alone, around a cell of this library."""

    cell: nn.Module
    features: int = H
    num_feature_axes = 1

    def __call__(self, carry, x, recurrent_dropout_mask=None):
        return self.cell(carry, x, recurrent_dropout_mask=recurrent_dropout_mask)

    @nn.nowrap
    def initialize_carry(self, rng, input_shape):
        return self.cell.initialize_carry(rng, input_shape)


CELLS = {
    "lstm": (gnn.LSTM, gnn.LSTMCell, {"forget_bias": 2.0}),
    "gru": (gnn.GRU, gnn.GRUCell, {"reset_after": True}),
    "rau": (gnn.RAU, gnn.RAUCell, {"attention": "time_causal"}),
}


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_of_this_library_is_the_program_of_its_layer(name):
    layer, cell, options = CELLS[name]
    layer = layer(H, **STACK, dropout=0.5, recurrent_dropout=0.5, **options)
    own = gnn.Recurrent(cell(H, **options), **STACK, dropout=0.5, recurrent_dropout=0.5)

    def program(module):
        def run(key, rng, xs):
            variables = module.init(key, xs)
            outputs = module.apply(variables, xs, deterministic=False, rngs={"dropout": rng})
            return variables, outputs, module.initial_carry(B)

        traced = str(jax.make_jaxpr(run)(jax.random.key(0), jax.random.key(1), XS))
        return re.sub(r" at 0x[0-9a-f]+", "", traced)

    assert program(own) == program(layer)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm", "rau"])
def test_a_cell_of_flax_has_masks_resets_carries_and_both_dropouts(name):
    """`masked_scan` of the step against `lstm` and `rau`, in values and gradients."""
    layer, cell, options = CELLS[name]
    noisy = {"dropout": 0.5, "recurrent_dropout": 0.5, "bidirectional": True}
    noisy["num_layers"] = 2 if name == "lstm" else 1  # most of the time is compilation
    layer = layer(H, **noisy, **options)
    own = gnn.Recurrent(Plain(cell(H, **options)), **noisy)
    params = drawn(layer.init, XS)["params"]
    starts = layer.initial_carry(B)
    # the carries of a segment are others than the first
    again = jax.tree.map(lambda leaf: jnp.where(jnp.isfinite(leaf), leaf + 0.5, leaf), starts)

    @jax.jit
    def both(params, xs):
        def run(module, nest):
            def cost(params, xs):
                variables = {"params": params}
                if nest:
                    variables = {"params": {k: wrapped(v) for k, v in params.items()}}
                carries, outputs = module.apply(
                    variables, xs, lengths=LENGTHS, resets=RESETS, initial=starts, reset_to=again,
                    deterministic=False, rngs={"dropout": jax.random.key(1)},
                )  # fmt: skip
                return jnp.sum(jnp.sin(outputs)), (carries, outputs)

            return jax.value_and_grad(cost, (0, 1), has_aux=True)(params, xs)

        wrapped = lambda layer: {way: {"cell": its} for way, its in layer.items()}  # noqa: E731
        return run(own, True), run(layer, False)

    got, want = both(params, XS)
    chex.assert_trees_all_close(got, want, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [nn.OptimizedLSTMCell, nn.MGUCell])
def test_flax_s_cells_run_as_in_bidirectional(kind):
    theirs = nn.Bidirectional(nn.RNN(kind(H)), nn.RNN(kind(H)))
    ours = gnn.Recurrent(kind(H), bidirectional=True, return_carry=False)
    params = drawn(ours.init, XS)["params"]
    ways = {"forward_rnn": "forward", "backward_rnn": "backward"}
    other = {name: {"cell": params["layer_0"][way]} for name, way in ways.items()}

    @jax.jit
    def both(xs, lengths):
        want = theirs.apply({"params": other}, xs, seq_lengths=lengths)
        return ours.apply({"params": params}, xs, lengths=lengths), want

    # Flax's backward direction reads padding first where a row has length 0.
    got, want = both(XS[:2], LENGTHS[:2])
    real = np.arange(T)[:, None] < LENGTHS[:2, None, None]
    np.testing.assert_allclose(got, np.where(real, want, 0), atol=1e-6)


def test_a_step_of_masked_scan_and_a_cell_of_images_are_stacked():
    total = gnn.Recurrent(lambda carry, x: (carry + x, carry + x), bidirectional=True)
    zeros = np.zeros((B, D), np.float32)
    (((ahead, back),), sums) = total.apply({}, XS, initial=((zeros, zeros),), lengths=LENGTHS)
    want = np.cumsum(np.where(np.arange(T)[:, None] < LENGTHS[:, None, None], XS, 0), axis=1)
    np.testing.assert_allclose(ahead, want[:, -1], atol=1e-6)
    np.testing.assert_allclose(back, ahead, atol=1e-6)
    np.testing.assert_allclose(sums[0, :, :D], want[0], atol=1e-6)
    images = np.ones((2, T, 4, 4, 1), np.float32)
    run = gnn.Recurrent(nn.ConvLSTMCell(2, (3, 3)), 2, return_carry=False).init_with_output
    assert jax.eval_shape(run, jax.random.key(0), images)[0].shape == (2, T, 4, 4, 2)


@pytest.mark.slow
def test_nnx_cells_draw_dropout_carry_on_and_split():
    cell = functools.partial(nnx.OptimizedLSTMCell, hidden_features=H)
    module = gnnx.Recurrent(cell, D, num_layers=2, dropout=0.5, rngs=nnx.Rngs(0))
    own = gnnx.Recurrent(
        lambda width, rngs: gnnx.LSTMCell(width, H, rngs=rngs), D, **STACK, rngs=nnx.Rngs(0)
    )

    @nnx.jit
    def run(module, own, xs):
        drawn_ones = [module(xs, return_carry=False) for _ in range(2)]
        module.eval()
        whole = module(xs, lengths=LENGTHS)
        again = nnx.merge(*nnx.split(module))
        params = nnx.to_pure_dict(nnx.state(own, nnx.Param))
        want = gnn.LSTM(H, **STACK).apply({"params": params}, xs)
        return drawn_ones, (whole, again(xs, lengths=LENGTHS)), (own(xs), want)

    (first, second), *pairs = run(module, own, XS)
    assert np.abs(first - second).max() > 1e-3
    for got, want in pairs:
        chex.assert_trees_all_equal(got, want)
    with pytest.raises(ValueError, match="rngs must have the streams params, dropout"):
        gnnx.Recurrent(cell, D, dropout=0.5, rngs=nnx.Rngs(params=0))
