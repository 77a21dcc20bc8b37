"""Sinusoidal position encodings."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gatedjax.functional._checks import check_that, is_known


def sinusoids(
    positions: Int[Array, " N"] | np.ndarray, width: int, dtype: jnp.dtype = jnp.float32
) -> Float[Array, "N D"]:
    """Computes sinusoidal positions: p_t,d = sin(t r_d) for even d, cos(t r_d) for odd d.

        r_d = 10000^(-2 floor(d / 2) / D)

        >>> print(sinusoids(np.arange(3), 4).shape, sinusoids(np.arange(1), 4))
        (3, 4) [[0. 1. 0. 1.]]

    Args:
      positions: t, N numbers from 0. Known positions give a constant of the program, computed in
        float64; for traced positions the angles are computed in float32.
      width: D, the number of features.
      dtype: dtype of the result.

    Returns:
      p, a vector of D features for each position.

    Reference: Vaswani et al. 2017, "Attention Is All You Need", section 3.5.
    Deviation: none in the numbers; sines and cosines alternate along the features.
    """
    check_that(np.ndim(positions) == 1, "positions must have shape [N]", positions)
    feature = np.arange(width)
    rates = 10_000.0 ** (-2.0 * (feature // 2) / width)
    even = (feature % 2 == 0)[None, :]
    if not is_known(positions):
        angles = positions.astype(jnp.float32)[:, None] * jnp.asarray(rates, jnp.float32)[None, :]
        return jnp.where(even, jnp.sin(angles), jnp.cos(angles)).astype(dtype)
    angles = np.asarray(positions)[:, None] * rates[None, :]
    return jnp.asarray(np.where(even, np.sin(angles), np.cos(angles)), dtype)
