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
    """Runs an attention for a block of queries at a time, and each block again for the gradient.

    Args:
      attend: `SelectiveSelfAttention._attend` with its keywords: a function of (heads, positions of
        the queries, random bytes for dropout or None, pairs) that returns the attended values
        [B, M, block, H] and a record. The record is a dict of arrays from which the statistics of
        the attention are computed, such as "counts" [B, M, block], the number of keys that each
        query selects, and "weights" [B, M, block, N].
      heads: projections by name, such as "query" and "key", each [B, M, N, H] for B rows, M heads,
        N tokens and heads of width H.
      block: the number of queries in a block.
      pairs: True where a query may see a key [B, M, Q, N]; None means all pairs.

    Returns:
      The attended values [B, M, Q, H] of all Q queries, and the arrays of the record with a number
      for each query [B, M, Q]; arrays over pairs of a query and a key are left out.
    """
    size = heads["query"].shape[2]
    queries = [name for name in ("query", "selector_query") if name in heads]

    # The weights of a block are computed again for the gradient, because storing them for all
    # blocks would take as much memory as an attention without blocks.
    @jax.checkpoint
    def attend_block(inputs: tuple[dict[str, Array], Array, Any]) -> tuple[Array, dict[str, Array]]:
        """Attends from a block of queries; returns its values [B, M, block, H] and its record.

        There are B rows, M heads of width H and `block` queries.

        `inputs` are (projections of the queries by name, positions of the queries, pairs) of the
        block; pairs is True where a query may see a key, and None means all. The record is a dict
        of arrays [B, M, block] with a number for each query, such as "counts", the number of keys
        that it selects.
        """
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
