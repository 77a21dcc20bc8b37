"""The learning rates of an optimizer, for the lines of metrics.jsonl."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gatedjax.training.config import OptimizerConfig, learning_rate_of

NAME = "learning_rate"


class LearningRates:
    """The learning rates in the last update of an optimizer.

    They are read from the state of the optimizer, where `optax.inject_hyperparams` and the line
    searches of Optax store them. A schedule, which the state only has the count of, is computed for
    the last update. A constant rate of another transformation of Optax is not found.

    Args:
      tx: the optimizer.
      config: the `OptimizerConfig` from which `make_optimizer` built `tx`; None if `tx` is another
        transformation of Optax.
      num_steps: the number of steps of the run.
    """

    def __init__(
        self, tx: optax.GradientTransformation, config: OptimizerConfig | None, num_steps: int
    ) -> None:
        self._constant: float | None = None
        self._schedule: Callable[[Any], Any] | None = None
        rate = _scheduled_rate(tx) if config is None else learning_rate_of(config, num_steps)
        if callable(rate):
            # A compiled schedule costs less than its many small operations.
            self._schedule = jax.jit(lambda count: rate(jnp.maximum(count - 1, 0)))
        else:
            self._constant = rate

    def read(self, opt_state: Any) -> dict[str, np.ndarray]:
        """Returns the rates of the last update by name, {} if the optimizer has none.

        A single rate has the name "learning_rate", and the rates of the groups of
        `optax.partition` have names such as "learning_rate_encoder".

        Args:
          opt_state: the state of the optimizer. With a leading axis over runs, the rates have this
            axis as well.
        """
        if self._constant is not None:
            return {NAME: np.asarray(self._constant)}
        if self._schedule is not None:
            counts = jax.device_get(_schedule_counts(opt_state))
            # With several counts that differ the schedule could belong to any of them.
            if not counts or any(not np.array_equal(counts[0], count) for count in counts):
                return {}
            return {NAME: np.asarray(self._schedule(counts[0]))}
        stored = [
            (path, value)
            for path, value in optax.tree.get_all_with_path(opt_state, NAME)
            # The state of an injected schedule is stored under the same name.
            if isinstance(value, jax.Array | np.ndarray)
        ]
        if not stored:
            return {}
        values = jax.device_get([value for _, value in stored])
        if len(stored) == 1:
            return {NAME: values[0]}
        groups = [_group(path) for path, _ in stored]
        is_named = None not in groups and len(set(groups)) == len(groups)
        names = [f"{NAME}_{group if is_named else i}" for i, group in enumerate(groups)]
        return dict(zip(names, values, strict=True))


def _schedule_counts(opt_state: Any) -> list[Any]:
    """Returns the count of updates in each `optax.ScaleByScheduleState` of an optimizer state.

    The counts are integer arrays. `opt_state` is the state of any transformation of Optax.
    """
    is_count = lambda node: isinstance(node, optax.ScaleByScheduleState)  # noqa: E731
    nodes = jax.tree.leaves(opt_state, is_leaf=is_count)
    return [node.count for node in nodes if is_count(node)]


def _group(path: tuple[Any, ...]) -> str | None:
    """Returns the label of a group of `optax.partition`, such as "encoder".

    `path` is the key path of an array in the optimizer state. The result is None for an array that
    belongs to no group.
    """
    keys = [entry.key for entry in path if isinstance(entry, jax.tree_util.DictKey)]
    labels = [str(key) for key in keys if key != NAME]
    return "_".join(labels) or None


def _scheduled_rate(tx: optax.GradientTransformation) -> Callable[[Any], Any] | None:
    """Returns the schedule of the learning rate of the optimizer `tx`; None unless it has one.

    A schedule maps the number of updates to the rate. The state of an Optax transformation does not
    have it, so that it is looked for in the functions that the update closes over. With several
    schedules the result is None.
    """
    found = {id(schedule): schedule for schedule in _closed_over(tx, set())}
    return next(iter(found.values())) if len(found) == 1 else None


def _closed_over(value: Any, seen: set[int]) -> Iterator[Callable[[Any], Any]]:
    """Yields the schedules that `optax.scale_by_learning_rate` received inside a transformation.

    Args:
      value: a transformation, a function, or a container of these.
      seen: the ids of the functions visited so far, to which the call adds. The first caller
        passes an empty set.
    """
    if isinstance(value, optax.GradientTransformation):
        yield from _closed_over(value.update, seen)
    elif isinstance(value, optax.MultiSteps):
        yield from _closed_over(vars(value), seen)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _closed_over(item, seen)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _closed_over(item, seen)
    elif callable(value) and id(value) not in seen:
        seen.add(id(value))
        yield from _closed_over_by(value, seen)


def _closed_over_by(function: Any, seen: set[int]) -> Iterator[Callable[[Any], Any]]:
    # Only the functions of Optax and of this library are known to build transformations.
    if not str(getattr(function, "__module__", "")).startswith(("optax.", "gatedjax.")):
        return
    # A bound method, such as that of `optax.MultiSteps`, has its variables in its object.
    yield from _closed_over(getattr(function, "__self__", None), seen)
    function = getattr(function, "__func__", function)
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    values = {}
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=True):
        with contextlib.suppress(ValueError):  # the cell of a name that is not assigned yet
            values[name] = cell.cell_contents
    is_rate = getattr(function, "__qualname__", "").startswith("scale_by_learning_rate.")
    if is_rate and callable(values.get(NAME)):
        yield values[NAME]
    else:
        yield from _closed_over(values, seen)
