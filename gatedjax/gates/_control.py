"""REINFORCE with a reparametrised control variate: RELAX, and its special case REBAR."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gatedjax._utils.fields import check_type
from gatedjax.functional._checks import check_finite, check_positive, promote
from gatedjax.functional._relaxations import divide_by_temperature
from gatedjax.gates._estimator import draw_gates
from gatedjax.gates._objective import Objective
from gatedjax.gates._score import score
from gatedjax.gates._slopes import attached

Critic = Callable[[Float[Array, " n"]], Float[Array, ""]]
"""c(z) -> scalar, differentiable in the perturbed logits z [n]."""


def draw_conditional(
    logits: Float[Array, " n"], gates: Float[Array, " n"], noise: Float[Array, " n"]
) -> Float[Array, " n"]:
    """Draws perturbed logits z given the gates b, from logistic noise V and the logits a.

        z = log(1 + e^V + e^(V + a)) where b = 1,  -log(1 + e^-V + e^(-V - a)) where b = 0

    V is independent of the gates' noise. Tucker et al. 2017, without a log of a difference.
    """
    # The cases b = 1 and b = 0 differ only in signs, so a single expression serves both.
    sign = 2 * gates - 1
    return sign * jnp.logaddexp(jax.nn.softplus(sign * noise), sign * (noise + logits))


def _estimate(
    objective: Objective, critic: Critic, logits: Float[Array, " n"], noise: Float[Array, "2 n"]
) -> Float[Array, ""]:
    """Returns f(b) with the gradient (f(b) - c(z given b)) (b - p) + d/da (c(z) - c(z given b))."""
    # The outer derivative is attached to the value, so it need not pass through the inner one.
    noise, fixed = noise.astype(logits.dtype), jax.lax.stop_gradient(logits)
    gates = draw_gates(fixed, noise[0])
    value = objective(gates)

    def difference(a):
        control = critic(draw_conditional(a, gates, noise[1]))
        return critic(a + noise[0]) - control, control

    # c(z given b) is also the baseline of f(b), so it is returned next to the derivative.
    slope, control = jax.grad(difference, has_aux=True)(fixed)
    advantage = jnp.subtract(*promote(value, control))
    weighted = jnp.multiply(*promote(advantage, score(fixed, gates)))
    return attached(value, logits, jnp.add(*promote(weighted, slope)))


def _make_finite(critic: Critic) -> Critic:
    """Returns a critic that is finite at infinite z; any function of z leaves no bias."""

    def finite_critic(z: Float[Array, " n"]) -> Float[Array, ""]:
        value, slope = jax.value_and_grad(critic)(jax.lax.stop_gradient(z))
        # The test is a constant; derivatives pass only through the call below.
        is_finite = jnp.isfinite(value) & jnp.all(jnp.isfinite(slope))
        return critic(jnp.where(jnp.isinf(z) & ~is_finite, 0, z))

    return finite_critic


@dataclasses.dataclass(frozen=True)
class Relax:
    """REINFORCE with a free-form control variate.

        gradient = (f(b) - c(z')) (b - p) + d/da c(z) - d/da c(z')
        z = a + L,  b = [z > 0],  z' drawn given b

    f is the loss, a are the logits [n], L is logistic noise, p = sigmoid(a), and c is the critic.
    The estimate is unbiased for any differentiable c. It evaluates the loss once, without its
    derivative, and c twice. The gradient is differentiable with respect to the parameters that c
    closes over: train them on the mean square of the gradient, which has the same derivative as the
    variance.

    `gates.expectation(loss, estimator)` returns a function of (logits, key); `jax.grad` of it is
    the estimate.

        >>> relax = Relax(lambda z: jnp.sum(jax.nn.sigmoid(z)))
        >>> relax.unbiased, relax.needs_gradient, relax.evaluations(3)
        (True, False, 1)

    Attributes:
      critic: a function c(z) -> scalar. It takes the perturbed logits z [n], which are infinite
        where a logit is infinite, as at masked gates. If c or its slope is not finite at such
        logits, c is evaluated with 0 in their place.

    Reference: Grathwohl et al. 2018, "Backpropagation through the Void", eq. 8-10.
    """

    critic: Critic
    unbiased: ClassVar[bool] = True
    needs_gradient: ClassVar[bool] = False
    rows: ClassVar[int] = 2

    def __repr__(self) -> str:
        # The address of the function is left out, so that reports of different runs are equal.
        return f"Relax({getattr(self.critic, '__name__', type(self.critic).__name__)})"

    def evaluations(self, n: int) -> int:
        """Returns 1 for any number n of gates, because evaluations of the critic do not count."""
        return 1

    def surrogate(
        self, objective: Objective, logits: Float[Array, " n"], noise: Float[Array, "rows n"]
    ) -> Float[Array, ""]:
        """Returns the loss f(b) of a draw, with the estimate as its gradient by the logits.

        objective is the loss f as a function of the gates, logits are [n], float32 or wider, and
        noise is logistic noise [2, n].
        """
        return _estimate(objective, _make_finite(self.critic), logits, noise)


@dataclasses.dataclass(frozen=True)
class Rebar:
    """REINFORCE with the relaxed loss as control variate.

        gradient = (f(b) - c(z')) (b - p) + d/da c(z) - d/da c(z')
        c(z) = eta f(sigmoid(z / tau)),  z = a + L,  b = [z > 0],  z' drawn given b

    f is the loss, a are the logits [n], L is logistic noise, and p = sigmoid(a). The estimate is
    unbiased for any eta and tau. It evaluates the loss three times and needs its derivative at soft
    gates. The gradient is differentiable with respect to eta and tau, which may be traced.

    `gates.expectation(loss, estimator)` returns a function of (logits, key); `jax.grad` of it is
    the estimate.

        >>> rebar = Rebar(tau=0.5, eta=1.0)
        >>> rebar.unbiased, rebar.needs_gradient, rebar.evaluations(3)
        (True, True, 3)

    Attributes:
      tau: temperature > 0 of the relaxed gates sigmoid(z / tau), a number or a traced scalar.
      eta: the weight of the control variate, a number or a traced scalar; 0 is REINFORCE.

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
        check_type("eta", self.eta, float)
        check_finite(eta=self.eta)

    def evaluations(self, n: int) -> int:
        """Returns 3 for any number n of gates: the loss of the draw and of two relaxations."""
        return 3

    def surrogate(
        self, objective: Objective, logits: Float[Array, " n"], noise: Float[Array, "rows n"]
    ) -> Float[Array, ""]:
        """Returns the loss f(b) of a draw, with the estimate as its gradient by the logits.

        objective is the loss f as a function of the gates, logits are [n], float32 or wider, and
        noise is logistic noise [2, n].
        """

        def critic(perturbed):
            # The relaxed loss is a control variate for the logits. The other arguments of the loss
            # get their gradient from f(b), so it must not reach them here.
            relaxed = objective.held(
                jax.nn.sigmoid(divide_by_temperature(*promote(perturbed, self.tau)))
            )
            return jnp.multiply(*promote(self.eta, relaxed))

        return _estimate(objective, critic, logits, noise)
