"""Stated properties shown by draws: unbiased within 4 standard errors, biased ones biased."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import gates
from gatedjax.gates import _report
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
    real = row.standard_error > 0
    z = np.abs(row.bias[real] / row.standard_error[real]).max()
    np.testing.assert_allclose(row.z, z, rtol=1e-6)
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


class Half(gates.ByValues):  # its mean is half the gradient
    def gradient(self, logits, noise, patterns, values):
        return values[0] * (patterns[0] - jax.nn.sigmoid(logits)) / 2


class Stated(Half):
    unbiased = False


ROW = _report.Row(
    gates.SoftGumbel(2 / 3), 3, np.array([3.0, 4.0]), np.array([0.6, 0.8]), z=5.5, variance=0.25,
    mse=0.125, cosine=0.75, mse_per_evaluation=0.375,
)  # fmt: skip


def cells(table):
    """The cells of a table without the line below its heads."""
    lines = [line.strip("|").split("|") for line in table.splitlines()]
    return [[cell.strip() for cell in line] for line in lines[:1] + lines[2:]]


def test_every_number_of_a_report_has_its_column_and_its_key():
    rows = [ROW, *(dataclasses.replace(ROW, estimator=e, z=4.0) for e in (
        gates.Relax(quartic), Half(), Stated(), gates.LeaveOneOut(2)
    ))]  # fmt: skip
    heads, first, *others = cells(str(_report.Report(None, rows, 16)))
    assert heads == [
        "estimator", "unbiased", "bias", "+-", "z", "shown biased", "variance", "MSE", "cosine",
        "evaluations", "MSE x evaluations",
    ]  # fmt: skip
    numbers = ["5", "1", "5.5", "yes", "0.25", "0.125", "0.75", "3", "0.375"]
    assert first == ["SoftGumbel(tau=0.667)", "no", *numbers]
    assert [line[:2] for line in others] == [
        ["Relax(critic=quartic)", "yes"], ["Half", "not stated"], ["Stated", "no"],
        ["LeaveOneOut(k=2)", "yes"],
    ]  # fmt: skip
    assert others[0][4:6] == ["4", "no"]
    assert repr(gates.Relax(functools.partial(quartic))) == "Relax(partial)"
    assert json.loads(json.dumps(ROW.record())) == {
        "estimator": repr(ROW.estimator), "unbiased": False, "evaluations": 3, "bias": [3.0, 4.0],
        "standard_error": [0.6, 0.8], "z": 5.5, "variance": 0.25, "mse": 0.125, "cosine": 0.75,
        "mse_per_evaluation": 0.375, "shown_biased": True,
    }  # fmt: skip
    assert all(isinstance(one.unbiased, bool) for one in ESTIMATORS)  # the library states its own


def test_a_study_says_what_its_modes_and_estimators_say():
    sampled = _report.ModeRow("sample", "one draw", np.inf, 0.01, -0.25, 0.75, 0.125, 0.5)
    exact = _report.ModeRow("exact", "all patterns", 0.75, None, 0.0, 0.5, None, None)
    measured = _report.Measured((ROW,), 2, 16, 0.5)
    study = gates.Study("Texts", (sampled, exact), measured, {"seed": 7}, ("Few.", "Short."))
    title, modes, estimators, *notes = study.markdown().split("\n\n")
    assert [title, *notes] == ["## Texts", "Few.", "Short.\n"]
    assert cells(estimators) == cells(str(_report.Report(None, [ROW], 16)))
    lines = [
        ["gates", "loss", "+-", "less exact", "accuracy", "+-", "open"],
        ["one draw", "inf", "0.01000", "-0.25000", "0.7500", "0.1250", "0.500"],
        ["all patterns", "0.75000", "-", "-", "0.5000", "-", "-"],
    ]
    assert cells(modes) == lines
    classless = [row._replace(accuracy=None) for row in (sampled, exact)]
    assert cells(_report._render_modes(classless)) == [line[:4] for line in lines]
    assert study.record() == {
        "title": "Texts", "seed": 7, "texts": 2, "draws": 16, "gradient_norm": 0.5,
        "modes": [sampled._asdict() | {"loss": None}, exact._asdict()],
        "estimators": [ROW.record()], "notes": ["Few.", "Short."],
    }  # fmt: skip
