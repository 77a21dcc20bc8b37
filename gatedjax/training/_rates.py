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
    """The learning rates in the last update of an optimizer, read from its state or, for a
    schedule, computed from the count there. A constant rate outside the state is not found.
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
        """Returns the rates by name, "learning_rate_GROUP" for the groups of `optax.partition`."""
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
    is_count = lambda node: isinstance(node, optax.ScaleByScheduleState)  # noqa: E731
    nodes = jax.tree.leaves(opt_state, is_leaf=is_count)
    return [node.count for node in nodes if is_count(node)]


def _group(path: tuple[Any, ...]) -> str | None:
    keys = [entry.key for entry in path if isinstance(entry, jax.tree_util.DictKey)]
    labels = [str(key) for key in keys if key != NAME]
    return "_".join(labels) or None


def _scheduled_rate(tx: optax.GradientTransformation) -> Callable[[Any], Any] | None:
    # No state of Optax has the schedule, only the functions of the update do.
    found = {id(schedule): schedule for schedule in _closed_over(tx, set())}
    return next(iter(found.values())) if len(found) == 1 else None


def _closed_over(value: Any, seen: set[int]) -> Iterator[Callable[[Any], Any]]:
    """Yields the schedules that `optax.scale_by_learning_rate` received inside a transformation."""
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
