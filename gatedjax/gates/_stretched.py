"""Gates in [0, 1] that are 0 or 1 with a probability of their own: stretched, then cut off."""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gatedjax.functional import gumbel_sigmoid
from gatedjax.functional._checks import check_positive, wide_dtype
from gatedjax.functional._types import ArrayLike
from gatedjax.gates._estimator import Pathwise
from gatedjax.gates._expectation import cut

# Beyond it a shape of the Kumaraswamy leaves float32 at one of the draws.
_STEEPEST = 16.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Stretched(Pathwise):
    """min(1, max(0, s (high - low) + low)) of a soft gate s in (0, 1)."""

    low: float = -0.1
    high: float = 1.1

    def __post_init__(self) -> None:
        if not self.low < 0 < 1 < self.high:
            raise ValueError(f"low must be < 0 and high > 1, got {self.low} and {self.high}")

    def soft(self, logits: Float[Array, " n"], noise: Float[Array, " n"]) -> Float[Array, " n"]:
        """The soft gate before it is stretched."""
        raise NotImplementedError

    def gates(self, logits: Float[Array, " n"], noise: Float[Array, " n"]) -> Float[Array, " n"]:
        """The stretched gates."""
        return jnp.clip(self.soft(logits, noise) * (self.high - self.low) + self.low, 0, 1)

    def open_probability(self, logits: Float[Array, " n"]) -> Float[Array, " n"]:
        """P(gate > 0), in closed form."""
        raise NotImplementedError

    def penalty(self, logits: ArrayLike, mask: Bool[Array, " n"] | None = None) -> Float[Array, ""]:
        """The L0 penalty: the expected number of gates that are not 0, sum_i P(gate_i > 0).

        Args:
          logits: a [n].
          mask: True at real gates; others do not count.
        """
        logits = cut(logits, mask)
        wide = wide_dtype(logits)
        open_ = self.open_probability(logits.astype(wide))
        return jnp.sum(jnp.where(logits == -jnp.inf, 0, open_))


@dataclasses.dataclass(frozen=True, kw_only=True)
class HardConcrete(_Stretched):
    """The hard concrete gate of L0 regularisation.

        s = sigmoid((a + L) / tau);  gate = min(1, max(0, s (high - low) + low))
        P(gate > 0) = sigmoid(a - tau log(-low / high))

    Biased, value and gradient: the exact pathwise gradient of another variable, which is 0 or 1
    with positive probability and lies between otherwise; 0 where it is cut off. One evaluation;
    needs f'. `penalty` is the expected L0 norm.

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
        """The binary Concrete."""
        return gumbel_sigmoid(logits, noise, temperature=self.tau)

    def open_probability(self, logits: Float[Array, " n"]) -> Float[Array, " n"]:
        """sigmoid(a - tau log(-low / high))."""
        return jax.nn.sigmoid(logits - self.tau * math.log(-self.low / self.high))


@dataclasses.dataclass(frozen=True, kw_only=True)
class HardKuma(_Stretched):
    """The stretched and rectified Kumaraswamy gate.

        s = (1 - (1 - u)^(1 / beta))^(1 / alpha),  alpha = exp(a / 2),  beta = exp(-a / 2)
        gate = min(1, max(0, s (high - low) + low))
        P(gate > 0) = (1 - t^alpha)^beta,  t = -low / (high - low)

    Biased, value and gradient: the exact pathwise gradient of another variable, as `HardConcrete`.
    One evaluation; needs f'. `penalty` is the expected L0 norm.

    Attributes:
      low, high: the stretched interval, low < 0 and high > 1.

    Reference: Bastings et al. 2019, "Interpretable Neural Predictions with Differentiable Binary
    Variables", section 4.
    Deviation: one logit per gate gives both shapes, where the paper predicts alpha and beta; a = 0
    is the uniform variable. |a| above 16 counts as 16.
    """

    def soft(self, logits: Float[Array, " n"], noise: Float[Array, " n"]) -> Float[Array, " n"]:
        """The Kumaraswamy variable by its inverse distribution function, in logarithms."""
        alpha = jnp.exp(jnp.clip(logits, -_STEEPEST, _STEEPEST) / 2)
        # 1 / beta = alpha; log(1 - u) = log_sigmoid(-L)
        power = jax.nn.log_sigmoid(-noise.astype(logits.dtype)) * alpha
        return jnp.exp(jnp.log(-jnp.expm1(power)) / alpha)

    def open_probability(self, logits: Float[Array, " n"]) -> Float[Array, " n"]:
        """(1 - t^alpha)^beta."""
        alpha = jnp.exp(jnp.clip(logits, -_STEEPEST, _STEEPEST) / 2)
        t = -self.low / (self.high - self.low)
        return jnp.exp(jnp.log1p(-(t**alpha)) / alpha)
