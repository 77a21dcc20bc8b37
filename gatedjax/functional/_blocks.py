"""Splitting queries into blocks, so that arrays over query-key pairs stay small."""

import jax.numpy as jnp
from jaxtyping import Array


def split_queries(array: Array, block: int) -> Array:
    """Splits [B, M, N, ...] into blocks [blocks, B, M, block, ...], the last filled up with 0."""
    size, (rows, heads) = array.shape[2], array.shape[:2]
    blocks = -(-size // block)
    spare = [(0, 0)] * array.ndim
    spare[2] = (0, blocks * block - size)
    parts = jnp.pad(array, spare).reshape(rows, heads, blocks, block, *array.shape[3:])
    return jnp.moveaxis(parts, 2, 0)


def join_queries(array: Array, size: int) -> Array:
    """Joins blocks [blocks, B, M, block, ...] to [B, M, size, ...], without the fill."""
    joined = jnp.moveaxis(array, 0, 2)
    rows, heads, blocks, block = joined.shape[:4]
    return joined.reshape(rows, heads, blocks * block, *joined.shape[4:])[:, :, :size]


def block_positions(size: int, block: int) -> Array:
    """Returns the positions of the queries in each block, counted from 0: int [blocks, block]."""
    blocks = -(-size // block)
    return jnp.arange(blocks * block).reshape(blocks, block)
