"""What stands at padding has no effect, and a NaN at a real position is seen, in every function."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import functional as F
from gatedjax import nn as gnn
from tests.functional._calls import calls

CALLS = calls()
LENGTHS = np.array([5, 3, 0, 4])
GARBAGE = (np.nan, np.inf, -np.inf, 1e30)
# of every function with a mask: the axes of its arguments that have padding
PADDED = {
    "attention_pool": {"states": (1,), "weights": (1,)},
    "bidirectional": {"xs": (1,)},
    "compact_attention_pool": {"states": (1,), "gates": (1,)},
    "ensure_open": {"gates": (1,), "logits": (1,)},
    "gate_penalty": {"gates": (1,)},
    "gated_attention": {"query": (1,)},
    "gated_softmax": {"scores": (1,), "gates": (1,)},
    "gru": {"xs": (1,)},
    "gru reset after": {"xs": (1,)},
    "hard_gates": {"logits": (1,)},
    "linear_cross_entropy": {"h": (1,)},
    "local_attention_weights": {"scores": (1,)},
    "local_attention_weights of a mask": {"scores": (1,)},
    "lstm": {"xs": (1,)},
    "masked_scan": {"xs": (1,)},
    "masked_softmax": {"scores": (1,)},
    "mean_over_pairs": {"sums": (2,), "num_keys": (2,)},
    "open_indices": {"gates": (1,)},
    "pointer_sum": {"logits": (1,)},
    "pointer_sum_indexed": {"logits": (1,)},
    "relaxed_gated_softmax": {"scores": (1,), "log_gates": (1,)},
    "relaxed_selective_attention": {"key": (2,), "value": (2,), "log_gates": (3,)},
    "selection_counts": {"gates": (3,)},
    "selection_entropy": {"logits": (3,)},
    "selection_log_prob": {"logits": (3,), "gates": (3,)},
    "selection_statistics": {"counts": (2,)},
    "selection_vectors": {"words": (1,)},
    "selective_attention": {"key": (2,), "value": (2,), "gates": (3,)},
    "selective_attention of pairs": {"key": (2,), "value": (2,), "gates": (3,)},
    "selective_weights": {"scores": (3,), "gates": (3,)},
    "source_to_token": {"states": (1,), "logits": (1,)},
} | {name: {"xs": (1,)} for name in CALLS if name.startswith(("rau ", "rau_attention "))}
# compiled with every run of the tests, the others with the slow ones
QUICK = ("attention_pool", "compact_attention_pool", "hard_gates", "local_attention_weights")


def real_positions(array, axes):
    """True where an array [ROWS, ...] holds no padding along its axes of time."""
    real = np.ones(array.shape, bool)
    for axis in axes:
        size = array.shape[axis]
        part = np.arange(size) < LENGTHS[:, None]
        real &= part.reshape(4, *(size if i == axis else 1 for i in range(1, array.ndim)))
    return real


def cost(found):
    """A sum in which every number has a weight of its own."""
    total = 0.0
    for leaf in jax.tree.leaves(found):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            finite = jnp.where(jnp.isinf(leaf), 0, leaf)
            total += jnp.sum(finite * jnp.cos(jnp.arange(finite.size)).reshape(finite.shape))
    return total


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PADDED],
)
def test_what_stands_at_padding_has_no_effect_on_values_or_gradients(name):
    call, axes = CALLS[name], PADDED[name]
    others = {key: value for key, value in call.rows.items() if key not in axes}

    @jax.jit
    def run(rows, shared):
        def value(rows, shared):
            found = call.function(shared, {**others, **rows})
            return cost(found), found

        return jax.grad(value, (0, 1), has_aux=True)(rows, shared)

    real = {key: real_positions(call.rows[key], axes[key]) for key in axes}
    results = []
    for garbage in (0, *GARBAGE):
        rows = {key: np.where(real[key], call.rows[key], np.float32(garbage)) for key in axes}
        results.append(jax.tree.map(np.asarray, run(rows, call.shared)))
    (slopes, of_shared), found = results[0]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((slopes, of_shared)))
    assert not any(np.isnan(leaf).any() for leaf in jax.tree.leaves(found))
    for key in axes:
        np.testing.assert_array_equal(slopes[key][~real[key]], 0)
    for other in results[1:]:
        chex.assert_trees_all_equal(other, ((slopes, of_shared), found))


@pytest.mark.parametrize(
    "real", [{"lengths": np.array([2, 0])}, {"mask": np.array([[True, True, False], 3 * [False]])}]
)
def test_a_row_without_a_token_has_no_position_of_local_attention(real):
    scores = np.zeros((2, 3), np.float32)

    def value(position):
        weights = F.local_attention_weights(scores, position, 2.0, **real)
        return jnp.sum(weights), weights

    positions = np.array([0.25, np.nan], np.float32)
    slope, weights = jax.jit(jax.grad(value, has_aux=True))(positions)
    np.testing.assert_array_equal(weights[1], 0)
    assert slope[1] == 0
    assert slope[0] != 0


def test_attention_pool_takes_no_state_of_weight_0_and_shows_nan_elsewhere():
    states = np.ones((3, 4, 2), np.float32)
    states[0, 3], states[1, 0], states[2, 2:] = np.nan, np.nan, np.inf
    weights = np.array([[0.5, 0.25, 0.25, 0], [0.5, 0.5, 0, 0], [1, 0, 0, 0]], np.float32)

    @jax.jit
    def run(states, weights):
        mask = np.array([[True] * 3 + [False], [True] * 4, [True] * 2 + [False] * 2])
        both = lambda s, w: (F.attention_pool(s, w), F.attention_pool(s, w, mask))  # noqa: E731
        slopes = jax.grad(lambda s, w: sum(x.sum() for x in both(s, w)), (0, 1))(states, weights)
        return both(states, weights), slopes

    pooled, (of_states, of_weights) = jax.tree.map(np.asarray, run(states, weights))
    for found in pooled:
        np.testing.assert_array_equal(found[[0, 2]], 1)
        assert np.isnan(found[1]).all()
    assert np.isfinite(of_states).all()
    assert np.isnan(of_weights[1, 0])
    assert np.isfinite(of_weights[[0, 2]]).all()
    # a closed gate keeps its gradient: 2 features by each of two pools, one with a mask
    np.testing.assert_array_equal(of_weights[1, 2:], 4)
    np.testing.assert_array_equal(of_weights[0, 3], 0)


@pytest.mark.slow
def test_the_module_of_attention_pooling_takes_anything_at_padding():
    states = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
    mask = np.arange(4) < np.array([[4], [2]])
    pool = gnn.AttentionPool("mlp1")
    params = pool.init(jax.random.key(0), states, mask)

    @jax.jit
    def run(params, states):
        value = lambda p, s: jnp.sum(pool.apply(p, s, mask)[0] ** 2)  # noqa: E731
        return jax.value_and_grad(value, (0, 1))(params, states)

    want = jax.tree.map(np.asarray, run(params, np.where(mask[..., None], states, 0)))
    for garbage in GARBAGE:
        got = run(params, np.where(mask[..., None], states, np.float32(garbage)))
        chex.assert_trees_all_equal(got, want)


NAN = np.float32(np.nan)
LOGITS = np.array([[0.5, NAN, -1.0], [0.5, 2.0, -1.0]], np.float32)
HEALTHY = np.array([[0.5, 2.0, -1.0]] * 2, np.float32)
NOISE = np.full((2, 3), 0.25, np.float32)
REAL = np.ones((2, 3), bool)
HARD = np.array([[1, NAN, 0], [1, 1, 0]], np.float32)
SHUT = np.array([[0, NAN, 0], [0, 0, 0]], np.float32)


def seen(tau):
    """name -> the result [2, ...] of a function whose first row has a NaN at a real position."""
    key = jax.random.key(0)
    soft = {"temperature": 0.5, "straight_through": True}
    closed = jnp.asarray(SHUT)
    keys = jnp.ones((2, 1, 3))
    pairs = {
        f"selective_weights {empty} {hard}": F.selective_weights(
            HEALTHY[:, None], closed[:, None], hard=hard, empty=empty, positions=jnp.arange(1)
        )
        for empty in ("zero", "self", "all")
        for hard in (False, True)
    }
    return pairs | {
        "threshold_gates": F.threshold_gates(LOGITS),
        "sample_gates": F.sample_gates(LOGITS, key=key),
        "gumbel_sigmoid": F.gumbel_sigmoid(LOGITS, NOISE, **soft),
        "gumbel_sigmoid cold": F.gumbel_sigmoid(LOGITS, NOISE, temperature=tau),
        "log_gumbel_sigmoid cold": F.log_gumbel_sigmoid(LOGITS, NOISE, temperature=tau),
        "gumbel_softmax": F.gumbel_softmax(LOGITS, NOISE, **soft),
        "gumbel_softmax cold": F.gumbel_softmax(LOGITS, NOISE, temperature=tau),
        "uniform_sigmoid": F.uniform_sigmoid(LOGITS, NOISE, **soft),
        "uniform_sigmoid cold": F.uniform_sigmoid(LOGITS, NOISE, temperature=tau),
        "ensure_open": F.ensure_open(0 * NOISE, LOGITS, REAL)[0],
        "ensure_open of gates": F.ensure_open(closed, HEALTHY, REAL)[0],
        **{
            f"hard_gates {empty}": F.hard_gates(LOGITS - 3, REAL, empty=empty)
            for empty in ("max_gate", "zero", "soft")
        },
        "gated_softmax": F.gated_softmax(HEALTHY, jnp.asarray(HARD)),
        "gated_softmax of a closed gate": F.gated_softmax(LOGITS, jnp.eye(3)[:2] * 0 + 1 - REAL),
        "selective_weights of a closed key": F.selective_weights(
            LOGITS[:, None], jnp.asarray(0 * NOISE)[:, None], hard=True
        ),
        "compact_attention_pool": F.compact_attention_pool(
            lambda states: states[..., 0], HEALTHY[..., None], jnp.asarray(HARD), capacity=2
        ).pooled,
        "selection_log_prob": F.selection_log_prob(HEALTHY[:, None, None], HARD[:, None, None]),
        "selection_statistics": F.selection_statistics(HARD[:, None])._asdict(),
        "mean_over_pairs": F.mean_over_pairs(HEALTHY[:, None], num_keys=keys * LOGITS[:, None]),
    }


def test_a_nan_at_a_real_position_is_seen_in_its_row_and_in_no_other():
    found = jax.tree.map(np.asarray, jax.jit(seen)(np.float32(0)))
    for name, results in found.items():
        for result in jax.tree.leaves(results):
            assert np.isnan(result[0]).any(), name
            assert not np.isnan(result[1]).any(), name


@pytest.mark.slow
def test_a_nan_among_gates_has_gradients_of_nan():
    def gradients(gates, scores):
        weigh = {
            "gated": lambda g, e: F.gated_softmax(e, g),
            "hard": lambda g, e: F.selective_weights(e, g, hard=True),
            "compact": lambda g, e: (
                F.compact_attention_pool(
                    lambda states: states[..., 0], e[..., None], g, capacity=2
                ).pooled
            ),
        }
        return {
            name: jax.grad(lambda e, f=f: jnp.sum(f(gates, e) ** 2))(scores)
            for name, f in weigh.items()
        }

    for name, slope in jax.jit(gradients)(HARD, HEALTHY).items():
        assert np.isnan(slope[0]).any(), name
        assert np.isfinite(slope[1]).all(), name
