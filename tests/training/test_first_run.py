"""A first run: a task, batches and a number of steps; no folder, given parameters, defaults."""

import dataclasses
import os
import signal
import statistics
import time

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gatedjax import training
from gatedjax.training import (
    CheckpointMismatch,
    TrainConfig,
    evaluate,
    fit,
    init_state,
    make_train_step,
)
from gatedjax.training.config import mode_of
from tests._speed import seconds_of_python
from tests.training._plane import CONFIG, EVALUATION, Data, Plane, assert_close, loop, mean_error

SGD = optax.sgd(0.05)
START = {"w": np.full((3, 2), 0.5, np.float32), "b": np.full(2, 0.25, np.float32)}


def test_a_task_batches_and_steps_are_enough(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    result = fit(Plane(), Data(), steps=4)
    assert (result.steps, result.stopped, result.history) == (4, "done", [])
    assert_close(result.best_params, loop(optax.adam(1e-3), 4)[0])
    assert os.listdir(tmp_path) == []
    assert "step 4/4: loss" in capsys.readouterr().err


def test_the_best_parameters_are_those_of_the_lowest_loss(tmp_path):
    config = dataclasses.replace(TrainConfig(), eval_every=1, progress=False)
    rising = optax.sgd(lambda count: jnp.where(count < 2, 0.05, -0.2))
    result = fit(Plane(), Data(), EVALUATION, config, steps=4, optimizer=rising)
    losses = [entry["loss"] for entry in result.history]
    assert losses[1] == min(losses) < losses[3]
    assert (result.best_step, result.best_metrics["loss"]) == (2, losses[1])
    assert mean_error(result.best_params) == pytest.approx(losses[1], rel=1e-5)
    metrics, _ = evaluate(Plane(), result.best_params, EVALUATION)
    assert metrics["loss"] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize(
    ("metric", "mode"),
    [("loss", "min"), ("perplexity", "min"), ("word_error_rate", "min"), ("accuracy", "max")],
)
def test_the_mode_follows_the_name_of_the_metric(metric, mode):
    config = TrainConfig(best_metric=metric)
    assert mode_of(config.best_metric, config.best_mode) == mode
    assert config.is_better(2.0, 1.0) == (mode == "max")
    assert not config.is_better(float("nan"), 1.0)
    assert config.is_better(1.0, float("nan"))
    assert dataclasses.replace(config, best_mode="max").is_better(2.0, 1.0)


def test_a_run_with_auto_continues_a_run_with_the_mode(tmp_path):
    fit(Plane(), Data(), EVALUATION, dataclasses.replace(CONFIG, num_steps=2), tmp_path)
    auto = dataclasses.replace(CONFIG, best_mode="auto")
    assert fit(Plane(), Data(), EVALUATION, auto, tmp_path).steps == 4


def test_a_run_without_a_workdir_is_the_run_with_one(tmp_path):
    lines = []
    kept = fit(Plane(), Data(), EVALUATION, CONFIG, tmp_path)
    result = fit(Plane(), Data(), EVALUATION, CONFIG, on_log=lines.append)
    chex.assert_trees_all_equal(result.state, kept.state)
    chex.assert_trees_all_equal(result.best_params, kept.best_params)
    assert result.history == kept.history
    assert [(line["split"], line["step"]) for line in lines] == [
        ("train", 2), ("eval", 2), ("train", 4), ("eval", 4)
    ]  # fmt: skip


def test_options_that_write_files_need_a_workdir():
    for name, value in (("tensorboard", True), ("profile_steps", 2)):
        with pytest.raises(ValueError, match=f"workdir must be a folder, because {name}={value} "):
            fit(Plane(), Data(), config=dataclasses.replace(CONFIG, **{name: value}))
    with pytest.raises(ValueError, match="num_steps must be at least 1, got 0"):
        fit(Plane(), Data(), steps=0)


def test_a_signal_ends_a_run_without_a_workdir():
    sent = []

    def send(name, step):
        if (name, step) == ("step", 2) and not sent:
            sent.append(step)
            signal.raise_signal(signal.SIGTERM)

    result = fit(Plane(), Data(), None, CONFIG, on_event=send)
    assert (result.stopped, result.signal, result.steps) == ("signal", signal.SIGTERM, 2)


def test_training_starts_from_given_parameters(tmp_path):
    class Unread(Plane):
        def init(self, key, batch):
            assert isinstance(key, jax.core.Tracer), "only the shapes of init are needed"
            return jax.tree.map(lambda x: x * jax.random.normal(key), super().init(key, batch))

    result = fit(Unread(), Data(), None, CONFIG, tmp_path, params=START, optimizer=SGD, steps=2)
    batch, weights = Data()[0], START
    for step in range(2):
        # The gradient of the mean of (x w + b - y)^2, by NumPy.
        batch = Data()[step]
        error = 2 * (batch["x"] @ weights["w"] + weights["b"] - batch["y"]) / 8
        weights = {
            "w": weights["w"] - 0.05 * batch["x"].T @ error,
            "b": weights["b"] - 0.05 * error.sum(0),
        }
    assert_close(result.state.params, weights)
    # The same parameters continue the run; others, or none, are another run.
    again = fit(Unread(), Data(), None, CONFIG, tmp_path, params=START, optimizer=SGD)
    assert again.steps == 4
    for params in (None, {**START, "b": START["b"] + 1}):
        with pytest.raises(CheckpointMismatch, match="the initial parameters: saved arrays"):
            fit(Unread(), Data(), None, CONFIG, tmp_path, params=params, optimizer=SGD)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"w": START["w"]}, r"b: wanted float32\[2\], got nothing"),
        ({**START, "w": np.ones((2, 3), np.float32)}, r"w: wanted float32\[3, 2\], got float32"),
        ({**START, "b": np.zeros(2, np.int32)}, r"b: wanted float32\[2\], got int32\[2\]"),
        ({**START, "b": np.float32([np.nan, 1])}, "finite numbers, got 1 of 2 numbers of b that"),
        ({**START, "w": START["w"] - np.float32(np.inf)}, "got 6 of 6 numbers of w that are NaN"),
    ],
)
def test_given_parameters_that_cannot_be_trained_are_refused(params, message):
    with pytest.raises(ValueError, match=f"params must have [\\s\\S]*{message}"):
        fit(Plane(), Data(), None, CONFIG, params=params)


def test_float64_parameters_of_numpy_are_accepted():
    wide = jax.tree.map(lambda x: x.astype(np.float64), START)
    results = [fit(Plane(), Data(), None, CONFIG, params=p, steps=1) for p in (START, wide)]
    chex.assert_trees_all_equal(results[0].state, results[1].state)


def test_fit_adds_little_to_the_time_of_a_step():
    """Compares the processor time of `fit` with that of a loop around the compiled step."""
    steps, task, batch = 400, Plane(), Data()[0]
    config = TrainConfig(num_steps=2 * steps, checkpoint_every=10**6, progress=False)

    class Same:
        def __getitem__(self, step):
            return batch

    def seconds_of_fit():
        times = {}
        note = lambda name, step: times.setdefault((name, step), time.process_time())  # noqa: E731
        fit(task, Same(), config=config, parallel=parallel, optimizer=SGD, on_event=note)
        return times["step", 2 * steps] - times["step", steps]

    def seconds_of_loop():
        state, key = init_state(task, SGD, jax.random.key(0), batch), jax.random.key(0)
        began = 0.0
        for number in range(2 * steps):
            if number == steps:
                jax.block_until_ready(state)
                began = time.process_time()
            state, metrics = step(state, batch, key)
        jax.block_until_ready((state, metrics))
        return time.process_time() - began

    parallel = training.make_parallel("single")
    step = jax.jit(make_train_step(task, SGD), donate_argnums=0)
    unit = lambda: seconds_of_python(1000 * steps)  # noqa: E731
    added = [(seconds_of_fit() - seconds_of_loop()) / unit() for _ in range(3)]
    # 0.06 ms (0.75 units) were measured on an idle, fast machine, where the limit is 0.3 ms.
    # A busy, slow machine took 1 to 2.5 units.
    assert statistics.median(added) < 3.75
