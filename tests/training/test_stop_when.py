"""`fit(..., stop_when=...)`: the run is saved at the step that is asked for, and goes on as if
unbroken."""

import json

import chex
import numpy as np
import pytest

from gatedjax.training import OptimizerConfig, TrainConfig, average_params, fit
from tests._slow import slow_but
from tests.training._tiny import Data, Tiny
from tests.training._tiny import lines as all_lines


def run(workdir, stop_when=None, *, evaluate=True, **changes):
    settings = {"num_steps": 30, "log_every": 7, "eval_every": 10, "checkpoint_every": 8}
    config = TrainConfig(
        **settings | {"best_metric": "accuracy", "progress": False, "parallel": "single"} | changes
    )
    data = [Data()[1000]] if evaluate else None
    return fit(Tiny(), Data(), data, config, workdir, stop_when=stop_when)


def lines(workdir, split):
    found = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    return [line["step"] for line in found if line["split"] == split]


def saved(workdir):
    return sorted(int(path.name) for path in (workdir / "checkpoints").iterdir())


def test_the_step_that_is_asked_for_is_the_last_one(tmp_path):
    asked = []
    result = run(tmp_path, lambda step: asked.append(step) or step >= 13)
    assert asked == list(range(1, 14))  # after every step, once
    assert (result.stopped, result.steps, result.exit_code) == ("done", 13, 0)
    # as after a signal: a line that an unbroken run lacks would count when the run continues
    assert lines(tmp_path, "train") == [7]
    assert lines(tmp_path, "eval") == [10]
    assert saved(tmp_path)[-1] == 13
    assert [line["step"] for line in result.history] == [10]
    assert result.best_step == 10


def test_its_parameters_are_those_of_as_many_steps(tmp_path):
    # the schedule is constant, so the number of steps that were planned says nothing
    short = run(tmp_path / "short", num_steps=13)
    stopped = run(tmp_path / "stopped", lambda step: step >= 13)
    np.testing.assert_array_equal(stopped.state.params["w"], short.state.params["w"])
    never = run(tmp_path / "never", lambda step: False, num_steps=13)
    np.testing.assert_array_equal(never.state.params["w"], short.state.params["w"])


def test_where_nothing_is_evaluated_the_last_parameters_are_the_best(tmp_path):
    result = run(tmp_path, lambda step: step >= 5, evaluate=False)
    assert (result.stopped, result.steps) == ("done", 5)
    np.testing.assert_array_equal(result.best_params["w"], result.state.params["w"])
    assert lines(tmp_path, "train") == []


def test_a_run_that_ended_so_can_go_on_with_the_same_bits(tmp_path):
    assert run(tmp_path / "run", lambda step: step >= 5).steps == 5
    # time that is up stays up: what asks is asked again after a step, not before
    assert run(tmp_path / "run", lambda step: True).steps == 6
    # more are kept than there are: those of the stops are not among them any more
    result, whole = (run(tmp_path / name, keep_checkpoints=9) for name in ("run", "whole"))
    assert saved(tmp_path / "run") == saved(tmp_path / "whole") == [8, 16, 24, 30]
    assert (result.stopped, result.steps) == ("done", 30)
    np.testing.assert_array_equal(result.state.params["w"], whole.state.params["w"])


def test_an_error_in_the_question_is_not_swallowed(tmp_path):
    def broken(step):
        raise RuntimeError("no clock")

    with pytest.raises(RuntimeError, match="no clock"):
        run(tmp_path, broken)
    assert run(tmp_path).steps == 30


class Stale(Data):
    """The batch of step 12 is NaN, so that its update is skipped."""

    def __getitem__(self, step):
        batch = super().__getitem__(step)
        return batch | {"x": batch["x"] * np.float32(np.nan)} if step == 12 else batch


def early(workdir, stop_when=None, callbacks=()):
    """A run that early stopping ends, with a moving average of the parameters."""
    config = TrainConfig(
        num_steps=90, log_every=7, eval_every=5, checkpoint_every=8, early_stop_patience=4,
        best_metric="accuracy", progress=False, parallel="single",
        optimizer=OptimizerConfig(learning_rate=0.05, ema_decay=0.9),
    )  # fmt: skip
    options = {"stop_when": stop_when, "callbacks": callbacks}
    return fit(Tiny(), Stale(), [Data()[1000]], config, workdir, **options)


# Before the first evaluation, at a skipped update, at an evaluation, at a checkpoint, and often.
STOPS = [3], [13], [15], [16], [14, 15, 17]


@pytest.mark.parametrize("stops", slow_but(STOPS, [14, 15, 17]), ids=str)
def test_a_run_that_was_stopped_and_continues_is_an_unbroken_one(stops, tmp_path):
    whole = early(tmp_path / "whole")
    assert (whole.stopped, whole.best_step > 0) == ("early", True)
    assert 20 < whole.steps < 90
    for stop in stops:
        part = early(tmp_path / "parts", lambda step, stop=stop: step >= stop)
        assert (part.steps, part.stopped, part.exit_code) == (stop, "done", 0)
    parts = early(tmp_path / "parts")
    for name in ("steps", "stopped", "best_step", "best_metrics", "history"):
        assert getattr(parts, name) == getattr(whole, name), name
    chex.assert_trees_all_equal(parts.state, whole.state)
    chex.assert_trees_all_equal(parts.best_params, whole.best_params)
    assert all_lines(tmp_path / "parts") == all_lines(tmp_path / "whole")
    assert [line["step"] for line in all_lines(tmp_path / "whole", "skipped")] == [13]
    assert saved(tmp_path / "parts") == saved(tmp_path / "whole")
    means = [average_params(tmp_path / name, whole.best_params, 2) for name in ("parts", "whole")]
    assert means[0][1] == means[1][1]
    chex.assert_trees_all_equal(means[0][0], means[1][0])


def test_a_callback_can_end_a_run_at_its_own_step(tmp_path):
    good = []

    def watch(step, state, metrics):
        if metrics.get("eval_accuracy", 0) > 0.5:
            good.append(step)

    part = early(tmp_path / "parts", lambda step: bool(good), (watch,))
    assert (good, part.steps % 5) == ([part.steps], 0)
    parts, whole = early(tmp_path / "parts"), early(tmp_path / "whole")
    assert (parts.steps, parts.best_step) == (whole.steps, whole.best_step)
    assert all_lines(tmp_path / "parts") == all_lines(tmp_path / "whole")
