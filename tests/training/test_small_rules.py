"""Single rules of training, each by hand: records, evaluation, skipped updates."""

import dataclasses
from typing import get_args, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax.training import (
    NonFiniteError,
    OptimizerConfig,
    Ratio,
    TrainConfig,
    evaluate,
    fit,
    make_parallel,
)
from gatedjax.training._record import Record
from gatedjax.training.config import TO_ZERO, learning_rate_of
from tests.training._tiny import Data, Tiny


@pytest.mark.parametrize(("mode", "best"), [("max", [1, 2]), ("min", [1, 4])])
def test_the_best_evaluation_is_the_largest_or_the_smallest(mode, best):
    config = TrainConfig(best_metric="loss", best_mode=mode)
    record = Record()
    values = [0.5, 0.75, 0.5, 0.25, 0.25]
    kept = [
        step
        for step, loss in enumerate(values, start=1)
        if record.add_evaluation(step, {"loss": loss}, config)
    ]
    assert kept == best
    assert (record.best_step, record.without_improvement) == (best[-1], len(values) - best[-1])


@pytest.mark.parametrize("name", get_args(get_type_hints(OptimizerConfig)["schedule"]))
def test_the_schedules_that_end_at_0_are_those_that_know_the_number_of_steps(name):
    config = OptimizerConfig(schedule=name, warmup_steps=2)
    programs = {
        str(jax.make_jaxpr(learning_rate_of(config, n, None))(jnp.int32(3))) for n in (10, 20)
    }
    assert len(programs) == (2 if name in TO_ZERO else 1)


@pytest.mark.parametrize("shape", [(4, 1), (1, 4), (1,), (4, 3), (3,)])
def test_values_of_another_shape_than_the_weights_are_not_broadcast(shape):
    with pytest.raises(
        ValueError, match=r"values must have the shape of weight \(4,\), or \(\), got"
    ):
        Ratio.of(np.ones(shape, np.float32), np.ones(4, np.float32))


def test_a_scalar_value_and_values_per_token_are_means_by_weight():
    weight = np.array([[1, 1, 0], [1, 0, 0]], np.float32)
    values = np.array([[1, 2, np.nan], [6, np.nan, 7]], np.float32)
    assert Ratio.of(jnp.float32(2.5), weight).value() == 2.5
    assert Ratio.of(values, weight).value() == 3.0


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
        best_metric="accuracy", parallel="single",
    )  # fmt: skip
    apart = fit(Tiny(), Broken({1, 2, 4, 5, 7}), None, config, tmp_path / "apart")
    assert (apart.stopped, apart.steps) == ("done", 8)
    alone = dataclasses.replace(config, num_steps=4)
    with pytest.raises(NonFiniteError, match="3 updates in a row"):
        fit(Tiny(), Broken({1, 2, 3}), None, alone, tmp_path / "row")
