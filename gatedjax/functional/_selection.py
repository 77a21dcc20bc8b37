"""Selection vectors: each layer has its own attention over the words."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from gatedjax.functional._attention import masked_softmax
from gatedjax.functional._checks import check_floating, check_mask, check_that, wide_dtype
from gatedjax.functional._devices import run_core
from gatedjax.functional._recurrence import real_alone


def selection_vectors(
    words: Float[Array, "*B N D"],
    kernels: Float[Array, "L K A"],
    vectors: Float[Array, "L A"],
    mask: Bool[Array, "*B N"] | None = None,
    *,
    keys: Float[Array, "*B N K"] | None = None,
) -> tuple[Float[Array, "*B L D"], Float[Array, "*B L N"]]:
    """Computes the selection vectors of all layers in one product.

        m_ln = w_l . tanh(k_n W_l),  a_l = softmax_n(m_l),  s_l = sum_n a_ln b_n

        >>> words, kernels, vectors = jnp.ones((2, 5, 3)), jnp.ones((4, 3, 6)), jnp.ones((4, 6))
        >>> selected, attention = selection_vectors(words, kernels, vectors)
        >>> selected.shape, attention.shape
        ((2, 4, 3), (2, 4, 5))

    Args:
      words: b, a vector of width D for each of N words.
      kernels: W, a matrix from the K features of a key to A attention units for each of L layers;
        with a first axis of 1, one matrix for all layers.
      vectors: w, a vector of A attention units for each layer.
      mask: True at real words; None means all. Values at padding, NaN included, have no effect.
      keys: k, the inputs of the attention scores; None takes the words, so that K = D.

    Returns:
      (selected, attention): s, a vector of width D for each layer, in the dtype of words; and a,
      the attention of each layer over the N words, in float32 or wider. a is exactly 0 at padding;
      a row without words has a = 0 and s = 0, with a zero gradient.

    Reverse-mode derivatives of any order are supported, forward mode alone is not.

    Reference: Guo 2017, "A Deep Network with Visual Text Composition Behavior", eqs. 5 to 7.
    """
    optional = {} if keys is None else {"keys": keys}
    check_floating(words=words, kernels=kernels, vectors=vectors, **optional)
    words, kernels, vectors = jnp.asarray(words), jnp.asarray(kernels), jnp.asarray(vectors)
    keys = words if keys is None else jnp.asarray(keys)
    check_that(words.ndim > 1, "words must be [..., N, D]", words)
    message = f"keys must be [..., K] with the leading axes of words {words.shape}"
    check_that(keys.shape[:-1] == words.shape[:-1], message, keys)
    check_that(vectors.ndim == 2, "vectors must be [L, A]", vectors)
    layers, hidden = vectors.shape
    shape = layers, keys.shape[-1], hidden
    fits = kernels.shape in (shape, (1, *shape[1:]))
    check_that(fits, f"kernels must have shape {shape} (the first axis may be 1)", kernels)
    check_mask(mask, words.shape[:-1])
    words, keys = real_alone((words, keys), mask)
    lead = words.ndim - 2
    scores = run_core(_scores, (), (keys, kernels, vectors), (keys,), axes=lead)
    real = None if mask is None else jnp.expand_dims(mask, -2)
    attention = masked_softmax(jnp.swapaxes(scores, -1, -2), real)
    # All layers pool the same words, so the layers are rows of one product.
    dtype = wide_dtype(words, attention)
    selected = jnp.einsum("...ln,...nd->...ld", attention, words, preferred_element_type=dtype)
    return selected.astype(words.dtype), attention


def _scores(keys: Array, kernels: Array, vectors: Array) -> Float[Array, "*B N L"]:
    """Returns the scores m = w . tanh(k W) of N words in L layers, in float32 or wider."""
    kernels, vectors = kernels.astype(keys.dtype), vectors.astype(keys.dtype)
    rows = keys.reshape(-1, keys.shape[-1])
    if kernels.shape[0] == 1:
        # With a single matrix for all layers the hidden layer is computed once.
        hidden = jnp.tanh(rows @ kernels[0])
        scores = jnp.matmul(hidden, vectors.T, preferred_element_type=wide_dtype(keys))
    else:
        scores = _layer_scores(rows, kernels, vectors)
    return scores.reshape(*keys.shape[:-1], vectors.shape[0])


# The cost is three large products, one pass of tanh and one of its derivative. The derivative that
# JAX would form costs twice the products on a CPU, because XLA fuses the softmax into the
# derivative of tanh, which it then computes once per element and product, and because it makes
# arrays as large as the hidden layer of w and of the gradient of m. The barriers and products below
# prevent both.
@jax.custom_vjp
def _layer_scores(
    rows: Float[Array, "R K"], kernels: Float[Array, "L K A"], vectors: Float[Array, "L A"]
) -> Float[Array, "R L"]:
    return _forward(rows, kernels, vectors)[0]


def _forward(rows: Array, kernels: Array, vectors: Array) -> tuple[Array, tuple[Array, ...]]:
    """Returns the scores [R, L] of `_layer_scores`, and the arrays that `_backward` needs."""
    layers, hidden = vectors.shape
    # The kernels are transposed once, because the backward pass reads the same copy.
    flat = jnp.swapaxes(kernels, 0, 1).reshape(-1, layers * hidden)
    flat = lax.optimization_barrier(flat)
    activity = jnp.tanh(rows @ flat)
    # As a block-diagonal matrix w costs only L / K of the large product, and it is faster than the
    # reduction of the activity.
    eye = jnp.eye(layers, dtype=vectors.dtype)
    blocks = (vectors[:, :, None] * eye[:, None, :]).reshape(-1, layers)
    scores = jnp.matmul(activity, blocks, preferred_element_type=wide_dtype(rows))
    return scores, (rows, flat, vectors, activity)


def _backward(saved: tuple[Array, ...], change: Float[Array, "R L"]) -> tuple[Array, ...]:
    """Returns the gradients of the three arguments of `_layer_scores`, in their shapes."""
    rows, flat, vectors, activity = saved
    layers, hidden = vectors.shape
    change = lax.optimization_barrier(change)
    wide = change.dtype
    per_layer = activity.reshape(-1, layers, hidden).astype(wide)
    inner = change[:, :, None] * vectors.astype(wide)[None] * (1 - per_layer**2)
    inner = inner.astype(rows.dtype).reshape(activity.shape)
    inner = lax.optimization_barrier(inner)
    # The product pairs all layers with all layers; only the blocks (l, l) are used.
    pairs = jnp.matmul(change.T.astype(rows.dtype), activity, preferred_element_type=wide)
    vectors_change = jnp.einsum("lla->la", pairs.reshape(layers, layers, hidden))
    kernels_change = (rows.T @ inner).reshape(-1, layers, hidden)
    return (
        inner @ flat.T,
        jnp.swapaxes(kernels_change, 0, 1),
        vectors_change.astype(vectors.dtype),
    )


_layer_scores.defvjp(_forward, _backward)
