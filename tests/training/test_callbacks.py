"""Callbacks with the state, and the learning rate in the log."""

import dataclasses
import types

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gatedjax.training import OptimizerConfig, TrainState, fit, fit_lanes, make_parallel
from gatedjax.training._rates import LearningRates
from tests.conftest import ROOT
from tests.training._plane import CONFIG, EVALUATION, Data, Plane, assert_close, loop, mean_error
from tests.training._tiny import lines

SGD = optax.sgd(0.05)
COSINE = optax.cosine_decay_schedule(0.05, 10)


def test_a_callback_sees_the_state_of_each_logged_or_evaluated_step():
    config = dataclasses.replace(CONFIG, log_every=2, eval_every=3, num_steps=5)
    calls = []

    def callback(step, state, metrics):
        assert isinstance(state, TrainState)
        assert int(state.step) == step
        calls.append((step, jax.device_get(state.params), metrics))

    result = fit(Plane(), Data(), EVALUATION, config, callbacks=(callback,), optimizer=SGD)
    assert [step for step, _, _ in calls] == [2, 3, 4, 5]
    for step, params, metrics in calls:
        assert_close(params, loop(SGD, step)[0])
        assert ("loss" in metrics) == (step in (2, 4, 5))
        assert ("eval_loss" in metrics) == (step in (3, 5))
        if "eval_loss" in metrics:
            assert metrics["eval_loss"] == pytest.approx(mean_error(params), rel=1e-5)
    assert calls[-1][2]["eval_loss"] == result.history[-1]["loss"]
    chex.assert_trees_all_equal(calls[-1][1], result.state.params)


def test_the_step_after_a_callback_donates_the_buffers_of_its_state():
    states, copies = [], []

    def callback(step, state, metrics):
        states.append(state)
        copies.append(jax.tree.map(jnp.copy, state.params))

    result = fit(Plane(), Data(), None, CONFIG, callbacks=(callback,), optimizer=SGD)
    assert states[0].params["w"].is_deleted()
    assert_close(copies[0], loop(SGD, 2)[0])
    assert_close(copies[1], result.state.params)


@pytest.mark.parametrize("kind", ["sharding", "pmap"])
def test_the_state_of_a_callback_has_no_axis_over_devices(kind):
    shapes = []
    config = dataclasses.replace(CONFIG, num_steps=2, parallel=kind)
    note = lambda step, state, metrics: shapes.append(jax.tree.map(jnp.shape, state.params))  # noqa: E731
    parallel = make_parallel(kind, jax.devices()[:2])
    fit(Plane(), Data(), None, config, callbacks=[note], parallel=parallel)
    assert shapes == [{"w": (3, 2), "b": (2,)}]


def test_callbacks_get_copies_and_their_errors_end_the_run(tmp_path):
    def change(step, state, metrics):
        metrics.clear()

    def fail(step, state, metrics):
        assert "loss" in metrics
        raise KeyError("own error")

    with pytest.raises(KeyError, match="own error"):
        fit(Plane(), Data(), None, CONFIG, tmp_path, callbacks=(change, fail))
    with pytest.raises(TypeError, match=r"callbacks must be a tuple of functions .* got <function"):
        fit(Plane(), Data(), None, CONFIG, callbacks=change)


RATES = {
    "inject_hyperparams": optax.inject_hyperparams(optax.adam)(learning_rate=COSINE),
    "a schedule": optax.chain(optax.clip(1.0), optax.adam(COSINE)),
    "a schedule inside MultiSteps": optax.MultiSteps(optax.sgd(COSINE), 1),
    "a schedule in two parts": optax.partition(
        {"a": optax.sgd(COSINE), "b": optax.sgd(COSINE)}, {"w": "a", "b": "b"}
    ),
}


@pytest.mark.parametrize("name", RATES)
def test_the_log_has_the_learning_rate_of_the_last_update(name, tmp_path):
    fit(Plane(), Data(), None, CONFIG, tmp_path, optimizer=RATES[name])
    rates = [line["learning_rate"] for line in lines(tmp_path, "train")]
    expected = [0.05 * 0.5 * (1 + np.cos(np.pi * count / 10)) for count in (1, 3)]
    np.testing.assert_allclose(rates, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        (OptimizerConfig(learning_rate=0.25), [0.25, 0.25]),
        (OptimizerConfig(learning_rate=0.25, schedule="linear", ema_decay=0.5), [0.1875, 0.0625]),
        (
            OptimizerConfig(
                learning_rate=0.25, schedule="staircase", decay_every=2, reset_moments=True
            ),
            [0.125, 0.0625],
        ),
    ],
)
def test_the_log_has_the_configured_learning_rate(optimizer, expected, tmp_path):
    config = dataclasses.replace(CONFIG, optimizer=optimizer)
    fit(Plane(), Data(), None, config, tmp_path)
    assert [line["learning_rate"] for line in lines(tmp_path, "train")] == expected


def test_rates_of_groups_have_their_names_and_other_rates_are_left_out():
    params = {"w": jnp.ones(2), "b": jnp.ones(1)}
    adam = optax.inject_hyperparams(optax.adam)(0.5)
    sgd = optax.inject_hyperparams(optax.sgd)(0.25)
    groups = optax.partition({"deep": adam, "flat": sgd}, {"w": "deep", "b": "flat"})
    read = lambda tx: LearningRates(tx, None, 4).read(tx.init(params))  # noqa: E731
    assert read(groups) == {"learning_rate_deep": 0.5, "learning_rate_flat": 0.25}
    assert read(optax.chain(adam, sgd)) == {"learning_rate_0": 0.5, "learning_rate_1": 0.25}
    # A factor is no learning rate, and two schedules are not one.
    factor = optax.chain(optax.adam(0.5), optax.scale_by_schedule(COSINE))
    two = optax.chain(optax.sgd(COSINE), optax.sgd(optax.constant_schedule(0.5)))
    assert read(factor) == read(two) == read(optax.adam(0.5)) == {}


def test_lanes_log_their_learning_rates(tmp_path):
    config = dataclasses.replace(
        CONFIG, seeds=2, optimizer=OptimizerConfig(learning_rate=0.25, schedule="linear")
    )
    fit_lanes(Plane(), lambda seed: Data(), None, config, tmp_path / "seeds")
    rates = [line["learning_rate"] for line in lines(tmp_path / "seeds", "train")]
    assert rates == [0.1875, 0.1875, 0.0625, 0.0625]
    # The lines of a sweep name their lane by the peak of the rate.
    swept = dataclasses.replace(config, seeds=1, sweep=(0.25, 0.5))
    fit_lanes(Plane(), lambda seed: Data(), None, swept, tmp_path / "sweep", steps=2)
    assert [line["learning_rate"] for line in lines(tmp_path / "sweep", "train")] == [0.25, 0.5]


class Writer:
    """A stand-in for the writer of TensorBoard."""

    def __init__(self, folder):
        self.scalars, self.histograms = {}, {}

    def add_scalar(self, name, value, step):
        self.scalars[name, step] = value

    def add_histogram(self, name, values, step):
        self.histograms[name, step] = values


def page_code(word):
    """The code of the first block of docs/training.md that has a word."""
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    return next(part for part in text.split("\n```")[1::2] if word in part).strip("\n")


def test_the_writers_of_the_page_receive_the_metrics():
    code = page_code("tensorboardX.SummaryWriter(")
    assert len(code.splitlines()) <= 5
    scope = {"jax": jax, "tensorboardX": types.SimpleNamespace(SummaryWriter=Writer)}
    exec(compile(code, "training.md", "exec"), scope)
    fit(Plane(), Data(), EVALUATION, CONFIG, optimizer=SGD, callbacks=(scope["write"],))
    writer = scope["writer"]
    assert {step for _, step in writer.scalars} == {2, 4}
    assert writer.scalars["eval_loss", 4] == pytest.approx(mean_error(loop(SGD, 4)[0]), rel=1e-4)
    np.testing.assert_allclose(writer.histograms["w", 2], loop(SGD, 2)[0]["w"], rtol=1e-4)
    sent = []
    wandb = types.SimpleNamespace(log=lambda metrics, step: sent.append((step, metrics)))
    scope = {"wandb": wandb}
    exec(compile(page_code("wandb.log(metrics"), "training.md", "exec"), scope)
    fit(Plane(), Data(), EVALUATION, CONFIG, optimizer=SGD, callbacks=(scope["write"],))
    assert [step for step, _ in sent] == [2, 4]
    assert all(isinstance(value, float) for _, metrics in sent for value in metrics.values())


def test_the_tensorboard_writer_of_the_page_writes_events(tmp_path, monkeypatch):
    scope = {"jax": jax, "tensorboardX": pytest.importorskip("tensorboardX")}
    monkeypatch.chdir(tmp_path)
    exec(compile(page_code("tensorboardX.SummaryWriter("), "training.md", "exec"), scope)
    fit(Plane(), Data(), None, CONFIG, optimizer=SGD, callbacks=(scope["write"],))
    scope["writer"].close()
    assert [path.stat().st_size > 0 for path in (tmp_path / "runs" / "events").iterdir()] == [True]
