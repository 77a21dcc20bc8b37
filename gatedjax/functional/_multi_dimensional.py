"""Multi-dimensional attention: additive scores, and a separate softmax per feature."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from gatedjax.functional._checks import check_floating, check_positive, check_that, wide_dtype


def multi_dimensional_scores(
    query: Float[Array, "*B Q D"], key: Float[Array, "*B N D"], scale: float = 5.0
) -> Float[Array, "*B D Q N"]:
    """Computes the scores of DiSAN (Shen et al. 2018): e_ijd = c tanh((q_i + k_j)_d / c)."""
    check_floating(query=query, key=key)
    check_positive(scale=scale)
    query, key = jnp.asarray(query), jnp.asarray(key)
    fits = query.ndim == key.ndim > 1 and query.shape[-1] == key.shape[-1]
    check_that(fits, "query and key must both be [..., N, D]", query, key)
    summed = query[..., :, None, :] + key[..., None, :, :]
    scores = scale * jnp.tanh(summed.astype(wide_dtype(summed)) / scale)
    return jnp.moveaxis(scores, -1, -3)


def multi_dimensional_values(
    weights: Float[Array, "*B D Q N"], value: Float[Array, "*B N D"]
) -> Float[Array, "*B Q D"]:
    """Sums values with separate weights per feature: o_id = sum_j W_ijd v_jd."""
    check_floating(weights=weights, value=value)
    wide = value.astype(wide_dtype(value))
    return jnp.einsum("...dqn,...nd->...qd", weights, wide).astype(value.dtype)
