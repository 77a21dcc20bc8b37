"""Noise of pairs, gates from uniform draws and statistics of a selection."""

import functools
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry2x32_p

from gatedjax import functional as F
from gatedjax.functional._bits import threefry
from tests.tolerances import F32, F64

B, M, N = 3, 2, 5
LENGTHS = np.array([5, 2, 0])
MASK = np.arange(N)[None, :] < LENGTHS[:, None]


IDS = np.array([7, 3, 7])


@functools.partial(jax.jit, static_argnums=(2, 4))
def draw(key, ids, heads, queries, size):
    return F.pair_uniform(F.example_keys(key, ids), heads, queries, size)


# a temperature that is known has a derivative of its own
@functools.partial(jax.jit, static_argnums=2)
def sigmoid_and_slopes(logits, uniform, temperature):
    """Gates, their gradients by both arguments, and hard gates with the same."""

    def value_and_slopes(f, **options):
        value, pull = jax.vjp(lambda *x: f(*x, temperature=temperature, **options), logits, uniform)
        return value, *pull(jnp.ones_like(value))

    def gumbel(a, u, **options):
        return F.gumbel_sigmoid(a, jnp.log(u) - jnp.log1p(-u), **options)

    return [
        [value_and_slopes(f, straight_through=hard) for f in (F.uniform_sigmoid, gumbel)]
        for hard in (False, True)
    ]


def solved(logits, uniform, temperature):
    return jax.tree.map(np.asarray, sigmoid_and_slopes(logits, uniform, temperature))


def test_noise_belongs_to_the_example_and_the_pair(rng):
    whole = np.asarray(draw(rng, IDS, M, np.arange(N), N))
    assert (whole > 0).all()
    assert (whole < 1).all()
    # the same example, a shorter text, fewer queries, another place in the batch
    np.testing.assert_array_equal(whole[0], whole[2])
    part = draw(rng, IDS[1:2], M, np.array([1, 3]), 3)
    np.testing.assert_array_equal(np.asarray(part)[0], whole[1][:, [1, 3], :3])
    values = whole[:2].ravel()
    assert len(np.unique(values)) == len(values)


def test_uniform_draws_are_uniform(rng):
    draws = np.asarray(draw(rng, np.arange(4), 2, np.arange(50), 50))
    # 20,000 draws: the standard error of a quantile is at most 0.0036
    for level in (0.1, 0.5, 0.9):
        assert abs((draws < level).mean() - level) < 0.015
    for axis in (1, 2, 3):
        pairs = [np.take(draws, range(k, draws.shape[axis] - 1 + k), axis).ravel() for k in (0, 1)]
        assert abs(np.corrcoef(*pairs)[0, 1]) < 0.03


@pytest.mark.parametrize("temperature", [0.1, 2.0])
def test_gates_from_uniforms_are_gumbel_sigmoids_of_the_same_noise(temperature, np_rng, x64):
    logits = np.concatenate([np_rng.normal(size=60) * 4, [0.0, 80.0, -80.0]])
    uniform = np_rng.uniform(0.001, 0.999, logits.shape)
    noise = np.log(uniform) - np.log1p(-uniform)

    (ours, theirs), (ours_hard, theirs_hard) = solved(logits, uniform, temperature)
    for got, wanted in zip((*ours, *ours_hard), (*theirs, *theirs_hard), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-8, atol=1e-12)
    np.testing.assert_array_equal(ours_hard[0], logits + noise > 0)
    np.testing.assert_array_equal(ours_hard[0], ours[0] > 0.5)


def test_a_traced_temperature_gives_the_same():
    logits, uniform = np.linspace(-3, 3, 7), np.linspace(0.1, 0.9, 7)
    logits, uniform = logits.astype(np.float32), uniform.astype(np.float32)
    known = solved(logits, uniform, 0.7)
    traced = jax.jit(sigmoid_and_slopes.__wrapped__)(logits, uniform, 0.7)
    chex.assert_trees_all_close(jax.tree.map(np.asarray, traced), known, **F32)


@pytest.mark.parametrize("value", [0.0, 100.0, -100.0, 1e4, -1e4])
def test_extreme_logits_and_temperatures_stay_finite(value):
    uniform, logits = np.float32([1e-7, 0.5, 1 - 1e-7]), np.full(3, value, np.float32)
    for temperature in (1e-3, 2.0):
        for (gates, slope, _), _ in solved(logits, uniform, temperature):
            assert ((gates >= 0) & (gates <= 1)).all()
            assert np.isfinite(slope).all()


@functools.partial(jax.jit, static_argnums=(2, 4))
def pair_bytes(key, ids, salt, queries, size):
    return F.pair_bytes(F.example_keys(key, ids), salt, queries, size)


@functools.partial(jax.jit, static_argnums=(2, 3))
def feature_bytes(key, ids, size, features):
    return F.feature_bytes(F.example_keys(key, ids), size, features)


def test_bytes_belong_to_the_example_and_the_place(rng):
    pairs = np.asarray(pair_bytes(rng, IDS, 11, np.arange(9), 8))
    assert pairs.dtype == np.uint8
    np.testing.assert_array_equal(pairs[0], pairs[2])
    short = np.asarray(pair_bytes(rng, IDS[1:2], 11, np.arange(4), 3))
    np.testing.assert_array_equal(short[0], pairs[1, :, :4, :3])
    features = np.asarray(feature_bytes(rng, IDS, 9, 21))
    part = np.asarray(feature_bytes(rng, IDS[1:2], 4, 21))
    np.testing.assert_array_equal(part[0], features[1, :4])
    np.testing.assert_array_equal(features[0], features[2])


def test_threefry_is_that_of_jax_and_of_the_published_vectors(np_rng):
    words = np_rng.integers(0, 2**32, (4, 50), dtype=np.uint32)
    for got, wanted in zip(*jax.jit(lambda *w: (threefry(*w), threefry2x32_p.bind(*w)))(*words),
                           strict=True):  # fmt: skip
        np.testing.assert_array_equal(got, wanted)
    one = jax.jit(threefry)
    known = {
        (0, 0, 0, 0): (0x6B200159, 0x99BA4EFE),
        (2**32 - 1,) * 4: (0x1CB996FC, 0xBB002BE7),
        (0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3): (0xC4923A9C, 0x483DF7A0),
    }
    for given, wanted in known.items():
        assert tuple(map(int, one(*map(np.uint32, given)))) == wanted


def test_another_generator_draws_too():
    key = jax.random.key(0, impl="rbg")
    draws = np.asarray(draw(key, np.arange(3), 2, np.arange(20), 20))
    assert abs(draws.mean() - 0.5) < 0.03
    assert len(np.unique(draws)) > 0.99 * draws.size


def test_statistics_count_real_pairs_alone(np_rng, x64):
    gates = (np_rng.random((B, M, N, N)) < 0.4).astype(float)
    gates[0, 1, 3] = 0
    logits = np_rng.normal(size=gates.shape) * 2
    p = 1 / (1 + np.exp(-logits))

    @jax.jit
    def run(gates, logits):
        return (
            F.selection_statistics(F.selection_counts(gates, MASK), MASK),
            F.mean_over_pairs(F.selection_entropy(logits, MASK), MASK),
            F.mean_over_pairs(F.selection_log_prob(logits, gates, MASK), MASK),
        )

    found, entropy, log_prob = jax.tree.map(np.asarray, run(gates, logits))
    for b, length in enumerate(LENGTHS):
        pairs = list(itertools.product(range(length), repeat=2))
        entropies, log_probs = [], []
        for m in range(M):
            chosen = [gates[b, m, i, j] for i, j in pairs]
            per_query = [sum(gates[b, m, i, :length]) for i in range(length)]
            mean = lambda x: np.mean(x) if len(x) else 0.0  # noqa: E731
            np.testing.assert_allclose(found.rate[b, m], mean(chosen), **F64)
            np.testing.assert_allclose(found.selected[b, m], mean(per_query), **F64)
            np.testing.assert_allclose(found.empty[b, m], mean([c == 0 for c in per_query]), **F64)
            for i, j in pairs:
                q = p[b, m, i, j]
                entropies.append(-q * np.log(q) - (1 - q) * np.log(1 - q))
                log_probs.append(np.log(q if gates[b, m, i, j] else 1 - q))
        np.testing.assert_allclose(entropy[b], mean(entropies), **F64)
        np.testing.assert_allclose(log_prob[b], mean(log_probs), **F64)


def test_statistics_of_extreme_logits_are_finite():
    logits = np.float32([[[[1e4, 1e4], [-1e4, -1e4]]]])

    @jax.jit
    def run(logits):
        both = (F.selection_entropy, lambda a: F.selection_log_prob(a, a))
        return [(f(logits), jax.grad(lambda a: f(a).sum())(logits)) for f in both]  # noqa: B023

    found = jax.tree.map(np.asarray, run(logits))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))
    np.testing.assert_allclose(found[0][0], 0, atol=1e-6)


@pytest.mark.parametrize("filling", [np.nan, -np.inf, np.inf])
def test_entropy_and_log_probability_know_no_padding_and_certain_pairs_have_none(filling):
    logits = np.float32([[[[0.5, filling, np.inf, -np.inf]]]])
    mask = np.array([[True, False, True, True]])
    gates = np.float32([[[[1, 1, 1, 0]]]])

    @jax.jit
    def run(logits):
        both = (F.selection_entropy, lambda a, m: F.selection_log_prob(a, gates, m))
        return [jax.value_and_grad(lambda a: f(a, mask).sum())(logits) for f in both]  # noqa: B023

    (entropy, d_entropy), (log_prob, d_log_prob) = jax.tree.map(np.asarray, run(logits))
    p = 1 / (1 + np.exp(-0.5))
    np.testing.assert_allclose(entropy, -p * np.log(p) - (1 - p) * np.log(1 - p), rtol=1e-6)
    np.testing.assert_allclose(log_prob, np.log(p), rtol=1e-6)
    np.testing.assert_allclose(d_entropy[0, 0, 0], [-0.5 * p * (1 - p), 0, 0, 0], rtol=1e-5)
    np.testing.assert_allclose(d_log_prob[0, 0, 0], [1 - p, 0, 0, 0], rtol=1e-6)


@pytest.mark.slow
def test_the_expected_reinforce_gradient_is_the_enumerated_one(x64):
    """N = 3: the mean over all selections, weighted by probability, of the surrogate's gradient."""
    logits = np.array([[0.3, -0.7, 1.1], [0.0, 0.4, -1.2], [2.0, -0.3, 0.6]])[None, None]
    scores = np.array([[1.0, -0.5, 0.2], [0.1, 0.9, -1.0], [0.3, 0.3, 0.8]])[None, None]
    target = np.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3], [0.1, 0.1, 0.8]])[None, None]

    def reward(gates):
        e = jnp.broadcast_to(scores, gates.shape)
        weights = F.selective_weights(e, gates, hard=True)
        return -jnp.sum((weights - target) ** 2, axis=(1, 2, 3))

    draws = np.array(list(itertools.product([0.0, 1.0], repeat=9))).reshape(-1, 1, 3, 3)
    many = np.broadcast_to(logits[0], draws.shape)
    rewards = np.asarray(jax.jit(reward)(draws))

    def probability(a):
        p = jax.nn.sigmoid(a)
        return jnp.prod(jnp.where(draws > 0, p, 1 - p), axis=(1, 2, 3))

    def surrogate(a, baseline):
        log_prob = F.selection_log_prob(jnp.broadcast_to(a, draws.shape), draws).sum(axis=(1, 2))
        return F.score_function_loss(log_prob, rewards, baseline)

    @jax.jit
    def run(a):
        wanted = jax.grad(lambda a: -jnp.sum(probability(a) * rewards))(a)
        each = lambda c: jax.grad(lambda a: jnp.sum(probability(many) * surrogate(a, c)))(a)  # noqa: E731
        return wanted, [each(baseline) for baseline in (0.0, 0.7)]

    wanted, found = run(many[0][None])
    for got in found:
        np.testing.assert_allclose(got, wanted, **F64)
