"""All 2^n patterns of n gates: their losses, in chunks, and exact sums over them.

A pattern has a code, bit r of which is the r-th real gate. A sum over patterns is a matrix of
losses between the probabilities of the upper and of the lower half of the bits, so no 2^n
probabilities are held. Its derivative with respect to the probability of a gate is the effect of
that gate, and in reverse mode all effects cost as much as the sum; nothing divides by a
probability.
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
    return ((code >> where.rank.astype(code.dtype)) & 1).astype(bool) & where.real


def check_known(n: object) -> None:
    """Raises ValueError for a number of gates that `jax.export` leaves open."""
    if not isinstance(n, int):
        raise ValueError(
            f"logits must have a number n of gates that is known while tracing, got shape ({n},): "
            "2^n patterns are enumerated; jax.export may leave the number of rows open (vmap)"
        )


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


def _weights(probability: Float[Array, " bits"]) -> Float[Array, " patterns"]:
    """P(b) of every code."""
    weights = jnp.ones(1, probability.dtype)
    for bit in range(probability.shape[0]):
        p = probability[bit]
        weights = jnp.concatenate([weights * (1 - p), weights * p])
    return weights


def contract(
    values: Float[Array, " patterns"], probability: Float[Array, " bits"]
) -> Float[Array, ""]:
    """sum_b P(b) values_b over independent gates; for any numbers, the multilinear extension."""
    low = probability.shape[0] // 2
    upper, lower = _weights(probability[low:]), _weights(probability[:low])
    square = values.reshape(upper.shape[0], lower.shape[0])
    rows = jnp.matmul(square, lower, precision=jax.lax.Precision.HIGHEST)
    return jnp.matmul(upper, rows, precision=jax.lax.Precision.HIGHEST)
