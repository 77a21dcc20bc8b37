"""Attention in blocks of queries, without arrays over all pairs of tokens."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from gatedjax.functional._blocks import block_positions, join_queries, split_queries


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
        pairs = split_queries(all_pairs, block)
    of_queries = {name: split_queries(heads[name], block) for name in queries}
    mixed, record = jax.lax.map(attend_block, (of_queries, block_positions(size, block), pairs))
    return join_queries(mixed, size), {k: join_queries(v, size) for k, v in record.items()}
