"""A bias of attention scores by the offset between key and query."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from gatedjax.functional._checks import check_floating, check_integers, check_that


def relative_bias(
    table: Float[Array, "M O"], queries: Int[Array, " Q"], keys: Int[Array, " N"]
) -> Float[Array, "M Q N"]:
    """Returns a bias of attention scores per head and offset; offsets are clipped to [-K, K].

        b_mij = t_m,c(j - i),  c(o) = min(max(o, -K), K)

        >>> table = jnp.array([[-1.0, 0.0, 1.0]])
        >>> print(relative_bias(table, jnp.array([1]), jnp.arange(4)))
        [[[-1.  0.  1.  1.]]]

    Args:
      table: t, with a row for each of M heads and a column for each of the offsets -K .. K in this
        order: O = 2K + 1.
      queries: positions i of Q queries.
      keys: positions j of N keys, counted like the positions of the queries.

    Returns:
      b in the dtype of table, to be added to scores before their mask and softmax.

    Raises:
      ValueError: if the table has no middle column, or positions are no vectors.

    Reference: Raffel et al. 2020 (T5), section 2.1, for a learned number per head and offset; Shaw
      et al. 2018, "Self-Attention with Relative Position Representations", for the clipping.
    Deviation: each offset up to K has its own number; T5 groups large offsets into buckets.
    """
    check_floating(table=table)
    check_integers(queries=queries, keys=keys)
    table, queries, keys = map(jnp.asarray, (table, queries, keys))
    fits = table.ndim == 2 and table.shape[1] % 2 == 1
    check_that(fits, "table must be [heads, 2 K + 1], a column for each offset", table)
    for name, positions in {"queries": queries, "keys": keys}.items():
        check_that(positions.ndim == 1, f"{name} must be a vector of positions", positions)
    queries, keys = queries.astype(jnp.int32), keys.astype(jnp.int32)  # unsigned ones wrap around
    furthest = table.shape[1] // 2
    offsets = jnp.clip(keys[None, :] - queries[:, None], -furthest, furthest)
    return table[:, offsets + furthest]
