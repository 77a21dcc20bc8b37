"""Scores of dot-product attention."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from gatedjax.functional._checks import check_floating, check_that, wide_dtype


def scaled_dot_product(
    query: Float[Array, "*B Q H"], key: Float[Array, "*B N H"]
) -> Float[Array, "*B Q N"]:
    """Computes attention scores: e_ij = q_i . k_j / sqrt(H).

    The query is scaled, not the product, so that no half-precision sum grows with H.

        >>> print(scaled_dot_product(jnp.ones((1, 4)), jnp.ones((2, 4))))
        [[2. 2.]]

    Args:
      query: q, a vector of width H for each of Q queries; the leading axes *B may include heads.
      key: k, a vector for each of N keys, with the leading axes and the width of the queries.

    Returns:
      The scores e of each query and key in nats, in float32 or wider.

    Reference: Vaswani et al. 2017, "Attention Is All You Need", eq. 1.
    """
    check_floating(query=query, key=key)
    query, key = jnp.asarray(query), jnp.asarray(key)
    fits = key.shape[:-2] == query.shape[:-2] and key.shape[-1:] == query.shape[-1:]
    message = f"key must be [..., N, H] with the other axes of query {query.shape}"
    check_that(fits and key.ndim == query.ndim > 1, message, key)
    width: Any = query.shape[-1]
    if not isinstance(width, int):  # `jax.export` leaves it open
        width = jnp.asarray(width, wide_dtype(query))
    query = query * jnp.asarray(width**-0.5, query.dtype)
    wide = wide_dtype(query, key)
    return jnp.einsum("...qd,...kd->...qk", query, key, preferred_element_type=wide)
