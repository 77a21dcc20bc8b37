"""`fit` on a logistic regression with filler rows: learning, going on, one compilation a shape."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gatedjax.training import (
    CheckpointMismatch,
    OptimizerConfig,
    Ratio,
    TrainConfig,
    evaluate,
    fit,
    make_parallel,
    merge,
)
from tests._slow import slow_but
from tests.training._tiny import lines


class Tiny:
    """Logistic regression whose dropout bits belong to the example."""

    def init(self, key, batch):
        return {"w": 0.1 * jax.random.normal(key, (batch["x"].shape[-1],)), "b": jnp.zeros(())}

    def _logit(self, params, x):
        return x @ params["w"] + params["b"]

    def loss(self, params, batch, rngs):
        keys = jax.vmap(jax.random.fold_in, (None, 0))(rngs["dropout"], batch["example_id"])
        keep = jax.vmap(lambda k: jax.random.bernoulli(k, 0.9, batch["x"].shape[1:]))(keys)
        logit = self._logit(params, jnp.where(keep, batch["x"], 0))
        each = optax.sigmoid_binary_cross_entropy(logit, batch["label"].astype(jnp.float32))
        return jnp.sum(each * batch["weight"]), {"loss": Ratio.of(each, batch["weight"])}

    def evaluate(self, params, batch):
        correct = (self._logit(params, batch["x"]) > 0) == (batch["label"] > 0)
        accuracy = Ratio.of(correct.astype(jnp.float32), batch["weight"])
        return {"accuracy": accuracy}, {"example_id": batch["example_id"], "correct": correct}


class Data:
    """Batches of 8 rows of which the last has filler; a pure function of the step."""

    def __init__(self, count=30):
        generator = np.random.default_rng(0)
        self.x = generator.normal(size=(count, 3)).astype(np.float32)
        self.label = (self.x @ np.array([1.0, -2.0, 0.5]) > 0).astype(np.int32)

    def __getitem__(self, step):
        return self.batch(np.random.default_rng([7, step]).permutation(len(self.x))[:8])

    def batch(self, rows):
        extra = 8 - len(rows)
        return {
            "x": np.pad(self.x[rows], ((0, extra), (0, 0))),
            "label": np.pad(self.label[rows], (0, extra)),
            "example_id": np.pad(rows, (0, extra), constant_values=-1).astype(np.int32),
            "weight": (np.arange(8) < len(rows)).astype(np.float32),
        }

    def once(self):
        rows = np.arange(len(self.x))
        return [self.batch(rows[i : i + 8]) for i in range(0, len(rows), 8)]


def config(**changes):
    settings = {"num_steps": 23, "log_every": 5, "eval_every": 10, "checkpoint_every": 10}
    settings |= {"best_metric": "accuracy", "progress": False, "parallel": "single"}
    return TrainConfig(optimizer=OptimizerConfig(learning_rate=0.05), **(settings | changes))


def test_training_learns_and_writes_what_it_promises(tmp_path):
    data = Data()
    result = fit(Tiny(), data, data.once(), config(num_steps=200), tmp_path)
    assert result.best_metrics["accuracy"] > 0.9
    assert {"config.json", "environment.json", "metrics.jsonl", "checkpoints"} <= {
        path.name for path in tmp_path.iterdir()
    }
    train = lines(tmp_path, "train")
    assert [line["step"] for line in train] == list(range(5, 201, 5))
    assert train[-1]["loss"] < 0.5 * train[0]["loss"]
    assert result.stopped == "done"
    assert result.exit_code == 0


def test_a_finished_run_returns_at_once_and_a_longer_one_goes_on(tmp_path):
    data = Data()
    first = fit(Tiny(), data, data.once(), config(), tmp_path)
    again = fit(Tiny(), data, data.once(), config(), tmp_path)
    assert again.compilations == 0
    chex.assert_trees_all_equal(first.best_params, again.best_params)
    longer = fit(Tiny(), data, data.once(), config(num_steps=30), tmp_path)
    assert longer.steps == 30


def test_one_compilation_per_shape_and_none_for_a_second_evaluation(tmp_path):
    data, parallel = Data(), make_parallel("single")
    result = fit(Tiny(), data, data.once(), config(), tmp_path, parallel=parallel)
    assert result.compilations == 2  # a training step and an evaluation step
    before = parallel.traces
    metrics, predictions = evaluate(
        Tiny(), result.best_params, data.once(), make_parallel("single")
    )
    np.testing.assert_array_equal(predictions["example_id"], np.arange(30))
    assert metrics["accuracy"] == pytest.approx(predictions["correct"].mean())
    assert parallel.traces == before


@pytest.mark.parametrize("kind", slow_but(["sharding", "pmap"], "sharding"))
def test_every_kind_of_parallelism_gives_the_same_losses(kind, tmp_path):
    data = Data()
    alone = fit(Tiny(), data, data.once(), config(num_steps=20, log_every=1), tmp_path / "one")
    parallel = make_parallel(kind, jax.devices()[:4])
    split = fit(
        Tiny(), data, data.once(), config(num_steps=20, log_every=1), tmp_path / "many",
        parallel=parallel,
    )  # fmt: skip
    for one, many in zip(lines(tmp_path / "one"), lines(tmp_path / "many"), strict=True):
        if one["split"] == "train":
            assert many["loss"] == pytest.approx(one["loss"], rel=1e-6)
        else:
            assert many["accuracy"] == one["accuracy"]
    chex.assert_trees_all_close(alone.state, split.state, rtol=1e-5)


def test_rows_that_do_not_divide_are_counted_once(tmp_path):
    data = Data(count=5)
    batch = {name: value[:5] for name, value in data.batch(np.arange(5)).items()}
    params = Tiny().init(jax.random.key(0), batch)
    for kind in ("sharding", "pmap", "single"):
        parallel = make_parallel(kind, jax.devices()[:4])
        metrics, predictions = evaluate(Tiny(), params, [batch], parallel)
        assert list(predictions["example_id"]) == [0, 1, 2, 3, 4]
        assert metrics["accuracy"] == pytest.approx(predictions["correct"].mean())


def test_early_stopping_counts_evaluations_without_improvement(tmp_path):
    data = Data()
    settings = config(num_steps=500, eval_every=5, early_stop_patience=2)
    result = fit(Tiny(), data, data.once(), settings, tmp_path)
    assert result.stopped == "early"
    assert result.steps == result.best_step + 10
    accuracies = [entry["accuracy"] for entry in result.history]
    assert result.best_metrics["accuracy"] == max(accuracies)
    # a run that was done just then has nothing left to wait for
    done = config(num_steps=result.steps, eval_every=5, early_stop_patience=2)
    assert fit(Tiny(), data, data.once(), done, tmp_path / "short").stopped == "done"
    longer = fit(Tiny(), data, data.once(), settings, tmp_path / "short")
    assert (longer.stopped, longer.steps) == ("early", result.steps)
    assert longer.history == result.history


def test_another_configuration_or_network_is_refused_with_the_difference(tmp_path):
    data = Data()
    fit(Tiny(), data, data.once(), config(), tmp_path, settings={"config": {"width": 3}})
    before = sorted(str(p) for p in tmp_path.rglob("*"))
    with pytest.raises(CheckpointMismatch, match=r"config\.width: saved 3, now 4"):
        fit(Tiny(), data, data.once(), config(), tmp_path, settings={"config": {"width": 4}})
    wide = Data()
    wide.x = np.concatenate([wide.x, wide.x], axis=1)
    with pytest.raises(CheckpointMismatch, match=r"params\.w: saved float32\[3\]"):
        fit(Tiny(), wide, wide.once(), config(), tmp_path, settings={"config": {"width": 3}})
    assert sorted(str(p) for p in tmp_path.rglob("*")) == before


def test_ratios_merge_as_sums_and_counts():
    one = Ratio.of(jnp.array([1.0, jnp.nan]), jnp.array([1.0, 0.0]))
    two = Ratio.of(jnp.array([0.0, 0.0]), jnp.array([1.0, 1.0]))
    merged = merge({"a": one}, {"a": two, "b": two})
    assert merged["a"].value() == pytest.approx(1 / 3)
    assert merged["b"].value() == 0.0
    assert np.isnan(Ratio.of(jnp.zeros(1), jnp.zeros(1)).value())


@pytest.mark.parametrize("field", ["num_steps", "log_every", "eval_every", "keep_checkpoints"])
def test_impossible_settings_are_refused_by_name(field):
    with pytest.raises(ValueError, match=field):
        TrainConfig(**{field: 0})
