"""Selective attention without the keys that nobody selected: for inference, in static shapes."""

import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from gatedjax.functional._blocks import block_positions, join_queries, split_queries
from gatedjax.functional._checks import (
    check_choice,
    check_floating,
    check_mask,
    check_not_negative,
    check_that,
    wide_dtype,
)
from gatedjax.functional._compact import _running_count, _slots_of
from gatedjax.functional._devices import run_core
from gatedjax.functional._dot_product import scaled_dot_product
from gatedjax.functional._pairs import both_allow, causal_pairs, pair_mask_of
from gatedjax.functional._relaxations import opened
from gatedjax.functional._selective import Empty, weighted_values
from gatedjax.functional._types import Tree

# Pairs of one head at a time, and of several small ones: what fits into the cache of a processor.
# Of 64 to 512 queries at a time with 1,024 keys the most were the fastest, with 2,048 keys 128 took
# 1.1 times as long as 256, and 32 twice as long.
_PAIRS_OF_A_BLOCK, _PAIRS_OF_A_GROUP = 2**18, 2**16
# half of the keys took as long as all of them, for they are gathered
_SHARES = (8, 4)
_FEWEST_KEYS = 64  # below this there is nothing to gain


class _Options(NamedTuple):
    """What is known while tracing, see `skipping_selective_attention`."""

    block: int
    group: int
    slots: tuple[int, ...]
    causal: bool
    empty: Empty
    eps: float


class _Side(NamedTuple):
    """What one side of a few selections is made of: G selections of m heads each.

    Attributes:
      states: query, or key and value, of every head.
      selector: of every selection.
      allowed: which pairs or keys are allowed; None is all.
    """

    states: tuple[Float[Array, "G m N H"], ...]
    selector: Float[Array, "G 1 N H2"]
    allowed: Bool[Array, "G m N ..."] | None


def skipping_selective_attention(
    query: Float[Array, "B M Q H"],
    key: Float[Array, "B M N H"],
    value: Float[Array, "B M N D"],
    selector_query: Float[Array, "B M Q H2"],
    selector_key: Float[Array, "B M N H2"],
    *,
    mask: Bool[Array, "B N"] | None = None,
    pair_mask: Bool[Array, "B M Q N"] | None = None,
    causal: bool = False,
    empty: Empty = "zero",
    eps: float = 1e-6,
    block: int | None = None,
    slots: tuple[int, ...] | None = None,
) -> tuple[Float[Array, "B M Q D"], Float[Array, "B M Q"]]:
    """`selective_attention` under [s > 0], without the keys that no query of a block has selected.

        s = q_s k_s^T,  A_ij = [s_ij > 0],  e = query key^T / sqrt(H)
        U = union over the queries i of a block of {j: A_ij = 1}
        o_i = sum_{j in U} A_ij exp(e_ij) v_j / (sum_{j in U} A_ij exp(e_ij) + eps)

    The keys and values of U are gathered into slots; scores, softmax and sum are over slots. It is
    exact: the largest U of a head chooses among programs for several numbers of slots, the last of
    which takes all keys. No array over all pairs is made.

    What it saves is what the queries of a block agree not to select: a selector that looks at keys
    leaves most of them out, one that selects pairs at random leaves out none.

    Args:
      query, key, value: of every head.
      selector_query, selector_key: of every head, or of one for all.
      mask: True at real keys; what stands elsewhere, NaN included, has no effect.
      pair_mask, causal, empty, eps: as for `selective_attention`.
      block: queries at a time; None takes as many as make 2^18 pairs.
      slots: for how many slots there are programs, ascending, beside the one for all keys; None is
        an eighth and a fourth of N, or none for less than 64 keys.

    Returns:
      (output, counts): o in the dtype of value, and how many keys every query has selected, of
      one head if the selector has one. Gradients are those of `selective_attention` under gates
      without gradients; under `vmap` all programs run, and one result is taken.

    Reference: Geng et al. 2020 (SSAN), eqs. 2 and 3 at inference.
    """
    output, record = skipping_attention(
        (query, key, value),
        (selector_query, selector_key),
        mask,
        pair_mask,
        causal=causal,
        empty=empty,
        eps=eps,
        block=block,
        slots=slots,
    )
    return output, record["counts"]


def skipping_attention(
    heads: tuple[Array, Array, Array],
    selector: tuple[Array, Array],
    mask: Array | None,
    pair_mask: Array | None,
    *,
    causal: bool = False,
    empty: Empty = "zero",
    eps: float = 1e-6,
    block: int | None = None,
    slots: tuple[int, ...] | None = None,
) -> tuple[Float[Array, "B M Q D"], dict[str, Float[Array, "B M Q"]]]:
    """`skipping_selective_attention`, and sums over the keys of every query.

    The sums are the counts of selected keys and of allowed "keys", and the "entropies",
    "log_probs" and "probabilities" of a selection. Those that nobody uses are not computed.
    """
    query, key, value = (jnp.asarray(one) for one in heads)
    of_queries, of_keys = (jnp.asarray(one) for one in selector)
    _check(query, key, value, of_queries, of_keys)
    rows, count, queries, _ = query.shape
    size, selections = key.shape[2], of_keys.shape[1]
    check_mask(mask, (rows, size))
    pairs = pair_mask_of(pair_mask, False, (rows, count, queries, size))
    if causal:
        check_that(queries == size, "causal=True needs as many queries as keys", query)
    check_choice(Empty, empty=empty)
    message = "empty='self' needs as many queries as keys"
    check_that(empty != "self" or queries == size, message, query)
    check_not_negative(eps, name="eps")
    options = _options(rows * selections, queries, size, block, slots)
    options = options._replace(causal=causal, empty=empty, eps=eps)
    arguments = (query, key, value, of_queries, of_keys, mask, pairs)
    return run_core(_by_group, (options,), arguments, (query,))


def _check(query: Array, key: Array, value: Array, of_queries: Array, of_keys: Array) -> None:
    given = {"query": query, "key": key, "value": value}
    selector = {"selector_query": of_queries, "selector_key": of_keys}
    check_floating(**given, **selector)
    for name, one in (given | selector).items():
        check_that(one.ndim == 4, f"{name} must be [B, M, N, H]", one)
    rows, heads, queries, width = query.shape
    size = key.shape[2]
    fits = key.shape == (rows, heads, size, width)
    check_that(fits, f"key must be {(rows, heads, 'N', width)}, as query", key)
    check_that(value.shape[:3] == key.shape[:3], f"value must be {key.shape[:3]} + (D,)", value)
    fits = of_queries.shape[:3] in ((rows, heads, queries), (rows, 1, queries))
    check_that(fits, f"selector_query must be [{rows}, {heads} or 1, {queries}, H2]", of_queries)
    shape = (rows, of_queries.shape[1], size, of_queries.shape[3])
    check_that(of_keys.shape == shape, f"selector_key must be {shape}", of_keys)


def _options(
    selections: int, queries: int, size: int, block: int | None, slots: tuple[int, ...] | None
) -> _Options:
    """How the work is cut; the rest of the options is filled in later."""
    if block is None:
        block = max(_PAIRS_OF_A_BLOCK // max(size, 1), 32)
    elif block < 1:
        raise ValueError(f"block must be at least 1, got {block}")
    if slots is None:
        slots = tuple(-(-size // n) for n in _SHARES) if size >= _FEWEST_KEYS else ()
    if any(a >= b for a, b in itertools.pairwise((0, *slots))):
        raise ValueError(f"slots must be at least 1 and ascend, got {slots}")
    slots = tuple(one for one in slots if one < size)
    block = max(min(block, queries), 1)
    most = max(_PAIRS_OF_A_GROUP // max(block * size, 1), 1)
    group = max(n for n in range(1, most + 1) if selections % n == 0)
    return _Options(block, group, slots, causal=False, empty="zero", eps=0.0)


def _by_group(
    options: _Options,
    query: Array,
    key: Array,
    value: Array,
    of_queries: Array,
    of_keys: Array,
    mask: Array | None,
    pairs: Array | None,
) -> tuple[Array, dict[str, Array]]:
    """All selections, a group of them at a time."""
    rows, heads, queries, _ = query.shape
    selections, size = of_keys.shape[1:3]
    if mask is not None:
        column = mask[:, None, :, None]
        key, value = (jnp.where(column, one, jnp.zeros_like(one)) for one in (key, value))
    if rows * heads * queries * size == 0:
        shape = (rows, selections, queries)
        names = ("counts", "keys", "entropies", "log_probs", "probabilities")
        wide = jnp.zeros(shape, wide_dtype(query, key))
        return jnp.zeros((*query.shape[:3], value.shape[3]), value.dtype), dict.fromkeys(
            names, wide
        )

    def grouped(array: Array) -> Array:
        """[B, M, ...] as [groups, G, m, ...]."""
        heads_of = array.shape[1] // selections
        return array.reshape(-1, options.group, heads_of, *array.shape[2:])

    if pairs is not None:
        alike = selections == 1 and pairs.shape[1] == 1
        pairs = jnp.broadcast_to(pairs, (rows, 1 if alike else heads, queries, size))
        pairs = grouped(pairs)
    if mask is not None:
        mask = grouped(jnp.broadcast_to(mask[:, None], (rows, selections, size)))
    sides = (
        _Side((grouped(query),), grouped(of_queries), pairs),
        _Side((grouped(key), grouped(value)), grouped(of_keys), mask),
    )
    output, record = lax.map(lambda given: _by_block(options, *given), sides)
    output = output.reshape(*query.shape[:3], value.shape[3])
    return output, {k: v.reshape(rows, selections, queries) for k, v in record.items()}


def _by_block(options: _Options, read: _Side, source: _Side) -> tuple[Array, dict[str, Array]]:
    """The selections of a group, a block of queries at a time."""
    queries = read.selector.shape[2]
    split = functools.partial(split_queries, block=options.block)
    blocks: Tree = (jax.tree.map(split, read), block_positions(queries, options.block))
    output, record = lax.map(lambda given: _of_block(options, source, *given), blocks)
    return join_queries(output, queries), {k: join_queries(v, queries) for k, v in record.items()}


def _of_block(
    options: _Options, source: _Side, read: _Side, positions: Array
) -> tuple[Array, dict[str, Array]]:
    """The queries of a block, over as few slots as hold every key that one of them selects."""
    (query,), (key, value) = read.states, source.states
    wide = wide_dtype(query, key)
    product = functools.partial(jnp.einsum, preferred_element_type=wide)
    logits = product("gmqd,gmkd->gmqk", read.selector, source.selector)
    size = key.shape[2]
    allowed = read.allowed
    if options.causal:
        allowed = both_allow(allowed, causal_pairs(positions, size)[None, None])
    if source.allowed is not None:
        allowed = both_allow(source.allowed[:, :, None], allowed)
    record = _sums(logits, allowed)
    selected = _selected(logits, allowed, positions, options.empty)
    running = _running_count(jnp.any(selected, axis=(1, 2)))

    def some(slots: int) -> Array:
        index, valid, _ = _slots_of(running, slots)
        at = functools.partial(jnp.take_along_axis, mode="clip")
        keys, values = (at(one, index[:, None, :, None], axis=2) for one in (key, value))
        among = at(selected, index[:, None, None], axis=3) & valid[:, None, None]
        return _gathered(query, keys, values, among, options.eps)

    programs: list[Callable[[], Array]] = [
        functools.partial(some, slots) for slots in options.slots
    ]
    programs.append(lambda: _gathered(query, key, value, selected, options.eps))
    needed = jnp.max(running[:, -1])
    chosen = jnp.sum(needed > jnp.asarray(options.slots, jnp.int32), dtype=jnp.int32)
    output = lax.switch(chosen, programs)
    # a comparison with NaN selects nothing, without a word
    lost = jnp.isnan(logits) if allowed is None else jnp.isnan(logits) & allowed
    return output * jnp.where(jnp.any(lost, axis=-1)[..., None], jnp.nan, 1.0), record


def _selected(logits: Array, allowed: Array | None, positions: Array, empty: Empty) -> Array:
    """Which keys the queries attend to [G, 1 or m, q, N]."""
    selected = logits > 0
    if allowed is not None:
        selected = selected & allowed
    if empty == "zero":
        return selected
    opened = ~jnp.any(selected, axis=-1, keepdims=True)
    if empty == "self":
        itself = positions[:, None] == jnp.arange(logits.shape[-1])[None]
        opened = opened & itself[None, None]
    return selected | (opened if allowed is None else opened & allowed)


def _sums(logits: Array, allowed: Array | None) -> dict[str, Array]:
    """Of every query [G, 1, q]; a pair counts where any head of a selection may see it."""
    if allowed is not None:
        allowed = jnp.any(allowed, axis=1, keepdims=True)
    size = jnp.abs(logits)
    probability = jax.nn.sigmoid(logits)
    parts = {
        "counts": opened(logits),
        "keys": jnp.ones_like(logits),
        "entropies": jax.nn.softplus(logits) - logits * probability,
        "log_probs": jax.nn.log_sigmoid(size),  # of the likelier choice
        "probabilities": probability,
    }
    dtype = logits.dtype
    return {
        name: jnp.sum(part if allowed is None else jnp.where(allowed, part, 0), -1, dtype=dtype)
        for name, part in parts.items()
    }


def _gathered(query: Array, key: Array, value: Array, selected: Array, eps: float) -> Array:
    """What the queries gather [G, m, q, D] from the keys that they select, head by head."""
    count = query.shape[1]
    if count == 1:
        return _weighed(eps, selected, query, key, value)
    heads: Tree = tuple(jnp.swapaxes(one, 0, 1)[:, :, None] for one in (query, key, value))
    if selected.shape[1] == 1:
        mixed = lax.map(lambda head: _weighed(eps, selected, *head), heads)
    else:
        of_heads = jnp.swapaxes(selected, 0, 1)[:, :, None]
        mixed = lax.map(lambda head: _weighed(eps, *head), (of_heads, *heads))
    return jnp.swapaxes(mixed[:, :, 0], 0, 1)


def _weighed(eps: float, selected: Array, query: Array, key: Array, value: Array) -> Array:
    """sum_j A_ij exp(e_ij) v_j / (sum_j A_ij exp(e_ij) + eps)."""
    scores = jnp.where(selected, scaled_dot_product(query, key), -jnp.inf)
    top = lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True))
    weights = jnp.exp(scores - jnp.where(jnp.isneginf(top), 0, top))
    total = jnp.sum(weights, axis=-1, keepdims=True) + eps
    # after the product, where there is less to divide; a query that selects nothing has 0 / 1
    total = jnp.where(jnp.isneginf(top), 1, total)
    wide = weighted_values(weights, value.astype(weights.dtype))
    return (wide / total).astype(value.dtype)
