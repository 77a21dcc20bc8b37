"""Values with a prescribed derivative, which gradient estimators return.

The functions use `jax.custom_jvp` instead of `value + s - stop_gradient(s)`. The value is then
exact, logits of -inf give no `inf - inf`, both modes of differentiation and `vmap` work, and the
derivative is a traced value that can be differentiated again (the critic of `Relax` is trained
through it). The first derivative treats the slope as a constant.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gatedjax.functional._checks import check_floating, check_same_shape, check_that, promote


@jax.custom_jvp
def attach_slope(
    value: Float[Array, " n"], logits: Float[Array, " n"], slope: Float[Array, " n"]
) -> Float[Array, " n"]:
    """Returns `value` with the elementwise derivative `slope` with respect to the logits only."""
    del logits, slope
    return value


@attach_slope.defjvp
def _attach_slope_jvp(primals, tangents):
    value, logits, slope = primals
    # JAX requires a tangent of the dtype of the value.
    return attach_slope(value, logits, slope), jnp.multiply(*promote(slope, tangents[1])).astype(
        value.dtype
    )


def attached(
    value: Float[Array, ""], logits: Float[Array, " n"], gradient: Float[Array, " n"]
) -> Float[Array, ""]:
    """Returns `value` with a prescribed gradient with respect to the logits.

    Use it in the method `surrogate` of a new estimator. Unlike `value + s - stop_gradient(s)` it
    does not round the value, and it is finite where a logit is -inf.

        >>> loss = lambda a: attached(jnp.float32(3.0), a, jnp.array([1.0, 2.0]))
        >>> print(loss(jnp.zeros(2)), jax.grad(loss)(jnp.zeros(2)))
        3.0 [1. 2.]

    Args:
      value: a scalar; its derivatives with respect to other inputs do not change.
      logits: the variables [n] by which the gradient is taken.
      gradient: the gradient [n]; the first derivative treats it as a constant.

    Returns:
      The same number as `value`.

    Raises:
      ValueError: if the value is not a scalar, or the gradient has another shape than the logits.
      TypeError: if the value is not a floating-point number.
    """
    check_that(jnp.ndim(value) == 0, "value must be a scalar", value)
    check_floating(value=value)
    check_same_shape(logits=logits, gradient=gradient)
    # The zeros do not change the value, and their slope is added to the derivatives that it has.
    zeros = jnp.zeros(jnp.shape(logits), jnp.result_type(*promote(gradient, logits)))
    return value + jnp.sum(attach_slope(zeros, logits, gradient)).astype(value.dtype)
