"""Masked, gated and relaxed softmax against loops written from GA-Net, section 2.4."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax.functional._attention import (
    gated_softmax,
    length_mask,
    masked_softmax,
    relaxed_gated_softmax,
)
from tests.functional.passes import complex_step
from tests.tolerances import BF16, F32, F64

LENGTHS = np.array([0, 1, 4, 6])
T = 6
MASK = np.arange(T)[None, :] < LENGTHS[:, None]
# Per row a closed gate among open ones, soft ones, and (row of length 1) an open one.
GATES = np.array(
    [
        [1.0, 0.0, 1.0, 1.0, 0.0, 1.0],
        [1.0, 0.0, 1.0, 1.0, 0.0, 1.0],
        [0.0, 1.0, 0.3, 1.0, 0.9, 0.0],
        [0.7, 0.0, 0.1, 1.0, 0.0, 1e-3],
    ]
)


def gated_rows(scores, gates, mask):
    """alpha_t = g_t exp(e_t) / sum_s g_s exp(e_s) over real s, row by row; analytic."""
    out = np.zeros(scores.shape, np.result_type(scores, gates))
    for row in range(scores.shape[0]):
        real = [t for t in range(scores.shape[1]) if mask[row, t]]
        total = sum(gates[row, t] * np.exp(scores[row, t]) for t in real)
        for t in real:
            out[row, t] = gates[row, t] * np.exp(scores[row, t]) / total if total != 0 else 0
    return out


@functools.partial(jax.jit, static_argnums=0)
def solve(function, arguments, mask, cotangent):
    """The value and the gradients of all arguments, in one program per function and shape."""
    value, pull = jax.vjp(lambda *a: function(*a, mask), *arguments)
    return value, *pull(cotangent.astype(value.dtype))


def solved(function, arguments, mask=None, cotangent=None):
    if cotangent is None:
        shape = arguments[0].shape
        cotangent = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return jax.tree.map(np.asarray, solve(function, arguments, mask, cotangent))


# With every gate open the three functions are one; they share these properties.
THREE = {
    "masked": masked_softmax,
    "all_open": lambda e, *rest: gated_softmax(e, jnp.ones_like(e), *rest),
    "all_open_log": lambda e, *rest: relaxed_gated_softmax(e, jnp.zeros_like(e), *rest),
}
SOFTMAXES = pytest.mark.parametrize("softmax", THREE)


@jax.jit
def all_three(scores, mask, cotangent):
    return {name: solve(f, (scores,), mask, cotangent) for name, f in THREE.items()}


def both(softmax, scores, mask=None, cotangent=None):
    """Value and gradient of one of the three."""
    if cotangent is None:
        shape = scores.shape
        cotangent = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return jax.tree.map(np.asarray, all_three(scores, mask, cotangent)[softmax])


def plain_rows(scores):
    """The softmax of whole rows, in float64."""
    scores = np.asarray(scores, np.float64)
    return gated_rows(scores, np.ones(scores.shape), np.ones(scores.shape, bool))


@SOFTMAXES
def test_value_and_gradient_equal_the_loop_over_real_positions(softmax, np_rng, x64):
    scores, cotangent = np_rng.normal(size=(2, 4, T)) * 2

    def oracle(e):
        return gated_rows(e, np.ones(e.shape), MASK)

    value, gradient = both(softmax, scores, MASK, cotangent)
    np.testing.assert_allclose(value, oracle(scores), **F64)
    np.testing.assert_allclose(gradient, complex_step(oracle, scores, cotangent), **F64)


@SOFTMAXES
def test_empty_rows_are_zero_with_zero_gradient(softmax):
    mask = np.array([[False] * 3, [True] * 3, [False] * 3, [True] * 3])
    value, gradient = both(softmax, np.ones((4, 3), np.float32), mask)
    np.testing.assert_array_equal(value[0], 0.0)
    np.testing.assert_array_equal(gradient[0], 0.0)
    empty = both(softmax, np.ones((2, 0), np.float32), np.ones((2, 0), bool))
    assert empty[0].shape == (2, 0)


@SOFTMAXES
def test_extreme_scores_have_finite_weights_and_gradients(softmax):
    scores = np.array(
        [[1e4, 1e4, -1e4], [-1e4, -1e4, -1e4], [1e4, 0.0, -1e4], [9999.0, 1e4, 1e4]], np.float32
    )
    e = np.exp(-1.0)
    want = [[0.5, 0.5, 0], [1 / 3] * 3, [1, 0, 0], np.array([e, 1, 1]) / (2 + e)]
    got, gradient = both(softmax, scores)
    np.testing.assert_allclose(got, np.array(want), **F32)
    assert np.all(np.isfinite(gradient))


@SOFTMAXES
def test_minus_infinity_at_a_real_position_is_weight_zero(softmax):
    closed = [-np.inf] * 3
    scores = np.array([[-np.inf, 1.0, 2.0], closed, closed, [0.0, 1.0, 2.0]], np.float32)
    got, gradient = both(softmax, scores)
    np.testing.assert_allclose(got[0, 1:], plain_rows(scores[:1, 1:])[0], **F32)
    np.testing.assert_array_equal(got[0, 0], 0.0)
    np.testing.assert_array_equal(got[1], 0.0)
    assert np.all(np.isfinite(gradient))


@SOFTMAXES
def test_a_row_of_five_thousand_sums_to_one(softmax, np_rng):
    scores = (np_rng.normal(size=(2, 5000)) * [[1.0], [1e4]]).astype(np.float32)
    total = np.sum(both(softmax, scores)[0].astype(np.float64), axis=-1)
    np.testing.assert_allclose(total, 1.0, atol=1e-5)


@SOFTMAXES
def test_bfloat16_scores_give_bfloat16_weights_summed_in_float32(softmax, np_rng):
    scores = np_rng.normal(size=(2, 5000)).astype(jnp.bfloat16)
    got, _ = both(softmax, scores)
    assert got.dtype == jnp.bfloat16
    # A bfloat16 sum would stop growing at 256: relative, since the weights are near 1/5000.
    np.testing.assert_allclose(got.astype(np.float32), plain_rows(scores), rtol=BF16["rtol"])


@jax.jit
def along_axes(scores, mask):
    axes = map(np.int64, (-1, 0, 1))
    return {(name, axis): f(scores, mask, axis) for axis in axes for name, f in THREE.items()}


@SOFTMAXES
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_the_named_axis_is_normalised_under_a_broadcast_mask(softmax, axis, np_rng):
    scores = np_rng.normal(size=(2, 3, 4)).astype(np.float32)
    mask = np.array([[True, False, True, True], [True, True, True, False]])[:, None, :]
    got = np.asarray(along_axes(scores, mask)[softmax, axis])
    moved = np.moveaxis(scores.astype(np.float64), axis, -1)
    keep = np.moveaxis(np.broadcast_to(mask, scores.shape), axis, -1)
    flat = moved.reshape(-1, moved.shape[-1])
    want = gated_rows(flat, np.ones(flat.shape), keep.reshape(flat.shape)).reshape(moved.shape)
    np.testing.assert_allclose(np.moveaxis(got, axis, -1), want, **F32)


def test_gated_value_and_gradients_equal_the_loop_closed_gates_included(np_rng, x64):
    scores, cotangent = np_rng.normal(size=(2, 4, T)) * 2
    got, d_scores, d_gates = solved(gated_softmax, (scores, GATES), MASK, cotangent)
    np.testing.assert_allclose(got, gated_rows(scores, GATES, MASK), **F64)
    want_scores = complex_step(lambda e: gated_rows(e, GATES, MASK), scores, cotangent)
    want_gates = complex_step(lambda g: gated_rows(scores, g, MASK), GATES, cotangent)
    np.testing.assert_allclose(d_scores, want_scores, **F64)
    np.testing.assert_allclose(d_gates, want_gates, **F64)


def test_gated_second_derivative_equals_that_of_the_formula_closed_gates_included(np_rng, x64):
    scores, cotangent = np_rng.normal(size=(2, T))
    gates = np.array([1.0, 0.0, 0.9, 0.05, 1.0, 0.0])

    def formula(e, g):
        return jnp.sum(cotangent * g * jnp.exp(e)) / jnp.sum(g * jnp.exp(e))

    def objective(e, g):
        return jnp.sum(cotangent * gated_softmax(e, g))

    @jax.jit
    def run(e, g):
        return [jax.hessian(f, argnums=(0, 1))(e, g) for f in (objective, formula)]

    got, want = run(scores, gates)
    chex.assert_trees_all_close(got, want, **F64)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_all_gates_closed_is_zero_with_zero_gradient(offset):
    scores = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]], np.float32) + np.float32(offset)
    gates = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]], np.float32)
    # Row 0 is closed because its one open gate is masked.
    mask = np.array([[True, True, False], [True, True, True]])
    for got in solved(gated_softmax, (scores, gates), mask):
        np.testing.assert_array_equal(got, 0.0)


def test_a_single_position_takes_all_the_weight_through_the_smallest_open_gate():
    arguments = np.array([[5.0]], np.float32), np.array([[1e-30]], np.float32)
    np.testing.assert_allclose(solved(gated_softmax, arguments)[0], [[1.0]], **F32)


@pytest.mark.parametrize("score", [-20.0, 0.0, 5.0, 50.0])
def test_closed_gate_has_the_straight_through_gradient(score):
    # dL/dg_t = exp(e_t) / Z * (v_t - sum_s alpha_s v_s) for the loss L = sum v alpha.
    scores = np.array([0.5, score, -1.0], np.float32)
    gates = np.array([1.0, 0.0, 1.0], np.float32)
    values = np.array([0.2, 3.0, -0.4])
    *_, got = solved(gated_softmax, (scores, gates), None, values.astype(np.float32))
    z = np.exp(0.5) + np.exp(-1.0)
    mean = (np.exp(0.5) * values[0] + np.exp(-1.0) * values[2]) / z
    np.testing.assert_allclose(got[1], np.exp(score) / z * (values[1] - mean), rtol=1e-4)


@pytest.mark.parametrize("score", [1e2, 1e4])
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_closed_gate_under_a_huge_score_keeps_every_gradient_finite(score, dtype):
    scores = np.array([0.0, score, -score, 1.0]).astype(dtype)
    gates = np.array([1.0, 0.0, 0.0, 1.0]).astype(dtype)
    cotangent = np.array([1.0, 10.0, -3.0, 2.0]).astype(dtype)
    found = solved(gated_softmax, (scores, gates), None, cotangent)
    weights, d_scores, d_gates = (x.astype(np.float32) for x in found)
    np.testing.assert_allclose(weights[::3], [1 / (1 + np.e), np.e / (1 + np.e)], **BF16)
    np.testing.assert_array_equal(weights[1:3], 0.0)
    assert np.all(np.isfinite(d_scores))
    assert np.all(np.isfinite(d_gates))
    opened = jax.grad(lambda g, e: gated_softmax(e, g)[1])  # a constant at its bound, like exp(80)
    assert np.all(jax.jit(jax.grad(lambda e: opened(gates, e)[1]))(scores) == 0)
    assert d_gates[1] > 0, "opening the gate of the better token must raise the objective"


def test_relaxed_value_and_gradients_equal_the_loop(np_rng, x64):
    scores, cotangent = np_rng.normal(size=(2, 4, T)) * 2
    log_gates = -np_rng.exponential(size=(4, T))
    found = solved(relaxed_gated_softmax, (scores, log_gates), MASK, cotangent)
    got, d_scores, d_gates = found
    np.testing.assert_allclose(got, gated_rows(scores, np.exp(log_gates), MASK), **F64)
    gates = np.exp(log_gates)
    want_scores = complex_step(lambda e: gated_rows(e, gates, MASK), scores, cotangent)
    want_gates = complex_step(lambda g: gated_rows(scores, np.exp(g), MASK), log_gates, cotangent)
    np.testing.assert_allclose(d_scores, want_scores, **F64)
    np.testing.assert_allclose(d_gates, want_gates, **F64)


@pytest.mark.parametrize("level", [-200.0, -1e4])
def test_relaxed_gates_that_underflow_still_sum_to_one_and_learn(level):
    scores = np.array([[0.0, 1.0, -1.0]], np.float32)
    log_gates = (level + np.array([[0.0, -2.0, 1.0]])).astype(np.float32)
    cotangent = np.array([[1.0, 0.0, 0.0]], np.float32)
    got, _, d_gates = solved(relaxed_gated_softmax, (scores, log_gates), None, cotangent)
    np.testing.assert_allclose(got, plain_rows(np.array([[0.0, -1.0, 0.0]])), **F32)
    p = np.asarray(got[0], np.float64)
    np.testing.assert_allclose(d_gates[0], [p[0] * (1 - p[0]), -p[0] * p[1], -p[0] * p[2]], **F32)


def test_relaxed_row_of_closed_gates_is_zero_with_finite_gradients():
    scores = np.array([[0.0, 1.0, 2.0]], np.float32)
    log_gates = np.full((1, 3), -np.inf, np.float32)
    value, *gradients = solved(relaxed_gated_softmax, (scores, log_gates))
    np.testing.assert_array_equal(value, 0.0)
    assert all(np.all(np.isfinite(g)) for g in gradients)


def test_relaxed_keeps_the_dtype_of_the_scores_and_works_in_float32(np_rng):
    scores = np_rng.normal(size=(2, 64)).astype(jnp.bfloat16)
    log_gates = -np_rng.exponential(size=(2, 64)).astype(np.float32)
    got = solved(relaxed_gated_softmax, (scores, log_gates))[0]
    assert got.dtype == jnp.bfloat16
    want = plain_rows(scores.astype(np.float32) + log_gates)
    np.testing.assert_allclose(got.astype(np.float32), want, rtol=BF16["rtol"])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32])
def test_length_mask_is_true_before_the_length(dtype):
    lengths = np.array([[0, 1], [100, 127]], dtype)
    got = jax.jit(length_mask, static_argnums=1)(lengths, 300)
    want = np.array([[[t < int(n) for t in range(300)] for n in row] for row in lengths])
    assert got.dtype == jnp.bool_
    np.testing.assert_array_equal(got, want)


def test_a_traced_length_counts_as_the_nearest_that_there_is():
    got = jax.jit(length_mask, static_argnums=1)(np.array([7, -1]), 2)
    np.testing.assert_array_equal(got, [[True] * 2, [False] * 2])
    assert jax.eval_shape(lambda: length_mask(np.array([0]), 0)).shape == (1, 0)
