"""Checks at the start of `fit`, before it writes files.

They refuse arguments that would fail or mislead much later in a run.
"""

import dataclasses
import functools
import numbers
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
import optax

from gatedjax.training._reach import unreached_parameters
from gatedjax.training._transforms import as_transformation, is_key
from gatedjax.training.config import OptimizerConfig, TrainConfig
from gatedjax.training.identity import (
    describe,
    describe_arrays,
    differences,
    named_leaves,
    program_of,
)
from gatedjax.training.metrics import Ratio
from gatedjax.training.step import TrainState, init_carry
from gatedjax.training.task import AnyTask, Batch, call_evaluate, has_summary


def config_with_steps(config: Any, steps: int | None) -> TrainConfig:
    """Returns the training options with `steps`, if given, in place of `num_steps`."""
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, numbers.Integral)):
        raise TypeError(f"steps must be an integer, got {steps!r}")
    if config is None:
        config = TrainConfig()
    if not isinstance(config, TrainConfig):
        raise TypeError(f"config must be a TrainConfig, got {type(config).__name__}")
    return config if steps is None else dataclasses.replace(config, num_steps=steps)


def check_optimizer(optimizer: Any, config: TrainConfig) -> Any:
    """Returns the optimizer as an Optax transformation, or None if `optimizer` is None."""
    if optimizer is None:
        return None
    optimizer = as_transformation(optimizer)
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
        raise ValueError("optimizer must be None with config.optimizer, got both: give one of them")
    return optimizer


def digest_optimizer(tx: optax.GradientTransformation, params: Any) -> str:
    """Returns a hash of the lowered `init` and `update` of an optimizer, as a text."""
    try:
        return program_of(tx, params)
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise TypeError(
            "optimizer must update the parameters of this task given (gradient, state, params, "
            f"value=, grad=, value_fn=), got an error: {error}"
        ) from error


def check_eval_params(point: Callable[..., Any], state: TrainState) -> None:
    """Checks a function for `fit(eval_params=...)` by the shapes of its result."""
    try:
        # The function is traced and not computed, because the check must be fast and the state has
        # only shapes.
        result = jax.eval_shape(point, state.params, state.opt_state)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise TypeError(
            "eval_params must compute parameters from (params, opt_state) of this task and "
            f"optimizer, got an error, so give fit another eval_params=: {error}"
        ) from error
    # The structure is compared as well, because two trees may have the same dotted names.
    lines = differences(describe_arrays(state.params), describe_arrays(result))
    is_same: Any = jax.tree.structure(result) == jax.tree.structure(state.params)  # type: ignore[operator]
    if lines or not is_same:
        raise ValueError(
            "eval_params must return parameters with the names, shapes and dtypes of those of the "
            "task:\n  " + "\n  ".join(lines).replace("saved", "wanted").replace("now", "got")
        )


def check_task(task: Any, evaluates: bool) -> None:
    """Raises TypeError if a task lacks a method that the run calls."""
    for name in ("init", "loss", "evaluate")[: 3 if evaluates else 2]:
        if not callable(getattr(task, name, None)):
            raise TypeError(f"task must have a method {name!r}, got {type(task).__name__} without")


def check_batch(batch: Any, name: str) -> None:
    """Raises TypeError or ValueError unless `batch` is a dict of arrays with at least one row and
    finite weights of at least 0; the weight of a filler row is 0.
    """
    if not isinstance(batch, Mapping):
        raise TypeError(f"{name} must be a dict of arrays, got {type(batch).__name__}")
    if "weight" not in batch:
        raise ValueError(
            f"{name} must have 'weight' (1 = example, 0 = filler), got {sorted(batch)}"
        )
    shape = np.shape(batch["weight"])
    if len(shape) != 1 or shape[0] < 1:
        raise ValueError(f"{name} must have at least one row, got 'weight' of shape {list(shape)}")
    weight = np.asarray(batch["weight"])
    # NaN is neither below infinity nor at least 0.
    if len(wrong := np.flatnonzero(~((weight >= 0) & (weight < np.inf)))):
        raise ValueError(
            f"{name} must have a finite 'weight' of at least 0 in each row, got {weight[wrong[0]]} "
            f"in row {wrong[0]}: give 0 for a row that does not count"
        )


def iterate_batches(eval_data: Any, name: str = "eval_data") -> Iterator[Batch]:
    """Returns an iterator over the batches of an evaluation pass."""
    # Many datasets of PyTorch return a batch for every index, so that Python would never end.
    if hasattr(eval_data, "__getitem__") and not hasattr(eval_data, "__iter__"):
        try:
            count = len(eval_data)
        except TypeError:
            raise TypeError(
                f"{name} must be a list of batches, got {type(eval_data).__name__}, which has no "
                f"__len__ and may never end: give a list such as [{name}[0], {name}[1]]"
            ) from None
        return _iterate_by_index(eval_data, count, name)
    try:
        return iter(eval_data)
    except TypeError:
        raise TypeError(
            f"{name} must be a list of batches, got {type(eval_data).__name__}"
        ) from None


def _iterate_by_index(eval_data: Any, count: int, name: str) -> Iterator[Batch]:
    for index in range(count):
        try:
            batch = eval_data[index]
        except IndexError as error:
            raise ValueError(
                f"{name} must have len({name}) = {count} batches, got IndexError for "
                f"{name}[{index}]: return the number of batches from __len__"
            ) from error
        yield batch


def first_evaluation_batch(eval_data: Any) -> Batch | None:
    """Returns the first batch of the evaluation data, a dict of arrays; None without data."""
    if eval_data is None:
        return None
    if isinstance(eval_data, Iterator):
        raise TypeError(
            "eval_data must be a list of batches, or another iterable that each evaluation can "
            f"read again, got {type(eval_data).__name__}"
        )
    # A dict can be iterated again, but it would yield the names of its arrays.
    if isinstance(eval_data, Mapping):
        raise TypeError("eval_data must be a list of batches, got one dict")
    batch = next(iterate_batches(eval_data), None)
    if batch is None:
        raise ValueError("eval_data must not be empty: give None for a run without evaluations")
    check_batch(batch, "the first batch of eval_data")
    return batch


def _check_ratios(metrics: Any, source: str) -> None:
    """Raises TypeError or ValueError unless `metrics` is a dict of `Ratio`s with scalar fields."""
    if not isinstance(metrics, Mapping):
        raise TypeError(f"metrics of {source} must be a dict, got {type(metrics).__name__}")
    for name, ratio in metrics.items():
        if not isinstance(ratio, Ratio):
            is_array = isinstance(ratio, jax.Array | jax.ShapeDtypeStruct)
            kind = "an array" if is_array else type(ratio).__name__
            raise TypeError(f"metrics of {source} must be Ratio, got {kind} as {name!r}")
        shapes = [list(np.shape(value)) for value in (ratio.total, ratio.count)]
        if shapes != [[], []]:
            raise ValueError(
                f"metrics of {source} must be scalars, got {name!r} with total and count of the "
                f"shapes {shapes[0]} and {shapes[1]}"
            )


def check_arrays(state: TrainState) -> None:
    """Raises TypeError for arrays that a step cannot train or that a checkpoint cannot hold."""
    # The state of the optimiser may have PRNG keys, because `keys_as_data` converts them.
    named = named_leaves(dataclasses.replace(state, opt_state=None))
    for name, leaf in named.items():
        if is_key(leaf):
            raise TypeError(
                f"{name} must not be a PRNG key, which no checkpoint holds: keep "
                "jax.random.key_data(key) in a model state, or draw from the rngs of the loss"
            )
        if name.partition(".")[0] == "params" and not jax.dtypes.issubdtype(leaf.dtype, np.inexact):
            raise TypeError(
                f"{name} must be an array of floating-point numbers, got {describe(leaf)}: what is "
                "not trained belongs into the model state (gatedjax.training.ModelStateTask)"
            )


def check_callbacks(callbacks: Any) -> tuple[Callable[..., None], ...]:
    """Returns the argument `callbacks` of `fit`, a tuple or list of functions, as a tuple."""
    if not isinstance(callbacks, tuple | list) or not all(map(callable, callbacks)):
        raise TypeError(
            "callbacks must be a tuple of functions (step, state, metrics), such as "
            f"callbacks=(print_loss,), got {callbacks!r:.200}"
        )
    return tuple(callbacks)


def fit_params(params: Any, like: Any) -> Any:
    """Returns the argument `params` of `fit` in the structure of `like`, after checking it."""
    # JAX stores float64 arrays of NumPy as float32 unless 64 bits are enabled.
    arrays = {}
    for name, leaf in named_leaves(jax.device_get(params)).items():
        array = np.asarray(leaf)
        arrays[name] = array.astype(jax.dtypes.canonicalize_dtype(array.dtype))
    wanted = describe_arrays(like)
    if lines := differences(wanted, {name: describe(leaf) for name, leaf in arrays.items()}):
        raise ValueError(
            "params must have the names, shapes and dtypes of task.init:\n  "
            + "\n  ".join(lines).replace("saved", "wanted").replace("now", "got")
        )
    # A step changes no parameter while one of them is not finite, so that nothing would be trained.
    for name in wanted:
        if not (is_finite := np.isfinite(arrays[name])).all():
            raise ValueError(
                f"params must have finite numbers, got {np.sum(~is_finite)} of "
                f"{is_finite.size} numbers of {name} that are NaN or infinite: give parameters "
                "of an earlier checkpoint"
            )
    return jax.tree.unflatten(jax.tree.structure(like), [arrays[name] for name in wanted])


def check_outputs(
    task: AnyTask, state: TrainState, batch: Batch, evaluation: Batch | None, best_metric: str
) -> frozenset[str]:
    """Checks loss and evaluation by tracing; returns the paths that the gradient does not reach."""

    def check(total: Any, metrics: Any, carry: Any, model_state: Any) -> None:
        if np.shape(total) != () or not np.issubdtype(total.dtype, np.inexact):
            raise ValueError(
                f"loss must be a float scalar, the sum over the rows, got {total.dtype}"
                f"{list(np.shape(total))}"
            )
        _check_ratios(metrics, "the loss")
        if "loss" not in metrics:
            raise ValueError(f"metrics of the loss must have 'loss', got {sorted(metrics)}")
        lines = differences(describe_arrays(state.model_state), describe_arrays(model_state))
        if lines:
            raise ValueError(
                "the loss must return a model state with the arrays of init_model_state:\n  "
                + "\n  ".join(lines).replace("saved", "wanted").replace("now", "got")
            )

    unreached = unreached_parameters(task, state, batch, check)
    if evaluation is None:
        return unreached
    carry = jax.eval_shape(lambda: init_carry(task, evaluation))
    metrics, _, _ = jax.eval_shape(
        functools.partial(call_evaluate, task), state.params, evaluation, carry, state.model_state
    )
    _check_ratios(metrics, "evaluate")
    # The names of `summarise` are known only after an evaluation, see `Record.add_evaluation`.
    if best_metric not in metrics and not has_summary(task):
        raise ValueError(
            f"best_metric must be one of {sorted(metrics)}, the metrics of evaluate, got "
            f"{best_metric!r}: give config=TrainConfig(best_metric=...)"
        )
    return unreached
