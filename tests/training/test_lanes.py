"""Seeds and sweeps side by side: every lane is the run that it would be alone."""

import dataclasses

import chex
import jax
import numpy as np
import optax
import pytest

from gatedjax.text._folders import check_single
from gatedjax.training import (
    CheckpointMismatch,
    CheckpointStore,
    NonFiniteError,
    OptimizerConfig,
    Ratio,
    TrainConfig,
    fit,
    fit_lanes,
    lanes_of,
    make_parallel,
)
from tests.training._tiny import Data, Tiny, interrupt, lines

CONFIG = TrainConfig(
    num_steps=30,
    log_every=7,
    eval_every=5,
    checkpoint_every=4,
    seeds=3,
    best_metric="accuracy",
    progress=False,
    early_stop_patience=2,
    optimizer=OptimizerConfig(learning_rate=0.05, clip_norm=1.0, ema_decay=0.5),
)
LONG = dataclasses.replace(CONFIG, early_stop_patience=None)
EVALUATION = [Data()[1000], Data()[1001]]


class Shifted(Data):
    """Another order of the examples for every seed."""

    def __init__(self, seed):
        super().__init__()
        self.seed = seed

    def __getitem__(self, step):
        return super().__getitem__(step + 100 * self.seed)


class Scaled(Tiny):
    """Its loss has a number that can be swept."""

    sweepable = ("scale",)

    def __init__(self, scale=1.0):
        self.scale = scale

    def with_value(self, name, value):
        return Scaled(value)

    def loss(self, params, batch, rngs):
        total, metrics = super().loss(params, batch, rngs)
        return total * self.scale, metrics


def assert_lane_is_run(lane, run):
    assert (lane.stopped, lane.steps, lane.best_step) == (run.stopped, run.steps, run.best_step)
    for one, other in zip(
        jax.tree.leaves((lane.state, lane.best_params)),
        jax.tree.leaves((run.state, run.best_params)),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert [h["step"] for h in lane.history] == [h["step"] for h in run.history]
    assert lane.best_metrics == pytest.approx(run.best_metrics)


def solo(task, lane, folder, data=Shifted):
    one = make_parallel("single")
    return fit(task, data(lane.seed), EVALUATION, lane.config, folder, parallel=one)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Three lanes that stop early, each for itself: their folder and results."""
    workdir = tmp_path_factory.mktemp("three")
    return workdir, fit_lanes(Tiny(), Shifted, EVALUATION, CONFIG, workdir)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Three lanes to their last step."""
    return fit_lanes(Tiny(), Shifted, EVALUATION, LONG, tmp_path_factory.mktemp("whole"))


def test_a_lane_is_the_run_of_its_seed(three, tmp_path):
    _, results = three
    runs = [solo(Tiny(), lane, tmp_path / str(lane.seed)) for lane in lanes_of(CONFIG)]
    for lane, run in zip(results, runs, strict=True):
        assert_lane_is_run(lane, run)
    # or the lanes would all be one run
    assert len({float(r.state.params["w"][0]) for r in results}) == 3
    assert len({r.steps for r in results}) > 1
    assert results[0].compilations == 1


def test_lanes_may_have_evaluation_data_of_their_own(tmp_path):
    config = dataclasses.replace(CONFIG, seeds=2, num_steps=12)
    own = lambda seed: [Data()[1000 + 2 * seed], Data()[1001 + 2 * seed]]  # noqa: E731
    found = fit_lanes(Tiny(), Shifted, own, config, tmp_path / "lanes")
    for lane, result in zip(lanes_of(config), found, strict=True):
        parallel = make_parallel("single")
        folder = tmp_path / str(lane.seed)
        alone = fit(
            Tiny(), Shifted(lane.seed), own(lane.seed), lane.config, folder, parallel=parallel
        )
        assert_lane_is_run(result, alone)
    other = lambda seed: [Data(rows=8 + seed)[1000]]  # noqa: E731
    with pytest.raises(ValueError, match="the evaluation batches of a step must have the same"):
        fit_lanes(Tiny(), Shifted, other, config, tmp_path / "other")


@pytest.mark.slow
def test_the_log_names_the_seed_and_ends_with_its_lane(three):
    workdir, results = three
    for seed, result in enumerate(results):
        own = [line for line in lines(workdir) if line["seed"] == seed]
        evaluated = [line["step"] for line in own if line["split"] == "eval"]
        assert evaluated == [h["step"] for h in result.history]
        assert max(line["step"] for line in own) == result.steps


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "task"), [("learning_rate", Tiny()), ("scale", Scaled())], ids=lambda x: str(x)[:8]
)
def test_a_sweep_runs_every_value_with_every_seed(tmp_path, name, task):
    optimizer = OptimizerConfig(name="sgd", learning_rate=0.1, schedule="cosine", warmup_steps=3)
    config = dataclasses.replace(
        CONFIG, seeds=2, sweep=(0.3, 0.05), sweep_over=name, optimizer=optimizer
    )
    results = fit_lanes(task, Shifted, EVALUATION, config, tmp_path / "lanes")
    lanes = lanes_of(config)
    assert [(lane.value, lane.seed) for lane in lanes] == [(0.3, 0), (0.3, 1), (0.05, 0), (0.05, 1)]
    for number, (result, lane) in enumerate(zip(results, lanes, strict=True)):
        own = task if name == "learning_rate" else Scaled(lane.value)
        assert_lane_is_run(result, solo(own, lane, tmp_path / str(number)))


@pytest.mark.slow
def test_lanes_continue_with_the_same_bits(whole, tmp_path):
    short = dataclasses.replace(LONG, num_steps=15)
    fit_lanes(Tiny(), Shifted, EVALUATION, short, tmp_path)
    parts = fit_lanes(Tiny(), Shifted, EVALUATION, LONG, tmp_path)
    for one, other in zip(whole, parts, strict=True):
        chex.assert_trees_all_equal((one.state, one.best_params), (other.state, other.best_params))


@pytest.mark.slow
def test_the_checkpoint_of_one_run_is_not_continued_by_three(tmp_path):
    one = dataclasses.replace(CONFIG, seeds=1)
    fit(Tiny(), Shifted(0), EVALUATION, one, tmp_path)
    with pytest.raises(CheckpointMismatch, match="seeds"):
        fit_lanes(Tiny(), Shifted, EVALUATION, CONFIG, tmp_path)


class Poisoned(Shifted):
    """NaN in all of seed 1's examples from step 9 on."""

    def __getitem__(self, step):
        batch = super().__getitem__(step)
        if self.seed == 1 and step >= 9:
            batch["x"] = batch["x"] * np.nan
        return batch


@pytest.mark.slow
def test_a_lane_that_skips_does_not_touch_the_others(tmp_path):
    config = dataclasses.replace(LONG, num_steps=12)
    clean = fit_lanes(Tiny(), Shifted, None, config, tmp_path / "clean")
    found = fit_lanes(Tiny(), Poisoned, None, config, tmp_path / "poisoned")
    for seed in (0, 2):
        np.testing.assert_array_equal(found[seed].state.params["w"], clean[seed].state.params["w"])
    assert np.isfinite(found[1].state.params["w"]).all()
    with pytest.raises(NonFiniteError, match="seed 1: 2 updates in a row"):
        fit_lanes(
            Tiny(), Poisoned, None, dataclasses.replace(config, max_skipped=1), tmp_path / "limit"
        )


class Longer(Data):
    """Other shapes for other seeds."""

    def __init__(self, seed):
        super().__init__(rows=8 + seed)


@pytest.mark.parametrize(
    ("options", "data", "message"),
    [
        ({"parallel": "pmap"}, Shifted, "must be 'sharding' or 'single'"),
        ({"parallel": "fsdp"}, Shifted, "must be 'sharding' or 'single'"),
        ({"sweep": (1.0,), "sweep_over": "width"}, Shifted, "sweep_over must be one of"),
        ({"sweep": (float("nan"),)}, Shifted, "finite"),
        ({"sweep": (-1.0,)}, Shifted, "learning_rate must be positive"),
        ({}, Longer, "the same shapes for all seeds"),
    ],
)
def test_what_cannot_be_trained_side_by_side_is_refused(tmp_path, options, data, message):
    config = dataclasses.replace(CONFIG, **options)
    with pytest.raises(ValueError, match=message):
        fit_lanes(Tiny(), data, EVALUATION, config, tmp_path)


def test_fit_refuses_several_seeds(tmp_path):
    with pytest.raises(ValueError, match="fit_lanes"):
        fit(Tiny(), Data(), EVALUATION, CONFIG, tmp_path)


def test_metrics_of_lanes_are_not_mixed():
    from gatedjax.training._meter import floats_of

    ratio = Ratio(total=np.array([1.0, 6.0]), count=np.array([2.0, 3.0]))
    assert floats_of({"loss": ratio}) == [{"loss": 0.5}, {"loss": 2.0}]
    # as alone: the exponential of the mean
    assert floats_of({"perplexity": ratio}) == [
        {"perplexity": pytest.approx(np.exp(0.5))},
        {"perplexity": pytest.approx(np.exp(2.0))},
    ]


class Early(Shifted):
    """NaN for seed 0 in the steps before it stops early."""

    def __getitem__(self, step):
        batch = super().__getitem__(step)
        if self.seed == 0 and 5 <= step < 10:
            batch["x"] = batch["x"] * np.nan
        return batch


@pytest.mark.slow
def test_skips_of_a_lane_that_stops_early_are_counted(tmp_path):
    config = dataclasses.replace(
        CONFIG, log_every=100, checkpoint_every=100, early_stop_patience=1, num_steps=20, seeds=2
    )
    fit_lanes(Tiny(), Early, EVALUATION, config, tmp_path / "log")
    skipped = [(line["seed"], line["step"]) for line in lines(tmp_path / "log", "skipped")]
    assert skipped == [(0, step) for step in range(6, 11)]
    limited = dataclasses.replace(config, max_skipped=3)
    with pytest.raises(NonFiniteError, match="seed 0: 4 updates"):
        fit_lanes(Tiny(), Early, EVALUATION, limited, tmp_path / "limit")


@pytest.mark.slow
def test_lanes_continue_on_another_number_of_devices(whole, tmp_path):
    short = dataclasses.replace(LONG, num_steps=15)
    two, one = jax.devices()[:2], jax.devices()[:1]
    saved = []
    note = lambda name, step: saved.append(step) if name == "saved" else None  # noqa: E731
    fit_lanes(Tiny(), Shifted, EVALUATION, short, tmp_path / "parts", devices=two, on_event=note)
    assert saved == [4, 8, 12, 15]
    parts = fit_lanes(Tiny(), Shifted, EVALUATION, LONG, tmp_path / "parts", devices=one)
    for lane, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(
            lane.state.params["w"], other.state.params["w"], rtol=1e-5, atol=1e-6
        )


@pytest.mark.slow
def test_a_folder_of_several_seeds_is_not_read_as_a_model(three):
    workdir, _ = three
    store = CheckpointStore(workdir / "checkpoints")
    with pytest.raises(ValueError, match="of a single seed, got several seeds"):
        check_single(store.record(store.steps()[-1]), workdir)


def test_fewer_steps_than_a_workdir_has_are_refused(tmp_path):
    config = dataclasses.replace(LONG, num_steps=10)
    fewer = dataclasses.replace(config, num_steps=7)
    fit_lanes(Tiny(), Shifted, None, config, tmp_path / "lanes")
    with pytest.raises(CheckpointMismatch, match="is at step 10, and num_steps is 7"):
        fit_lanes(Tiny(), Shifted, None, fewer, tmp_path / "lanes")
    one = dataclasses.replace(config, seeds=1)
    fit(Tiny(), Data(), None, one, tmp_path / "one")
    with pytest.raises(CheckpointMismatch, match="is at step 10, and num_steps is 7"):
        fit(Tiny(), Data(), None, dataclasses.replace(one, num_steps=7), tmp_path / "one")


@pytest.mark.parametrize("seeds", [1, 2])
def test_as_many_steps_as_a_stopped_run_has_made_end_it(seeds, tmp_path):
    def run(steps, on_event=None):
        config = dataclasses.replace(CONFIG, num_steps=steps, seeds=seeds)
        if seeds > 1:
            return fit_lanes(Tiny(), Shifted, None, config, tmp_path, on_event=on_event)[0]
        return fit(Tiny(), Shifted(0), None, config, tmp_path, on_event=on_event)

    stopped, ended = run(10, interrupt("step", 6)), run(6)
    assert (stopped.stopped, stopped.steps) == ("signal", 6)
    assert (ended.stopped, ended.steps, ended.signal) == ("done", 6, None)
    np.testing.assert_array_equal(ended.state.params["w"], stopped.state.params["w"])


@pytest.mark.parametrize("options", [{"tensorboard": True}, {"profile_steps": 3}])
def test_what_lanes_do_not_do_is_refused(tmp_path, options):
    with pytest.raises(ValueError, match="must be left out for several seeds"):
        fit_lanes(Tiny(), Shifted, None, dataclasses.replace(CONFIG, **options), tmp_path)


def test_no_seed_is_refused():
    with pytest.raises(ValueError, match="seeds must be at least 1, got 0"):
        dataclasses.replace(CONFIG, seeds=0)


OPTIMIZERS = {
    "lion": optax.lion(optax.linear_schedule(0.05, 0.0, 20)),
    "schedule-free": optax.contrib.schedule_free_sgd(0.05, warmup_steps=2),
    "a key in its state": optax.chain(
        optax.add_noise(0.01, 0.5, jax.random.key(3)), optax.sgd(0.05)
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_lanes_take_an_optimizer_of_optax(name, tmp_path):
    plain = dataclasses.replace(
        CONFIG, num_steps=12, seeds=2, early_stop_patience=None, optimizer=OptimizerConfig()
    )
    tx = OPTIMIZERS[name]
    results = fit_lanes(Tiny(), Shifted, EVALUATION, plain, tmp_path / "whole", optimizer=tx)
    for lane, result in zip(lanes_of(plain), results, strict=True):
        alone = make_parallel("single")
        data = Shifted(lane.seed)
        run = fit(Tiny(), data, EVALUATION, lane.config, optimizer=tx, parallel=alone)
        assert_lane_is_run(result, run)
    # The lanes continue with the same bits, and not with another optimizer.
    half = {"optimizer": tx, "on_event": interrupt("step", 7)}
    fit_lanes(Tiny(), Shifted, EVALUATION, plain, tmp_path / "two", **half)
    with pytest.raises(CheckpointMismatch, match="optimizer: saved 'optax program"):
        fit_lanes(Tiny(), Shifted, EVALUATION, plain, tmp_path / "two", optimizer=optax.sgd(1.0))
    again = fit_lanes(Tiny(), Shifted, EVALUATION, plain, tmp_path / "two", optimizer=tx)
    for one, other in zip(again, results, strict=True):
        chex.assert_trees_all_equal(one.state, other.state)
        chex.assert_trees_all_equal(one.best_params, other.best_params)


def test_an_optimizer_of_lanes_has_its_own_learning_rate():
    swept = dataclasses.replace(CONFIG, sweep=(0.1, 0.2), optimizer=OptimizerConfig())
    with pytest.raises(ValueError, match="sweep_over must be a number of the task if optimizer"):
        fit_lanes(Tiny(), Shifted, None, swept, optimizer=optax.sgd(0.1))
    with pytest.raises(ValueError, match=r"optimizer must be None with config\.optimizer"):
        fit_lanes(Tiny(), Shifted, None, CONFIG, optimizer=optax.sgd(0.1))
    of_task = dataclasses.replace(swept, sweep_over="scale", num_steps=3, seeds=1)
    results = fit_lanes(Scaled(), Shifted, EVALUATION, of_task, optimizer=optax.sgd(0.1))
    weights = [float(result.state.params["w"][0]) for result in results]
    assert weights[0] != weights[1]


def test_lanes_read_their_data_by_step():
    with pytest.raises(TypeError, match=r"train_data\(seed\) must give the batch of a step as"):
        fit_lanes(Tiny(), lambda seed: iter([Data()[0]]), config=CONFIG)


def test_lanes_start_from_given_parameters(tmp_path):
    class Unread(Tiny):
        def init(self, key, batch):
            assert isinstance(key, jax.core.Tracer), "only the shapes of init are needed"
            return super().init(key, batch)

    start = {"w": np.full(4, 0.5, np.float32)}
    config = TrainConfig(seeds=2, log_every=1, progress=False, parallel="single")
    options = {"steps": 1, "optimizer": optax.sgd(0.5)}
    results = fit_lanes(
        Unread(), lambda seed: Data(), None, config, tmp_path, params=start, **options
    )
    for lane, result in zip(lanes_of(config), results, strict=True):
        alone = fit(Unread(), Data(), None, lane.config, params=start, **options)
        np.testing.assert_allclose(result.state.params["w"], alone.state.params["w"], rtol=1e-5)
    # The seeds differ in their noise.
    assert np.any(results[0].state.params["w"] != results[1].state.params["w"])
    other = {"w": start["w"] + 1}
    with pytest.raises(CheckpointMismatch, match="the initial parameters: saved arrays"):
        fit_lanes(Unread(), lambda seed: Data(), None, config, tmp_path, params=other, **options)
    with pytest.raises(ValueError, match="got 1 of 4 numbers of w that are NaN"):
        fit_lanes(Unread(), lambda seed: Data(), params={"w": np.float32([0, 1, np.nan, 3])})
