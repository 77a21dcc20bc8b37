"""Selection vectors: an attention of its own for every layer, over the same words."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gatedjax.functional._checks import check_floating, check_mask, wide_dtype
from gatedjax.functional._softmax import masked_softmax


def selection_vectors(
    words: Float[Array, "*B N D"],
    kernels: Float[Array, "L K A"],
    vectors: Float[Array, "L A"],
    mask: Bool[Array, "*B N"] | None = None,
    *,
    keys: Float[Array, "*B N K"] | None = None,
) -> tuple[Float[Array, "*B L D"], Float[Array, "*B L N"]]:
    """What each layer selects from the words, all layers in one product.

        m_ln = w_l . tanh(k_n W_l),  a_l = softmax_n(m_l),  s_l = sum_n a_ln b_n

    Args:
      words: b.
      kernels: W, one matrix per layer; with a first axis of 1, one matrix for all layers.
      vectors: w.
      mask: True at real words; None means all. What stands elsewhere, NaN included, has no effect.
      keys: k, what the attention looks at; None takes the words, so that K = D.

    Returns:
      (selected, attention): s in the dtype of words, a in float32 or wider. a is exactly 0 at
      padding; a row without words has a = 0 and s = 0, with a zero gradient.

    Raises:
      TypeError: if an array is not floating point, or mask is not bool.
      ValueError: if the shapes do not fit.

    Reference: Guo 2017, "A Deep Network with Visual Text Composition Behavior", eqs. 5 to 7.
    """
    given = {} if keys is None else {"keys": keys}
    check_floating(words=words, kernels=kernels, vectors=vectors, **given)
    words, kernels, vectors = jnp.asarray(words), jnp.asarray(kernels), jnp.asarray(vectors)
    keys = words if keys is None else jnp.asarray(keys)
    if words.ndim < 2:
        raise ValueError(f"words must be [..., N, D], got {words.shape}")
    if keys.shape[:-1] != words.shape[:-1]:
        raise ValueError(
            f"keys must be [..., K] with the leading axes of words {words.shape}, got {keys.shape}"
        )
    if vectors.ndim != 2:
        raise ValueError(f"vectors must be [L, A], got {vectors.shape}")
    layers, hidden = vectors.shape
    if kernels.shape not in {(n, keys.shape[-1], hidden) for n in (1, layers)}:
        raise ValueError(
            f"kernels must have shape {(layers, keys.shape[-1], hidden)} (the first axis may be 1) "
            f"for vectors {vectors.shape}, got {kernels.shape}"
        )
    check_mask(mask, words.shape[:-1])
    if mask is not None:
        words, keys = (jnp.where(mask[..., None], x, jnp.zeros_like(x)) for x in (words, keys))
        mask = jnp.expand_dims(mask, -2)
    scores = _scores(keys, kernels, vectors)
    attention = masked_softmax(jnp.swapaxes(scores, -1, -2), mask)
    # every layer pools the same words: layers are rows of one product
    dtype = wide_dtype(words, attention)
    selected = jnp.einsum("...ln,...nd->...ld", attention, words, preferred_element_type=dtype)
    return selected.astype(words.dtype), attention


def _scores(keys: Array, kernels: Array, vectors: Array) -> Float[Array, "*B N L"]:
    """m in float32 or wider."""
    dtype = wide_dtype(keys, vectors)
    hidden = jnp.tanh(jnp.einsum("...nk,lka->...nla", keys, kernels))
    if kernels.shape[0] == 1:
        shared = hidden[..., 0, :]
        return jnp.einsum("...na,la->...nl", shared, vectors, preferred_element_type=dtype)
    wide = vectors.astype(dtype).reshape((1,) * (keys.ndim - 1) + vectors.shape)
    # a product and a sum, not an einsum: XLA makes one pass of them, tanh included
    return jnp.sum(hidden.astype(dtype) * wide, axis=-1)
