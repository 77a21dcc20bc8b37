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


def run(task, folder, batch=BATCH):
    config = TrainConfig(
        num_steps=2,
        eval_every=1,
        progress=False,
        parallel="single",
        best_metric="loss",
        best_mode="min",
        optimizer=OptimizerConfig(name="sgd", learning_rate=0.01),
    )
    return fit(task, [batch] * 2, [batch], config, folder)


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


class Scaled(Line):
    """A line of which the first slope is a number that Python computes from the first batch."""

    def init(self, key, batch):
        return {"w": jnp.full(7, float(batch["x"][0]) if self.reads_values else batch["x"][0])}

    def __init__(self, reads_values):
        super().__init__(slope=4.5, name="error")
        self.reads_values = reads_values


class Shaped(Line):
    """A line that computes with the first batch, as a network whose parameters have its shapes."""

    def init(self, key, batch):
        jnp.tanh(batch["x"])
        return super().init(key, batch)


def test_another_first_batch_compiles_no_program(tmp_path):
    """The order of the texts depends on the seed, and so does the first batch."""
    other = BATCH | {"x": np.arange(5, dtype=np.float32)}
    run(Shaped(slope=6.25), tmp_path / "a")
    with counting() as compiled:
        run(Shaped(slope=6.25), tmp_path / "b", other)
    assert compiled == []


def test_a_task_that_computes_with_the_first_batch_in_python_starts_from_its_values(tmp_path):
    batch = BATCH | {"x": np.full(5, 1.5, np.float32)}
    traced = run(Scaled(reads_values=False), tmp_path / "a", batch).state.params
    known = run(Scaled(reads_values=True), tmp_path / "b", batch).state.params
    np.testing.assert_array_equal(known["w"], traced["w"])
    # Another batch is no constant of the program of the first.
    doubled = run(Scaled(reads_values=True), tmp_path / "c", BATCH | {"x": np.full(5, 3.0, "f4")})
    assert not np.array_equal(doubled.state.params["w"], known["w"])
