"""Softmax over the real or open positions of a sequence, attention pooling, windowed attention.

A function that checks its arguments is followed by its core, which computes without checks: modules
and networks call the core, because they check their arguments.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.export import is_symbolic_dim
from jaxtyping import Array, Bool, Float, Int

from gatedjax.functional._checks import (
    check_axis,
    check_dtype,
    check_floating,
    check_mask,
    check_not_both,
    check_positive,
    check_same_shape,
    check_shape,
    check_values,
    integers_of,
    listed_as_array,
    wide_dtype,
)
from gatedjax.functional._recurrence import real_alone
from gatedjax.functional._types import ArrayLike

# exp(80) is finite in float32 with room for a sum: the bound on d(weight)/d(gate) of a closed gate.
_MAX_EXPONENT = 80.0
_LARGEST_RATIO = math.exp(_MAX_EXPONENT - 1e-3)  # from here on a ratio is at its bound: a constant


def length_mask(lengths: Int[Array, "*B"], size: int) -> Bool[Array, "*B size"]:
    """Returns True at the positions before each length: mask[..., t] = t < lengths[...].

        >>> print(length_mask(jnp.array([2, 0]), 3))
        [[ True  True False]
         [False False False]]

    Args:
      lengths: number of real positions per row, in [0, size]. Under `jit`, where their values are
        unknown, lengths below 0 count as 0, and lengths above size as size. (JAX has then already
        cut 64-bit integers to 32 bits.)
      size: T, the length with padding, an int or a symbolic dimension of `jax.export`.

    Returns:
      The mask, with one axis more than lengths.

    Raises:
      TypeError: if size is not an int.
      ValueError: if size is negative, or outside of `jit` a length is not in [0, size].
    """
    is_open = is_symbolic_dim(size)  # by `jax.export`, and then no int
    if not isinstance(size, int | np.integer) and not is_open:
        raise TypeError(f"size must be an int known while tracing, got {type(size).__name__}")
    if size < 0:
        raise ValueError(f"size must not be negative, got {size}")
    values = listed_as_array(lengths)
    lengths = integers_of("lengths", values)
    most = math.inf if is_open else size
    wrong = lambda x: (x < 0) | (x > most)  # noqa: E731
    check_values("lengths", values, None, wrong, f"be in [0, {size}]")
    positions = lax.broadcasted_iota(lengths.dtype, (*lengths.shape, size), lengths.ndim)
    return positions < lengths[..., None]


def step_mask(shape: tuple[int, ...], mask: ArrayLike, lengths: ArrayLike) -> Array | None:
    """Checks `mask` or `lengths`, of which one may be given; returns the mask [B, T], or None."""
    if lengths is not None:
        check_not_both(mask=mask, lengths=lengths)
        check_dtype(jnp.integer, "integers", {"lengths": lengths})
        check_shape(shape[:1], lengths=lengths)
        return length_mask(lengths, shape[-1])
    if mask is None:
        return None
    check_dtype(jnp.bool_, "bool (True = real)", {"mask": mask})
    check_shape(shape, mask=mask)
    return jnp.asarray(mask)


def _check_scores(mask: ArrayLike, axis: int, **arrays: ArrayLike) -> int:
    """Checks scores, and gates of the same shape; returns the axis counted from the left."""
    check_floating(**arrays)
    check_same_shape(**arrays)
    shape = jnp.shape(arrays["scores"])
    check_mask(mask, shape)
    return check_axis(axis, len(shape))


def masked_softmax(
    scores: Float[Array, "..."], mask: Bool[Array, "..."] | None = None, axis: int = -1
) -> Float[Array, "..."]:
    """Computes a softmax over the positions where mask is True; exactly 0 elsewhere.

        >>> mask = jnp.array([True, True, False])
        >>> print(masked_softmax(jnp.array([0.0, 0.0, 9.0]), mask))
        [0.5 0.5 0. ]

    Args:
      scores: unnormalised scores, in nats; -inf at a real position gives it weight 0. Values at
        masked positions, NaN included, have no effect.
      mask: True at positions that count, same rank as scores (axes of size 1 broadcast).
      axis: the axis that is normalised.

    Returns:
      Weights in the dtype of scores, computed in float32 or wider. A row without a real position
      is all 0, with a zero gradient.
    """
    return softmax_where(scores, mask, _check_scores(mask, axis, scores=scores))


def softmax_where(scores: Array, mask: Array | None = None, axis: int = -1) -> Array:
    """Computes `masked_softmax` without checks."""
    x = jnp.asarray(scores, wide_dtype(scores))
    keep = jnp.ones(x.shape, bool) if mask is None else jnp.broadcast_to(mask, x.shape)
    # The first `where` keeps masked values out of the derivative, the second out of the sum.
    x = jnp.where(keep, x, 0)
    top = jnp.max(x, axis=axis, keepdims=True, where=keep, initial=-jnp.inf)
    # The weights do not depend on the shift, so it needs no derivative.
    top = lax.stop_gradient(jnp.where(jnp.isneginf(top), 0, top))
    unnormalised = jnp.where(keep, jnp.exp(jnp.where(keep, x - top, 0)), 0)
    total = jnp.sum(unnormalised, axis=axis, keepdims=True)
    # With a finite score the sum is at least exp(0) = 1. It is 0 only in a row without a real
    # position or with scores of -inf.
    weights = unnormalised / jnp.where(total == 0, 1, total)
    return weights.astype(jnp.result_type(scores))


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def _gated_parts(scores: Array, gates: Array, axis: int) -> tuple[Array, Array]:
    """Returns weights alpha = g exp(e - lse) and ratios r = exp(e - lse), both like the scores."""
    is_open = gates > 0
    log_gates = jnp.log(jnp.where(is_open, gates, 1))
    # A closed gate does not hide a NaN, so that a network that diverged is noticed.
    closed = jnp.where(jnp.isnan(scores + gates), jnp.nan, -jnp.inf)
    joint = jnp.where(is_open, scores + log_gates, closed)
    top = jnp.max(joint, axis=axis, keepdims=True, initial=-jnp.inf)
    alive = ~jnp.isneginf(top)
    # In a row of closed gates -inf - -inf would be NaN.
    shift = jnp.where(alive, top, 0)
    unnormalised = jnp.exp(joint - shift)
    total = jnp.where(alive, jnp.sum(unnormalised, axis=axis, keepdims=True), 1)
    # shift + log(total) as one number would round away digits of the weights at scores of 1e4.
    weights = unnormalised / total
    ratios = jnp.exp(jnp.minimum(scores - shift - jnp.log(total), _MAX_EXPONENT))
    return weights, jnp.where(alive, ratios, 0)


@_gated_parts.defjvp
def _gated_parts_jvp(axis, primals, tangents):
    """Returns ((weights, ratios), their tangents), as `jax.custom_jvp` wants them."""
    scores, gates = primals
    d_scores, d_gates = tangents
    weights, ratios = _gated_parts(scores, gates, axis)
    # d lse = sum_s (alpha_s de_s + r_s dg_s), d r_t = r_t (de_t - d lse). Second-order derivatives
    # need the derivative of the ratios, which JAX cannot derive at closed gates.
    direct = weights * d_scores + ratios * d_gates
    d_lse = jnp.sum(direct, axis=axis, keepdims=True)
    unbounded = jnp.where(ratios < _LARGEST_RATIO, ratios, 0)
    return (weights, ratios), (direct - weights * d_lse, unbounded * (d_scores - d_lse))


def gated_softmax(
    scores: Float[Array, "..."],
    gates: Float[Array, "..."],
    mask: Bool[Array, "..."] | None = None,
    axis: int = -1,
) -> Float[Array, "..."]:
    """Computes a softmax weighted by gates: alpha_t = g_t exp(e_t) / sum_s g_s exp(e_s).

    With gates in {0, 1} it is the softmax over the open set; with all gates open, the plain
    softmax. A closed gate has weight 0 but still a gradient, exp(e_t) / sum_s g_s exp(e_s), because
    a straight-through estimator needs it; that ratio is bounded by exp(80) to stay finite.

        >>> print(gated_softmax(jnp.zeros(3), jnp.array([1.0, 0.0, 1.0])))
        [0.5 0.  0.5]

    Args:
      scores: e, unnormalised attention, in nats.
      gates: g >= 0 of the same shape. For soft gates from a relaxation prefer
        `relaxed_gated_softmax`, which takes log g. Under `jit`, where no value is known, a
        negative gate counts as closed: logarithms of gates close every gate.
      mask: True at real positions, same rank as scores (axes of size 1 broadcast); the gate of any
        other position counts as 0.
      axis: the axis that is normalised.

    Returns:
      Weights in the dtype of scores, computed in float32 or wider. A row without an open gate is
      all 0 with a zero gradient.

    Raises:
      ValueError: also if a gate that is known is negative.

    Reference: Xue et al. 2020 (GA-Net), eqs. 2 and 9.
    """
    axis = _check_scores(mask, axis, scores=scores, gates=gates)
    requirement = "not be negative; logarithms of gates are for `relaxed_gated_softmax`"
    check_values("gates", gates, mask, lambda g: g < 0, requirement)
    return softmax_of_open(scores, gates, mask, axis)


def softmax_of_open(
    scores: Array, gates: Array, mask: Array | None = None, axis: int = -1
) -> Array:
    """Computes `gated_softmax` without checks."""
    dtype = wide_dtype(scores, gates)
    wide_scores, wide_gates = jnp.asarray(scores, dtype), jnp.asarray(gates, dtype)
    if mask is not None:
        keep = jnp.broadcast_to(mask, wide_scores.shape)
        wide_scores = jnp.where(keep, wide_scores, 0)
        wide_gates = jnp.where(keep, wide_gates, 0)
    weights, _ = _gated_parts(wide_scores, wide_gates, axis % wide_scores.ndim)
    return weights.astype(jnp.result_type(scores))


def relaxed_gated_softmax(
    scores: Float[Array, "..."],
    log_gates: Float[Array, "..."],
    mask: Bool[Array, "..."] | None = None,
    axis: int = -1,
) -> Float[Array, "..."]:
    """Computes a softmax weighted by soft gates that are given as logarithms: softmax(e + log g).

    GA-Net trains with this function; `gated_softmax` takes the gates instead of their logarithms.

        >>> print(relaxed_gated_softmax(jnp.zeros(3), jnp.log(jnp.array([1.0, 0.5, 0.5]))))
        [0.5  0.25 0.25]

    Args:
      scores: e, unnormalised attention, in nats.
      log_gates: log g <= 0 of the same shape (see `log_gumbel_sigmoid`); -inf is closed. Under
        `jit`, where no value is known, a positive value counts as the logarithm of a gate above 1:
        gates in place of their logarithms give a softmax in which no gate is closed.
      mask: True at real positions, same rank as scores (axes of size 1 broadcast). Values at the
        other positions, NaN included, have no effect.
      axis: the axis that is normalised.

    Returns:
      Weights in the dtype of scores. They sum to 1 in each row with an open gate, however small
      its gates are, because a gate is only exponentiated together with its score.

    Raises:
      ValueError: also if a logarithm that is known is positive.

    Reference: Xue et al. 2020 (GA-Net), eq. 9.
    Deviation: takes log g where the paper has g, so that a gate too small for float32 still has
      a gradient; no constant is added to a denominator.
    """
    axis = _check_scores(mask, axis, scores=scores, log_gates=log_gates)
    requirement = "not be positive; gates themselves are for `gated_softmax`"
    check_values("log_gates", log_gates, mask, lambda g: g > 0, requirement)
    return softmax_of_relaxed(scores, log_gates, mask, axis)


def softmax_of_relaxed(
    scores: Array, log_gates: Array, mask: Array | None = None, axis: int = -1
) -> Array:
    """Computes `relaxed_gated_softmax` without checks."""
    dtype = wide_dtype(scores, log_gates)
    joint = jnp.asarray(scores, dtype) + jnp.asarray(log_gates, dtype)
    return softmax_where(joint, mask, axis).astype(jnp.result_type(scores))


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
        return pool_finite(states, weights)
    # Weights and states are both cleared, because 0 * NaN is NaN.
    return weighted_sum(*real_alone((states, weights), mask))


def pool_finite(states: Array, weights: Array) -> Array:
    """Computes `attention_pool` without a mask and without checks."""
    # Finite states stay also at weight 0, because the gradient of a closed gate needs them.
    real = (weights != 0)[..., None] | jnp.isfinite(states)
    return weighted_sum(jnp.where(real, states, jnp.zeros_like(states)), weights)


def weighted_sum(states: Array, weights: Array) -> Array:
    """Computes sum_t weights_t states_t without checks; padding is finite and has the weight 0."""
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
        mask = length_mask(lengths, shape[-1])
        lengths = jnp.sum(mask, axis=-1)  # at most T, also under `jit`
        check_same_shape(position=position, lengths=lengths)
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
        last = jnp.maximum(lengths.astype(dtype) - 1, 0)[..., None]
        nearest = jnp.round(jnp.clip(fixed_centre, 0, last))
    else:
        nearest = _nearest_real(fixed_centre, steps, mask)
    if not isinstance(half_width, int | float):  # a number keeps its digits in what follows
        half_width = jnp.asarray(half_width, dtype)
    # A position p outside the sequence, or a half width below 0.5, may leave all tokens out of the
    # window; the nearest token keeps the softmax defined.
    inside = (jnp.abs(steps - centre) <= half_width) | (steps == nearest)
    wide, keep = jnp.asarray(scores, dtype), mask & inside
    log_gaussian = -((steps - centre) ** 2) / (2 * (half_width / 2) ** 2)
    if renormalise:
        # One softmax in log space: a window whose Gaussian underflows still sums to 1.
        weights = softmax_where(wide + log_gaussian, keep)
    else:
        weights = softmax_where(wide, keep) * jnp.exp(log_gaussian)
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
