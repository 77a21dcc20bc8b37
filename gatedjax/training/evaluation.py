"""Evaluation of parameters in a pass over data."""

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from gatedjax.training._checks import check_batch
from gatedjax.training.metrics import Metrics, merge, to_floats
from gatedjax.training.parallel import Parallel
from gatedjax.training.step import init_carry
from gatedjax.training.task import AnyTask, Batch, has_model_state


def run_evaluation(
    task: AnyTask, params: Any, data: Iterable[Batch], parallel: Parallel, model_state: Any = None
) -> tuple[Metrics, dict[str, np.ndarray]]:
    """Sums the metrics of batches, and collects the predictions for the real rows.

    Args:
      task: the task, with the method `evaluate`.
      params: the parameters on the devices.
      data: the batches, dicts of arrays [B, ...] with "weight" [B].
      parallel: the devices and the compiled evaluation.
      model_state: the model state on the devices, or None.

    Returns:
      A dict of metrics (a `Ratio` each) by name, and a dict of NumPy arrays of predictions by name,
      with the real rows of all batches first to last.
    """
    step = parallel.eval_step(task)
    metrics: Metrics = {}
    rows: dict[str, list[np.ndarray]] = {}
    carry = None
    for number, batch in enumerate(data):
        check_batch(batch, f"evaluation batch {number}")
        real = np.asarray(batch["weight"]) > 0
        # The batch gives only the shapes: the carried state starts once per pass over the data.
        if number == 0:
            carry = parallel.shard_carry(init_carry(task, batch))
        batch_metrics, predictions, carry = step(params, parallel.shard(batch), carry, model_state)
        metrics = merge(metrics, jax.device_get(batch_metrics))
        for name, values in jax.device_get(predictions).items():
            # `shard` may have added rows at the end, and the batch itself may have filler rows.
            rows.setdefault(name, []).append(np.asarray(values)[: len(real)][real])
    return metrics, {name: np.concatenate(parts) for name, parts in rows.items()}


def evaluate(
    task: AnyTask,
    params: Any,
    data: Iterable[Batch],
    parallel: Parallel,
    model_state: Any = None,
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Evaluates parameters in a pass over data.

        >>> from gatedjax.training import Ratio, make_parallel
        >>> class Scale:
        ...     def evaluate(self, params, batch):
        ...         y = params["w"] * batch["x"]
        ...         return {"mean": Ratio.of(y, batch["weight"])}, {"y": y}
        >>> batch = {"x": np.array([1.0, 3.0, 0.0]), "weight": np.array([1.0, 1.0, 0.0])}
        >>> params = {"w": np.array(0.5)}
        >>> metrics, predictions = evaluate(Scale(), params, [batch], make_parallel("single"))
        >>> metrics["mean"], predictions["y"].tolist()
        (1.0, [0.5, 1.5])

    Args:
      task: the task.
      params: parameters, not replicated over devices.
      data: batches. Each new shape of a batch is compiled. Filler rows have weight 0.
      parallel: the devices (see `make_parallel`).
      model_state: the model state of a `ModelStateTask`, not replicated, such as
        `FitResult.best_model_state`; None for other tasks.

    Returns:
      (metrics, predictions): metrics as Python floats, and NumPy arrays with the predictions for
      all real rows in the order of the data, both by name.

    Raises:
      ValueError: if `model_state` is missing for a `ModelStateTask`, or given for another task.
    """
    if has_model_state(task) != (model_state is not None):
        kind = "needs its model state" if has_model_state(task) else "has no model state"
        raise ValueError(
            f"{type(task).__name__} {kind}, got model_state={model_state!r:.80}: give "
            "result.best_model_state with result.best_params, and None for a task without one"
        )
    placed, model_state = parallel.place_params(params), parallel.replicate(model_state)
    metrics, predictions = run_evaluation(task, placed, data, parallel, model_state)
    return to_floats(metrics), predictions
