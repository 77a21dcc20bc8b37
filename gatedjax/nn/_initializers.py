"""Initialisers of parameters that consist of a block of columns for each gate."""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array

from gatedjax.functional._types import Dtype
from gatedjax.nn._types import Initializer

# The initialisers are module constants and cached, because Flax traces the initialiser of each
# parameter whenever it traces a network: JAX traces the same function only once for each shape.
GLOROT = nn.initializers.glorot_uniform()
LECUN = nn.initializers.lecun_normal()
ORTHOGONAL = nn.initializers.orthogonal()
ZEROS = nn.initializers.zeros_init()


@functools.cache
def per_gate(init: Initializer, offsets: tuple[float, ...]) -> Initializer:
    """Returns an initialiser that applies `init` to the block of each gate separately, so that fans
    and orthogonality belong to a single gate, and adds the offset of the gate.
    """

    @functools.partial(jax.jit, static_argnums=(1, 2), inline=True)
    def initialize(key: Array, shape: tuple[int, ...], dtype: Dtype = jnp.float32) -> Any:
        """Draws a parameter of `shape`, with equally wide blocks along the last axis."""
        width = shape[-1] // len(offsets)
        # Each block has a PRNG key, because blocks drawn from the same key would be equal.
        keys = jax.random.split(key, len(offsets))
        boxed = [init(k, (*shape[:-1], width), dtype) for k in keys]
        blocks = [
            block if offset == 0 else block + jnp.asarray(offset, dtype)
            for block, offset in zip(map(nn.meta.unbox, boxed), offsets, strict=True)
        ]
        # The initialiser gives all blocks the same metadata, so that the first box stands for all.
        return nn.meta.replace_boxed(boxed[0], jnp.concatenate(blocks, axis=-1))

    return initialize


def per_layer(init: Initializer, offsets: tuple[float, ...] = (0.0,)) -> Initializer:
    """Returns an initialiser that applies `init` to each layer of stacked parameters, by `per_gate`
    for a block of each gate.
    """
    blocks = per_gate(init, offsets)

    def initialize(key: Array, shape: tuple[int, ...], dtype: Dtype = jnp.float32) -> Any:
        boxed = [blocks(k, tuple(shape[1:]), dtype) for k in jax.random.split(key, shape[0])]
        stacked = jnp.stack([nn.meta.unbox(layer) for layer in boxed])
        # Names of axes belong to the axes of a single layer, so the axis of layers has none.
        box = nn.meta.add_axis(boxed[0], 0, {nn.PARTITION_NAME: None})
        return nn.meta.replace_boxed(box, stacked)

    return initialize


@functools.cache
def symmetric_uniform(scale: float) -> Initializer:
    """Returns a function (key, shape, dtype) -> array that draws from uniform(-scale, scale)."""

    @functools.partial(jax.jit, static_argnums=(1, 2), inline=True)
    def uniform(key: Array, shape: tuple[int, ...], dtype: Dtype = jnp.float32) -> Array:
        return jax.random.uniform(key, shape, dtype, -scale, scale)

    return uniform


@functools.cache
def normal(std: float) -> Initializer:
    """Returns an initialiser (key, shape, dtype) -> array that draws from normal(0, std)."""
    return nn.initializers.normal(std)
