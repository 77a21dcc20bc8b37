"""Paths, shapes and dtypes of the parameters of every model, frozen ones and carries included."""

from typing import Any

import jax

from gatedjax import models
from tests.equality._golden import golden, shapes
from tests.models._losses import losses

LOSSES = losses()


def described(name: str) -> dict[str, Any]:
    """What a checkpoint of a task has of its parameters, from shapes alone."""
    task, batch = LOSSES[name].task, LOSSES[name].batch
    found = {"task": type(task).__name__, "frozen": list(getattr(task, "frozen", ()))}
    found["parameters"] = shapes(LOSSES[name].shapes)
    if hasattr(task, "init_carried"):
        carry = jax.tree.leaves_with_path(jax.eval_shape(task.init_carried, None, batch).rows)
        found["carry"] = {
            jax.tree_util.keystr(path): f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in carry
        }
    return found


def found() -> dict[str, Any]:
    """Every task of the table."""
    return {name: described(name) for name in LOSSES}


def test_every_task_of_the_library_is_here():
    assert golden("parameters").keys() == LOSSES.keys()
    here = {type(loss.task) for loss in LOSSES.values()}
    for name in dir(models):
        if name.endswith("Task"):
            assert any(issubclass(kind, getattr(models, name)) for kind in here), name
