"""Densities and truth scores on masks made by hand, and against counting loops."""

import numpy as np
import pytest

from gatedjax import analysis

NAN = float("nan")
GATES = np.array([[1, 0, 1, 0], [1, 1, 9, NAN], [0, 0, 0, 1], [1, 1, 1, 1]])
LENGTHS = np.array([4, 2, 3, 0])


def test_density_of_a_mask_made_by_hand():
    got = analysis.density(GATES, LENGTHS)
    assert got.sentence == pytest.approx((2 / 4 + 2 / 2 + 0 / 3) / 3)
    assert got.token == pytest.approx(4 / 9)
    assert got.empty_rate == pytest.approx(1 / 3)


def test_density_of_soft_gates_is_their_mean():
    got = analysis.density([[0.25, 0.75, 5.0], [0.1, 0.0, 0.5]], [2, 3])
    assert got.sentence == pytest.approx((0.5 + 0.2) / 2)
    assert got.token == pytest.approx(1.6 / 5)
    assert got.empty_rate == 0


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (3, 4)])
def test_density_of_nothing_is_nan(shape):
    got = analysis.density(np.ones(shape), np.zeros(shape[0], int))
    assert np.all(np.isnan(got))


def test_density_sums_bfloat16_and_bool_without_loss():
    import jax.numpy as jnp

    gates = np.ones((1, 1001), bool)
    gates[0, 0] = False
    for given in (gates, jnp.asarray(gates, jnp.bfloat16)):
        assert analysis.density(given, [1001]).token == 1000 / 1001


def truth_loop(gates, truth, lengths):
    hit = opened = true = 0
    for g, t, n in zip(gates, truth, lengths, strict=True):
        for i in range(n):
            hit += g[i] > 0 and bool(t[i])
            opened += g[i] > 0
            true += bool(t[i])
    return hit, opened, true


def test_truth_scores_equal_the_loop(np_rng):
    lengths = np_rng.integers(0, 8, size=30)
    gates, truth = np_rng.random((30, 7)) < 0.4, np_rng.random((30, 7)) < 0.3
    hit, opened, true = truth_loop(gates, truth, lengths)
    got = analysis.gate_truth(gates, truth, lengths)
    assert got.precision == pytest.approx(hit / opened)
    assert got.recall == pytest.approx(hit / true)
    precision, recall = hit / opened, hit / true
    assert got.f1 == pytest.approx(2 * precision * recall / (precision + recall))
    assert got.support == true


def test_truth_scores_of_perfect_gates_are_one_and_ignore_padding():
    got = analysis.gate_truth([[1.0, 0.0, 1.0]], [[True, False, False, True]], [2])
    assert got == (1.0, 1.0, 1.0, 1)


@pytest.mark.parametrize(
    ("gates", "truth", "want"),
    [
        ([[0, 0]], [[1, 0]], (0.0, 0.0, 0.0, 1)),  # no gate open
        ([[1, 0]], [[0, 0]], (0.0, 0.0, 0.0, 0)),  # nothing true
        ([[0, 0]], [[0, 0]], (0.0, 0.0, 0.0, 0)),  # neither
        ([[1, 0]], [[0, 1]], (0.0, 0.0, 0.0, 1)),  # no hit
    ],
)
def test_truth_scores_without_a_hit_are_the_stated_values(gates, truth, want):
    assert analysis.gate_truth(gates, truth, [2]) == want


def test_pad_fills_at_the_right_and_keeps_the_dtype():
    got = analysis.pad([(True, False), (), np.array([True])])
    assert got.dtype == bool
    np.testing.assert_array_equal(got, [[1, 0], [0, 0], [1, 0]])
    np.testing.assert_array_equal(analysis.pad([[1, 2], [3]], value=-1), [[1, 2], [3, -1]])
    assert (analysis.pad([]).shape, analysis.pad([]).dtype) == ((0, 0), np.float32)
    assert analysis.pad([(), ()]).shape == (2, 0)
