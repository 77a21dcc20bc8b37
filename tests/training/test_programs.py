"""Runs of a process share the compiled programs of equal tasks."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax.training import OptimizerConfig, Ratio, TrainConfig, fit
from gatedjax.training._programs import SharedProgram

COMPILED = "/jax/core/compile/backend_compile_duration"


@contextlib.contextmanager
def counting():
    """A list that gets an entry for each program that is compiled, or read from JAX's cache."""
    events = []
    listener = lambda name, seconds, **more: events.append(name) if name == COMPILED else None  # noqa: E731
    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        yield events
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)


class Line:
    """Fits y = w x; the numbers are those of this file alone, so that no other test shares them."""

    def __init__(self, slope=2.375, name="loss"):
        self.slope, self.name = slope, name

    def init(self, key, batch):
        return {"w": jax.random.normal(key, (7,))}

    def loss(self, params, batch, rngs):
        errors = batch["weight"] * jnp.sum((params["w"] - self.slope) ** 2) * batch["x"]
        ratio = Ratio.of(errors, batch["weight"])
        return errors.sum(), {"loss": ratio, self.name: ratio}

    def evaluate(self, params, batch):
        return {"loss": Ratio.of(batch["x"] * jnp.sum(params["w"]), batch["weight"])}, {}


BATCH = {"x": np.ones(5, np.float32), "weight": np.ones(5, np.float32)}


def run(task, folder):
    config = TrainConfig(
        num_steps=2,
        eval_every=1,
        progress=False,
        parallel="single",
        best_metric="loss",
        best_mode="min",
        optimizer=OptimizerConfig(name="sgd", learning_rate=0.01),
    )
    return fit(task, [BATCH] * 2, [BATCH], config, folder)


def test_a_second_equal_run_compiles_nothing_and_has_the_same_bits(tmp_path):
    first = run(Line(), tmp_path / "a")
    with counting() as compiled:
        second = run(Line(), tmp_path / "b")
    assert not compiled
    np.testing.assert_array_equal(first.state.params["w"], second.state.params["w"])


@pytest.mark.parametrize("other", [Line(slope=2.5), Line(name="error")], ids=["constant", "name"])
def test_another_constant_or_another_name_of_a_metric_is_another_program(other, tmp_path):
    first = run(Line(), tmp_path / "a")
    result = run(other, tmp_path / "b")
    logged = (tmp_path / "b" / "metrics.jsonl").read_text()
    assert ("error" in logged) == (other.name == "error")
    same = np.array_equal(first.state.params["w"], result.state.params["w"])
    assert same == (other.slope == Line().slope)


def test_programs_that_call_python_are_not_shared():
    def make(number):
        def function(x):
            shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
            return jax.pure_callback(lambda v: np.asarray(v) + np.float32(number), shape, x)

        return SharedProgram(function, None, "test")

    x = np.zeros(3, np.float32)
    assert [float(make(number)(x)[0]) for number in (1, 2)] == [1.0, 2.0]


def test_closed_over_arrays_and_shapes_tell_programs_apart():
    def make(array):
        return SharedProgram(lambda batch: batch["x"].sum() + array.sum(), 0, "test")

    small, large = np.full(3, 2.0, np.float32), np.full(9000, 1.0, np.float32)
    ones = {"x": np.ones(4, np.float32)}
    assert float(make(jnp.asarray(small))(ones)) == 10
    assert float(make(jnp.asarray(large))(ones)) == 9004
    assert float(make(jnp.asarray(2 * large))(ones)) == 18004
    program = make(jnp.asarray(small))
    assert float(program(ones)) == 10
    assert float(program({"x": np.ones(6, np.float32)})) == 12
