"""Gated attention: a query that filters the features of every document token."""

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gatedjax._utils.choices import check_choice
from gatedjax.functional._attention import masked_softmax
from gatedjax.functional._checks import check_floating, check_mask, check_that, wide_dtype

Gating = Literal["multiply", "sum", "concat"]
"""The operations with which `gated_attention` joins a token and its view of the query."""


def gated_attention(
    document: Float[Array, "*B N D"],
    query: Float[Array, "*B Q D"] | Float[Array, "*B D"],
    query_mask: Bool[Array, "*B Q"] | None = None,
    *,
    gating: Gating = "multiply",
) -> tuple[Float[Array, "*B N E"], Float[Array, "*B N Q"]]:
    """Joins each document token with its attention-weighted view of the query, without parameters.

        a_i = softmax_j(d_i . q_j),  v_i = sum_j a_ij q_j
        x_i = d_i * v_i ("multiply"), d_i + v_i ("sum") or [d_i; v_i] ("concat", E = 2D)

        >>> document, query = jnp.ones((2, 5, 3)), jnp.ones((2, 4, 3))
        >>> outputs, attention = gated_attention(document, query)
        >>> outputs.shape, attention.shape
        ((2, 5, 3), (2, 5, 4))

    Args:
      document: d, a vector of width D for each of N document tokens.
      query: q, a vector for each of Q query tokens; with one axis less than document, a single
        vector v that all tokens share.
      query_mask: True at real query tokens; None means all. Values at padding, NaN included, have
        no effect. Must be None if the query is a single vector.
      gating: "multiply", "sum" or "concat", the operation that joins d and v in the equation.

    Returns:
      (x, a): the joined vectors x [*B, N, E] in the dtype of document, E = D unless "concat"; the
      attention a [*B, N, Q] over the query tokens, in float32 or wider. a is exactly 0 at padding,
      and 1 with Q = 1 if the query is a single vector. A row whose query is all padding has a = 0
      and v = 0, with a zero gradient.

    Memory: a, and its softmax kept for the gradient, are [*B, N, Q] float32: 16.8 MB each at
    B 32, N 2048, Q 64.

    Reference: Dhingra et al. 2017, "Gated-Attention Readers for Text Comprehension", eqs. 4 to 6;
    "sum" and "concat" are those of its section 4.3.
    """
    check_choice(Gating, gating=gating)
    check_floating(document=document, query=query)
    document, query = jnp.asarray(document), jnp.asarray(query)
    check_that(document.ndim > 1, "document must be [..., N, D]", document)
    lead, width = document.shape[:-2], document.shape[-1]
    one_vector = query.ndim == document.ndim - 1
    fits = query.ndim in (document.ndim, document.ndim - 1) and query.shape[-1] == width
    message = f"query must be {(*lead, 'Q', width)}, or {(*lead, width)} for one vector"
    check_that(fits and query.shape[: len(lead)] == lead, message, query)
    if one_vector:
        check_that(
            query_mask is None, "query_mask must be None for a query of one vector", query_mask
        )
        view = jnp.broadcast_to(jnp.expand_dims(query, -2), document.shape)
        # A shared vector is like a query of a single token, which gets all attention.
        attention = jnp.ones((*document.shape[:-1], 1), wide_dtype(document, query))
    else:
        view, attention = _views(document, query, query_mask)
    view = view.astype(document.dtype)
    if gating == "multiply":
        return document * view, attention
    if gating == "sum":
        return document + view, attention
    return jnp.concatenate([document, view], axis=-1), attention


def _views(document: Array, query: Array, mask: Array | None) -> tuple[Array, Array]:
    """Returns the view v [*B, N, D] of each document token, and the attention a [*B, N, Q]."""
    check_mask(mask, query.shape[:-1], "query_mask")
    if mask is not None:
        # Padding of the query is cleared, because its weight 0 would not hide a NaN.
        query = jnp.where(jnp.asarray(mask)[..., None], query, jnp.zeros_like(query))
        mask = jnp.expand_dims(jnp.asarray(mask), -2)
    wide = wide_dtype(document, query)
    scores = jnp.einsum("...nd,...qd->...nq", document, query, preferred_element_type=wide)
    attention = masked_softmax(scores, mask)
    view = jnp.einsum(
        "...nq,...qd->...nd", attention.astype(query.dtype), query, preferred_element_type=wide
    )
    return view, attention
