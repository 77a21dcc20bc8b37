"""Attention pooling and windowed attention over a sequence."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from gatedjax.functional._checks import (
    check_floating,
    check_mask,
    check_not_both,
    check_positive,
    check_same_shape,
    check_shape,
    wide_dtype,
    wide_integers,
)
from gatedjax.functional._softmax import length_mask, masked_softmax


def attention_pool(
    states: Float[Array, "*B T D"],
    weights: Float[Array, "*B T"],
    mask: Bool[Array, "*B T"] | None = None,
) -> Float[Array, "*B D"]:
    """Sums states by their weights: c = sum_t alpha_t h_t.

        >>> states = jnp.array([[1.0, 2.0], [3.0, 4.0]])
        >>> print(attention_pool(states, jnp.array([0.5, 0.5])))
        [2. 3.]

    Args:
      states: h, a vector of D features at each of T positions.
      weights: alpha, a number for each position; without a mask 0 at padding.
      mask: True at real positions (an axis may be 1 to broadcast). States and weights at the other
        positions, NaN included, have no effect on values or gradients. None takes the positions
        where states are NaN or infinite and weights exactly 0 for padding.

    Returns:
      c in the dtype of states, summed in float32 or wider; 0 for a row without a real position.

    Reference: Xue et al. 2020 (GA-Net), eq. 3.
    """
    check_floating(states=states, weights=weights)
    if jnp.shape(weights) != jnp.shape(states)[:-1]:
        raise ValueError(
            f"weights must have shape {jnp.shape(states)[:-1]}, the leading axes of states "
            f"{jnp.shape(states)}, got {jnp.shape(weights)}"
        )
    check_mask(mask, jnp.shape(weights))
    states, weights = jnp.asarray(states), jnp.asarray(weights)
    if mask is None:
        # Finite states stay also at weight 0, because the gradient of a closed gate needs them.
        real = (weights != 0)[..., None] | jnp.isfinite(states)
    else:
        real = jnp.asarray(mask)[..., None]
        # Weights and states are both cleared, because 0 * NaN is NaN.
        weights = jnp.where(mask, weights, jnp.zeros_like(weights))
    return weighted_sum(jnp.where(real, states, jnp.zeros_like(states)), weights)


def weighted_sum(states: Array, weights: Array) -> Array:
    """Computes sum_t weights_t states_t, without checks; padding is finite and has the weight 0."""
    pooled = jnp.einsum(
        "...t,...td->...d", weights, states, preferred_element_type=wide_dtype(states, weights)
    )
    return pooled.astype(states.dtype)


def local_attention_weights(
    scores: Float[Array, "*B T"],
    position: Float[Array, "*B"],
    half_width: float | Float[Array, ""],
    mask: Bool[Array, "*B T"] | None = None,
    *,
    lengths: Int[Array, "*B"] | None = None,
    renormalise: bool = False,
) -> Float[Array, "*B T"]:
    """Computes attention inside a window around a predicted position, under a Gaussian.

    alpha_t = softmax_{|t - p| <= D}(e)_t * exp(-(t - p)^2 / (2 s^2)),  s = D / 2.

        >>> mask = jnp.array([[True, True, True, True, False]])
        >>> weights = local_attention_weights(jnp.zeros((1, 5)), jnp.array([1.0]), 2.0, mask)
        >>> print((weights > 0).astype(int), weights[0, 1])
        [[1 1 1 1 0]] 0.25

    Args:
      scores: e, unnormalised attention for each of T tokens, in nats.
      position: p, the centre of the window of each row, a real number counted from 0; the gradient
        flows through the Gaussian.
      half_width: D > 0, half of the window in tokens. The real token nearest to p always belongs to
        the window.
      mask: True at real tokens (an axis may be 1 to broadcast); None means all. Masked tokens have
        the weight 0, and their scores, NaN included, have no effect on values or gradients. Real
        tokens keep their positions, also behind masked tokens.
      lengths: instead of mask, the number of real tokens per row (see `length_mask`).
      renormalise: divide by the sum, so that the weights add up to 1.

    Returns:
      Weights in the dtype of scores; 0 outside the window and where the mask is False; a row
      without a real token is all 0. Without renormalise they add up to at most 1.

    Reference: Luong et al. 2015, local-p; Xue et al. 2020 (GA-Net), "BiLSTM+localAtt".
    Deviation: p is 0-based; the query is the last hidden state (adapted by Xue et al.).
    """
    check_floating(scores=scores, position=position)
    check_positive(half_width=half_width)
    check_shape((), half_width=half_width)
    if jnp.shape(position) != jnp.shape(scores)[:-1]:
        raise ValueError(
            f"position must have shape {jnp.shape(scores)[:-1]}, the leading axes of scores "
            f"{jnp.shape(scores)}, got {jnp.shape(position)}"
        )
    dtype = wide_dtype(scores, position)
    shape = jnp.shape(scores)
    steps = lax.broadcasted_iota(dtype, shape, len(shape) - 1)
    if lengths is not None:
        check_not_both(mask=mask, lengths=lengths)
        check_same_shape(position=position, lengths=lengths)
        mask = length_mask(lengths, shape[-1])
        has_tokens = jnp.asarray(lengths) > 0
    else:
        check_mask(mask, shape)
        mask = jnp.broadcast_to(True if mask is None else jnp.asarray(mask), shape)
        has_tokens = jnp.any(mask, axis=-1)
    # A row without tokens has no position; the given one may be NaN.
    position = jnp.where(has_tokens, jnp.asarray(position, dtype), 0)
    centre = position[..., None]
    # Membership in the window has no derivative; p gets its gradient from the Gaussian.
    fixed_centre = lax.stop_gradient(centre)
    if lengths is not None:
        # Under `jit` a length above T cannot be refused; it counts as T, as in `length_mask`.
        inside_length = jnp.minimum(wide_integers(lengths), shape[-1])
        last = jnp.maximum(inside_length.astype(dtype) - 1, 0)[..., None]
        nearest = jnp.round(jnp.clip(fixed_centre, 0, last))
    else:
        nearest = _nearest_real(fixed_centre, steps, mask)
    if not isinstance(half_width, int | float):  # a number keeps its digits in what follows
        half_width = jnp.asarray(half_width, dtype)
    # A position p outside the sequence, or a half width below 0.5, may leave all tokens out of the
    # window; the nearest token keeps the softmax defined.
    inside = (jnp.abs(steps - centre) <= half_width) | (steps == nearest)
    softmax = masked_softmax(jnp.asarray(scores, dtype), mask & inside)
    log_gaussian = -((steps - centre) ** 2) / (2 * (half_width / 2) ** 2)
    if renormalise:
        # One softmax in log space: a window whose Gaussian underflows still sums to 1.
        weights = masked_softmax(jnp.asarray(scores, dtype) + log_gaussian, mask & inside)
    else:
        weights = softmax * jnp.exp(log_gaussian)
    return weights.astype(jnp.result_type(scores))


def _nearest_real(centre: Array, steps: Array, mask: Array) -> Array:
    """Returns the real position nearest to the centre, [..., 1]; infinity if no token is real."""
    # A mesh with explicit axes requires the cases of `where` to have the sharding of the mask.
    steps = steps + jnp.zeros_like(mask, steps.dtype)
    infinite = jnp.full_like(steps, jnp.inf)

    def least(values: Array) -> Array:
        return jnp.min(values, axis=-1, keepdims=True, initial=jnp.inf)

    # A centre far outside would have the same rounded distance from several tokens.
    first = least(jnp.where(mask, steps, infinite))
    last = -least(jnp.where(mask, -steps, infinite))
    inside = jnp.clip(centre, first, last)
    distances = jnp.where(mask, jnp.abs(steps - inside), infinite)
    is_nearest = mask & (distances == least(distances))
    # Of two equally near positions the rounded centre wins if it is real, else the first.
    rounded = jnp.round(inside)
    earliest = least(jnp.where(is_nearest, steps, infinite))
    return jnp.where(jnp.any(is_nearest & (steps == rounded), -1, keepdims=True), rounded, earliest)
