"""A learned bias of attention scores that depends on the offset of the key."""

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array

from gatedjax.functional._checks import check_choice
from gatedjax.functional._types import Dtype

Relative = Literal["none", "learned", "local"]

LOCAL_BIAS = 4.0
"""Initial bias of a local head in nats; e^4 is the weight of 55 words without a bias."""


def local_start(key: Array, shape: tuple[int, int], dtype: Dtype = jnp.float32) -> Array:
    """Returns biases [M, 2K + 1]: head 0 attends to the word before, head 1 to the word after."""
    del key
    middle = shape[1] // 2
    return jnp.zeros(shape, dtype).at[[0, 1], [middle - 1, middle + 1]].set(LOCAL_BIAS)


def check_relative(relative: str, max_offset: int, num_heads: int) -> None:
    """Raises ValueError unless these options of `SelectiveSelfAttention` are valid together."""
    check_choice(Relative, relative=relative)
    if max_offset < 1:
        raise ValueError(f"max_offset must be at least 1, got {max_offset}")
    if relative == "local" and num_heads < 2:
        raise ValueError(f"num_heads must be at least 2 for relative='local', got {num_heads}")
