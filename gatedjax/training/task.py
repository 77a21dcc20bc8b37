"""The methods that training requires of a model."""

from collections.abc import Collection, Mapping
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from gatedjax.training.metrics import Ratio

Batch = dict[str, Any]
Carry = Any
"""A tree of arrays with the leading axis B, which each row passes on to the next batch."""


@runtime_checkable
class Task(Protocol):
    """A model with its loss, for `fit`: an object of any class with these methods.

    Without evaluation data, `init` and `loss` are enough. A batch is a dict of arrays with a
    leading axis B: the arrays that the model reads, "weight" [B], 1 for examples and 0 for the rows
    that fill up a last batch, and for random draws "example_id" int [B], the number of the example.

        >>> class Scale:
        ...     def init(self, key, batch):
        ...         return {"w": jax.random.normal(key)}
        ...     def loss(self, params, batch, rngs):
        ...         errors = batch["weight"] * (params["w"] * batch["x"] - batch["y"]) ** 2
        ...         return errors.sum(), {"loss": Ratio.of(errors, batch["weight"])}
        ...     def evaluate(self, params, batch):
        ...         y = params["w"] * batch["x"]
        ...         return {"error": Ratio.of(abs(y - batch["y"]), batch["weight"])}, {"y": y}
        >>> isinstance(Scale(), Task)
        True
    """

    def init(self, key: jax.Array, batch: Batch) -> Any:
        """Returns the initial parameters, a tree of arrays.

        Args:
          key: a PRNG key.
          batch: a batch with the names, shapes and dtypes of the batches in training.
        """

    def loss(
        self, params: Any, batch: Batch, rngs: dict[str, jax.Array]
    ) -> tuple[jax.Array, dict[str, Ratio]]:
        """Returns the loss summed over rows of weight 1, and metrics with at least "loss".

        The step divides by `metrics["loss"].count`, after summing it over devices. Random bits
        must depend on "example_id", so that they do not depend on the split of the batch.

        Args:
          params: the parameters, in the form that `init` returns.
          batch: the rows to learn from in this step.
          rngs: a PRNG key for each of the streams "dropout" and "gate", by name.

        Returns:
          (loss, metrics): a scalar, and a dict of `Ratio`s (sums and counts).
        """

    def evaluate(self, params: Any, batch: Batch) -> tuple[dict[str, Ratio], dict[str, jax.Array]]:
        """Returns metrics and predictions, both by name, for parameters and a batch.

        `params` is a tree of arrays, and `batch` a dict of arrays [B, ...]. The metrics are
        `Ratio`s (sums and counts) and must include `TrainConfig.best_metric`, unless `summarise`
        returns it. The predictions are arrays with the leading axis B.

        A task may also have a method `summarise(predictions)`, see `SummaryTask`.
        """


class SummaryTask(Protocol):
    """A task with metrics that are no mean over rows, such as AUC, macro F1 or BLEU.

    It is an object with the methods of a `Task`, a `StatefulTask` or a `ModelStateTask`, and with
    the method `summarise` in addition.

        >>> class Threshold:
        ...     def summarise(self, predictions):
        ...         return {"recall": float((predictions["score"] > 0.5).mean())}
        >>> has_summary(Threshold())
        True
    """

    def summarise(self, predictions: dict[str, np.ndarray]) -> dict[str, float]:
        """Returns metrics by name, computed from the predictions of a whole evaluation pass.

        It runs on the host, in Python, after each evaluation. Its metrics are logged like the
        metrics of `evaluate`, and `TrainConfig.best_metric` may name any of them.

        Args:
          predictions: the predictions of `evaluate` by name, NumPy arrays with a row for each real
            row of the data, in the order of the data. They must include the other arrays that the
            metric needs, such as the labels.
        """


@runtime_checkable
class StatefulTask(Protocol):
    """A task with a state that each row carries to the next batch, for windows of long texts.

    It is a `Task` with a loss and an evaluation that also take the carried state and return the
    next carried state, and with `init_carry`, which returns the first. Gradients do not flow into
    earlier steps. The carried state is part of the train state: it is split over devices like the
    rows, and saved in checkpoints. The task must reset it at rows that begin a new text.

        >>> class Sums:
        ...     def init(self, key, batch):
        ...         return {"w": jax.random.normal(key)}
        ...     def init_carry(self, batch):
        ...         return 0 * batch["x"]
        ...     def loss(self, params, batch, rngs, carry):
        ...         errors = batch["weight"] * (carry + params["w"] * batch["x"]) ** 2
        ...         metrics = {"loss": Ratio.of(errors, batch["weight"])}
        ...         return errors.sum(), (metrics, carry + batch["x"])
        >>> is_stateful(Sums())
        True
    """

    def init(self, key: jax.Array, batch: Batch) -> Any:
        """Returns the initial parameters, a tree of arrays.

        `key` is a PRNG key, and `batch` has the names, shapes and dtypes of the batches in
        training.
        """

    def init_carry(self, batch: Batch) -> Carry:
        """Returns the carried state before the first batch, a tree of arrays [B, ...].

        `batch` is a dict of arrays with the shapes of the batches in training.
        """

    def loss(
        self, params: Any, batch: Batch, rngs: dict[str, jax.Array], carry: Carry
    ) -> tuple[jax.Array, tuple[dict[str, Ratio], Carry]]:
        """Returns (loss, (metrics, new carry)), with the loss summed over rows of weight 1.

        `carry` is the state that the rows of the last batch passed on, a tree of arrays [B, ...],
        and the new carry is that for the next batch. The metrics are `Ratio`s by name and must
        include "loss". `params` are the parameters, `batch` is a dict of arrays, and `rngs` has a
        PRNG key for each of the streams "dropout" and "gate".
        """

    def evaluate(
        self, params: Any, batch: Batch, carry: Carry
    ) -> tuple[dict[str, Ratio], dict[str, jax.Array], Carry]:
        """Returns (metrics, predictions, new carry) for parameters, a batch and a carry.

        `params` is a tree of arrays, and `batch` a dict of arrays [B, ...]. `carry` is the state
        that the rows of the last batch passed on, a tree of arrays [B, ...], and the new carry is
        that for the next batch. The metrics are `Ratio`s by name, and the predictions arrays
        [B, ...] by name.
        """


@runtime_checkable
class ModelStateTask(Protocol):
    """A task with a model state that no gradient trains, such as the statistics of BatchNorm.

    It is a `Task` with a loss that also takes the model state and returns the next model state,
    with an evaluation that takes it, and with `init_model_state`, which returns the first. The
    model state is part of the train state: each device has the same copy, checkpoints save it, and
    a skipped update does not change it.

    The loss receives the whole batch, even with several devices, so that the model state depends on
    the whole batch. Filler rows, of weight 0, must not enter it (`flax.linen.BatchNorm` has
    `mask=`).

    A task may also have a carried state, which each row passes on to the next batch, as a
    `StatefulTask` has. Its loss takes (params, batch, rngs, carry, model_state) and returns (loss,
    (metrics, carry, model_state)).

        >>> class Centred:
        ...     def init(self, key, batch):
        ...         return {"w": jax.random.normal(key)}
        ...     def init_model_state(self, key, batch):
        ...         return {"mean": 0 * batch["x"][0]}
        ...     def loss(self, params, batch, rngs, model_state):
        ...         x, weight = batch["x"], batch["weight"]
        ...         errors = weight * (params["w"] * (x - model_state["mean"])) ** 2
        ...         new_state = {"mean": (weight * x).sum() / weight.sum()}
        ...         return errors.sum(), ({"loss": Ratio.of(errors, weight)}, new_state)
        >>> has_model_state(Centred())
        True
    """

    def init(self, key: jax.Array, batch: Batch) -> Any:
        """Returns the initial parameters, a tree of arrays.

        `key` is a PRNG key, and `batch` has the names, shapes and dtypes of the batches in
        training.
        """

    def init_model_state(self, key: jax.Array, batch: Batch) -> Any:
        """Returns the model state before the first step, a tree of arrays.

        `key` is a PRNG key, and `batch` has the names, shapes and dtypes of the batches in
        training.
        """

    def loss(
        self, params: Any, batch: Batch, rngs: dict[str, jax.Array], model_state: Any
    ) -> tuple[jax.Array, tuple[dict[str, Ratio], Any]]:
        """Returns (loss, (metrics, new model state)), with the loss summed over rows of weight 1.

        The new model state has the structure, shapes and dtypes of `model_state`. The metrics are
        `Ratio`s by name and must include "loss". `params` are the parameters, `batch` is a dict of
        arrays, and `rngs` has a PRNG key for each of the streams "dropout" and "gate".
        """

    def evaluate(
        self, params: Any, batch: Batch, model_state: Any
    ) -> tuple[dict[str, Ratio], dict[str, jax.Array]]:
        """Returns (metrics, predictions) for parameters, a batch and a model state.

        `params` and `model_state` are trees of arrays, and `batch` is a dict of arrays [B, ...].
        The metrics are `Ratio`s by name, and the predictions arrays [B, ...] by name. The model
        state is not changed.
        """


class TrainedTask(Protocol):
    """A task without an evaluation, for runs without evaluation data."""

    def init(self, key: jax.Array, batch: Batch) -> Any:
        """Returns the initial parameters, a tree of arrays."""

    def loss(
        self, params: Any, batch: Batch, rngs: dict[str, jax.Array]
    ) -> tuple[jax.Array, dict[str, Ratio]]:
        """Returns (loss, metrics), see `Task.loss`."""


class TrainedStatefulTask(Protocol):
    """A `StatefulTask` without an evaluation, for runs without evaluation data."""

    def init(self, key: jax.Array, batch: Batch) -> Any:
        """Returns the initial parameters, a tree of arrays."""

    def init_carry(self, batch: Batch) -> Carry:
        """Returns the carried state before the first batch, a tree of arrays [B, ...]."""

    def loss(
        self, params: Any, batch: Batch, rngs: dict[str, jax.Array], carry: Carry
    ) -> tuple[jax.Array, tuple[dict[str, Ratio], Carry]]:
        """Returns (loss, (metrics, new carry)), see `StatefulTask.loss`."""


class TrainedModelStateTask(Protocol):
    """A `ModelStateTask` without an evaluation, for runs without evaluation data."""

    def init(self, key: jax.Array, batch: Batch) -> Any:
        """Returns the initial parameters, a tree of arrays."""

    def init_model_state(self, key: jax.Array, batch: Batch) -> Any:
        """Returns the model state before the first step, a tree of arrays."""

    def loss(
        self, params: Any, batch: Batch, rngs: dict[str, jax.Array], model_state: Any
    ) -> tuple[jax.Array, tuple[dict[str, Ratio], Any]]:
        """Returns (loss, (metrics, new model state)), see `ModelStateTask.loss`."""


AnyTask = (
    Task | StatefulTask | ModelStateTask | TrainedTask | TrainedStatefulTask | TrainedModelStateTask
)
"""A task of any kind. The last three have no evaluation."""

LaneTask = Task | ModelStateTask | TrainedTask | TrainedModelStateTask
"""A task that `fit_lanes` trains, which carries no state from batch to batch."""


def is_stateful(task: Any) -> bool:
    """Returns True if a task carries a state of its rows from batch to batch."""
    return hasattr(task, "init_carry")


def has_model_state(task: Any) -> bool:
    """Returns True if the loss of a task takes and returns a model state."""
    return hasattr(task, "init_model_state")


def has_summary(task: Any) -> bool:
    """Returns True if a task has the method `summarise`."""
    return hasattr(task, "summarise")


def call_summarise(
    task: Any, predictions: dict[str, np.ndarray], names: Collection[str]
) -> dict[str, float]:
    """Returns the metrics of `task.summarise` as floats; {} for a task without that method."""
    if not has_summary(task):
        return {}
    summary = task.summarise(predictions)
    if not isinstance(summary, Mapping):
        raise TypeError(
            f"summarise must return a dict of floats by name, got {type(summary).__name__}"
        )
    values: dict[str, float] = {}
    for name, value in summary.items():
        if np.ndim(value) or not np.issubdtype(np.asarray(value).dtype, np.number):
            raise TypeError(f"summarise must return numbers, {name!r} is {value!r:.80}")
        if name in names or name in ("step", "split", "time"):
            raise ValueError(
                f"summarise must return other names than evaluate and metrics.jsonl, got {name!r}: "
                "rename it"
            )
        values[name] = float(value)
    return values


def call_loss(
    task: Any,
    params: Any,
    batch: Batch,
    rngs: dict[str, jax.Array],
    carry: Carry = None,
    model_state: Any = None,
) -> tuple[jax.Array, dict[str, Ratio], Carry, Any]:
    """Calls the loss of a task of any kind; returns (loss, metrics, carry, model_state). A state
    that the task does not have is returned as it came.
    """
    extra = _extra(task, carry, model_state)
    names = ", ".join(["metrics", *extra])
    form = f"(loss, ({names}))" if extra else "(loss, metrics)"
    result = task.loss(params, batch, rngs, *extra.values())
    try:
        total, outputs = result
        if extra and not isinstance(outputs, (tuple, list)):
            # The keys of a dict of metrics would be unpacked instead.
            raise TypeError
        metrics, *new = outputs if extra else (outputs,)
        states = dict(zip(extra, new, strict=True))
    except (TypeError, ValueError):
        raise TypeError(f"loss must return {form}, got {_describe_types(result)}") from None
    return total, metrics, states.get("carry", carry), states.get("model_state", model_state)


def _describe_types(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_describe_types, value))})"
    return "Array" if isinstance(value, jax.Array) else type(value).__name__


def call_evaluate(
    task: Any, params: Any, batch: Batch, carry: Carry = None, model_state: Any = None
) -> tuple[dict[str, Ratio], dict[str, jax.Array], Carry]:
    """Calls `evaluate` of a task of any kind; returns (metrics, predictions, carry)."""
    result = task.evaluate(params, batch, *_extra(task, carry, model_state).values())
    names = ("metrics", "predictions", "carry")[: 3 if is_stateful(task) else 2]
    if not isinstance(result, tuple) or len(result) != len(names):
        got = _describe_types(result)
        raise TypeError(f"evaluate must return ({', '.join(names)}), got {got}")
    return result if is_stateful(task) else (*result, carry)


def _extra(task: Any, carry: Carry, model_state: Any) -> dict[str, Any]:
    return ({"carry": carry} if is_stateful(task) else {}) | (
        {"model_state": model_state} if has_model_state(task) else {}
    )


def frozen_parameters(task: Any) -> tuple[str, ...]:
    """Returns the paths in the attribute `frozen` of a task; () without the attribute.

    A path names a parameter that is not trained, such as "embed/embedding", or all parameters of a
    module, such as "encoder". Frozen parameters are saved in checkpoints like all parameters, but
    have no optimiser state, and no gradient needs to reach them.

        >>> import types
        >>> frozen_parameters(types.SimpleNamespace(frozen=["embed/embedding"]))
        ('embed/embedding',)

    Args:
      task: the task, a model with its loss (see `Task`).

    Returns:
      A tuple of paths.
    """
    return tuple(getattr(task, "frozen", ()))
