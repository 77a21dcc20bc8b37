"""One example of one step again, alone: the same gates and the same dropout."""

from typing import Any

import jax
import numpy as np

from gatedjax.training.step import step_rngs
from gatedjax.training.task import Batch


def replay(
    train_data: Any, seed: int, step: int, example_id: int
) -> tuple[Batch, dict[str, jax.Array]]:
    """Returns what a network saw of one example in one step of training.

    Random bits are keyed by (seed, step, example), so the network makes the same gates and dropout
    from this one row as it did from the whole batch:

        batch, rngs = replay(train_data, seed, step, example_id)
        output = model.apply({"params": params}, batch, train=True, rngs=rngs)

    Args:
      train_data: what `fit` was given.
      seed: `TrainConfig.seed`.
      step: the number of the batch, from 0; metrics.jsonl calls the update that it makes step + 1.
      example_id: which example of that batch.

    Returns:
      A batch of one row, and the streams of the step.

    Raises:
      ValueError: if the batch of that step does not hold the example.
    """
    batch = train_data[step]
    rows = np.flatnonzero(np.asarray(batch["example_id"]) == example_id)
    if example_id < 0 or len(rows) == 0:
        held = sorted(int(i) for i in batch["example_id"] if i >= 0)
        raise ValueError(f"example_id {example_id} is not in the batch of step {step}: {held}")
    row = int(rows[0])
    one = {name: np.asarray(value)[row : row + 1] for name, value in batch.items()}
    return one, step_rngs(jax.random.key(seed), step)
