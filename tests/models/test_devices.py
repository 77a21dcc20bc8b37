"""Every task under `shard_map` with checked types and on a mesh with explicit axes."""

import functools

import jax
import numpy as np
import pytest

from gatedjax import models
from tests._modes import MODES, assert_same, run
from tests._slow import slow_but
from tests.models._losses import losses

LOSSES = losses()
NETWORKS = [name for name in LOSSES if "," not in name]
STREAMS = {"dropout": np.array([0, 1], np.uint32), "gate": np.array([0, 2], np.uint32)}


def loss_and_gradient(case, shared, rows, total):
    params, streams = shared
    batch, *carry = rows
    rngs = {name: jax.random.wrap_key_data(data) for name, data in streams.items()}

    def loss(params):
        value, found = case.task.loss(params, batch, rngs, *carry)
        return value, found if carry else (found, ())

    (value, (metrics, carry)), gradient = jax.value_and_grad(loss, has_aux=True)(params)
    return (total((value, metrics)), gradient), carry


def evaluation(case, shared, rows, total):
    metrics, *by_row = case.task.evaluate(shared[0], *rows)
    return total(metrics), tuple(by_row)


def arguments(case):
    rows = (case.batch,) if case.carry is None else (case.batch, case.carry)
    return (case.params, STREAMS), rows


def test_every_task_has_a_loss_here():
    tasks = {name for name in vars(models) if name.endswith("Task")}
    assert {type(case.task).__name__ for case in LOSSES.values()} | {"ClozeTask"} == tasks


@pytest.mark.parametrize("mode", slow_but(MODES, "explicit"))
@pytest.mark.parametrize("name", slow_but(LOSSES, *NETWORKS))
def test_loss_gradient_and_evaluation_are_traced(name, mode):
    """Where the modes ask more of a program than one device does, they refuse it while tracing."""
    case = LOSSES[name]

    def both(shared, rows, total):
        one, two = (f(case, shared, rows, total) for f in (loss_and_gradient, evaluation))
        return (one[0], two[0]), (one[1], two[1])

    run(mode, both, *arguments(case), only_trace=True)


@functools.cache
def found_in(mode, name):
    function = functools.partial(loss_and_gradient, LOSSES[name])
    return run(mode, function, *arguments(LOSSES[name]))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NETWORKS)
def test_loss_and_gradient_are_those_of_one_device(name, mode):
    assert_same(found_in(mode, name), found_in("one", name))
