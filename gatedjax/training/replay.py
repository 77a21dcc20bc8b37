"""Replay of an example of a training step with the same gates and the same dropout."""

from typing import Any

import jax
import numpy as np

from gatedjax.training.step import step_rngs
from gatedjax.training.task import Batch


def replay(
    train_data: Any, seed: int, step: int, example_id: int
) -> tuple[Batch, dict[str, jax.Array]]:
    """Returns the inputs of a network for an example in a training step.

    Random bits depend on (seed, step, example), so the network draws the same gates and dropout for
    this row as it did in the whole batch.

        >>> train_data = [{"x": np.array([0.5, 0.25]), "example_id": np.array([7, 3])}]
        >>> batch, rngs = replay(train_data, seed=0, step=0, example_id=3)
        >>> batch["x"].tolist(), sorted(rngs)
        ([0.25], ['dropout', 'gate'])

    Args:
      train_data: the training data of `fit`: `train_data[step]` is the batch of a step.
      seed: `TrainConfig.seed`.
      step: the number of the batch, from 0. In metrics.jsonl the update with this batch has the
        number step + 1.
      example_id: the "example_id" of the example in the batch.

    Returns:
      (batch, rngs): a batch with a single row, a dict of arrays, and a dict from the streams
      "dropout" and "gate" to their PRNG keys in the step.

    Raises:
      ValueError: if the batch of that step does not have the example.
    """
    batch = train_data[step]
    rows = np.flatnonzero(np.asarray(batch["example_id"]) == example_id)
    if example_id < 0 or len(rows) == 0:
        example_ids = sorted(int(i) for i in batch["example_id"] if i >= 0)
        raise ValueError(
            f"example_id must be in the batch of step {step}, {example_ids}, got {example_id}"
        )
    row = int(rows[0])
    row_batch = {name: np.asarray(value)[row : row + 1] for name, value in batch.items()}
    return row_batch, step_rngs(jax.random.key(seed), step)
