"""Random keys of a module's streams, one per example."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from gatedjax import functional as F


def example_keys(
    module: nn.Module, stream: str, example_id: Int[Array, " B"] | None, rows: int
) -> Key[Array, " B"]:
    """The next keys of a stream for B rows; rows without an example_id take their numbers."""
    ids = jnp.arange(rows) if example_id is None else example_id
    return F.example_keys(module.make_rng(stream), ids)


def folded(keys: Key[Array, " B"], number: int) -> Key[Array, " B"]:
    """Other keys of the same examples, for every number others."""
    return jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, np.uint32(number % 2**32))
