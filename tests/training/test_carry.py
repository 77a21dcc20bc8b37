"""Tasks that carry a state from batch to batch: the same bits in one run, in two, anywhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax.training import (
    OptimizerConfig,
    StatefulTask,
    Task,
    evaluate,
    fit,
    fit_lanes,
    init_state,
    make_optimizer,
    make_parallel,
    make_train_step,
)
from tests._slow import slow_but
from tests.tolerances import F32
from tests.training import _counting
from tests.training._counting import Memory, Rows, config
from tests.training.test_distributed import answers, together


def memory_after(steps, rows=6):
    """The carried memory by the definition, from the last beginning on."""
    memory = np.zeros(rows)
    for step in range(steps):
        memory = (0 if step % 7 == 0 else 0.9) * memory + Rows(rows)[step]["x"]
    return memory


def test_the_state_reaches_the_next_step_and_begins_anew_where_the_batch_says(tmp_path):
    result = fit(Memory(), Rows(), None, config(parallel="single"), tmp_path)
    np.testing.assert_allclose(result.state.carry["memory"], memory_after(20), **F32)
    np.testing.assert_array_equal(result.state.carry["seen"], 20 % 7)


def test_gradients_see_what_was_carried():
    # one step of plain SGD by hand: dL/dw = 2 sum m (w m - y) / rows
    task, tx = Memory(), make_optimizer(OptimizerConfig(name="sgd", learning_rate=0.1), 2)
    state = init_state(task, tx, jax.random.key(0), Rows()[0])
    step = jax.jit(make_train_step(task, tx))
    w, memory = float(state.params["w"]), np.zeros(6)
    for number in range(2):
        batch = Rows()[number]
        memory = 0.9 * memory + batch["x"]
        w -= 0.1 * np.mean(2 * memory * (w * memory - batch["y"]))
        state, _ = step(state, batch, jax.random.key(0))
    np.testing.assert_allclose(state.params["w"], w, **F32)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The run on one device that those on several are compared with."""
    return _counting.train(tmp_path_factory.mktemp("alone"), parallel="single")


def assert_as_alone(w, memory, best, alone):
    np.testing.assert_allclose(memory, alone.state.carry["memory"], **F32)
    np.testing.assert_allclose(w, alone.state.params["w"], **F32)
    assert best["loss"] == pytest.approx(alone.best_metrics["loss"], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "accumulate"),
    [("single", 2), ("sharding", 1), ("sharding", 2), ("pmap", 1), ("pmap", 2)],
)
def test_every_kind_of_parallelism_carries_the_same(tmp_path, alone, kind, accumulate):
    # 6 rows on 4 devices in 1 or 2 parts: filler rows are needed
    parallel = make_parallel(kind, jax.devices()[:4], accumulate=accumulate)
    settings = {"parallel": kind, "accumulate": accumulate}
    result = _counting.train(tmp_path, given=parallel, **settings)
    memory = result.state.carry["memory"]
    np.testing.assert_allclose(memory, memory_after(20), **F32)
    assert_as_alone(result.state.params["w"], memory, result.best_metrics, alone)


@pytest.mark.parametrize("kind", slow_but(["single", "sharding", "pmap"], "sharding"))
def test_stopping_between_beginnings_and_resuming_gives_the_same_bits(tmp_path, kind):
    settings = config(parallel=kind)
    whole = fit(Memory(), Rows(), None, settings, tmp_path / "whole")
    # step 11 is in the middle of rows that began at 7
    first = config(parallel=kind, num_steps=11)
    fit(Memory(), Rows(), None, first, tmp_path / "parts")
    parts = fit(Memory(), Rows(), None, settings, tmp_path / "parts")
    for a, b in zip(jax.tree.leaves(whole.state), jax.tree.leaves(parts.state), strict=True):
        np.testing.assert_array_equal(a, b)


def test_another_number_of_devices_continues_the_same_carried_state(tmp_path):
    fit(Memory(), Rows(), None, config(num_steps=11), tmp_path)
    result = fit(Memory(), Rows(), None, config(parallel="single"), tmp_path)
    assert result.state.carry["memory"].shape == (6,)
    np.testing.assert_allclose(result.state.carry["memory"], memory_after(20), **F32)


def test_a_skipped_update_keeps_the_carried_state(tmp_path):
    result = fit(Memory(), Rows(poison=9), None, config(num_steps=10), tmp_path)
    np.testing.assert_allclose(result.state.carry["memory"], memory_after(9), **F32)
    after = fit(Memory(), Rows(poison=9), None, config(num_steps=12), tmp_path)
    assert np.all(np.isfinite(after.state.carry["memory"]))


def test_evaluation_carries_from_batch_to_batch_and_starts_from_the_beginning():
    task = Memory()
    data = [Rows()[step] for step in range(1, 4)]  # no reset among them
    for kind in ("single", "sharding", "pmap"):
        parallel = make_parallel(kind, jax.devices()[:4])
        for _ in range(2):
            metrics, predictions = evaluate(task, {"w": jnp.ones(())}, data, parallel)
            np.testing.assert_array_equal(predictions["seen"], np.repeat([1, 2, 3], 6))
            memory, total = np.zeros(6), 0.0
            for batch in data:
                memory = 0.9 * memory + batch["x"]
                total += np.sum((memory - batch["y"]) ** 2)
            assert metrics["loss"] == pytest.approx(total / 18, rel=1e-5)


def test_the_protocols_tell_the_two_kinds_of_task_apart():
    from tests.training._tiny import Tiny

    assert isinstance(Memory(), StatefulTask)
    assert isinstance(Tiny(), Task)
    assert not isinstance(Tiny(), StatefulTask)


def test_lanes_refuse_a_carried_state(tmp_path):
    with pytest.raises(ValueError, match="must not carry a state"):
        fit_lanes(Memory(), lambda seed: Rows(), None, config(seeds=2), tmp_path)


def test_the_learning_rate_falls_like_a_staircase():
    schedule = OptimizerConfig(
        name="sgd", schedule="staircase", learning_rate=1.0, decay_rate=0.5, decay_begin=4,
        decay_every=3,
    )  # fmt: skip
    tx = make_optimizer(schedule, 12)
    state, rates = tx.init({"w": jnp.zeros(())}), []
    for _ in range(12):
        update, state = tx.update({"w": jnp.ones(())}, state)
        rates.append(-float(update["w"]))
    assert rates == [1.0] * 4 + [0.5] * 3 + [0.25] * 3 + [0.125] * 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decay_rate": 0.0}, "decay_rate"),
        ({"decay_rate": 1.5}, "decay_rate"),
        ({"decay_every": 0}, "decay_every"),
        ({"decay_begin": -1}, "decay_begin"),
    ],
)
def test_a_staircase_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make_optimizer(OptimizerConfig(schedule="staircase", **changes), 10)


@pytest.mark.slow
def test_two_processes_carry_and_save_what_one_does(tmp_path, alone):
    runs = [
        {"workdir": tmp_path / kind, "carried": True, "train": {"parallel": kind, "num_steps": n}}
        for kind in ("sharding", "pmap")
        for n in (11, 20)
    ]
    for process in together(*runs, devices=2):
        for two in answers(process)[1::2]:
            assert_as_alone(two["w"], two["carry"]["memory"], two["best"], alone)
