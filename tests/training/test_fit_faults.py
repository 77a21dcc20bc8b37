"""`fit` against damage: kills, torn checkpoints and logs, other settings, what is not finite."""

import signal
import subprocess
import sys
import time

import _tiny
import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from _tiny import lines

from gatedjax.training import (
    CheckpointMismatch,
    OptimizerConfig,
    Ratio,
    TrainConfig,
    fit,
    make_parallel,
)
from tests._programs import environment


def config(**changes):
    settings = {"num_steps": 20, "log_every": 3, "eval_every": 4, "checkpoint_every": 5}
    settings |= {"best_metric": "accuracy", "progress": False, "parallel": "single"} | changes
    return TrainConfig(**settings)


def run(workdir, task=None, on_event=None, settings=None, **changes):
    return fit(
        task or _tiny.Tiny(), _tiny.Data(), [_tiny.Data()[1000]], config(**changes), workdir,
        on_event=on_event, settings=settings,
    )  # fmt: skip


class Killed(Exception):
    pass


def killer(at):
    def kill(name, step):
        if name == "step" and step == at:
            raise Killed

    return kill


def damage(workdir, step):
    for file in (workdir / "checkpoints" / str(step)).rglob("manifest.ocdbt"):
        file.write_bytes(file.read_bytes()[:20])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["single", "sharding", "pmap"])
def test_a_killed_run_repeats_the_steps_since_its_checkpoint_with_the_same_bits(kind, tmp_path):
    whole = run(tmp_path / "whole", parallel=kind)
    with pytest.raises(Killed):
        run(tmp_path / "cut", parallel=kind, on_event=killer(13))
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as file:
        file.write('{"split": "train", "st')
    again = run(tmp_path / "cut", parallel=kind)
    chex.assert_trees_all_equal(again.state, whole.state)
    chex.assert_trees_all_equal(again.best_params, whole.best_params)
    assert lines(tmp_path / "cut") == lines(tmp_path / "whole")


@pytest.mark.slow
def test_a_run_may_continue_with_another_kind_of_parallelism(tmp_path):
    whole = run(tmp_path / "whole")
    with pytest.raises(Killed):
        run(tmp_path / "cut", parallel="pmap", on_event=killer(13))
    again = run(tmp_path / "cut", parallel="sharding")
    chex.assert_trees_all_close(again.state, whole.state, rtol=1e-5)


@pytest.mark.parametrize("kind", ["single", "sharding", "pmap"])
def test_every_kind_compiles_one_training_and_one_evaluation_step(kind, tmp_path):
    assert run(tmp_path, parallel=kind).compilations == 2


@pytest.mark.parametrize("kind", ["single", "sharding"])
def test_the_compiled_step_has_one_executable_per_shape(kind):
    parallel = make_parallel(kind)
    from gatedjax.training import init_state, make_optimizer

    task, data = _tiny.Tiny(), _tiny.Data()
    tx = make_optimizer(OptimizerConfig(clip_norm=1.0), 10)
    state = parallel.replicate(jax.device_get(init_state(task, tx, jax.random.key(0), data[0])))
    step = parallel.train_step(task, tx)
    for number in range(3):
        state, _ = step(state, parallel.shard(data[number]), jax.random.key(0))
    (program,) = step._by_shape.values()
    assert program._cache_size() == 1


def test_a_run_without_a_readable_checkpoint_says_so_and_keeps_the_files(tmp_path):
    run(tmp_path, num_steps=10)
    damage(tmp_path, 5)
    damage(tmp_path, 10)
    with pytest.raises(RuntimeError, match=r"no checkpoint .* can be read: tried \[5, 10\]"):
        run(tmp_path)
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["10", "5"]


def test_other_training_options_are_refused_without_any_settings(tmp_path):
    run(tmp_path, num_steps=5)
    with pytest.raises(CheckpointMismatch, match=r"train\.seed: saved 0, now 1"):
        run(tmp_path, seed=1)
    other = OptimizerConfig(learning_rate=0.5)
    with pytest.raises(CheckpointMismatch, match=r"train\.optimizer\.learning_rate: saved 0.001"):
        run(tmp_path, optimizer=other)
    assert run(tmp_path, num_steps=6, keep_checkpoints=5).steps == 6


@pytest.mark.parametrize("named", [False, True])
def test_a_falling_schedule_cannot_be_made_longer(named, tmp_path):
    def go(num_steps):
        train = {"optimizer": OptimizerConfig(schedule="cosine"), "num_steps": num_steps}
        settings = {"train": {"num_steps": num_steps}} if named else None
        return run(tmp_path, settings=settings, **train)

    go(5)
    with pytest.raises(CheckpointMismatch, match=r"train\.num_steps: saved 5, now 9") as refused:
        go(9)
    assert "falls to 0 after the last step, so a run cannot be made longer" in str(refused.value)


def test_a_schedule_that_falls_without_an_end_can_be_made_longer(tmp_path):
    optimizer = OptimizerConfig(schedule="rsqrt", warmup_steps=2)
    run(tmp_path, optimizer=optimizer, num_steps=5)
    assert run(tmp_path, optimizer=optimizer, num_steps=6).steps == 6


class Unmeasured(_tiny.Tiny):
    """Evaluates to NaN and infinity."""

    def evaluate(self, params, batch):
        metrics, predictions = super().evaluate(params, batch)
        one = jnp.ones((), jnp.float32)
        return metrics | {"bad": Ratio(one * jnp.nan, one), "big": Ratio(one * jnp.inf, one)}, (
            predictions
        )


def test_nan_is_never_the_best_and_metrics_stay_json(tmp_path):
    settings = {"best_metric": "bad", "early_stop_patience": 2}
    result = run(tmp_path, Unmeasured(), **settings)
    assert (result.stopped, result.steps) == ("early", 8)
    chex.assert_trees_all_equal(result.best_params, result.state.params)
    assert [entry["big"] for entry in lines(tmp_path, "eval")] == [None, None]


@pytest.mark.slow
def test_best_parameters_survive_the_donation_of_the_state(tmp_path):
    seen = []

    class Watched(_tiny.Tiny):
        def evaluate(self, params, batch):
            metrics, predictions = super().evaluate(params, batch)
            one = jnp.ones((), jnp.float32)
            return metrics | {"first": Ratio(one, one)}, predictions

    def note(name, step):
        seen.append((name, step))

    # nothing improves on the first evaluation, so that its parameters outlive 16 updates
    long = run(tmp_path / "long", Watched(), best_metric="first", on_event=note)
    short = run(tmp_path / "short", Watched(), best_metric="first", num_steps=4)
    assert long.best_step == 4
    chex.assert_trees_all_equal(long.best_params, short.state.params)
    assert not np.array_equal(long.state.params["w"], long.best_params["w"])
    assert ("saved", 20) in seen


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("whole")
    return workdir, _tiny.train(workdir)


def process(workdir, pause):
    return subprocess.Popen(
        [sys.executable, _tiny.__file__, str(workdir), str(pause)], env=environment()
    )


def reached(workdir, step):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        steps = (workdir / "checkpoints").glob("[0-9]*")
        if any(p.name.isdigit() and int(p.name) >= step for p in steps):
            return
        time.sleep(0.02)
    pytest.fail(f"no checkpoint {step} after two minutes")


# one that is killed is in test_checkpoint_fit
@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_process_that_is_stopped_continues_with_the_same_bits(number, code, tmp_path, whole):
    child = process(tmp_path / "cut", 0.05)
    reached(tmp_path / "cut", 12)
    child.send_signal(number)
    assert child.wait(timeout=60) == code
    assert max(entry["step"] for entry in lines(tmp_path / "cut")) < 60
    again = _tiny.train(tmp_path / "cut")
    chex.assert_trees_all_equal(
        (again.state, again.best_params), (whole[1].state, whole[1].best_params)
    )
    assert again.history == whole[1].history
    assert lines(tmp_path / "cut") == lines(whole[0])
