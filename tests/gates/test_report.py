"""Stated properties shown by draws: unbiased within 4 standard errors, biased ones biased."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import gates
from tests.gates._cases import BIASED, ESTIMATORS, UNBIASED, name
from tests.tolerances import F32, F64

LOGITS = np.array([1.0, -0.6, 0.3, 0.0])
WEIGHTS = np.array([1.0, -2.0, 0.5, 1.5])
LOSSES = [
    lambda g: jnp.sum((g - 0.45) ** 2),
    lambda g: jax.nn.sigmoid(2 * g[0] - 3 * g[1] * g[2] + g[3]),
    lambda g: jnp.prod(1 - 2 * g) + g[0],
    lambda g: -jnp.log(0.1 + (g @ WEIGHTS.astype(g.dtype)) ** 2),
    lambda g: jnp.max(g * WEIGHTS.astype(g.dtype)) ** 3 + jnp.exp(g[1] - g[3]),
]


def one_of_five(g, which):
    return jax.lax.switch(which, LOSSES, g)


def quartic(g):
    return jnp.sum((g - 0.1) ** 4)


def squared(g, target):
    return jnp.sum((g - target) ** 2)


@pytest.mark.parametrize("which", range(5))
def test_unbiased_estimators_are_within_four_standard_errors(which, x64):
    found = gates.report(
        one_of_five, LOGITS, UNBIASED, which, key=jax.random.key(which), draws=8192
    )
    for row in found.rows:
        assert row.z < 4, row
    noisy = {name(row.estimator): row.variance for row in found.rows}
    assert noisy["DisARM"] <= noisy["ARM"]
    assert noisy["Enumerate"] < 1e-20


@pytest.mark.slow
def test_biased_estimators_are_shown_biased_at_theta_1(x64):
    found = gates.report(quartic, np.array([1.0]), BIASED, key=jax.random.key(0), draws=16_384)
    assert len(found.rows) == len(BIASED) >= 7
    for row in found.rows:
        assert row.z > 10, row


@pytest.mark.slow
def test_the_columns_are_the_statistics_of_the_draws(x64):
    draws, key = 512, jax.random.key(5)
    estimator, mask = gates.LeaveOneOut(3), np.array([1, 1, 0, 1], bool)
    found = gates.report(one_of_five, LOGITS, [estimator], 1, key=key, draws=draws, mask=mask)
    gradient = jax.grad(gates.expectation(one_of_five, estimator))
    each = jax.jit(jax.vmap(lambda k: gradient(LOGITS, k, 1, mask=mask)))
    sample = np.asarray(each(jax.random.split(key, draws)))
    (row,) = found.rows
    exact = np.asarray(found.truth.gradient)
    np.testing.assert_allclose(row.bias, sample.mean(0) - exact, **F64)
    np.testing.assert_allclose(row.standard_error, sample.std(0, ddof=1) / np.sqrt(draws), **F64)
    mse = np.mean(np.sum((sample - exact) ** 2, axis=1))
    np.testing.assert_allclose([row.mse, row.mse_per_evaluation], [mse, 3 * mse], **F64)
    np.testing.assert_allclose(row.variance, sample.var(0, ddof=1).sum(), **F64)
    cosines = [
        s @ exact / (np.linalg.norm(s) * np.linalg.norm(exact)) if np.any(s) else 0.0
        for s in sample
    ]
    np.testing.assert_allclose(row.cosine, np.mean(cosines), **F64)
    assert row.bias[2] == row.standard_error[2] == 0


@pytest.mark.slow
def test_an_infinite_gradient_is_no_unbiased_one():
    """sqrt has no finite slope where every gate is closed."""
    report = gates.report(
        lambda b: jnp.sqrt(jnp.sum(b)),
        np.float32([0.4, -0.2]),
        [gates.StraightThrough(), gates.DisARM()],
        key=jax.random.key(0),
        draws=64,
    )
    assert report.rows[0].z == np.inf
    assert report.rows[1].z < 4


@pytest.mark.slow
def test_float32_and_bfloat16_logits_are_measured_in_float32():
    low = jnp.asarray([1.0], jnp.bfloat16)
    found = gates.report(
        squared, low, [gates.DisARM(), gates.MeanField()], 0.49, key=jax.random.key(0), draws=2048
    )
    exact, biased = found.rows
    assert found.truth.gradient.dtype == jnp.float32
    np.testing.assert_allclose(found.truth.gradient, [3.932239e-3], **F32)
    assert exact.z < 4
    assert biased.z > 10


@pytest.mark.slow
def test_the_report_is_a_table_and_plain_json():
    found = gates.report(
        quartic, np.ones(2, np.float32), ESTIMATORS[:3], key=jax.random.key(0), draws=16
    )
    lines = str(found).splitlines()
    assert len(lines) == 2 + 3
    assert lines[0].split("|")[1].strip() == "estimator"
    assert "SoftGumbel(tau=0.5)" in lines[2]
    assert repr(gates.Relax(quartic)) == "Relax(quartic)"
    records = json.loads(json.dumps([row.record() for row in found.rows]))
    assert [record["evaluations"] for record in records] == [1, 1, 1]
    assert len(records[0]["bias"]) == 2


def test_an_estimator_whose_class_is_no_dataclass_has_a_row():
    class Score(gates.ByValues):
        def gradient(self, logits, noise, patterns, values):
            return values[0] * (patterns[0] - jax.nn.sigmoid(logits))

    found = gates.report(jnp.sum, jnp.zeros(2), [Score()], key=jax.random.key(0), draws=4)
    assert found.rows[0].title == "Score"


@pytest.mark.slow
def test_what_an_estimator_does_not_state_is_not_listed_as_unbiased():
    class Half(gates.ByValues):  # its mean is half the gradient
        def gradient(self, logits, noise, patterns, values):
            return values[0] * (patterns[0] - jax.nn.sigmoid(logits)) / 2

    class Stated(Half):
        unbiased = False

    own = [Half(), Stated(), gates.Reinforce(), gates.SoftGumbel(0.5)]
    found = gates.report(jnp.sum, jnp.zeros(2), own, key=jax.random.key(0), draws=4)
    listed = [line.split("|")[2].strip() for line in str(found).splitlines()[2:]]
    assert listed == ["not stated", "no", "yes", "no"]
    stated = [row.record()["unbiased"] for row in found.rows]
    assert stated == [None, False, True, False]
    assert all(isinstance(one.unbiased, bool) for one in ESTIMATORS)  # the library states its own
