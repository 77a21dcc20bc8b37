"""The configuration of a selector, its terms of the loss, and the base class of its tasks."""

import dataclasses
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._utils.field_docs import document_fields
from gatedjax._utils.fields import FINITE, POSITIVE, SHARE, at_least, check_options
from gatedjax._utils.limits import MOST_LENGTH, MOST_STEPS
from gatedjax._utils.types import Output, Params
from gatedjax.functional._selective import Empty
from gatedjax.gates._registry import KINDS, EstimatorName, create_estimator
from gatedjax.gates._score import MultiPass
from gatedjax.gates._train import train_passes
from gatedjax.models._checks import Batch, Metrics, Predictions, check_batch, check_defaults
from gatedjax.models._classification import (
    NetworkTask,
    class_metrics,
    class_predictions,
    constraint,
    cross_entropy,
)
from gatedjax.nn._selection import check_trains_pairs
from gatedjax.training import Ratio

OF_TRAINING = (*("estimator", "density", "selected_weight", "entropy_weight"), "final_temperature")
"""The options that change only how a selector is trained, except for those that have no effect
without another option of them."""


@document_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectorConfig:
    """The options of a selector and of its terms of the loss, as keywords with defaults.

    >>> SelectorConfig(select_layers=(2, 1)).selective
    (1, 2)
    """

    select_layers: tuple[int, ...] = (1,)
    """Layers (from 1) that have a selector in their attention. With 0 or no layer the network is
    the standard encoder."""
    empty: Empty = "zero"
    """Rule for a token that selects no token: it attends to no token, to itself, or to all
    tokens."""
    cap: Annotated[float, at_least(0, MOST_LENGTH)] = 10.0
    """Bound of the gradient of closed gates under hard draws: the largest lead, in nats, of the
    score of an unselected key over the best selected key. The gradient grows by a factor of e per
    nat."""
    temperature: Annotated[float, POSITIVE] = 0.5
    """Temperature tau of the relaxation."""
    final_temperature: Annotated[float | None, POSITIVE] = None
    """Temperature after temperature-steps, approached geometrically. None keeps the temperature."""
    temperature_steps: Annotated[int, at_least(1, MOST_STEPS)] = 1
    """Number of steps from temperature to final-temperature."""
    estimator: EstimatorName | None = None
    """Estimator of the gradient of the selections, see `gatedjax.gates`. None means
    "st_gumbel", hard draws with the gradient of the relaxation."""
    estimator_draws: Annotated[int, at_least(2)] = 2
    """Number of passes of the estimator "leave_one_out"."""
    selected_weight: Annotated[float, FINITE] = 0.0
    """Weight s1 in the loss of the number of keys that a token selects, summed over heads."""
    density: Annotated[float | None, SHARE] = None
    """Target of the mean probability of a selection, which a Lagrange multiplier enforces. None has
    no target."""
    entropy_weight: Annotated[float, FINITE] = 0.0
    """Weight s2 in the loss of the mean negative entropy of the selection."""
    reward_penalty: Annotated[float, FINITE] = 0.02
    """Penalty lambda by which selecting all tokens lowers the reward of "reinforce"."""
    freeze_selector: bool = False
    """True keeps the selector at its initial parameters, without a gradient. Training selects the
    tokens that evaluation selects, those with a probability above 1/2, and draws no selection."""

    def __post_init__(self) -> None:
        check_options(self)
        if not self.selective:
            names = ("estimator", "density", "freeze_selector")
            check_defaults(self, names, "a network without a layer that selects")
        if self.freeze_selector:
            reason = "a selector with fixed parameters is not trained"
            check_defaults(self, OF_TRAINING, "freeze_selector=True", reason)
        if self.estimator is not None:
            check_trains_pairs(self.estimator, self.selective)
        if self.density is not None:
            check_defaults(self, ("selected_weight",), f"density={self.density}")

    @property
    def selective(self) -> tuple[int, ...]:
        """Numbers of the layers, from 1, that have a selector, in ascending order."""
        return tuple(sorted(layer for layer in self.select_layers if layer))

    @property
    def estimation(self) -> EstimatorName:
        """Name of the estimator of the selections: `estimator`, or "st_gumbel" for None."""
        return self.estimator or "st_gumbel"

    def selector_of(self, layer: int) -> EstimatorName | Literal["none", "threshold"]:
        """Returns the name of the estimator that trains the selections of a layer.

        `layer` counts from 1. The result is "none" for a layer without a selector, and "threshold"
        for a selector that is not trained.
        """
        if layer not in self.selective:
            return "none"
        return "threshold" if self.freeze_selector else self.estimation


def loss_parameters(module: nn.Module, config: SelectorConfig) -> Float[Array, ""] | None:
    """Creates the scalar parameters of the loss of a selector, if the configuration needs them."""
    if not config.selective:
        return None
    if config.density is not None:
        # The multiplier is a parameter, so that it is saved and restored with the network. It
        # starts at 0, without a constraint.
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
    """Returns the terms (penalty, surrogate) of each example in the loss, summed over layers.

        penalty = s_1 (keys that a token selects, summed over heads) - s_2 H(selection)
        R = -(cost + lambda rate);  surrogate = -(R - b) log p(A) + (b - R)^2 / 2

    The penalty is that of the code of Geng et al. 2020, the surrogate (for "reinforce") that of
    ReSAN (Shen et al. 2018). Padding does not count, b is a parameter instead of a moving mean, and
    only the gradient of the surrogate has a meaning.
    """
    penalty = surrogate = jnp.zeros_like(cost)
    for selection in _with_selector(selections):
        selected: Any = selection.selected
        entropy: Any = selection.entropy
        # s_1 counts keys per token, summed over heads as in the authors' code.
        if config.selected_weight:
            penalty = penalty + config.selected_weight * jnp.sum(selected, axis=1)
        if config.entropy_weight:
            # A positive weight raises the entropy of the selection.
            penalty = penalty - config.entropy_weight * entropy
        if config.estimation == "reinforce":
            if baseline is None or selection.rate is None:
                raise ValueError("baseline must be an array for estimator='reinforce', got None")
            reward = -(cost + config.reward_penalty * jnp.mean(selection.rate, axis=1))
            # The reward weights the gradient of log p and is no path of the gradient.
            reward = jax.lax.stop_gradient(reward)
            bound = jnp.broadcast_to(baseline, reward.shape)
            log_prob: Any = selection.log_prob
            surrogate = surrogate + F.score_function_loss(log_prob, reward, bound)
            # The squared error trains the baseline towards the mean reward.
            surrogate = surrogate + (bound - reward) ** 2 / 2
    return penalty, surrogate


def selector_metrics(selections: tuple[gnn.Selection, ...], weight: Float[Array, " B"]) -> Metrics:
    """Computes the shares "selected_1" of selected pairs and "empty_1" of tokens without a key."""
    metrics = {}
    for layer, selection in enumerate(selections, start=1):
        if selection.rate is not None and selection.empty is not None:
            metrics[f"selected_{layer}"] = Ratio.of(jnp.mean(selection.rate, axis=1), weight)
            metrics[f"empty_{layer}"] = Ratio.of(jnp.mean(selection.empty, axis=1), weight)
    return metrics


def _with_selector(selections: tuple[gnn.Selection, ...]) -> list[Any]:
    return [selection for selection in selections if selection.rate is not None]


class _Pass(NamedTuple):
    """The loss of a pass in training, for B examples."""

    output: Any
    total: Array  # [B], summed over units, with all terms of the selector
    cost: Array  # [B], per unit, without the surrogate
    multiplier: Array | None  # lambda of the density [B]
    score: Array | None  # `Selection.score` [B], for estimators with several passes


@dataclasses.dataclass(frozen=True)
class SelectorTask(NetworkTask):
    """The base class of tasks of networks with a selector, which adds its terms to the loss. A
    subclass defines `_metrics`, `_predictions` and `_cost`: the loss [B] summed over units, which
    are words or the example itself, and the number of units [B].
    """

    table: ClassVar[str] = "encoder/embed/embedding"
    streams: ClassVar[tuple[str, ...]] = ("params",)
    attention: ClassVar[str] = "encoder/layer_{layer}/attention"
    """Path of the attention of a layer among the parameters."""
    by_word: ClassVar[bool] = False
    """True if the metric "loss" of training is per word, as in evaluation, without penalties."""

    @property
    def frozen(self) -> tuple[str, ...]:
        """Paths of the parameters that training does not change.

        They are the path of the word vectors, such as ("encoder/embed/embedding",), if the network
        freezes them, and the paths of the projections of the selectors, such as
        "encoder/layer_1/attention/selector_query", if it freezes these; else ().
        """
        return super().frozen + self._frozen_selectors()

    def _frozen_selectors(self) -> tuple[str, ...]:
        gates: SelectorConfig = self.model.config.gates
        if not gates.freeze_selector:
            return ()
        places = [self.attention.format(layer=layer) for layer in gates.selective]
        return tuple(f"{at}/selector_{side}" for at in places for side in ("query", "key"))

    def loss(self, params: Params, batch: Batch, rngs: dict[str, Array]) -> Metrics:
        """Computes the training loss of a batch.

        The terms of the selector are multiplied with the number of units of an example: the number
        of words for a tagger or translator, 1 for other tasks.

        Args:
          params: the parameters, as from `init`.
          batch: the arrays of the network, and the labels and "weight" [B] of the task.
          rngs: a PRNG key for each of the streams "dropout" and "gate".

        Returns:
          The metrics, a dict of `Ratio`s (sums and counts). Training minimises the mean
          "objective", the loss with the terms of the selector. For a layer with a selector, such as
          layer 1, "selected_1" is the share of pairs of tokens that it selects, and "empty_1" the
          share of tokens that select no token.
        """
        check_batch(batch, weight="B")
        weight, config = batch["weight"], self.model.config.gates
        several = config.selective and issubclass(KINDS[config.estimation], MultiPass)
        result = (self._run_passes if several else self._run_pass)(params, batch, rngs)
        metrics = self._metrics(result.output, batch)
        if not self.by_word:
            metrics["loss"] = Ratio.of(result.cost, weight)
        metrics |= self._selector_metrics(result.output, weight)
        if result.multiplier is not None:
            metrics["multiplier"] = Ratio.of(result.multiplier, weight)
        # The metric "loss" is per unit, and the terms of the selector are not all part of it.
        total = Ratio.of(result.total, weight).total
        return metrics | {"objective": Ratio(total, metrics["loss"].count)}

    def _run_pass(self, params: Params, batch: Batch, rngs: dict[str, Array]) -> _Pass:
        """Computes the loss of a pass in training, with all terms of the selector."""
        config = self.model.config.gates
        output: Output = self.model.apply({"params": params}, batch, train=True, rngs=rngs)
        summed, units = self._cost(output, batch)
        # An example without units has a sum of 0, which is divided by 1.
        cost = summed / jnp.maximum(units, 1)
        selections = self._selections(output)
        penalty, surrogate = selector_terms(config, selections, cost, output.baseline)
        multiplier = None
        if config.selective and config.density is not None:
            # The constraint is on the mean open probability over pairs, heads and layers, and not
            # on draws, so that its gradient has no noise.
            layers = [selection.probability for selection in _with_selector(selections)]
            share = jnp.mean(jnp.stack(layers), axis=0)
            term, multiplier = constraint(params["multiplier"], share, config.density)
            penalty = penalty + term
        total = summed + (penalty + surrogate) * units
        scores = [selection.score for selection in selections if selection.score is not None]
        score = jnp.sum(jnp.stack(scores), axis=0) if scores else None
        return _Pass(output, total, cost + penalty, multiplier, score)

    def _run_passes(self, params: Params, batch: Batch, rngs: dict[str, Array]) -> _Pass:
        """Returns a `_Pass` of several passes: mean `cost`, `output` of the first pass."""
        config = self.model.config.gates
        estimator: Any = create_estimator(config.estimation, draws=config.estimator_draws)
        # All passes have equal dropout, so that their losses differ only by the selections.
        other_rngs = {name: key for name, key in rngs.items() if name != "gate"}

        def run(gate: dict[str, Array]) -> tuple[Array, Array, _Pass]:
            result = self._run_pass(params, batch, other_rngs | gate)
            return result.total, cast(Array, result.score), result

        total, passes = train_passes(estimator, rngs["gate"], run)
        first = jax.tree.map(lambda x: x[0], passes)
        return first._replace(total=total, cost=jnp.mean(passes.cost, axis=0))

    def evaluate(self, params: Params, batch: Batch) -> tuple[Metrics, Predictions]:
        """Evaluates a batch.

        Args:
          params: the parameters, as from `init`.
          batch: the arrays of the network, and the labels, "weight" [B] and "example_id" [B] of
            the task.

        Returns:
          (metrics, predictions): the metrics of the task, a dict of `Ratio`s, and its predictions,
          a dict of arrays [B, ...]. For a layer with a selector, such as layer 1, the metrics have
          "selected_1", the share of pairs of tokens that it selects, and "empty_1", the share of
          tokens that select no token. The predictions have these shares for each of the M heads of
          the S layers with a selector, as "selected_heads" and "empty_heads" [B, S, M].
        """
        output: Output = self.model.apply({"params": params}, batch)
        check_batch(batch, weight="B", example_id="B")
        metrics = self._metrics(output, batch) | self._selector_metrics(output, batch["weight"])
        predictions = self._predictions(output, batch)
        if layers := _with_selector(self._predicted_selections(output)):
            rates = [selection.rate for selection in layers]
            predictions["selected_heads"] = jnp.stack(rates, axis=1)
            shares = [selection.empty for selection in layers]
            predictions["empty_heads"] = jnp.stack(shares, axis=1)
        return metrics, predictions

    def _cost(self, output: Output, batch: Batch) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
        raise NotImplementedError

    def _metrics(self, output: Output, batch: Batch) -> Metrics:
        raise NotImplementedError

    def _predictions(self, output: Output, batch: Batch) -> Predictions:
        raise NotImplementedError

    def _selections(self, output: Output) -> tuple[gnn.Selection, ...]:
        return output.selections

    def _predicted_selections(self, output: Output) -> tuple[gnn.Selection, ...]:
        return self._selections(output)

    def _selector_metrics(self, output: Output, weight: Float[Array, " B"]) -> Metrics:
        return selector_metrics(output.selections, weight)


@dataclasses.dataclass(frozen=True)
class SelectorClassifierTask(SelectorTask):
    """The base class of tasks of classifiers with a selector: cross-entropy of the class."""

    def _cost(self, output: Output, batch: Batch) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
        check_batch(batch, label="B")
        cost = cross_entropy(output.logits, batch["label"])
        return cost, jnp.ones_like(cost)

    def _metrics(self, output: Output, batch: Batch) -> Metrics:
        check_batch(batch, label="B")
        return class_metrics(output.logits, batch["label"], batch["weight"])

    def _predictions(self, output: Output, batch: Batch) -> Predictions:
        return class_predictions(output.logits, batch)
