"""Values that carry a derivative of one's choice: the one rule by which a gradient is attached.

By `jax.custom_jvp` and not by the trick `value + s - stop_gradient(s)`: the value is exact where
the trick rounds, logits of -inf make no `inf - inf`, both modes of differentiation and `vmap` work,
and the derivative is itself a traced value that may be differentiated again (a critic of `Relax` is
trained through it). The rule ignores how the slope depends on anything, at the first derivative.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gatedjax.functional._checks import check_floating, check_same_shape, check_that, promoted


@jax.custom_jvp
def sloped(
    value: Float[Array, " n"], logits: Float[Array, " n"], slope: Float[Array, " n"]
) -> Float[Array, " n"]:
    """The value, with the derivative `slope` with respect to the logits, one by one; no other."""
    del logits, slope
    return value


@sloped.defjvp
def _sloped_jvp(primals, tangents):
    value, logits, slope = primals
    return sloped(value, logits, slope), jnp.multiply(*promoted(slope, tangents[1])).astype(
        value.dtype
    )


def attached(
    value: Float[Array, ""], logits: Float[Array, " n"], gradient: Float[Array, " n"]
) -> Float[Array, ""]:
    """The value, with a derivative of one's choice with respect to the logits.

    What an estimator of one's own (`Estimator.surrogate`) returns. Unlike the trick `value + s -
    stop_gradient(s)` it keeps the value's bits and is finite where a logit is -inf.

    Args:
      value: differentiable with respect to whatever else it depends on.
      logits: what the gradient is with respect to.
      gradient: how it depends on anything is left out, at the first derivative.

    Raises:
      ValueError: if the value is no scalar, or the gradient has another shape than the logits.
      TypeError: if the value is no floating number.
    """
    check_that(jnp.ndim(value) == 0, "value must be a scalar", value)
    check_floating(value=value)
    check_same_shape(logits=logits, gradient=gradient)
    return _attached(value, logits, gradient)


@jax.custom_jvp
def _attached(value: Array, logits: Array, gradient: Array) -> Array:
    del logits, gradient
    return value


@_attached.defjvp
def _attached_jvp(primals, tangents):
    value, logits, gradient = primals
    slope = jnp.sum(jnp.multiply(*promoted(gradient, tangents[1]))).astype(value.dtype)
    return _attached(value, logits, gradient), tangents[0] + slope
