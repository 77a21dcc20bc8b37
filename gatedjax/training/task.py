"""What training knows of a model."""

from typing import Any, Protocol, runtime_checkable

import jax

from gatedjax.training.metrics import Ratio

Batch = dict[str, Any]
Carry = Any
"""A tree of arrays with the leading axis B: what a row hands to the row of the next batch."""


@runtime_checkable
class Task(Protocol):
    """A model with its loss; the only thing that `fit` asks for.

    A batch is a dict of arrays with one leading axis B. "weight" [B] is 1 for examples and 0 for
    the filler rows of a last batch.
    """

    def init(self, key: jax.Array, batch: Batch) -> Any:
        """Returns parameters."""

    def loss(
        self, params: Any, batch: Batch, rngs: dict[str, jax.Array]
    ) -> tuple[jax.Array, dict[str, Ratio]]:
        """Returns the loss summed over the real rows, and metrics with at least "loss".

        The step divides by `metrics["loss"].count`, after summing it over devices. Random bits
        must be keyed by "example_id", so that no split of the batch changes them.
        """

    def evaluate(self, params: Any, batch: Batch) -> tuple[dict[str, Ratio], dict[str, jax.Array]]:
        """Returns metrics, and predictions with the leading axis B."""


@runtime_checkable
class StatefulTask(Protocol):
    """A task whose batches go on where the batch before ended, row by row, as windows of a text do.

    It is a `Task` whose loss and evaluation also take a carried state and return the next one.
    Gradients do not flow from one step into the one before. The state belongs to the train state:
    it is split over devices as the rows are, saved in checkpoints and restored from them. It is
    for the task to set it to its beginning where a batch says that a row starts anew.
    """

    def init(self, key: jax.Array, batch: Batch) -> Any:
        """Returns parameters."""

    def init_carry(self, batch: Batch) -> Carry:
        """Returns the carried state before the first batch, for batches with these shapes."""

    def loss(
        self, params: Any, batch: Batch, rngs: dict[str, jax.Array], carry: Carry
    ) -> tuple[jax.Array, tuple[dict[str, Ratio], Carry]]:
        """Returns the loss summed over the real rows, and (metrics, carry); see `Task.loss`."""

    def evaluate(
        self, params: Any, batch: Batch, carry: Carry
    ) -> tuple[dict[str, Ratio], dict[str, jax.Array], Carry]:
        """Returns metrics, predictions with the leading axis B, and the carry."""


@runtime_checkable
class ModelStateTask(Protocol):
    """A task whose model has state that no gradient trains, such as the statistics of BatchNorm.

    It is a `Task` whose loss also takes the model state and returns the next one, and whose
    evaluation takes it. The state belongs to the train state: every device has the same copy, a
    checkpoint holds it, and a skipped update leaves it as it was.

    The loss sees the whole batch, however many devices there are, so that the state is that of the
    whole batch. Rows of weight 0 are filler and must not enter it (`flax.linen.BatchNorm` has
    `mask=`).

    A task that also carries rows (`StatefulTask`) takes and returns the carry first: its loss gets
    (params, batch, rngs, carry, model_state) and returns (loss, (metrics, carry, model_state)).
    """

    def init(self, key: jax.Array, batch: Batch) -> Any:
        """Returns parameters."""

    def init_model_state(self, key: jax.Array, batch: Batch) -> Any:
        """Returns the model state before the first step; gets the key and batch that `init` got."""

    def loss(
        self, params: Any, batch: Batch, rngs: dict[str, jax.Array], model_state: Any
    ) -> tuple[jax.Array, tuple[dict[str, Ratio], Any]]:
        """Returns the loss summed over the real rows, and (metrics, model_state).

        The new state has the structure, shapes and dtypes of the old one.
        """

    def evaluate(
        self, params: Any, batch: Batch, model_state: Any
    ) -> tuple[dict[str, Ratio], dict[str, jax.Array]]:
        """Returns metrics, and predictions with the leading axis B."""


AnyTask = Task | StatefulTask | ModelStateTask


def is_stateful(task: Any) -> bool:
    """Whether a task carries a state from batch to batch."""
    return hasattr(task, "init_carry")


def has_model_state(task: Any) -> bool:
    """Returns whether the loss of a task takes and returns a model state."""
    return hasattr(task, "init_model_state")


def call_loss(
    task: Any,
    params: Any,
    batch: Batch,
    rngs: dict[str, jax.Array],
    carry: Carry = None,
    model_state: Any = None,
) -> tuple[jax.Array, dict[str, Ratio], Carry, Any]:
    """Calls the loss of a task of any kind; returns (loss, metrics, carry, model_state).

    A task that has no carry or no model state leaves what was given for it as it is.

    Raises:
      TypeError: if the loss does not return what its kind of task returns.
    """
    extra = _extra(task, carry, model_state)
    names = ", ".join(["metrics", *extra])
    wanted = f"(loss, ({names}))" if extra else "(loss, metrics)"
    result = task.loss(params, batch, rngs, *extra.values())
    try:
        total, rest = result
        metrics, *new = rest if extra else (rest,)
        given = dict(zip(extra, new, strict=True))
    except (TypeError, ValueError):
        raise TypeError(f"loss must return {wanted}, got {type(result).__name__}") from None
    return total, metrics, given.get("carry", carry), given.get("model_state", model_state)


def call_evaluate(
    task: Any, params: Any, batch: Batch, carry: Carry = None, model_state: Any = None
) -> tuple[dict[str, Ratio], dict[str, jax.Array], Carry]:
    """Calls `evaluate` of a task of any kind; returns (metrics, predictions, carry).

    Raises:
      TypeError: if it does not return what its kind of task returns.
    """
    result = task.evaluate(params, batch, *_extra(task, carry, model_state).values())
    names = ("metrics", "predictions", "carry")[: 3 if is_stateful(task) else 2]
    if not isinstance(result, tuple) or len(result) != len(names):
        got = type(result).__name__
        raise TypeError(f"evaluate must return ({', '.join(names)}), got {got}")
    return result if is_stateful(task) else (*result, carry)


def _extra(task: Any, carry: Carry, model_state: Any) -> dict[str, Any]:
    """Returns what the loss of a task takes beside parameters, batch and random streams."""
    return ({"carry": carry} if is_stateful(task) else {}) | (
        {"model_state": model_state} if has_model_state(task) else {}
    )


def frozen_parameters(task: Any) -> tuple[str, ...]:
    """Paths of parameters that a task does not train, such as "embed/table", or of whole modules.

    A task names them in its attribute `frozen`. They are part of the parameters and of checkpoints,
    but the optimiser keeps nothing for them, and no gradient has to reach them.
    """
    return tuple(getattr(task, "frozen", ()))
