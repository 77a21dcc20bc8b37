"""Carried rows and shared arrays: the same in one run and in two, on any devices, in lanes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax.training import (
    Carried,
    CheckpointMismatch,
    CheckpointStore,
    OptimizerConfig,
    evaluate,
    make_parallel,
    restore_params,
)
from tests.tolerances import F32
from tests.training._tiny import (
    Far,
    Memory,
    Normalised,
    Rows,
    Tiny,
    assert_close,
    assert_equal,
    assert_same_run,
    lines,
    run,
    stop_at,
)

FAST = OptimizerConfig(learning_rate=0.05)
KINDS = [("single", 2), ("sharding", 2), ("fsdp", 1), ("pmap", 2)]


# -- rows ------------------------------------------------------------------------------------------


def remember(workdir=None, train=None, evaluation=None, **given):
    """A run of the task that carries rows, which begin anew at step 7."""
    options = {"num_steps": 10, "optimizer": FAST, "best_metric": "loss"} | given
    return run(workdir, Memory(), train or Rows(), evaluation, **options)


def memory_after(steps):
    """The carried memory by the definition, from the last beginning on."""
    memory = np.zeros(6)
    for step in range(steps):
        memory = (0 if step % 7 == 0 else 0.9) * memory + Rows()[step]["x"]
    return memory


@pytest.fixture(scope="module")
def alone():
    """The run on one device that those on several are compared with."""
    return remember()


# 6 rows on 4 devices in 1 or 2 parts: filler rows are needed
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "accumulate"), KINDS)
def test_every_kind_of_parallelism_carries_the_same_rows(alone, kind, accumulate):
    result = remember(parallel=kind, accumulate=accumulate, devices=4)
    for found in (alone, result):
        rows = found.state.carried.rows
        np.testing.assert_allclose(rows["memory"], memory_after(10), **F32)
        np.testing.assert_array_equal(rows["seen"], 3)
    assert_close(result.state.params, alone.state.params)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sharding", "pmap"])
def test_stopping_between_beginnings_and_resuming_gives_the_same_bits(tmp_path, kind):
    remember(tmp_path, parallel=kind, hook=stop_at(9))
    assert_same_run(remember(tmp_path, parallel=kind), remember(parallel=kind))


@pytest.mark.slow
def test_another_number_of_devices_continues_the_same_rows(tmp_path):
    remember(tmp_path, parallel="sharding", devices=4, hook=stop_at(9))
    result = remember(tmp_path)
    assert result.state.carried.rows["memory"].shape == (6,)
    np.testing.assert_allclose(result.state.carried.rows["memory"], memory_after(10), **F32)


@pytest.mark.slow
def test_a_skipped_update_keeps_the_rows(tmp_path):
    nan = {"train": Rows(poison=9)}
    result = remember(tmp_path, **nan)
    np.testing.assert_allclose(result.state.carried.rows["memory"], memory_after(9), **F32)
    after = remember(tmp_path, num_steps=11, **nan)
    assert np.all(np.isfinite(after.state.carried.rows["memory"]))


@pytest.mark.parametrize("kind", ["single", "pmap"])
def test_an_evaluation_carries_from_batch_to_batch_and_starts_from_the_beginning(kind):
    data = [Rows()[step] for step in range(1, 4)]  # no reset among them
    parallel = make_parallel(kind, jax.devices()[:4])
    memory, total = np.zeros(6), 0.0
    for batch in data:
        memory = 0.9 * memory + batch["x"]
        total += np.sum((memory - batch["y"]) ** 2)
    for _ in range(2):
        metrics, predictions = evaluate(Memory(), {"w": jnp.ones(())}, data, parallel)
        np.testing.assert_array_equal(predictions["seen"], np.repeat([1, 2, 3], 6))
        assert metrics["loss"] == pytest.approx(total / 18, rel=1e-5)


# -- shared arrays ---------------------------------------------------------------------------------

FEW = {"num_steps": 6, "log_every": 2, "eval_every": 2, "checkpoint_every": 2}
HELD_OUT = [Far()[1000], Far()[1001]]


def normalise(workdir=None, task=None, train=None, evaluation=HELD_OUT, **given):
    """A run of the task with BatchNorm."""
    options = FEW | {"best_metric": "loss"} | given
    options.setdefault("optimizer", OptimizerConfig(name="sgd", learning_rate=0.05))
    return run(workdir, task or Normalised(), train or Far(), evaluation, **options)


def statistics(*steps):
    """The running mean and variance by the definition."""
    mean, var = np.zeros(2), np.ones(2)
    for step in steps:
        x = Far()[step]["x"].astype(np.float64)
        mean, var = (mean + x.mean(0)) / 2, (var + x.var(0)) / 2
    return {"mean": mean, "var": var}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("whole")
    return workdir, normalise(workdir)


@pytest.mark.slow
def test_shared_arrays_are_trained_evaluated_and_kept_with_the_parameters(whole):
    workdir, result = whole
    shared = result.state.carried.shared
    assert_close(shared, statistics(*range(6)))
    assert result.best_step in (2, 4, 6)
    assert_close(result.best_shared, statistics(*range(result.best_step)))
    best = result.best_params, HELD_OUT, make_parallel("single"), result.best_shared
    metrics, _ = evaluate(Normalised(), *best)
    assert metrics["loss"] == pytest.approx(result.best_metrics["loss"], rel=1e-5)
    # where the statistics were lost, a row around 100 was not normalised
    assert metrics["loss"] < 10
    for wanted, options in (
        (result.best_shared, {"part": "shared"}),
        (shared, {"part": "shared", "which": "last"}),
        (result.best_params, {}),
        (result.state.params, {"which": "last"}),
    ):
        assert_equal(restore_params(workdir, wanted, **options)[0], wanted)
    wrong = {"mean": np.zeros(3, np.float32), "var": shared["var"]}
    with pytest.raises(CheckpointMismatch, match="mean: saved float32"):
        restore_params(workdir, wrong, part="shared")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fsdp", "pmap"])
def test_devices_have_the_shared_arrays_of_the_whole_batch(kind, whole):
    # 6 rows on 4 devices: two filler rows
    result = normalise(parallel=kind, devices=4)
    assert_close(result.state.carried.shared, whole[1].state.carried.shared)
    assert_close(result.state.params, whole[1].state.params)
    assert_close(result.best_shared, whole[1].best_shared)
    assert result.history[-1]["loss"] == pytest.approx(whole[1].history[-1]["loss"], rel=1e-3)


@pytest.mark.slow
def test_a_resumed_run_has_the_bits_of_an_unbroken_one(whole, tmp_path):
    normalise(tmp_path, hook=stop_at(3))
    assert_same_run(normalise(tmp_path), whole[1])
    arrays = CheckpointStore(tmp_path / "checkpoints").arrays(6, "state")
    names = {name for name in arrays if "carried" in name}
    assert names == {"carried.shared.mean", "carried.shared.var"}


class Poisoned(Normalised):
    """A NaN in step 1 that only the statistics have."""

    def loss(self, params, batch, rngs, carried):
        metrics, new = super().loss(params, batch, rngs, carried)
        mean = jnp.where(batch["example_id"][0] == 6, jnp.nan, new.shared["mean"])
        return metrics, new.replace(shared={**new.shared, "mean": mean})


@pytest.mark.slow
@pytest.mark.parametrize(("task", "train"), [(Normalised(), Far(poison=1)), (Poisoned(), Far())])
def test_an_update_with_nan_is_skipped_and_keeps_the_shared_arrays(task, train, tmp_path):
    result = normalise(tmp_path, task, train, None, num_steps=3, log_every=1)
    assert [line["skipped"] for line in lines(tmp_path, "train")] == [0, 1, 0]
    assert_close(result.state.carried.shared, statistics(0, 2))


class Counting(Normalised):
    """The same, and a sum over the batches for every row."""

    def init_carried(self, key, batch):
        rows = jnp.zeros(len(batch["weight"]))
        return super().init_carried(key, batch).replace(rows=rows)

    def loss(self, params, batch, rngs, carried):
        metrics, new = super().loss(params, batch, rngs, carried)
        return metrics, new.replace(rows=carried.rows + batch["x"][:, 0])


@pytest.mark.slow
def test_a_task_may_carry_rows_as_well():
    result = normalise(task=Counting(), num_steps=3, parallel="pmap", devices=2)
    assert_close(result.state.carried.shared, statistics(0, 1, 2))
    wanted = sum(Far()[step]["x"][:, 0] for step in range(3))
    np.testing.assert_allclose(result.state.carried.rows, wanted, **F32)


@pytest.mark.slow
def test_seeds_side_by_side_have_shared_arrays_each(whole):
    first, second = normalise(seeds=2)
    for lane in (first, second):
        assert_close(lane.state.carried.shared, statistics(*range(6)))
        assert_close(lane.best_shared, statistics(*range(lane.best_step)))
    assert_close(first.best_params, whole[1].best_params, rtol=1e-3)


class Counted(Tiny):
    """Counts its steps, or has shared arrays without numbers."""

    def __init__(self, shared):
        self.shared = shared

    def init_carried(self, key, batch):
        return Carried(shared=self.shared)

    def loss(self, params, batch, rngs, carried):
        shared = jax.tree.map(lambda n: n + 1, carried.shared)
        return super().loss(params, batch, rngs), carried.replace(shared=shared)

    def evaluate(self, params, batch, carried):
        return *super().evaluate(params, batch), carried


@pytest.mark.slow
@pytest.mark.parametrize("shared", [{"steps": np.int32(0)}, {}], ids=["a count", "no arrays"])
def test_any_tree_of_arrays_can_be_shared(shared, tmp_path):
    result = run(tmp_path, Counted(shared), num_steps=2)
    assert result.best_shared == dict.fromkeys(shared, 2)
    assert restore_params(tmp_path, shared, part="shared")[0] == result.best_shared
    assert_equal(restore_params(tmp_path, result.best_params)[0], result.best_params)
    # a run without them has none to load
    run(tmp_path / "none", evaluation=None, num_steps=1)
    with pytest.raises(CheckpointMismatch, match="w: saved nothing, now float32"):
        restore_params(tmp_path / "none", {"w": np.zeros(4, np.float32)}, part="shared")
