"""Masked, gated and relaxed softmax against loops written from GA-Net, section 2.4."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax.functional._softmax import (
    gated_softmax,
    length_mask,
    masked_softmax,
    relaxed_gated_softmax,
)
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


def complex_step(function, point, cotangent):
    """The gradient of sum(cotangent * function(point)), exact to rounding for an analytic one."""
    gradient = np.zeros(point.shape)
    for index in np.ndindex(point.shape):
        moved = point.astype(complex)
        moved[index] += 1e-30j
        gradient[index] = np.sum(cotangent * function(moved)).imag / 1e-30
    return gradient


def gradients(function, arguments, cotangent):
    def objective(*args):
        return jnp.sum(function(*args) * cotangent)

    return jax.jit(jax.grad(objective, argnums=tuple(range(len(arguments)))))(*arguments)


@functools.partial(jax.jit, static_argnames="axis")
def masked(scores, mask=None, axis=-1):
    return masked_softmax(scores, mask, axis)


@functools.partial(jax.jit, static_argnames="axis")
def all_open(scores, mask=None, axis=-1):
    return gated_softmax(scores, jnp.ones_like(scores), mask, axis)


@functools.partial(jax.jit, static_argnames="axis")
def all_open_log(scores, mask=None, axis=-1):
    return relaxed_gated_softmax(scores, jnp.zeros_like(scores), mask, axis)


# With every gate open the three functions are one; they share these properties.
SOFTMAXES = pytest.mark.parametrize("softmax", [masked, all_open, all_open_log])


@SOFTMAXES
def test_value_and_gradient_equal_the_loop_over_real_positions(softmax, np_rng, x64):
    scores, cotangent = np_rng.normal(size=(2, 4, T)) * 2

    def oracle(e):
        return gated_rows(e, np.ones(e.shape), MASK)

    np.testing.assert_allclose(jax.jit(softmax)(scores, MASK), oracle(scores), **F64)
    (got,) = gradients(lambda e: softmax(e, MASK), (scores,), cotangent)
    np.testing.assert_allclose(got, complex_step(oracle, scores, cotangent), **F64)


@SOFTMAXES
def test_without_a_mask_it_is_the_plain_softmax(softmax, np_rng):
    scores = np_rng.normal(size=(3, T)).astype(np.float32)
    np.testing.assert_allclose(softmax(scores), jax.nn.softmax(scores), **F32)


@SOFTMAXES
@pytest.mark.parametrize("length", [1, 3, 5])
def test_masked_row_equals_the_cut_row(softmax, length, np_rng):
    scores = np_rng.normal(size=5).astype(np.float32)
    got = np.asarray(softmax(scores, np.arange(5) < length))
    np.testing.assert_allclose(got[:length], softmax(scores[:length]), **F32)
    np.testing.assert_array_equal(got[length:], 0.0)


@SOFTMAXES
def test_a_hole_in_the_mask_equals_deleting_the_position(softmax, np_rng):
    scores = np_rng.normal(size=5).astype(np.float32)
    keep = np.array([True, False, True, True, False])
    got = np.asarray(softmax(scores, keep))
    np.testing.assert_allclose(got[keep], softmax(scores[keep]), **F32)
    np.testing.assert_array_equal(got[~keep], 0.0)


@SOFTMAXES
def test_padding_to_twice_the_length_changes_nothing_whatever_stands_there(softmax, np_rng):
    scores = np_rng.normal(size=(4, T)).astype(np.float32)
    cotangent = np_rng.normal(size=(4, 2 * T)).astype(np.float32)
    mask = np.pad(MASK, ((0, 0), (0, T)))
    # Row by row, since one NaN could hide the others; row 0 has no real position.
    garbage = np.array([[np.nan], [np.inf], [-np.inf], [1e30]], np.float32)
    padded = np.where(mask, np.pad(scores, ((0, 0), (0, T))), garbage)

    got = softmax(jnp.asarray(padded), mask)
    np.testing.assert_allclose(got[:, :T], softmax(jnp.asarray(scores), MASK), **F32)
    np.testing.assert_array_equal(got[~mask], 0.0)
    (short,) = gradients(lambda e: softmax(e, MASK), (scores,), cotangent[:, :T])
    (long,) = gradients(lambda e: softmax(e, mask), (padded,), cotangent)
    np.testing.assert_allclose(long[:, :T], short, **F32)
    np.testing.assert_array_equal(long[~mask], 0.0)


@SOFTMAXES
def test_empty_rows_are_zero_with_zero_gradient(softmax):
    scores = jnp.ones((2, 3))
    mask = jnp.array([[False] * 3, [True] * 3])
    np.testing.assert_array_equal(softmax(scores, mask)[0], 0.0)
    (got,) = gradients(lambda e: softmax(e, mask), (scores,), jnp.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(got[0], 0.0)
    assert softmax(jnp.ones((2, 0)), jnp.ones((2, 0), bool)).shape == (2, 0)


@SOFTMAXES
@pytest.mark.parametrize("offset", [0.0, 1e4, -1e4])
def test_equal_scores_share_the_weight_whatever_their_size(softmax, offset):
    got = softmax(jnp.full((1, 3), offset, jnp.float32))
    np.testing.assert_allclose(got, np.full((1, 3), 1 / 3), **F32)


@SOFTMAXES
def test_extreme_scores_have_finite_weights_and_gradients(softmax):
    scores = jnp.array(
        [[1e4, 1e4, -1e4], [-1e4, -1e4, -1e4], [1e4, 0.0, -1e4], [9999.0, 1e4, 1e4]], jnp.float32
    )
    e = np.exp(-1.0)
    want = [[0.5, 0.5, 0], [1 / 3] * 3, [1, 0, 0], np.array([e, 1, 1]) / (2 + e)]
    np.testing.assert_allclose(jax.jit(softmax)(scores), np.array(want), **F32)
    (got,) = gradients(softmax, (scores,), jnp.arange(12.0).reshape(4, 3))
    assert np.all(np.isfinite(got))


@SOFTMAXES
def test_minus_infinity_at_a_real_position_is_weight_zero(softmax):
    scores = jnp.array([[-jnp.inf, 1.0, 2.0], [-jnp.inf, -jnp.inf, -jnp.inf]])
    got = softmax(scores)
    np.testing.assert_allclose(got[0, 1:], jax.nn.softmax(scores[0, 1:]), **F32)
    np.testing.assert_array_equal(got[0, 0], 0.0)
    np.testing.assert_array_equal(got[1], 0.0)
    (gradient,) = gradients(softmax, (scores,), jnp.arange(6.0).reshape(2, 3))
    assert np.all(np.isfinite(gradient))


@SOFTMAXES
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
def test_a_row_of_five_thousand_sums_to_one(softmax, scale, np_rng):
    scores = (np_rng.normal(size=(2, 5000)) * scale).astype(np.float32)
    total = np.sum(np.asarray(softmax(scores), np.float64), axis=-1)
    np.testing.assert_allclose(total, 1.0, atol=1e-5)


@SOFTMAXES
def test_bfloat16_scores_give_bfloat16_weights_summed_in_float32(softmax, np_rng):
    scores = jnp.asarray(np_rng.normal(size=(2, 5000)), jnp.bfloat16)
    got = softmax(scores)
    assert got.dtype == jnp.bfloat16
    # A bfloat16 sum would stop growing at 256: relative, since the weights are near 1/5000.
    want = jax.nn.softmax(scores.astype(jnp.float32))
    np.testing.assert_allclose(got.astype(jnp.float32), want, rtol=BF16["rtol"])


@SOFTMAXES
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_the_named_axis_is_normalised_under_a_broadcast_mask(softmax, axis, np_rng):
    scores = jnp.asarray(np_rng.normal(size=(2, 3, 4)), jnp.float32)
    mask = np.array([[True, False, True, True], [True, True, True, False]])[:, None, :]
    got = np.asarray(softmax(scores, mask, axis))
    moved = np.moveaxis(np.asarray(scores, np.float64), axis, -1)
    keep = np.moveaxis(np.broadcast_to(mask, scores.shape), axis, -1)
    flat = moved.reshape(-1, moved.shape[-1])
    want = gated_rows(flat, np.ones(flat.shape), keep.reshape(flat.shape)).reshape(moved.shape)
    np.testing.assert_allclose(np.moveaxis(got, axis, -1), want, **F32)


@SOFTMAXES
def test_vmap_of_grad_under_jit_equals_the_batched_call(softmax, np_rng):
    scores = np_rng.normal(size=(4, T)).astype(np.float32)
    cotangent = np_rng.normal(size=(4, T)).astype(np.float32)

    def objective(e, m, c):
        return jnp.sum(softmax(e, m) * c)

    got = jax.jit(jax.vmap(jax.grad(objective)))(scores, MASK, cotangent)
    (want,) = gradients(lambda e: softmax(e, MASK), (scores,), cotangent)
    np.testing.assert_allclose(got, want, **F32)


def test_gated_value_and_gradients_equal_the_loop_closed_gates_included(np_rng, x64):
    scores, cotangent = np_rng.normal(size=(2, 4, T)) * 2
    got = jax.jit(gated_softmax)(scores, GATES, MASK)
    np.testing.assert_allclose(got, gated_rows(scores, GATES, MASK), **F64)

    d_scores, d_gates = gradients(
        lambda e, g: gated_softmax(e, g, MASK), (scores, GATES), cotangent
    )
    want_scores = complex_step(lambda e: gated_rows(e, GATES, MASK), scores, cotangent)
    want_gates = complex_step(lambda g: gated_rows(scores, g, MASK), GATES, cotangent)
    np.testing.assert_allclose(d_scores, want_scores, **F64)
    np.testing.assert_allclose(d_gates, want_gates, **F64)


def test_gated_forward_mode_equals_reverse_mode(np_rng, x64):
    scores, tangent = np_rng.normal(size=(2, 1, T))
    gates = GATES[2:3]

    @jax.jit
    def run(e, g):
        _, pushed = jax.jvp(gated_softmax, (e, g), (tangent, 2 * tangent))
        return pushed, jax.jacrev(gated_softmax, argnums=(0, 1))(e, g)

    pushed, (by_scores, by_gates) = run(scores, gates)
    want = np.einsum("abcd,cd->ab", by_scores + 2 * by_gates, tangent)
    np.testing.assert_allclose(pushed, want, **F64)


def test_gated_second_derivative_of_open_gates_equals_that_of_the_formula(np_rng, x64):
    scores, cotangent = np_rng.normal(size=(2, T))
    gates = np.array([1.0, 0.3, 0.9, 0.05, 1.0, 0.5])

    def formula(e, g):
        return jnp.sum(cotangent * g * jnp.exp(e)) / jnp.sum(g * jnp.exp(e))

    def objective(e, g):
        return jnp.sum(cotangent * gated_softmax(e, g))

    got = jax.jit(jax.hessian(objective, argnums=(0, 1)))(scores, gates)
    want = jax.jit(jax.hessian(formula, argnums=(0, 1)))(scores, gates)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, **F64)


def test_hard_gates_equal_the_softmax_over_the_open_set(np_rng):
    scores = np_rng.normal(size=T).astype(np.float32)
    is_open = np.array([True, False, False, True, True, False])
    got = jax.jit(gated_softmax)(scores, jnp.asarray(is_open, jnp.float32))
    np.testing.assert_allclose(got[is_open], jax.nn.softmax(scores[is_open]), **F32)
    np.testing.assert_array_equal(got[~is_open], 0.0)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_all_gates_closed_is_zero_with_zero_gradient(offset):
    scores = jnp.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]) + offset
    gates = jnp.array([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    # Row 0 is closed because its one open gate is masked.
    mask = jnp.array([[True, True, False], [True, True, True]])
    np.testing.assert_array_equal(jax.jit(gated_softmax)(scores, gates, mask), 0.0)
    cotangent = jnp.arange(6.0).reshape(2, 3)
    for got in gradients(lambda e, g: gated_softmax(e, g, mask), (scores, gates), cotangent):
        np.testing.assert_array_equal(got, 0.0)


@pytest.mark.parametrize("gate", [1.0, 0.3, 1e-30])
def test_a_single_position_takes_all_the_weight_through_any_open_gate(gate):
    got = jax.jit(gated_softmax)(jnp.array([[5.0]]), jnp.array([[gate]]))
    np.testing.assert_allclose(got, [[1.0]], **F32)


def test_nan_in_masked_scores_and_gates_has_no_effect(np_rng):
    scores, cotangent = np_rng.normal(size=(2, 4, T)).astype(np.float32)
    gates = GATES.astype(np.float32)

    def run(e, g):
        value = gated_softmax(e, g, MASK)
        return value, *gradients(lambda *a: gated_softmax(*a, MASK), (e, g), cotangent)

    clean = run(jnp.asarray(scores), jnp.asarray(gates))
    dirty = run(jnp.where(MASK, scores, jnp.nan), jnp.where(MASK, gates, jnp.nan))
    for a, b in zip(clean, dirty, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(b[~MASK], 0.0)


@pytest.mark.parametrize("score", [-20.0, 0.0, 5.0, 50.0])
def test_closed_gate_has_the_straight_through_gradient(score):
    # dL/dg_t = exp(e_t) / Z * (v_t - sum_s alpha_s v_s) for the loss L = sum v alpha.
    scores = jnp.array([0.5, score, -1.0])
    gates = jnp.array([1.0, 0.0, 1.0])
    values = np.array([0.2, 3.0, -0.4])
    (got,) = gradients(lambda g: gated_softmax(scores, g), (gates,), values.astype(np.float32))
    z = np.exp(0.5) + np.exp(-1.0)
    mean = (np.exp(0.5) * values[0] + np.exp(-1.0) * values[2]) / z
    np.testing.assert_allclose(got[1], np.exp(score) / z * (values[1] - mean), rtol=1e-4)


@pytest.mark.parametrize("score", [1e2, 1e4])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_closed_gate_under_a_huge_score_keeps_every_gradient_finite(score, dtype):
    scores = jnp.array([0.0, score, -score, 1.0], dtype)
    gates = jnp.array([1.0, 0.0, 0.0, 1.0], dtype)
    weights = jax.jit(gated_softmax)(scores, gates).astype(jnp.float32)
    np.testing.assert_allclose(weights[::3], [1 / (1 + np.e), np.e / (1 + np.e)], **BF16)
    np.testing.assert_array_equal(weights[1:3], 0.0)
    cotangent = jnp.array([1.0, 10.0, -3.0, 2.0], dtype)
    d_scores, d_gates = gradients(gated_softmax, (scores, gates), cotangent)
    assert np.all(np.isfinite(d_scores.astype(jnp.float32)))
    assert np.all(np.isfinite(d_gates.astype(jnp.float32)))
    assert d_gates[1] > 0, "opening the gate of the better token must raise the objective"


def test_a_common_factor_of_the_gates_cancels(np_rng):
    scores = np_rng.normal(size=(4, T)).astype(np.float32)
    gates = GATES.astype(np.float32)
    got = jax.jit(gated_softmax)(scores, gates * 1e-20, MASK)
    np.testing.assert_allclose(got, jax.jit(gated_softmax)(scores, gates, MASK), **F32)


def test_relaxed_value_and_gradients_equal_the_loop(np_rng, x64):
    scores, cotangent = np_rng.normal(size=(2, 4, T)) * 2
    log_gates = -np_rng.exponential(size=(4, T))
    got = jax.jit(relaxed_gated_softmax)(scores, log_gates, MASK)
    np.testing.assert_allclose(got, gated_rows(scores, np.exp(log_gates), MASK), **F64)
    d_scores, d_gates = gradients(
        lambda e, g: relaxed_gated_softmax(e, g, MASK), (scores, log_gates), cotangent
    )
    gates = np.exp(log_gates)
    want_scores = complex_step(lambda e: gated_rows(e, gates, MASK), scores, cotangent)
    want_gates = complex_step(lambda g: gated_rows(scores, np.exp(g), MASK), log_gates, cotangent)
    np.testing.assert_allclose(d_scores, want_scores, **F64)
    np.testing.assert_allclose(d_gates, want_gates, **F64)


def test_relaxed_equals_gated_with_the_exponential_of_its_log_gates(np_rng):
    scores = np_rng.normal(size=(4, T)).astype(np.float32)
    gates = GATES.astype(np.float32)  # log 0 = -inf is a closed gate
    got = jax.jit(relaxed_gated_softmax)(scores, jnp.log(gates), MASK)
    np.testing.assert_allclose(got, jax.jit(gated_softmax)(scores, gates, MASK), **F32)


@pytest.mark.parametrize("level", [-200.0, -1e4])
def test_relaxed_gates_that_underflow_still_sum_to_one_and_learn(level):
    scores = jnp.array([[0.0, 1.0, -1.0]])
    log_gates = level + jnp.array([[0.0, -2.0, 1.0]])
    got = jax.jit(relaxed_gated_softmax)(scores, log_gates)
    np.testing.assert_allclose(got, jax.nn.softmax(jnp.array([[0.0, -1.0, 0.0]])), **F32)
    cotangent = jnp.array([[1.0, 0.0, 0.0]])
    _, d_gates = gradients(relaxed_gated_softmax, (scores, log_gates), cotangent)
    p = np.asarray(got[0], np.float64)
    np.testing.assert_allclose(d_gates[0], [p[0] * (1 - p[0]), -p[0] * p[1], -p[0] * p[2]], **F32)


def test_relaxed_row_of_closed_gates_is_zero_with_finite_gradients():
    scores = jnp.array([[1.0, 2.0]])
    log_gates = jnp.full((1, 2), -jnp.inf)
    np.testing.assert_array_equal(jax.jit(relaxed_gated_softmax)(scores, log_gates), 0.0)
    for got in gradients(relaxed_gated_softmax, (scores, log_gates), jnp.array([[1.0, 2.0]])):
        assert np.all(np.isfinite(got))


def test_relaxed_keeps_the_dtype_of_the_scores_and_works_in_float32(np_rng):
    scores = jnp.asarray(np_rng.normal(size=(2, 64)), jnp.bfloat16)
    log_gates = -jnp.asarray(np_rng.exponential(size=(2, 64)), jnp.float32)
    got = jax.jit(relaxed_gated_softmax)(scores, log_gates)
    assert got.dtype == jnp.bfloat16
    want = jax.nn.softmax(scores.astype(jnp.float32) + log_gates)
    np.testing.assert_allclose(got.astype(jnp.float32), want, rtol=BF16["rtol"])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32])
def test_length_mask_is_true_before_the_length(dtype):
    lengths = np.array([[0, 1], [100, 127]], dtype)
    got = jax.jit(length_mask, static_argnums=1)(lengths, 300)
    want = np.array([[[t < int(n) for t in range(300)] for n in row] for row in lengths])
    assert got.dtype == jnp.bool_
    np.testing.assert_array_equal(got, want)


def test_length_mask_clips_at_the_padded_size():
    np.testing.assert_array_equal(length_mask(jnp.array([7, -1]), 2), [[True] * 2, [False] * 2])
    assert length_mask(jnp.array([3]), 0).shape == (1, 0)
    np.testing.assert_array_equal(
        jax.vmap(lambda n: length_mask(n, 2))(jnp.arange(2)), [[False, False], [True, False]]
    )


X, INTS, B = np.ones((2, 3), np.float32), np.ones((2, 3), np.int32), np.ones((2, 3), bool)
BAD = [
    (lambda: masked_softmax(INTS), TypeError, "scores.*int32"),
    (lambda: masked_softmax(X, INTS), TypeError, "mask must be bool.*int32"),
    (lambda: masked_softmax(X, X), TypeError, "mask must be bool.*float32"),
    (lambda: masked_softmax(X, B[:, :2]), ValueError, r"mask.*\(2, 3\).*\(2, 2\)"),
    (lambda: masked_softmax(X, B[0]), ValueError, r"mask.*\(2, 3\).*\(3,\)"),
    (lambda: masked_softmax(X, axis=2), ValueError, "axis.*2"),
    (lambda: gated_softmax(INTS, X), TypeError, "scores.*int32"),
    (lambda: gated_softmax(X, INTS), TypeError, "gates.*int32"),
    (lambda: gated_softmax(X, B), TypeError, "gates.*bool"),
    (lambda: gated_softmax(X, X[:1]), ValueError, r"gates \(1, 3\)"),
    (lambda: gated_softmax(X, X, INTS), TypeError, "mask must be bool.*int32"),
    (lambda: gated_softmax(X, X, B[:, :2]), ValueError, "mask"),
    (lambda: gated_softmax(X, X, axis=-3), ValueError, "axis.*-3"),
    (lambda: relaxed_gated_softmax(INTS, X), TypeError, "scores.*int32"),
    (lambda: relaxed_gated_softmax(X, INTS), TypeError, "log_gates.*int32"),
    (lambda: relaxed_gated_softmax(X, X[0]), ValueError, r"log_gates \(3,\)"),
    (lambda: relaxed_gated_softmax(X, X, X), TypeError, "mask must be bool"),
    (lambda: relaxed_gated_softmax(X, X, axis=5), ValueError, "axis.*5"),
    (lambda: length_mask(X[0], 3), TypeError, "lengths.*float32"),
    (lambda: length_mask(INTS[0], 3.0), TypeError, "size.*float"),
    (lambda: length_mask(INTS[0], -1), ValueError, "size.*-1"),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_bad_input_is_refused_by_the_name_of_the_argument(call, error, message):
    with pytest.raises(error, match=message):
        call()
    with pytest.raises(error, match=message):
        jax.jit(call)()
