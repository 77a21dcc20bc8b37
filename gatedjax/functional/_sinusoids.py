"""Positions as sinusoids."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gatedjax.functional._tracing import known


def sinusoids(
    positions: Int[Array, " N"] | np.ndarray, width: int, dtype: jnp.dtype = jnp.float32
) -> Float[Array, "N D"]:
    """Sinusoidal positions: p_t,d = sin(t r_d) for even d, cos(t r_d) for odd d.

        r_d = 10000^(-2 floor(d / 2) / D)

    Args:
      positions: t, from 0. Known ones make a table that is a constant of the program, computed in
        float64; of traced ones the angles are computed in float32.
      width: D.
      dtype: of the result.

    Reference: Vaswani et al. 2017, "Attention Is All You Need", section 3.5.
    Deviation: none in the numbers; a sine and its cosine stand side by side.
    """
    feature = np.arange(width)
    rates = 10_000.0 ** (-2.0 * (feature // 2) / width)
    even = (feature % 2 == 0)[None, :]
    if not known(positions):
        angles = positions.astype(jnp.float32)[:, None] * jnp.asarray(rates, jnp.float32)[None, :]
        return jnp.where(even, jnp.sin(angles), jnp.cos(angles)).astype(dtype)
    angles = np.asarray(positions)[:, None] * rates[None, :]
    return jnp.asarray(np.where(even, np.sin(angles), np.cos(angles)), dtype)
