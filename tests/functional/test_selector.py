"""Noise of pairs, gates from uniform draws and statistics of a selection."""

import itertools

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


@pytest.fixture
def keys(rng):
    return F.example_keys(rng, jnp.array([7, 3, 7]))


def test_noise_belongs_to_the_example_and_the_pair(keys):
    draw = jax.jit(F.pair_uniform, static_argnums=(1, 3))
    whole = draw(keys, M, jnp.arange(N), N)
    assert (whole > 0).all()
    assert (whole < 1).all()
    # the same example, a shorter text, fewer queries, another place in the batch
    np.testing.assert_array_equal(whole[0], whole[2])
    part = draw(keys[1:2], M, jnp.array([1, 3]), 3)
    np.testing.assert_array_equal(part[0], whole[1][:, jnp.array([1, 3]), :3])
    values = np.asarray(whole[:2]).ravel()
    assert len(np.unique(values)) == len(values)


def test_uniform_draws_are_uniform(rng):
    draws = np.asarray(F.pair_uniform(F.example_keys(rng, jnp.arange(4)), 2, jnp.arange(50), 50))
    # 20,000 draws: the standard error of a quantile is at most 0.0036
    for level in (0.1, 0.5, 0.9):
        assert abs((draws < level).mean() - level) < 0.015
    for axis in (1, 2, 3):
        pairs = [np.take(draws, range(k, draws.shape[axis] - 1 + k), axis).ravel() for k in (0, 1)]
        assert abs(np.corrcoef(*pairs)[0, 1]) < 0.03


@pytest.mark.parametrize("temperature", [0.1, 0.5, 1.0, 2.0])
def test_gates_from_uniforms_are_gumbel_sigmoids_of_the_same_noise(temperature, np_rng, x64):
    logits = np.concatenate([np_rng.normal(size=60) * 4, [0.0, 80.0, -80.0]])
    uniform = np_rng.uniform(0.001, 0.999, logits.shape)
    noise = np.log(uniform) - np.log1p(-uniform)

    def gumbel(a, u, **options):
        return F.gumbel_sigmoid(a, jnp.log(u) - jnp.log1p(-u), **options)

    def value_and_slopes(f, straight_through):
        options = {"temperature": temperature, "straight_through": straight_through}
        g = lambda a, u: f(a, u, **options)  # noqa: E731
        slopes = jax.grad(lambda *x: g(*x).sum(), (0, 1))
        return jax.jit(lambda *x: (g(*x), *slopes(*x)))(logits, uniform)

    for straight_through in (False, True):
        ours = value_and_slopes(F.uniform_sigmoid, straight_through)
        for got, wanted in zip(ours, value_and_slopes(gumbel, straight_through), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-8, atol=1e-12)
    hard = F.uniform_sigmoid(logits, uniform, temperature=temperature, straight_through=True)
    np.testing.assert_array_equal(hard, logits + noise > 0)
    soft = F.uniform_sigmoid(logits, uniform, temperature=temperature)
    np.testing.assert_array_equal(hard, soft > 0.5)


def test_a_traced_temperature_gives_the_same():
    logits, uniform = jnp.linspace(-3, 3, 7), jnp.linspace(0.1, 0.9, 7)
    traced = jax.jit(lambda t: F.uniform_sigmoid(logits, uniform, temperature=t))(0.7)
    np.testing.assert_allclose(traced, F.uniform_sigmoid(logits, uniform, temperature=0.7), **F32)


def test_the_mean_of_hard_draws_is_the_probability(rng):
    logits = jnp.array([-2.0, 0.0, 1.0])[None, None, :, None]
    uniform = F.pair_uniform(F.example_keys(rng, jnp.arange(20)), 4, jnp.arange(3), 100)
    draws = F.uniform_sigmoid(
        jnp.broadcast_to(logits, uniform.shape), uniform, straight_through=True
    )
    # 8,000 draws each: a standard error of at most 0.0056
    np.testing.assert_allclose(
        draws.mean(axis=(0, 1, 3)), jax.nn.sigmoid(logits[0, 0, :, 0]), atol=0.02
    )


@pytest.mark.parametrize("value", [0.0, 100.0, -100.0, 1e4, -1e4])
def test_extreme_logits_and_temperatures_stay_finite(value):
    uniform = jnp.array([1e-7, 0.5, 1 - 1e-7])
    for temperature in (1e-3, 0.5, 1.0, 2.0):
        f = lambda a: F.uniform_sigmoid(a, uniform, temperature=temperature).sum()  # noqa: B023, E731
        gates = F.uniform_sigmoid(jnp.full((3,), value), uniform, temperature=temperature)
        assert ((gates >= 0) & (gates <= 1)).all()
        assert np.isfinite(jax.grad(f)(jnp.full((3,), value))).all()


def test_bytes_belong_to_the_example_and_the_place(keys):
    pairs = jax.jit(F.pair_bytes, static_argnums=(1, 3))(keys, 11, jnp.arange(9), 8)
    assert pairs.dtype == jnp.uint8
    np.testing.assert_array_equal(pairs[0], pairs[2])
    short = F.pair_bytes(keys[1:2], 11, jnp.arange(4), 3)
    np.testing.assert_array_equal(short[0], pairs[1, :, :4, :3])
    features = F.feature_bytes(keys, 9, 21)
    np.testing.assert_array_equal(F.feature_bytes(keys[1:2], 4, 21)[0], features[1, :4])
    np.testing.assert_array_equal(features[0], features[2])


def test_byte_dropout_keeps_the_mean_at_a_rate_of_so_many_256ths(keys):
    for draws in (F.pair_bytes(keys, 3, jnp.arange(40), 40), F.feature_bytes(keys, 40, 120)):
        ones = jnp.ones(draws.shape)
        dropped = F.byte_dropout(ones, 0.25, draws)
        np.testing.assert_allclose(np.unique(dropped), [0, 4 / 3], rtol=1e-6)
        # 4,800 draws an example: a standard error of 0.0063
        np.testing.assert_allclose((dropped > 0).reshape(B, -1).mean(axis=1), 0.75, atol=0.025)
        np.testing.assert_array_equal(F.byte_dropout(ones, 0.0, draws), ones)
        tenth = F.byte_dropout(ones, 0.1, draws)
        np.testing.assert_allclose(np.unique(tenth), [0, 256 / 230], rtol=1e-6)
    weights = jnp.ones((B, 3, 40, 40))
    wanted = F.byte_dropout(weights, 0.25, F.pair_bytes(keys, 3, jnp.arange(40), 40))
    np.testing.assert_array_equal(F.pair_dropout(weights, 0.25, keys), wanted)
    with pytest.raises(ValueError, match="rate"):
        F.byte_dropout(ones, 1.0, draws)
    with pytest.raises(ValueError, match="draws"):
        F.byte_dropout(ones, 0.5, draws[:1])


def test_threefry_is_that_of_jax_and_of_the_published_vectors(np_rng):
    words = [jnp.asarray(w) for w in np_rng.integers(0, 2**32, (4, 50), dtype=np.uint32)]
    for got, wanted in zip(threefry(*words), threefry2x32_p.bind(*words), strict=True):
        np.testing.assert_array_equal(got, wanted)
    known = {
        (0, 0, 0, 0): (0x6B200159, 0x99BA4EFE),
        (2**32 - 1,) * 4: (0x1CB996FC, 0xBB002BE7),
        (0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3): (0xC4923A9C, 0x483DF7A0),
    }
    for given, wanted in known.items():
        assert tuple(map(int, threefry(*map(jnp.uint32, given)))) == wanted


def test_another_generator_draws_too():
    keys = F.example_keys(jax.random.key(0, impl="rbg"), jnp.arange(3))
    draws = np.asarray(F.pair_uniform(keys, 2, jnp.arange(20), 20))
    assert abs(draws.mean() - 0.5) < 0.03
    assert len(np.unique(draws)) > 0.99 * draws.size


def test_statistics_count_real_pairs_alone(np_rng, x64):
    gates = (np_rng.random((B, M, N, N)) < 0.4).astype(float)
    gates[0, 1, 3] = 0
    logits = np_rng.normal(size=gates.shape) * 2
    p = 1 / (1 + np.exp(-logits))
    found = F.selection_statistics(F.selection_counts(gates, MASK), MASK)
    entropy = F.mean_over_pairs(F.selection_entropy(logits, MASK), MASK)
    log_prob = F.mean_over_pairs(F.selection_log_prob(logits, gates, MASK), MASK)
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
    logits = jnp.full((1, 1, 2, 2), 1e4) * jnp.array([1.0, -1.0])[None, None, :, None]
    for f in (F.selection_entropy, lambda a: F.selection_log_prob(a, a)):
        assert np.isfinite(f(logits)).all()
        assert np.isfinite(jax.grad(lambda a: f(a).sum())(logits)).all()  # noqa: B023
    np.testing.assert_allclose(F.selection_entropy(logits), 0, atol=1e-6)


def test_the_expected_reinforce_gradient_is_the_enumerated_one(x64):
    """N = 3: the mean over all selections, weighted by probability, of the surrogate's gradient."""
    logits = jnp.array([[0.3, -0.7, 1.1], [0.0, 0.4, -1.2], [2.0, -0.3, 0.6]])[None, None]
    scores = jnp.array([[1.0, -0.5, 0.2], [0.1, 0.9, -1.0], [0.3, 0.3, 0.8]])[None, None]
    target = jnp.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3], [0.1, 0.1, 0.8]])[None, None]

    def reward(gates):
        e = jnp.broadcast_to(scores, gates.shape)
        weights = F.selective_weights(e, gates, hard=True)
        return -jnp.sum((weights - target) ** 2, axis=(1, 2, 3))

    draws = jnp.array(list(itertools.product([0.0, 1.0], repeat=9))).reshape(-1, 1, 3, 3)
    many = jnp.broadcast_to(logits[0], draws.shape)
    rewards = reward(draws)

    def probability(a):
        p = jax.nn.sigmoid(a)
        return jnp.prod(jnp.where(draws > 0, p, 1 - p), axis=(1, 2, 3))

    wanted = jax.grad(lambda a: -jnp.sum(probability(a) * rewards))(many[0][None])

    def surrogate(a, baseline):
        log_prob = F.selection_log_prob(jnp.broadcast_to(a, draws.shape), draws).sum(axis=(1, 2))
        return F.score_function_loss(log_prob, rewards, baseline)

    for baseline in (0.0, 0.7):
        got = jax.grad(lambda a: jnp.sum(probability(many) * surrogate(a, baseline)))(  # noqa: B023
            many[0][None]
        )
        np.testing.assert_allclose(got, wanted, **F64)


def test_bad_input_is_named(keys):
    with pytest.raises(ValueError, match="uniform"):
        F.uniform_sigmoid(jnp.ones(3), jnp.ones(4))
    with pytest.raises(ValueError, match="temperature"):
        F.uniform_sigmoid(jnp.ones(3), jnp.ones(3), temperature=0.0)
    with pytest.raises(TypeError, match="gates"):
        F.selection_counts(jnp.ones((B, M, N, N), int))
    with pytest.raises(ValueError, match="pair"):
        F.selection_counts(jnp.ones((B, N, N)))
    with pytest.raises(ValueError, match="query"):
        F.selection_statistics(jnp.ones((B, N)))
    with pytest.raises(TypeError, match="mask"):
        F.selection_counts(jnp.ones((B, M, N, N)), jnp.ones((B, N)))
