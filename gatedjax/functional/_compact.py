"""Attention that computes scores of the open tokens only, with static shapes, for inference."""

import functools
import math
from collections.abc import Callable
from typing import Literal, NamedTuple, SupportsIndex

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from gatedjax._utils.choices import check_choice
from gatedjax._utils.tracing import is_traced
from gatedjax.functional._attention import masked_softmax, weighted_sum
from gatedjax.functional._checks import check_floating, check_mask, check_shape, check_that
from gatedjax.functional._devices import on_rows
from gatedjax.functional._export import exportable
from gatedjax.functional._types import ArrayLike

ScoreFunction = Callable[[Float[Array, "*B K D"]], Float[Array, "*B K"]]


@exportable
class CompactPool(NamedTuple):
    """The result of `compact_attention_pool`, for rows *B of T tokens with states of width D.

    Attributes:
      pooled: c [*B, D], the weighted sum of the states of each row.
      weights: the attention weights alpha [*B, T], 0 at closed and padded tokens.
      overflow: int32 [*B], the number of open tokens that did not fit into the capacity.
    """

    pooled: Float[Array, "*B D"]
    weights: Float[Array, "*B T"]
    overflow: Int[Array, "*B"]


def plan_capacity(open_counts: ArrayLike, quantile: float = 1.0, multiple: int = 8) -> int:
    """Chooses a static capacity from the numbers of open tokens in some data.

    Call it outside `jit`, because the capacity sets the shapes of compiled code.

        >>> plan_capacity([3, 5, 9], quantile=1.0, multiple=8)
        16

    Args:
      open_counts: the number of open tokens of each row, integers of any shape.
      quantile: share of the rows that should fit, in [0, 1]; the remaining rows overflow.
      multiple: the result is rounded up to a multiple of this number, so that small changes of the
        data do not compile again.

    Returns:
      The capacity: the slots for open tokens that each row gets; at least multiple.
    """
    counts = np.asarray(open_counts, np.float64).ravel()
    if counts.size == 0 or not np.all(np.isfinite(counts) & (counts >= 0)):
        raise ValueError(
            f"open_counts must be at least one finite number, each at least 0, got {open_counts!r}"
        )
    if not 0 <= quantile <= 1:
        raise ValueError(f"quantile must be in [0, 1], got {quantile}")
    if multiple < 1:
        raise ValueError(f"multiple must be at least 1, got {multiple}")
    # An interpolated quantile could lie below the count of a row that has to fit.
    needed = float(np.quantile(counts, quantile, method="higher"))
    return max(math.ceil(needed / multiple), 1) * multiple


def open_indices(
    gates: Bool[Array, "*B T"] | Float[Array, "*B T"],
    mask: Bool[Array, "*B T"] | None = None,
    *,
    capacity: int,
) -> tuple[Int[Array, "*B K"], Bool[Array, "*B K"], Int[Array, "*B"]]:
    """Finds the open tokens of each row of T tokens, in the order of the text.

        >>> indices, valid, overflow = open_indices(jnp.array([[0.0, 1.0, 0.0, 1.0]]), capacity=3)
        >>> print(indices, valid, overflow)
        [[1 3 0]] [[ True  True False]] [0]

    Args:
      gates: hard gates of the T tokens of each row; open is True or > 0 (NaN is closed).
      mask: True at real tokens; None means all.
      capacity: K, the largest number of open tokens of a row; more than T means T, unless
        `jax.export` leaves T open.

    Returns:
      (indices, valid, overflow): int32 [*B, K], the positions from 0 of the first K open tokens,
      ascending, then zeros; bool [*B, K], True at entries that hold an open token; and int32 [*B],
      the number of open tokens left out.
    """
    is_open = _open_set(gates, mask)
    size = is_open.shape[-1]
    capacity = _check_capacity(capacity, size)
    return _slots_of(jnp.cumsum(is_open, axis=-1, dtype=jnp.int32), capacity)


def compact_attention_pool(
    score_fn: ScoreFunction,
    states: Float[Array, "*B T D"],
    gates: Bool[Array, "*B T"] | Float[Array, "*B T"],
    mask: Bool[Array, "*B T"] | None = None,
    *,
    capacity: int,
    overflow: Literal["dense", "truncate"] = "dense",
) -> CompactPool:
    """Pools the open tokens by attention without computing scores of the closed tokens.

    S = open valid tokens;  alpha = softmax_S(score_fn(h));  c = sum_{t in S} alpha_t h_t.

    The open states are gathered into `capacity` slots; scores, softmax and sum are computed for
    these slots. While no row overflows the result equals masking the closed tokens.

        >>> states, gates = jnp.ones((2, 16, 3)), jnp.zeros((2, 16)).at[:, :4].set(1.0)
        >>> result = compact_attention_pool(lambda h: h.sum(-1), states, gates, capacity=8)
        >>> print(result.weights[0, :5], result.overflow)
        [0.25 0.25 0.25 0.25 0.  ] [0 0]

    Args:
      score_fn: maps states [*B, K, D] to scores [*B, K], token by token; K is capacity, or T in the
        dense form. A slot without a token holds the first open token of its row, or zeros if none
        is open; its score has no effect.
      states: h, a vector of width D for each of T tokens; closed tokens have no effect but must be
        finite. Values where the mask is False, NaN included, have no effect.
      gates: hard gates; open is True or > 0. A row with a gate of NaN at a real token gives NaN.
      mask: True at real tokens; None means all.
      capacity: slots per row (see `plan_capacity`); T or more runs the dense form.
      overflow: what to do with a row that has more open tokens than slots. "dense" scores the
        whole batch densely if any row overflows (under `vmap` both forms then run, and one is
        selected); "truncate" attends to the first open tokens that fit.

    Returns:
      A `CompactPool` (pooled, weights, overflow): c in the dtype of states, alpha in the dtype of
      the scores (computed in float32 or wider), and per row the number of open tokens that did not
      fit, with both values of the argument overflow. A row without open tokens gives zeros; call
      `ensure_open` first to avoid such rows. Gates get no gradient.

    Reference: Xue et al. 2020 (GA-Net), eq. 2 with binary gates.
    """
    check_floating(states=states)
    check_choice(Literal["dense", "truncate"], overflow=overflow)
    check_shape(jnp.shape(states)[:-1], gates=gates)
    is_open = _open_set(gates, mask)
    size = is_open.shape[-1]
    capacity = _check_capacity(capacity, size)
    states = jnp.asarray(states)

    def dense() -> tuple[Array, Array]:
        # Padding may be NaN, and 0 * NaN in the weighted sum is NaN. Closed tokens are real and
        # finite, so they stay as they are.
        real = states if mask is None else jnp.where(mask[..., None], states, 0)
        return _pool_where(score_fn, real, is_open)

    def compact() -> tuple[Array, Array]:
        """Returns (pooled [*B, D], weights [*B, T]) from the scores of the tokens in slots."""
        # A slot without a token must not hold padding, because its score may be NaN.
        index = jnp.where(valid, indices, indices[..., :1])
        gathered = jnp.take_along_axis(states, index[..., None], axis=-2, mode="clip")
        gathered = jnp.where(valid[..., :1, None], gathered, jnp.zeros_like(gathered))
        pooled, slot_weights = _pool_where(score_fn, gathered, valid)
        # Back to token order by reading, not by scattering: token t sits in the slot of its rank.
        slot = jnp.clip(running - 1, 0, capacity - 1)
        weights = jnp.take_along_axis(slot_weights, slot, axis=-1, mode="clip")
        return pooled, jnp.where(is_open & (running <= capacity), weights, 0)

    if capacity == size:
        pooled, weights = dense()
        excess = jnp.zeros(is_open.shape[:-1], jnp.int32)
    else:
        running = jnp.cumsum(is_open, axis=-1, dtype=jnp.int32)
        indices, valid, excess = _slots_of(running, capacity)
        if overflow == "truncate":
            pooled, weights = compact()
        else:
            # `lax.cond` decides for the whole batch: a single row without room sends all rows
            # through `dense`.
            pooled, weights = lax.cond(jnp.any(excess > 0), dense, compact)
    if jnp.issubdtype(jnp.result_type(gates), jnp.floating):
        # A gate of NaN is not open, but makes its row NaN, so that divergence is noticed.
        lost = jnp.any(_open_set(jnp.isnan(gates), mask), axis=-1)[..., None]
        pooled, weights = (x * jnp.where(lost, jnp.nan, 1.0) for x in (pooled, weights))
    return CompactPool(pooled, weights, excess)


def _pool_where(score_fn: ScoreFunction, states: Array, keep: Array) -> tuple[Array, Array]:
    scores = score_fn(states)
    message = f"score_fn must map states {states.shape} to scores {keep.shape}"
    check_that(jnp.shape(scores) == keep.shape, message, scores)
    # The other states are not set to 0, because that copy takes longer than the scores.
    weights = masked_softmax(scores, keep)
    return weighted_sum(states, weights), weights


def _slots_of(running: Array, capacity: int) -> tuple[Array, Array, Array]:
    return on_rows(functools.partial(_slots, capacity=capacity), running, axes=running.ndim - 1)


def _slots(running: Array, capacity: int) -> tuple[Array, Array, Array]:
    """Finds the token of each slot: slot k has the k-th open token."""
    *leading, size = running.shape
    ranks = jnp.arange(1, capacity + 1, dtype=jnp.int32)
    flat = running.reshape(math.prod(leading), size)
    if isinstance(size, int):
        # On a CPU bisection of the sorted counts took 0.4 ms, a scatter 0.6, top_k 1.0, a sort 3.5.
        indices = jax.vmap(lambda row: jnp.searchsorted(row, ranks, method="scan_unrolled"))(flat)
    else:  # `jax.export` leaves the size open, and so the number of bisections
        indices = jnp.sum(flat[:, None, :] < ranks[None, :, None], axis=-1)
    # A row of length 0 has no last count.
    count = running[..., -1] if size else jnp.zeros(leading, jnp.int32)
    slots = lax.broadcasted_iota(jnp.int32, (*leading, capacity), len(leading))
    valid = slots < count[..., None]
    indices = indices.reshape(*leading, capacity).astype(jnp.int32)
    return jnp.where(valid, indices, 0), valid, jnp.maximum(count - capacity, 0)


def _open_set(gates: ArrayLike, mask: ArrayLike) -> Array:
    check_that(jnp.ndim(gates) > 0, "gates must have at least 1 axis, [..., T]", gates)
    if jnp.issubdtype(jnp.result_type(gates), jnp.complexfloating):
        raise TypeError(f"gates must be bool or real, got dtype {jnp.result_type(gates)}")
    check_mask(mask, jnp.shape(gates))
    gates = lax.stop_gradient(jnp.asarray(gates))
    is_open = gates if gates.dtype == jnp.bool_ else gates > 0
    return is_open if mask is None else is_open & mask


def _check_capacity(capacity: SupportsIndex, size: int) -> int:
    kind = type(capacity)
    if is_traced(capacity) or kind is bool or not hasattr(capacity, "__index__"):
        raise TypeError(f"capacity must be an int known while tracing, got {kind.__name__}")
    capacity = capacity.__index__()
    if capacity <= 0:
        raise ValueError(f"capacity must be positive, got {capacity}")
    return min(capacity, size) if isinstance(size, int) else capacity
