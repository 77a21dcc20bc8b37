"""Masked equals cut, draw by draw, for every estimator; and no masked gate is ever opened."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import gates
from tests.gates._cases import ESTIMATORS, LOGITS, WEIGHTS, cut_row, keys, name, solved
from tests.tolerances import F64


@pytest.mark.slow
def test_the_gradient_of_other_arguments_is_exact_in_any_number_of_chunks(x64):
    found = [
        solved(cut_row, gates.Enumerate(chunks), LOGITS, keys(1), (WEIGHTS,))[1]
        for chunks in (None, 4)
    ]
    for step in 1e-6 * np.eye(4):
        up, down = (
            gates.enumerate(cut_row, LOGITS, WEIGHTS + sign * step).expectation for sign in (1, -1)
        )
        for _, weights in found:
            slope = weights[0] @ step / 1e-6
            np.testing.assert_allclose(slope, (up - down) / 2e-6, rtol=1e-6, atol=1e-9)


def guarded(g, weights):
    """NaN if a gate of the last two, which are padding, opens at all."""
    return cut_row(g, weights) + jnp.where(g[3] + g[4] > 0, jnp.nan, 0.0)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name)
def test_masked_equals_cut_draw_by_draw(estimator, x64):
    if name(estimator) == "Enumerate":
        estimator = gates.Enumerate(chunks=2)
    mask, logits = np.arange(5) < 3, np.array([*LOGITS[:3], np.nan, np.inf])
    weights = np.array([*WEIGHTS[:3], 5.0, 7.0])
    value, (gradient, _) = solved(guarded, estimator, logits, keys(), (weights,), mask)
    want, (cut, _) = solved(cut_row, estimator, LOGITS[:3], keys(), (WEIGHTS[:3],))
    if name(estimator) == "Relax":  # its critic sees the padding, as a constant
        assert np.all(np.isfinite(gradient))
    np.testing.assert_allclose(value, want, **F64)
    np.testing.assert_allclose(gradient[:, :3], cut, **F64)
    np.testing.assert_array_equal(gradient[:, 3:], 0)


def linear(z):
    return 0.1 * z @ (1.0 + jnp.arange(z.shape[0]))


def network(z):
    signs = (-1.0) ** jnp.arange(z.shape[0])  # the last two, infinite, have no sum
    return jnp.sum(jnp.tanh(z @ jnp.stack([signs, 0.5 * signs], axis=1)))


def root(z):
    return jnp.sum(jnp.sqrt(jnp.exp(z)) - 1)  # at -inf without a finite slope


@pytest.mark.slow
@pytest.mark.parametrize("critic", [linear, network, root])
def test_a_critic_that_is_not_finite_at_masked_gates_sees_nothing_there(critic, x64):
    estimator, mask = gates.Relax(critic), np.arange(5) < 3
    logits, weights = np.array([*LOGITS[:3], np.nan, np.inf]), np.array([*WEIGHTS[:3], 5.0, 7.0])
    value, (gradient, _) = solved(guarded, estimator, logits, keys(), (weights,), mask)
    want, (cut, _) = solved(cut_row, estimator, LOGITS[:3], keys(), (WEIGHTS[:3],))
    np.testing.assert_allclose(value, want, **F64)
    np.testing.assert_allclose(gradient[:, :3], cut, **F64)
    np.testing.assert_array_equal(gradient[:, 3:], 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [gates.SoftGumbel, gates.STGumbel, gates.Rebar])
def test_a_masked_gate_has_no_part_in_what_trains_the_temperature(kind, x64):
    """The derivatives by tau and eta of values and of squared gradients, as one tunes `Rebar`."""

    def cost(options, logits, weights, mask):
        expected = gates.expectation(cut_row, kind(*options))

        def one(key):
            return jax.value_and_grad(lambda a: expected(a, key, weights, mask=mask))(logits)

        values, slopes = jax.vmap(one)(keys(3))
        return jnp.sum(values) + jnp.sum(slopes**2)

    options = (0.7, 0.9) if kind is gates.Rebar else (0.7,)
    tune = jax.jit(jax.value_and_grad(cost))
    logits, weights = np.array([*LOGITS[:3], np.nan, np.inf]), np.array([*WEIGHTS[:3], 5.0, 7.0])
    found = tune(options, logits, weights, np.arange(5) < 3)
    want = tune(options, LOGITS[:3], WEIGHTS[:3], np.ones(3, bool))
    jax.tree.map(lambda got, wanted: np.testing.assert_allclose(got, wanted, **F64), found, want)
    assert all(abs(slope) > 1e-3 for slope in want[1])
