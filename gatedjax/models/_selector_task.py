"""How networks with a selector are trained and evaluated."""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from gatedjax import nn as gnn
from gatedjax.models._classification import (
    class_metrics,
    class_predictions,
    cross_entropy,
    frozen_embeddings,
)
from gatedjax.models._selector_terms import (
    selector_metrics,
    selector_predictions,
    selector_terms,
)
from gatedjax.training import Ratio


@dataclasses.dataclass(frozen=True)
class SelectorTask:
    """The loss of a task, and what the selector adds to it.

    A task says what an example costs (`_cost`), what is measured (`_metrics`) and what is predicted
    (`_predictions`); `loss` and `evaluate` are the same for all.

    Attributes:
      model: the network; its output has `selections` and `baseline`.
    """

    model: Any

    table: ClassVar[str] = "encoder/embed/table"
    """Path of the word vectors among the parameters."""

    @property
    def frozen(self) -> tuple[str, ...]:
        """Parameters that the optimiser leaves alone: the word vectors, if they are to stay."""
        return frozen_embeddings(self.model, self.table)

    def init(self, key: Array, batch: dict[str, Array]) -> Any:
        """Returns parameters for batches with the widths of this one, by a pass without draws."""
        return self.model.init({"params": key}, batch)["params"]

    def loss(
        self, params: Any, batch: dict[str, Array], rngs: dict[str, Array]
    ) -> tuple[Array, dict[str, Ratio]]:
        """Returns the loss summed over the real rows, and metrics as sums and counts.

        Of the selections drawn in this step, "selected_L" and "empty_L" per layer with a selector.
        What the selector adds to the loss of an example counts as often as the example has units
        (one, or its words).
        """
        output: Any = self.model.apply({"params": params}, batch, train=True, rngs=rngs)
        weight = batch["weight"]
        summed, units = self._cost(output, batch)
        cost = summed / jnp.maximum(units, 1)
        penalty, surrogate = selector_terms(
            self.model.config, self._selections(output), cost, output.baseline
        )
        metrics = self._metrics(output, batch) | self._trained(cost + penalty, weight)
        metrics |= self._selector_metrics(output, weight)
        total = summed + (penalty + surrogate) * units
        return jnp.sum(jnp.where(weight > 0, total * weight, 0)), metrics

    def evaluate(
        self, params: Any, batch: dict[str, Array]
    ) -> tuple[dict[str, Ratio], dict[str, Array]]:
        """Returns the metrics of the task with "selected_L" and "empty_L", and its predictions.

        Predictions also have "selected_heads" and "empty_heads", if a layer has a selector.
        """
        output: Any = self.model.apply({"params": params}, batch)
        metrics = self._metrics(output, batch)
        metrics |= self._selector_metrics(output, batch["weight"])
        predictions = self._predictions(output, batch)
        return metrics, predictions | selector_predictions(self._shown(output))

    def _cost(
        self, output: Any, batch: dict[str, Array]
    ) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
        """(what every example costs, summed over its units; number of units)."""
        raise NotImplementedError

    def _metrics(self, output: Any, batch: dict[str, Array]) -> dict[str, Ratio]:
        """What is measured in training and in evaluation."""
        raise NotImplementedError

    def _predictions(self, output: Any, batch: dict[str, Array]) -> dict[str, Array]:
        """What is told of every example of a batch."""
        raise NotImplementedError

    def _trained(self, cost: Float[Array, " B"], weight: Float[Array, " B"]) -> dict[str, Ratio]:
        """Metrics of training alone: the cost with the penalties, as "loss"."""
        return {"loss": Ratio.of(cost, weight)}

    def _selections(self, output: Any) -> tuple[gnn.Selection, ...]:
        """All selections, which the loss may penalise."""
        return output.selections

    def _shown(self, output: Any) -> tuple[gnn.Selection, ...]:
        """Those of which predictions tell, one per layer."""
        return self._selections(output)

    def _selector_metrics(self, output: Any, weight: Float[Array, " B"]) -> dict[str, Ratio]:
        return selector_metrics(output.selections, weight)


@dataclasses.dataclass(frozen=True)
class SelectorClassifierTask(SelectorTask):
    """Cross-entropy of the class of every example."""

    def _cost(
        self, output: Any, batch: dict[str, Array]
    ) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
        cost = cross_entropy(output.logits, batch["label"])
        return cost, jnp.ones_like(cost)

    def _metrics(self, output: Any, batch: dict[str, Array]) -> dict[str, Ratio]:
        return class_metrics(output.logits, batch["label"], batch["weight"])

    def _predictions(self, output: Any, batch: dict[str, Array]) -> dict[str, Array]:
        return class_predictions(output.logits, batch)
