"""Evaluation of parameters in a pass over data."""

import json
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from gatedjax.training._checks import check_batch, iterate_batches
from gatedjax.training.distributed import broadcast_json
from gatedjax.training.metrics import Metrics, merge, to_floats
from gatedjax.training.parallel import Parallel, make_parallel
from gatedjax.training.step import init_carry
from gatedjax.training.task import AnyTask, Batch, call_summarise, has_model_state, has_summary


def run_evaluation(
    task: AnyTask,
    params: Any,
    data: Iterable[Batch],
    parallel: Parallel,
    model_state: Any = None,
    *,
    predicts: bool = True,
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Returns the metrics of a pass over data, `task.summarise` included, and the predictions for
    the real rows (weight above 0). With predicts=False predictions are fetched only for
    `task.summarise`.
    """
    step, collects = parallel.eval_step(task), predicts or has_summary(task)
    metrics: Metrics = {}
    rows: dict[str, list[np.ndarray]] = {}
    carry = None
    for number, batch in enumerate(iterate_batches(data)):
        check_batch(batch, f"evaluation batch {number}")
        real = np.asarray(batch["weight"]) > 0
        # The batch gives only the shapes: the carried state starts once per pass over the data.
        if number == 0:
            carry = parallel.shard_carry(init_carry(task, batch))
        batch_metrics, predictions, carry = step(params, parallel.shard(batch), carry, model_state)
        metrics = merge(metrics, jax.device_get(batch_metrics))
        for name, values in jax.device_get(predictions).items() if collects else ():
            # `shard` may have added rows at the end, and the batch itself may have filler rows.
            rows.setdefault(name, []).append(np.asarray(values)[: len(real)][real])
    arrays = {name: concatenate_rows(name, parts) for name, parts in rows.items()}
    values = to_floats(metrics)
    summary = call_summarise(task, arrays, values)
    if summary and parallel.several_processes:
        # All processes must take the same decisions, such as when to stop.
        exact = {name: value.hex() for name, value in summary.items()}
        exact = json.loads(broadcast_json(json.dumps(exact, allow_nan=False)))
        summary = {name: float.fromhex(value) for name, value in exact.items()}
    return values | summary, arrays


def concatenate_rows(name: str, parts: list[np.ndarray]) -> np.ndarray:
    """Concatenates the predictions of the batches of an evaluation pass along their rows."""
    shapes = sorted({part.shape[1:] for part in parts})
    if len(shapes) > 1:
        raise ValueError(
            f"predictions {name!r} must have the same shape in all batches, except for the rows, "
            f"got {list(map(list, shapes[:2]))}: pad them in evaluate"
        )
    return np.concatenate(parts)


def evaluate(
    task: AnyTask,
    params: Any,
    data: Iterable[Batch],
    parallel: Parallel | None = None,
    model_state: Any = None,
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Evaluates parameters in a pass over data.

        >>> from gatedjax.training import Ratio
        >>> class Scale:
        ...     def evaluate(self, params, batch):
        ...         y = params["w"] * batch["x"]
        ...         return {"mean": Ratio.of(y, batch["weight"])}, {"y": y}
        >>> batch = {"x": np.array([1.0, 3.0, 0.0]), "weight": np.array([1.0, 1.0, 0.0])}
        >>> params = {"w": np.array(0.5)}
        >>> metrics, predictions = evaluate(Scale(), params, [batch])
        >>> metrics["mean"], predictions["y"].tolist()
        (1.0, [0.5, 1.5])

    Args:
      task: the task, a model with its loss (see `Task`).
      params: parameters, not replicated over devices.
      data: batches, in a list, another iterable, or an object with `__getitem__` and `__len__`.
        Each new shape of a batch is compiled. Filler rows have weight 0.
      parallel: the devices (default: `make_parallel()`). Pass the object that `fit` received to
        share its compiled evaluation.
      model_state: the model state of a `ModelStateTask`, not replicated, such as
        `FitResult.best_model_state`; None for other tasks.

    Returns:
      (metrics, predictions): metrics as Python floats, with the metrics of `task.summarise`, and
      NumPy arrays with the predictions for all real rows in the order of the data, both by name.

    Raises:
      ValueError: if `model_state` is missing for a `ModelStateTask`, or given for another task.
    """
    if has_model_state(task) != (model_state is not None):
        kind = "needs its model state" if has_model_state(task) else "has no model state"
        raise ValueError(
            f"model_state must fit {type(task).__name__}, which {kind}, got {model_state!r:.80}: "
            "give result.best_model_state with result.best_params, and None for a task without one"
        )
    parallel = parallel or make_parallel()
    placed, model_state = parallel.place_params(params), parallel.replicate(model_state)
    return run_evaluation(task, placed, iterate_batches(data, "data"), parallel, model_state)
