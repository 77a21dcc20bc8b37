"""Signals at every moment, NaN in every place, and the options of `fit`."""

import dataclasses
import signal

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax.training import (
    CheckpointStore,
    NonFiniteError,
    TrainConfig,
    fit,
    make_parallel,
)
from tests._slow import slow_but
from tests.training._tiny import Data, Tiny, interrupt, lines

CONFIG = TrainConfig(
    num_steps=12,
    log_every=3,
    eval_every=4,
    checkpoint_every=5,
    best_metric="accuracy",
    progress=False,
    max_skipped=3,
)
EVALUATION = [Data()[1000]]


class Interrupted(Tiny):
    """SIGTERM while a step or an evaluation is traced, which is while it compiles."""

    def __init__(self, where):
        self.where = where

    def loss(self, params, batch, rngs):
        if self.where == "compile":
            self.where = None
            signal.raise_signal(signal.SIGTERM)
        return super().loss(params, batch, rngs)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("whole")
    return workdir, fit(Tiny(), Data(), EVALUATION, CONFIG, workdir)


# the steps are one with a checkpoint, one with a line in the log, and one with neither
MOMENTS = [(("compile",), 1), (("step", 5), 5), (("step", 6), 6), (("step", 7), 7),
           (("evaluate",), 4), (("save",), 6), (("saved",), None)]  # fmt: skip


@pytest.mark.parametrize(("where", "steps"), slow_but(MOMENTS, ("step", 5), ("step", 6)))
def test_sigterm_at_any_moment_leaves_a_whole_checkpoint(where, steps, whole, tmp_path):
    task = Interrupted(where[0])
    first = fit(task, Data(), EVALUATION, CONFIG, tmp_path, on_event=interrupt(*where))
    assert (first.stopped, first.exit_code, first.signal) == ("signal", 0, signal.SIGTERM)
    assert steps is None or first.steps == steps
    store = CheckpointStore(tmp_path / "checkpoints")
    assert store.latest() == first.steps
    store.verify(first.steps, arrays=True)
    second = fit(Tiny(), Data(), EVALUATION, CONFIG, tmp_path)
    chex.assert_trees_all_equal(
        (second.state, second.best_params), (whole[1].state, whole[1].best_params)
    )
    assert second.history == whole[1].history
    assert lines(tmp_path) == lines(whole[0])


class Broken(Tiny):
    """Not finite in one place, in steps 6 to 8 or for good."""

    def __init__(self, place, until=9):
        self.place, self.until = place, until

    def init(self, key, batch):
        return super().init(key, batch) | {"other": jnp.ones(3)}

    def loss(self, params, batch, rngs):
        step = batch["example_id"][0] // 8
        bad = jnp.where((step >= 6) & (step < self.until), jnp.nan, 0.0)
        if self.place == "input":
            batch = batch | {"x": batch["x"].at[3, 1].add(bad)}
        total, metrics = super().loss(params, batch, rngs)
        total = total + 1e-3 * (params["other"] ** 2).sum()
        if self.place == "gradient leaf":
            # the value is 0; the derivative is bad
            total = total + (params["other"] - jax.lax.stop_gradient(params["other"])).sum() * bad
            total = jnp.where(jnp.isnan(total), jax.lax.stop_gradient(1.0), total)
            total = total + bad_gradient(params["other"], bad)
        if self.place == "gate logit":
            gate = jax.nn.sigmoid(batch["x"][:, 0] * params["other"][0] + bad)
            total = total + (gate * batch["weight"]).sum()
        if self.place == "loss":
            total = total + bad
        return total, metrics


@jax.custom_vjp
def bad_gradient(x, bad):
    """0, with a gradient of `bad` at one entry."""
    return 0.0 * x.sum()


bad_gradient.defvjp(
    lambda x, bad: (0.0 * x.sum(), (x, bad)),
    lambda kept, g: (jnp.zeros_like(kept[0]).at[1].set(kept[1]), jnp.zeros_like(kept[1])),
)


@pytest.mark.parametrize(
    "place", slow_but(["input", "gradient leaf", "gate logit", "loss"], "input", "gradient leaf")
)
def test_what_is_not_finite_is_skipped_counted_and_named(place, tmp_path):
    # lines of intervals in which some updates are skipped and others are not
    config = dataclasses.replace(CONFIG, log_every=4)
    result = fit(Broken(place), Data(), None, config, tmp_path / "few")
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result.state))
    skipped, trained = (lines(tmp_path / "few", split) for split in ("skipped", "train"))
    assert [line["step"] for line in skipped] == [7, 8, 9]
    assert skipped[0]["example_id"] == list(range(48, 56))
    counted = {line["step"]: line["skipped"] for line in trained}
    assert counted == pytest.approx({4: 0, 8: 0.5, 12: 0.25})
    assert None not in [line["loss"] for line in trained]

    with pytest.raises(NonFiniteError, match=r"4 updates in a row.* examples 72, "):
        fit(Broken(place, until=99), Data(), None, CONFIG, tmp_path / "limit")
    store = CheckpointStore(tmp_path / "limit" / "checkpoints")
    state = store.arrays(store.latest(), "state")
    assert all(np.isfinite(array).all() for array in state.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", slow_but(["sharding", "pmap", "single"], "single"))
def test_parts_of_a_batch_give_the_losses_of_the_whole(kind, tmp_path):
    options = dataclasses.replace(CONFIG, log_every=1, parallel=kind)
    losses = {}
    for parts in (1, 2):
        seen = losses.setdefault(parts, [])
        fit(
            Tiny(),
            Data(),
            None,
            dataclasses.replace(options, accumulate=parts),
            tmp_path / str(parts),
            parallel=make_parallel(kind, jax.devices()[:4], accumulate=parts),
            on_log=lambda line, seen=seen: seen.append(line["loss"]),
        )
    assert len(losses[1]) == 12
    assert losses[2] == pytest.approx(losses[1], rel=1e-6)


@pytest.mark.slow
def test_the_average_is_what_is_evaluated_kept_and_resumed(tmp_path):
    optimizer = dataclasses.replace(CONFIG.optimizer, ema_decay=0.9, learning_rate=0.1)
    config = dataclasses.replace(CONFIG, optimizer=optimizer)
    whole = fit(Tiny(), Data(), EVALUATION, config, tmp_path / "whole")
    average = whole.state.opt_state[-1].ema["w"]
    assert np.abs(average - whole.state.params["w"]).max() > 1e-3
    plain = fit(Tiny(), Data(), None, config, tmp_path / "plain")
    np.testing.assert_array_equal(plain.best_params["w"], average)
    fit(Tiny(), Data(), EVALUATION, config, tmp_path / "cut", on_event=interrupt("step", 7))
    again = fit(Tiny(), Data(), EVALUATION, config, tmp_path / "cut")
    chex.assert_trees_all_equal(again.state, whole.state)
    chex.assert_trees_all_equal(again.best_params, whole.best_params)


@pytest.mark.slow
def test_a_profile_is_written(tmp_path):
    config = dataclasses.replace(CONFIG, num_steps=14, profile_steps=2)
    fit(Tiny(), Data(), None, config, tmp_path)
    assert list((tmp_path / "profile").rglob("*.xplane.pb"))


def test_tensorboard_is_a_message_where_it_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("gatedjax.training._workdir._tensorboard", lambda workdir: None)
    config = dataclasses.replace(CONFIG, num_steps=2, tensorboard=True, progress=True)
    assert fit(Tiny(), Data(), None, config, tmp_path).steps == 2
    assert "tensorboardX is not installed" in capsys.readouterr().err


def test_a_signal_in_the_last_step_is_told(tmp_path):
    stop = interrupt("save", 12, number=signal.SIGINT)
    result = fit(Tiny(), Data(), None, CONFIG, tmp_path, on_event=stop)
    assert (result.stopped, result.signal, result.exit_code) == ("done", signal.SIGINT, 130)


def test_another_accumulate_than_the_configuration_is_refused(tmp_path):
    config = dataclasses.replace(CONFIG, accumulate=4)
    with pytest.raises(ValueError, match="accumulate of config, 4, got 1"):
        fit(Tiny(), Data(), None, config, tmp_path, parallel=make_parallel("single"))
