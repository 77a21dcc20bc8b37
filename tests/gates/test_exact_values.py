"""Exact means and variances, integrals over the noise of the estimators, against known tables."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import gates
from tests.gates import _oracles
from tests.gates._cases import at_noise, name

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
