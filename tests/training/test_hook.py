"""The hook, with state and metrics, and the learning rate in the log."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gatedjax.training import CheckpointStore, OptimizerConfig, TrainState
from tests.conftest import ROOT
from tests.training._tiny import (
    HELD_OUT,
    Changed,
    assert_close,
    assert_equal,
    events_to,
    lines,
    lines_to,
    loop,
    mean_error,
    plane,
    run,
)

SGD = optax.sgd(0.05)
COSINE = optax.cosine_decay_schedule(0.05, 10)


@pytest.mark.slow
def test_a_hook_sees_the_state_and_the_line_of_each_log_and_evaluation():
    calls, events = [], []

    def hook(event, step, state, metrics):
        assert isinstance(state, TrainState)
        assert int(state.step) == step
        events.append((event, step))
        if event in ("train", "eval"):
            calls.append((event, step, jax.device_get(state.params), metrics))

    result = plane(None, None, HELD_OUT, eval_every=3, num_steps=5, hook=hook, optimizer=SGD)
    assert events == [
        ("compiled", 1), ("step", 1), ("step", 2), ("train", 2), ("step", 3), ("evaluate", 3),
        ("eval", 3), ("step", 4), ("train", 4), ("step", 5), ("train", 5), ("evaluate", 5),
        ("eval", 5),
    ]  # fmt: skip
    for event, step, params, metrics in calls:
        assert (metrics["split"], metrics["step"]) == (event, step)
        assert_close(params, loop(SGD, step)[0])
        if event == "eval":
            assert metrics["loss"] == pytest.approx(mean_error(params), rel=1e-5)
    assert calls[-1][3]["loss"] == result.history[-1]["loss"]
    assert_equal(calls[-1][2], result.state.params)


def test_the_first_step_of_each_shape_of_a_batch_is_told_as_compiled():
    events = []
    short = lambda step, batch: {name: x[:4] for name, x in batch.items()} if step == 2 else {}  # noqa: E731
    run(None, None, Changed(short), hook=events_to(events), num_steps=4)
    assert [step for event, step in events if event == "compiled"] == [1, 3]


@pytest.mark.slow
def test_saves_are_told_before_and_when_the_step_is_in_place(tmp_path):
    told = []

    def hook(event, step, *rest):
        told.append((event, step))
        assert event != "saved" or step in CheckpointStore(tmp_path / "checkpoints").steps()

    plane(tmp_path, hook=hook)
    told = [entry for entry in told if "save" in entry[0]]
    assert sorted(told) == [("save", 2), ("save", 4), ("saved", 2), ("saved", 4)]
    assert told.index(("save", 4)) < told.index(("saved", 4))


def test_the_step_after_a_hook_donates_the_buffers_of_its_state():
    states, copies = [], []

    def hook(event, step, state, metrics):
        if event == "train":
            states.append(state)
            copies.append(jax.tree.map(jnp.copy, state.params))

    result = plane(hook=hook, optimizer=SGD)
    assert states[0].params["w"].is_deleted()
    assert_close(copies[0], loop(SGD, 2)[0])
    assert_close(copies[1], result.state.params)


LINEAR = OptimizerConfig(learning_rate=0.25, schedule="linear", ema_decay=0.5)
FALLING = [0.05 * 0.5 * (1 + np.cos(np.pi * count / 10)) for count in (1, 3)]
RATES = [
    (OptimizerConfig(learning_rate=0.25), {}, [0.25, 0.25]),
    (LINEAR, {}, [0.1875, 0.0625]),
    (OptimizerConfig(learning_rate=0.25, schedule="staircase", decay_every=2, reset_moments=True),
     {}, [0.125, 0.0625]),
    (optax.inject_hyperparams(optax.adam)(learning_rate=COSINE), {}, FALLING),
    (optax.MultiSteps(optax.inject_hyperparams(optax.sgd)(COSINE), 1), {}, FALLING),
    # The lines of a sweep name their lane by the peak of the rate.
    (LINEAR, {"sweep": (0.25, 0.5), "steps": 2}, [0.25, 0.5]),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "options", "rates"), RATES)
def test_the_log_has_the_learning_rate_of_the_last_update(optimizer, options, rates):
    log = []
    plane(optimizer=optimizer, hook=lines_to(log), **options)
    found = [line["learning_rate"] for line in lines(log, "train")]
    np.testing.assert_allclose(found, rates, rtol=1e-6)


@pytest.mark.slow
def test_the_tracker_of_the_page_receives_the_metrics():
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    code = next(part for part in text.split("\n```")[1::2] if "wandb.log(" in part)
    sent = []
    scope = {"wandb": types.SimpleNamespace(log=lambda metrics, step: sent.append((step, metrics)))}
    exec(compile(code, "training.md", "exec"), scope)
    plane(evaluation=HELD_OUT, optimizer=SGD, hook=scope["write"])
    assert [step for step, _ in sent] == [2, 2, 4, 4]
    loss = mean_error(loop(SGD, 4)[0])
    assert sent[-1][1]["eval/loss"] == pytest.approx(loss, rel=1e-4)
