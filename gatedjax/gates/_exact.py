"""All 2^n patterns of n gates: their losses, in chunks, and exact sums over them.

A pattern has a code, bit r of which is the r-th real gate. Sums over patterns contract one gate
after the other, from the highest bit: 2^n products in all, rounding like a tree, and the derivative
with respect to the probabilities, in reverse mode, is the effect of every gate at the same cost.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gatedjax.gates._objective import Objective

LARGEST = 20
"""So many gates are enumerated without being asked twice."""
_INDEX_BITS = 30
_PER_CHUNK_BITS = 12


class Places(NamedTuple):
    """Which bit of a code is which gate.

    Attributes:
      real: True at gates that take part.
      rank: the bit of each gate.
      position: the gate of each bit; a bit beyond the last real gate has gate 0.
      used: True at bits that have a gate.
    """

    real: Bool[Array, " n"]
    rank: Int[Array, " n"]
    position: Int[Array, " bits"]
    used: Bool[Array, " bits"]


def places(mask: Bool[Array, " n"], bits: int) -> Places:
    """The bits of the real gates, in their order."""
    rank = jnp.maximum(jnp.cumsum(mask) - 1, 0)
    (position,) = jnp.nonzero(mask, size=bits, fill_value=0)
    return Places(mask, rank, position, jnp.arange(bits) < jnp.sum(mask))


def pattern(code: Int[Array, ""], where: Places) -> Bool[Array, " n"]:
    """The gates of a code; False at gates that take no part."""
    return ((code >> where.rank) & 1).astype(bool) & where.real


def check_size(bits: int, chunks: int | None, itemsize: int = 4) -> int:
    """The number of chunks, a power of 2; raises ValueError where there are too many patterns."""
    if chunks is not None and chunks < 1:
        raise ValueError(f"chunks must be at least 1, got {chunks}")
    if bits > _INDEX_BITS or (bits > LARGEST and chunks is None):
        cost = f"2^{bits} = {2**bits:,} evaluations of the loss and {itemsize * 2**bits:,} bytes"
        way = "give chunks to pay it" if bits <= _INDEX_BITS else f"at most {_INDEX_BITS} can be"
        raise ValueError(f"n must be at most {LARGEST}, got {bits} gates: {cost}; {way}")
    if chunks is None:
        return 1 << max(0, bits - _PER_CHUNK_BITS)
    return 1 << min(bits, math.ceil(math.log2(chunks)))


def all_losses(
    objective: Objective, where: Places, bits: int, chunks: int
) -> Float[Array, " patterns"]:
    """The loss of every code, one chunk after the other; a gradient keeps no chunk's insides."""
    size = (1 << bits) // chunks

    @jax.checkpoint
    def chunk(start):
        codes = start + jnp.arange(size, dtype=jnp.int32)
        gates = jax.vmap(pattern, in_axes=(0, None))(codes, where)
        return objective.values(gates)

    if chunks == 1:
        return chunk(jnp.int32(0))
    starts = jnp.arange(chunks, dtype=jnp.int32) * size
    return jax.lax.map(chunk, starts).reshape(1 << bits)


def contract(
    values: Float[Array, " patterns"], probability: Float[Array, " bits"]
) -> Float[Array, ""]:
    """sum_b P(b) values_b over independent gates; for any numbers, the multilinear extension."""
    for bit in range(probability.shape[0])[::-1]:
        half = values.shape[0] // 2
        values = (1 - probability[bit]) * values[:half] + probability[bit] * values[half:]
    return values[0]
