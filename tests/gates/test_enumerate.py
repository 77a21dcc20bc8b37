"""The exact truth, against a loop over all patterns, and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import gates
from gatedjax.gates import _enumerate
from tests.gates import _oracles
from tests.gates._cases import smooth
from tests.tolerances import BF16, F32, F64

WEIGHTS = np.array([1.0, -2.0, 0.5, 1.5, -0.3])
LOGITS = np.array([0.3, -1.2, 2.0, 0.1, -0.4])


def check(found, want, **tolerance):
    for name, value in zip(_enumerate.Truth._fields[:5], want, strict=True):
        np.testing.assert_allclose(getattr(found, name), value, err_msg=name, **tolerance)


@pytest.mark.parametrize("chunks", [None, 5])
def test_every_field_is_that_of_a_loop_over_all_patterns(chunks, x64):
    found = gates.enumerate(smooth, LOGITS, WEIGHTS, chunks=chunks)
    f = lambda g: _oracles.smooth(g, WEIGHTS)  # noqa: E731
    want = _oracles.truth(f, LOGITS)
    check(found, want, **F64)
    p = _oracles.sigmoid(LOGITS)
    modes = {
        "sample": want[0], "threshold": f((LOGITS > 0).astype(float)), "best": f(want[4]),
        "expected": f(p),
    }  # fmt: skip
    assert found.modes.keys() == modes.keys()
    for name, value in modes.items():
        np.testing.assert_allclose(found.modes[name], value, err_msg=name, **F64)


def test_the_parts_are_a_power_of_two_that_divides_the_patterns():
    found = [_enumerate.count_chunks(*pair) for pair in ((12, None), (14, None), (5, 5), (5, 99))]
    assert found == [1, 4, 8, 32]


@pytest.mark.slow
def test_the_relaxed_mode_is_the_mean_over_soft_gates(x64):
    found = gates.enumerate(
        smooth, LOGITS, WEIGHTS, key=jax.random.key(3), temperature=0.7, draws=20_000
    ).modes["relaxed"]
    noise = np.random.default_rng(0).logistic(size=(200_000, 5))
    soft = _oracles.sigmoid((LOGITS + noise) / 0.7).T
    values = _oracles.sigmoid(WEIGHTS @ soft + soft[0] * soft[1] * 2 - 0.7) + 0.3 * soft[2] ** 3
    assert abs(found - values.mean()) < 5 * values.std() / np.sqrt(20_000)


def by_position(g, weights):
    """Gates at positions, so that a masked gate that opens would be seen."""
    return jnp.tanh(jnp.sum(g * weights)) + jnp.where(g[1] + g[4] > 0, jnp.nan, 0)


def cut_row(g, weights):
    return jnp.tanh(jnp.sum(g * weights))


@pytest.mark.parametrize("known", [True, False])
def test_masked_equals_cut_and_opens_no_masked_gate(known, x64):
    mask = np.array([1, 0, 1, 1, 0], bool)
    logits = np.where(mask, LOGITS, np.nan)
    run = lambda a, m: gates.enumerate(by_position, a, WEIGHTS, mask=m)  # noqa: E731
    found = run(logits, mask) if known else jax.jit(run)(logits, mask)
    cut = gates.enumerate(cut_row, LOGITS[mask], WEIGHTS[mask])
    for field in ("expectation", "variance"):
        np.testing.assert_allclose(getattr(found, field), getattr(cut, field), **F64)
    for field in ("gradient", "effects", "best"):
        got = np.asarray(getattr(found, field))
        np.testing.assert_allclose(got[mask], getattr(cut, field), **F64)
        np.testing.assert_array_equal(got[~mask], 0)
    for name, value in cut.modes.items():
        np.testing.assert_allclose(found.modes[name], value, **F64)


def test_no_gate_at_all_is_the_loss_of_the_closed_row(x64):
    found = gates.enumerate(cut_row, LOGITS, WEIGHTS, mask=np.zeros(5, bool))
    assert float(found.expectation) == 0.0
    np.testing.assert_array_equal(found.gradient, np.zeros(5))
    empty = gates.enumerate(lambda g: 3.0 + jnp.sum(g), np.zeros(0))
    assert (float(empty.expectation), float(empty.variance)) == (3.0, 0.0)


def test_extreme_logits_are_certain_gates_with_finite_effects(x64):
    logits = np.array([50.0, -1e4, np.inf, -np.inf, 0.5])
    found = gates.enumerate(smooth, logits, WEIGHTS)
    p = np.array([1, 0, 1, 0, _oracles.sigmoid(0.5)])
    f = lambda b: _oracles.smooth(np.array([*p[:4], b]), WEIGHTS)  # noqa: E731
    np.testing.assert_allclose(found.expectation, p[4] * f(1) + (1 - p[4]) * f(0), **F64)
    # The first gate is open with probability 1 to rounding, but closed with probability exp(-50).
    np.testing.assert_allclose(found.gradient[0], found.effects[0] * np.exp(-50), rtol=1e-12)
    np.testing.assert_array_equal(found.gradient[1:4], np.zeros(3))
    for i in range(4):
        on, off = np.array([*p[:4], 0.0]), np.array([*p[:4], 0.0])
        on[i], off[i] = 1, 0
        want = 0.0
        for last, weight in ((1, p[4]), (0, 1 - p[4])):
            on[4] = off[4] = last
            want += weight * (_oracles.smooth(on, WEIGHTS) - _oracles.smooth(off, WEIGHTS))
        np.testing.assert_allclose(found.effects[i], want, **F64)


@pytest.mark.slow
def test_lower_precisions_sum_in_float32(np_rng):
    want = _oracles.truth(lambda g: _oracles.smooth(g, WEIGHTS), LOGITS)
    check(
        gates.enumerate(smooth, LOGITS.astype(np.float32), WEIGHTS.astype(np.float32)), want, **F32
    )
    low = jnp.asarray(LOGITS, jnp.bfloat16)
    found = gates.enumerate(smooth, low, WEIGHTS.astype(np.float32))
    assert found.expectation.dtype == found.gradient.dtype == jnp.float32
    assert found.best.dtype == jnp.bfloat16
    check(found._replace(best=found.best.astype(jnp.float32)), want, **BF16)


def test_the_second_call_compiles_nothing(caplog):
    for scale in (1.0, 2.0):
        caplog.clear()
        with jax.log_compiles():
            gates.enumerate(cut_row, np.float32(scale * LOGITS), np.float32(WEIGHTS))
    assert not [r for r in caplog.records if "Compiling" in r.getMessage()]


@pytest.mark.slow
def test_a_million_patterns_are_exact():
    weights = np.random.default_rng(0).normal(size=20).astype(np.float32)
    logits = np.linspace(-1, 1, 20, dtype=np.float32)
    found = gates.enumerate(linear, logits, weights)
    p = _oracles.sigmoid(logits.astype(float))
    # E (w b)^2 in closed form
    mean, square = p @ weights, (p * (1 - p)) @ weights**2
    np.testing.assert_allclose(found.expectation, mean**2 + square, rtol=2e-6)
    effects = weights * (2 * (mean - p * weights) + weights)
    np.testing.assert_allclose(found.effects, effects, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.gradient, p * (1 - p) * effects, rtol=1e-5, atol=1e-5)


def linear(g, weights):
    return (g @ weights) ** 2
