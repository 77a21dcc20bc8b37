"""Which queries may see which keys: masks over pairs, causality, keys kept from step to step."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from gatedjax.functional._checks import check_floating, check_mask, check_shape, check_that
from gatedjax.functional._devices import rows_like
from gatedjax.functional._export import exportable
from gatedjax.functional._tracing import known
from gatedjax.functional._types import ArrayLike


def causal_pairs(positions: Int[Array, " Q"], size: int) -> Bool[Array, "Q N"]:
    """True where a key 0 .. N-1 is not after the query, whose position among them is given."""
    return jnp.arange(size)[None, :] <= positions[:, None]


def pair_mask_of(
    pair_mask: Array | None, causal: bool, shape: tuple[int, ...], positions: Array | None = None
) -> Array | None:
    """The pairs that both allow, with the rank of scores [*B, M, Q, N]; None is all of them.

    Args:
      pair_mask: [*B, Q, N], or with an axis of heads; any axis may be 1.
      causal: keys after the query are not allowed.
      shape: of the scores.
      positions: of the queries among the keys; None asks for as many queries as keys.
    """
    allowed = None
    if pair_mask is not None:
        allowed = jnp.asarray(pair_mask)
        if allowed.ndim == len(shape) - 1:
            allowed = allowed[..., None, :, :]
        check_mask(allowed, shape, "pair_mask")
    if causal:
        if positions is None:
            fits = shape[-2] == shape[-1]
            check_that(fits, "causal=True needs as many queries as keys", jnp.empty(shape[-2:]))
            positions = jnp.arange(shape[-2])
        before = causal_pairs(positions, shape[-1]).reshape(
            (1,) * (len(shape) - 2) + (positions.shape[0], shape[-1])
        )
        allowed = before if allowed is None else allowed & before
    return allowed


def check_key_mask(mask: ArrayLike, shape: tuple[int, ...], name: str = "mask") -> None:
    """Raises unless a mask of real keys fits; for a mask of pairs it names the argument of those.

    A mask of Flax's attention, [B, 1, Q, N] of bool or float32, is one of pairs.
    """
    got = () if mask is None else jnp.shape(mask)
    fits = len(got) == len(shape) and all(g in (1, s) for g, s in zip(got, shape, strict=True))
    if len(got) > 2 and not fits:
        raise ValueError(
            f"{name} must have shape {shape}, True at real tokens, got {got}; a mask of pairs "
            "[B, 1, Q, N], True where a query may see a key, is the argument pair_mask"
        )
    check_mask(mask, shape, name)


def both_allow(mask: Array | None, pairs: Array | None) -> Array | None:
    """What two masks of one rank both allow; None allows everything."""
    if mask is None or pairs is None:
        return pairs if mask is None else mask
    return mask & pairs


def put(places: Float[Array, "*B T H"], new: Float[Array, "*B n H"], position: Array) -> Array:
    """Places with new from `position` on."""
    return lax.dynamic_update_slice_in_dim(places, new.astype(places.dtype), position, axis=-2)


@exportable
class AttentionCache(NamedTuple):
    """Keys and values of the tokens so far, with room for T of them.

    Attributes:
      key, value: of every head; what stands behind `position` means nothing.
      mask: True at real tokens, False where there is none yet.
      position: how many tokens there are, padding among them.
      selector_key: keys of the selector; None without one.
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
    *,
    mask: Bool[Array, "B n"] | None = None,
) -> AttentionCache:
    """The cache with n more tokens, as a loop over time carries it.

    `selective_attention` of a query to (cache.key, cache.value) under cache.mask is then causal: it
    sees the tokens so far.

    Args:
      cache: of the tokens before.
      key, value, selector_key: of the new ones, in the dtype of the cache or another.
      mask: True at real tokens; None means all.

    Raises:
      ValueError: also if the cache is known to have no room. Where its position is traced, the
        value that has no place becomes NaN, and so does what attends to it.
    """
    check_floating(key=key, value=value)
    rows, count, size = cache.mask.shape[0], jnp.shape(key)[-2], cache.mask.shape[1]
    check_shape((*cache.key.shape[:2], count, cache.key.shape[3]), key=key)
    check_shape((*cache.value.shape[:2], count, cache.value.shape[3]), value=value)
    if (selector_key is None) != (cache.selector_key is None):
        raise ValueError("selector_key must be given if the cache has one, and only then")
    check_mask(mask, (rows, count))
    at = cache.position
    if known(at) and int(at) + count > size:
        raise ValueError(f"cache must have room for {count} more tokens, got {int(at)} of {size}")
    value = jnp.where(at + count <= size, jnp.asarray(value), jnp.nan)
    real = jnp.broadcast_to(jnp.ones((1, 1), bool) if mask is None else mask, (rows, count))
    real = rows_like(real, cache.mask) | (at + count > size)  # what is lost must be seen
    selector = None
    if selector_key is not None and cache.selector_key is not None:
        selector = put(cache.selector_key, jnp.asarray(selector_key), at)
    return AttentionCache(
        key=put(cache.key, jnp.asarray(key), at),
        value=put(cache.value, value, at),
        mask=lax.dynamic_update_slice_in_dim(cache.mask, real, at, axis=1),
        position=at + count,
        selector_key=selector,
    )
