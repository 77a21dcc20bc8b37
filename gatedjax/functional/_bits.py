"""Random bits of pairs and of features, many from one block of the generator.

A block of threefry is 64 bits of (key, counter). The key belongs to the example and the counter to
the pair, so a pair has the same bits in any batch, padding or block of queries. `jax.random` spends
a block on each draw; here two heads share a block for their noise, and eight for their dropout.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, UInt

from gatedjax._utils.tracing import check_keys
from gatedjax.functional._checks import check_rate, check_shape

# The draws are multiples of 2**-23, so this bound moves only the draw 0, which has no logarithm.
_TINY = 1e-7
_QUERIES = 1 << 20
"""The counter of a row is group of heads * _QUERIES + query; texts have fewer tokens than this."""


def _words(keys: Key[Array, " B"], rows: Int[Array, " R"], size: int) -> tuple[Array, Array]:
    """Draws two random words of 32 bits for each example, row and column."""
    check_keys(keys=keys)
    shape = (keys.shape[0], rows.shape[0], size)
    if str(jax.random.key_impl(keys)) != "threefry2x32":
        # Another generator has no counters that we know: a key per row and twice the draws.
        per_row = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))(keys, rows)
        draw = jax.vmap(jax.vmap(lambda key: jax.random.bits(key, (2, size), jnp.uint32)))(per_row)
        return draw[:, :, 0], draw[:, :, 1]
    data = jax.random.key_data(keys)
    first, second = (jnp.broadcast_to(data[:, i][:, None, None], shape) for i in (0, 1))
    row = jnp.broadcast_to(rows.astype(jnp.uint32)[None, :, None], shape)
    column = jax.lax.broadcasted_iota(jnp.uint32, shape, 2)
    return threefry(first, second, row, column)


# The rotation distances that define Threefry-2x32, for even and odd groups of four rounds.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry(
    key_high: UInt[Array, "..."],
    key_low: UInt[Array, "..."],
    high: UInt[Array, "..."],
    low: UInt[Array, "..."],
) -> tuple[UInt[Array, "..."], UInt[Array, "..."]]:
    """Computes Threefry-2x32 with 20 rounds (Salmon et al. 2011), bit for bit as `jax.random`.
    JAX's program for CPUs is a loop over arrays; these unrolled rounds compile into one pass, which
    takes 4.5 instead of 24 ms for a million blocks.
    """
    # The third word of the key schedule is a parity of the key; the constant belongs to Threefry.
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
    rows = jnp.arange(groups)[:, None] * _QUERIES + queries[None, :]
    high, low = _words(keys, rows.reshape(-1), size)
    shape = (keys.shape[0], groups, queries.shape[0], size)
    return high.reshape(shape), low.reshape(shape)


def pair_uniform(
    keys: Key[Array, " B"], heads: int, queries: Int[Array, " Q"], size: int
) -> Float[Array, "B M Q N"]:
    """Draws uniform noise for each pair of a query and a key.

        >>> keys = jax.random.split(jax.random.key(0), 2)
        >>> pair_uniform(keys, heads=3, queries=jnp.arange(4), size=5).shape
        (2, 3, 4, 5)

    Args:
      keys: a PRNG key for each of B examples (see `example_keys`).
      heads: M, the number of attention heads.
      queries: positions of the Q queries in the text, from 0 and below 2**20; a block of queries
        may have any of them.
      size: padded number N of keys; a longer row continues a shorter one.

    Returns:
      float32 from the open interval (0, 1), an independent number for each example, head, query and
      key.
    """
    # Two heads share a block: the first has its high word, the second its low word. If M is odd,
    # the last word is unused.
    both = jnp.stack(_pairs(keys, -(-heads // 2), queries, size), axis=2)
    bits = _merge_groups(both)[:, :heads]
    # 23 random bits behind the exponent of 1 are a float32 in [1, 2).
    exponent = jnp.uint32(0x3F800000)
    draws = jax.lax.bitcast_convert_type((bits >> 9) | exponent, jnp.float32) - 1.0
    return jnp.clip(draws, _TINY, 1.0 - _TINY)


def pair_bytes(
    keys: Key[Array, " B"], heads: int, queries: Int[Array, " Q"], size: int
) -> UInt[Array, "B M Q N"]:
    """Draws a random byte for each pair of a query and a key.

        >>> keys = jax.random.split(jax.random.key(0), 2)
        >>> pair_bytes(keys, heads=3, queries=jnp.arange(4), size=5).dtype
        dtype('uint8')

    Args:
      keys: a PRNG key for each of B examples (see `example_keys`).
      heads: M, the number of attention heads.
      queries: positions of the Q queries in the text, from 0 and below 2**20.
      size: padded number N of keys; a longer row continues a shorter one.

    Returns:
      uint8 in [0, 256), an independent byte for each example, head, query and key.
    """
    # A block has eight bytes, a byte for each of eight heads.
    words = _pairs(keys, -(-heads // 8), queries, size)
    parts = [(word >> shift).astype(jnp.uint8) for word in words for shift in (0, 8, 16, 24)]
    every = jnp.stack(parts, axis=2)
    return _merge_groups(every)[:, :heads]


def _merge_groups(groups: Array) -> Array:
    rows, count, heads, queries, size = groups.shape
    # No axis is -1, because none can be inferred if one of the others is 0.
    return groups.reshape(rows, count * heads, queries, size)


def feature_bytes(keys: Key[Array, " B"], size: int, features: int) -> UInt[Array, "B N F"]:
    """Draws a random byte for each feature of each position.

        >>> keys = jax.random.split(jax.random.key(0), 2)
        >>> feature_bytes(keys, size=5, features=8).shape
        (2, 5, 8)

    Args:
      keys: a PRNG key for each of B examples (see `example_keys`).
      size: padded length N, the number of positions; a longer text continues a shorter text.
      features: F, the number of features of a position.

    Returns:
      uint8 in [0, 256).
    """
    words = _words(keys, jnp.arange(size), -(-features // 8))
    parts = [(word >> shift).astype(jnp.uint8) for word in words for shift in (0, 8, 16, 24)]
    every = jnp.concatenate(parts, axis=-1)
    return every[..., :features]


def byte_dropout(
    inputs: Float[Array, "..."], rate: float, draws: UInt[Array, "..."]
) -> Float[Array, "..."]:
    """Applies inverted dropout from random bytes; the rate is rounded to a multiple of 1/256.

    y = x [byte >= t] / (1 - t / 256),  t = round(256 rate)

        >>> draws = jnp.array([0, 127, 128, 255], jnp.uint8)
        >>> print(byte_dropout(jnp.ones(4), 0.5, draws))
        [0. 0. 2. 2.]

    Args:
      inputs: x, activations of any shape.
      rate: probability of a zero, in [0, 1).
      draws: a byte for each element of inputs, such as the result of `feature_bytes`; t is the
        rounded rate in units of 1/256.

    Returns:
      y in the dtype of inputs.
    """
    check_rate(rate)
    check_shape(jnp.shape(inputs), draws=draws)
    if jnp.result_type(draws) != jnp.uint8:
        raise TypeError(f"draws must be uint8, got dtype {jnp.result_type(draws)}")
    # A rate near 1 would round to 256, which no byte reaches, and the scale would divide by 0.
    threshold = min(round(256 * rate), 255)
    if threshold == 0:
        return inputs
    # The scale belongs to the rounded rate, so that the mean of y is x.
    scale = jnp.asarray(256 / (256 - threshold), inputs.dtype)
    return jnp.where(draws >= threshold, inputs * scale, jnp.zeros_like(inputs))
