"""Softmax over the real positions, and over the positions with open gates."""

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
    check_floating,
    check_lengths,
    check_mask,
    check_not_negative,
    check_not_positive,
    check_same_shape,
    listed_as_array,
    wide_dtype,
    wide_integers,
)

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
    # A size that `jax.export` leaves open is no int.
    if not isinstance(size, int | np.integer) and not is_symbolic_dim(size):
        raise TypeError(f"size must be an int known while tracing, got {type(size).__name__}")
    if size < 0:
        raise ValueError(f"size must not be negative, got {size}")
    lengths = listed_as_array(lengths)
    check_lengths(lengths, size)
    lengths = wide_integers(lengths)
    positions = lax.broadcasted_iota(lengths.dtype, (*lengths.shape, size), lengths.ndim)
    return positions < lengths[..., None]


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
    check_floating(scores=scores)
    check_mask(mask, jnp.shape(scores))
    axis = check_axis(axis, jnp.ndim(scores))
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
      Weights in the dtype of scores, computed in float32 or wider. A row whose gates are all
      closed, or whose mask is all False, is all 0 with a zero gradient.

    Raises:
      ValueError: also if a gate that is known is negative.

    Reference: Xue et al. 2020 (GA-Net), eqs. 2 and 9.
    """
    check_floating(scores=scores, gates=gates)
    check_same_shape(scores=scores, gates=gates)
    check_mask(mask, jnp.shape(scores))
    axis = check_axis(axis, jnp.ndim(scores))
    hint = "; logarithms of gates are for `relaxed_gated_softmax`"
    check_not_negative(gates, mask, name="gates", hint=hint)
    dtype = wide_dtype(scores, gates)
    wide_scores, wide_gates = jnp.asarray(scores, dtype), jnp.asarray(gates, dtype)
    if mask is not None:
        keep = jnp.broadcast_to(mask, wide_scores.shape)
        wide_scores = jnp.where(keep, wide_scores, 0)
        wide_gates = jnp.where(keep, wide_gates, 0)
    weights, _ = _gated_parts(wide_scores, wide_gates, axis)
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
    check_floating(scores=scores, log_gates=log_gates)
    check_same_shape(scores=scores, log_gates=log_gates)
    check_mask(mask, jnp.shape(scores))
    axis = check_axis(axis, jnp.ndim(scores))
    hint = "; gates themselves are for `gated_softmax`"
    check_not_positive(log_gates, mask, name="log_gates", hint=hint)
    dtype = wide_dtype(scores, log_gates)
    joint = jnp.asarray(scores, dtype) + jnp.asarray(log_gates, dtype)
    return masked_softmax(joint, mask, axis).astype(jnp.result_type(scores))
