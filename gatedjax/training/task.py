"""The methods that training requires of a model."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from gatedjax.training.metrics import Metrics, Ratio

Batch = dict[str, Any]


@struct.dataclass
class Carried:
    """The arrays that a task carries from batch to batch and that no gradient trains.

        >>> Carried(rows=np.zeros((4, 8)), shared={"mean": np.zeros(3)}).rows.shape
        (4, 8)

    Attributes:
      rows: a tree of arrays [B, ...] that each row passes on to the next batch, such as the state
        of a recurrent language model. They are split over devices like the rows of a batch, and an
        evaluation starts with new ones.
      shared: a tree of arrays without rows, such as the statistics of BatchNorm. Each device has
        the same copy, the loss receives the whole batch, and an evaluation uses them unchanged.
        Filler rows, of weight 0, must not enter them (`flax.linen.BatchNorm` has `mask=`).
    """

    rows: Any = None
    shared: Any = None


@runtime_checkable
class Task(Protocol):
    """A model with its loss, for `fit`: an object of any class with these methods.

    Without evaluation data, `init` and `loss` are enough. A batch is a dict of arrays with a
    leading axis B: the arrays that the model reads, "weight" [B], 1 for examples and 0 for the rows
    that fill up a last batch, and for random draws "example_id" int [B], the number of the example.

    A task that carries arrays from batch to batch has `init_carried(key, batch) -> Carried`. Its
    `loss` takes them as a fourth argument and returns (metrics, carried), and its `evaluate` takes
    them as a third argument and returns (metrics, predictions, carried).

    A task may have `summarise(predictions) -> dict[str, float]`, for metrics of a whole evaluation
    such as AUC or BLEU. It receives the predictions of all real rows as NumPy arrays. It may also
    have `frozen`, the paths of parameters or modules that are not trained, such as
    ("embed/embedding",).

        >>> class Scale:
        ...     def init(self, key, batch):
        ...         return {"w": jax.random.normal(key)}
        ...     def loss(self, params, batch, rngs):
        ...         errors = (params["w"] * batch["x"] - batch["y"]) ** 2
        ...         return {"loss": Ratio.of(errors, batch["weight"])}
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

    @property
    def loss(self) -> Callable[..., Any]:
        """Returns metrics by name: (params, batch, rngs) -> dict of `Ratio`s.

        Training minimises the mean of the metric "objective" if there is one, else of "loss", which
        is always there. The gradient is that of the total, divided by the count, after both are
        summed over devices. `rngs` has a PRNG key for each of the streams "dropout" and "gate", by
        name; random bits must depend on "example_id", so that they do not depend on the split of
        the batch.
        """

    @property
    def evaluate(self) -> Callable[..., Any]:
        """Returns metrics and predictions: (params, batch) -> (dict of `Ratio`s, dict of arrays).

        The metrics must include `TrainConfig.best_metric`, unless `summarise` returns it. The
        predictions are arrays with the leading axis B.
        """


class Trainable(Protocol):
    """A `Task` that need not have an evaluation."""

    def init(self, key: jax.Array, batch: Batch) -> Any:
        """Returns the initial parameters, a tree of arrays."""

    @property
    def loss(self) -> Callable[..., Any]:
        """Returns metrics by name, see `Task.loss`."""


def objective(metrics: Mapping[str, Ratio]) -> Ratio:
    """Returns the metric that training minimises: "objective" if it is there, else "loss".

        >>> objective({"loss": Ratio(np.float32(3), np.float32(2))}).value()
        1.5

    Args:
      metrics: the metrics of `Task.loss`, a dict.

    Returns:
      The `Ratio`. Its mean is minimised.
    """
    return metrics.get("objective", metrics["loss"])


def carries(task: Any) -> bool:
    """Returns True if a task carries arrays from batch to batch."""
    return hasattr(task, "init_carried")


def init_carried(task: Any, key: jax.Array, batch: Batch) -> Carried:
    """Returns the arrays that a task carries into its first batch."""
    carried = task.init_carried(key, batch) if carries(task) else Carried()
    if not isinstance(carried, Carried):
        raise TypeError(f"init_carried must return Carried, got {describe_type(carried)}")
    return carried


def call_loss(
    task: Any, params: Any, batch: Batch, rngs: dict[str, jax.Array], carried: Carried
) -> tuple[Metrics, Carried]:
    """Calls the loss of a task with or without carried arrays, and checks its result."""
    result = task.loss(params, batch, rngs, *([carried] if carries(task) else []))
    metrics, carried = _parts("loss", result, ("metrics",), task, carried)
    if "loss" not in metrics:
        raise ValueError(f"metrics of the loss must have 'loss', got {sorted(metrics)}")
    total = objective(metrics).total
    if not jnp.issubdtype(jnp.result_type(total), jnp.inexact):
        raise ValueError(f"the loss must be a float, got {jnp.result_type(total)}")
    return metrics, carried


def call_evaluate(
    task: Any, params: Any, batch: Batch, carried: Carried
) -> tuple[Metrics, dict[str, jax.Array], Carried]:
    """Calls the evaluation of a task with or without carried arrays, and checks its result."""
    result = task.evaluate(params, batch, *([carried] if carries(task) else []))
    return _parts("evaluate", result, ("metrics", "predictions"), task, carried)


def _parts(name: str, result: Any, names: tuple[str, ...], task: Any, carried: Carried) -> Any:
    """Returns the parts of a result, the new carried arrays among them, after checking them."""
    names += ("carried",) if carries(task) else ()
    parts = result if len(names) > 1 else (result,)
    fits = isinstance(parts, tuple) and len(parts) == len(names) and isinstance(parts[0], Mapping)
    if not fits or (carries(task) and not isinstance(parts[-1], Carried)):
        form = names[0] if len(names) == 1 else f"({', '.join(names)})"
        raise TypeError(
            f"{name} must return {form}, with the metrics as a dict, got {describe_type(result)}"
        )
    for metric, ratio in parts[0].items():
        if not isinstance(ratio, Ratio):
            raise TypeError(
                f"metrics of {name} must be Ratio, got {describe_type(ratio)} as {metric!r}"
            )
        shapes = np.shape(ratio.total), np.shape(ratio.count)
        if shapes != ((), ()):
            raise ValueError(f"metrics of {name} must be scalars, got {metric!r} of {shapes}")
    if not carries(task):
        return (*map(dict, parts), carried)
    shapes = jax.tree.map(
        lambda x: f"{jnp.result_type(x)}{list(np.shape(x))}", (carried, parts[-1])
    )
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"{name} must return carried arrays like those of init_carried, {shapes[0]}, got "
            f"{shapes[1]}"
        )
    return (*map(dict, parts[:-1]), parts[-1])


def describe_type(value: Any) -> str:
    """Returns the type of a value for a message, such as "(Array, dict)"."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return f"({', '.join(map(describe_type, value))})"
    return "Array" if isinstance(value, jax.Array) else type(value).__name__
