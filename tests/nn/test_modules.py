"""Modules own parameters and pass arguments on; the mathematics is tested under functional."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.errors import ScopeParamShapeError

from gatedjax import functional as F
from gatedjax import nn as gnn
from tests.tolerances import F32


def test_bidirectional_stack_equals_the_functional_calls(rng):
    xs = jax.random.normal(rng, (3, 6, 4))
    mask = F.length_mask(jnp.array([6, 2, 0]), 6)
    module = gnn.LSTM(5, num_layers=2, bidirectional=True)
    params = module.init(rng, xs, mask)["params"]
    carries, got = module.apply({"params": params}, xs, mask)
    expected = xs
    for layer in range(2):
        weights = [
            F.LSTMWeights(
                *(params[f"layer_{layer}_{way}_{k}"] for k in ("input", "recurrent", "bias"))
            )
            for way in ("forward", "backward")
        ]
        last, expected = F.bidirectional(F.lstm, *weights, expected, mask)
    np.testing.assert_allclose(got, expected, **F32)
    np.testing.assert_allclose(carries[1][1].cell, last[1].cell, **F32)


@pytest.mark.parametrize("reset_after", [False, True])
def test_gru_equals_the_functional_call(reset_after, rng):
    xs = jax.random.normal(rng, (2, 5, 3))
    module = gnn.GRU(4, reset_after=reset_after)
    params = module.init(rng, xs)["params"]
    params = jax.tree.map(lambda p: p + 0.1, params)
    (carry,), got = module.apply({"params": params}, xs)
    names = ["input", "recurrent", "bias"] + ["recurrent_bias"] * reset_after
    weights = F.GRUWeights(*(params[f"layer_0_{name}"] for name in names))
    last, expected = F.gru(weights, xs, reset_after=reset_after)
    np.testing.assert_allclose(got, expected, **F32)
    np.testing.assert_allclose(carry, last, **F32)


RAU_FIELDS = {
    "feature_proj": (F.RAUWeights, 0),
    "sigmoid": (F.RAUHiddenWeights, 6),
    "additive_relu": (F.RAUWeights, 0),
    "concat": (F.RAUConcatWeights, 0),
    "matrix": (F.RAUMatrixWeights, 0),
    "time_causal": (F.RAUHiddenWeights, 0),
}


@pytest.mark.parametrize("attention", RAU_FIELDS)
def test_rau_equals_the_functional_call(attention, rng):
    kind, inner = RAU_FIELDS[attention]
    xs, mask = jax.random.normal(rng, (2, 5, 3)), F.length_mask(jnp.array([5, 2]), 5)
    module = gnn.RAU(4, attention=attention, attn_hidden=inner, reset_after=inner > 0)
    params = jax.tree.map(lambda p: p + 0.1, module.init(rng, xs)["params"])
    (carry,), got = module.apply({"params": params}, xs, mask)
    fields = {name.removeprefix("layer_0_"): value for name, value in params.items()}
    last, expected = F.rau(
        kind(**{"recurrent_bias": None, **fields}),
        xs,
        mask,
        attention=attention,
        reset_after=inner > 0,
    )
    np.testing.assert_allclose(got, expected, **F32)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **F32), carry, last)


def test_rau_stacks_in_both_directions_with_dropout_and_carried_state(rng):
    xs, mask = jnp.ones((2, 5, 3), jnp.bfloat16), F.length_mask(jnp.array([5, 0]), 5)
    module = gnn.RAU(
        4, num_layers=2, bidirectional=True, dropout=0.5, recurrent_dropout=0.5, rescale=True
    )
    variables = module.init(rng, xs)
    carries, outputs = jax.jit(module.apply)(variables, xs, mask)
    assert (outputs.shape, outputs.dtype) == ((2, 5, 8), jnp.bfloat16)
    assert {leaf.dtype for leaf in jax.tree.leaves(carries)} == {jnp.dtype(jnp.float32)}
    np.testing.assert_array_equal(outputs[1].astype(jnp.float32), 0.0)
    again = module.apply(variables, xs, mask, initial=carries)[1]
    noisy = module.apply(variables, xs, mask, deterministic=False, rngs={"dropout": rng})[1]
    assert not np.array_equal(again, outputs)
    assert not np.array_equal(noisy, outputs)


def test_rau_has_the_parameters_of_the_paper_per_block(rng):
    def count(module):
        params = jax.eval_shape(module.init, rng, jnp.ones((1, 2, 28)))
        return sum(leaf.size for leaf in jax.tree.leaves(params))

    assert [count(kind(128)) for kind in (gnn.GRU, gnn.LSTM, gnn.RAU)] == [60288, 80384, 100480]
    params = gnn.RAU(4).init(rng, jnp.ones((1, 2, 3)))["params"]
    for block in jnp.split(params["layer_0_recurrent"], 5, axis=1):
        np.testing.assert_allclose(block @ block.T, np.eye(4), atol=1e-5)
    np.testing.assert_array_equal(params["layer_0_bias"], np.zeros(20))


@pytest.mark.parametrize(
    "module",
    [
        gnn.LSTM(40, init_scale=0.05, num_layers=2),
        gnn.GRU(40, init_scale=0.05, bidirectional=True),
        gnn.RAU(40, init_scale=0.05, attn_hidden=30),
        gnn.RAU(40, init_scale=0.05, attention="matrix"),
    ],
    ids=["lstm", "gru", "rau_hidden", "rau_matrix"],
)
def test_init_scale_bounds_every_kernel_and_leaves_the_biases(module, rng):
    params = jax.jit(module.init)(rng, jnp.ones((1, 2, 30)))["params"]
    for name, value in params.items():
        if value.ndim == 1:
            forget = getattr(module, "forget_bias", 0.0)
            assert set(np.unique(value)) <= {0.0, forget}, name
        else:
            assert 0.048 < value.max() <= 0.05, name
            assert -0.05 <= value.min() < -0.048, name


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
def test_the_initial_carry_is_the_one_that_none_stands_for(module, rng):
    xs, mask = jax.random.normal(rng, (3, 5, 2)), F.length_mask(jnp.array([5, 2, 0]), 5)
    shapes = jax.eval_shape(module.init, rng, xs)
    params = jax.tree.map(lambda s: jnp.sin(jnp.arange(1.0, s.size + 1)).reshape(s.shape), shapes)
    initial = module.initial_carry(3)
    carries, outputs = jax.jit(module.apply)(params, xs, mask)
    like = lambda tree: jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)  # noqa: E731
    assert like(initial) == like(carries)
    again = jax.jit(functools.partial(module.apply, initial=initial))(params, xs, mask)
    for got, want in zip(*map(jax.tree.leaves, (again, (carries, outputs))), strict=True):
        np.testing.assert_array_equal(got, want)
    # the row without a step still holds it
    rows = (jax.tree.map(lambda leaf: leaf[2], tree) for tree in (carries, initial))
    for got, want in zip(*map(jax.tree.leaves, rows), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"init_scale": float("nan")}, "init_scale must be positive and finite, got nan"),
        ({"init_scale": float("inf")}, "init_scale must be positive and finite, got inf"),
        ({"init_scale": 0.0}, "init_scale must be positive and finite, got 0.0"),
        ({"attn_hidden": -1}, "attn_hidden must be at least 0, got -1"),
        ({"attn_hidden": 3, "attention": "concat"}, "attn_hidden must be 0 for .*concat.*, got 3"),
        ({"attention": "time"}, "not causal"),
        ({"attention": "other"}, "attention must be one of"),
    ],
)
def test_rau_names_bad_options(options, message, rng):
    with pytest.raises(ValueError, match=message):
        gnn.RAU(2, **options).init(rng, jnp.ones((1, 2, 3)))


@pytest.mark.parametrize("kind", [gnn.LSTM, gnn.GRU])
@pytest.mark.parametrize("scale", [float("nan"), float("inf"), 0.0, -0.1])
def test_an_init_scale_that_is_no_scale_is_refused(kind, scale, rng):
    with pytest.raises(ValueError, match="init_scale must be positive and finite"):
        jax.eval_shape(kind(2, init_scale=scale).init, rng, jnp.ones((1, 2, 3)))


def test_two_chunks_with_carried_state_equal_one(rng):
    xs = jax.random.normal(rng, (2, 8, 3))
    module = gnn.LSTM(4, num_layers=2)
    variables = module.init(rng, xs)
    whole, outputs = module.apply(variables, xs)
    first, left = module.apply(variables, xs[:, :5])
    second, right = module.apply(variables, xs[:, 5:], initial=first)
    np.testing.assert_allclose(jnp.concatenate([left, right], 1), outputs, **F32)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **F32), second, whole)


def test_dropout_bits_belong_to_the_example(rng):
    xs = jnp.ones((3, 4, 5))
    module = gnn.LSTM(6, num_layers=2, dropout=0.5, recurrent_dropout=0.5)
    variables = module.init(rng, xs)

    def run(xs, ids):
        return module.apply(
            variables, xs, deterministic=False, example_id=ids, rngs={"dropout": rng}
        )[1]

    outputs = run(xs, jnp.array([7, 8, 9]))
    np.testing.assert_allclose(run(xs[:1], jnp.array([9]))[0], outputs[2], **F32)
    assert not np.allclose(outputs[0], outputs[1])


def test_initial_kernels_are_orthogonal_per_gate_and_the_forget_bias_is_one(rng):
    params = gnn.LSTM(4).init(rng, jnp.ones((1, 2, 3)))["params"]
    for block in jnp.split(params["layer_0_recurrent"], 4, axis=1):
        np.testing.assert_allclose(block @ block.T, np.eye(4), atol=1e-5)
    np.testing.assert_array_equal(params["layer_0_bias"], [0] * 4 + [1] * 4 + [0] * 8)


@pytest.mark.parametrize(
    ("kind", "more", "candidates"),
    [(gnn.GRU, {}, 1), (gnn.GRU, {"reset_after": True}, 1), (gnn.RAU, {}, 3),
     (gnn.RAU, {"attention": "matrix"}, 1)],
)  # fmt: skip
def test_a_gate_bias_keeps_the_state_of_a_new_unit(kind, more, candidates, rng):
    xs = jax.random.normal(rng, (2, 5, 3))
    module = kind(4, gate_bias=20.0, **more)
    variables = module.init(rng, xs)
    bias = variables["params"]["layer_0_bias"]
    np.testing.assert_array_equal(bias, [20.0] * 4 + [-20.0] * 4 + [0.0] * 4 * candidates)
    initial = (jnp.full((2, 4), 0.3),)
    kept, _ = module.apply(variables, xs, initial=initial)
    np.testing.assert_allclose(kept[0], initial[0], atol=1e-5)
    other, _ = kind(4, **more).apply(kind(4, **more).init(rng, xs), xs, initial=initial)
    assert not np.allclose(other[0], initial[0], atol=1e-2)


def test_attention_pool_takes_gates_or_log_gates(rng):
    states = jax.random.normal(rng, (2, 5, 3))
    mask = F.length_mask(jnp.array([5, 3]), 5)
    gates = jnp.array([[1.0, 0, 1, 0, 1], [0, 1, 1, 1, 1]])
    module = gnn.AttentionPool("mlp1")
    variables = module.init(rng, states, mask)
    hard = module.apply(variables, states, mask, gates=gates)
    soft = module.apply(variables, states, mask, log_gates=jnp.log(gates))
    np.testing.assert_allclose(hard[0], soft[0], **F32)
    np.testing.assert_array_equal(hard[1][1], hard[1][1] * gates[1] * mask[1])
    with pytest.raises(ValueError, match="not both"):
        module.apply(variables, states, mask, gates=gates, log_gates=gates)


def test_gate_predictor_closes_padding(rng):
    xs = jax.random.normal(rng, (2, 4, 3))
    mask = F.length_mask(jnp.array([4, 2]), 4)
    for kind in ("lstm", "fnn", "att"):
        module = gnn.GatePredictor(kind, features=5, bias_init=0.7)
        variables = module.init(rng, xs, mask)
        logits = module.apply(variables, xs, mask)
        assert np.isneginf(np.asarray(logits[1, 2:])).all()
        wider = module.apply(variables, jnp.pad(xs, ((0, 0), (0, 3), (0, 0)), constant_values=9.0),
                             jnp.pad(mask, ((0, 0), (0, 3))))  # fmt: skip
        np.testing.assert_allclose(wider[:, :4], logits, **F32)


def test_word_embedding_starts_from_the_table_and_keeps_padding_zero(rng):
    table = np.arange(12, dtype=np.float32).reshape(4, 3) + 1
    module = gnn.WordEmbedding(4, 3, initial=table)
    variables = module.init(rng, jnp.array([[0]]))
    got = module.apply(variables, jnp.array([[2, 0]]))
    np.testing.assert_array_equal(got, [[table[2], np.zeros(3)]])
    with pytest.raises(ValueError, match="initial"):
        gnn.WordEmbedding(5, 3, initial=table).init(rng, jnp.array([[0]]))
    with pytest.raises(TypeError, match="tokens"):
        module.apply(variables, jnp.array([[0.5]]))


@pytest.mark.parametrize("kind", ["bad"])
def test_unknown_kinds_are_refused(kind, rng):
    xs, mask = jnp.ones((1, 2, 3)), jnp.ones((1, 2), bool)
    with pytest.raises(ValueError, match="kind"):
        gnn.GatePredictor(kind).init(rng, xs, mask)
    with pytest.raises(ValueError, match="kind"):
        gnn.TokenScore(kind).init(rng, xs)


def test_wrong_number_of_initial_carries_is_refused(rng):
    with pytest.raises(ValueError, match="initial"):
        gnn.LSTM(2, num_layers=2).init(rng, jnp.ones((1, 2, 3)), initial=(None,))


@pytest.mark.parametrize(
    ("xs", "mask", "error", "message"),
    [
        # as Flax words it
        (np.ones((2, 4, 5), np.float32), None, ScopeParamShapeError, r"layer_0_input.*\(3, 16\)"),
        (np.ones((2, 4, 3), np.float32), np.ones((2, 3), bool), ValueError, "mask must have shape"),
        (np.ones((2, 4, 3), np.float32), np.ones((2, 4)), TypeError, "mask must be bool"),
        (np.ones((4, 3), np.float32), None, ValueError, r"xs must have 3 axes"),
    ],
)
def test_inputs_that_do_not_fit_the_parameters_are_named(xs, mask, error, message, rng):
    module = gnn.LSTM(4)
    params = jax.eval_shape(module.init, rng, jnp.ones((1, 2, 3)))
    with pytest.raises(error, match=message):
        jax.eval_shape(module.apply, params, xs, mask)


def test_attention_gated_transform_equals_the_functional_calls(rng):
    words, mask = jax.random.normal(rng, (3, 5, 4)), F.length_mask(jnp.array([5, 2, 0]), 5)
    module = gnn.AttentionGatedTransform(3, attention_features=2, gate_bias=-1.0)
    params = jax.jit(module.init)(rng, words, mask)["params"]
    np.testing.assert_array_equal(params["bias"], [[-1.0] * 4 + [0.0] * 4] * 2)

    @jax.jit
    def both(params):
        kernels, vectors = params["attention_kernel"], params["attention_vector"]
        selected, attention = F.selection_vectors(words, kernels, vectors, mask)
        weights = F.GatedStackWeights(*(params[name] for name in F.GatedStackWeights._fields))
        wanted = (*F.gated_stack(selected, weights), attention)
        return module.apply({"params": params}, words, mask), wanted

    for got, wanted in zip(*both(params), strict=True):
        np.testing.assert_allclose(got, wanted, **F32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"num_layers": 2, "ablate_above": 2}, r"ablate_above must be in \[0, 1\], got 2"),
        ({"num_layers": 2, "ablate_mode": "none"}, "ablate_mode must be .* got 'none'"),
    ],
)
def test_attention_gated_transform_names_the_bad_field(options, message, rng):
    module = gnn.AttentionGatedTransform(**options)
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(module.init, rng, jnp.ones((1, 2, 3)))
