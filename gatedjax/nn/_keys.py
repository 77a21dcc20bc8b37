"""PRNG keys of a module's streams, with a key for each example."""

import functools
import warnings

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from gatedjax.functional._checks import check_dtype, check_shape
from gatedjax.functional._random import fold_in_each


def example_keys(
    module: nn.Module, stream: str, example_id: Int[Array, " B"] | None, rows: int
) -> Key[Array, " B"]:
    """Returns the next PRNG key of a stream, such as "dropout", for each of B rows. `example_id`
    identifies the examples, so that the keys do not depend on the batch; None means row numbers.
    """
    if example_id is None:
        example_id = jnp.arange(rows)
    else:
        check_dtype(jnp.integer, "integers", {"example_id": example_id})
        check_shape((rows,), example_id=example_id)
    return fold_in_each(module.make_rng(stream), example_id)


def warn_unused(module: nn.Module, *streams: str) -> None:
    """Warns once per class of modules if a deterministic pass was given a random stream."""
    for stream in streams:
        if module.has_rng(stream) and not module.is_initializing():
            _warn_once(type(module).__name__, stream)


# The cache is the memory of the warnings: a second call with the same arguments does nothing.
@functools.cache
def _warn_once(name: str, stream: str) -> None:
    warnings.warn(
        f"{name} was given the random stream {stream!r} and draws nothing from it, because "
        "deterministic is True; pass deterministic=False to the call, or omit the stream",
        UserWarning,
        stacklevel=4,
    )


def fold_keys(keys: Key[Array, " B"], number: int) -> Key[Array, " B"]:
    """Folds a number into the PRNG key of each of B examples; returns the keys [B]."""
    return jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, np.uint32(number % 2**32))
