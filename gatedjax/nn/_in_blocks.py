"""Attention in blocks of queries, without arrays over all pairs of tokens."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array


def in_blocks(
    attend: Callable[..., tuple[Array, dict[str, Array]]],
    heads: dict[str, Array],
    block: int,
    pairs: Array | None,
) -> tuple[Array, dict[str, Array]]:
    """Runs an attention for a block of queries at a time, and each block again for the gradient."""
    size = heads["query"].shape[2]
    queries = [name for name in ("query", "selector_query") if name in heads]

    # The weights of a block are computed again for the gradient, because storing them for all
    # blocks would take as much memory as an attention without blocks.
    @jax.checkpoint
    def attend_block(inputs: tuple[dict[str, Array], Array, Any]) -> tuple[Array, dict[str, Array]]:
        block_heads, positions, block_pairs = inputs
        mixed, record = attend(heads | block_heads, positions, None, block_pairs)
        # Arrays over pairs have four axes and are dropped, because blocks are there to save them.
        return mixed, {k: v for k, v in record.items() if v.ndim == 3}

    # A mask of pairs may have an axis of size 1 for the queries, which cannot be split into blocks.
    if pairs is not None:
        all_pairs = jnp.broadcast_to(pairs, (*pairs.shape[:2], size, pairs.shape[3]))
        pairs = _split(all_pairs, block)
    of_queries = {name: _split(heads[name], block) for name in queries}
    mixed, record = jax.lax.map(attend_block, (of_queries, _positions(size, block), pairs))
    return _join(mixed, size), {k: _join(v, size) for k, v in record.items()}


def _split(array: Array, block: int) -> Array:
    """Splits [B, M, N, ...] into blocks [blocks, B, M, block, ...], the last filled up with 0."""
    size, (rows, heads) = array.shape[2], array.shape[:2]
    blocks = -(-size // block)
    spare = [(0, 0)] * array.ndim
    spare[2] = (0, blocks * block - size)
    parts = jnp.pad(array, spare).reshape(rows, heads, blocks, block, *array.shape[3:])
    return jnp.moveaxis(parts, 2, 0)


def _join(array: Array, size: int) -> Array:
    """Joins blocks [blocks, B, M, block, ...] to [B, M, size, ...], without the fill."""
    joined = jnp.moveaxis(array, 0, 2)
    rows, heads, blocks, block = joined.shape[:4]
    return joined.reshape(rows, heads, blocks * block, *joined.shape[4:])[:, :, :size]


def _positions(size: int, block: int) -> Array:
    """Returns the positions of the queries in each block, counted from 0: int [blocks, block]."""
    blocks = -(-size // block)
    return jnp.arange(blocks * block).reshape(blocks, block)
