"""What networks with a selector share: its options, its part of the loss, and their tasks."""

import dataclasses
from typing import Any, ClassVar, Literal, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._utils.choices import check_choices
from gatedjax._utils.numbers import make_plain
from gatedjax._utils.types import Output, Params, Tree
from gatedjax.functional._checks import check_positive
from gatedjax.functional._selective import Empty
from gatedjax.gates._named import KINDS, EstimatorName, create_estimator, current_name
from gatedjax.gates._score import MultiPass
from gatedjax.gates._train import train_passes
from gatedjax.models._checks import check_at_least, check_finite
from gatedjax.models._classification import (
    class_metrics,
    class_predictions,
    cross_entropy,
    frozen_embeddings,
)
from gatedjax.models._density import constraint
from gatedjax.models._schedule import check_schedule
from gatedjax.models._types import Batch, Metrics, Predictions
from gatedjax.nn._selection import check_trains_pairs
from gatedjax.training import Ratio

SelectorMode = Literal["st", "soft", "expect", "reinforce"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectorConfig:
    """The options of a selector, and of what it adds to the loss."""

    select_layers: tuple[int, ...] = (1,)
    """Layers (from 1) whose attention has a selector; 0 or nothing is the standard encoder."""
    selector: SelectorMode = "st"
    """Older names of the estimators "st_gumbel" (hard draws under the gradient of the relaxation),
    "soft_gumbel" (the relaxation), "mean_field" (probabilities without noise) and "reinforce"."""
    empty: Empty = "zero"
    """What a token that selects nothing attends to: nothing, itself, or everything."""
    cap: float = 10.0
    """Of hard draws: how many nats an unselected key may stand above the best selected one in the
    gradient of its gate, which grows by e with each."""
    temperature: float = 0.5
    """tau of the relaxation."""
    final_temperature: float | None = None
    """tau after temperature-steps, reached geometrically; None keeps tau."""
    temperature_steps: int = 1
    """Steps from temperature to final-temperature."""
    estimator: EstimatorName | None = None
    """How the gradient of the selections is estimated (see `gatedjax.gates`); None is what
    `selector` says: "st_gumbel", "soft_gumbel", "mean_field" or "reinforce"."""
    estimator_draws: int = 2
    """Passes of "leave_one_out"."""
    selected_weight: float = 0.0
    """s1: weight in the loss of the keys that a token selects, summed over heads."""
    density: float | None = None
    """Hold the mean probability of a selection at this by a Lagrange multiplier."""
    entropy_weight: float = 0.0
    """s2: weight in the loss of the mean negative entropy of the selection."""
    reward_penalty: float = 0.02
    """lambda: what selecting everything takes off the reward ("reinforce")."""

    def __post_init__(self) -> None:
        make_plain(self)
        check_choices(self)
        check_positive(temperature=self.temperature)
        check_at_least(self, 0, "cap")
        check_finite(self, "selected_weight", "entropy_weight", "reward_penalty")
        check_at_least(self, 2, "estimator_draws")
        check_schedule(self)
        if self.estimator is not None:
            self._check_estimator(self.estimator)
        if self.density is not None:
            self._check_density(self.density)

    def _check_estimator(self, name: EstimatorName) -> None:
        if not self.selective:
            raise ValueError(f"estimator must be None without a layer that selects, got {name!r}")
        if self.selector != "st":
            wanted = f"'st', its default, where estimator={name!r} says how selections are trained"
            raise ValueError(f"selector must be {wanted}, got {self.selector!r}")
        check_trains_pairs(name, self.selective)

    def _check_density(self, density: float) -> None:
        if not 0 < density < 1:
            raise ValueError(f"density must be in (0, 1), got {density}")
        if not self.selective:
            raise ValueError(f"density must be None without a layer that selects, got {density}")
        if self.selected_weight:
            raise ValueError(f"selected_weight must be 0 with density, got {self.selected_weight}")

    @property
    def selective(self) -> tuple[int, ...]:
        """The layers that have a selector, ascending."""
        return tuple(sorted(layer for layer in self.select_layers if layer))

    @property
    def estimation(self) -> EstimatorName:
        """The name of the estimator that trains the selections."""
        return self.estimator or current_name("selector", self.selector)

    def selector_of(self, layer: int) -> EstimatorName | Literal["none"]:
        """The option `selector` of the attention of a layer (from 1)."""
        return self.estimation if layer in self.selective else "none"


def loss_parameters(module: nn.Module, config: SelectorConfig) -> Float[Array, ""] | None:
    """Makes the scalars that the loss below fits, where it does.

    They are "multiplier", of the constraint on the density, and "reward_baseline", the mean reward.

    Returns:
      The latter.
    """
    if not config.selective:
        return None
    if config.density is not None:
        module.param("multiplier", nn.initializers.zeros, ())
    if config.estimation != "reinforce":
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

    The second only for "reinforce", with R and, in its first term, b held constant; log p
    is a mean over pairs and heads. Layers are summed.

    Args:
      config: of the selector.
      selections: of every layer; those without a selector count for nothing.
      cost: loss of every example without these terms.
      baseline: b (see `loss_parameters`).

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
        if config.estimation == "reinforce":
            if baseline is None or selection.rate is None:
                raise ValueError("the estimator 'reinforce' needs a baseline")
            reward = -(cost + config.reward_penalty * jnp.mean(selection.rate, axis=1))
            reward = jax.lax.stop_gradient(reward)
            bound = jnp.broadcast_to(baseline, reward.shape)
            log_prob: Any = selection.log_prob
            surrogate = surrogate + F.score_function_loss(log_prob, reward, bound)
            surrogate = surrogate + (bound - reward) ** 2 / 2
    return penalty, surrogate


def density_terms(
    config: SelectorConfig, selections: tuple[gnn.Selection, ...], multiplier: Float[Array, ""]
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """(term, lambda) of every example that hold the density (see `constraint`).

    What is held is the mean probability of a selection over pairs, heads and layers.

    Args:
      config: with a density.
      selections: of every layer; those without a selector count for nothing.
      multiplier: the parameter of that name.
    """
    layers: list[Any] = _with_selector(selections)
    share = jnp.mean(jnp.stack([selection.probability for selection in layers]), axis=0)
    return constraint(multiplier, share, cast(float, config.density))


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


class _Pass(NamedTuple):
    """What one pass of training cost.

    Attributes:
      output: of the network.
      total: loss of every example, summed over its units [B].
      cost: the same per unit, without the surrogate of "reinforce" [B].
      multiplier: lambda of the constraint on the density [B], if there is one.
      score: see `Selection.score`; the sum over layers [B].
    """

    output: Any
    total: Array
    cost: Array
    multiplier: Array | None
    score: Array | None


@dataclasses.dataclass(frozen=True)
class SelectorTask:
    """The loss of a task, and what the selector adds to it.

    A task says what an example costs (`_cost`), what is measured (`_metrics`) and what is predicted
    (`_predictions`); `loss` and `evaluate` are the same for all.

    The estimators "leave_one_out", "arm" and "disarm" run the network several times, under other
    selections and the same dropout (`gates._train.train_passes`). The loss of an example, with all
    its terms, is the mean over these passes; the metrics are those of the first pass.

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
        weight, config = batch["weight"], self.model.config.gates
        several = config.selective and issubclass(KINDS[config.estimation], MultiPass)
        done = (self._estimated if several else self._passed)(params, batch, rngs)
        metrics = self._metrics(done.output, batch) | self._trained(done.cost, weight)
        metrics |= self._selector_metrics(done.output, weight)
        if done.multiplier is not None:
            metrics["multiplier"] = Ratio.of(done.multiplier, weight)
        return jnp.sum(jnp.where(weight > 0, done.total * weight, 0)), metrics

    def _passed(self, params: Params, batch: Batch, rngs: dict[str, Array]) -> _Pass:
        config = self.model.config.gates
        output: Output = self.model.apply({"params": params}, batch, train=True, rngs=rngs)
        summed, units = self._cost(output, batch)
        cost = summed / jnp.maximum(units, 1)
        selections = self._selections(output)
        penalty, surrogate = selector_terms(config, selections, cost, output.baseline)
        multiplier = None
        if config.selective and config.density is not None:
            held, multiplier = density_terms(config, selections, params["multiplier"])
            penalty = penalty + held
        total = summed + (penalty + surrogate) * units
        scores = [one.score for one in selections if one.score is not None]
        score = jnp.sum(jnp.stack(scores), axis=0) if scores else None
        return _Pass(output, total, cost + penalty, multiplier, score)

    def _estimated(self, params: Params, batch: Batch, rngs: dict[str, Array]) -> _Pass:
        """Returns the mean of several passes; the output is that of the first."""
        config = self.model.config.gates
        estimator: Any = create_estimator(config.estimation, draws=config.estimator_draws)
        others = {name: key for name, key in rngs.items() if name != "gate"}

        def run(gate: dict[str, Array]) -> tuple[Array, Array, _Pass]:
            done = self._passed(params, batch, others | gate)
            return done.total, cast(Array, done.score), done

        total, passes = train_passes(estimator, rngs["gate"], run)
        first = jax.tree.map(lambda x: x[0], passes)
        return first._replace(total=total, cost=jnp.mean(passes.cost, axis=0))

    def evaluate(self, params: Params, batch: Batch) -> tuple[Metrics, Predictions]:
        """Returns the metrics of the task with "selected_L" and "empty_L", and its predictions.

        Predictions also have "selected_heads" and "empty_heads", if a layer has a selector.
        """
        output: Output = self.model.apply({"params": params}, batch)
        metrics = self._metrics(output, batch) | self._selector_metrics(output, batch["weight"])
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
