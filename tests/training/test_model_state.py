"""Tasks with a model state, such as BatchNorm statistics: of the whole batch, saved, evaluated."""

import dataclasses

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gatedjax.training import (
    CheckpointMismatch,
    CheckpointStore,
    ModelStateTask,
    OptimizerConfig,
    Ratio,
    TrainConfig,
    evaluate,
    fit,
    fit_lanes,
    load_model_state,
    make_parallel,
    restore_params,
)
from tests._slow import slow_but
from tests.tolerances import F32
from tests.training._plane import assert_close
from tests.training._tiny import Data, Tiny, lines

ROWS = 6
CONFIG = TrainConfig(
    num_steps=6, log_every=2, eval_every=2, checkpoint_every=2, progress=False, best_metric="loss",
    best_mode="min", parallel="single", optimizer=OptimizerConfig(name="sgd", learning_rate=0.05),
)  # fmt: skip


class Normalised:
    """A line behind BatchNorm; rows of weight 0 are outside of the statistics."""

    norm = nn.BatchNorm(momentum=0.5)

    def _apply(self, params, batch, model_state, train):
        variables = {"params": params["norm"], "batch_stats": model_state}
        mask = batch["weight"][:, None] > 0
        options = {"use_running_average": not train, "mask": mask}
        x, new = self.norm.apply(variables, batch["x"], mutable=["batch_stats"], **options)
        error = (x @ params["w"] - batch["y"]) ** 2
        return error, new.get("batch_stats", model_state)

    def init(self, key, batch):
        variables = self.norm.init(key, batch["x"], use_running_average=False)
        return {"norm": variables["params"], "w": jax.random.normal(key, (2,))}

    def init_model_state(self, key, batch):
        return self.norm.init(key, batch["x"], use_running_average=False)["batch_stats"]

    def loss(self, params, batch, rngs, model_state):
        error, model_state = self._apply(params, batch, model_state, True)
        metrics = {"loss": Ratio.of(error, batch["weight"])}
        return metrics["loss"].total, (metrics, model_state)

    def evaluate(self, params, batch, model_state):
        error, _ = self._apply(params, batch, model_state, False)
        return {"loss": Ratio.of(error, batch["weight"])}, {"error": error}


class Carried(Normalised):
    """The same, and a sum over the batches for every row."""

    def init_carry(self, batch):
        return jnp.zeros(len(batch["weight"]))

    def loss(self, params, batch, rngs, carry, model_state):
        total, (metrics, model_state) = super().loss(params, batch, rngs, model_state)
        return total, (metrics, carry + batch["x"][:, 0], model_state)

    def evaluate(self, params, batch, carry, model_state):
        return *super().evaluate(params, batch, model_state), carry


class Far:
    """Rows around 100, whose scale BatchNorm must know; a function of the step."""

    def __init__(self, poison=None):
        self.poison = poison

    def __getitem__(self, step):
        x = np.random.default_rng([4, step]).normal(100, 5, size=(ROWS, 2)).astype(np.float32)
        y = (x[:, 0] - x[:, 1]) / 10
        if step == self.poison:
            x[0] = np.nan
        return {
            "x": x,
            "y": y,
            "example_id": np.arange(ROWS, dtype=np.int32) + ROWS * step,
            "weight": np.ones(ROWS, np.float32),
        }


EVALUATION = [Far()[1000], Far()[1001]]


def train(workdir, **changes):
    """A run whose optimizer is schedule-free."""
    tx = optax.contrib.schedule_free_sgd(0.05)
    plain = {"optimizer": OptimizerConfig(), "num_steps": 4} | changes
    config = dataclasses.replace(CONFIG, **plain)
    return fit(Normalised(), Far(), EVALUATION, config, workdir, optimizer=tx)


def statistics(*steps):
    """The running mean and variance by the definition."""
    mean, var = np.zeros(2), np.ones(2)
    for step in steps:
        x = Far()[step]["x"].astype(np.float64)
        mean, var = (mean + x.mean(0)) / 2, (var + x.var(0)) / 2
    return {"mean": mean, "var": var}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("alone")
    return workdir, fit(Normalised(), Far(), EVALUATION, CONFIG, workdir)


def test_the_state_is_trained_evaluated_and_kept_with_its_parameters(alone):
    _, result = alone
    assert isinstance(Normalised(), ModelStateTask)
    assert_close(result.state.model_state, statistics(*range(6)))
    assert result.best_step in (2, 4, 6)
    assert_close(result.best_model_state, statistics(*range(result.best_step)))
    metrics, _ = evaluate(
        Normalised(), result.best_params, EVALUATION, make_parallel("single"),
        result.best_model_state,
    )  # fmt: skip
    assert metrics["loss"] == pytest.approx(result.best_metrics["loss"], rel=1e-5)
    # where the statistics were lost, a row around 100 was not normalised
    assert metrics["loss"] < 10


@pytest.mark.parametrize("kind", slow_but(["sharding", "fsdp", "pmap"], "pmap"))
def test_devices_have_the_state_of_the_whole_batch(kind, alone, tmp_path):
    # 6 rows on 4 devices: two filler rows
    config = dataclasses.replace(CONFIG, parallel=kind)
    parallel = make_parallel(kind, jax.devices()[:4])
    result = fit(Normalised(), Far(), EVALUATION, config, tmp_path, parallel=parallel)
    assert_close(result.state.model_state, alone[1].state.model_state)
    assert_close(result.state.params, alone[1].state.params)
    assert_close(result.best_model_state, alone[1].best_model_state)
    assert result.history[-1]["loss"] == pytest.approx(alone[1].history[-1]["loss"], rel=1e-3)


def test_a_resumed_run_has_the_bits_of_an_unbroken_one(alone, tmp_path):
    _, whole = alone
    fit(Normalised(), Far(), EVALUATION, CONFIG, tmp_path, stop_when=lambda step: step == 3)
    again = fit(Normalised(), Far(), EVALUATION, CONFIG, tmp_path)
    chex.assert_trees_all_equal(
        (again.state.model_state, again.state.params), (whole.state.model_state, whole.state.params)
    )
    store = CheckpointStore(tmp_path / "checkpoints")
    assert {name for name in store.arrays(6, "state") if "model_state" in name} == {
        "model_state.mean",
        "model_state.var",
    }


def test_checkpoints_give_back_the_state_beside_the_parameters(alone):
    workdir, result = alone
    like = result.state.model_state
    chex.assert_trees_all_equal(load_model_state(workdir, like), result.best_model_state)
    chex.assert_trees_all_equal(load_model_state(workdir, like, which="last"), like)
    chex.assert_trees_all_equal(restore_params(workdir, result.best_params)[0], result.best_params)
    chex.assert_trees_all_equal(
        restore_params(workdir, result.best_params, which="last")[0], result.state.params
    )
    with pytest.raises(CheckpointMismatch, match="mean: saved float32"):
        load_model_state(workdir, {"mean": np.zeros(3, np.float32), "var": like["var"]})


def test_a_run_without_a_state_has_none_to_load(tmp_path):
    fit(Tiny(), Data(), None, TrainConfig(num_steps=1, progress=False), tmp_path)
    for which in ("best", "last"):
        with pytest.raises(CheckpointMismatch, match="does not hold this model state"):
            load_model_state(tmp_path, {"w": np.zeros(4, np.float32)}, which=which)


def test_a_skipped_update_keeps_the_state(tmp_path):
    config = dataclasses.replace(CONFIG, num_steps=3, log_every=1)
    result = fit(Normalised(), Far(poison=1), None, config, tmp_path)
    assert [line["skipped"] for line in lines(tmp_path, "train")] == [0, 1, 0]
    assert_close(result.state.model_state, statistics(0, 2))


class Poisoned(Normalised):
    """A NaN that only the model state has."""

    def loss(self, params, batch, rngs, model_state):
        total, (metrics, new) = super().loss(params, batch, rngs, model_state)
        bad = batch["example_id"][0] == ROWS
        return total, (metrics, {**new, "mean": jnp.where(bad, jnp.nan, new["mean"])})


def test_a_state_with_nan_is_an_update_that_is_skipped(tmp_path):
    config = dataclasses.replace(CONFIG, num_steps=3, log_every=1)
    result = fit(Poisoned(), Far(), None, config, tmp_path)
    assert_close(result.state.model_state, statistics(0, 2))


@pytest.mark.parametrize("kind", slow_but(["single", "pmap"], "pmap"))
def test_a_task_may_carry_rows_as_well(kind, tmp_path):
    config = dataclasses.replace(CONFIG, num_steps=3, parallel=kind)
    parallel = make_parallel(kind, jax.devices()[:2])
    result = fit(Carried(), Far(), EVALUATION, config, tmp_path, parallel=parallel)
    assert_close(result.state.model_state, statistics(0, 1, 2))
    wanted = sum(Far()[step]["x"][:, 0] for step in range(3))
    np.testing.assert_allclose(result.state.carry, wanted, **F32)


def test_seeds_side_by_side_have_a_state_each(alone, tmp_path):
    config = dataclasses.replace(CONFIG, seeds=2)
    first, second = fit_lanes(Normalised(), lambda seed: Far(), EVALUATION, config, tmp_path)
    for lane in (first, second):
        assert_close(lane.state.model_state, statistics(*range(6)))
        assert_close(lane.best_model_state, statistics(*range(lane.best_step)))
    assert_close(first.best_params, alone[1].best_params, rtol=1e-3)


class Counted(Tiny):
    """Counts its steps, or has a model state without arrays."""

    def __init__(self, state):
        self.state = state

    def init_model_state(self, key, batch):
        return self.state

    def loss(self, params, batch, rngs, model_state):
        total, metrics = super().loss(params, batch, rngs)
        return total, (metrics, jax.tree.map(lambda n: n + 1, model_state))

    def evaluate(self, params, batch, model_state):
        return super().evaluate(params, batch)


@pytest.mark.parametrize("state", [{"steps": np.int32(0)}, {}], ids=["a count", "no arrays"])
def test_any_tree_of_arrays_is_a_state(state, tmp_path):
    config = TrainConfig(num_steps=2, best_metric="accuracy", progress=False, parallel="single")
    result = fit(Counted(state), Data(), [Data()[9]], config, tmp_path)
    assert result.best_model_state == dict.fromkeys(state, 2)
    assert load_model_state(tmp_path, state) == result.best_model_state
    chex.assert_trees_all_equal(restore_params(tmp_path, result.best_params)[0], result.best_params)
    args = [Data()[9]], make_parallel("single"), result.best_model_state
    assert evaluate(Counted(state), result.best_params, *args)[0] == result.best_metrics


@pytest.mark.slow
def test_two_processes_have_and_save_the_state_of_one(tmp_path):
    from tests.training.test_distributed import answers, together

    result = train(tmp_path / "alone")
    wanted = result.best_params, result.best_model_state, result.state.params
    runs = [
        {
            "workdir": tmp_path / kind,
            "model_state": True,
            "train": {"parallel": kind, "num_steps": n},
        }
        for kind in ("sharding", "pmap")
        for n in (2, 4)
    ]
    for process in together(*runs, devices=2):
        for two in answers(process)[1::2]:
            for found, leaf in zip(two["found"], jax.tree.leaves(wanted), strict=True):
                np.testing.assert_allclose(found, leaf, rtol=1e-3, atol=1e-5)


class OtherShape(Normalised):
    def loss(self, params, batch, rngs, model_state):
        total, (metrics, new) = super().loss(params, batch, rngs, model_state)
        return total, (metrics, {"mean": new["mean"]})


class Forgetful(Normalised):
    def loss(self, params, batch, rngs, model_state):
        total, (metrics, _) = super().loss(params, batch, rngs, model_state)
        return total, metrics


class ForgetfulOfTwo(Normalised):
    """Returns metrics by two names, as many as (metrics, model_state) has items."""

    def loss(self, params, batch, rngs, model_state):
        total, (metrics, _) = super().loss(params, batch, rngs, model_state)
        return total, {"loss": metrics["loss"], "nll": metrics["loss"]}


class WithKey(Normalised):
    def init_model_state(self, key, batch):
        return super().init_model_state(key, batch) | {"key": key}


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        (OtherShape(), {}, r"(?s)the arrays of init_model_state:.*var: wanted float32\[2\]"),
        (Forgetful(), {}, r"loss must return \(loss, \(metrics, model_state\)\)"),
        (ForgetfulOfTwo(), {}, r"loss must return .*, got \(Array, dict\)"),
        (WithKey(), {}, "model_state.key must not be a PRNG key"),
        (Normalised(), {"accumulate": 2}, "accumulate must be 1 for Normalised"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_anything_is_written(
    task, changes, message, tmp_path
):
    config = dataclasses.replace(CONFIG, **changes)
    with pytest.raises((TypeError, ValueError), match=message):
        fit(task, Far(), None, config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_evaluation_needs_the_state_of_its_task(alone):
    _, result = alone
    parallel = make_parallel("single")
    with pytest.raises(ValueError, match="fit Normalised, which needs its model state"):
        evaluate(Normalised(), result.best_params, EVALUATION, parallel)
    with pytest.raises(ValueError, match="fit Tiny, which has no model state"):
        evaluate(Tiny(), {"w": np.zeros(2)}, EVALUATION, parallel, {"mean": np.zeros(2)})
