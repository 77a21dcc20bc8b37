"""Cells of Flax with the parameters of the layers."""

import functools

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax.nn._initializers import per_gate, per_layer, symmetric_uniform
from gatedjax.nn._keys import _warn_once
from tests._drawn import drawn
from tests._weights import weights_of

B, T, D, H = 3, 4, 2, 3
XS = np.random.default_rng(0).normal(size=(B, T, D)).astype(np.float32)
LENGTHS = np.array([4, 2, 0], np.int32)
FORMS = {
    "lstm": (gnn.LSTM, gnn.LSTMCell, {"forget_bias": 2.0}),
    "gru": (gnn.GRU, gnn.GRUCell, {"gate_bias": 1.0}),
    "gru_reset_after": (gnn.GRU, gnn.GRUCell, {"reset_after": True, "gradient_clip": 5.0}),
    "rau": (gnn.RAU, gnn.RAUCell, {"rescale": True, "reset_after": True}),
    "rau_hidden": (gnn.RAU, gnn.RAUCell, {"attn_hidden": 2, "attention": "sigmoid"}),
    "rau_matrix": (gnn.RAU, gnn.RAUCell, {"attention": "matrix"}),
    "rau_time": (gnn.RAU, gnn.RAUCell, {"attention": "time_causal"}),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_cell_in_rnn_equals_the_layer(form):
    layer_kind, cell_kind, options = FORMS[form]
    layer, rnn = layer_kind(H, **options), nn.RNN(cell_kind(H, **options), return_carry=True)
    params = drawn(layer.init, XS, std=0.6)["params"]
    shapes = jax.eval_shape(rnn.init, jax.random.key(0), XS)["params"]["cell"]
    own = params["layer_0"]["forward"]
    chex.assert_trees_all_equal_shapes_and_dtypes(shapes, own)

    @jax.jit
    def both(own, xs):
        (carry,), outputs = layer.apply({"params": params}, xs, lengths=LENGTHS)
        return (carry, outputs), rnn.apply({"params": {"cell": own}}, xs, seq_lengths=LENGTHS)

    (carry, outputs), (cell_carry, cell_outputs) = both(own, XS)
    # A row without steps has no last state in Flax; its padding has outputs.
    first = lambda tree: jax.tree.map(lambda leaf: leaf[:2], tree)  # noqa: E731
    chex.assert_trees_all_close(first(cell_carry), first(carry), atol=1e-6)
    real = (np.arange(T) < LENGTHS[:, None])[..., None]
    np.testing.assert_allclose(np.where(real, cell_outputs, 0), outputs, atol=1e-6)


def test_a_cell_decodes_with_attention_in_a_scan():
    class Step(nn.Module):
        @nn.compact
        def __call__(self, carry, y, memory):
            carry, output = gnn.RAUCell(H, name="cell")(carry, y)
            weights = F.masked_softmax(jnp.einsum("bd,bnd->bn", output, memory))
            return carry, F.attention_pool(memory, weights)

    scan = nn.scan(
        Step,
        variable_broadcast="params",
        split_rngs={"params": False},
        in_axes=(1, nn.broadcast),
        out_axes=1,
    )()
    memory = np.random.default_rng(1).normal(size=(B, 5, H)).astype(np.float32)
    zeros = np.zeros((B, H), np.float32)
    variables = drawn(scan.init, zeros, XS, memory)
    weights = weights_of(F.RAUWeights, {"layer_0": {"forward": variables["params"]["cell"]}})

    @jax.jit
    def both(variables, weights):
        states = F.rau(weights, XS)[1]
        scores = F.masked_softmax(jnp.einsum("btd,bnd->btn", states, memory))
        want = jnp.einsum("btn,bnd->btd", scores, memory)
        return scan.apply(variables, zeros, XS, memory)[1], want

    np.testing.assert_allclose(*both(variables, weights), atol=1e-6)


def test_a_cell_takes_any_number_of_batch_axes_and_half_precision():
    cell = gnn.LSTMCell(H, dtype=jnp.bfloat16)
    x = XS[:, 0]
    variables = drawn(cell.init, cell.initialize_carry(None, x.shape), x)

    @jax.jit
    def run(x):
        start = jax.tree.map(jnp.ones_like, cell.initialize_carry(None, x.shape))
        return cell.apply(variables, start, x, 2 * jnp.ones((*x.shape[:-1], H)))

    (state, output), (one, single), (grid, both) = map(run, (x, x[0], x[None, :, None]))
    with jax.enable_x64(True):
        start = cell.clone(dtype=jnp.float64).initialize_carry(None, (D,))
    assert {leaf.dtype for leaf in jax.tree.leaves(start)} == {jnp.dtype(jnp.float64)}
    assert output.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(state)} == {jnp.dtype(jnp.float32)}
    assert (single.shape, both.shape) == ((H,), (1, B, 1, H))
    np.testing.assert_array_equal(one.cell, state.cell[0])
    np.testing.assert_array_equal(grid.cell[0, :, 0], state.cell)


@pytest.mark.slow
def test_names_of_axes_stay_at_the_parameters():
    """`with_partitioning` boxes what it draws, and a block of a gate is drawn on its own."""
    axes = nn.with_partitioning(nn.initializers.lecun_normal(), (None, "model"))
    layer = gnn.GRU(H, bidirectional=True, kernel_init=axes)
    variables = jax.eval_shape(layer.init, jax.random.key(0), XS)
    specs = nn.get_partition_spec(variables)["params"]["layer_0"]["backward"]
    assert specs["kernel"] == jax.sharding.PartitionSpec(None, "model")
    assert specs["bias"] == jax.sharding.PartitionSpec()
    params = nn.meta.unbox(jax.jit(layer.init)(jax.random.key(0), XS))
    assert layer.apply(params, XS)[1].shape == (B, T, 2 * H)


def test_initialisers_of_a_stack_draw_each_layer_and_gate(rng):
    ones, halves = nn.initializers.ones, nn.initializers.constant(0.5)
    options = {"kernel_init": ones, "recurrent_kernel_init": halves, "bias_init": halves}
    module = gnn.AttentionGatedTransform(3, gate_bias=2.0, ablate_above=1, **options)
    params = jax.jit(module.init)(rng, XS)["params"]
    wanted = dict.fromkeys(("recurrent_kernel", "highway_kernel"), 0.5)
    wanted |= dict.fromkeys(("bias", "highway_bias"), np.repeat([[2.5, 0.5]], D, axis=1))
    assert wanted.keys() < params.keys()
    for name, value in params.items():
        want = wanted.get(name, 1)
        np.testing.assert_array_equal(value, np.broadcast_to(want, value.shape), err_msg=name)
    drawn_blocks = per_gate(nn.initializers.normal(1.0), (0.0, 0.0))(rng, (2, 4), np.float32)
    assert np.abs(drawn_blocks[:, :2] - drawn_blocks[:, 2:]).min() > 0
    drawn_layers = per_layer(nn.initializers.normal(1.0))(rng, (2, 3, 4))
    assert np.abs(drawn_layers[0] - drawn_layers[1]).min() > 0
    draws = symmetric_uniform(0.05)(rng, (200,))
    assert -0.05 <= draws.min() < -0.048
    assert 0.048 < draws.max() <= 0.05


@pytest.mark.parametrize("kind", [gnn.LSTM, gnn.RAU])
def test_a_layer_takes_the_place_of_an_rnn_of_flax(kind):
    layer = kind(H, bidirectional=True)
    variables = drawn(layer.init, XS)
    mask = np.arange(T) < LENGTHS[:, None]
    resets = np.arange(T) == np.array([2, 1, 0])[:, None]

    @jax.jit
    def run(variables, xs, mask, resets):
        carries, outputs = layer.apply(variables, xs, mask, resets=resets)
        swapped = (jnp.swapaxes(x, 0, 1) for x in (xs, mask, resets))
        first, real, starts = swapped
        options = {"resets": starts, "time_major": True}
        by_time = layer.apply(variables, first, real, **options)
        alone = layer.clone(time_major=True, return_carry=False)
        only = alone.apply(variables, first, real, resets=starts)
        both = alone.apply(variables, xs, mask, resets=resets, time_major=False, return_carry=True)
        return (carries, outputs), by_time, only, both

    (carries, outputs), by_time, only, both = run(variables, XS, mask, resets)
    chex.assert_trees_all_equal(by_time[0], carries)
    np.testing.assert_array_equal(by_time[1], np.swapaxes(outputs, 0, 1))
    np.testing.assert_array_equal(only, by_time[1])
    chex.assert_trees_all_equal(both, (carries, outputs))
    if kind is gnn.LSTM:  # which has gates, by time too
        options = {"gates": np.ones((T, B), np.float32), "time_major": True}
        by_time = functools.partial(layer.clone(dtype=jnp.bfloat16).apply, **options)
        outputs = jax.eval_shape(by_time, variables, np.swapaxes(XS, 0, 1))[1]
        assert (outputs.shape, outputs.dtype) == ((T, B, 2 * H), jnp.bfloat16)
    chain = nn.Sequential([nn.Dense(2), kind(H, return_carry=False), nn.Dense(2)])
    assert jax.eval_shape(chain.init_with_output, jax.random.key(0), XS)[0].shape == (B, T, 2)


@pytest.mark.parametrize(
    "module",
    [gnn.AttentionPool(), gnn.SelectiveSelfAttention(1), gnn.SelectiveSelfAttention(1, block=2)],
    ids=["pool", "selective", "in_blocks"],
)
def test_an_attention_without_weights_returns_its_output(module):
    variables = drawn(module.init, XS)

    @jax.jit
    def run(variables, xs):
        output, _ = module.apply(variables, xs)
        alone = module.clone(return_weights=False).apply(variables, xs)
        return output, alone, module.apply(variables, xs, return_weights=False)

    output, *others = run(variables, XS)
    for other in others:
        np.testing.assert_array_equal(other, output)


@pytest.mark.slow
def test_a_stream_without_use_warns_once():
    rngs = {"dropout": jax.random.key(1), "gate": jax.random.key(2)}
    _warn_once.cache_clear()
    cases = [
        (gnn.GRU(H, num_layers=2, dropout=0.5), "GRU.*'dropout'.*deterministic=False"),
        (gnn.SelectiveSelfAttention(1), "SelectiveSelfAttention.*'gate'"),
    ]
    for module, message in cases:
        # An initialisation with all streams of a network is no mistake.
        variables = jax.eval_shape(module.init, {"params": jax.random.key(0)} | rngs, XS)

        def call(deterministic, module=module, variables=variables):
            # A new function is traced again.
            apply = functools.partial(module.apply, deterministic=deterministic, rngs=rngs)
            jax.eval_shape(lambda variables, xs: apply(variables, xs), variables, XS)

        with pytest.warns(UserWarning, match=message):
            call(True)
        call(True)
        call(False)
    # Without dropout there is nothing that the stream could do.
    plain = gnn.LSTM(H)
    variables = jax.eval_shape(plain.init, jax.random.key(0), XS)
    jax.eval_shape(functools.partial(plain.apply, rngs=rngs), variables, XS)
