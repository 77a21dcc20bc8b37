"""One pass over evaluation data."""

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from gatedjax.training._checks import check_batch
from gatedjax.training.metrics import Metrics, merge, to_floats
from gatedjax.training.parallel import Parallel
from gatedjax.training.step import init_carry
from gatedjax.training.task import AnyTask, Batch


def run_evaluation(
    task: AnyTask, params: Any, data: Iterable[Batch], parallel: Parallel
) -> tuple[Metrics, dict[str, np.ndarray]]:
    """Sums metrics and collects predictions of the real rows; the parameters are on the devices."""
    step = parallel.eval_step(task)
    metrics: Metrics = {}
    rows: dict[str, list[np.ndarray]] = {}
    carry = None
    for number, batch in enumerate(data):
        check_batch(batch, f"evaluation batch {number}")
        real = np.asarray(batch["weight"]) > 0
        if number == 0:
            carry = parallel.shard_carry(init_carry(task, batch))
        one, predictions, carry = step(params, parallel.shard(batch), carry)
        metrics = merge(metrics, jax.device_get(one))
        for name, values in jax.device_get(predictions).items():
            rows.setdefault(name, []).append(np.asarray(values)[: len(real)][real])
    return metrics, {name: np.concatenate(parts) for name, parts in rows.items()}


def evaluate(
    task: AnyTask, params: Any, data: Iterable[Batch], parallel: Parallel
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Evaluates parameters on one pass over data.

    Args:
      task: the model.
      params: parameters, not replicated.
      data: batches with fixed shapes per bucket; filler rows have weight 0.
      parallel: the devices (see `make_parallel`).

    Returns:
      Metrics as floats, and predictions of every real row in the order of the data.
    """
    metrics, predictions = run_evaluation(task, parallel.replicate(params), data, parallel)
    return to_floats(metrics), predictions
