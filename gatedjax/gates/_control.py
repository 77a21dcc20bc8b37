"""REINFORCE with a control variate by reparametrisation: RELAX, and REBAR as its special case."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gatedjax.functional._checks import check_positive, promoted
from gatedjax.functional._relaxations import scaled
from gatedjax.gates._estimator import drawn
from gatedjax.gates._objective import Objective
from gatedjax.gates._score import score
from gatedjax.gates._slopes import attached

Critic = Callable[[Float[Array, " n"]], Float[Array, ""]]
"""c(z) -> scalar, differentiable in the perturbed logits z [n]."""


def conditional(
    logits: Float[Array, " n"], gates: Float[Array, " n"], noise: Float[Array, " n"]
) -> Float[Array, " n"]:
    """z given b: perturbed logits, drawn anew from those that give the gates.

        z = log(1 + e^V + e^(V + a)) where b = 1,  -log(1 + e^-V + e^(-V - a)) where b = 0

    With V logistic, the form of Tucker et al. without a logarithm of a difference.
    """
    sign = 2 * gates - 1
    return sign * jnp.logaddexp(jax.nn.softplus(sign * noise), sign * (noise + logits))


def _estimate(
    objective: Objective, critic: Critic, logits: Float[Array, " n"], noise: Float[Array, "2 n"]
) -> Float[Array, ""]:
    """(f(b) - c(z given b)) (b - p) + d/da (c(z) - c(z given b)), attached to f(b)."""
    # held: the outer derivative is attached, and need not pass through the inner one
    noise, held = noise.astype(logits.dtype), jax.lax.stop_gradient(logits)
    gates = drawn(held, noise[0])
    value = objective(gates)

    def difference(a):
        kept = critic(conditional(a, gates, noise[1]))
        return critic(a + noise[0]) - kept, kept

    slope, kept = jax.grad(difference, has_aux=True)(held)
    advantage = jnp.subtract(*promoted(value, kept))
    weighted = jnp.multiply(*promoted(advantage, score(held, gates)))
    return attached(value, logits, jnp.add(*promoted(weighted, slope)))


def _finite(critic: Critic) -> Critic:
    """The critic, given 0 in place of infinite numbers where it is not finite at these.

    Any function of z is a control variate, so the estimate stays unbiased.
    """

    def careful(z: Float[Array, " n"]) -> Float[Array, ""]:
        value, slope = jax.value_and_grad(critic)(jax.lax.stop_gradient(z))
        fits = jnp.isfinite(value) & jnp.all(jnp.isfinite(slope))
        return critic(jnp.where(jnp.isinf(z) & ~fits, 0, z))

    return careful


@dataclasses.dataclass(frozen=True)
class Relax:
    """REINFORCE with a free-form control variate.

        gradient = (f(b) - c(z')) (b - p) + d/da c(z) - d/da c(z')
        z = a + L,  b = [z > 0],  z' drawn given b

    Unbiased for every differentiable c. One evaluation of the loss, values alone, and two of c.
    The gradient is differentiable in what c closes over: train it on the mean square of the
    gradient, which has the slope of the variance.

    Attributes:
      critic: c(z) -> scalar, of perturbed logits z [n], which are infinite where a logit is, as at
        masked gates. Where c or its slope is not finite for that reason, it gets 0 there instead.

    Reference: Grathwohl et al. 2018, "Backpropagation through the Void", eq. 8-10.
    """

    critic: Critic
    unbiased: ClassVar[bool] = True
    needs_gradient: ClassVar[bool] = False
    rows: ClassVar[int] = 2

    def __repr__(self) -> str:
        # without the address of a function, so that a report is the same in every run
        return f"Relax({getattr(self.critic, '__name__', type(self.critic).__name__)})"

    def evaluations(self, n: int) -> int:
        """One, of the loss."""
        return 1

    def surrogate(
        self, objective: Objective, logits: Float[Array, " n"], noise: Float[Array, "rows n"]
    ) -> Float[Array, ""]:
        """f(b)."""
        return _estimate(objective, _finite(self.critic), logits, noise)


@dataclasses.dataclass(frozen=True)
class Rebar:
    """REINFORCE with the relaxed loss as control variate.

    `Relax` with c(z) = eta f(sigmoid(z / tau)). Unbiased for every eta and tau; three evaluations;
    needs f' at soft gates. Both may be traced, and the gradient is differentiable in them.

    Attributes:
      tau: temperature > 0.
      eta: the weight of the control variate; 0 is REINFORCE.

    Reference: Tucker et al. 2017, "REBAR: Low-variance, unbiased gradient estimates for discrete
    latent variable models", eq. 7, without its further relaxation.
    """

    tau: float | Float[Array, ""] = 0.5
    eta: float | Float[Array, ""] = 1.0
    unbiased: ClassVar[bool] = True
    needs_gradient: ClassVar[bool] = True
    rows: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_positive(tau=self.tau)

    def evaluations(self, n: int) -> int:
        """The draw and two relaxations."""
        return 3

    def surrogate(
        self, objective: Objective, logits: Float[Array, " n"], noise: Float[Array, "rows n"]
    ) -> Float[Array, ""]:
        """f(b)."""

        def critic(perturbed):
            relaxed = objective.held(jax.nn.sigmoid(scaled(perturbed, self.tau)))
            return jnp.multiply(*promoted(self.eta, relaxed))

        return _estimate(objective, critic, logits, noise)
