"""What networks with a selector share: its options, its part of the loss, and their tasks."""

import dataclasses
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._types import Output, Params, Tree
from gatedjax.functional._checks import check_positive
from gatedjax.functional._selective import Empty
from gatedjax.models._checks import check_choices, check_finite
from gatedjax.models._classification import (
    class_metrics,
    class_predictions,
    cross_entropy,
    frozen_embeddings,
)
from gatedjax.models._types import Batch, Metrics, Predictions
from gatedjax.training import Ratio

SelectorMode = Literal["st", "soft", "expect", "reinforce"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectorConfig:
    """The options of a selector, and of what it adds to the loss."""

    select_layers: tuple[int, ...] = (1,)
    """Layers (from 1) whose attention has a selector; 0 or nothing is the standard encoder."""
    selector: SelectorMode = "st"
    """How selections are drawn in training: hard draws under the gradient of the relaxation, the
    relaxation, probabilities without noise, or hard draws trained by their reward."""
    empty: Empty = "zero"
    """What a token that selects nothing attends to: nothing, itself, or everything."""
    temperature: float = 0.5
    """tau of the relaxation."""
    selected_weight: float = 0.0
    """s1: weight in the loss of the keys that a token selects, summed over heads."""
    entropy_weight: float = 0.0
    """s2: weight in the loss of the mean negative entropy of the selection."""
    reward_penalty: float = 0.02
    """lambda: what selecting everything takes off the reward ("reinforce")."""

    def __post_init__(self) -> None:
        check_choices(self, selector=SelectorMode, empty=Empty)
        check_positive(temperature=self.temperature)
        check_finite(self, "selected_weight", "entropy_weight", "reward_penalty")

    @property
    def selective(self) -> tuple[int, ...]:
        """The layers that have a selector, ascending."""
        return tuple(sorted(layer for layer in self.select_layers if layer))


def reward_baseline(module: nn.Module, config: SelectorConfig) -> Float[Array, ""] | None:
    """A scalar parameter that the loss below fits to the mean reward, where there is one."""
    if config.selector != "reinforce" or not config.selective:
        return None
    return module.param("reward_baseline", nn.initializers.zeros, ())


def selector_terms(
    config: SelectorConfig,
    selections: tuple[gnn.Selection, ...],
    cost: Float[Array, " B"],
    baseline: Float[Array, ""] | None = None,
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """The terms of the loss of every example that are about the selector.

        penalty = s_1 (keys that a token selects, summed over heads) - s_2 H(selection)
        R = -(cost + lambda rate);  surrogate = -(R - b) log p(A) + (b - R)^2 / 2

    The second only for selector="reinforce", with R and, in its first term, b held constant; log p
    is a mean over pairs and heads. Layers are summed.

    Args:
      config: of the selector.
      selections: of every layer; those without a selector count for nothing.
      cost: loss of every example without these terms.
      baseline: b (see `reward_baseline`).

    Returns:
      (penalty, surrogate), 0 without a selector. The surrogate's value has no meaning of its own.

    Reference: authors' code of Geng et al. 2020 (penalty); Shen et al. 2018 (ReSAN), whose reward
      this is.
    Deviations: padding counts for nothing; b is learned with the other parameters, which makes it
      a moving mean that needs no state of its own.
    """
    penalty = surrogate = jnp.zeros_like(cost)
    for selection in _with_selector(selections):
        selected: Any = selection.selected
        entropy: Any = selection.entropy
        if config.selected_weight:
            penalty = penalty + config.selected_weight * jnp.sum(selected, axis=1)
        if config.entropy_weight:
            penalty = penalty - config.entropy_weight * entropy
        if config.selector == "reinforce":
            if baseline is None or selection.rate is None:
                raise ValueError("selector='reinforce' needs a baseline")
            reward = -(cost + config.reward_penalty * jnp.mean(selection.rate, axis=1))
            reward = jax.lax.stop_gradient(reward)
            bound = jnp.broadcast_to(baseline, reward.shape)
            log_prob: Any = selection.log_prob
            surrogate = surrogate + F.score_function_loss(log_prob, reward, bound)
            surrogate = surrogate + (bound - reward) ** 2 / 2
    return penalty, surrogate


def selector_metrics(selections: tuple[gnn.Selection, ...], weight: Float[Array, " B"]) -> Metrics:
    """ "selected_L", the share of pairs that layer L selects, and "empty_L", of tokens without any.

    Examples count alike; heads are averaged.
    """
    metrics = {}
    for layer, selection in enumerate(selections, start=1):
        if selection.rate is not None and selection.empty is not None:
            metrics[f"selected_{layer}"] = Ratio.of(jnp.mean(selection.rate, axis=1), weight)
            metrics[f"empty_{layer}"] = Ratio.of(jnp.mean(selection.empty, axis=1), weight)
    return metrics


def selector_predictions(selections: tuple[gnn.Selection, ...]) -> Predictions:
    """ "selected_heads" and "empty_heads" [B, S, M] of the S layers with a selector, if any."""
    layers: list[Any] = _with_selector(selections)
    if not layers:
        return {}
    return {
        "selected_heads": jnp.stack([selection.rate for selection in layers], axis=1),
        "empty_heads": jnp.stack([selection.empty for selection in layers], axis=1),
    }


def _with_selector(selections: tuple[gnn.Selection, ...]) -> list[gnn.Selection]:
    return [selection for selection in selections if selection.rate is not None]


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

    def init(self, key: Array, batch: Batch) -> Tree:
        """Returns parameters for batches with the widths of this one, by a pass without draws."""
        return self.model.init({"params": key}, batch)["params"]

    def loss(self, params: Params, batch: Batch, rngs: dict[str, Array]) -> tuple[Array, Metrics]:
        """Returns the loss summed over the real rows, and metrics as sums and counts.

        Of the selections drawn in this step, "selected_L" and "empty_L" per layer with a selector.
        What the selector adds to the loss of an example counts as often as the example has units
        (one, or its words).
        """
        output: Output = self.model.apply({"params": params}, batch, train=True, rngs=rngs)
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

    def evaluate(self, params: Params, batch: Batch) -> tuple[Metrics, Predictions]:
        """Returns the metrics of the task with "selected_L" and "empty_L", and its predictions.

        Predictions also have "selected_heads" and "empty_heads", if a layer has a selector.
        """
        output: Output = self.model.apply({"params": params}, batch)
        metrics = self._metrics(output, batch)
        metrics |= self._selector_metrics(output, batch["weight"])
        predictions = self._predictions(output, batch)
        return metrics, predictions | selector_predictions(self._shown(output))

    def _cost(self, output: Output, batch: Batch) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
        """(what every example costs, summed over its units; number of units)."""
        raise NotImplementedError

    def _metrics(self, output: Output, batch: Batch) -> Metrics:
        """What is measured in training and in evaluation."""
        raise NotImplementedError

    def _predictions(self, output: Output, batch: Batch) -> Predictions:
        """What is told of every example of a batch."""
        raise NotImplementedError

    def _trained(self, cost: Float[Array, " B"], weight: Float[Array, " B"]) -> Metrics:
        """Metrics of training alone: the cost with the penalties, as "loss"."""
        return {"loss": Ratio.of(cost, weight)}

    def _selections(self, output: Output) -> tuple[gnn.Selection, ...]:
        """All selections, which the loss may penalise."""
        return output.selections

    def _shown(self, output: Output) -> tuple[gnn.Selection, ...]:
        """Those of which predictions tell, one per layer."""
        return self._selections(output)

    def _selector_metrics(self, output: Output, weight: Float[Array, " B"]) -> Metrics:
        return selector_metrics(output.selections, weight)


@dataclasses.dataclass(frozen=True)
class SelectorClassifierTask(SelectorTask):
    """Cross-entropy of the class of every example."""

    def _cost(self, output: Output, batch: Batch) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
        cost = cross_entropy(output.logits, batch["label"])
        return cost, jnp.ones_like(cost)

    def _metrics(self, output: Output, batch: Batch) -> Metrics:
        return class_metrics(output.logits, batch["label"], batch["weight"])

    def _predictions(self, output: Output, batch: Batch) -> Predictions:
        return class_predictions(output.logits, batch)
