"""The expectation of a loss over gates, with the estimate of an estimator as its derivative."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from gatedjax._utils.tracing import check_key
from gatedjax.functional import example_keys, logistic_noise
from gatedjax.functional._checks import (
    check_floating,
    check_mask,
    check_same_shape,
    check_that,
    wide_dtype,
)
from gatedjax.functional._types import ArrayLike
from gatedjax.gates._estimator import Estimator, check_estimator
from gatedjax.gates._objective import Loss, Objective, check_loss, has_derivative


def check_row(logits: ArrayLike, mask: ArrayLike) -> None:
    """Raises unless logits [n] have a floating dtype and the mask is a bool [n] or None."""
    check_floating(logits=logits)
    check_that(jnp.ndim(logits) == 1, "logits must have shape [n] (vmap adds axes)", logits)
    check_same_shape(logits=logits, mask=mask)
    check_mask(mask, jnp.shape(logits))


def mask_logits(logits: ArrayLike, mask: ArrayLike) -> Float[Array, " n"]:
    """Checks the logits [n] and returns them, with -inf where the mask is False."""
    check_row(logits, mask)
    return jnp.asarray(logits) if mask is None else jnp.where(mask, logits, -jnp.inf)


def draw_noise_rows(key: Key[Array, ""], rows: int, n: int) -> Float[Array, "rows n"]:
    """Draws `rows` rows of standard logistic noise for n gates, from a PRNG key."""
    if rows == 1:  # the same draw as `sample_gates` of this key
        return logistic_noise(key, (n,))[None]
    keys = example_keys(key, jnp.arange(rows))
    return jax.vmap(lambda row: logistic_noise(row, (n,)))(keys)


def expectation(loss: Loss, estimator: Estimator) -> Callable[..., Float[Array, ""]]:
    """Returns the expected loss over gates b_i ~ Bernoulli(sigmoid(a_i)), as a function of a.

        expected(logits, key, *args, mask=None) ~ E[loss(b, *args)]

    `jax.grad` of this function with respect to the logits is the estimate of the gradient, and with
    respect to args it is the ordinary gradient of the loss at the gates that were drawn. Each call
    gives a single estimate: use `jax.vmap` over keys for independent estimates, and `jax.vmap` over
    logits, keys and arguments for a batch. Only the first derivative is an estimate; higher
    derivatives are not.

        >>> from gatedjax.gates import Enumerate
        >>> expected = expectation(lambda gates: gates[0] + 2 * gates[1], Enumerate())
        >>> print(jax.grad(expected)(jnp.zeros(2), jax.random.key(0)))
        [0.25 0.5 ]

    Args:
      loss: loss(gates, *args) -> scalar; gates [n] in the dtype of the logits. Under `vmap` and
        for estimators with several evaluations it is called for several patterns at once.
      estimator: an estimator of this package, or any object of the protocol `Estimator`.

    Returns:
      A function expected(logits, key, *args, mask=None) -> scalar, for logits [n] and a PRNG key.
      Its mask [n] is True at real gates, or None for all; a masked gate is closed, has the gradient
      0, and does not change the draws of the gates before it. The result is float32 or wider. A
      real logit of NaN makes the result and the gradient of that logit NaN.

    Raises:
      ValueError: if `estimator` lacks a member of the protocol; when the function is called, if the
        loss does not return a scalar, or has no derivative and the estimator needs it.

    Reference: Mohamed et al. 2020, "Monte Carlo Gradient Estimation in Machine Learning".
    """

    check_loss(loss)
    check_estimator(estimator)

    def estimate_loss(
        logits: Float[Array, " n"],
        key: Key[Array, ""],
        *args: object,
        mask: Bool[Array, " n"] | None = None,
    ) -> Float[Array, ""]:
        """Returns an estimate of the expected loss, with the estimated gradient."""
        logits = mask_logits(logits, mask)
        check_key(key=key)
        n = logits.shape[0]
        objective = Objective(loss, args, logits.dtype)
        if estimator.needs_gradient and not has_derivative(objective, n):
            raise ValueError(
                "loss must have a derivative with respect to its gates for "
                f"{type(estimator).__name__}, got one that compares or rounds them, or stops their "
                "gradient; use DisARM, LeaveOneOut or LocalExpectation, which need only its values"
            )
        wide = logits.astype(wide_dtype(logits))
        estimate = estimator.surrogate(objective, wide, draw_noise_rows(key, estimator.rows, n))
        check_that(jnp.ndim(estimate) == 0, "surrogate must return a scalar", estimate)
        # A loss that compares its gates would hide a logit of NaN. Adding NaN to the estimate does
        # not change the gradient.
        has_nan = jnp.any(jnp.isnan(jax.lax.stop_gradient(logits)))
        return estimate + jnp.where(has_nan, jnp.nan, 0.0)

    return estimate_loss
