"""What a selector adds to the loss of the network it is in, and what is logged of it."""

from typing import Any, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax.training import Ratio


class HasSelector(Protocol):
    """The part of a configuration that is about the selector."""

    @property
    def selector(self) -> Any:
        """How selections are drawn, see `nn.SelectiveSelfAttention`."""

    @property
    def selected_weight(self) -> float:
        """s_1."""

    @property
    def entropy_weight(self) -> float:
        """s_2."""

    @property
    def reward_penalty(self) -> float:
        """lambda."""


def reward_baseline(module: nn.Module) -> Float[Array, ""]:
    """A scalar parameter of the module that the loss below fits to the mean reward."""
    return module.param("reward_baseline", nn.initializers.zeros, ())


def selector_terms(
    config: HasSelector,
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


def selector_metrics(
    selections: tuple[gnn.Selection, ...], weight: Float[Array, " B"]
) -> dict[str, Ratio]:
    """ "selected_L", the share of pairs that layer L selects, and "empty_L", of tokens without any.

    Examples count alike; heads are averaged.
    """
    metrics = {}
    for layer, selection in enumerate(selections, start=1):
        if selection.rate is not None and selection.empty is not None:
            metrics[f"selected_{layer}"] = Ratio.of(jnp.mean(selection.rate, axis=1), weight)
            metrics[f"empty_{layer}"] = Ratio.of(jnp.mean(selection.empty, axis=1), weight)
    return metrics


def selector_predictions(selections: tuple[gnn.Selection, ...]) -> dict[str, Array]:
    """ "selected_heads" and "empty_heads" [B, S, M] of the S layers with a selector, if any."""
    found: list[Any] = _with_selector(selections)
    if not found:
        return {}
    return {
        "selected_heads": jnp.stack([selection.rate for selection in found], axis=1),
        "empty_heads": jnp.stack([selection.empty for selection in found], axis=1),
    }


def _with_selector(selections: tuple[gnn.Selection, ...]) -> list[gnn.Selection]:
    return [selection for selection in selections if selection.rate is not None]
