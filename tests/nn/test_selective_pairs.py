"""Masks over pairs, causality, another sequence and a cache, against loops over pairs in NumPy."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import functional as F
from gatedjax import nn as gnn
from tests._drawn import drawn
from tests._slow import slow_but
from tests.functional.passes import check_gradients
from tests.tolerances import F32, F64

B, N, S, D, M = 3, 5, 4, 6, 2
MASK = np.arange(N) < np.array([5, 3, 0])[:, None]
SOURCE_MASK = np.arange(S) < np.array([4, 0, 2])[:, None]
CAUSAL = np.tril(np.ones((N, N), bool))


def pairs_of(rng, *shape):
    """Random pairs in which the first query of the first row sees nothing."""
    pairs = rng.random(shape) < 0.7
    pairs[0, ..., 0, :] = False
    return pairs


def project(weights, x):
    """[B, N, D] to [B, M, N, H]."""
    return np.einsum("bnd,dmh->bmnh", x, weights["kernel"]) + weights["bias"][None, :, None]


def attend(params, inputs, source, allowed, mask, *, share=False):
    """The module at inference, pair by pair; analytic in params and inputs for fixed selections."""
    heads = {
        name: project(params[name], inputs if name.endswith("query") else source)
        for name in params
        if name != "out"
    }
    query, key, value = (heads[name] for name in ("query", "key", "value"))
    mixed = np.zeros(query.shape, np.result_type(*heads.values()))
    counts = np.zeros(query.shape[:3])
    for b, m, i in itertools.product(*map(range, query.shape[:3])):
        chosen = [j for j in range(key.shape[2]) if allowed[b, m, i, j]]
        if "selector_query" in heads:
            s, t = (heads[f"selector_{name}"][b, 0 if share else m] for name in ("query", "key"))
            chosen = [j for j in chosen if (s[i] @ t[j]).real > 0]
        counts[b, m, i] = len(chosen)
        if not chosen or not mask[b, i]:
            continue
        scores = np.array([query[b, m, i] @ key[b, m, j] for j in chosen]) * query.shape[3] ** -0.5
        weights = np.exp(scores - scores.real.max())
        weights = weights / (weights.sum() + (1e-6 if "selector_query" in heads else 0))
        mixed[b, m, i] = sum(w * value[b, m, j] for w, j in zip(weights, chosen, strict=True))
    out = np.einsum("bmqh,mhd->bqd", mixed, params["out"]["kernel"]) + params["out"]["bias"]
    return np.where(mask[..., None], out, 0), counts


CASES = {
    "causal": ({"causal": True}, False, None),
    "pairs": ({}, False, (B, 1, N)),
    "pairs of heads": ({"causal": True, "share_heads": True}, False, (B, M, N, N)),
    "across": ({}, True, None),
    "pairs across": ({"selector": "none"}, True, (B, 1, N, S)),
}


@functools.cache
def solved(name):
    """Of one case: the module's results in float64 with gradients, and what it was given, in which
    the module has NaN at padding.
    """
    options, across, shape = CASES[name]
    rng = np.random.default_rng(0)
    inputs, source = rng.normal(size=(B, N, D)), rng.normal(size=(B, S, 3)) if across else None
    pairs = None if shape is None else pairs_of(rng, *shape)
    module = gnn.SelectiveSelfAttention(M, param_dtype=jnp.float64, **options)
    cotangent = rng.normal(size=(B, N, D))

    @jax.jit
    def run(params, inputs, source):
        def call(params, inputs, source, module=module):
            given = {} if source is None else {"source": source, "source_mask": SOURCE_MASK}
            return module.apply({"params": params}, inputs, MASK, pair_mask=pairs, **given)

        output, pull, found = jax.vjp(call, params, inputs, source, has_aux=True)
        others = [call(params, inputs, source, module.clone(block=2))]
        if across:
            wide = module.clone(features=D)
            keep = functools.partial(wide.apply, {"params": params}, method="source_cache")
            cache = keep(source, SOURCE_MASK)
            same = wide.apply({"params": params}, inputs, MASK, source=cache, pair_mask=pairs)
            others.append((*same, cache))
        return output, found, pull(cotangent), others

    with jax.enable_x64(True):
        init = functools.partial(module.init, source=source)
        params = drawn(init, inputs, dtype=np.float64)["params"]
        dirty = np.where(MASK[..., None], inputs, np.nan)
        dirty_source = np.where(SOURCE_MASK[..., None], source, np.nan) if across else None
        results = jax.tree.map(np.asarray, run(params, dirty, dirty_source))
    allowed = (SOURCE_MASK if across else MASK)[:, None, None, :]
    if pairs is not None:
        allowed = allowed & (pairs if pairs.ndim == 4 else pairs[:, None])
    if options.get("causal"):
        allowed = allowed & CAUSAL
    allowed = np.broadcast_to(allowed, (B, M, N, S if across else N))
    return module, (params, inputs, source), cotangent, allowed, results


@pytest.mark.parametrize("name", slow_but(CASES, "causal", "pairs of heads", "pairs across"))
def test_values_and_gradients_are_those_of_a_loop_over_pairs(name, np_rng):
    module, (params, inputs, source), cotangent, allowed, results = solved(name)
    output, found, gradients, others = results
    share = module.share_heads

    def run(params, inputs, source):
        read = inputs if source is None else source
        return (attend(params, inputs, read, allowed, MASK, share=share)[0],)

    np.testing.assert_allclose(output, run(params, inputs, source)[0], **F64)
    for same, *_ in others:  # in blocks, and with the keys of the source kept
        np.testing.assert_allclose(same, output, **F64)
    given = (params, inputs) if source is None else (params, inputs, source)
    whole = run if source is not None else lambda p, x: run(p, x, None)
    check_gradients(gradients[: len(given)], whole, given, (cotangent,), np_rng, **F64)
    np.testing.assert_array_equal(np.asarray(found.weights)[~allowed], 0)
    np.testing.assert_array_equal(output[~MASK], 0)


@pytest.mark.parametrize("name", ["causal", "pairs of heads", "across"])
def test_what_was_selected_is_counted_over_the_pairs_that_may_see_each_other(name):
    module, (params, inputs, source), _, allowed, results = solved(name)
    read = inputs if source is None else source
    _, counts = attend(params, inputs, read, allowed, MASK, share=module.share_heads)
    if module.share_heads:  # a selection counts where any head may see it
        allowed = allowed.any(1, keepdims=True)
        gates = np.asarray(results[1].gates)
        counts = np.where(allowed, gates, 0).sum(-1)
    seen = np.where(MASK[:, None], allowed.sum(-1), 0).sum(-1)
    total = np.where(MASK[:, None], counts, 0).sum(-1)
    for found in (results[1], *(found for _, found, *_ in results[3])):
        np.testing.assert_allclose(found.rate, total / np.maximum(seen, 1), **F32)
        empty = (
            np.where(MASK[:, None], counts == 0, 0).sum(-1) / np.maximum(MASK.sum(-1), 1)[:, None]
        )
        np.testing.assert_allclose(found.empty, empty, **F32)
    logits = np.asarray(results[1].logits)
    p = 1 / (1 + np.exp(-logits))
    real = allowed & MASK[:, None, :, None]
    chosen = np.where(results[1].gates > 0, p, 1 - p)
    pairs = {"probability": p, "log_prob": np.log(chosen)}
    pairs["entropy"] = -p * np.log(p) - (1 - p) * np.log(1 - p)
    for name, values in pairs.items():
        mean = np.where(real, values, 0).sum((2, 3)) / np.maximum(real.sum((2, 3)), 1)
        np.testing.assert_allclose(getattr(results[1], name), mean.mean(1), **F32)


def decoded(**options):
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(B, N, D)).astype(np.float32)
    module = gnn.SelectiveSelfAttention(M, causal=True, **options)
    variables = drawn(module.init, inputs, std=0.3)
    # the first place of the second row is padding before its words
    real = np.array([[1, 1, 1, 1, 1], [0, 1, 1, 1, 0], [0, 0, 0, 0, 0]], bool)

    @jax.jit
    def run(variables, inputs, real):
        def step(cache, token):
            return module.apply(variables, cache, *token, method="decode")

        cache = module.initial_cache(B, N + 2, D)
        cache, first = step(cache, (inputs[:, :2], real[:, :2]))
        rest = (jnp.swapaxes(inputs[:, 2:, None], 0, 1), jnp.swapaxes(real[:, 2:, None], 0, 1))
        cache, others = jax.lax.scan(step, cache, rest)
        by_step = jnp.concatenate([first, jnp.swapaxes(others[:, :, 0], 0, 1)], axis=1)
        # padding has no room either
        _, beyond = step(cache, (inputs[:, :3], jnp.zeros((B, 3), bool).at[:, 2].set(True)))
        return module.apply(variables, inputs, real)[0], by_step, cache, beyond

    return module, variables, jax.tree.map(np.asarray, run(variables, inputs, real))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("selector", "options"),
    [
        ("st_gumbel", {}),
        ("st_gumbel", {"share_heads": True, "empty": "self", "features": 8}),
        ("none", {"relative": "local", "max_offset": 2}),
    ],
    ids=["st", "shared", "none"],
)
def test_step_by_step_is_the_causal_pass(selector, options):
    module, variables, (whole, by_step, cache, beyond) = decoded(selector=selector, **options)
    np.testing.assert_allclose(by_step, whole, **F32)
    assert np.abs(whole[:2]).max() > 0.1
    np.testing.assert_array_equal(by_step[2], 0)
    assert cache.position == N
    narrow = module.clone(dtype=jnp.bfloat16)
    for empty in (module.initial_cache(B, N, D, jnp.bfloat16), narrow.initial_cache(B, N, D)):
        assert empty.key.dtype == jnp.bfloat16
    # no room for three more tokens: what sees them is no number that could be taken for one
    assert np.isnan(beyond[:, -1]).all()
    if selector == "none":
        assert cache.selector_key is None
        with pytest.raises(ValueError, match="room for 3 more tokens, got 5 of 7"):
            module.apply(variables, cache, np.zeros((B, 3, D), np.float32), method="decode")


@pytest.mark.parametrize("name", ["pairs across", "pairs of heads"])
def test_a_query_that_sees_nothing_gathers_nothing_with_finite_gradients(name):
    _, (params, *_), _, _, (output, _, gradients, others) = solved(name)
    np.testing.assert_allclose(output[0, 0], params["out"]["bias"], **F64)
    kept = [cache for _, _, *caches in others for cache in caches]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((gradients, kept)))


def test_the_functions_take_masks_over_pairs_too(np_rng):
    query, key, value = (np_rng.normal(size=(B, M, N, 3)).astype(np.float32) for _ in range(3))
    gates = np_rng.random((B, 1, N, N)).astype(np.float32)
    pairs = pairs_of(np_rng, B, N, N)

    @jax.jit
    def run(query, key, value, gates):
        options = {"mask": MASK, "pair_mask": pairs, "causal": True}
        mixed = F.selective_attention(query, key, value, gates, **options)
        relaxed = F.relaxed_selective_attention(query, key, value, jnp.log(gates), **options)
        return mixed, relaxed

    allowed = (MASK[:, None, :] & pairs & CAUSAL)[:, None]
    scores = np.einsum("bmqd,bmkd->bmqk", query, key) * 3**-0.5
    weights = np.where(allowed, gates * np.exp(scores), 0)
    weights = weights / np.maximum(weights.sum(-1, keepdims=True), 1e-30)
    for output, got in run(query, key, value, gates):
        np.testing.assert_allclose(got, weights, **F32)
        np.testing.assert_allclose(output, weights @ value, **F32)
    with pytest.raises(ValueError, match=r"number of tokens .*, got \(5, 4\)"):
        F.selective_attention(query, key[:, :, :4], value[:, :, :4], gates[..., :4], causal=True)


@pytest.mark.slow
def test_scores_that_may_not_be_seen_may_be_as_large_as_they_like(np_rng):
    query, key, value = (np_rng.normal(size=(B, M, N, 3)).astype(np.float32) for _ in range(3))
    gates = (np_rng.random((B, M, N, N)) < 0.7).astype(np.float32)
    hidden = np.arange(N) == 3
    huge = np.where(hidden[:, None], np.float32(1e30), key)

    @jax.jit
    def run(key):
        def mixed(query, key):
            pairs = jnp.broadcast_to(~hidden, (1, N, N))
            options = {"pair_mask": pairs, "causal": True, "hard": True}
            return F.selective_attention(query, key, value, gates, **options)[0]

        output, pull = jax.vjp(mixed, query, key)
        return output, pull(jnp.ones_like(output))

    (output, slopes), (want, _) = run(huge), run(key)
    np.testing.assert_array_equal(output, want)
    assert all(np.isfinite(slope).all() for slope in slopes)
