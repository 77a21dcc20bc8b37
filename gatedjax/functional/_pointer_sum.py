"""Pointer sum: a candidate's probability is the attention on all its occurrences."""

import functools
import math
from typing import Literal

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from gatedjax._utils.choices import check_choice
from gatedjax.functional._checks import (
    check_floating,
    check_mask,
    check_that,
    integers_of,
    listed_as_array,
    wide_dtype,
)
from gatedjax.functional._devices import on_rows

Aggregation = Literal["paper", "code"]
"""The normalisation of `pointer_sum`: the paper's equation, or the program of its authors."""


def pointer_sum(
    logits: Float[Array, "*B N"],
    occurrence: Bool[Array, "*B N K"],
    document_mask: Bool[Array, "*B N"] | None = None,
    candidate_mask: Bool[Array, "*B K"] | None = None,
    *,
    aggregation: Aggregation = "paper",
) -> Float[Array, "*B K"]:
    """Computes log-probabilities of candidates from the attention logits of the document.

        s = softmax_i(e_i),  score_c = sum_i s_i [i belongs to c]
        "paper": Pr(c) = score_c / sum_c' score_c'
        "code":  Pr(c) = score_c / sum_i s_i [i belongs to any candidate]

    Both are equal if each token belongs to at most one candidate. If a token belongs to two, such
    as a surname in two names, the probabilities of "code" sum to more than 1.

        >>> occurrence = jnp.array([[True, False], [False, True], [True, False], [False, False]])
        >>> print(jnp.exp(pointer_sum(jnp.zeros(4), occurrence)).round(2))
        [0.66999996 0.32999998]

    Args:
      logits: e, an attention logit for each of N document tokens, in nats.
      occurrence: True if token i belongs to candidate c, for K candidates.
      document_mask: True at real tokens; None means all. Logits at padding and at tokens of no
        candidate, NaN included, have no effect.
      candidate_mask: True at real candidates; None means all.
      aggregation: "paper" or "code", the normalisation in the equation above.

    Returns:
      log Pr(c) for each candidate, in float32 or wider. A candidate that is masked or does not
      occur has -inf and a zero gradient.

    Memory: [*B, N, K] floats, twice with gradients; `pointer_sum_indexed` takes lists instead.

    Reference: Dhingra et al. 2017, "Gated-Attention Readers for Text Comprehension", eqs. 7 to 9,
    after Kadlec et al. 2016; "code" is the computation in the authors' program.
    """
    logits = _check_logits(logits, aggregation)
    shape = jnp.shape(occurrence)
    fits = len(shape) == logits.ndim + 1 and shape[:-1] == logits.shape
    check_that(fits, f"occurrence must have shape {(*logits.shape, 'K')}", occurrence)
    check_mask(occurrence, shape, "occurrence")
    check_mask(document_mask, logits.shape, "document_mask")
    check_mask(candidate_mask, (*shape[:-2], shape[-1]), "candidate_mask")
    # [*B, K, N]: the sum of a candidate runs over its tokens, the last axis.
    member = jnp.swapaxes(jnp.asarray(occurrence), -1, -2)
    if document_mask is not None:
        member = member & jnp.expand_dims(jnp.asarray(document_mask), -2)
    if candidate_mask is not None:
        member = member & jnp.expand_dims(jnp.asarray(candidate_mask), -1)
    spread = jnp.broadcast_to(jnp.expand_dims(logits, -2), member.shape)
    scores, top = _scores(spread, member)
    if aggregation == "paper":
        return _over_candidates(scores)
    return _over_tokens(scores, logits, jnp.any(member, axis=-2), top)


def pointer_sum_indexed(
    logits: Float[Array, "*B N"],
    positions: Int[Array, "*B K P"],
    document_mask: Bool[Array, "*B N"] | None = None,
    candidate_mask: Bool[Array, "*B K"] | None = None,
    *,
    aggregation: Aggregation = "paper",
) -> Float[Array, "*B K"]:
    """Computes `pointer_sum` from the positions of each candidate instead of an occurrence mask.

        >>> positions = jnp.array([[0, 2], [1, -1]])
        >>> print(jnp.exp(pointer_sum_indexed(jnp.zeros(4), positions)).round(2))
        [0.66999996 0.32999998]

    Args:
      logits: e, an attention logit for each of N document tokens, in nats.
      positions: the tokens of each of K candidates, at most P and counted from 0, without
        repetition, in any order. Numbers outside 0 .. N-1, such as -1, are padding.
      document_mask: True at real tokens; None means all.
      candidate_mask: True at real candidates; None means all.
      aggregation: "paper" divides the scores of the candidates by their sum, "code" by the
        attention of all tokens that belong to any candidate (see `pointer_sum`).

    Returns:
      log Pr(c) for each candidate, in float32 or wider. A candidate that is masked or does not
      occur has -inf and a zero gradient.

    Memory: [*B, K, P] floats, twice with gradients.
    """
    logits = _check_logits(logits, aggregation)
    positions = integers_of("positions", listed_as_array(positions))
    lead, size = logits.shape[:-1], logits.shape[-1]
    fits = positions.ndim == logits.ndim + 1 and positions.shape[:-2] == lead
    check_that(fits, f"positions must have shape {(*lead, 'K', 'P')}", positions)
    check_mask(document_mask, logits.shape, "document_mask")
    check_mask(candidate_mask, positions.shape[:-1], "candidate_mask")
    member = (positions >= 0) & (positions < size)
    if candidate_mask is not None:
        member = member & jnp.expand_dims(jnp.asarray(candidate_mask), -1)
    if not size:  # nothing to gather from
        return jnp.full(positions.shape[:-1], -jnp.inf, logits.dtype)
    places = jnp.where(member, positions, 0).reshape(*lead, -1)

    def at_places(values: Array) -> Array:
        return jnp.take_along_axis(values, places, axis=-1).reshape(positions.shape)

    if document_mask is not None:
        member = member & at_places(jnp.broadcast_to(jnp.asarray(document_mask), logits.shape))
    scores, top = _scores(at_places(logits), member)
    if aggregation == "paper":
        return _over_candidates(scores)
    mark = functools.partial(_mark_tokens, shape=logits.shape)
    used = on_rows(mark, member, places, axes=len(lead))
    return _over_tokens(scores, logits, used, top)


def _check_logits(logits: Array, aggregation: str) -> Array:
    check_choice(Aggregation, aggregation=aggregation)
    check_floating(logits=logits)
    check_that(jnp.ndim(logits) > 0, "logits must be [..., N]", logits)
    return jnp.asarray(logits, wide_dtype(logits))


def _scores(
    values: Float[Array, "*B K P"], member: Bool[Array, "*B K P"]
) -> tuple[Float[Array, "*B K"], Float[Array, "*B"]]:
    """Returns the log-scores of K candidates [*B, K], and the largest logit of each text [*B]."""
    # A logit of -inf has probability 0, and -inf - -inf would be NaN.
    member = member & ~jnp.isneginf(values)
    values = jnp.where(member, values, 0)
    top = jnp.max(values, axis=(-2, -1), where=member, initial=-jnp.inf)
    top = lax.stop_gradient(jnp.where(jnp.isneginf(top), 0, top))
    # Subtracting first keeps the digits of small results when logits are large.
    values = values - top[..., None, None]
    return _log_sum_exp(values, member), top


def _log_sum_exp(values: Array, member: Array) -> Array:
    """Computes log-sum-exp where `member` is True; -inf, with a zero gradient, without members."""
    some = jnp.any(member, axis=-1)
    # The inner `where` keeps other values out of the derivative, the outer out of the sum.
    values = jnp.where(member, values, 0)
    top = jnp.max(values, axis=-1, where=member, initial=-jnp.inf)
    top = lax.stop_gradient(jnp.where(some, top, 0))
    terms = jnp.where(member, jnp.exp(jnp.where(member, values - top[..., None], 0)), 0)
    total = jnp.where(some, jnp.sum(terms, axis=-1), 1)
    return jnp.where(some, top + jnp.log(total), -jnp.inf)


def _over_candidates(scores: Float[Array, "*B K"]) -> Float[Array, "*B K"]:
    occurs = ~jnp.isneginf(scores)  # the rule "paper"
    return _less(scores, _log_sum_exp(scores, occurs))


def _over_tokens(scores: Array, logits: Array, used: Array, top: Array) -> Float[Array, "*B K"]:
    used = used & ~jnp.isneginf(logits)  # the rule "code"
    # The same shift as in `_scores`, so that it cancels in the quotient.
    centred = jnp.where(used, logits, 0) - top[..., None]
    return _less(scores, _log_sum_exp(centred, used))


def _less(scores: Float[Array, "*B K"], total: Float[Array, "*B"]) -> Float[Array, "*B K"]:
    occurs = ~jnp.isneginf(scores)
    # A row without a candidate has the total -inf, and -inf - -inf would be NaN, also in
    # derivatives.
    total = jnp.where(jnp.isneginf(total), 0, total)[..., None]
    return jnp.where(occurs, jnp.where(occurs, scores, 0) - total, -jnp.inf)


def _mark_tokens(member: Array, places: Array, shape: tuple[int, ...]) -> Bool[Array, "*B N"]:
    rows = math.prod(shape[:-1])
    flags = member.reshape(rows, -1).astype(jnp.int32)
    marks = jnp.zeros((rows, shape[-1]), jnp.int32)
    # The maximum, because padding points at token 0 and must not clear its mark.
    marks = marks.at[jnp.arange(rows)[:, None], places.reshape(rows, -1)].max(flags)
    return (marks > 0).reshape(shape)
