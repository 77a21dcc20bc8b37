"""What training knows of a model."""

from typing import Any, Protocol, runtime_checkable

import jax

from gatedjax.training.metrics import Ratio

Batch = dict[str, Any]


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
