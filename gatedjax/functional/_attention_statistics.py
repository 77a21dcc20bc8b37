"""Where attention goes: entropy, distance, its largest weights, and its mass by class of word."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from gatedjax.functional._blocks import block_positions, join_queries, split_queries
from gatedjax.functional._checks import (
    check_choice,
    check_floating,
    check_integers,
    check_same_shape,
    check_shape,
    check_that,
    wide_dtype,
    wide_integers,
)
from gatedjax.functional._devices import run_core, vary_together
from gatedjax.functional._dot_product import scaled_dot_product
from gatedjax.functional._export import exportable
from gatedjax.functional._pairs import both_allow, causal_pairs, check_key_mask, pair_mask_of
from gatedjax.functional._relaxations import threshold_gates
from gatedjax.functional._selective import Empty, selective_weights
from gatedjax.functional._softmax import masked_softmax
from gatedjax.functional._types import Tree


@exportable
class AttentionStatistics(NamedTuple):
    """What the weights W of self-attention are like; in float32 or wider, 0 at padding.

    Attributes:
      entropy: of every query, -sum_j W_ij log W_ij, in nats.
      distance: of every query, sum_j W_ij |i - j|.
      top: of every query, the sum of its largest weights.
      mass: of every query, sum_j W_ij: 1, or less where it selected nothing.
      received: of every key, what all real queries give to it.
      by_distance: the mass of all real queries at every distance |i - j| = 0 .. N-1, both sides.
      by_class: the mass of all real queries on keys of every class; None without classes.
    """

    entropy: Float[Array, "B M N"]
    distance: Float[Array, "B M N"]
    top: Float[Array, "B M N"]
    mass: Float[Array, "B M N"]
    received: Float[Array, "B M N"]
    by_distance: Float[Array, "B M N"]
    by_class: Float[Array, "B M C"] | None = None


class _Options(NamedTuple):
    """What is known while tracing, see `streamed_attention_statistics`."""

    top: int
    block: int
    num_classes: int = 0
    causal: bool = False
    empty: Empty = "zero"
    renormalise: bool = True


def attention_statistics(
    weights: Float[Array, "B M N N"],
    mask: Bool[Array, "B N"] | None = None,
    *,
    classes: Int[Array, "B N"] | None = None,
    num_classes: int = 0,
    top: int = 1,
) -> AttentionStatistics:
    """Statistics of given attention weights.

    Args:
      weights: W, queries before keys; what stands at padding, NaN included, has no effect.
      mask: True at real tokens.
      classes: of every token, from 0 to num_classes - 1, such as its part of speech; a token of
        another class counts in none.
      num_classes: C.
      top: how many weights of a query `AttentionStatistics.top` sums, the largest ones.

    Reference: distances and classes as Geng et al. 2020 (SSAN), figures 2 and 4 and table 7.
    """
    check_floating(weights=weights)
    weights = jnp.asarray(weights)
    fits = weights.ndim == 4 and weights.shape[2] == weights.shape[3]
    check_that(fits, "weights must be [B, M, N, N]", weights)
    real, classes = check_statistics(
        (weights.shape[0], weights.shape[3]), mask, classes, num_classes, top
    )
    options = _Options(top, max(weights.shape[3], 1), num_classes)
    return run_core(_of_weights, (options,), (weights, real, classes), (weights,))


def streamed_attention_statistics(
    query: Float[Array, "B M N H"],
    key: Float[Array, "B M N H"],
    mask: Bool[Array, "B N"] | None = None,
    *,
    pair_mask: Bool[Array, "B M N N"] | None = None,
    causal: bool = False,
    selector_query: Float[Array, "B M N H2"] | None = None,
    selector_key: Float[Array, "B M N H2"] | None = None,
    empty: Empty = "zero",
    renormalise: bool = True,
    classes: Int[Array, "B N"] | None = None,
    num_classes: int = 0,
    top: int = 1,
    block: int = 128,
) -> AttentionStatistics:
    """`attention_statistics` of queries and keys, a block of queries at a time.

    No array of [B, M, N, N] is made, for the gradient neither: memory grows with block times N.

    Args:
      query, key: of every head.
      mask: True at real tokens.
      pair_mask, causal: as for `selective_attention`.
      selector_query, selector_key: of every head, or of one for all; a key is selected where their
        product is positive. None is standard attention.
      empty, renormalise: see `selective_weights`.
      classes, num_classes, top: see `attention_statistics`.
      block: queries at a time.
    """
    check_floating(query=query, key=key)
    check_same_shape(query=query, key=key)
    query, key = jnp.asarray(query), jnp.asarray(key)
    check_that(query.ndim == 4, "query and key must be [B, M, N, H]", query)
    rows, heads, size, _ = query.shape
    if (selector_query is None) != (selector_key is None):
        raise ValueError("selector_query and selector_key must be given together")
    selector: tuple[Array, Array] | None = None
    if selector_query is not None and selector_key is not None:
        check_floating(selector_query=selector_query, selector_key=selector_key)
        check_same_shape(selector_query=selector_query, selector_key=selector_key)
        selector = jnp.asarray(selector_query), jnp.asarray(selector_key)
        fits = selector[0].ndim == 4 and selector[0].shape[:3] in (
            (rows, heads, size),
            (rows, 1, size),
        )
        check_that(fits, f"selector_query must be [{rows}, {heads} or 1, {size}, H]", selector[0])
    check_choice(Empty, empty=empty)
    real, classes = check_statistics((rows, size), mask, classes, num_classes, top, block)
    pairs = pair_mask_of(pair_mask, False, (rows, heads, size, size))
    options = _Options(top, block, num_classes, causal, empty, renormalise)
    arguments = (query, key, selector, real, pairs, classes)
    return run_core(_of_heads, (options,), arguments, (query,))


def check_statistics(
    shape: tuple[int, ...],
    mask: Array | None,
    classes: Array | None,
    num_classes: int,
    top: int,
    block: int = 1,
) -> tuple[Array | None, Array | None]:
    """Checks these arguments; returns the mask with all its axes, and the classes."""
    check_key_mask(mask, shape)
    if block < 1:
        raise ValueError(f"block must be at least 1, got {block}")
    if top < 1:
        raise ValueError(f"top must be at least 1, got {top}")
    if (classes is None) != (num_classes == 0) or num_classes < 0:
        raise ValueError(
            "classes and num_classes must be given together, got "
            f"num_classes {num_classes} {'without' if classes is None else 'with'} classes"
        )
    if classes is not None:
        check_integers(classes=classes)
        check_shape(shape, classes=classes)
        classes = wide_integers(classes)
    return None if mask is None else jnp.broadcast_to(mask, shape), classes


def _of_weights(
    options: _Options, weights: Array, real: Array | None, classes: Array | None
) -> AttentionStatistics:
    return statistics_in_blocks(
        lambda given, _: given,
        weights,
        real,
        classes,
        options.top,
        options.block,
        options.num_classes,
    )


def _of_heads(
    options: _Options,
    query: Array,
    key: Array,
    selector: tuple[Array, Array] | None,
    real: Array | None,
    pairs: Array | None,
    classes: Array | None,
) -> AttentionStatistics:
    size = key.shape[2]
    if pairs is not None:
        pairs = jnp.broadcast_to(pairs, (*pairs.shape[:2], size, pairs.shape[3]))
    keys = None if real is None else real[:, None, None, :]

    def weigh(given: Tree, positions: Array) -> Array:
        block_query, block_selector, block_pairs = given
        scores = scaled_dot_product(block_query, key)
        allowed = both_allow(keys, block_pairs)
        if options.causal:
            allowed = both_allow(allowed, causal_pairs(positions, size)[None, None])
        if selector is None:
            return masked_softmax(scores, allowed)
        logits = jnp.einsum(
            "bmqd,bmkd->bmqk", block_selector, selector[1], preferred_element_type=scores.dtype
        )
        return selective_weights(
            scores,
            threshold_gates(logits),
            allowed,
            hard=True,
            empty=options.empty,
            renormalise=options.renormalise,
            positions=positions,
        )

    if real is not None:  # what stands at padding, NaN included
        column = real[:, None, :, None]
        query, key = (jnp.where(column, x, jnp.zeros_like(x)) for x in (query, key))
        if selector is not None:
            clean = [jnp.where(column, x, jnp.zeros_like(x)) for x in selector]
            selector = clean[0], clean[1]
    given = (query, None if selector is None else selector[0], pairs)
    return statistics_in_blocks(
        weigh, given, real, classes, options.top, options.block, options.num_classes
    )


def statistics_in_blocks(
    weigh: Callable[[Tree, Array], Array],
    of_queries: Tree,
    real: Array | None,
    classes: Array | None,
    top: int,
    block: int,
    num_classes: int,
) -> AttentionStatistics:
    """The statistics of weights that are made a block of queries at a time.

    Args:
      weigh: (arrays of the queries of a block, their positions) to W [B, M, block, N].
      of_queries: arrays [B, M, N, ...], one entry per query.
      real: True at real tokens [B, N]; None means all.
      classes, top, num_classes: see `attention_statistics`.
      block: queries at a time.
    """
    leaf = jax.tree.leaves(of_queries)[0]
    rows, heads, size = leaf.shape[:3]
    if size == 0:
        none = jnp.zeros((rows, heads, 0))
        of_class = None if classes is None else jnp.zeros((rows, heads, num_classes))
        return AttentionStatistics(none, none, none, none, none, none, of_class)
    if real is None:
        real = jnp.ones((rows, size), bool)

    @jax.checkpoint
    def one(sums: Tree, step: Tree) -> Tree:
        given, positions, real_queries = step
        weights = weigh(given, positions)
        weights = weights.astype(wide_dtype(weights))
        both = real_queries[:, 0, :, None] & real[:, None, :]
        weights = jnp.where(both[:, None], weights, 0)
        of_query, of_key = _of_block(weights, positions, top)
        return jax.tree.map(jnp.add, sums, of_key), of_query

    steps = (
        jax.tree.map(functools.partial(split_queries, block=block), of_queries),
        block_positions(size, block),
        split_queries(real[:, None, :], block),
    )
    first = jax.tree.map(lambda x: x[0], steps)
    shapes = jax.eval_shape(lambda s: one((0.0, 0.0), s)[0], first)
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    start, _ = vary_together((zeros, leaf))
    (received, by_distance), of_query = lax.scan(one, start, steps)
    entropy, distance, largest, mass = (join_queries(x, size) for x in of_query)
    by_class = None
    if classes is not None:
        member = jax.nn.one_hot(classes, num_classes, dtype=received.dtype)
        by_class = jnp.einsum("bmn,bnc->bmc", received, member)
    return AttentionStatistics(entropy, distance, largest, mass, received, by_distance, by_class)


def _of_block(weights: Array, positions: Array, top: int) -> tuple[Tree, Tree]:
    """(entropy, distance, top, mass) of the queries of a block, and (received, by_distance)."""
    size = weights.shape[-1]
    keys = jnp.arange(size)
    apart = jnp.abs(positions[:, None] - keys[None, :]).astype(weights.dtype)
    logs = jnp.log(jnp.where(weights > 0, weights, 1))
    mass = jnp.sum(weights, axis=-1)
    of_query = (
        -jnp.sum(weights * logs, axis=-1),
        jnp.sum(weights * apart[None, None], axis=-1),
        _sum_of_largest(weights, mass, top),
        mass,
    )
    # W_i,i+r and, for r > 0, W_i,i-r: a gather has no collisions, where a sum by distance had some
    at_distance = jnp.zeros_like(weights)
    for sign in (1, -1):
        place = positions[:, None] + sign * keys[None, :]
        inside = (place >= 0) & (place < size) & ((keys > 0)[None, :] | (sign > 0))
        index = jnp.broadcast_to(jnp.clip(place, 0, size - 1)[None, None], weights.shape)
        found = jnp.take_along_axis(weights, index, axis=-1)
        at_distance = at_distance + jnp.where(inside[None, None], found, 0)
    return of_query, (jnp.sum(weights, axis=2), jnp.sum(at_distance, axis=2))


def _sum_of_largest(weights: Array, mass: Array, top: int) -> Array:
    """Returns the sum of the `top` largest weights of every query, which is `mass` if all count."""
    size = weights.shape[-1]
    if not isinstance(size, int):
        # `jax.export` has left the size open: with zeros behind them there are as many as `top`
        weights = jnp.pad(weights, [(0, 0)] * (weights.ndim - 1) + [(0, top)])
    elif top >= size:
        return mass
    return jnp.sum(lax.top_k(weights, top)[0], axis=-1)
