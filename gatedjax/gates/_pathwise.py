"""Biased estimators: they differentiate the loss at one draw of hard, soft or stretched gates."""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gatedjax._utils.fields import check_type
from gatedjax.functional import gumbel_sigmoid
from gatedjax.functional._checks import check_positive, wide_dtype
from gatedjax.functional._types import ArrayLike
from gatedjax.gates._estimator import Pathwise, draw_gates
from gatedjax.gates._expectation import mask_logits
from gatedjax.gates._slopes import attach_slope

# For larger |a| a draw of the Kumaraswamy variable may be outside the range of float32.
_STEEPEST = 16.0


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
        hard = draw_gates(logits, noise)
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
        hard = draw_gates(logits, noise)
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Stretched(Pathwise):
    """An estimator with the gates min(1, max(0, s (high - low) + low)). A subclass draws the soft
    gate s in (0, 1) in `soft` and computes P(gate > 0) in `open_probability`.
    """

    low: float = -0.1
    high: float = 1.1

    def __post_init__(self) -> None:
        check_type("low", self.low, float)
        check_type("high", self.high, float)
        if not self.low < 0 < 1 < self.high:
            raise ValueError(
                f"low must be below 0 and high above 1, got {self.low} and {self.high}"
            )

    def soft(self, logits: Float[Array, " n"], noise: Float[Array, " n"]) -> Float[Array, " n"]:
        raise NotImplementedError

    def gates(self, logits: Float[Array, " n"], noise: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns the stretched and clipped gates, in [0, 1], for logits and logistic noise.

        Logits, noise and gates have the same shape.
        """
        return jnp.clip(self.soft(logits, noise) * (self.high - self.low) + self.low, 0, 1)

    def open_probability(self, logits: Float[Array, " n"]) -> Float[Array, " n"]:
        raise NotImplementedError

    def penalty(self, logits: ArrayLike, mask: Bool[Array, " n"] | None = None) -> Float[Array, ""]:
        """Computes the L0 penalty: the expected number of gates above 0, sum_i P(gate_i > 0).

        Args:
          logits: a [n], the parameters of the gates; -inf closes a gate.
          mask: True at real gates; None means all.

        Returns:
          A scalar in float32 or wider. Masked gates do not count.
        """
        logits = mask_logits(logits, mask)
        wide = wide_dtype(logits)
        open_ = self.open_probability(logits.astype(wide))
        return jnp.sum(jnp.where(logits == -jnp.inf, 0, open_))


@dataclasses.dataclass(frozen=True, kw_only=True)
class HardConcrete(_Stretched):
    """The hard concrete gate of L0 regularisation.

        s = sigmoid((a + L) / tau);  gate = min(1, max(0, s (high - low) + low))
        P(gate > 0) = sigmoid(a - tau log(-low / high))

    a are the logits, L is logistic noise, and f' is the derivative of the loss by the gates. The
    estimate is biased, in its value and in its gradient: it is the exact pathwise gradient of the
    expectation over another variable, which is 0 or 1 with positive probability and otherwise lies
    between. The derivative is 0 where a gate is clipped. The estimate evaluates the loss once and
    needs f'. `penalty` is the expected L0 norm.

        >>> print(HardConcrete().gates(jnp.array([9.0, 0.0, -9.0]), jnp.zeros(3)))
        [1.  0.5 0. ]
        >>> print(HardConcrete(low=-1.0, high=2.0, tau=1.0).penalty(jnp.zeros(3)).round(3))
        2.0

    Attributes:
      low, high: the stretched interval, low < 0 and high > 1.
      tau: temperature > 0.

    Reference: Louizos et al. 2018, "Learning Sparse Neural Networks through L0 Regularization",
    eq. 10-12.
    """

    tau: float = 2 / 3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(tau=self.tau)

    def soft(self, logits: Float[Array, " n"], noise: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns draws sigmoid((a + L) / tau) of the binary Concrete variable.

        a are the logits, the noise L is logistic noise of the same shape, and tau is the
        temperature. The draws are in (0, 1) and have this shape, too.
        """
        return gumbel_sigmoid(logits, noise, temperature=self.tau)

    def open_probability(self, logits: Float[Array, " n"]) -> Float[Array, " n"]:
        """Computes P(gate > 0) = sigmoid(a - tau log(-low / high)) from the logits a [n].

        tau is the temperature, and low and high are the ends of the stretched interval.
        """
        return jax.nn.sigmoid(logits - self.tau * math.log(-self.low / self.high))


@dataclasses.dataclass(frozen=True, kw_only=True)
class HardKuma(_Stretched):
    """The stretched and rectified Kumaraswamy gate.

        s = (1 - (1 - u)^(1 / beta))^(1 / alpha),  alpha = exp(a / 2),  beta = exp(-a / 2)
        gate = min(1, max(0, s (high - low) + low))
        P(gate > 0) = (1 - t^alpha)^beta,  t = -low / (high - low)

    a are the logits, u is uniform noise in (0, 1), and f' is the derivative of the loss by the
    gates. The estimate is biased, in its value and in its gradient, like `HardConcrete`: it is the
    exact pathwise gradient of the expectation over another variable. It evaluates the loss once and
    needs f'. `penalty` is the expected L0 norm.

        >>> kuma = HardKuma()
        >>> print(kuma.gates(jnp.array([9.0, 0.0, -9.0]), jnp.zeros(3)).round(2))
        [1.  0.5 0. ]

    Attributes:
      low, high: the stretched interval, low < 0 and high > 1.

    Reference: Bastings et al. 2019, "Interpretable Neural Predictions with Differentiable Binary
    Variables", section 4.
    Deviation: a single logit per gate gives both shapes, but the paper predicts alpha and beta;
    a = 0 is the uniform variable. |a| above 16 counts as 16.
    """

    def soft(self, logits: Float[Array, " n"], noise: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns draws of the Kumaraswamy variable by its inverse distribution function.

        The draws [n] are in (0, 1). logits a [n] determine both parameters of the distribution,
        alpha = exp(a / 2) and beta = exp(-a / 2), and noise is logistic noise [n].
        """
        alpha = jnp.exp(jnp.clip(logits, -_STEEPEST, _STEEPEST) / 2)
        # In logarithms, with 1 / beta = alpha and log(1 - u) = log_sigmoid(-L).
        power = jax.nn.log_sigmoid(-noise.astype(logits.dtype)) * alpha
        return jnp.exp(jnp.log(-jnp.expm1(power)) / alpha)

    def open_probability(self, logits: Float[Array, " n"]) -> Float[Array, " n"]:
        """Computes P(gate > 0) = (1 - t^alpha)^beta for each of the logits a [n].

        t = -low / (high - low) for the ends low and high of the stretched interval, and
        alpha = exp(a / 2) and beta = exp(-a / 2) are the parameters of the distribution.
        """
        alpha = jnp.exp(jnp.clip(logits, -_STEEPEST, _STEEPEST) / 2)
        t = -self.low / (self.high - self.low)
        # The power is computed in logarithms, with beta = 1 / alpha.
        return jnp.exp(jnp.log1p(-(t**alpha)) / alpha)
