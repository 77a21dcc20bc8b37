"""Selective attention against loops written from spec sections 2.3 and 2.4 of SSAN."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import functional as F
from tests.tolerances import F32, F64

B, M, N, H = 3, 2, 4, 3
LENGTHS = np.array([4, 2, 0])
MASK = np.arange(N)[None, :] < LENGTHS[:, None]
CAP, EPS = 10.0, 1e-6


def hard_row(e, a, keep, cap=CAP, eps=EPS):
    """W of one query and dL/dA, dL/de for an upstream g, of spec 2.4, key by key."""
    real = [j for j in range(len(e)) if keep[j]]
    chosen = [j for j in real if a[j] > 0]
    w, ratio = np.zeros(len(e)), np.zeros(len(e))
    if real:
        m = max(e[j] for j in (chosen or real))
        for j in real:
            ratio[j] = np.exp(min(e[j] - m, cap))
            w[j] = ratio[j] * a[j]
    total = (w.sum() if chosen else 1.0) + eps
    weights = w / total

    def gradients(g):
        along = (g - g @ weights) / total
        return along * ratio, along * w

    return weights, gradients


def oracle(e, a, mask, g):
    weights, da, de = np.zeros_like(e), np.zeros_like(e), np.zeros_like(e)
    for b, m, i in itertools.product(*map(range, e.shape[:3])):
        at = (b, m, i)
        weights[at], gradients = hard_row(e[at], a[at], mask[b])
        da[at], de[at] = gradients(g[at])
    return weights, da, de


@pytest.fixture
def arrays(np_rng):
    shape = (B, M, N, N)
    gates = (np_rng.random(shape) < 0.5).astype(float)
    gates[0, 0, 1] = 0  # a query that selects nothing
    gates[0, 1, 2] = [1, 0, 0, 0]  # one that selects one key
    return np_rng.normal(size=shape) * 3, gates, np_rng.normal(size=shape)


def weights_of(e, a, **options):
    return F.selective_weights(e, a, jnp.asarray(MASK)[:, None, None, :], hard=True, **options)


def test_hard_weights_and_straight_through_gradients_are_those_of_the_loops(arrays, x64):
    e, a, g = arrays
    weights, pull = jax.vjp(jax.jit(weights_of), *map(jnp.asarray, (e, a)))
    de, da = pull(jnp.asarray(g))
    for got, wanted in zip((weights, da, de), oracle(e, a, MASK, g), strict=True):
        np.testing.assert_allclose(got, wanted, **F64)
    # the gradient of straight-through: keys that were not selected have one
    closed = (a == 0) & MASK[:, None, None, :]
    assert (np.abs(np.asarray(da)[closed]) > 0).all()
    np.testing.assert_array_equal(np.asarray(da)[~np.broadcast_to(MASK[:, None, None], a.shape)], 0)


@pytest.mark.slow
def test_scores_of_a_thousand_and_selected_keys_far_below_the_maximum_stay_exact():
    e = jnp.array([[[1000.0, 960.0, 959.0, -1000.0]]])
    a = jnp.array([[[0.0, 1.0, 1.0, 0.0]]])
    value, pull = jax.vjp(lambda *x: F.selective_weights(*x, hard=True), e, a)
    with np.errstate(over="ignore", invalid="ignore"):
        plain = np.exp(np.float32(e)) * np.float32(a)
        assert not np.isfinite(plain / (plain.sum() + EPS)).all()
    share = 1 / (1 + np.exp(-1.0))
    np.testing.assert_allclose(value[0, 0], [0, share, 1 - share, 0], rtol=1e-5, atol=1e-7)
    for gradient in pull(jnp.ones_like(e).at[..., 0].set(-2.0)):
        assert np.isfinite(gradient).all()
    # the unselected maximum: bounded by exp(cap), and by another cap where asked
    da = pull(jnp.zeros_like(e).at[..., 0].set(1.0))[1][0, 0, 0]
    np.testing.assert_allclose(da, np.exp(CAP) / (1 + np.exp(-1.0)), rtol=1e-4)
    small = jax.grad(lambda x: F.selective_weights(e, x, hard=True, cap=0.0)[0, 0, 0])(a)
    np.testing.assert_allclose(small[0, 0, 0], 1 / (1 + np.exp(-1.0)), rtol=1e-4)


def heads(rng, width=H, dtype=jnp.float32):
    keys = jax.random.split(rng, 3)
    return tuple(jax.random.normal(k, (B, M, N, width), dtype) for k in keys)


@pytest.mark.parametrize("hard", [False, True])
def test_a_query_without_selected_keys_follows_the_rule(hard, rng):
    q, k, v = heads(rng)
    mask = jnp.asarray(MASK if hard else MASK[:, None])  # also with an axis of heads
    gates = jnp.ones((1, 1, N, N)).at[:, :, 0].set(0)

    def run(empty):
        return F.selective_attention(q, k, v, gates, mask=mask, hard=hard, empty=empty)

    zero, own, everything = (run(x) for x in ("zero", "self", "all"))
    for output, weights in (zero, own, everything):
        np.testing.assert_array_equal(weights[2], 0)
        np.testing.assert_array_equal(output[2], 0)
        np.testing.assert_array_equal(output[:, :, 1:], zero[0][:, :, 1:])
    np.testing.assert_array_equal(zero[1][:, :, 0], 0)
    np.testing.assert_allclose(own[0][:2, :, 0], v[:2, :, 0], **F32)
    full = F.selective_attention(q, k, v, jnp.ones_like(gates), mask=mask, hard=hard)
    np.testing.assert_allclose(everything[0], full[0], **F32)


def test_without_eps_a_query_that_selects_nothing_still_has_no_weights(arrays, x64):
    e, a, g = arrays

    @jax.jit
    def run(e, a):
        plain = weights_of(e, a, eps=0.0)
        _, attended = F.selective_attention(e, e, e, a, mask=MASK, hard=True, eps=0.0)
        return plain, jax.vjp(lambda *x: weights_of(*x, eps=0.0), e, a)[1](g), attended

    plain, slopes, attended = run(e, a)
    wanted = np.zeros_like(e)
    for at in itertools.product(*map(range, e.shape[:3])):
        wanted[at] = hard_row(e[at], a[at], MASK[at[0]], eps=0.0)[0]
    np.testing.assert_allclose(plain, wanted, **F64)
    np.testing.assert_array_equal(plain[0, 0, 1], 0)  # it selects nothing
    np.testing.assert_array_equal(plain[2], 0)  # nothing but padding
    np.testing.assert_array_equal(attended[0, 0, 1], 0)
    assert np.isfinite(attended).all()
    assert all(np.isfinite(slope).all() for slope in slopes)


def test_without_renormalisation_the_softmax_is_only_cut(arrays, rng):
    q, k, v = heads(rng)
    gates = jnp.asarray(arrays[1], jnp.float32)
    _, softmax = F.selective_attention(q, k, v, jnp.ones_like(gates), MASK)
    for hard in (False, True):
        _, got = F.selective_attention(q, k, v, gates, MASK, hard=hard, renormalise=False)
        np.testing.assert_allclose(got, softmax * gates, **F32)


def test_no_word_at_all(rng):
    q, k, v = (x[:, :, :0] for x in heads(rng))
    gates = jnp.ones((B, M, 0, 0))
    for hard in (False, True):
        output, weights = F.selective_attention(q, k, v, gates, hard=hard)
        assert output.shape == (B, M, 0, H)
        assert weights.shape == (B, M, 0, 0)


@pytest.mark.slow
def test_source_to_token_is_a_softmax_per_feature(np_rng, x64):
    states, logits = np_rng.normal(size=(2, B, N, H))
    wanted = np.zeros((B, H))
    for b, d in itertools.product(range(B), range(H)):
        top = np.exp(logits[b, : LENGTHS[b], d])
        if len(top):
            wanted[b, d] = top @ states[b, : LENGTHS[b], d] / top.sum()
    noisy = np.where(MASK[..., None], states, np.nan)
    got = jax.jit(F.source_to_token)(noisy, logits, MASK)
    np.testing.assert_allclose(got, wanted, **F64)
    np.testing.assert_array_equal(got[2], 0)
    gradient = jax.grad(lambda *x: F.source_to_token(*x, MASK).sum(), (0, 1))(states, logits)
    assert all(np.isfinite(g).all() for g in gradient)
    # one token is itself
    one = F.source_to_token(states[:, :1], logits[:, :1])
    np.testing.assert_allclose(one, states[:, 0], **F64)


def test_a_cache_takes_as_many_tokens_as_it_has_room_for_in_its_dtype():
    empty, token = jnp.zeros((1, 2, 3, 4), jnp.bfloat16), jnp.ones((1, 2, 1, 4))
    cache = F.AttentionCache(empty, empty, jnp.zeros((1, 3), bool), jnp.array(0))
    for real in (True, False, True):
        cache = F.append_to_cache(cache, token, 2 * token, mask=np.array([[real]]))
    np.testing.assert_array_equal(cache.mask, [[True, False, True]])
    np.testing.assert_array_equal(cache.key, np.ones(empty.shape))
    np.testing.assert_array_equal(cache.value, 2 * cache.key)
    assert cache.key.dtype == cache.value.dtype == empty.dtype
    with pytest.raises(ValueError, match="room for 1 more tokens, got 3 of 3 used"):
        F.append_to_cache(cache, token, token)
