"""Checks and preparation of the inputs of a multi-head attention, and its relative bias."""

from typing import Any, Literal

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array

from gatedjax import functional as F
from gatedjax._utils.fields import check_fields
from gatedjax.functional._checks import (
    check_floating,
    check_positive,
    check_shape,
    check_that,
)
from gatedjax.functional._pairs import check_key_mask
from gatedjax.functional._recurrence import real_alone
from gatedjax.functional._types import Dtype
from gatedjax.nn._selection import check_selector

Relative = Literal["none", "learned", "local"]

LOCAL_BIAS = 4.0
"""Initial bias of a local head in nats; e^4 is the weight of 55 words without a bias."""


def local_start(key: Array, shape: tuple[int, int], dtype: Dtype = jnp.float32) -> Array:
    """Returns biases [M, 2K + 1]: head 0 attends to the word before, head 1 to the word after."""
    del key
    middle = shape[1] // 2
    return jnp.zeros(shape, dtype).at[[0, 1], [middle - 1, middle + 1]].set(LOCAL_BIAS)


def check_relative(relative: str, num_heads: int) -> None:
    """Raises ValueError unless these options of `SelectiveSelfAttention` are valid together."""
    if relative == "local" and num_heads < 2:
        raise ValueError(f"num_heads must be at least 2 for relative='local', got {num_heads}")


def check_attention(
    module: Any,
    inputs: Array,
    mask: Array | None,
    source: Array | F.AttentionCache | None = None,
    source_mask: Array | None = None,
) -> int:
    """Checks the options and arguments of a call; returns D, the total width of all heads."""
    check_fields(module, cap=0)
    check_positive(temperature=module.temperature)
    check_floating(inputs=inputs)
    check_that(inputs.ndim == 3, "inputs must be [B, N, D]", inputs)
    check_key_mask(mask, inputs.shape[:2])
    features = module.features or inputs.shape[-1]
    if features % module.num_heads:
        raise ValueError(f"num_heads must divide features={features}, got {module.num_heads}")
    check_selector(module.selector)
    check_relative(module.relative, module.num_heads)
    # Without a source the mask of the inputs is also that of the keys, and a cache contains its
    # mask.
    excludes_mask = source is None or isinstance(source, F.AttentionCache)
    if excludes_mask and source_mask is not None:
        kind = "without a source" if source is None else "for a source that is an AttentionCache"
        raise ValueError(f"source_mask must be None {kind}, got {jnp.shape(source_mask)}")
    if source is None:
        return features
    if module.causal or module.empty == "self" or module.relative != "none":
        raise ValueError(
            "source must be None with causal=True, empty='self' or a relative bias, got a source "
            f"with causal={module.causal}, empty={module.empty!r} and relative="
            f"{module.relative!r}: its positions are not positions of the inputs"
        )
    rows = inputs.shape[0]
    if isinstance(source, F.AttentionCache):
        shape = (rows, module.num_heads, source.mask.shape[1], features // module.num_heads)
        check_shape(shape, **{"source.key": source.key, "source.value": source.value})
        check_selector_key("source", source, module.selector)
    else:
        check_floating(source=source)
        fits = source.ndim == 3 and source.shape[0] == rows
        check_that(fits, f"source must be [{rows}, N, D]", source)
        check_key_mask(source_mask, source.shape[:2], "source_mask")
    return features


def check_selector_key(name: str, cache: F.AttentionCache, selector: Any) -> None:
    """Raises ValueError unless a cache has keys of a selector exactly where there is a selector."""
    if (cache.selector_key is None) != (selector == "none"):
        requirement, got = ("None", "an array") if selector == "none" else ("an array", "None")
        raise ValueError(
            f"{name}.selector_key must be {requirement} for selector={selector!r}, got {got}: "
            "create the cache by a method of this module"
        )


def zero_padding(dtype: Dtype | None, inputs: Array, mask: Array | None) -> Array:
    """Returns inputs [B, N, D] in `dtype`, the dtype of the products, with 0 at padding."""
    (inputs,) = nn.dtypes.promote_dtype(inputs, dtype=dtype)
    return real_alone(inputs, mask)


def heads_of(cache: F.AttentionCache) -> dict[str, Array]:
    """Returns the keys and values of a cache by the names of the projections that compute them."""
    heads = {"key": cache.key, "value": cache.value}
    return heads if cache.selector_key is None else heads | {"selector_key": cache.selector_key}
