"""`fit(..., stop_when=...)`: the last step is asked for, and is logged, evaluated and saved."""

import json

import numpy as np
import pytest

from gatedjax.training import TrainConfig, fit
from tests.training._tiny import Data, Tiny


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
    assert lines(tmp_path, "train") == [7, 13]
    assert lines(tmp_path, "eval") == [10, 13]
    assert saved(tmp_path)[-1] == 13
    assert [line["step"] for line in result.history] == [10, 13]


def test_its_parameters_are_those_of_as_many_steps(tmp_path):
    # the schedule is constant, so the number of steps that were planned says nothing
    short = run(tmp_path / "short", num_steps=13)
    stopped = run(tmp_path / "stopped", lambda step: step >= 13)
    np.testing.assert_array_equal(stopped.state.params["w"], short.state.params["w"])
    np.testing.assert_array_equal(stopped.best_params["w"], short.best_params["w"])
    never = run(tmp_path / "never", lambda step: False, num_steps=13)
    np.testing.assert_array_equal(never.state.params["w"], short.state.params["w"])


def test_where_nothing_is_evaluated_the_last_parameters_are_the_best(tmp_path):
    result = run(tmp_path, lambda step: step >= 5, evaluate=False)
    assert (result.stopped, result.steps) == ("done", 5)
    np.testing.assert_array_equal(result.best_params["w"], result.state.params["w"])
    assert lines(tmp_path, "train") == [5]


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
