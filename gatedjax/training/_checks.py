"""What `fit` refuses at once, before it writes anything: what would fail or mislead much later."""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
import optax

from gatedjax.training.config import OptimizerConfig, TrainConfig
from gatedjax.training.metrics import Ratio
from gatedjax.training.step import init_carry, step_rngs
from gatedjax.training.task import AnyTask, Batch, is_stateful


def check_config(config: Any) -> None:
    """Refuses anything but a `TrainConfig`."""
    if not isinstance(config, TrainConfig):
        raise TypeError(f"config must be a TrainConfig, got {type(config).__name__}")


def check_optimizer(optimizer: Any, config: TrainConfig) -> None:
    """Refuses an optimizer that is no Optax transformation, or stands beside a configured one."""
    if optimizer is None:
        return
    if not isinstance(optimizer, optax.GradientTransformation):
        hint = (
            ": an OptimizerConfig belongs into TrainConfig(optimizer=...)"
            if isinstance(optimizer, OptimizerConfig)
            else ""
        )
        raise TypeError(
            "optimizer must be an optax.GradientTransformation, got "
            f"{type(optimizer).__name__}{hint}"
        )
    if config.optimizer != OptimizerConfig():
        raise ValueError("optimizer and config.optimizer exclude each other: give one of them")


def check_task(task: Any, evaluates: bool) -> None:
    """Refuses a task without the methods that the run calls."""
    for name in ("init", "loss", "evaluate")[: 3 if evaluates else 2]:
        if not callable(getattr(task, name, None)):
            raise TypeError(f"task must have a method {name!r}, {type(task).__name__} has none")


def check_batch(batch: Any, name: str) -> None:
    """Refuses what is no batch of at least one row."""
    if not isinstance(batch, Mapping):
        raise TypeError(f"{name} must be a dict of arrays, got {type(batch).__name__}")
    if "weight" not in batch:
        raise ValueError(
            f"batch needs 'weight' (1 = example, 0 = filler), {name} has {sorted(batch)}"
        )
    shape = np.shape(batch["weight"])
    if len(shape) != 1 or shape[0] < 1:
        raise ValueError(
            f"{name} must have at least one row, its 'weight' has the shape {list(shape)}"
        )


def first_batch(train_data: Any, num_steps: int) -> Batch:
    """The batch of step 0, of training data that can serve so many steps."""
    if not hasattr(train_data, "__getitem__"):
        raise TypeError(
            "train_data must give the batch of a step as train_data[step], got "
            f"{type(train_data).__name__}"
        )
    ends = isinstance(train_data, list | tuple) or getattr(train_data, "one_pass", False)
    if ends and len(train_data) < num_steps:
        raise ValueError(f"train_data has {len(train_data)} batches for {num_steps} steps")
    try:
        batch = train_data[0]
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(
            f"train_data[0] must be the batch of step 0, got {type(error).__name__}: {error}"
        ) from error
    check_batch(batch, "train_data[0]")
    return batch


def first_evaluation_batch(eval_data: Any) -> Batch | None:
    """The first batch of evaluation data that can be passed over again and again."""
    if eval_data is None:
        return None
    if isinstance(eval_data, Iterator):
        raise TypeError(
            f"eval_data must be something to iterate again for every evaluation, such as a list; "
            f"a {type(eval_data).__name__} is spent after the first"
        )
    if isinstance(eval_data, Mapping):
        raise TypeError("eval_data must be a list of batches, got one dict")
    try:
        batch = next(iter(eval_data), None)
    except TypeError:
        raise TypeError(
            f"eval_data must be a list of batches, got {type(eval_data).__name__}"
        ) from None
    if batch is None:
        raise ValueError("eval_data has no batches: give None for a run without evaluations")
    check_batch(batch, "the first batch of eval_data")
    return batch


def _check_ratios(metrics: Any, what: str) -> None:
    if not isinstance(metrics, Mapping):
        raise TypeError(f"metrics of {what} must be a dict, got {type(metrics).__name__}")
    for name, ratio in metrics.items():
        if not isinstance(ratio, Ratio):
            raise TypeError(f"metrics of {what} must be Ratio, {name!r} is {type(ratio).__name__}")
        shapes = [list(np.shape(value)) for value in (ratio.total, ratio.count)]
        if shapes != [[], []]:
            raise ValueError(
                f"metrics of {what} must be scalars, {name!r} has total and count of the shapes "
                f"{shapes[0]} and {shapes[1]}"
            )


def check_outputs(
    task: AnyTask, params: Any, batch: Batch, evaluation: Batch | None, best_metric: str
) -> None:
    """Refuses a task whose loss or evaluation gives what no run could use; computes nothing.

    Args:
      task: the model.
      params: shapes and dtypes of its parameters.
      batch: the first one of training.
      evaluation: the first one of evaluation; None if nothing is evaluated.
      best_metric: `TrainConfig.best_metric`.
    """

    def carried(batch: Batch) -> tuple[Any, ...]:
        return (jax.eval_shape(lambda: init_carry(task, batch)),) if is_stateful(task) else ()

    rngs = jax.eval_shape(lambda: step_rngs(jax.random.key(0), 0))
    pair = jax.eval_shape(task.loss, params, batch, rngs, *carried(batch))
    wanted = "(loss, (metrics, carry))" if is_stateful(task) else "(loss, metrics)"
    try:
        total, metrics = pair
        if is_stateful(task):
            metrics, _ = metrics
    except (TypeError, ValueError):
        raise TypeError(f"loss must return {wanted}, got {type(pair).__name__}") from None
    if np.shape(total) != () or not np.issubdtype(total.dtype, np.inexact):
        raise ValueError(
            f"loss must be a float scalar, the sum over the rows, got {total.dtype}"
            f"{list(np.shape(total))}"
        )
    _check_ratios(metrics, "the loss")
    if "loss" not in metrics:
        raise ValueError(f"metrics of the loss must have 'loss', got {sorted(metrics)}")
    if evaluation is None:
        return
    found = jax.eval_shape(task.evaluate, params, evaluation, *carried(evaluation))
    wanted = "(metrics, predictions, carry)" if is_stateful(task) else "(metrics, predictions)"
    if not isinstance(found, tuple) or len(found) != wanted.count(",") + 1:
        raise TypeError(f"evaluate must return {wanted}, got {type(found).__name__}")
    _check_ratios(found[0], "evaluate")
    if best_metric not in found[0]:
        raise ValueError(f"best_metric must be one of {sorted(found[0])}, got {best_metric!r}")
