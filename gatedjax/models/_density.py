"""A constraint on the share of open gates, as terms of a loss."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def constraint(
    multiplier: Float[Array, ""], share: Float[Array, " B"], density: float | Float[Array, ""]
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """Computes the terms of an augmented Lagrangian for gradient descent and ascent."""
    constant = jax.lax.stop_gradient(multiplier)
    excess = share - density
    # This term has the value 0 and the gradient -e for lambda, which makes descent an ascent.
    ascent = (constant - multiplier) * jax.lax.stop_gradient(excess)
    return constant * excess + excess**2 + ascent, jnp.broadcast_to(constant, share.shape)
