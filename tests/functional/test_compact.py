"""Compacted attention against loops over the open tokens, and against the dense form."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax.functional._compact import compact_attention_pool, open_indices, plan_capacity
from tests.tolerances import BF16, F32, F64

# Rows: some open, all open, all closed, one open at the end, open gates at padding only, empty.
GATES = np.array(
    [
        [1, 0, 1, 1, 0, 0, 1],
        [1, 1, 1, 1, 1, 1, 1],
        [0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 1],
        [0, 0, 0, 0, 1, 1, 1],
        [1, 1, 1, 1, 1, 1, 1],
    ],
    np.float32,
)
LENGTHS = np.array([7, 5, 7, 7, 4, 0])
MASK = np.arange(7)[None, :] < LENGTHS[:, None]
MASK[0, 0] = False  # padding before the text
OPEN = (GATES > 0) & MASK
B, T, D = 6, 7, 3


def open_loop(is_open, capacity):
    """Indices, valid and overflow, one token at a time."""
    indices = np.zeros((len(is_open), capacity), int)
    valid = np.zeros((len(is_open), capacity), bool)
    overflow = np.zeros(len(is_open), int)
    for b, row in enumerate(is_open):
        slot = 0
        for t, value in enumerate(row):
            if not value:
                continue
            if slot == capacity:
                overflow[b] += 1
                continue
            indices[b, slot], valid[b, slot] = t, True
            slot += 1
    return indices, valid, overflow


def pool_loop(states, scores, is_open):
    """Softmax over the open set and the weighted sum, one row at a time."""
    weights, pooled = np.zeros(scores.shape), np.zeros((len(states), states.shape[-1]))
    for b in range(len(states)):
        chosen = [t for t in range(states.shape[1]) if is_open[b, t]]
        if not chosen:
            continue
        top = max(scores[b, t] for t in chosen)
        total = sum(np.exp(scores[b, t] - top) for t in chosen)
        for t in chosen:
            weights[b, t] = np.exp(scores[b, t] - top) / total
            pooled[b] += weights[b, t] * states[b, t]
    return pooled, weights


def first_open(is_open, capacity):
    """The open tokens that fit."""
    return is_open & (np.cumsum(is_open, axis=-1) <= capacity)


def score(params, states):
    """w . tanh(W h + b)."""
    kernel, bias, vector = params
    bias = bias.reshape((1,) * (states.ndim - 1) + bias.shape)
    return jnp.tanh(states @ kernel + bias) @ vector


def score_numpy(params, states):
    kernel, bias, vector = (np.asarray(p, np.float64) for p in params)
    return np.tanh(np.asarray(states, np.float64) @ kernel + bias) @ vector


@pytest.fixture
def params(np_rng):
    return tuple(np_rng.normal(size=s).astype(np.float32) for s in ((D, D), (D,), (D,)))


@pytest.fixture
def states(np_rng):
    return np_rng.normal(size=(B, T, D)).astype(np.float32)


@functools.partial(jax.jit, static_argnames=("capacity", "overflow"))
def pool(params, states, gates, mask, **options):
    return compact_attention_pool(lambda h: score(params, h), states, gates, mask=mask, **options)


def run(params, states, gates=GATES, mask=MASK, overflow="dense", **options):
    found = pool(params, states, gates, mask, overflow=overflow, **options)
    return jax.tree.map(np.asarray, found)


find_open = jax.jit(open_indices, static_argnames="capacity")


# ---- the indices


@pytest.mark.parametrize("capacity", [1, np.int64(4), 7, 100])
def test_indices_equal_the_loop(capacity):
    got = find_open(GATES, MASK, capacity=capacity)
    for mine, want in zip(got, open_loop(OPEN, min(capacity, T)), strict=True):
        np.testing.assert_array_equal(mine, want)
    assert [a.dtype for a in got] == [jnp.int32, jnp.bool_, jnp.int32]


def test_random_indices_equal_the_loop(np_rng):
    for size, capacity, density in [(1, 1, 0.5), (65, 40, 0.8)]:
        is_open = np_rng.random((9, size)) < density
        got = find_open(is_open, capacity=capacity)
        for mine, want in zip(got, open_loop(is_open, capacity), strict=True):
            np.testing.assert_array_equal(mine, want)


@pytest.mark.parametrize("dtype", [bool, np.int32, np.float32, jnp.bfloat16])
def test_indices_are_the_same_for_every_kind_of_gate(dtype):
    got = find_open(GATES.astype(dtype), MASK, capacity=4)
    for mine, want in zip(got, open_loop(OPEN, 4), strict=True):
        np.testing.assert_array_equal(mine, want)


def test_nan_and_negative_gates_are_closed():
    gates = np.float32([[np.nan, 1.0, -1.0, 0.25]])
    indices, valid, overflow = open_indices(gates, capacity=3)
    np.testing.assert_array_equal(indices, [[1, 3, 0]])
    np.testing.assert_array_equal(valid, [[True, True, False]])
    np.testing.assert_array_equal(overflow, [0])


# ---- the pool


@pytest.mark.parametrize("overflow", ["dense", "truncate"])
@pytest.mark.parametrize("capacity", [1, 4, 50])
def test_pool_equals_the_loop_over_all_open_tokens_or_over_the_first(
    capacity, overflow, params, states
):
    got = run(params, states, capacity=capacity, overflow=overflow)
    kept = first_open(OPEN, capacity)
    attended = kept if overflow == "truncate" else OPEN
    pooled, weights = pool_loop(states, score_numpy(params, states), attended)
    np.testing.assert_allclose(got.pooled, pooled, **F32)
    np.testing.assert_allclose(got.weights, weights, **F32)
    np.testing.assert_array_equal(got.overflow, OPEN.sum(axis=-1) - kept.sum(axis=-1))
    assert np.any(got.overflow > 0) == (capacity < T)


def test_only_the_slots_are_scored(params, states):
    seen = []

    def counted(h):
        seen.append(h.shape)
        return score(params, h)

    options = {"capacity": 4, "mask": MASK, "overflow": "truncate"}
    jax.eval_shape(lambda h: compact_attention_pool(counted, h, GATES, **options), states)
    assert seen == [(B, 4, D)]


@pytest.mark.parametrize(("capacity", "overflow"), [(4, "dense"), (4, "truncate"), (7, "dense")])
def test_closed_and_padded_states_have_no_effect(capacity, overflow, params, states):
    def objective(states, params):
        got = compact_attention_pool(
            lambda h: score(params, h),
            states,
            GATES,
            capacity=capacity,
            mask=MASK,
            overflow=overflow,
        )
        return jnp.sum(got.pooled**2), got

    grad = jax.jit(jax.grad(objective, argnums=(0, 1), has_aux=True))
    clean, out = grad(states, params)
    other = np.where(MASK, np.float32(-37), np.float32(np.nan))
    dirty, again = grad(np.where(OPEN[..., None], states, other[..., None]), params)
    dirty, again = jax.tree.map(np.asarray, (dirty, again))
    for mine, want in zip(jax.tree.leaves((dirty, again)), jax.tree.leaves((clean, out)),
                          strict=True):  # fmt: skip
        assert np.all(np.isfinite(mine))
        np.testing.assert_allclose(mine, want, **F32)
    np.testing.assert_array_equal(dirty[0][~OPEN], 0.0)


@pytest.mark.parametrize(("capacity", "overflow"), [(2, "dense"), (2, "truncate"), (7, "truncate")])
def test_gradients_equal_those_of_the_dense_form(capacity, overflow, params, states, np_rng, x64):
    params = tuple(np.asarray(p, np.float64) for p in params)
    states = np.asarray(states, np.float64)
    d_pooled, d_weights = np_rng.normal(size=(B, D)), np_rng.normal(size=(B, T))
    attended = first_open(OPEN, capacity) if overflow == "truncate" else OPEN

    def compact(states, params):
        got = compact_attention_pool(
            lambda h: score(params, h),
            states,
            GATES,
            capacity=capacity,
            mask=MASK,
            overflow=overflow,
        )
        return jnp.sum(got.pooled * d_pooled) + jnp.sum(got.weights * d_weights)

    def dense(states, params):
        # written out, without the library's softmax
        powers = jnp.where(attended, jnp.exp(score(params, states)), 0)
        total = powers.sum(axis=-1, keepdims=True)
        weights = powers / jnp.where(total == 0, 1, total)
        pooled = jnp.einsum("bt,btd->bd", weights, states)
        return jnp.sum(pooled * d_pooled) + jnp.sum(weights * d_weights)

    @jax.jit
    def both(states, params):
        return [jax.value_and_grad(f, argnums=(0, 1))(states, params) for f in (compact, dense)]

    got, want = both(states, params)
    chex.assert_trees_all_close(got, want, **F64)


def test_gates_get_no_gradient(params, states):
    def objective(gates):
        got = compact_attention_pool(lambda h: score(params, h), states, gates, capacity=5)
        return jnp.sum(got.pooled**2)

    half = GATES * np.float32(0.5)
    np.testing.assert_array_equal(jax.jit(jax.grad(objective))(half), 0.0)


def test_leading_axes_equal_the_batch(params, states):
    options = {"capacity": 4, "overflow": "dense"}
    want = run(params, states, **options)
    folded = run(
        params,
        states.reshape(2, 3, T, D),
        GATES.reshape(2, 3, T),
        MASK.reshape(2, 3, T),
        **options,
    )
    for mine, right in zip(folded, want, strict=True):
        np.testing.assert_allclose(mine.reshape(right.shape), right, **F32)


def test_bfloat16_softmax_is_computed_in_float32(np_rng):
    size = 2048
    h = np_rng.normal(size=(1, size, 2)).astype(jnp.bfloat16)
    gates = np.arange(size)[None, :] < 1024
    call = functools.partial(compact_attention_pool, lambda x: x[..., 0], capacity=1024)
    got = jax.tree.map(np.asarray, jax.jit(call)(h, gates))
    assert got.pooled.dtype == got.weights.dtype == jnp.bfloat16
    wide = np.asarray(h.astype(np.float32), np.float64)
    pooled, weights = pool_loop(wide, wide[..., 0], gates)
    np.testing.assert_allclose(got.pooled.astype(np.float32), pooled, **BF16)
    np.testing.assert_allclose(got.weights.astype(np.float32), weights, **BF16)
    # A sum of 1,024 terms kept in bfloat16 would stall far below 1.
    assert abs(float(got.weights.astype(np.float32).sum()) - 1) < 2e-3


def test_extreme_scores_have_finite_weights_and_gradients(states):
    def objective(h):
        got = compact_attention_pool(lambda x: 1e4 * x[..., 0], h, GATES, capacity=5, mask=MASK)
        return jnp.sum(got.pooled), got

    grads, got = jax.jit(jax.grad(objective, has_aux=True))(states)
    assert np.all(np.isfinite(grads))
    np.testing.assert_allclose(got.weights.sum(axis=-1), OPEN.any(axis=-1), **F32)


@pytest.mark.parametrize("shape", [(0, T, D), (B, 0, D)])
def test_empty_batches_and_empty_rows_give_zeros(shape):
    call = functools.partial(compact_attention_pool, lambda h: h.sum(axis=-1), capacity=3)
    got = jax.jit(call)(np.ones(shape, np.float32), np.ones(shape[:2], np.float32))
    np.testing.assert_array_equal(got.pooled, np.zeros((shape[0], D)))
    assert got.weights.shape == shape[:2]
    assert got.overflow.shape == shape[:1]


# ---- the capacity


@pytest.mark.parametrize(
    ("counts", "quantile", "multiple", "want"),
    [
        ([3, 9, 17], 1.0, 8, 24),
        ([3, 9, 16], 1.0, 8, 16),
        ([0, 0], 1.0, 8, 8),
        ([7], 0.5, 1, 7),
        ([1, 10], 0.5, 1, 10),
        ([0], 0.5, 1, 1),
        (range(1, 101), 0.9, 1, 91),
        (range(1, 101), 0.0, 1, 1),
        ([[1, 2], [3, 4]], 1.0, 4, 4),
    ],
)
def test_planned_capacity(counts, quantile, multiple, want):
    counts = np.asarray(list(counts))
    assert plan_capacity(counts, quantile, multiple) == want


def test_planned_share_of_rows_fits(np_rng):
    counts = np_rng.integers(0, 200, size=501)
    for quantile in (0.5, 0.9, 0.99, 1.0):
        assert np.mean(counts <= plan_capacity(counts, quantile, 1)) >= quantile
