"""Masks over query-key pairs, causal masks, and the cache of keys and values for decoding."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from gatedjax.functional._checks import (
    check_floating,
    check_mask,
    check_shape,
    check_that,
    is_known,
)
from gatedjax.functional._devices import rows_like
from gatedjax.functional._export import exportable
from gatedjax.functional._types import ArrayLike


def causal_pairs(positions: Int[Array, " Q"], size: int) -> Bool[Array, "Q N"]:
    """Returns the causal mask: True where the key is not after the query."""
    return jnp.arange(size)[None, :] <= positions[:, None]


def pair_mask_of(
    pair_mask: Array | None, causal: bool, shape: tuple[int, ...], positions: Array | None = None
) -> Array | None:
    """Combines a pair mask and the causal mask; None means that all pairs are allowed."""
    allowed = None
    if pair_mask is not None:
        allowed = jnp.asarray(pair_mask)
        if allowed.ndim == len(shape) - 1:
            # A mask without an axis of heads holds for all heads.
            allowed = allowed[..., None, :, :]
        check_mask(allowed, shape, "pair_mask")
    if causal:
        if positions is None:
            fits = shape[-2] == shape[-1]
            message = "query and key must have the same number of tokens for causal=True"
            check_that(fits, message, jnp.empty(shape[-2:]))
            positions = jnp.arange(shape[-2])
        before = causal_pairs(positions, shape[-1]).reshape(
            (1,) * (len(shape) - 2) + (positions.shape[0], shape[-1])
        )
        allowed = before if allowed is None else allowed & before
    return allowed


def check_key_mask(mask: ArrayLike, shape: tuple[int, ...], name: str = "mask") -> None:
    """Raises unless a mask of real keys is bool and broadcasts to `shape`, such as (B, N)."""
    got = () if mask is None else jnp.shape(mask)
    fits = len(got) == len(shape) and all(g in (1, s) for g, s in zip(got, shape, strict=True))
    if len(got) > 2 and not fits:
        raise ValueError(
            f"{name} must have shape {shape}, True at real tokens, got {got}; pass a mask of pairs "
            "[B, 1, Q, N], True where a query may see a key, as pair_mask"
        )
    check_mask(mask, shape, name)


def both_allow(mask: Array | None, pairs: Array | None) -> Array | None:
    """Returns True where both masks are True; None stands for a mask that is True everywhere."""
    if mask is None or pairs is None:
        return pairs if mask is None else mask
    return mask & pairs


def put(places: Float[Array, "*B T H"], new: Float[Array, "*B n H"], position: Array) -> Array:
    """Returns `places` with `new` written at the tokens position .. position + n - 1."""
    return lax.dynamic_update_slice_in_dim(places, new.astype(places.dtype), position, axis=-2)


@exportable
class AttentionCache(NamedTuple):
    """Keys and values of the tokens so far, with room for T tokens.

    There are B rows and M heads, with vectors of width H. A selector is the part of a selective
    attention that chooses the keys to which a query attends; it has separate key vectors.

    Attributes:
      key, value: keys and values of each of M heads [B, M, T, H]; entries from `position` on are
        unused.
      mask: bool [B, T], True at real tokens, False at unused entries.
      position: int scalar, the number of tokens so far, padding included.
      selector_key: keys of the selector, with the axes of key (M = 1 for a shared selector); None
        without a selector.
    """

    key: Float[Array, "B M T H"]
    value: Float[Array, "B M T H"]
    mask: Bool[Array, "B T"]
    position: Int[Array, ""]
    selector_key: Float[Array, "B M T H"] | None = None


def append_to_cache(
    cache: AttentionCache,
    key: Float[Array, "B M n H"],
    value: Float[Array, "B M n H"],
    selector_key: Float[Array, "B M n H"] | None = None,
    mask: Bool[Array, "B n"] | None = None,
) -> AttentionCache:
    """Returns the cache with n more tokens, for a loop over time.

    `selective_attention` of a query to (cache.key, cache.value) under cache.mask is then causal,
    because the cache holds the tokens so far.

        >>> zeros = jnp.zeros((1, 2, 8, 4))
        >>> cache = AttentionCache(zeros, zeros, jnp.zeros((1, 8), bool), jnp.array(0))
        >>> cache = append_to_cache(cache, jnp.ones((1, 2, 1, 4)), jnp.ones((1, 2, 1, 4)))
        >>> print(cache.position, cache.mask.astype(int))
        1 [[1 0 0 0 0 0 0 0]]

    Args:
      cache: the cache of the tokens before, with room for T tokens of B rows and M heads.
      key, value: the key and the value of each of n new tokens, vectors of width H, in any floating
        dtype.
      selector_key: the keys of the selector for the new tokens; None for a cache without them.
      mask: True at real tokens among the n new ones; None means all.

    Returns:
      The new cache, an `AttentionCache` of the same shapes, with a position larger by n.

    Raises:
      ValueError: also if the cache is known to have no room. If its position is traced, the values
        of the surplus tokens, and all outputs that attend to them, become NaN.
    """
    if not isinstance(cache, AttentionCache):
        raise TypeError(f"cache must be an AttentionCache, got {type(cache).__name__}")
    check_floating(key=key, value=value)
    rows, count, size = cache.key.shape[0], jnp.shape(key)[-2], cache.key.shape[2]
    check_mask(cache.mask, (rows, size), "cache.mask")
    check_shape((rows, size), **{"cache.mask": cache.mask})
    check_shape((*cache.key.shape[:2], count, cache.key.shape[3]), key=key)
    check_shape((*cache.value.shape[:2], count, cache.value.shape[3]), value=value)
    if (selector_key is None) != (cache.selector_key is None):
        kinds = ("an array", "None")
        raise ValueError(
            f"selector_key must be {kinds[cache.selector_key is None]} like the selector_key of "
            f"the cache, got {kinds[selector_key is None]}"
        )
    check_mask(mask, (rows, count))
    at = cache.position
    if is_known(at) and int(at) + count > size:
        raise ValueError(
            f"cache must have room for {count} more tokens, got {int(at)} of {size} used: "
            "create it with a larger size"
        )
    # `dynamic_update_slice` clamps the position, so a full cache would overwrite its last tokens
    # without an error. NaN makes that visible.
    value = jnp.where(at + count <= size, jnp.asarray(value), jnp.nan)
    real = jnp.broadcast_to(jnp.ones((1, 1), bool) if mask is None else mask, (rows, count))
    real = rows_like(real, cache.mask) | (at + count > size)  # NaN must reach the output
    old = cache.selector_key
    selector = None if old is None else put(old, jnp.asarray(selector_key), at)
    return AttentionCache(
        key=put(cache.key, jnp.asarray(key), at),
        value=put(cache.value, value, at),
        mask=lax.dynamic_update_slice_in_dim(cache.mask, real, at, axis=1),
        position=at + count,
        selector_key=selector,
    )
