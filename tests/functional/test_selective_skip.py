"""Attention that skips keys, against loops over pairs in NumPy and against all keys."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import functional as F
from gatedjax import nn as gnn
from tests._slow import slow_but
from tests.functional.passes import check_gradients
from tests.tolerances import BF16, F64

B, M, N, H, D = 3, 2, 12, 3, 2
LENGTHS = np.array([N, 7, 0])
MASK = np.arange(N) < LENGTHS[:, None]
BLOCK, SLOTS, EPS = 5, (2, 6), 1e-6
# margins of keys and of pairs in the logits: how many keys a block of queries agrees on
SELECTIONS = {
    "nothing": (-9.0, 0.0),
    "everything": (9.0, 0.0),
    "one key": (None, 0.0),
    "two keys": (None, 0.0),
    "by keys": (None, 1e-3),
    "by pairs": (0.0, 1.0),
}
OPTIONS = {
    "": {},
    "causal, self": {"causal": True, "empty": "self"},
    "all": {"empty": "all"},
}


def selector_of(rng, name, heads):
    """Queries and keys [B, heads, N, 3] of a selector whose logit is key margin + pair part."""
    margin, pair = SELECTIONS[name]
    query, key = (rng.normal(size=(B, heads, N, 3)) for _ in range(2))
    query[..., 0], query[..., 1:] = 1, query[..., 1:] * pair
    if margin is not None:
        key[..., 0] = margin
    else:
        chosen = {"one key": [3], "two keys": [0, 3], "by keys": [1, 2, 5, 9]}[name]
        key[..., 0] = np.where(np.isin(np.arange(N), chosen), 1, -1)
    return query, key


def attend(inputs, selector, allowed, empty):
    """Output and counts, pair by pair; analytic in query, key and value."""
    query, key, value = inputs
    of_queries, of_keys = selector
    output = np.zeros((B, M, N, D), np.result_type(*inputs))
    counts = np.zeros((B, of_keys.shape[1], N))
    for b, m, i in itertools.product(range(B), range(M), range(N)):
        s = m if of_keys.shape[1] == M else 0
        seen = [j for j in range(N) if allowed[b, m, i, j]]
        chosen = [j for j in seen if of_queries[b, s, i] @ of_keys[b, s, j] > 0]
        counts[b, s, i] = len(chosen)
        if not chosen:
            chosen = {"zero": [], "all": seen, "self": [j for j in seen if j == i]}[empty]
        if not chosen:
            continue
        scores = np.array([query[b, m, i] @ key[b, m, j] for j in chosen]) / np.sqrt(H)
        weights = np.exp(scores - scores.real.max())
        weights = weights / (weights.sum() + EPS)
        output[b, m, i] = sum(w * value[b, m, j] for w, j in zip(weights, chosen, strict=True))
    return output, counts


@functools.cache
def program(options, shared):
    """Output, counts and gradients: one program for every selection."""

    def run(inputs, selector, mask, cotangent):
        def call(*inputs):
            return F.skipping_selective_attention(
                *inputs, *selector, mask=mask, block=BLOCK, slots=SLOTS, **OPTIONS[options]
            )

        output, pull, counts = jax.vjp(call, *inputs, has_aux=True)
        return output, counts, pull(cotangent)

    del shared  # has another shape
    return jax.jit(run)


def arrays(rng):
    query, key = (rng.normal(size=(B, M, N, H)) for _ in range(2))
    return query, key, rng.normal(size=(B, M, N, D))


CASES = list(itertools.product(OPTIONS, (False, True)))


@pytest.mark.parametrize(
    ("options", "shared"), slow_but(CASES, ("", False), ("causal, self", True))
)
def test_output_counts_and_gradients_are_those_of_loops(np_rng, x64, options, shared):
    causal = "causal" in OPTIONS[options]
    allowed = np.broadcast_to(MASK[:, None, None], (B, M, N, N)) & (
        np.tril(np.ones((N, N), bool)) if causal else True
    )
    empty = OPTIONS[options].get("empty", "zero")
    for name in SELECTIONS:
        inputs, selector = arrays(np_rng), selector_of(np_rng, name, 1 if shared else M)
        cotangent = np_rng.normal(size=(B, M, N, D))
        # what stands at padding has no effect; extreme logits overflow nothing
        inputs[1][..., :1, :] *= 1e3
        dirty = [*inputs], [*selector]
        for group in dirty:
            group[1] = np.where(MASK[:, None, :, None], group[1], np.nan)
        output, counts, gradients = program(options, shared)(*dirty, MASK, cotangent)
        want, many = attend(inputs, selector, allowed, empty)
        np.testing.assert_allclose(output, want, **F64, err_msg=name)
        np.testing.assert_array_equal(counts, many, err_msg=name)
        check_gradients(
            gradients,
            lambda *point, fixed=selector: attend(point, fixed, allowed, empty)[0],
            inputs,
            cotangent,
            np_rng,
            rtol=1e-6,
            atol=1e-9,
        )


def test_pairs_half_precision_and_vmap_agree_with_all_keys(np_rng, x64):
    pairs = np_rng.random((B, M, N, N)) < 0.7
    pairs[0, :, 0] = False
    inputs, selector = arrays(np_rng), selector_of(np_rng, "by keys", 1)
    logits = np.einsum("bmqh,bmkh->bmqk", *selector)

    def skipping(inputs, pairs):
        return F.skipping_selective_attention(
            *inputs, *selector, mask=MASK, pair_mask=pairs, block=BLOCK, slots=SLOTS
        )[0]

    def dense(inputs, pairs):
        gates = F.threshold_gates(jnp.asarray(logits))
        return F.selective_attention(*inputs, gates, mask=MASK, pair_mask=pairs, hard=True)[0]

    stacked = np.stack([pairs, ~pairs])

    @functools.partial(jax.jit, static_argnums=0)
    def results(call, inputs, half):
        mapped = jax.vmap(functools.partial(call, inputs))(stacked)
        return call(inputs, pairs), mapped, call(half, pairs)

    half = tuple(np.asarray(one, jnp.bfloat16) for one in inputs)
    every = zip(results(skipping, inputs, half), results(dense, inputs, half), strict=True)
    for found, want in every:
        assert found.dtype == want.dtype
        tolerance = F64 if found.dtype == np.float64 else BF16
        np.testing.assert_allclose(
            np.asarray(found, np.float64), np.asarray(want, np.float64), **tolerance
        )


@pytest.mark.parametrize("shared", [False, True], ids=["heads", "shared"])
def test_the_module_skips_without_a_difference(np_rng, x64, shared):
    """Of 64 keys and more there are programs for fewer slots, of fewer none."""
    size, mask = 64, np.arange(64) < np.array([64, 30])[:, None]
    inputs = np_rng.normal(size=(2, size, 4))
    module = gnn.SelectiveSelfAttention(2, share_heads=shared, param_dtype=jnp.float64)
    variables = jax.jit(module.init)(jax.random.key(0), inputs)
    other = module.clone(skip=True, block=24)
    (want, all_of_it), (found, record) = (
        jax.jit(one.apply)(variables, inputs, mask) for one in (module, other)
    )
    np.testing.assert_allclose(found, want, **F64)
    assert (record.weights, record.gates, record.logits) == (None, None, None)
    for name in ("rate", "empty", "selected", "entropy", "log_prob", "probability"):
        np.testing.assert_allclose(getattr(record, name), getattr(all_of_it, name), **F64)


def test_the_module_reads_another_sequence_and_trains_as_without(np_rng, x64):
    inputs, source = np_rng.normal(size=(2, 3, 4)), np_rng.normal(size=(2, 5, 4))
    module = gnn.SelectiveSelfAttention(2, param_dtype=jnp.float64)
    draws = {"deterministic": False, "rngs": {"gate": jax.random.key(1)}}

    @functools.partial(jax.jit, static_argnums=0)
    def run(module, variables):
        return [module.apply(variables, inputs, **given) for given in ({"source": source}, draws)]

    variables = jax.jit(module.init)(jax.random.key(0), inputs)
    every = zip(run(module, variables), run(module.clone(skip=True), variables), strict=True)
    for (want, dense), (found, record) in every:
        np.testing.assert_allclose(found, want, **F64)
        np.testing.assert_allclose(record.rate, dense.rate, **F64)


def test_no_keys_and_no_queries_give_zeros():
    for queries, keys in ((2, 0), (0, 2)):
        query, key = jnp.ones((1, 1, queries, 3)), jnp.ones((1, 1, keys, 3))
        output, counts = F.skipping_selective_attention(query, key, key, query, key)
        assert output.shape == (1, 1, queries, 3)
        assert not output.any()
        assert not counts.any()


def test_errors_name_the_argument():
    x, wide = jnp.ones((1, 2, 4, 3)), jnp.ones((1, 2, 4, 5))
    cases = [
        ({"slots": (4, 2)}, (x,) * 5, "slots must be at least 1 and ascend"),
        ({"block": 0}, (x,) * 5, "block must be at least 1"),
        ({"eps": -1.0}, (x,) * 5, "eps must not be negative"),
        ({}, (x, x, x, x, wide), "selector_key must be"),
        ({}, (x, wide, x, x, x), "key must be"),
        ({"causal": True}, (x[:, :, :2], x, x, x[:, :, :2], x), "causal=True needs"),
        ({"empty": "self"}, (x[:, :, :2], x, x, x[:, :, :2], x), "empty='self' needs"),
    ]
    for options, arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            F.skipping_selective_attention(*arguments, **options)
    for options in ({"relative": "learned"}, {"renormalise": False}):
        module = gnn.SelectiveSelfAttention(2, skip=True, **options)
        with pytest.raises(ValueError, match="skip must be False"):
            module.init(jax.random.key(0), jnp.ones((1, 4, 4)))
