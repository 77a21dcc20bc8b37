"""Random bits of pairs and of features, many from one block of the generator.

A block of threefry is 64 bits of (key, counter): the key is that of the example, the counter names
the pair, so a pair has its bits in any batch, padding or block of queries. `jax.random` spends a
block on every draw; here two heads share one for their noise, and eight for their dropout.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, UInt

from gatedjax.functional._checks import check_rate, check_shape

_TINY = 1e-7
_QUERIES = 1 << 20
"""More queries than a text has: counters are group of heads * this + query."""


def _words(keys: Key[Array, " B"], rows: Int[Array, " R"], size: int) -> tuple[Array, Array]:
    """Two words of 32 bits for every example, row and column [B, R, N]."""
    shape = (keys.shape[0], rows.shape[0], size)
    typed = jnp.issubdtype(keys.dtype, jax.dtypes.prng_key)
    if typed and str(jax.random.key_impl(keys)) != "threefry2x32":
        # another generator: a key per row, and twice the draws
        per_row = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))(keys, rows)
        draw = jax.vmap(jax.vmap(lambda key: jax.random.bits(key, (2, size), jnp.uint32)))(per_row)
        return draw[:, :, 0], draw[:, :, 1]
    data = jax.random.key_data(keys) if typed else keys
    first, second = (jnp.broadcast_to(data[:, i][:, None, None], shape) for i in (0, 1))
    row = jnp.broadcast_to(rows.astype(jnp.uint32)[None, :, None], shape)
    column = jax.lax.broadcasted_iota(jnp.uint32, shape, 2)
    return threefry(first, second, row, column)


_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry(
    key_high: UInt[Array, "..."],
    key_low: UInt[Array, "..."],
    high: UInt[Array, "..."],
    low: UInt[Array, "..."],
) -> tuple[UInt[Array, "..."], UInt[Array, "..."]]:
    """Threefry-2x32 with 20 rounds: the two words of 32 bits of a key and a counter.

    The bits are those of JAX's own generator. Its program for CPUs is a loop over arrays; written
    out, XLA makes one pass of it: 4.5 ms in place of 24 ms for a million blocks (one thread of an
    AMD EPYC), and a quarter of the time to compile.

    Reference: Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3".
    """
    keys = (key_high, key_low, key_high ^ key_low ^ jnp.uint32(0x1BD11BDA))
    high, low = high + keys[0], low + keys[1]
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            high = high + low
            low = high ^ ((low << distance) | (low >> (32 - distance)))
        high = high + keys[(group + 1) % 3]
        low = low + keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return high, low


def _pairs(
    keys: Key[Array, " B"], groups: int, queries: Int[Array, " Q"], size: int
) -> tuple[Array, Array]:
    """Two words for every group of heads, query and key [B, G, Q, N]."""
    rows = jnp.arange(groups)[:, None] * _QUERIES + queries[None, :]
    shape = (keys.shape[0], groups, queries.shape[0], size)
    high, low = _words(keys, rows.reshape(-1), size)
    return high.reshape(shape), low.reshape(shape)


def pair_uniform(
    keys: Key[Array, " B"], heads: int, queries: Int[Array, " Q"], size: int
) -> Float[Array, "B M Q N"]:
    """Draws uniform noise for every pair of a query and a key.

    Args:
      keys: one key per example (see `example_keys`).
      heads: M.
      queries: positions of the queries, below 2**20; a block may have any of them.
      size: padded number N of keys; a longer row continues a shorter one.

    Returns:
      float32 from the open interval (0, 1).
    """
    both = jnp.stack(_pairs(keys, -(-heads // 2), queries, size), axis=2)
    bits = _merged(both)[:, :heads]
    # 23 bits are a float32 in [1, 2) when they stand behind the exponent of 1
    one = jnp.uint32(0x3F800000)
    draws = jax.lax.bitcast_convert_type((bits >> 9) | one, jnp.float32) - 1.0
    return jnp.clip(draws, _TINY, 1.0 - _TINY)


def pair_bytes(
    keys: Key[Array, " B"], heads: int, queries: Int[Array, " Q"], size: int
) -> UInt[Array, "B M Q N"]:
    """A random byte for every pair; arguments as for `pair_uniform`."""
    words = _pairs(keys, -(-heads // 8), queries, size)
    parts = [(word >> shift).astype(jnp.uint8) for word in words for shift in (0, 8, 16, 24)]
    every = jnp.stack(parts, axis=2)
    return _merged(every)[:, :heads]


def _merged(groups: Array) -> Array:
    """[B, G, H, Q, N] as [B, G H, Q, N]; no axis is inferred, for Q and N may be 0."""
    rows, count, heads, queries, size = groups.shape
    return groups.reshape(rows, count * heads, queries, size)


def feature_bytes(keys: Key[Array, " B"], size: int, features: int) -> UInt[Array, "B N F"]:
    """A random byte for every feature of every position; a longer text continues a shorter one.

    Args:
      keys: one key per example (see `example_keys`).
      size: padded length N.
      features: F.
    """
    words = _words(keys, jnp.arange(size), -(-features // 8))
    parts = [(word >> shift).astype(jnp.uint8) for word in words for shift in (0, 8, 16, 24)]
    every = jnp.concatenate(parts, axis=-1)
    return every[..., :features]


def byte_dropout(
    inputs: Float[Array, "..."], rate: float, draws: UInt[Array, "..."]
) -> Float[Array, "..."]:
    """Inverted dropout from random bytes; the rate is rounded to a multiple of 1/256.

    y = x [byte >= t] / (1 - t / 256),  t = round(256 rate)

    Args:
      inputs: x.
      rate: probability of a zero, in [0, 1).
      draws: a byte for every element.
    """
    check_rate(rate)
    check_shape(jnp.shape(inputs), draws=draws)
    threshold = min(round(256 * rate), 255)
    if threshold == 0:
        return inputs
    scale = jnp.asarray(256 / (256 - threshold), inputs.dtype)
    return jnp.where(draws >= threshold, inputs * scale, jnp.zeros_like(inputs))
