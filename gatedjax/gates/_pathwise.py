"""Biased estimators, which differentiate the loss at a single draw of hard or relaxed gates."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gatedjax.functional import gumbel_sigmoid
from gatedjax.functional._checks import check_positive, promote
from gatedjax.functional._relaxations import binarize
from gatedjax.gates._estimator import Pathwise
from gatedjax.gates._slopes import attach_slope


@dataclasses.dataclass(frozen=True)
class _Tempered(Pathwise):
    """The base class of estimators with a temperature, `SoftGumbel` and `STGumbel`."""

    tau: float | Float[Array, ""] = 0.5

    def __post_init__(self) -> None:
        check_positive(tau=self.tau)


@dataclasses.dataclass(frozen=True)
class SoftGumbel(_Tempered):
    """The Gumbel-sigmoid, or binary Concrete, relaxation.

        s = sigmoid((a + L) / tau);  gradient = f'(s) s (1 - s) / tau

    f is the loss, f' its derivative by the gates, a are the logits, and L is logistic noise.
    The estimate is biased, in its value and in its gradient: it is the exact pathwise gradient of
    E f(s), the expectation over a continuous variable. It evaluates the loss once and needs f'. A
    smaller tau lowers the bias and raises the variance.

        >>> print(SoftGumbel(tau=1.0).gates(jnp.zeros(2), jnp.array([0.0, -jnp.inf])))
        [0.5 0. ]

    Attributes:
      tau: temperature > 0; may be traced.

    Reference: Maddison et al. 2017; Jang et al. 2017.
    """

    def gates(self, logits: Float[Array, " n"], noise: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns the soft gates s = sigmoid((a + L) / tau), for logits a and logistic noise L.

        tau is the temperature. Logits, noise and gates have the same shape.
        """
        return gumbel_sigmoid(logits, noise, temperature=self.tau)


@dataclasses.dataclass(frozen=True)
class STGumbel(_Tempered):
    """The straight-through Gumbel estimator: a hard draw with the gradient of its relaxation.

        b = [a + L > 0];  gradient = f'(b) s (1 - s) / tau,  s = sigmoid((a + L) / tau)

    f is the loss, f' its derivative by the gates, a are the logits, and L is logistic noise.
    The gradient is biased; the value f(b) is unbiased. The estimate evaluates the loss once and
    needs f'.

        >>> print(STGumbel(tau=1.0).gates(jnp.array([2.0, -2.0]), jnp.zeros(2)))
        [1. 0.]

    Attributes:
      tau: temperature > 0; may be traced.

    Reference: Jang et al. 2017, section 2.2; Xue et al. 2020 (GA-Net).
    """

    hard: ClassVar[bool] = True

    def gates(self, logits: Float[Array, " n"], noise: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns the hard gates b = [a + L > 0] with the derivative of s = sigmoid((a + L) / tau).

        a are the logits and L is logistic noise; both have the shape of the gates. tau is the
        temperature.
        """
        return gumbel_sigmoid(logits, noise, temperature=self.tau, straight_through=True)


@dataclasses.dataclass(frozen=True)
class StraightThrough(Pathwise):
    """The straight-through estimator: a hard draw with the gradient of its probability.

        b = [a + L > 0];  gradient = f'(b) p (1 - p),  p = sigmoid(a)

    f is the loss, f' its derivative by the gates, a are the logits, and L is logistic noise.
    The gradient is biased unless f is linear in each gate; its mean is E[f'(b)] p (1 - p). The
    value is unbiased. The estimate evaluates the loss once and needs f'.

        >>> gates = lambda logits: StraightThrough().gates(logits, jnp.zeros(1))[0]
        >>> value, gradient = jax.value_and_grad(gates)(jnp.zeros(1))
        >>> print(value, gradient)
        0.0 [0.25]

    Reference: Bengio et al. 2013, "Estimating or Propagating Gradients Through Stochastic Neurons",
    with the derivative of the probability.
    """

    hard: ClassVar[bool] = True

    def gates(self, logits: Float[Array, " n"], noise: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns the hard gates b = [a + L > 0] with the derivative p (1 - p), p = sigmoid(a).

        a are the logits and L is logistic noise; both have the shape of the gates.
        """
        p = jax.nn.sigmoid(logits)
        hard = binarize(jnp.add(*promote(logits, noise))).astype(logits.dtype)
        # sigmoid(-a) keeps the digits of 1 - p where p is near 1.
        return attach_slope(hard, logits, p * jax.nn.sigmoid(-logits))


@dataclasses.dataclass(frozen=True)
class ReinMax(Pathwise):
    """A straight-through estimator of second order, by the trapezoid rule in each gate.

        b = [a + L > 0];  gradient = f'(b) (1 - p) / 2 where b = 1,  f'(b) p / 2 where b = 0

    f is the loss, f' its derivative by the gates, a are the logits, L is logistic noise, and p =
    sigmoid(a). The mean of the gradient for a single gate is p (1 - p) (f'(0) + f'(1)) / 2. It is
    unbiased for losses that are quadratic in each gate, which includes products of gates, and
    biased for other losses. The value is unbiased. The estimate evaluates the loss once and needs
    f'.

        >>> print(ReinMax().gates(jnp.array([2.0, -2.0]), jnp.zeros(2)))
        [1. 0.]

    Reference: Liu et al. 2023, "Bridging Discrete and Backpropagation: Straight-Through and
    Beyond", written for two classes at tau = 1.
    """

    hard: ClassVar[bool] = True

    def gates(self, logits: Float[Array, " n"], noise: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns the hard gates b = [a + L > 0]; the derivative is half the probability of 1 - b.

        With p = sigmoid(a) it is (1 - p) / 2 where b = 1, and p / 2 where b = 0.

        a are the logits and L is logistic noise; both have the shape of the gates.
        """
        hard = binarize(jnp.add(*promote(logits, noise))).astype(logits.dtype)
        return attach_slope(hard, logits, jax.nn.sigmoid(jnp.where(hard > 0, -logits, logits)) / 2)


@dataclasses.dataclass(frozen=True)
class MeanField(Pathwise):
    """The loss at the mean gates.

        gradient = f'(p) p (1 - p),  p = sigmoid(a)

    f is the loss, f' its derivative by the gates, and a are the logits. The estimate is biased, in
    its value f(p) and in its gradient, unless f is linear in each gate; then both are exact. The
    variance is 0, because no gates are drawn. The estimate evaluates the loss once and needs
    f'.

        >>> print(MeanField().gates(jnp.array([0.0, -jnp.inf]), jnp.zeros(2)))
        [0.5 0. ]

    Reference: the deterministic soft gate; mode "expected" of GA-Net in this library.
    """

    rows: ClassVar[int] = 0

    def gates(self, logits: Float[Array, " n"], noise: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns the open probabilities p = sigmoid(a) of the logits a, as gates.

        The noise is not used.
        """
        return jax.nn.sigmoid(logits)
