"""Exact means and variances, integrals over the noise of the estimators, against known tables."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import gates
from tests.gates import _oracles
from tests.gates._cases import at_noise, name
from tests.tolerances import F64

pytestmark = pytest.mark.usefixtures("x64")


def quadrature(p, points=48):
    """Nodes and weights in u, exact in each part where the hard gates are constant."""
    x, w = np.polynomial.legendre.leggauss(points)
    edges = np.unique([0.0, p, 1 - p, 1.0])
    parts = list(itertools.pairwise(edges))
    nodes = np.concatenate([(x + 1) / 2 * (b - a) + a for a, b in parts])
    return nodes, np.concatenate([w / 2 * (b - a) for a, b in parts])


def moments(estimator, theta, target):
    """The mean and the variance of the gradient for (b - t)^2 of one gate."""
    nodes, weights = quadrature(_oracles.sigmoid(theta))
    rows = list(itertools.product(range(len(nodes)), repeat=estimator.rows))
    noise = _oracles.logit(nodes)[np.array(rows)][..., None]
    weight = np.prod(weights[np.array(rows)], axis=1)
    _, gradient = at_noise(squared, estimator, np.array([theta]), noise, target)
    mean = weight @ gradient[:, 0]
    return mean, weight @ (gradient[:, 0] - mean) ** 2


def squared(g, target):
    return jnp.sum((g - target) ** 2)


GRADIENT = {
    (0.0, 0.49): 5.000e-3,
    (0.0, 0.45): 2.500e-2,
    (1.0, 0.49): 3.932239e-3,
    (-2.0, 0.499): 2.099872e-4,
}
VARIANCE = {
    gates.Reinforce(): (1.5638e-2, 1.5939e-2, 1.1848e-2, 6.602e-3),
    gates.LeaveOneOut(2): (2.500e-5, 6.250e-4, 2.386e-5, 1.659e-7),
    gates.ARM(): (8.333e-6, 2.083e-4, 1.458e-5, 1.420e-7),
    gates.DisARM(): (0.0, 0.0, 1.328e-5, 1.409e-7),
    gates.LocalExpectation(): (0.0, 0.0, 0.0, 0.0),
}
BIAS = {
    gates.StraightThrough(): (0.0, 0.0, 9.09e-2, -8.00e-2),
    gates.STGumbel(0.5): (-7.08e-4, -3.54e-3, 4.50e-2, -4.87e-2),
    gates.SoftGumbel(0.5): (-7.08e-4, -3.54e-3, 2.95e-2, -3.38e-2),
    gates.ReinMax(): (0.0, 0.0, 0.0, 0.0),
}


def digits(figures):
    """A number that was rounded to so many figures."""
    return {"rtol": 0.5 * 10.0 ** (1 - figures), "atol": 1e-15}


@pytest.mark.parametrize("estimator", VARIANCE, ids=name)
def test_unbiased_estimators_have_the_mean_and_the_variance_of_the_table(estimator):
    for (point, gradient), variance in zip(GRADIENT.items(), VARIANCE[estimator], strict=True):
        mean, found = moments(estimator, *point)
        np.testing.assert_allclose(mean, gradient, **digits(7 if point[0] else 4))
        np.testing.assert_allclose(found, variance, **digits(4))


@pytest.mark.parametrize("estimator", BIAS, ids=name)
def test_biased_estimators_have_the_bias_of_the_table(estimator):
    for point, bias in zip(GRADIENT, BIAS[estimator], strict=True):
        _, _, exact, _, _ = _oracles.truth(lambda b, t=point[1]: np.sum((b - t) ** 2), [point[0]])
        mean, _ = moments(estimator, *point)
        np.testing.assert_allclose(mean - exact[0], bias, **digits(3))


def test_enumeration_has_the_gradients_of_the_table():
    for (theta, target), gradient in GRADIENT.items():
        found = gates.enumerate(squared, np.array([theta]), target).gradient
        np.testing.assert_allclose(found, [gradient], **digits(7 if theta else 4))


def test_rebar_and_relax_have_the_exact_mean_whatever_their_control_variate():
    # the integrand has no kink in v, and in u only where the gate turns
    for estimator in [gates.Rebar(1.0, -0.1), gates.Relax(lambda z: jnp.sum(jnp.sin(z / 4)))]:
        mean, variance = moments(estimator, 1.0, 0.49)
        # the second is unbounded in the logarithms of u, which Gauss's rule follows less closely
        np.testing.assert_allclose(mean, GRADIENT[1.0, 0.49], rtol=2e-3)
        assert variance > 1e-4


def test_the_toy_of_liu_et_al_has_the_gradient_and_variances_of_their_notebook():
    """d = 3 gates of one shared phi = 0, loss sum (b - p0)^2."""
    target = np.array([0.6, 0.51, 0.48])
    rows = np.array(list(itertools.product([-1.0, 1.0], repeat=3)))

    def loss(g, target):
        return jnp.sum((g - target) ** 2)

    truth = gates.enumerate(loss, np.zeros(3), target)
    np.testing.assert_allclose(np.sum(truth.gradient), -0.0450, rtol=1e-12)

    @jax.jit
    def shared(noise, baseline):
        def one(row, c):
            def run(phi):
                logits = jnp.full(3, phi)
                objective = gates.Objective(loss, (target,), logits.dtype)
                return gates.Reinforce(c).surrogate(objective, logits, row[None])

            return jax.grad(run)(0.0)

        return jax.vmap(one)(noise, baseline)

    values = np.sum(((rows > 0) - target) ** 2, axis=1)
    pairs = np.array(list(itertools.product(range(8), repeat=2)))
    double = np.asarray(shared(rows[pairs[:, 0]], values[pairs[:, 1]]))
    plain = np.asarray(shared(rows[pairs[:, 0]], np.zeros(64)))
    np.testing.assert_allclose([double.mean(), plain.mean()], -0.0450, rtol=1e-12)
    np.testing.assert_allclose(double.var(), 0.012525, **digits(5))
    np.testing.assert_allclose(plain.var(), 0.43842, **digits(5))


@pytest.mark.slow
def test_reinmax_is_exact_for_losses_quadratic_in_each_gate_and_straight_through_is_not(np_rng):
    logits, matrix = np.array([0.4, -1.0, 1.7]), np_rng.normal(size=(3, 3))

    def loss(g, matrix):
        return g @ matrix @ g + g[0] ** 2 * g[1] ** 2 * g[2]

    patterns = np.array(list(itertools.product([-100.0, 100.0], repeat=3)))
    p = _oracles.sigmoid(logits)
    weights = np.prod(np.where(patterns > 0, p, 1 - p), axis=1)
    exact = gates.enumerate(loss, logits, matrix).gradient
    _, found = at_noise(loss, gates.ReinMax(), logits, patterns[:, None], matrix)
    np.testing.assert_allclose(weights @ found, exact, **F64)
    _, found = at_noise(loss, gates.StraightThrough(), logits, patterns[:, None], matrix)
    assert np.max(np.abs(weights @ found - exact)) > 1e-2
