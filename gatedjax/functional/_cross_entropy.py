"""Cross-entropy of a large softmax together with its linear layer, for language models."""

from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gatedjax.functional._checks import (
    check_floating,
    check_mask,
    check_shape,
    check_that,
    check_values,
    integers_of,
    is_known,
    listed_as_array,
    wide_dtype,
)
from gatedjax.functional._recurrence import real_alone


def linear_cross_entropy(
    states: Float[Array, "*B H"],
    kernel: Float[Array, "H V"],
    targets: Int[Array, "*B"],
    *,
    bias: Float[Array, " V"] | None = None,
    mask: Bool[Array, "*B"] | None = None,
) -> Float[Array, "*B"]:
    """Computes the negative log-likelihood of classes under the softmax of a linear layer.

        nll = log sum_v exp(h W_v + b_v) - (h W_y + b_y)

    One product makes the logits of all positions; no one-hot vector is formed.

        >>> states, kernel, bias = jnp.ones((2, 3)), jnp.zeros((3, 4)), jnp.zeros(4)
        >>> nll = linear_cross_entropy(states, kernel, jnp.array([0, 3]), bias=bias)
        >>> print(jnp.exp(nll).round(2))
        [4. 4.]

    Args:
      states: h, a vector of H features at each position.
      kernel: W, with a column for each of V classes.
      targets: y, each in [0, V). No number means "ignore", unlike -100 in other libraries: use the
        mask. Under `jit`, where no value is known, a target outside gives NaN and no gradient.
      bias: b, a number for each class; None means 0.
      mask: True at positions that count; None means all. Masked positions have the value 0 and no
        gradient, whatever their targets and states are.

    Returns:
      The negative log-likelihood of each position in nats, in float32 (float64 for float64 states).

    Raises:
      ValueError: also if a target that is known and counts is outside [0, V).
    """
    targets = listed_as_array(targets)
    if mask is not None and is_known(targets, mask) and np.shape(mask) == np.shape(targets):
        # Masked targets may have any value, so they are replaced before the range is checked.
        counts, values = np.asarray(mask), np.asarray(targets)
        targets = cast(Array, np.where(counts, values, 0))
    targets = integers_of("targets", targets)
    states, kernel = map(jnp.asarray, (states, kernel))
    check_floating(states=states, kernel=kernel)
    if bias is not None:
        bias = jnp.asarray(bias)
        check_floating(bias=bias)
    fits = kernel.ndim == 2 and states.ndim > 0 and states.shape[-1] == kernel.shape[0]
    check_that(fits, "kernel must be [H, V] for states [..., H]", kernel, states)
    if kernel.shape[1] == 0:
        raise ValueError(f"kernel must have at least one class, got shape {kernel.shape}")
    check_shape(kernel.shape[1:], bias=bias)
    message = f"targets must have shape {states.shape[:-1]}, the leading axes of states"
    check_that(targets.shape == states.shape[:-1], message, targets)
    check_mask(mask, targets.shape)
    # Under `jit` no value is known, and a target outside of the range gives NaN instead.
    classes = kernel.shape[1]
    requirement = f"be in [0, {classes}); exclude positions without a target by mask"
    check_values("targets", targets, mask, lambda x: (x < 0) | (x >= classes), requirement)
    targets, states = real_alone((targets, states), mask)
    rows = states.reshape(targets.size, states.shape[-1])
    nll = _nll(rows, kernel, bias, targets.reshape(-1)).reshape(targets.shape)
    return real_alone(nll, mask)


def _nll(states: Array, kernel: Array, bias: Array | None, targets: Array) -> Array:
    """Computes `linear_cross_entropy` [N] of N states, without checks and mask."""
    # A custom backward pass from stored exponentials was slower: 1.10 times this one at N 400,
    # H 200, V 10,000 (medians of 25 turns on 2 idle cores of an AMD EPYC), because the three
    # products take 0.9 of the time.
    wide = wide_dtype(states)
    # The logits are float32 also for bfloat16 states, because 8 bits would drop each term below
    # 1/256 of the sum over V classes.
    logits = jnp.matmul(states, kernel, preferred_element_type=wide)
    if bias is not None:
        logits = logits + bias.astype(wide)[None]
    valid = (targets >= 0) & (targets < kernel.shape[1])
    # A target outside [0, V) reads the logit of class 0, and `where` replaces the result by NaN,
    # which has no gradient.
    of_target = jnp.take_along_axis(logits, jnp.where(valid, targets, 0)[:, None], axis=-1)[:, 0]
    nll = jax.nn.logsumexp(logits, axis=-1) - of_target
    return jnp.where(valid, nll, jnp.nan)
