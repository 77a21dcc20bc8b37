"""A constraint on the share of open gates, as terms of a loss."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def constraint(
    multiplier: Float[Array, ""], share: Float[Array, " B"], density: float | Float[Array, ""]
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """Computes the terms of an augmented Lagrangian for gradient descent and ascent.

        e = p - density,  term = lambda e + e^2
        gradient of p: lambda + 2 e;  of lambda: -e

    The multiplier rises while too many gates are open, and falls, also below 0, while too few are.
    Adam changes it by about the learning rate per step, like the logits of the gates; a faster
    multiplier would oscillate, and the gates with it. The square damps the remaining oscillation,
    and it constrains each text, where lambda constrains only their mean.

    Args:
      multiplier: lambda, a scalar among the parameters of the network, which this constraint trains
        by gradient ascent.
      share: p, the mean probability of an open gate in each of B examples.
      density: the target of p, in (0, 1); may be traced.

    Returns:
      (term, lambda): the term of each example, which the caller adds to the loss of the example,
      and the value of lambda repeated for each example, for metrics.

    Reference: Bastings et al. 2019, "Interpretable Neural Predictions with Differentiable Binary
      Variables", section 3.4.
    Deviations: the constraint is an equality, with the square of the augmented Lagrangian; the
      optimiser of the network also trains the multiplier, and averages over steps in the place of
      the paper's moving average.
    """
    constant = jax.lax.stop_gradient(multiplier)
    excess = share - density
    # This term has the value 0 and the gradient -e for lambda, which makes descent an ascent.
    ascent = (constant - multiplier) * jax.lax.stop_gradient(excess)
    return constant * excess + excess**2 + ascent, jnp.broadcast_to(constant, share.shape)
