"""The losses of all 2^n patterns of n gates, in chunks, and exact sums over the patterns.

The code of a pattern is an integer; its bit r is the r-th real gate. A sum over patterns is
computed as u^T M v, where M is the matrix of losses, and u and v are the probabilities of the upper
and the lower half of the bits, so the 2^n probabilities are never in memory together. The
derivative of the sum with respect to the probability of a gate is the effect of that gate. In
reverse mode all effects cost as much as the sum, and no term is divided by a probability.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gatedjax._utils.fields import check_type
from gatedjax.gates._objective import Objective

LARGEST = 20
"""The largest number of gates that is enumerated without an explicit number of chunks."""
# Codes are int32, and the number of patterns has to be an int32 too.
_INDEX_BITS = 30
_PER_CHUNK_BITS = 12


class BitLayout(NamedTuple):
    """The gates of the bits: bit r of a code is 1 if the r-th real gate is open."""

    real: Bool[Array, " n"]  # True at real gates
    rank: Int[Array, " n"]  # the bit of each gate; of a masked gate any bit
    position: Int[Array, " bits"]  # the gate of each bit; 0 beyond the last real gate
    used: Bool[Array, " bits"]  # True at bits with a gate


def assign_bits(mask: Bool[Array, " n"], bits: int) -> BitLayout:
    """Assigns the bits of a code to the real gates, in their order, from the lowest bit."""
    # A masked gate before the first real gate would have the rank -1.
    rank = jnp.maximum(jnp.cumsum(mask) - 1, 0)
    # The size is static, because under `jit` a shape cannot depend on the mask.
    (position,) = jnp.nonzero(mask, size=bits, fill_value=0)
    return BitLayout(mask, rank, position, jnp.arange(bits) < jnp.sum(mask))


def decode_pattern(code: Int[Array, ""], layout: BitLayout) -> Bool[Array, " n"]:
    """Returns the pattern of a code, True at open gates; False also at masked gates."""
    return ((code >> layout.rank.astype(code.dtype)) & 1).astype(bool) & layout.real


def check_known(n: object) -> None:
    """Raises ValueError unless the number n of gates is an int."""
    if not isinstance(n, int):
        raise ValueError(
            f"logits must have a number n of gates that is known while tracing, got shape ({n},): "
            "2^n patterns are enumerated; add open rows by jax.vmap instead"
        )


def count_chunks(bits: int, chunks: int | None, itemsize: int = 4) -> int:
    """Returns the number of chunks, a power of 2; raises ValueError for too many patterns."""
    if chunks is not None:
        check_type("chunks", chunks, int)
        if chunks < 1:
            raise ValueError(f"chunks must be at least 1, got {chunks}")
    if bits > _INDEX_BITS or (bits > LARGEST and chunks is None):
        cost = f"2^{bits} = {2**bits:,} evaluations of the loss and {itemsize * 2**bits:,} bytes"
        way = "; set chunks to allow it" if bits <= _INDEX_BITS else ""
        most = LARGEST if way else _INDEX_BITS
        raise ValueError(f"n must be at most {most}, got {bits} gates: {cost}{way}")
    if chunks is None:
        return 1 << max(0, bits - _PER_CHUNK_BITS)
    # A power of 2 divides the 2^n patterns into equal chunks.
    return 1 << min(bits, math.ceil(math.log2(chunks)))


def compute_losses(
    objective: Objective, layout: BitLayout, bits: int, chunks: int
) -> Float[Array, " patterns"]:
    """Computes the losses [2^bits] of all codes in their order, one chunk after the other."""
    size = (1 << bits) // chunks

    @jax.checkpoint  # a gradient computes a chunk again instead of storing it
    def chunk(start):
        codes = start + jnp.arange(size, dtype=jnp.int32)
        gates = jax.vmap(decode_pattern, in_axes=(0, None))(codes, layout)
        return objective.values(gates)

    if chunks == 1:
        return chunk(jnp.int32(0))
    starts = jnp.arange(chunks, dtype=jnp.int32) * size
    return jax.lax.map(chunk, starts).reshape(1 << bits)


def _weigh_patterns(probability: Float[Array, " bits"]) -> Float[Array, " patterns"]:
    # Each bit doubles the vector. The new bit is the highest so far: its half with value 1 comes
    # last, in the order of the codes.
    weights = jnp.ones(1, probability.dtype)
    for bit in range(probability.shape[0]):
        p = probability[bit]
        weights = jnp.concatenate([weights * (1 - p), weights * p])
    return weights


def contract(
    values: Float[Array, " patterns"], probability: Float[Array, " bits"]
) -> Float[Array, ""]:
    """Computes sum_b P(b) values_b for independent gates: the values' multilinear extension."""
    low = probability.shape[0] // 2
    upper, lower = _weigh_patterns(probability[low:]), _weigh_patterns(probability[:low])
    square = values.reshape(upper.shape[0], lower.shape[0])
    # The default precision of products on accelerators may be below float32, and these sums are
    # called exact.
    rows = jnp.matmul(square, lower, precision=jax.lax.Precision.HIGHEST)
    return jnp.matmul(upper, rows, precision=jax.lax.Precision.HIGHEST)
