"""PRNG keys of a module's streams, with a key for each example."""

import functools
import warnings

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from gatedjax import functional as F


def example_keys(
    module: nn.Module, stream: str, example_id: Int[Array, " B"] | None, rows: int
) -> Key[Array, " B"]:
    """Returns the next keys of a stream for B rows.

    Args:
      module: the module that has the stream.
      stream: name of the stream, such as "dropout".
      example_id: the examples to which the keys belong; None means the numbers of the rows.
      rows: B.

    Returns:
      A key for each row.
    """
    ids = jnp.arange(rows) if example_id is None else example_id
    return F.example_keys(module.make_rng(stream), ids)


def warn_unused(module: nn.Module, *streams: str) -> None:
    """Warns once per class of modules if a deterministic pass was given a random stream.

    The call then has no effect that its caller expects of the stream, such as dropout. The
    initialisation gives no warning, because it may be given all streams of a network.

    Args:
      module: the module, in a deterministic pass.
      streams: the streams that the module draws from if it is not deterministic.
    """
    for stream in streams:
        if module.has_rng(stream) and not module.is_initializing():
            _warn_once(type(module).__name__, stream)


@functools.cache
def _warn_once(name: str, stream: str) -> None:
    warnings.warn(
        f"{name} was given the random stream {stream!r} and draws nothing from it, because "
        "deterministic is True; pass deterministic=False to the call, or omit the stream",
        UserWarning,
        stacklevel=4,
    )


def fold_keys(keys: Key[Array, " B"], number: int) -> Key[Array, " B"]:
    """Folds a number into the PRNG key of each example, so that each number gives other draws.

    Negative numbers are allowed; numbers are equal modulo 2^32.
    """
    return jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, np.uint32(number % 2**32))
