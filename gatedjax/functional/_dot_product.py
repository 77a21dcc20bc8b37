"""Products over pairs of queries and keys, and the scores of dot-product attention."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
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
    return pair_products(query * jnp.asarray(width**-0.5, query.dtype), key)


# The derivatives of both products multiply a transposed array over pairs with narrow vectors. XLA
# does that on a CPU outside of its fast library, for 14 instead of 7 ms with heads of width 16, and
# 19 instead of 11 ms with 32 (16 rows, 8 heads, 256 tokens). The vectors are transposed instead.
# In tiny products that would end the compiler of jaxlib 0.10 for CPUs, and would gain nothing.
_LEAST_PAIRS, _LEAST_WIDTH = 64, 8


@jax.custom_jvp
def pair_products(query: Array, key: Array) -> Array:
    """Computes q_i . k_j [..., Q, N], in float32 or wider, without a scale and without checks."""
    wide = wide_dtype(query, key)
    return jnp.einsum("...qd,...kd->...qk", query, key, preferred_element_type=wide)


@pair_products.defjvp
def _pair_products_jvp(primals, tangents):
    (query, key), (d_query, d_key) = primals, tangents
    pairs = pair_products(query, key)
    columns = (_stored_transposed(array, pairs) for array in (query, d_key))
    return pairs, pair_products(d_query, key) + pair_products(*columns)


@jax.custom_jvp
def weighted_values(weights: Array, value: Array) -> Array:
    """Computes W value [..., Q, D] from weights W [..., Q, N] and values [..., N, D]."""
    wide = wide_dtype(value)
    weights = weights.astype(value.dtype)
    output = jnp.einsum("...qk,...kd->...qd", weights, value, preferred_element_type=wide)
    return output.astype(value.dtype)


@weighted_values.defjvp
def _weighted_values_jvp(primals, tangents):
    (weights, value), (d_weights, d_value) = primals, tangents
    by_value = weighted_values(weights, _stored_transposed(d_value, weights))
    by_value = _stored_transposed(by_value, weights)
    return weighted_values(weights, value), weighted_values(d_weights, value) + by_value


def _stored_transposed(array: Array, pairs: Array) -> Array:
    """Returns the array, stored with its last two axes exchanged if the product is not tiny."""
    sizes = (*pairs.shape[-2:], array.shape[-1])
    if not all(isinstance(size, int) for size in sizes):  # `jax.export` leaves it open
        return array
    if min(sizes[:2]) < _LEAST_PAIRS or sizes[2] < _LEAST_WIDTH:
        return array
    # Without the barrier XLA would remove the two transpositions.
    return jnp.swapaxes(lax.optimization_barrier(jnp.swapaxes(array, -1, -2)), -1, -2)
