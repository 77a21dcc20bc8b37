"""Extreme logits, NaN and low precision, for every estimator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import gates
from tests.gates import _oracles
from tests.gates._cases import ESTIMATORS, LOGITS, WEIGHTS, keys, name, smooth, solved
from tests.tolerances import BF16, F32

# soft and stretched gates, several draws, and a control variate
OF_EACH_KIND = [
    one for one in ESTIMATORS if name(one) in ("SoftGumbel", "HardKuma", "DisARM", "Relax")
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name)
def test_extreme_logits_have_finite_values_and_no_gradient(estimator):
    logits = np.float32([1e4, -1e4, np.inf, -np.inf])
    value, (gradient, weights) = solved(
        smooth, estimator, logits, keys(), (WEIGHTS.astype(np.float32),)
    )
    want = _oracles.smooth(np.array([1.0, 0, 1, 0]), WEIGHTS)
    # HardKuma counts logits beyond 16 as 16
    np.testing.assert_allclose(value, [want] * 6, **F32)
    np.testing.assert_allclose(gradient, np.zeros((6, 4)), atol=1e-7)
    assert np.all(np.isfinite(weights))


def of_open_gates(g, weights):
    """A loss of comparisons, which hide NaN."""
    return jnp.sum(jnp.where(g > 0.5, weights, 0))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name)
def test_a_logit_of_nan_is_seen(estimator):
    loss = smooth if estimator.needs_gradient else of_open_gates
    logits = LOGITS.astype(np.float32)
    logits[1] = np.nan
    value, (gradient, _) = solved(loss, estimator, logits, keys(), (WEIGHTS.astype(np.float32),))
    assert np.isnan(value).all()
    assert np.isnan(gradient[:, 1]).all()


@pytest.mark.parametrize("estimator", OF_EACH_KIND, ids=name)
def test_bfloat16_logits_are_computed_in_float32(estimator):
    logits = jnp.asarray(LOGITS, jnp.bfloat16)
    wide, weights = np.asarray(logits, np.float32), WEIGHTS.astype(np.float32)
    value, (gradient, _) = solved(smooth, estimator, logits, keys(), (weights,))
    want, (exact, _) = solved(smooth, estimator, wide, keys(), (weights,))
    assert value.dtype == np.float32
    assert gradient.dtype == jnp.bfloat16
    np.testing.assert_allclose(value, want, **BF16)
    # differences of losses, of which soft gates in bfloat16 are rounded
    np.testing.assert_allclose(gradient.astype(np.float32), exact, rtol=5e-2, atol=3e-2)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name)
def test_losses_get_gates_in_the_dtype_of_the_logits_and_are_summed_in_float32(estimator):
    seen, logits = [], jnp.zeros((2, 3), jnp.bfloat16)

    def reader(g):
        seen.append(g.dtype)
        return jnp.sum(g, axis=-1, dtype=jnp.float32), None

    jax.eval_shape(lambda a: gates.train(estimator, a, keys(2), reader)[0], logits)
    if isinstance(estimator, gates.Pathwise):
        seen.append(jax.eval_shape(estimator.gates, logits, jnp.zeros((2, 3))).dtype)
    assert {*seen} == {logits.dtype}
    expected = gates.expectation(jnp.sum, estimator)
    assert jax.eval_shape(expected, logits[0], keys(1)[0]).dtype == jnp.float32


def test_a_gate_that_is_certain_is_never_flipped():
    noise = np.ones((1, 2), np.float32)
    patterns = gates.LocalExpectation().patterns(np.float32([0.5, np.inf]), noise)
    np.testing.assert_array_equal(patterns, [[1, 1], [0, 1], [1, 1]])
