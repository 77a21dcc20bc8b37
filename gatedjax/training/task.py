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


AnyTask = Task | StatefulTask


def is_stateful(task: Any) -> bool:
    """Whether a task carries a state from batch to batch."""
    return hasattr(task, "init_carry")


def frozen_parameters(task: Any) -> tuple[str, ...]:
    """Paths of parameters that a task does not train, such as "embed/table", or of whole modules.

    A task names them in its attribute `frozen`. They are part of the parameters and of checkpoints,
    but the optimiser keeps nothing for them.
    """
    return tuple(getattr(task, "frozen", ()))


def table_lookups(task: Any) -> dict[str, tuple[str, ...]]:
    """Tables of which the loss reads nothing but the rows that a batch names, and by what arrays.

    A task names them in its attribute `lookups`, as {"embed/table": ("tokens",)}. Where the
    optimiser is lazy (see `lazy_rows`), its loss is given a table of those rows alone, and beside
    it as "embed/table_rows" their ids, in order and each once, as `nn.WordEmbedding` understands.
    Ids that are the size of the table fill up.
    """
    return dict(getattr(task, "lookups", {}))
