"""Paired tests against enumerations of every outcome."""

import itertools
import math

import numpy as np
import pytest

from gatedjax import analysis


def pair(only_a, only_b, both=3, neither=2):
    """Correctness of two systems with these counts."""
    a = [1] * only_a + [0] * only_b + [1] * both + [0] * neither
    b = [0] * only_a + [1] * only_b + [1] * both + [0] * neither
    return np.array(a, bool), np.array(b, bool)


def enumerated(b, c):
    """The share of all 2^n coin sequences that split at least as unevenly."""
    total = b + c
    outcomes = itertools.product((0, 1), repeat=total)
    far = sum(abs(2 * sum(o) - total) >= abs(b - c) for o in outcomes)
    return far / 2**total


@pytest.mark.parametrize(("b", "c"), [(0, 0), (1, 0), (0, 5), (3, 3), (2, 7), (8, 4), (6, 5)])
def test_mcnemar_equals_the_enumeration(b, c):
    got = analysis.mcnemar(*pair(b, c))
    assert (got.b, got.c) == (b, c)
    assert got.p_value == pytest.approx(enumerated(b, c), rel=1e-14)


@pytest.mark.parametrize(("b", "c"), [(0, 40), (120, 180), (900, 1001), (2000, 2000), (5, 3000)])
def test_mcnemar_equals_scipy(b, c):
    stats = pytest.importorskip("scipy.stats")
    want = stats.binomtest(b, b + c, 0.5).pvalue
    assert analysis.mcnemar(*pair(b, c)).p_value == pytest.approx(want, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize(("b", "c"), [(0, 0), (5, 0), (0, 5), (3, 3), (2, 7), (8, 4)])
def test_one_sided_mcnemar_is_the_tail_from_b_on(b, c):
    tail = sum(math.comb(b + c, k) for k in range(b, b + c + 1)) / 2 ** (b + c)
    got = analysis.mcnemar(*pair(b, c), alternative="greater")
    assert got == (b, c, pytest.approx(tail, rel=1e-14))


def test_one_sided_mcnemar_and_the_proportion_test_give_the_published_numbers():
    assert round(analysis.mcnemar(*pair(10, 2), alternative="greater").p_value, 5) == 0.01929
    # Dhingra et al. 2017: CBT-NE 74.9 against 73.2 (p 0.028), CNN 77.9 against 77.6
    assert 0.027 < analysis.proportion_test(0.749, 0.732, 2_500).p_value < 0.028
    assert round(analysis.proportion_test(0.779, 0.776, 3_198).p_value, 2) == 0.34
    assert analysis.proportion_test(0.5, 0.5, 10) == (0.0, 0.5)
    assert analysis.proportion_test(0.4, 0.5, 100).p_value == pytest.approx(0.97725, abs=1e-5)


def test_mcnemar_of_a_whole_test_set_is_finite():
    got = analysis.mcnemar(*pair(12_700, 12_300))
    assert 0.001 < got.p_value < 0.05
    assert analysis.mcnemar(*pair(0, 2000)).p_value == 0.0  # below the least float


def test_mcnemar_without_examples_is_one():
    assert analysis.mcnemar([], []) == (0, 0, 1.0)


def test_summary_is_mean_and_sample_deviation():
    got = analysis.summary([0.90, 0.92, 0.97])
    assert got.mean == pytest.approx(0.93)
    assert got.std == pytest.approx(math.sqrt((0.03**2 + 0.01**2 + 0.04**2) / 2))
    assert got.n == 3
    assert analysis.summary([0.5]) == (0.5, None, 1)


@pytest.mark.parametrize("p_values", [(0.04,), (0.01, 0.04, 0.03), (0.5, 0.02, 0.02, 0.9, 0.001)])
def test_holm_equals_closed_testing_by_enumeration_of_every_subset(p_values):
    # corrected p of test i: the largest Bonferroni p of a subset of the tests that has i
    tests = range(len(p_values))
    want = []
    for i in tests:
        subsets = [
            chosen
            for size in range(1, len(p_values) + 1)
            for chosen in itertools.combinations(tests, size)
            if i in chosen
        ]
        want.append(max(min(1, len(c) * min(p_values[j] for j in c)) for c in subsets))
    np.testing.assert_allclose(analysis.holm(p_values), want, rtol=1e-12)


def test_holm_takes_no_p_values():
    assert analysis.holm([]).shape == (0,)
