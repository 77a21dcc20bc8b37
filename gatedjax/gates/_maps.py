"""Deterministic maps from scores to gates: sparsemax, entmax, budget, soft and hard top-k."""

import math

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from gatedjax._utils.tracing import is_traced
from gatedjax.functional._attention import masked_softmax
from gatedjax.functional._checks import (
    check_axis,
    check_broadcasts,
    check_floating,
    check_integers,
    check_mask,
    check_numbers,
    check_positive,
    check_shape,
    is_known,
    wide_dtype,
)
from gatedjax.functional._devices import compile_outside_jit, vary_together
from gatedjax.functional._relaxations import _COLD, _straight_through
from gatedjax.functional._types import ArrayLike
from gatedjax.gates._thresholds import (
    CAPPED,
    ENTMAX,
    ENTMAX15,
    LAPLACE,
    SPARSEMAX,
    Family,
    compute_gates,
    find_threshold,
    length_of,
    search,
)

# The tolerance per gate of the rough search for a threshold. With an error of a whole gate the
# threshold would lie between two other scores.
_ROUGH = 0.05
# Up to this length a sum of gates in float32 is within 0.001 of the exact sum.
_LONG = 1024


def sparsemax(
    scores: Float[Array, "..."], mask: Bool[Array, "..."] | None = None, axis: int = -1
) -> Float[Array, "..."]:
    """Projects scores onto the simplex: p_i = [z_i - tau]_+, sum p = 1.

    z_i are the scores, p_i the weights, and tau is the threshold of a row at which they sum to 1.
    With the open set S of positive weights the derivative is dp_i = dz_i - mean_S dz for i in S.

        >>> print(sparsemax(jnp.array([1.0, 0.5, -3.0])))
        [0.75 0.25 0.  ]

    Args:
      scores: z; -inf at a real position closes it. Values at masked positions, NaN included, have
        no effect; a NaN or +inf at a real position makes its row NaN, with gradients of NaN.
      mask: True at positions that count, same rank as scores (axes of size 1 broadcast); None means
        all.
      axis: the axis that is normalised.

    Returns:
      Weights p in the dtype of scores, computed in float32 or wider, exactly 0 outside S. A row
      without a real position is all 0, with a zero gradient.

    Raises:
      TypeError: if scores are not floating point or mask is not bool.
      ValueError: if mask does not broadcast to the shape of scores, or there is no such axis.

    Reference: Martins & Astudillo 2016, eqs. 2, 3 and 9; Michelot 1986 (the algorithm).
    Deviation: tau by Newton steps, each exact for the current support, instead of sorting.
    """
    return _map_to_simplex(SPARSEMAX, scores, mask, _check_arguments(scores, mask, axis), None)


def entmax15(
    scores: Float[Array, "..."], mask: Bool[Array, "..."] | None = None, axis: int = -1
) -> Float[Array, "..."]:
    """Computes entmax with alpha = 1.5, between softmax and sparsemax: p_i = [z_i / 2 - tau]_+^2.

    z_i are the scores, p_i the weights, and tau is the threshold of a row at which they sum to 1.
    With s_i = sqrt(p_i): dp_i = s_i (dz_i - sum_j s_j dz_j / sum_j s_j).

        >>> print(entmax15(jnp.array([0.0, 0.0, -3.0])).round(2))
        [0.5 0.5 0. ]

    Args:
      scores: z; -inf closes its position, and a NaN at a real position makes its row NaN.
      mask: True at real positions, same rank as scores (axes may be 1); None means all.
      axis: the axis that is normalised.

    Returns:
      Weights in the dtype of scores that sum to 1; 0 in a row without a real position.

    Reference: Peters et al. 2019, section 3.2 and proposition 2.
    Deviation: tau by Newton steps on the norm of [z / 2 - tau]_+, instead of sorting.
    """
    return _map_to_simplex(ENTMAX15, scores, mask, _check_arguments(scores, mask, axis), None)


def entmax(
    scores: Float[Array, "..."],
    alpha: float | Float[Array, "..."],
    mask: Bool[Array, "..."] | None = None,
    axis: int = -1,
) -> Float[Array, "..."]:
    """Computes alpha-entmax: p_i = [(alpha - 1) z_i - tau]_+^(1 / (alpha - 1)), sum p = 1.

    z_i are the scores, p_i the weights, and tau is the threshold of a row at which they sum to 1.

    The limit alpha = 1 is softmax, alpha = 2 is sparsemax. Computed as p_i = exp_alpha(z_i - theta)
    with exp_alpha(u) = [1 + (alpha - 1) u]_+^(1 / (alpha - 1)), which is smooth in alpha at 1. With
    s_i = p_i^(2 - alpha) on the support and h_i = d log exp_alpha(u) / d alpha at u_i, dp_i = s_i
    (dz_i - d theta) + p_i h_i d alpha, sum dp = 0.

        >>> print(entmax(jnp.array([0.0, 0.0, -9.0]), 1.25).round(2))
        [0.5 0.5 0. ]

    Args:
      scores: z; -inf closes its position, and a NaN at a real position makes its row NaN.
      alpha: at least 1; a number, or an array like scores with size 1 along axis (axes of size 1
        broadcast). It has a gradient. A traced alpha below 1 counts as 1, with a zero gradient.
      mask: True at real positions, same rank as scores (axes may be 1); None means all.
      axis: the axis that is normalised.

    Returns:
      Weights in the dtype of scores that sum to 1; 0 in a row without a real position. Above
      alpha = 2 the slope at the edge of the support is not bounded: near that edge a rounding error
      e of a score causes an error e^(1 / (alpha - 1)) of a gate.

    Raises:
      ValueError: if alpha is below 1 or not finite and its value is known while tracing.

    Reference: Peters et al. 2019, eq. 10; Correia et al. 2019, proposition 1 (d p / d alpha).
    """
    axis = _check_arguments(scores, mask, axis)
    check_numbers(alpha=alpha)
    if is_known(alpha) and not np.all((np.asarray(alpha) >= 1) & np.isfinite(np.asarray(alpha))):
        raise ValueError(f"alpha must be at least 1 and finite, got {alpha}")
    if isinstance(alpha, int | float):
        if alpha == 1:
            return masked_softmax(scores, mask, axis)
        if alpha in (1.5, 2):
            return _map_to_simplex(
                ENTMAX15 if alpha == 1.5 else SPARSEMAX, scores, mask, axis, None
            )
    # Subtract 1 before alpha is rounded to the dtype of the scores.
    a = _align_with_rows("alpha", alpha - 1, scores, axis)
    return _map_to_simplex(ENTMAX, scores, mask, axis, jnp.where(a < 0, 0, a))


def budget(
    scores: Float[Array, "..."],
    k: ArrayLike,
    mask: Bool[Array, "..."] | None = None,
    axis: int = -1,
) -> Float[Array, "..."]:
    """Projects scores onto the capped simplex, so that the gates of a row sum to k.

    g_i = min([z_i - tau]_+, 1), sum g = k, for scores z, gates g and the threshold tau of a row.

    Bernoulli(g) draws open k positions in expectation. Gates are exactly 0 or 1 away from the
    threshold; the set F of gates between 0 and 1 has the derivative dg_i = dz_i - mean_F dz + dk /
    |F|. Scores of a larger scale give harder gates.

        >>> print(budget(jnp.array([0.75, 0.25, -1.0]), 1))
        [0.75 0.25 0.  ]

    Args:
      scores: z; -inf closes a position. Values beyond a quarter of the largest number of the dtype
        (8.5e37 in float32), +inf included, are clipped to it; a real NaN makes its row NaN.
      k: the sum of the gates of a row, in [0, n] for n positions along axis, not necessarily whole;
        a number, or an array like scores with size 1 along axis (axes of size 1 broadcast). A row
        with fewer real positions opens them all. A traced k outside [0, n] is clipped.
      mask: True at real positions, same rank as scores (axes may be 1); None means all.
      axis: the axis that sums to k.

    Returns:
      Gates in [0, 1] in the dtype of scores, computed in float32 or wider. A row without a real
      position is all 0, with a zero gradient.

    Raises:
      ValueError: if k is outside [0, n] and its value is known while tracing.

    Reference: Wang & Lu 2015, "Projection onto the capped simplex"; as the budget of attention,
      Martins & Kreutzer 2017, "Learning what's easy" (constrained sparsemax).
    Deviation: the threshold by Newton steps instead of sorting. The related LML layer of Amos et
      al. 2019, a sigmoid with a threshold, has no gates of exactly 0 or 1.
    """
    axis = _check_arguments(scores, mask, axis)
    k = _check_counts(k, scores, axis)
    return _map_to_sum(CAPPED, *_move_axis_last(scores, mask, axis), k, None, scores, axis)


def soft_top_k(
    scores: Float[Array, "..."],
    k: ArrayLike,
    mask: Bool[Array, "..."] | None = None,
    axis: int = -1,
    *,
    temperature: float | Float[Array, ""] = 1.0,
) -> Float[Array, "..."]:
    """Computes a smooth top-k whose gates sum to k: g_i = F((z_i - theta) / tau).

    z_i are the scores, theta is the threshold of a row, and tau the temperature.

    F is the distribution function of the Laplace distribution: F(u) = exp(u) / 2 for
    u <= 0, 1 - exp(-u) / 2 above. With f_i = F'((z_i - theta) / tau), dg_i = f_i / tau (dz_i -
    sum_j f_j dz_j / sum_j f_j) + f_i / sum_j f_j dk.

        >>> gates = soft_top_k(jnp.array([3.0, 2.0, -1.0]), 2)
        >>> print(bool(gates[0] > gates[1] > gates[2]), float(gates.sum().round(3)))
        True 2.0

    Args:
      scores: z, clipped like those of `budget`; a NaN at a real position makes its row NaN.
      k: the sum of the gates of a row, in [0, n] for n positions along axis: a number, or an array
        like scores with size 1 along axis. Traced, it is clipped.
      mask: True at real positions, same rank as scores (axes may be 1); None means all.
      axis: the axis that sums to k.
      temperature: tau > 0, a number or an array of shape (). As tau -> 0 the gates approach
        `hard_top_k`, or 1/2 each where two scores tie for the last place. A traced tau of 0 or
        less (or below 1e-15) returns the hard gates, without a gradient, for rounded k.

    Returns:
      Gates in [0, 1] in the dtype of scores, computed in float32 or wider. A row with k = 0 or
      without a real position is all 0, with a zero gradient. A row with at most k real positions
      has gates of 1 there.

    Raises:
      ValueError: if k is outside [0, n] and its value is known while tracing.

    Reference: Struski et al. 2025, "LapSum", section 3.
    Deviation: theta by Newton steps instead of sorting.
    """
    axis = _check_arguments(scores, mask, axis)
    check_positive(temperature=temperature)
    check_shape((), temperature=temperature)
    k = _check_counts(k, scores, axis)
    z, keep = _move_axis_last(scores, mask, axis)
    tau = jnp.asarray(temperature, z.dtype)
    if not is_traced(temperature):
        return _map_to_sum(LAPLACE, z, keep, k, tau, scores, axis)
    cold = tau < _COLD
    soft = _map_to_sum(LAPLACE, z, keep, k, jnp.where(cold, 1, tau), scores, axis)
    hard = _move_axis_back(_open_best(z, keep, jnp.round(k)), scores, axis)
    return jnp.where(cold, hard, soft)


def hard_top_k(
    scores: Float[Array, "..."],
    k: int | Int[Array, "..."],
    mask: Bool[Array, "..."] | None = None,
    axis: int = -1,
    *,
    temperature: float | Float[Array, ""] = 1.0,
) -> Float[Array, "..."]:
    """Opens the gates of the k best real positions, with the derivative of `soft_top_k`.

    Among equal scores the first positions win.

        >>> print(hard_top_k(jnp.array([3.0, 2.0, -1.0]), 2))
        [1. 1. 0.]

    Args:
      scores: z; -inf closes its position, and a NaN at a real position makes its row NaN.
      k: the number of gates that open in a row, an integer in [0, n] for n positions along axis, or
        integers like scores with size 1 along axis. A row with fewer real positions opens them all.
      mask: True at real positions, same rank as scores (axes may be 1); None means all.
      axis: the axis along which k positions open.
      temperature: tau of `soft_top_k`, which gives the derivative.

    Returns:
      Gates, 0 or 1, in the dtype of scores.

    Raises:
      ValueError: if k is outside [0, n] and its value is known while tracing.

    Reference: Bengio et al. 2013 (straight-through); Struski et al. 2025 (the soft gates).
    """
    check_integers(k=k)
    soft = soft_top_k(scores, k, mask, axis, temperature=temperature)
    axis = _check_arguments(scores, mask, axis)
    z, keep = _move_axis_last(scores, mask, axis)
    hard = _move_axis_back(_open_best(z, keep, _check_counts(k, scores, axis)), scores, axis)
    return _straight_through(hard, soft)


def _check_arguments(scores: ArrayLike, mask: ArrayLike, axis: int) -> int:
    check_floating(scores=scores)
    check_mask(mask, jnp.shape(scores))
    return check_axis(axis, jnp.ndim(scores))


def _move_axis_last(scores: ArrayLike, mask: ArrayLike, axis: int) -> tuple[Array, Array]:
    z = jnp.asarray(scores, wide_dtype(scores))
    keep = ~jnp.isneginf(z)
    if mask is not None:
        keep &= jnp.broadcast_to(mask, z.shape)
    return jnp.moveaxis(jnp.where(keep, z, 0), axis, -1), jnp.moveaxis(keep, axis, -1)


def _move_axis_back(rows: Array, scores: ArrayLike, axis: int) -> Array:
    return jnp.moveaxis(rows, -1, axis).astype(jnp.result_type(scores))


def _align_with_rows(name: str, value: ArrayLike, scores: ArrayLike, axis: int) -> Array:
    if jnp.ndim(value) == 0:
        return jnp.asarray(value, wide_dtype(scores))
    shape = list(jnp.shape(scores))
    shape[axis] = 1
    check_broadcasts(tuple(shape), **{name: value})
    return jnp.moveaxis(jnp.asarray(value, wide_dtype(scores)), axis, -1)


def _check_counts(k: ArrayLike, scores: ArrayLike, axis: int) -> Array:
    size = jnp.shape(scores)[axis]
    # A size that `jax.export` leaves open is not known; k is then clipped at run time.
    most = size if isinstance(size, int) else np.inf
    check_numbers(k=k)
    if is_known(k) and not np.all((np.asarray(k) >= 0) & (np.asarray(k) <= most)):
        raise ValueError(f"k must be in [0, {size}], got {k}")
    return _align_with_rows("k", k, scores, axis)


def _find_top(z: Array, keep: Array) -> Array:
    top = jnp.max(z, axis=-1, keepdims=True, where=keep, initial=-jnp.inf)
    return lax.stop_gradient(jnp.where(jnp.isneginf(top), 0, top))


def _map_to_simplex(
    family: Family, scores: ArrayLike, mask: ArrayLike, axis: int, a: Array | None
) -> Array:
    """Returns the gates phi(z - theta) with sum 1 along an axis, for the phi of the family."""
    rows, keep = _move_axis_last(scores, mask, axis)
    # A score of +inf has no projection; its row becomes NaN, as with softmax.
    is_lost = _find_lost_rows(jnp.where(jnp.isposinf(rows), jnp.nan, rows), keep, a)
    z = jnp.where(is_lost, 0, rows)
    # Scores of 3e38 and -3e38 differ by more than the largest float32, and the difference is -inf.
    # The lowest finite number closes the gate as well.
    lowest = jnp.finfo(z.dtype).min
    u = jnp.where(keep, jnp.maximum(z - _find_top(z, keep), lowest), 0)
    # A row of padding has the total 0, which its sum already is, so that it needs no search.
    total = jnp.any(keep, axis=-1, keepdims=True).astype(z.dtype)
    low, high = family.bracket(u, keep, total, a)
    theta = find_threshold(family, u, keep, total, (low, high, low), a)
    return _move_axis_back(
        _show_lost_rows(compute_gates(family, u, keep, theta, a), rows, is_lost), scores, axis
    )


def _map_to_sum(
    family: Family, z: Array, keep: Array, k: Array, tau: Array | None, scores: ArrayLike, axis: int
) -> Array:
    """Returns gates phi((z - theta) / tau) with the sum k in each row."""
    unclipped, is_lost = z, _find_lost_rows(z, keep, k, tau)
    z = jnp.where(is_lost, 0, z)
    count = jnp.sum(keep, axis=-1, keepdims=True, dtype=z.dtype)
    between = (k > 0) & (k < count)
    # A sum of many gates near 1 rounds away the nearly closed gates. Both families satisfy
    # 1 - phi(u) = phi(c - u), so for long rows theta is found from 1 - g with sum n - k.
    length = length_of(z)
    is_mirrored = (2 * k > count) & (length > _LONG)
    # The clip leaves room for a sum of two: on a GPU XLA computed a / 2 + b / 2 as (a + b) / 2.
    end = float(jnp.finfo(z.dtype).max) / 4
    z = jnp.clip(jnp.where(is_mirrored, -z, z), -end, end)
    smaller_sum = jnp.where(is_mirrored, count - k, k)
    # With k = 0 or k = n a threshold of Laplace gates is infinite. Such rows search for half of the
    # gates instead, and their gates are replaced at the end.
    total = jnp.where(between, smaller_sum, jnp.where(keep.any(-1, keepdims=True), count / 2, 0))

    # At scores of 1e4 float32 has few digits left for a threshold. A rough search is followed by a
    # search among the differences from the nearest score, which are exact there.
    rows, fixed, scale = lax.stop_gradient((z, total, tau))
    low, high = family.bracket(rows, keep, fixed, scale)
    mean = jnp.sum(jnp.where(keep, rows / jnp.maximum(count, 1), 0), axis=-1, keepdims=True)
    tolerance = _ROUGH / length
    rough = search(family, rows, keep, fixed, (low, high, mean), scale, tolerance)
    nearest = _find_nearest(rows, keep, rough)
    u = jnp.where(keep, z - nearest, 0)
    # Add a margin to the bounds, because rounding of large scores may have removed it.
    log = math.log(1 + length) if isinstance(length, int) else jnp.log(1 + length)
    room = (1 if scale is None else scale) * (2 + log)
    start = jnp.where(jnp.abs(rough - nearest) < room, rough - nearest, 0)
    bounds = (low - nearest - room, high - nearest + room, start)
    soft = compute_gates(family, u, keep, find_threshold(family, u, keep, total, bounds, tau), tau)
    soft = jnp.where(is_mirrored & keep, 1 - soft, soft)
    ends = (keep & (k > 0)).astype(soft.dtype)
    soft = jnp.where(between, soft, ends)
    return _move_axis_back(_show_lost_rows(soft, unclipped, is_lost), scores, axis)


def _find_nearest(z: Array, keep: Array, theta: Array) -> Array:
    above = jnp.min(z, axis=-1, keepdims=True, where=keep & (z >= theta), initial=jnp.inf)
    below = jnp.max(z, axis=-1, keepdims=True, where=keep & (z <= theta), initial=-jnp.inf)
    nearest = jnp.where(above - theta < theta - below, above, below)
    return jnp.where(jnp.isinf(nearest), theta, nearest)


def _find_lost_rows(z: Array, keep: Array, *parameters: Array | None) -> Array:
    is_lost = jnp.any(keep & jnp.isnan(z), axis=-1, keepdims=True)
    for parameter in parameters:
        is_lost = is_lost if parameter is None else is_lost | jnp.isnan(parameter)
    return keep & is_lost


def _show_lost_rows(gates: Array, z: Array, is_lost: Array) -> Array:
    # A NaN would otherwise close the gates of its row, because comparisons with NaN are False.
    return (gates + jnp.where(is_lost, z, 0)) * jnp.where(is_lost, jnp.nan, 1.0)


def _open_best(z: Array, keep: Array, k: Array) -> Array:
    z, k = lax.stop_gradient((z, k))
    return jnp.where(_find_lost_rows(z, keep, k), jnp.nan, _select_best(z, keep, k).astype(z.dtype))


@compile_outside_jit()
def _select_best(z: Array, keep: Array, k: Array) -> Array:
    """Returns True at the k best real positions of each row; the first of equal scores win."""
    # The k-th largest score is found a bit at a time, which is faster than a sort in XLA on a CPU.
    bits = 8 * z.dtype.itemsize
    unsigned = jnp.dtype(f"uint{bits}")
    sign = jnp.array(1 << (bits - 1), unsigned)
    # 0.0 and -0.0 are equal scores with different bits.
    raw = lax.bitcast_convert_type(jnp.where(z == 0, 0, z), unsigned)
    # These integers are ordered like the numbers; 0 is below all of them.
    order = jnp.where(keep, jnp.where(raw >= sign, ~raw, raw | sign), 0)

    def reach(bound: Array) -> Array:
        return jnp.sum(order >= bound, axis=-1, keepdims=True, dtype=z.dtype)

    def set_bit(place: Array, bound: Array) -> Array:
        candidate = bound | (sign >> jnp.asarray(place, unsigned))
        return jnp.where(reach(candidate) >= k, candidate, bound)

    # A product with 0, because the zeros need the sharding of the rows.
    bound = jnp.sum(order * 0, axis=-1, keepdims=True, dtype=unsigned)
    bound = vary_together((bound, k))[0]
    bound = lax.fori_loop(0, bits, set_bit, bound)
    better = order > bound
    # The remaining places go to the first scores that are equal to the k-th largest.
    num_ties = k - jnp.sum(better, axis=-1, keepdims=True, dtype=z.dtype)
    equal = order == bound
    is_best = better | (equal & (jnp.cumsum(equal, axis=-1, dtype=z.dtype) <= num_ties))
    return is_best & keep & (k > 0)
