"""Attention in which each query attends to the keys that a selector has chosen for it."""

import functools
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gatedjax._utils.choices import check_choice
from gatedjax.functional._attention import (
    masked_softmax,
    softmax_of_open,
    softmax_of_relaxed,
    softmax_where,
)
from gatedjax.functional._checks import (
    check_broadcasts,
    check_floating,
    check_mask,
    check_shape,
    check_that,
    check_values,
    wide_dtype,
)
from gatedjax.functional._dot_product import scaled_dot_product, weighted_values
from gatedjax.functional._pairs import both_allow, check_key_mask, pair_mask_of

Empty = Literal["zero", "self", "all"]


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3))
def _hard_weights(scores: Array, gates: Array, cap: float, eps: float) -> Array:
    weights, _, total = _selected_parts(scores, gates, eps)
    return weights / total


@_hard_weights.defjvp
def _hard_weights_jvp(cap, eps, primals, tangents):
    (scores, gates), (d_scores, d_gates) = primals, tangents
    weights, top, total = _selected_parts(scores, gates, eps)
    weights = weights / total
    # A row without a selected key is shifted by its largest score, so that the derivatives of its
    # closed gates stay bounded; a row of padding has no score and no shift.
    any_key = jnp.max(scores, axis=-1, keepdims=True)
    shift = jnp.where(jnp.isneginf(top), jnp.where(jnp.isneginf(any_key), 0, any_key), top)
    # The derivative of a weight by the gate of its key, at a constant sum.
    ratios = jnp.exp(jnp.minimum(scores - shift, cap)) / total
    # `direct` is the change at a constant sum. The second term is the change of the sum.
    direct = weights * d_scores + ratios * d_gates
    return weights, direct - weights * jnp.sum(direct, axis=-1, keepdims=True)


def _selected_parts(scores: Array, gates: Array, eps: float) -> tuple[Array, Array, Array]:
    """Returns exp(e - top) of the selected keys, their largest score `top`, and the sum."""
    # A gate or score of NaN reaches the weights.
    left_out = jnp.where(jnp.isnan(scores + gates), jnp.nan, -jnp.inf)
    among = jnp.where(gates > 0, scores, left_out)
    top = jnp.max(among, axis=-1, keepdims=True)
    none = jnp.isneginf(top)
    weights = jnp.exp(among - jnp.where(none, 0, top))
    # With a selected key the sum is at least 1; without selected keys 1 bounds the derivative.
    return weights, top, jnp.where(none, 1, jnp.sum(weights, axis=-1, keepdims=True)) + eps


def selective_weights(
    scores: Float[Array, "*B Q N"],
    gates: Float[Array, "*B Q N"],
    mask: Bool[Array, "*B 1 N"] | None = None,
    *,
    hard: bool = False,
    empty: Empty = "zero",
    cap: float = 10.0,
    eps: float = 1e-6,
    renormalise: bool = True,
    positions: Int[Array, " Q"] | None = None,
) -> Float[Array, "*B Q N"]:
    """Computes attention weights over the keys that each query has selected.

        W_ij = A_ij exp(e_ij) / sum_k A_ik exp(e_ik)

        >>> gates = jnp.array([[1.0, 0.0, 1.0]])
        >>> print(selective_weights(jnp.zeros((1, 3)), gates))
        [[0.5 0.  0.5]]

    With `hard`, for A in {0, 1} under a straight-through gradient, m_i is the largest score among
    the selected keys (among all keys if there is none) and

        w_ij = A_ij exp(min(e_ij - m_i, cap)),  W_ij = w_ij / (sum_k w_ik + eps)

    so that no score overflows and the gate of an unselected key still has the gradient
    dL/dA_ij = exp(min(e_ij - m_i, cap)) (g_ij - sum_k g_ik W_ik) / (sum_k w_ik + eps), g = dL/dW.

    Args:
      scores: e, an attention score for each of Q queries and N keys, in nats.
      gates: A >= 0, 0 for a key that the query has not selected; any axis may be 1 to broadcast.
        Under `jit`, where no value is known, a negative gate counts as closed without `hard`.
        Logarithms of gates are for `relaxed_gated_softmax`.
      mask: True at real keys, same rank as scores (an axis may be 1 to broadcast). Values at
        padding, NaN included, have no effect.
      hard: True takes the second form above, for gates in {0, 1}; False takes the first, for gates
        in [0, 1], without cap and eps.
      empty: the rule for a query without selected keys. It attends to no key ("zero"), to the key
        at its own position ("self", if real), or to all keys ("all").
      cap: bounds the straight-through gradient of unselected keys by exp(cap); no effect on values.
        Opening a key changes W by at most 1: cap 0 keeps gradients of that size, cap 10 allows
        22,000.
      eps: a constant that is added to the sum of the hard form.
      renormalise: False multiplies softmax(e) by the gates, without a second normalisation.
      positions: positions of the queries among the keys, for "self"; None is 0 .. Q-1.

    Returns:
      Weights W in the dtype of scores, computed in float32 or wider. 0 at padding; a row without
      real keys is 0, with zero gradients.

    Raises:
      ValueError: also if a gate that is known is negative, or with hard not 0 or 1, or empty is
        "self" without positions for as many queries as keys.

    Reference: Geng et al. 2020 (SSAN), eqs. 2 to 5.
    Deviations: scores are shifted by their maximum, which the paper's form needs to be finite; the
      gradient of a row without a selected key is that of a sum of 1, not of 0 + eps.
    """
    check_floating(scores=scores, gates=gates)
    scores, gates = jnp.asarray(scores), jnp.asarray(gates)
    check_that(scores.ndim > 1, "scores must be [..., Q, N]", scores)
    check_broadcasts(scores.shape, gates=gates)
    check_mask(mask, scores.shape)
    check_choice(Empty, empty=empty)
    check_shape(scores.shape[-2:-1], positions=positions)
    fits = empty != "self" or positions is not None or scores.shape[-1] == scores.shape[-2]
    check_that(fits, "scores must be [..., N, N] for empty='self' without positions", scores)
    for name, value in {"cap": cap, "eps": eps}.items():
        if not value >= 0:
            raise ValueError(f"{name} must not be negative, got {value}")
    others = "`relaxed_gated_softmax` or `relaxed_selective_attention`"
    requirement = f"not be negative; logarithms of gates are for {others}"
    check_values("gates", gates, mask, lambda g: g < 0, requirement)
    if hard:
        requirement = "be 0 or 1; soft gates are for hard=False"
        check_values("gates", gates, mask, lambda g: (g != 0) & (g != 1), requirement)
    dtype = wide_dtype(scores, gates)
    e, a = scores.astype(dtype), jnp.broadcast_to(gates.astype(dtype), scores.shape)
    keep = None if mask is None else jnp.broadcast_to(mask, scores.shape)
    if keep is not None:
        # The hard form has no mask: a score of -inf stands for padding.
        e, a = jnp.where(keep, e, -jnp.inf), jnp.where(keep, a, 0)
    if empty != "zero":
        a = _fill_closed(a, keep, empty, positions)
    # The maximum over no keys is an error.
    if scores.shape[-1] == 0:
        weights = a
    elif not renormalise:
        weights = softmax_where(e, keep) * a
    elif hard:
        weights = _hard_weights(e, a, cap, eps)
    else:
        weights = softmax_of_open(e, a, keep)
    return weights.astype(scores.dtype)


def _fill_closed(gates: Array, keep: Array | None, empty: Empty, positions: Array | None) -> Array:
    """Opens gates [..., Q, N] in rows that are all closed, by the rule `empty`."""
    none = jnp.all(gates <= 0, axis=-1, keepdims=True)  # False in a row with a gate of NaN
    if empty == "self":
        if positions is None:
            positions = jnp.arange(gates.shape[-2])
        itself = positions[:, None] == jnp.arange(gates.shape[-1])[None, :]
        none = none & itself.reshape((1,) * (gates.ndim - 2) + itself.shape)
    opens = jnp.broadcast_to(none, gates.shape)
    if keep is not None:
        opens = opens & keep
    return jnp.where(opens, jnp.ones_like(gates), gates)


def selective_attention(
    query: Float[Array, "*B M Q H"],
    key: Float[Array, "*B M N H"],
    value: Float[Array, "*B M N D"],
    gates: Float[Array, "*B M Q N"],
    mask: Bool[Array, "*B N"] | None = None,
    *,
    pair_mask: Bool[Array, "*B M Q N"] | None = None,
    causal: bool = False,
    hard: bool = False,
    empty: Empty = "zero",
    cap: float = 10.0,
    eps: float = 1e-6,
    renormalise: bool = True,
) -> tuple[Float[Array, "*B M Q D"], Float[Array, "*B M Q N"]]:
    """Computes dot-product attention over the keys that each query has selected.

        e = query key^T / sqrt(H),  W_ij = A_ij exp(e_ij) / sum_k A_ik exp(e_ik),  o = W value

    With all gates 1 it is standard attention (to eps); see `selective_weights` for the stable
    forms and the gradients.

        >>> query, key, value = jnp.ones((1, 2, 4)), jnp.ones((1, 3, 4)), jnp.ones((1, 3, 5))
        >>> gates = jnp.array([[[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]])
        >>> output, weights = selective_attention(query, key, value, gates)
        >>> print(output.shape, weights[0])
        (1, 2, 5) [[0.5 0.5 0. ]
         [0.  0.  1. ]]

    Args:
      query: a vector of width H for each of Q queries, with an optional axis of M heads at axis -3.
      key, value: vectors of width H and D for each of N keys, with the same leading axes.
      gates: A >= 0, 0 for a key that the query has not selected, from `gumbel_sigmoid`,
        `threshold_gates` or another source; an axis may be 1, such as the axis of heads if they
        share a selection. Logarithms of gates are for `relaxed_selective_attention`; under `jit`
        see `selective_weights`.
      mask: True at real keys, with or without the axis of heads; None means all.
      pair_mask: True where a query may see a key, with or without the axis of heads (an axis may
        be 1). Unlike padding, keys that may not be seen must be finite.
      causal: True excludes keys after the query; requires as many queries as keys.
      hard, empty, cap, eps, renormalise: as in `selective_weights`.

    Returns:
      (output, weights): o in the dtype of value, W in float32 or wider. A query without allowed or
      selected keys (with empty="zero") has W = 0 and o = 0.

    Reference: Geng et al. 2020, "How Does Selective Mechanism Improve Self-Attention Networks?",
      eqs. 2 to 5.
    Deviations: the scale is the width of a head; see `selective_weights`.
    """
    scores, key_mask, value = attention_scores(query, key, value, mask)
    allowed = both_allow(key_mask, pair_mask_of(pair_mask, causal, scores.shape))
    options = {"hard": hard, "empty": empty, "cap": cap, "eps": eps, "renormalise": renormalise}
    weights = selective_weights(scores, gates, allowed, **options)  # type: ignore[arg-type]
    return weighted_values(weights, value), weights


def relaxed_selective_attention(
    query: Float[Array, "*B M Q H"],
    key: Float[Array, "*B M N H"],
    value: Float[Array, "*B M N D"],
    log_gates: Float[Array, "*B M Q N"],
    mask: Bool[Array, "*B N"] | None = None,
    *,
    pair_mask: Bool[Array, "*B M Q N"] | None = None,
    causal: bool = False,
) -> tuple[Float[Array, "*B M Q D"], Float[Array, "*B M Q N"]]:
    """Computes dot-product attention under soft gates that are given as logarithms.

        e = query key^T / sqrt(H),  W = softmax(e + log A),  o = W value

        >>> query, key, value = jnp.ones((1, 2, 4)), jnp.ones((1, 3, 4)), jnp.ones((1, 3, 5))
        >>> log_gates = jnp.log(jnp.array([[[1.0, 0.5, 0.5]]]))
        >>> output, weights = relaxed_selective_attention(query, key, value, log_gates)
        >>> print(weights[0, 0])
        [0.5  0.25 0.25]

    Args:
      query, key, value, mask, pair_mask, causal: as in `selective_attention`.
      log_gates: log A <= 0 (see `log_gumbel_sigmoid`); an axis may be 1 to broadcast. Gates
        themselves are for `selective_attention`; under `jit` see `relaxed_gated_softmax`.

    Returns:
      (output, weights): o in the dtype of value, W in float32 or wider. However small the gates of
      a query are, its weights sum to 1.

    Raises:
      ValueError: also if a logarithm that is known is positive.

    Reference: Geng et al. 2020 (SSAN), eq. 5.
    """
    check_floating(log_gates=log_gates)
    scores, key_mask, value = attention_scores(query, key, value, mask)
    check_broadcasts(scores.shape, log_gates=log_gates)
    log_gates = jnp.broadcast_to(log_gates, scores.shape)
    allowed = both_allow(key_mask, pair_mask_of(pair_mask, causal, scores.shape))
    requirement = "not be positive; gates themselves are for `selective_attention`"
    check_values("log_gates", log_gates, allowed, lambda g: g > 0, requirement)
    weights = softmax_of_relaxed(scores, log_gates, allowed)
    return weighted_values(weights, value), weights


def attention_scores(
    query: Array, key: Array, value: Array, mask: Array | None
) -> tuple[Array, Array | None, Array]:
    """Returns the checked scores q k^T / sqrt(H), mask [..., 1, N] and values, 0 at padding."""
    check_floating(query=query, key=key, value=value)
    query, key, value = jnp.asarray(query), jnp.asarray(key), jnp.asarray(value)
    fits = query.ndim > 1 and query.ndim == key.ndim == value.ndim
    message = "query, key and value must be [..., N, H] of one rank"
    check_that(fits, message, query, key, value)
    message = f"value must have the leading axes of key {key.shape[:-1]}"
    check_that(value.shape[:-1] == key.shape[:-1], message, value)
    if mask is not None:
        mask = _key_mask(mask, key.shape)
        column = jnp.swapaxes(mask, -1, -2)
        key, value = (jnp.where(column, x, jnp.zeros_like(x)) for x in (key, value))
    return scaled_dot_product(query, key), mask, value


def _key_mask(mask: Array, shape: tuple[int, ...]) -> Array:
    mask = jnp.asarray(mask)
    if mask.ndim == len(shape) - 2 and mask.ndim > 0:
        mask = mask[..., None, :]
    check_key_mask(mask, shape[:-1])
    return mask[..., None, :]


def source_to_token(
    states: Float[Array, "*B N D"],
    logits: Float[Array, "*B N D"],
    mask: Bool[Array, "*B N"] | None = None,
) -> Float[Array, "*B D"]:
    """Pools tokens with a separate softmax per feature.

        s_d = sum_n softmax_n(l_nd) h_nd

        >>> states = jnp.array([[1.0, 2.0], [3.0, 4.0]])
        >>> print(source_to_token(states, jnp.zeros((2, 2))))
        [2. 3.]

    Args:
      states: h, a vector of D features for each of N tokens.
      logits: l, an attention logit for each feature of each token, in nats.
      mask: True at real tokens; values at padding, NaN included, have no effect.

    Returns:
      s in the dtype of states, a vector of D features per text; 0 for a text without tokens.

    Reference: Shen et al. 2018 (DiSAN), multi-dimensional source2token attention, as used by
      Geng et al. 2020 for natural language inference.
    """
    check_floating(states=states, logits=logits)
    states, logits = jnp.asarray(states), jnp.asarray(logits)
    fits = states.ndim > 1 and logits.shape == states.shape
    check_that(fits, "states and logits must both be [..., N, D]", states, logits)
    check_mask(mask, states.shape[:-1])
    wide = wide_dtype(states, logits)
    column = None
    if mask is not None:
        column = jnp.broadcast_to(mask, states.shape[:-1])[..., None]
        states = jnp.where(column, states, jnp.zeros_like(states))
    weights = masked_softmax(logits.astype(wide), column, axis=-2)
    return jnp.sum(weights * states.astype(wide), axis=-2).astype(states.dtype)
