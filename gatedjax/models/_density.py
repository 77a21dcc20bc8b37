"""A share of open gates that is held: the constraint as terms of a loss."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def constraint(
    multiplier: Float[Array, ""], share: Float[Array, " B"], density: float
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """(term, lambda) of every example: gradient descent and ascent on an augmented Lagrangian.

        e = p - density,  term = lambda e + e^2
        gradient of p: lambda + 2 e;  of lambda: -e

    The multiplier rises while more than wanted is open, and falls below 0 where too little is. Adam
    moves it by about the learning rate a step, as it moves the gates' logits; a faster multiplier
    swings, and takes the gates with it. The square damps what is left of that, and asks of every
    text what lambda asks of all of them together.

    Args:
      multiplier: lambda, a parameter.
      share: p, the mean probability of an open gate in each example.
      density: what p is to be.

    Reference: Bastings et al. 2019, "Interpretable Neural Predictions with Differentiable Binary
      Variables", section 3.4.
    Deviations: an equality, with the square of the augmented Lagrangian; the multiplier is a
      parameter under the optimiser of the others; their average over steps is left to it.
    """
    held = jax.lax.stop_gradient(multiplier)
    off = share - density
    ascent = (held - multiplier) * jax.lax.stop_gradient(off)
    return held * off + off**2 + ascent, jnp.broadcast_to(held, share.shape)
