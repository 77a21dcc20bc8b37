"""Random draws per example, independent of batch, bucket, padding and device."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from gatedjax._utils.tracing import check_key, check_keys
from gatedjax.functional._checks import check_dtype, check_floating, check_rate, check_that
from gatedjax.functional._relaxations import logistic_of


def example_keys(key: Key[Array, ""], example_id: Int[Array, " B"]) -> Key[Array, " B"]:
    """Returns a key per example: fold_in(key, example_id).

        >>> example_keys(jax.random.key(0), jnp.array([7, 8, 9])).shape
        (3,)

    Args:
      key: the PRNG key of the step, for example fold_in(seed_key, step).
      example_id: a number for each of B examples that identifies it in all batches.

    Returns:
      A typed PRNG key for each example.
    """
    check_key(key=key)
    # Ids of 64 bits, such as hashes, are allowed: JAX takes their lower half.
    check_dtype(jnp.integer, "integers", {"example_id": example_id})
    check_that(jnp.ndim(example_id) == 1, "example_id must have shape [B]", example_id)
    return fold_in_each(key, example_id)


fold_in_each = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
"""Computes `example_keys` without checks."""


def example_noise(keys: Key[Array, " B"], size: int) -> Float[Array, "B size"]:
    """Draws logistic noise per example and position.

        >>> keys = example_keys(jax.random.key(0), jnp.array([7, 8]))
        >>> print(jnp.array_equal(example_noise(keys, 5)[:, :3], example_noise(keys, 3)))
        True

    Args:
      keys: a PRNG key for each of B examples (see `example_keys`).
      size: padded length T; the noise of a longer row continues that of a shorter row.

    Returns:
      float32 noise, log u - log(1 - u) for uniform u, at each of the T positions.
    """
    check_keys(keys=keys)
    return noise_of(keys, size)


def noise_of(keys: Array, size: int) -> Array:
    """Computes `example_noise` without checks."""
    return jax.vmap(lambda key: logistic_of(key, (size,)))(keys)


def example_dropout(
    inputs: Float[Array, "B ..."], rate: float, keys: Key[Array, " B"]
) -> Float[Array, "B ..."]:
    """Applies inverted dropout, with the bits of each example drawn from its own key.

    y = x * keep / (1 - rate),  keep ~ Bernoulli(1 - rate).

        >>> keys = example_keys(jax.random.key(0), jnp.array([7, 8]))
        >>> example_dropout(jnp.ones((2, 5, 3)), 0.5, keys).shape
        (2, 5, 3)

    Args:
      inputs: activations; axis 0 is the example, axis 1 (if any further) time.
      rate: probability of a zero, in [0, 1); 0 returns inputs unchanged.
      keys: a PRNG key for each of B examples (see `example_keys`).

    Returns:
      y in the dtype of inputs.
    """
    check_rate(rate)
    if rate == 0.0:
        return inputs
    check_floating(inputs=inputs)
    check_keys(jnp.shape(inputs)[0], keys=keys)
    return drop(inputs, rate, keys)


def drop(inputs: Array, rate: float, keys: Array) -> Array:
    """Computes `example_dropout` without checks, for a rate above 0."""
    shape = jnp.shape(inputs)[1:]
    keep = jax.vmap(lambda key: jax.random.bernoulli(key, 1.0 - rate, shape))(keys)
    return jnp.where(keep, inputs / (1.0 - rate), jnp.zeros_like(inputs))
