"""Seeds and sweeps side by side: every lane is the run that it would be alone."""

import dataclasses

import jax
import numpy as np
import optax
import pytest

from gatedjax.text.models._folders import check_single
from gatedjax.training import (
    CheckpointMismatch,
    CheckpointStore,
    NonFiniteError,
    OptimizerConfig,
    Ratio,
    TrainConfig,
    lanes_of,
)
from tests.training._tiny import (
    Data,
    Tiny,
    assert_equal,
    events_to,
    fit,
    interrupt,
    lines,
    make_parallel,
    options,
    poisoned,
    run,
)

OURS = OptimizerConfig(learning_rate=0.05, clip_norm=1.0, ema_decay=0.5)
EARLY = {"num_steps": 30, "log_every": 7, "eval_every": 5, "checkpoint_every": 4, "seeds": 3,
         "early_stop_patience": 2, "optimizer": OURS}  # fmt: skip
LONG = EARLY | {"early_stop_patience": None, "num_steps": 15}
BATCHES = [Data()[1000], Data()[1001]]


def shifted(seed):
    """Another order of the examples for every seed."""
    return Data(shift=100 * seed)


class Scaled(Tiny):
    """Its loss has a number that can be swept."""

    sweepable = ("scale",)

    def __init__(self, scale=1.0):
        self.scale = scale

    def with_value(self, name, value):
        return Scaled(value)

    def loss(self, params, batch, rngs):
        metrics = super().loss(params, batch, rngs)
        total, count = dataclasses.astuple(metrics["loss"])
        return metrics | {"objective": Ratio(total * self.scale, count)}


def lanes(workdir=None, train=shifted, evaluation=BATCHES, task=None, **given):
    return run(workdir, task, train, evaluation, **given)


def assert_runs(results, task=Tiny, train=shifted, evaluation=lambda seed: BATCHES, **given):
    """Checks that each lane is the result of `fit` with its configuration."""
    config = options(**{k: v for k, v in given.items() if k not in ("params", "tx")})
    more = {"optimizer": given["tx"]} if "tx" in given else {}
    more |= {"params": given["params"]} if "params" in given else {}
    for lane, result in zip(lanes_of(config), results, strict=True):
        own = task() if config.sweep_over == "learning_rate" else task(lane.value)
        data = train(lane.seed), evaluation(lane.seed)
        alone = fit(own, *data, lane.config, parallel=make_parallel("single"), **more)
        for name in ("stopped", "steps", "best_step"):
            assert getattr(result, name) == getattr(alone, name)
        pairs = ((r.state, r.best_params) for r in (result, alone))
        for one, other in zip(*map(jax.tree.leaves, pairs), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        assert [h["step"] for h in result.history] == [h["step"] for h in alone.history]
        assert result.best_metrics == pytest.approx(alone.best_metrics)


@pytest.fixture(scope="module")
def whole():
    """Three lanes to their last step."""
    return lanes(**LONG)


@pytest.mark.slow
def test_a_lane_is_the_run_of_its_seed_and_stops_early_for_itself(tmp_path):
    results = lanes(tmp_path, **EARLY)
    assert_runs(results, **EARLY)
    # or the lanes would all be one run
    assert len({float(r.state.params["w"][0]) for r in results}) == 3
    assert len({r.steps for r in results}) > 1
    for seed, result in enumerate(results):
        own = [line for line in lines(tmp_path) if line["seed"] == seed]
        evaluated = [line["step"] for line in own if line["split"] == "eval"]
        assert evaluated == [h["step"] for h in result.history]
        assert max(line["step"] for line in own) == result.steps
    store = CheckpointStore(tmp_path / "checkpoints")
    with pytest.raises(ValueError, match="of a single seed, got several seeds"):
        check_single(store.record(store.latest()), tmp_path)


@pytest.mark.slow
def test_lanes_may_have_evaluation_data_of_their_own():
    own = lambda seed: [Data()[1000 + 2 * seed], Data()[1001 + 2 * seed]]  # noqa: E731
    two = EARLY | {"seeds": 2, "num_steps": 12}
    assert_runs(lanes(evaluation=own, **two), evaluation=own, **two)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "task"), [("learning_rate", Tiny), ("scale", Scaled)])
def test_a_sweep_runs_every_value_with_every_seed(name, task):
    optimizer = OptimizerConfig(name="sgd", learning_rate=0.1, schedule="cosine", warmup_steps=3)
    swept = EARLY | {"seeds": 2, "sweep": (0.3, 0.05), "sweep_over": name, "optimizer": optimizer}
    assert_runs(lanes(task=task(), **swept), task, **swept)


@pytest.mark.slow
def test_lanes_continue_with_the_same_bits_and_on_another_number_of_devices(whole, tmp_path):
    lanes(tmp_path / "parts", hook=interrupt("step", 7), **LONG)
    parts = lanes(tmp_path / "parts", **LONG)
    for one, other in zip(whole, parts, strict=True):
        assert_equal((one.state, one.best_params), (other.state, other.best_params))
    events = []
    lanes(tmp_path / "moved", devices=2, hook=events_to(events), **LONG | {"num_steps": 7})
    assert [step for name, step in events if name == "saved"] == [4, 7]
    moved = lanes(tmp_path / "moved", devices=1, **LONG)
    for one, other in zip(whole, moved, strict=True):
        np.testing.assert_allclose(one.state.params["w"], other.state.params["w"], rtol=1e-5)


@pytest.mark.slow
def test_a_lane_that_skips_does_not_touch_the_others(whole):
    nan = lambda seed: poisoned(*range(109, 200), shift=100) if seed == 1 else shifted(seed)  # noqa: E731
    found = lanes(train=nan, **LONG)
    for seed in (0, 2):
        np.testing.assert_array_equal(found[seed].state.params["w"], whole[seed].state.params["w"])
    assert np.isfinite(found[1].state.params["w"]).all()


@pytest.mark.slow
def test_skips_of_a_lane_that_stops_early_are_counted(tmp_path):
    nan = lambda seed: shifted(1) if seed else poisoned(*range(5, 10))  # noqa: E731
    config = EARLY | {"log_every": 100, "checkpoint_every": 100, "early_stop_patience": 1}
    config |= {"num_steps": 20, "seeds": 2}
    lanes(tmp_path, nan, **config)
    skipped = [(line["seed"], line["step"]) for line in lines(tmp_path, "skipped")]
    assert skipped == [(0, step) for step in range(6, 11)]
    with pytest.raises(NonFiniteError, match="seed 0: 4 updates"):
        lanes(None, nan, **config | {"max_skipped": 3})


OPTIMIZERS = {
    "schedule-free": optax.contrib.schedule_free_sgd(0.05, warmup_steps=2),
    "a key in its state": optax.chain(
        optax.add_noise(0.01, 0.5, jax.random.key(3)), optax.sgd(0.05)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_lanes_take_an_optimizer_of_optax(name, tmp_path):
    tx, two = OPTIMIZERS[name], LONG | {"seeds": 2, "num_steps": 12, "optimizer": OptimizerConfig()}
    optimizer = two | {"optimizer": tx}
    results = lanes(**optimizer)
    assert_runs(results, tx=tx, **two)
    # The lanes continue with the same bits, and not with another optimizer.
    lanes(tmp_path, hook=interrupt("step", 7), **optimizer)
    with pytest.raises(CheckpointMismatch, match=r"opt_state|the training step"):
        lanes(tmp_path, **two | {"optimizer": optax.sgd(1.0)})
    for one, other in zip(lanes(tmp_path, **optimizer), results, strict=True):
        assert_equal((one.state, one.best_params), (other.state, other.best_params))


def test_a_lane_has_the_configuration_of_its_run():
    config = TrainConfig(seed=5, seeds=2, sweep=(0.5,), num_steps=7)
    optimizer = OptimizerConfig(learning_rate=0.5)
    wanted = [TrainConfig(seed=seed, num_steps=7, optimizer=optimizer) for seed in (5, 6)]
    assert [lane.config for lane in lanes_of(config)] == wanted


def test_a_number_of_the_task_is_swept_with_an_optimizer_of_optax():
    # 8 rows in 3 parts: a filler row
    swept = {"sweep": (0.1, 0.2), "sweep_over": "scale", "num_steps": 2, "accumulate": 3}
    results = lanes(task=Scaled(), optimizer=optax.sgd(0.1), **swept)
    weights = [float(result.state.params["w"][0]) for result in results]
    assert weights[0] != weights[1]


@pytest.mark.slow
def test_lanes_start_from_given_parameters():
    given = {"seeds": 2, "num_steps": 2, "params": {"w": np.full(4, 0.5, np.float32)}}
    results = lanes(**given)
    assert_runs(results, **given)
    # The seeds differ in their noise.
    assert np.any(results[0].state.params["w"] != results[1].state.params["w"])
