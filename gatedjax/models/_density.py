"""A constraint on the share of open gates, as terms of a loss."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def constraint(
    multiplier: Float[Array, ""], share: Float[Array, " B"], density: float | Float[Array, ""]
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """Returns (term, lambda) [B] of an augmented Lagrangian, for descent that ascends in lambda.

        e = p - density,  term = lambda e + e^2;   gradient of p: lambda + 2 e,  of lambda: -e

    The multiplier rises while too many gates are open. The square damps its oscillation, and it
    constrains each text, where lambda constrains only their mean. After Bastings et al. 2019,
    section 3.4, with an equality, and with the optimiser in the place of the moving average.
    """
    constant = jax.lax.stop_gradient(multiplier)
    excess = share - density
    # This term has the value 0 and the gradient -e for lambda, which makes descent an ascent.
    ascent = (constant - multiplier) * jax.lax.stop_gradient(excess)
    return constant * excess + excess**2 + ascent, jnp.broadcast_to(constant, share.shape)
