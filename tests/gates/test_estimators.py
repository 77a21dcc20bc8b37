"""Every estimator, draw by draw against NumPy loops; penalties, and the training of a critic."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import gates
from gatedjax.gates._registry import ESTIMATORS as ESTIMATORS_OF_THE_LIBRARY
from gatedjax.gates._registry import standard_estimators
from tests.gates import _oracles
from tests.gates._cases import (
    BIASED,
    ESTIMATORS,
    LOGITS,
    ORACLES,
    UNBIASED,
    WEIGHTS,
    at_noise,
    name,
    smooth,
)
from tests.tolerances import F64

pytestmark = pytest.mark.usefixtures("x64")


# ---- draw by draw


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name)
def test_value_and_gradient_are_those_of_the_formula_draw_by_draw(estimator, np_rng):
    noise = np_rng.logistic(size=(20, estimator.rows, 4))
    values, gradients = at_noise(smooth, estimator, LOGITS, noise, WEIGHTS)
    for value, gradient, rows in zip(values, gradients, noise, strict=True):
        want = ORACLES[estimator](lambda g: _oracles.smooth(g, WEIGHTS), LOGITS, rows)
        np.testing.assert_allclose(value, want[0], **F64)
        np.testing.assert_allclose(gradient, want[1], **F64)


def test_the_table_says_of_every_estimator_what_it_is():
    of_entries = {entry.kind: entry for entry in ESTIMATORS_OF_THE_LIBRARY}
    assert of_entries.keys() == {type(one) for one in ESTIMATORS}
    for one in ESTIMATORS:
        stated = of_entries[type(one)].evaluations
        # k is the number of draws, n the number of gates
        numbers = {"k": getattr(one, "k", None), "n": 4}
        assert one.evaluations(4) == eval(stated.replace("^", "**"), numbers)
        assert hash(one) == hash(dataclasses.replace(one))
        assert "Reference:" in type(one).__doc__
        assert "iased" in type(one).__doc__
    assert [name(one) for one in UNBIASED if one.needs_gradient] == ["Rebar"]
    assert all(one.needs_gradient == isinstance(one, gates.Pathwise) for one in BIASED)
    assert "| `DisARM` | you have no other preference | yes | 2 | no | `disarm` |" in gates.__doc__
    reported = standard_estimators(0.7)
    assert of_entries.keys() - {*map(type, reported)} == {gates.Relax, gates.Enumerate}
    assert [one.k for one in reported if hasattr(one, "k")] == [2, 4]
    tempered = [name(one) for one in reported if getattr(one, "tau", None) == 0.7]
    assert tempered == ["SoftGumbel", "STGumbel", "Rebar"]


# ---- gates with atoms


@pytest.mark.parametrize("estimator", [gates.HardConcrete(), gates.HardKuma()], ids=name)
def test_the_penalty_is_the_expected_number_of_gates_that_are_not_zero(estimator):
    logits, mask = np.array([0.5, -2.0, 3.0, 7.0]), np.array([1, 1, 1, 0], bool)
    u = (np.arange(20_000) + 0.5) / 20_000
    noise = np.broadcast_to(_oracles.logit(u)[:, None], (20_000, 4))
    drawn = np.asarray(jax.jit(jax.vmap(estimator.gates, in_axes=(None, 0)))(logits, noise))
    assert drawn.min() == 0.0
    assert drawn.max() == 1.0
    want = np.mean(drawn > 0, axis=0)
    np.testing.assert_allclose(estimator.penalty(logits), want.sum(), atol=2e-4)
    np.testing.assert_allclose(estimator.penalty(logits, mask), want[:3].sum(), atol=2e-4)
    slope = np.asarray(jax.jit(jax.grad(estimator.penalty))(logits, mask))
    assert np.all(slope[:3] > 0)
    assert slope[3] == 0


@pytest.mark.slow
def test_a_critic_is_trained_through_the_square_of_the_gradient(np_rng):
    noise = np_rng.logistic(size=(64, 2, 4))

    @jax.jit
    def square(scale):
        def one(rows):
            relax = gates.Relax(lambda z: scale * smooth(jax.nn.sigmoid(z), WEIGHTS))
            run = lambda a: relax.surrogate(gates.Objective(smooth, (WEIGHTS,), a.dtype), a, rows)  # noqa: E731
            return jnp.sum(jax.grad(run)(LOGITS) ** 2)

        return jnp.mean(jax.vmap(one)(noise))

    slope = jax.jit(jax.grad(square))(0.2)
    difference = (square(0.2 + 1e-5) - square(0.2 - 1e-5)) / 2e-5
    np.testing.assert_allclose(slope, difference, rtol=1e-7)
    assert square(1.0) < square(0.0) / 2
