"""Which parameters a run hands on as its best: of evaluations, or without any the averaged ones."""

import dataclasses

import jax
import numpy as np
import pytest

from gatedjax.training import OptimizerConfig, Ratio, TrainConfig, fit, fit_lanes, restore_params
from tests._slow import slow_but
from tests.training._tiny import Data, Tiny, interrupt

CONFIG = TrainConfig(
    num_steps=6, log_every=3, eval_every=100, checkpoint_every=2, progress=False,
    best_metric="accuracy", parallel="single",
    optimizer=OptimizerConfig(learning_rate=0.1, ema_decay=0.9),
)  # fmt: skip
LIKE = {"w": np.zeros(4, np.float32)}
EVALUATION = [Data()[1000]]


def averaged(result):
    """The moving average of a run, which differs from its first and its last parameters."""
    average = np.asarray(result.state.opt_state[-1].ema["w"])
    assert np.abs(average - result.state.params["w"]).max() > 1e-3
    first = Tiny().init(jax.random.key(CONFIG.seed), EVALUATION[0])["w"]
    assert np.abs(average - first).max() > 1e-3
    return average


def test_without_evaluations_the_averaged_parameters_are_the_best_in_result_and_checkpoint(
    tmp_path,
):
    result = fit(Tiny(), Data(), None, CONFIG, tmp_path)
    average = averaged(result)
    np.testing.assert_array_equal(result.best_params["w"], average)
    assert (result.best_step, result.best_metrics) == (6, {})
    np.testing.assert_array_equal(restore_params(tmp_path, LIKE)[0]["w"], average)
    last = restore_params(tmp_path, LIKE, which="last")[0]["w"]
    np.testing.assert_array_equal(last, result.state.params["w"])


@pytest.mark.parametrize("evaluated", [False, True], ids=["none", "later"])
def test_a_run_stopped_before_its_first_evaluation_keeps_the_average_of_that_moment(
    evaluated, tmp_path
):
    data = EVALUATION if evaluated else None
    result = fit(Tiny(), Data(), data, CONFIG, tmp_path, on_event=interrupt("step", 3))
    assert (result.stopped, result.steps) == ("signal", 3)
    average = averaged(result)
    np.testing.assert_array_equal(result.best_params["w"], average)
    np.testing.assert_array_equal(restore_params(tmp_path, LIKE)[0]["w"], average)


def test_lanes_without_evaluations_keep_the_averages_of_their_own(tmp_path):
    config = dataclasses.replace(CONFIG, seeds=2)
    results = fit_lanes(Tiny(), lambda seed: Data(), None, config, tmp_path)
    like = {"w": np.zeros((2, 4), np.float32)}
    kept = restore_params(tmp_path, like)[0]["w"]
    for lane, result in enumerate(results):
        average = averaged(result) if lane == 0 else result.state.opt_state[-1].ema["w"]
        np.testing.assert_array_equal(result.best_params["w"], average)
        np.testing.assert_array_equal(kept[lane], average)


class Peaked(Tiny):
    """Evaluated by how near the parameters are to some others: best at those."""

    def __init__(self, target):
        self.target = target

    def evaluate(self, params, batch):
        distance = abs(params["w"] - self.target).sum()
        return {"accuracy": Ratio(total=-distance, count=np.float32(1))}, {}


@pytest.mark.parametrize("best", slow_but([2, 4, 6], 4))
def test_the_best_of_several_evaluations_is_kept_through_later_saves(best, tmp_path):
    every = dataclasses.replace(CONFIG, eval_every=2)
    # the average after some steps, which that evaluation is then best at
    short = dataclasses.replace(CONFIG, num_steps=best)
    target = fit(Tiny(), Data(), None, short, tmp_path / "short").best_params["w"]
    result = fit(Peaked(target), Data(), EVALUATION, every, tmp_path / "long")
    assert result.best_step == best
    np.testing.assert_array_equal(result.best_params["w"], target)
    np.testing.assert_array_equal(restore_params(tmp_path / "long", LIKE)[0]["w"], target)
