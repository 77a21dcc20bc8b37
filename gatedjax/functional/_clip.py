"""Clipping gradients inside a network, on their way back through an intermediate value."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gatedjax.functional._checks import check_floating, check_positive
from gatedjax.functional._types import Tree


def clip_gradient(x: Float[Array, "..."], bound: float) -> Float[Array, "..."]:
    """Returns x unchanged and clips its gradient elementwise to [-bound, bound].

    Only reverse mode is supported.

        >>> print(jax.grad(lambda x: jnp.sum(5 * clip_gradient(x, 2.0)))(jnp.ones(3)))
        [2. 2. 2.]

    Args:
      x: an array of any shape.
      bound: the largest absolute value of the gradient; positive and finite.

    Returns:
      x.

    Reference: Graves 2013, "Generating Sequences With Recurrent Neural Networks", section 2.1.
    """
    check_floating(x=x)
    check_positive(bound=bound)
    return clip_by(float(bound), jnp.asarray(x))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def clip_by(bound: float, x: Array) -> Array:
    """Returns x, with a gradient that is clipped to [-bound, bound], without checks."""
    del bound
    return x


def _clip_fwd(bound: float, x: Array) -> tuple[Array, None]:
    del bound
    return x, None


def _clip_bwd(bound: float, _: Tree, change: Array) -> tuple[Array]:
    return (jnp.clip(change, -bound, bound),)


clip_by.defvjp(_clip_fwd, _clip_bwd)
