"""Single rules of training, each by hand: the optimiser's chain, streams, records, evaluation."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax.training import (
    NonFiniteError,
    OptimizerConfig,
    TrainConfig,
    evaluate,
    fit,
    make_optimizer,
    make_parallel,
)
from gatedjax.training._record import Record
from gatedjax.training.step import step_rngs
from tests.training._tiny import Data, Tiny


def updates_of(config, *gradients):
    """Every update of a chain, and its last state; parameters are those that it makes."""
    tx = make_optimizer(config, 10)
    params = {"w": np.array([1.0, -2.0], np.float32)}
    state, found = tx.init(params), []
    for gradient in gradients:
        update, state = tx.update({"w": np.asarray(gradient, np.float32)}, state, params)
        params = {"w": np.asarray(params["w"] + update["w"])}
        found.append(np.asarray(update["w"]))
    return found, params, state


def test_the_gradient_is_clipped_before_the_rule_and_the_rate():
    config = OptimizerConfig(name="sgd", learning_rate=0.5, clip_norm=1.0)
    (large, small), _, _ = updates_of(config, [30, -40], [0.3, 0.4])
    np.testing.assert_allclose(large, [-0.3, 0.4], rtol=1e-6)
    np.testing.assert_allclose(small, [-0.15, -0.2], rtol=1e-6)


def test_the_average_forgets_the_first_parameters_soon():
    config = OptimizerConfig(name="sgd", learning_rate=1.0, ema_decay=0.3)
    every, _, state = updates_of(config, *[[1.0, 2.0]] * 6)
    average = params = np.array([1.0, -2.0])
    for t, update in enumerate(every):
        params = params + update
        decay = min(0.3, (1 + t) / (10 + t))
        average = decay * average + (1 - decay) * params
    np.testing.assert_allclose(state[-1].ema["w"], average, rtol=1e-5)


def test_no_two_streams_and_no_two_steps_share_their_key():
    keys = [key for step in (0, 1, 2) for key in step_rngs(jax.random.key(7), step).values()]
    data = {tuple(np.asarray(jax.random.key_data(key))) for key in keys}
    assert len(data) == len(keys) == 6


@pytest.mark.parametrize(("mode", "best"), [("max", [1, 2]), ("min", [1, 4])])
def test_the_best_evaluation_is_the_largest_or_the_smallest(mode, best):
    config = TrainConfig(best_metric="loss", best_mode=mode)
    record = Record()
    values = [0.5, 0.75, 0.5, 0.25, 0.25]
    kept = [
        step
        for step, loss in enumerate(values, start=1)
        if record.evaluated(step, {"loss": loss}, config)
    ]
    assert kept == best
    assert (record.best_step, record.without_improvement) == (best[-1], len(values) - best[-1])


def test_predictions_are_of_the_rows_that_count_in_the_order_of_the_data():
    batches = [Data(rows=4)[step] for step in (0, 1)]
    batches[1]["weight"][2:] = 0
    params = {"w": np.array([1.0, -1, 0, 0], np.float32)}
    metrics, predictions = evaluate(Tiny(), params, batches, make_parallel("single"))
    wanted = [(batch["x"] @ params["w"] > 0) == (batch["label"] > 0) for batch in batches]
    wanted = np.concatenate([wanted[0], wanted[1][:2]])
    np.testing.assert_array_equal(predictions["correct"], wanted)
    assert metrics["accuracy"] == pytest.approx(wanted.mean())


class Broken(Data):
    """Inputs that are not finite in some steps."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def __getitem__(self, step):
        batch = super().__getitem__(step)
        return batch | {"x": batch["x"] * (jnp.nan if step in self.steps else 1)}


def test_only_skipped_updates_in_a_row_stop_a_run(tmp_path):
    config = TrainConfig(
        num_steps=8, log_every=2, checkpoint_every=8, max_skipped=2, progress=False,
        parallel="single",
    )  # fmt: skip
    apart = fit(Tiny(), Broken({1, 2, 4, 5, 7}), None, config, tmp_path / "apart")
    assert (apart.stopped, apart.steps) == ("done", 8)
    alone = dataclasses.replace(config, num_steps=4)
    with pytest.raises(NonFiniteError, match="3 updates in a row"):
        fit(Tiny(), Broken({1, 2, 3}), None, alone, tmp_path / "row")
