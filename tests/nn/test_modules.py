"""Modules own parameters and pass arguments on; the mathematics is tested under functional."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import functional as F
from gatedjax import nn as gnn
from tests._drawn import drawn
from tests._weights import weights_of
from tests.tolerances import F32


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def real(lengths, size):
    return np.arange(size) < np.array(lengths)[:, None]


def filled(module, *inputs):
    return drawn(module.init, *inputs)


@pytest.mark.slow
def test_bidirectional_stack_equals_the_functional_calls():
    xs, mask = normal(3, 6, 4), real([6, 2, 0], 6)
    module = gnn.LSTM(5, num_layers=2, bidirectional=True)
    variables = filled(module, xs, mask)

    @jax.jit
    def both(variables, xs):
        params, expected = variables["params"], xs
        for layer in range(2):
            weights = [
                weights_of(F.LSTMWeights, params, layer, way) for way in ("forward", "backward")
            ]
            last, expected = F.bidirectional(F.lstm, *weights, expected, mask)
        return module.apply(variables, xs, mask), last, expected

    (carries, got), last, expected = both(variables, xs)
    np.testing.assert_allclose(got, expected, **F32)
    np.testing.assert_allclose(carries[1][1].cell, last[1].cell, **F32)


def test_lengths_say_what_their_mask_says():
    xs, lengths = normal(3, 6, 4), np.array([6, 2, 0])
    options = {"rescale": True, "reset_after": True}
    starts = {"resets": np.broadcast_to(np.arange(6) == 1, (3, 6))}
    mask, module = real(lengths, 6), gnn.RAU(5, **options)
    variables = filled(module, xs)

    @jax.jit
    def run(variables, xs, mask, lengths):
        method = functools.partial(module.apply, variables, method="attention_weights")
        weigh = functools.partial(method, xs, **starts)
        by_length = module.apply(variables, xs, lengths=lengths), weigh(lengths=lengths)
        weights = weights_of(F.RAUWeights, variables["params"])
        shown = F.rau_attention(weights, xs, mask, **starts, **options)
        return by_length, (module.apply(variables, xs, mask), weigh(mask)), shown

    by_length, by_mask, shown = run(variables, xs, mask, lengths)
    chex.assert_trees_all_equal(by_length, by_mask)
    np.testing.assert_allclose(by_mask[1], shown, **F32)
    np.testing.assert_allclose(shown.mean(-1), mask, **F32)
    with pytest.raises(ValueError, match="mask or lengths must be None"):
        jax.eval_shape(functools.partial(module.apply, lengths=lengths), variables, xs, mask)


@pytest.mark.slow
def test_resets_keep_segments_apart_in_all_layers_and_directions():
    xs, resets = normal(2, 5, 3), np.broadcast_to(np.arange(5) == 3, (2, 5))
    module = gnn.GRU(4, num_layers=2, bidirectional=True)
    variables = filled(module, xs)
    start = jax.tree.map(
        lambda leaf: np.full(leaf.shape, 0.5, leaf.dtype),
        jax.eval_shape(lambda: module.initial_carry(2)),
    )

    @jax.jit
    def run(variables, xs, resets, start):
        packed = module.apply(variables, xs, resets=resets, reset_to=start)
        return packed, module.apply(variables, xs[:, :3]), module.apply(variables, xs[:, 3:])

    packed, first, second = run(variables, xs, resets, jax.tree.map(np.zeros_like, start))
    np.testing.assert_allclose(packed[1], np.concatenate([first[1], second[1]], 1), **F32)
    np.testing.assert_allclose(packed[0][1][0], second[0][1][0], **F32)
    np.testing.assert_allclose(packed[0][1][1], first[0][1][1], **F32)
    moved, *_ = run(variables, xs, resets, start)
    # what runs first begins with zeros, what comes after a reset with the carry that was given
    for got, before in zip(moved[0][0], packed[0][0], strict=True):
        assert np.abs(got - before).min() > 1e-4
    call = functools.partial(module.apply, resets=resets, reset_to=start[:1])
    with pytest.raises(ValueError, match=r"reset_to must .* layer \(2\), got 1"):
        jax.eval_shape(call, variables, xs)


LAYERS = {
    "gru": (gnn.GRU, F.gru, F.GRUWeights, {}),
    "gru reset after": (gnn.GRU, F.gru, F.GRUWeights, {"reset_after": True}),
    "rau": (gnn.RAU, F.rau, F.RAUWeights, {}),
    "rau concat": (gnn.RAU, F.rau, F.RAUConcatWeights, {"attention": "concat"}),
    "rau matrix": (gnn.RAU, F.rau, F.RAUMatrixWeights, {"attention": "matrix"}),
    "rau time_causal": (gnn.RAU, F.rau, F.RAUHiddenWeights, {"attention": "time_causal"}),
    "rau hidden": (
        functools.partial(gnn.RAU, attn_hidden=6),
        F.rau,
        F.RAUHiddenWeights,
        {"attention": "sigmoid", "reset_after": True},
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_equals_the_functional_call(name):
    kind, unroll, weights_kind, options = LAYERS[name]
    xs, mask = normal(2, 5, 3), real([5, 2], 5)
    module = kind(4, **options)

    @jax.jit
    def both(variables, xs):
        weights = weights_of(weights_kind, variables["params"])
        return module.apply(variables, xs, mask), unroll(weights, xs, mask, **options)

    ((carry,), got), (last, expected) = both(filled(module, xs), xs)
    np.testing.assert_allclose(got, expected, **F32)
    chex.assert_trees_all_close(carry, last, **F32)


@pytest.mark.parametrize("kind", [gnn.LSTM, gnn.RAU])
def test_of_bfloat16_are_the_products_alone(kind):
    """Biases and gradients are those of the functions, which were rounded to bfloat16 before."""
    xs = normal(2, 5, 3)
    module = kind(4, dtype=jnp.bfloat16)
    variables = filled(module, xs)
    is_rau = kind is gnn.RAU
    function, weights = (F.rau, F.RAUWeights) if is_rau else (F.lstm, F.LSTMWeights)

    @jax.jit
    def run(variables, xs):
        def direct(variables, xs):
            own = weights_of(weights, variables["params"])
            carry, outputs = function(own, xs.astype(jnp.bfloat16))
            return (carry,), outputs

        def graded(call):
            found, pull = jax.vjp(lambda v: call(v, xs), variables)
            return found, pull(jax.tree.map(jnp.ones_like, found))[0]["params"]

        results = graded(module.apply), graded(direct)
        if not is_rau:
            return results, None
        own = weights_of(weights, variables["params"])
        wanted = F.rau_attention(own, xs.astype(jnp.bfloat16))
        return results, (module.apply(variables, xs, method="attention_weights"), wanted)

    (got, want), attention = jax.tree.map(np.asarray, run(variables, xs))
    chex.assert_trees_all_equal(got, want)
    for slope in jax.tree.leaves(got[1]):
        assert slope.dtype == np.float32
        assert np.any(slope != slope.astype(jnp.bfloat16).astype(np.float32))
    if attention is not None:
        np.testing.assert_array_equal(*attention)


@pytest.mark.parametrize(
    "module",
    [
        gnn.LSTM(4, num_layers=2),
        gnn.GRU(4, bidirectional=True),
        gnn.RAU(4, num_layers=2, bidirectional=True, attention="time_causal"),
        gnn.RAU(4, dtype=jnp.bfloat16),
    ],
    ids=["lstm", "gru_both_ways", "rau_over_time_both_ways", "rau_bfloat16"],
)
def test_the_initial_carry_is_the_one_that_none_stands_for(module):
    xs, mask = normal(3, 5, 2), real([5, 2, 0], 5)
    initial = module.initial_carry(3)

    @jax.jit
    def both(variables, xs, initial):
        given = functools.partial(module.apply, initial=initial)
        return module.apply(variables, xs, mask), given(variables, xs, mask)

    found = both(filled(module, xs), xs, initial)
    (carries, outputs), again = jax.tree.map(np.asarray, found)
    like = lambda tree: jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)  # noqa: E731
    assert like(initial) == like(carries)
    for got, want in zip(*map(jax.tree.leaves, (again, (carries, outputs))), strict=True):
        np.testing.assert_array_equal(got, want)
    # the row without a step still holds it
    rows = (jax.tree.map(lambda leaf: np.asarray(leaf)[2], tree) for tree in (carries, initial))
    for got, want in zip(*map(jax.tree.leaves, rows), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "more", "candidates"),
    [(gnn.GRU, {"reset_after": True}, 1), (gnn.RAU, {}, 3), (gnn.RAU, {"attention": "matrix"}, 1)],
)
def test_a_gate_bias_keeps_the_state_of_a_new_unit(kind, more, candidates, rng):
    xs, initial = normal(2, 5, 3), (np.full((2, 4), 0.3, np.float32),)
    module, plain = kind(4, gate_bias=20.0, **more), kind(4, **more)

    @jax.jit
    def run(rng, xs, initial):
        variables, others = module.init(rng, xs), plain.init(rng, xs)
        kept, _ = module.apply(variables, xs, initial=initial)
        return (
            variables["params"]["layer_0"]["forward"]["bias"],
            kept,
            plain.apply(others, xs, initial=initial)[0],
        )

    bias, kept, other = jax.tree.map(np.asarray, run(rng, xs, initial))
    np.testing.assert_array_equal(bias, [20.0] * 4 + [-20.0] * 4 + [0.0] * 4 * candidates)
    np.testing.assert_allclose(kept[0], initial[0], atol=1e-5)
    assert not np.allclose(other[0], initial[0], atol=1e-2)


def test_attention_pool_takes_gates_or_log_gates():
    states, mask = normal(2, 5, 3), real([5, 3], 5)
    gates = np.float32([[1, 0, 1, 0, 1], [0, 1, 1, 1, 1]])
    module = gnn.AttentionPool("mlp1")
    variables = filled(module, states, mask)

    @jax.jit
    def both(variables, gates):
        run = functools.partial(module.apply, variables, states, mask)
        return run(gates=gates), run(log_gates=jnp.log(gates))

    hard, soft = jax.tree.map(np.asarray, both(variables, gates))
    np.testing.assert_allclose(hard[0], soft[0], **F32)
    np.testing.assert_array_equal(hard[1][1], hard[1][1] * gates[1] * mask[1])
    with pytest.raises(ValueError, match="gates or log_gates must be None"):
        module.apply(variables, states, mask, gates=gates, log_gates=gates)


@pytest.mark.slow
def test_a_gate_predictor_is_its_equation_and_closes_padding():
    xs, mask = normal(2, 4, 3), real([4, 2], 4)
    wide = np.pad(xs, ((0, 0), (0, 3), (0, 0)), constant_values=9.0), np.pad(mask, ((0, 0), (0, 3)))
    modules = {kind: gnn.GatePredictor(kind, features=5) for kind in ("lstm", "fnn", "att")}
    variables = {kind: filled(module, xs, mask) for kind, module in modules.items()}

    @jax.jit
    def run(variables, xs, mask):
        def cost(variables):
            found = {kind: one.apply(variables[kind], xs, mask) for kind, one in modules.items()}
            return sum(jnp.sum(jnp.where(mask, x, 0) ** 2) for x in found.values()), found

        return jax.grad(cost, has_aux=True)(variables)

    given = (xs, mask), (np.where(mask[..., None], xs, np.nan), mask), wide
    (slopes, found), dirty, wider = (jax.tree.map(np.asarray, run(variables, *x)) for x in given)

    def dense(kind, name, inputs):
        layer = variables[kind]["params"][name]
        return inputs @ layer["kernel"] + layer["bias"]

    places = xs + np.asarray(F.sinusoids(np.arange(4), 3))
    query, key, value = (dense("att", name, places) for name in ("query", "key", "value"))
    e = np.where(mask[:, None], np.exp(query @ key.swapaxes(1, 2) / np.sqrt(5)), 0)
    mixed = e / e.sum(-1, keepdims=True) @ value
    for kind, hidden in {"fnn": np.tanh(dense("fnn", "Dense_0", xs)), "att": mixed}.items():
        np.testing.assert_allclose(
            found[kind], np.where(mask, dense(kind, "gate", hidden)[..., 0], -np.inf), **F32
        )
    for kind, logits in found.items():
        assert np.isneginf(logits[1, 2:]).all()
        np.testing.assert_array_equal(dirty[1][kind], logits)
        np.testing.assert_allclose(wider[1][kind][:, :4], logits, **F32)
    chex.assert_trees_all_equal(dirty[0], slopes)
    chex.assert_trees_all_close(wider[0], slopes, **F32)


def test_word_embedding_starts_from_the_table_and_keeps_padding_zero(rng):
    table = np.arange(12, dtype=np.float32).reshape(4, 3) + 1
    module = gnn.WordEmbedding(4, 3, initial=table)
    variables = jax.jit(module.init)(rng, np.array([[0]]))
    got = jax.jit(module.apply)(variables, np.array([[2, 0]]))
    np.testing.assert_array_equal(got, [[table[2], np.zeros(3)]])
    with pytest.raises(ValueError, match="initial"):
        jax.eval_shape(gnn.WordEmbedding(5, 3, initial=table).init, rng, np.array([[0]]))
    with pytest.raises(TypeError, match="tokens"):
        jax.eval_shape(module.apply, variables, np.array([[0.5]]))
    narrow = gnn.WordEmbedding(4, 3, dtype=jnp.bfloat16)
    vectors, stored = jax.eval_shape(narrow.init_with_output, rng, np.array([[1]]))
    assert vectors.dtype == jnp.bfloat16
    assert stored["params"]["embedding"].dtype == jnp.float32


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_a_token_below_zero_is_nan_in_a_narrow_dtype_too(dtype):
    size = 40_000
    module, tokens = gnn.WordEmbedding(size, 2), np.array([5, 0, -1, 7], dtype)
    table = np.zeros((size, 2), np.float32)
    table[[5, 7]] = [1, 2], [3, 4]
    got = jax.jit(module.apply)({"params": {"embedding": table}}, tokens)
    np.testing.assert_array_equal(got, np.float32([[1, 2], [0, 0], [np.nan] * 2, [3, 4]]))


@pytest.mark.parametrize("dtype", [np.int8, np.uint32])
def test_a_local_position_is_inside_the_sentence_for_unsigned_lengths_too(dtype):
    last, lengths = normal(3, 2), np.array([0, 1, 5])
    module = gnn.LocalPosition()
    variables = filled(module, last, lengths)
    first, second = (variables["params"][f"Dense_{i}"]["kernel"] for i in range(2))
    share = 1 / (1 + np.exp(-np.tanh(last @ first) @ second))[:, 0]
    got = jax.jit(module.apply)(variables, last, lengths.astype(dtype))
    np.testing.assert_allclose(got, [0, 0, 4] * share, **F32)
