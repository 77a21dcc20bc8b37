"""The mean of checkpoints, and the options of update rules that translation needs."""

import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax.training import (
    CheckpointMismatch,
    CheckpointStore,
    OptimizerConfig,
    TrainState,
    average_params,
    make_optimizer,
)

LIKE = {"w": np.zeros(3, np.float32), "b": np.float32(0)}


def save(workdir, *steps, **options):
    store = CheckpointStore(workdir / "checkpoints", **options)
    for step in steps:
        params = {"w": np.full(3, step, np.float32), "b": np.float32(10 * step)}
        state = TrainState(step=np.int32(step), params=params, opt_state={})
        store.save(step, state, params, {"metadata": {}})
    store.close()
    return workdir


@pytest.fixture
def workdir(tmp_path):
    return save(tmp_path, 1, 2, 4, keep=5)


def test_the_newest_checkpoints_are_averaged(workdir):
    mean, steps = average_params(workdir, LIKE, 2)
    assert steps == (2, 4)
    np.testing.assert_array_equal(mean["w"], np.full(3, 3.0))
    assert mean["w"].dtype == np.float32
    assert float(mean["b"]) == 30.0
    assert average_params(workdir, LIKE, 1)[1] == (4,)
    every, steps = average_params(workdir, LIKE, 9)
    assert steps == (1, 2, 4)
    np.testing.assert_allclose(every["w"], np.full(3, 7 / 3), rtol=1e-6)


def test_where_a_run_was_stopped_changes_no_average(tmp_path):
    run = {"keep": 3, "every": 5}
    save(tmp_path / "stopped", 5, 10, 15, 17, **run)  # the last by a signal
    assert average_params(tmp_path / "stopped", LIKE, 3)[1] == (10, 15, 17)
    save(tmp_path / "stopped", 18, **run)  # and again
    save(tmp_path / "stopped", 20, 22, **run)
    save(tmp_path / "whole", 5, 10, 15, 20, 22, **run)
    for name in ("stopped", "whole"):
        mean, steps = average_params(tmp_path / name, LIKE, 3)
        assert steps == (15, 20, 22)
        np.testing.assert_array_equal(mean["w"], np.full(3, 19.0))


def test_what_cannot_be_averaged_is_refused(workdir, tmp_path):
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        average_params(workdir, LIKE, 0)
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        average_params(tmp_path / "none", LIKE, 2)
    with pytest.raises(CheckpointMismatch):
        average_params(workdir, {**LIKE, "w": np.zeros(4, np.float32)}, 2)


def first_update(**options):
    tx = make_optimizer(OptimizerConfig(learning_rate=1.0, **options), 10)
    params = {"w": jnp.array([1.0, -2.0])}
    gradient = {"w": jnp.array([1e-3, -4.0])}
    state = tx.init(params)
    updates, state = tx.update(gradient, state, params)
    updates, _ = tx.update({"w": jnp.zeros(2)}, state, params)
    return np.asarray(updates["w"])


def test_the_decay_of_the_second_moment_and_epsilon_are_options():
    # Adam's second update after a gradient g and one of 0, by hand
    g = np.array([1e-3, -4.0])
    for beta2, epsilon in ((0.999, 1e-8), (0.98, 1e-9), (0.98, 1e-2)):
        m = 0.9 * 0.1 * g / (1 - 0.9**2)
        v = beta2 * (1 - beta2) * g**2 / (1 - beta2**2)
        wanted = -m / (np.sqrt(v) + epsilon)
        got = first_update(beta2=beta2, epsilon=epsilon)
        np.testing.assert_allclose(got, wanted, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"beta2": 1.0}, r"beta2 must be in \(0, 1\), got 1.0"),
        ({"rho": 0.0}, r"rho must be in \(0, 1\), got 0.0"),
        ({"epsilon": 0.0}, "epsilon must be positive or None"),
    ],
)
def test_options_out_of_range_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        make_optimizer(OptimizerConfig(**options), 10)
