"""Gates: relaxations, draws, penalty and score function, against GA-Net sections 2.3 and 2.5."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax.functional._attention import gated_softmax
from gatedjax.functional._relaxations import (
    ensure_open,
    gate_penalty,
    gumbel_noise,
    gumbel_sigmoid,
    gumbel_softmax,
    hard_gates,
    log_gumbel_sigmoid,
    logistic_noise,
    sample_gates,
    score_function_loss,
    threshold_gates,
)
from tests.functional.passes import complex_step
from tests.functional.rau_oracle import sigmoid
from tests.tolerances import BF16, F32, F64

# The largest float32 below 1: what a uniform draw can come to at most.
ALMOST_ONE = np.nextafter(np.float32(1), np.float32(0))
# One compilation instead of one per operation; the property is the same.
draw_logistic = jax.jit(logistic_noise, static_argnums=1)
draw_gumbel = jax.jit(gumbel_noise, static_argnums=1)
draw_gates = jax.jit(sample_gates)
EXTREME = np.array([-1e4, -100.0, -1.0, 0.0, 1.0, 100.0, 1e4], np.float32)


@functools.partial(jax.jit, static_argnums=(0, 4))
def solve(function, arguments, cotangent, options, static):
    """The value and the gradients of all arguments, in one program per function and shape."""

    def call(*arguments):
        return function(*arguments, **options, **dict(static))

    value, pull = jax.vjp(call, *arguments)
    return value, *pull(jnp.broadcast_to(cotangent, value.shape).astype(value.dtype))


def solved(function, *arguments, cotangent=1.0, static=(), **options):
    """The same as NumPy arrays; options are traced, such as the temperature."""
    found = solve(function, arguments, np.asarray(cotangent), options, static)
    return jax.tree.map(np.asarray, found)


HARD = (("straight_through", True),)


# ---- noise


@pytest.mark.parametrize("draw", [np.float32(0), ALMOST_ONE, np.float32(1e-38), np.float32(0.5)])
def test_noise_is_finite_for_every_uniform_draw(draw, rng, monkeypatch):
    def constant(key, shape=(), dtype=jnp.float32, minval=0.0, maxval=1.0):
        return jnp.full(shape, draw, dtype)

    monkeypatch.setattr(jax.random, "uniform", constant)
    u = np.clip(np.float64(draw), 1e-7, 1 - 1e-7)
    # 1 - 1e-7 is not a float32: the two neighbours differ by half in 1 - u, by log 2 in the noise.
    slack = {"atol": 0.7} if draw == ALMOST_ONE else F32
    np.testing.assert_allclose(logistic_noise(rng, (2,)), np.log(u) - np.log(1 - u), **slack)
    np.testing.assert_allclose(gumbel_noise(rng, (2,)), -np.log(-np.log(u)), **slack)


@pytest.mark.parametrize("noise", [logistic_noise, gumbel_noise])
def test_noise_is_float32_of_the_shape_and_depends_on_the_key_alone(noise, rng):
    draw = draw_logistic if noise is logistic_noise else draw_gumbel
    got = np.asarray(draw(rng, (2, 3)))
    assert got.shape == (2, 3)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, draw(rng, (2, 3)))
    np.testing.assert_allclose(got, noise(rng, (2, 3)), **F32)
    assert not np.any(got == np.asarray(draw(jax.random.key(1), (2, 3))))
    assert jax.eval_shape(lambda key: noise(key, (0,)), rng).shape == (0,)
    with jax.enable_x64(True):
        assert jax.eval_shape(lambda key: noise(key, (2,)), rng).dtype == np.float32


@pytest.mark.parametrize(
    ("noise", "mean", "cdf"),
    [
        (logistic_noise, 0.0, sigmoid),
        (gumbel_noise, 0.5772156649, lambda x: np.exp(-np.exp(-x))),
    ],
)
def test_noise_has_the_moments_and_the_distribution(noise, mean, cdf):
    n = 200_000
    x = np.sort(np.asarray(jax.jit(noise, static_argnums=1)(jax.random.key(3), (n,)), np.float64))
    variance = np.pi**2 / 3 if noise is logistic_noise else np.pi**2 / 6
    # Five standard errors; the kurtosis is 4.2 and 5.4.
    assert abs(x.mean() - mean) < 5 * np.sqrt(variance / n)
    assert abs(x.var() / variance - 1) < 5 * np.sqrt(4.4 / n)
    distance = np.max(np.abs(cdf(x) - (np.arange(n) + 0.5) / n))
    assert distance < 1.95 / np.sqrt(n), "Kolmogorov-Smirnov distance, p = 0.001"


# ---- the relaxed gate


def test_relaxed_gate_is_the_open_component_of_the_two_class_gumbel_softmax(np_rng, x64):
    logits = np_rng.normal(size=(3, 4)) * 2
    uniform = np_rng.uniform(0.01, 0.99, size=(3, 4, 2))
    tau = 0.7
    eps = -np.log(-np.log(uniform))
    want = np.zeros((3, 4))
    for i, j in np.ndindex(3, 4):
        log_p = np.log([1 - sigmoid(logits[i, j]), sigmoid(logits[i, j])])
        parts = np.exp((log_p + eps[i, j]) / tau)
        want[i, j] = parts[1] / parts.sum()
    noise = eps[..., 1] - eps[..., 0]
    got = solved(gumbel_sigmoid, logits, noise, temperature=tau)[0]
    np.testing.assert_allclose(got, want, **F64)
    got = solved(log_gumbel_sigmoid, logits, noise, temperature=tau)[0]
    np.testing.assert_allclose(got, np.log(want), **F64)


@pytest.mark.parametrize("tau", [0.5, 2.0])
@pytest.mark.parametrize("relax", [gumbel_sigmoid, log_gumbel_sigmoid])
def test_gradient_of_the_relaxed_gate_is_that_of_the_formula(relax, tau, np_rng, x64):
    logits, noise, cotangent = np_rng.normal(size=(3, 5)) * 2

    def oracle(a):
        gate = sigmoid((a + noise) / tau)
        return gate if relax is gumbel_sigmoid else np.log(gate)

    # The noise has the same gradient, and the temperature may be a traced scalar.
    for options in ({"temperature": tau}, {"static": (("temperature", tau),)}):
        value, *both = solved(relax, logits, noise, cotangent=cotangent, **options)
        np.testing.assert_allclose(value, oracle(logits), **F64)
        for got in both:
            np.testing.assert_allclose(got, complex_step(oracle, logits, cotangent), **F64)


def test_gate_approaches_its_bernoulli_draw_as_temperature_falls(rng):
    logits = (np.random.default_rng(1).normal(size=500) * 2).astype(np.float32)
    noise = draw_logistic(rng, (500,))
    hard = np.asarray(draw_gates(logits, key=rng))
    np.testing.assert_array_equal(hard, np.asarray(logits) + np.asarray(noise) > 0)
    assert 0 < np.mean(hard) < 1
    # |sigmoid(x / tau) - [x > 0]| <= exp(-|x| / tau)
    soften = jax.jit(lambda a, n, tau: gumbel_sigmoid(a, n, temperature=tau))
    distance = np.abs(np.asarray(logits, np.float64) + np.asarray(noise, np.float64))
    for tau in (1.0, 1e-1, 1e-3, 1e-6):
        soft = np.asarray(soften(logits, noise, tau))
        assert np.all(np.abs(soft - hard) <= np.exp(-distance / tau) + 1e-6)


@pytest.mark.parametrize("tau", [1e-3, 1.0])
def test_extreme_logits_have_finite_gates_and_gradients(tau):
    logits, noise = (x.astype(np.float32) for x in np.meshgrid(EXTREME, [-16.2, 0.0, 16.2]))
    for static in ((), HARD):
        got, *gradients = solved(gumbel_sigmoid, logits, noise, temperature=tau, static=static)
        assert np.all((got >= 0) & (got <= 1))
        assert all(np.all(np.isfinite(g)) for g in gradients)

    x = (np.asarray(logits, np.float64) + np.asarray(noise)) / tau
    log_gate, slope, _ = solved(log_gumbel_sigmoid, logits, noise, temperature=tau)
    np.testing.assert_allclose(log_gate, -np.logaddexp(0, -x), **F32)
    want = 1 / (tau * (1 + np.exp(np.minimum(x, 700))))
    np.testing.assert_allclose(slope, want, rtol=1e-5, atol=1e-6 / tau)


def test_minus_infinity_closes_a_gate_with_finite_gradients():
    logits, noise = np.array([-np.inf, 1.0], np.float32), np.zeros(2, np.float32)
    for relax, closed in ((gumbel_sigmoid, 0.0), (log_gumbel_sigmoid, -np.inf)):
        value, *gradients = solved(relax, logits, noise)
        np.testing.assert_array_equal(value[0], closed)
        assert all(np.all(np.isfinite(g)) for g in gradients)
    surely = np.array([-np.inf, 1e4], np.float32)
    np.testing.assert_array_equal(draw_gates(surely, key=jax.random.key(0)), [0, 1])
    np.testing.assert_array_equal(threshold_gates(logits), [0, 1])


def test_straight_through_has_the_hard_value_and_the_soft_gradient(np_rng):
    logits, noise, cotangent = np_rng.normal(size=(3, 200)).astype(np.float32) * 3
    options = {"cotangent": cotangent, "temperature": 0.3}
    hard, *gradients = solved(gumbel_sigmoid, logits, noise, static=HARD, **options)
    np.testing.assert_array_equal(hard, logits + noise > 0)
    _, *soft = solved(gumbel_sigmoid, logits, noise, **options)
    for got, want in zip(gradients, soft, strict=True):
        np.testing.assert_array_equal(got, want)
    draw = functools.partial(gumbel_sigmoid, straight_through=True)
    low, mapped = jax.jit(lambda a, n: (draw(a.astype(jnp.bfloat16), n), jax.vmap(draw)(a, n)))(
        logits, noise
    )
    np.testing.assert_array_equal(mapped, hard)
    assert low.dtype == jnp.bfloat16
    assert set(np.unique(np.asarray(low, np.float32))) == {0.0, 1.0}


def test_bfloat16_logits_are_perturbed_in_float32(np_rng):
    logits = np_rng.normal(size=500).astype(jnp.bfloat16)
    noise = draw_logistic(jax.random.key(2), (500,))
    exact = sigmoid(np.asarray(logits, np.float64) + np.asarray(noise))
    got, log_gate = jax.jit(lambda *x: (gumbel_sigmoid(*x), log_gumbel_sigmoid(*x)))(logits, noise)
    assert got.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(got, np.float32), exact, **BF16)
    assert log_gate.dtype == jnp.float32
    np.testing.assert_allclose(log_gate, np.log(exact), **F32)
    # A noise just above the logit opens the gate although both are one number in bfloat16.
    near = gumbel_sigmoid(
        np.array([-3.0, -3.0], jnp.bfloat16), np.float32([3.001, 2.999]), straight_through=True
    )
    np.testing.assert_array_equal(np.asarray(near, np.float32), [1.0, 0.0])


# ---- the relaxed category


@pytest.mark.parametrize("axis", [-1, 0])
def test_gumbel_softmax_equals_the_formula_in_value_and_gradient(axis, np_rng, x64):
    logits, noise, cotangent = np_rng.normal(size=(3, 4, 3))

    def oracle(a):
        parts = np.exp((a + noise) / 0.6)
        return parts / parts.sum(axis=axis, keepdims=True)

    options = {"cotangent": cotangent, "temperature": 0.6, "static": (("axis", axis),)}
    value, gradient, _ = solved(gumbel_softmax, logits, noise, **options)
    np.testing.assert_allclose(value, oracle(logits), **F64)
    np.testing.assert_allclose(gradient, complex_step(oracle, logits, cotangent), **F64)


def test_gumbel_softmax_straight_through_is_one_hot_with_the_soft_gradient(np_rng):
    logits, noise, cotangent = np_rng.normal(size=(3, 50, 4)).astype(np.float32)
    options = {"cotangent": cotangent, "temperature": 0.5}
    value, *gradients = solved(gumbel_softmax, logits, noise, static=HARD, **options)
    np.testing.assert_array_equal(value, np.eye(4)[np.argmax(logits + noise, axis=-1)])
    _, *soft = solved(gumbel_softmax, logits, noise, **options)
    for got, want in zip(gradients, soft, strict=True):
        np.testing.assert_array_equal(got, want)
    zeros = np.zeros((3, 1), np.float32)
    tie = gumbel_softmax(zeros, zeros, axis=0, straight_through=True)
    np.testing.assert_array_equal(np.asarray(tie)[:, 0], [1, 0, 0])


# ---- hard gates


def test_sampled_gates_repeat_with_the_key_and_keep_the_dtype(rng):
    logits = np.zeros((3, 40), jnp.bfloat16)
    got = np.asarray(draw_gates(logits, key=rng))
    assert got.dtype == jnp.bfloat16
    np.testing.assert_array_equal(got, sample_gates(logits, key=rng))
    assert np.any(np.asarray(got) != np.asarray(draw_gates(logits, key=jax.random.key(1))))
    assert set(np.unique(got.astype(np.float32))) == {0.0, 1.0}


def test_ties_close_in_every_hard_gate():
    np.testing.assert_array_equal(
        threshold_gates(np.float32([-1.0, -0.0, 0.0, 1e-30, 1.0])), [0, 0, 0, 1, 1]
    )
    tie = gumbel_sigmoid(np.float32([1.5]), np.float32([-1.5]), straight_through=True)
    np.testing.assert_array_equal(tie, [0.0])
    assert threshold_gates(np.ones(2, jnp.bfloat16)).dtype == jnp.bfloat16


def test_an_open_row_is_left_alone_and_a_closed_one_gets_its_likeliest_valid_gate():
    mask = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0]], bool)
    gates = np.float32([[0, 1, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]])
    logits = np.float32(
        [[9, 1, 2, 3.0], [-5, -2, -2, 9], [-7, 3, 3, 3], [1, 2, 3, 4], [-np.inf, -np.inf, 0, 0]]
    )
    want = [[0, 1, 0, 1], [0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]]
    opened = jax.jit(ensure_open)
    got, closed = opened(gates, logits, mask)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(closed, [False, True, True, False, True])
    assert closed.dtype == jnp.bool_

    dirty, again = opened(*(np.where(mask, x, np.float32(np.nan)) for x in (gates, logits)), mask)
    np.testing.assert_array_equal(dirty, want)
    np.testing.assert_array_equal(again, closed)
    by_row, _ = jax.jit(jax.vmap(ensure_open))(gates, logits, mask)
    np.testing.assert_array_equal(by_row, want)


def test_ensure_open_keeps_the_dtype_and_prefers_any_valid_logit_to_padding():
    lowest = float(jnp.finfo(jnp.bfloat16).min)
    logits = np.array([[0.0, lowest, 5.0]], jnp.bfloat16)
    mask = np.array([[False, True, False]])
    got, closed = ensure_open(np.zeros((1, 3), jnp.bfloat16), logits, mask)
    assert got.dtype == jnp.bfloat16
    np.testing.assert_array_equal(np.asarray(got, np.float32), [[0, 1, 0]])
    assert np.asarray(closed)[0]


def test_rows_without_positions_have_no_gates_and_are_not_closed():
    empty = np.zeros((2, 0), jnp.bfloat16)
    gates, closed = ensure_open(empty, empty, np.zeros((2, 0), bool))
    np.testing.assert_array_equal(closed, [False, False])
    for hard in (False, True):
        soft = gumbel_softmax(empty, empty, straight_through=hard)
        assert (soft.shape, soft.dtype) == (gates.shape, gates.dtype) == ((2, 0), jnp.bfloat16)
    whole = gumbel_softmax(empty, empty, axis=0)
    assert whole.shape == (2, 0)


# ---- losses


def test_penalty_is_the_mean_gate_over_true_length_with_its_gradient(np_rng, x64):
    lengths = [0, 1, 3, 5]
    gates, cotangent = np_rng.uniform(size=(4, 5)), np_rng.normal(size=4)
    mask = np.arange(5)[None, :] < np.array(lengths)[:, None]
    value = [sum(gates[b, :n]) / n if n else 0.0 for b, n in enumerate(lengths)]
    want = [[cotangent[b] / n if t < n else 0.0 for t in range(5)] for b, n in enumerate(lengths)]

    found, got = solved(gate_penalty, gates, cotangent=cotangent, mask=mask)
    np.testing.assert_allclose(found, value, **F64)
    np.testing.assert_allclose(got, want, **F64)
    np.testing.assert_array_equal(got[~mask], 0.0)

    wide_mask = np.pad(mask, ((0, 0), (0, 5)))
    dirty = np.where(wide_mask, np.pad(gates, ((0, 0), (0, 5))), np.nan)
    found, got = solved(gate_penalty, dirty, cotangent=cotangent, mask=wide_mask)
    np.testing.assert_allclose(found, value, **F64)
    assert np.all(np.isfinite(got))
    np.testing.assert_allclose(gate_penalty(gates), gates.mean(-1), **F64)


def test_penalty_of_bfloat16_gates_is_summed_in_float32():
    gates = np.full((2, 1, 5000), 0.1, jnp.bfloat16)
    got = gate_penalty(gates)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, float(gates[0, 0, 0]) * np.ones((2, 1)), **F32)


def test_score_function_passes_no_gradient_to_reward_or_baseline():
    arguments = np.float32([[-1.0, -2.0], [3.0, 5.0], [1.0, 1.0]])
    value, *grads = solved(score_function_loss, *arguments)
    np.testing.assert_allclose(grads[0], [-2.0, -4.0], **F32)
    np.testing.assert_array_equal(grads[1], 0.0)
    np.testing.assert_array_equal(grads[2], 0.0)
    np.testing.assert_allclose(value, [2.0, 8.0], **F32)
    np.testing.assert_allclose(score_function_loss(*arguments[:2]), [3.0, 10.0], **F32)


def test_hard_gates_equal_the_rule_row_by_row_for_every_kind_of_empty_row(np_rng):
    logits = np_rng.normal(0, 1.5, (6, 5)).astype(np.float32)
    logits[0], logits[1], logits[2, 1:3] = -np.inf, -2.0, 0.0
    lengths = np.array([5, 5, 4, 3, 0, 5])
    mask = np.arange(5) < lengths[:, None]
    logits[~mask] = np_rng.choice([np.nan, np.inf, 9.0], np.sum(~mask))
    key = jax.random.key(3)

    @jax.jit
    def run(logits):
        found = {}
        for empty in ("max_gate", "zero", "soft"):
            for name, given in {"threshold": None, "sample": key}.items():
                make = lambda a, e=empty, k=given: hard_gates(a, mask, key=k, empty=e)  # noqa: E731
                gates = make(logits)
                # what they are for: a row with a gate that is open has weights that sum to 1
                weights = gated_softmax(jnp.zeros_like(logits), gates, mask)
                slope = jax.grad(lambda a, make=make: jnp.sum(make(a)))(logits)
                found[empty, name] = gates, jnp.sum(weights, axis=-1), slope
        return found, sample_gates(logits, key=key)

    found, drawn = jax.tree.map(np.asarray, run(logits))
    for (empty, name), (gates, total, slope) in found.items():
        plain = np.where(mask, logits > 0 if name == "threshold" else drawn, 0)
        for row, length in enumerate(lengths):
            want = plain[row].astype(float)
            if length and not want.any():
                a = logits[row, :length].astype(float)
                if empty == "max_gate":
                    want[np.argmax(a)] = 1
                if empty == "soft":
                    want[:length] = 1 / (1 + np.exp(-a))
            np.testing.assert_allclose(gates[row], want, **F32)
            # probabilities of 0 are a row without an open gate, too
            np.testing.assert_allclose(total[row], bool(want.any()), **F32)
        np.testing.assert_array_equal(slope, 0)
    assert np.any(found["zero", "threshold"][0][:4].sum(axis=-1) == 0)
    assert np.any(found["zero", "sample"][0] != found["zero", "threshold"][0])


@pytest.mark.slow
def test_hard_gates_take_any_leading_axes_and_map_over_keys_of_examples():
    logits = np.linspace(-2, 1, 12, dtype=np.float32).reshape(2, 6).astype(jnp.bfloat16)
    keys = jax.random.split(jax.random.key(0), 2)

    @jax.jit
    def run(logits, keys):
        wide = jnp.pad(logits, ((0, 0), (0, 2)), constant_values=9)
        mask = jnp.arange(8) < 6
        return (
            jax.vmap(lambda a, key: hard_gates(a, None, key=key))(logits, keys),
            jax.vmap(lambda a, key: hard_gates(a, mask, key=key))(wide, keys),
            hard_gates(logits, None),
            hard_gates(logits.reshape(2, 1, 6), None).reshape(2, 6),
        )

    drawn, padded, one, other = run(logits, keys)
    assert one.dtype == jnp.bfloat16
    np.testing.assert_array_equal(padded[:, :6], drawn)
    np.testing.assert_array_equal(padded[:, 6:], 0)
    np.testing.assert_array_equal(one, other)
