"""Estimators by the derivative of the loss at one draw of gates, hard or relaxed: all biased."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gatedjax.functional import gumbel_sigmoid
from gatedjax.functional._checks import check_positive, promoted
from gatedjax.functional._relaxations import opened
from gatedjax.gates._estimator import Pathwise
from gatedjax.gates._slopes import sloped


@dataclasses.dataclass(frozen=True)
class _Tempered(Pathwise):
    """An estimator with a temperature."""

    tau: float | Float[Array, ""] = 0.5

    def __post_init__(self) -> None:
        check_positive(tau=self.tau)


@dataclasses.dataclass(frozen=True)
class SoftGumbel(_Tempered):
    """The Gumbel-sigmoid, or binary Concrete, relaxation.

        s = sigmoid((a + L) / tau);  gradient = f'(s) s (1 - s) / tau

    Biased, value and gradient: it is the exact pathwise gradient of E f(s), the expectation of
    another, continuous variable. One evaluation; needs f'. The bias falls with tau, as the
    variance rises.

    Attributes:
      tau: temperature > 0; may be traced.

    Reference: Maddison et al. 2017; Jang et al. 2017.
    """

    def gates(self, logits: Float[Array, " n"], noise: Float[Array, " n"]) -> Float[Array, " n"]:
        """The soft gates."""
        return gumbel_sigmoid(logits, noise, temperature=self.tau)


@dataclasses.dataclass(frozen=True)
class STGumbel(_Tempered):
    """Straight-through Gumbel: the hard draw forward, the relaxation backward.

        b = [a + L > 0];  gradient = f'(b) s (1 - s) / tau,  s = sigmoid((a + L) / tau)

    Biased; its value is unbiased. One evaluation; needs f'.

    Attributes:
      tau: temperature > 0; may be traced.

    Reference: Jang et al. 2017, section 2.2; Xue et al. 2020 (GA-Net).
    """

    hard: ClassVar[bool] = True

    def gates(self, logits: Float[Array, " n"], noise: Float[Array, " n"]) -> Float[Array, " n"]:
        """The hard gates with soft derivatives."""
        return gumbel_sigmoid(logits, noise, temperature=self.tau, straight_through=True)


@dataclasses.dataclass(frozen=True)
class StraightThrough(Pathwise):
    """The derivative at the draw, passed through the probability.

        b = [a + L > 0];  gradient = f'(b) p (1 - p),  p = sigmoid(a)

    Biased unless f is linear in each gate: its mean is E[f'(b)] p (1 - p). Its value is unbiased.
    One evaluation; needs f'.

    Reference: Bengio et al. 2013, "Estimating or Propagating Gradients Through Stochastic Neurons",
    with the derivative of the probability.
    """

    hard: ClassVar[bool] = True

    def gates(self, logits: Float[Array, " n"], noise: Float[Array, " n"]) -> Float[Array, " n"]:
        """The hard gates with the slope p (1 - p)."""
        p = jax.nn.sigmoid(logits)
        hard = opened(jnp.add(*promoted(logits, noise))).astype(logits.dtype)
        return sloped(hard, logits, p * jax.nn.sigmoid(-logits))


@dataclasses.dataclass(frozen=True)
class ReinMax(Pathwise):
    """Straight-through of second order, by the trapezoid rule in each gate.

        b = [a + L > 0];  gradient = f'(b) (1 - p) / 2 where b = 1,  f'(b) p / 2 where b = 0

    Its mean for one gate is p (1 - p) (f'(0) + f'(1)) / 2: unbiased for losses quadratic in each
    gate, products of gates among them, and biased for others. Its value is unbiased. One
    evaluation; needs f'.

    Reference: Liu et al. 2023, "Bridging Discrete and Backpropagation: Straight-Through and
    Beyond", written for two classes at tau = 1.
    """

    hard: ClassVar[bool] = True

    def gates(self, logits: Float[Array, " n"], noise: Float[Array, " n"]) -> Float[Array, " n"]:
        """The hard gates with half the slope of the probability of the other value."""
        hard = opened(jnp.add(*promoted(logits, noise))).astype(logits.dtype)
        return sloped(hard, logits, jax.nn.sigmoid(jnp.where(hard > 0, -logits, logits)) / 2)


@dataclasses.dataclass(frozen=True)
class MeanField(Pathwise):
    """The loss of the mean gates.

        gradient = f'(p) p (1 - p),  p = sigmoid(a)

    Biased, value and gradient, unless f is linear in each gate: then exact. No draw: variance 0.
    One evaluation; needs f'.

    Reference: the deterministic soft gate; mode "expected" of GA-Net here.
    """

    rows: ClassVar[int] = 0

    def gates(self, logits: Float[Array, " n"], noise: Float[Array, " n"]) -> Float[Array, " n"]:
        """The probabilities, whatever the noise."""
        return jax.nn.sigmoid(logits)
