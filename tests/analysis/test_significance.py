"""Paired tests against enumerations of every outcome."""

import itertools
import math

import numpy as np
import pytest

from gatedjax import analysis
from gatedjax.analysis._significance import least_p_value


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


def test_mcnemar_without_examples_is_one():
    assert analysis.mcnemar([], []) == (0, 0, 1.0)


def exact_bootstrap(differences):
    """The distribution of the resampled mean, from all n^n resamples."""
    n = len(differences)
    means = [sum(d) / n for d in itertools.product(differences, repeat=n)]
    observed = sum(differences) / n
    far = [abs(m - observed) >= abs(observed) - 1e-12 for m in means]
    return np.array(means), float(np.mean(far))


@pytest.mark.parametrize(
    "differences",
    [[1, 1, 1, 1, 0, -1], [1, 0, 0, 0, 0, 0], [1, -1, 0, 0, 1, 1], [1 / 3, -2 / 3, 1]],
)
def test_bootstrap_agrees_with_all_resamples(differences):
    means, p_value = exact_bootstrap(differences)
    got = analysis.paired_bootstrap(differences, np.zeros(len(differences)), samples=40_000)
    assert got.difference == pytest.approx(np.mean(differences))
    # five standard errors of a share estimated from 40,000 samples
    assert got.p_value == pytest.approx(p_value, abs=5 * 0.5 / math.sqrt(40_000))
    low, high = np.percentile(means, [2.5, 97.5])
    step = 1 / len(differences)  # the distribution is discrete: one atom of freedom
    assert abs(got.low - low) <= step
    assert abs(got.high - high) <= step


GROUPED = [
    ([1, 1, 0, -1, 0, 1, 1, 0], [0, 0, 1, 1, 2, 2, 3, 3]),
    ([1, 1, 1, -1, 0, -1, 0], [4, 4, 4, 7, 7, 2, 5]),  # of several sizes
]


@pytest.mark.parametrize(("differences", "groups"), GROUPED)
def test_bootstrap_of_groups_agrees_with_all_resamples_of_groups(differences, groups):
    clusters = [
        [d for d, g in zip(differences, groups, strict=True) if g == one]
        for one in dict.fromkeys(groups)
    ]
    means = [
        sum(map(sum, drawn)) / sum(map(len, drawn))
        for drawn in itertools.product(clusters, repeat=len(clusters))
    ]
    observed = sum(differences) / len(differences)
    p_value = np.mean([abs(m - observed) >= abs(observed) - 1e-12 for m in means])
    order = np.random.default_rng(0).permutation(len(groups))
    names = np.array([f"sentence {g}" for g in groups])
    zeros = np.zeros(len(groups))
    got = analysis.paired_bootstrap(differences, zeros, groups=groups, samples=40_000)
    mixed = analysis.paired_bootstrap(
        np.array(differences)[order], zeros, groups=names[order], samples=40_000
    )
    assert mixed == pytest.approx(got)
    assert got.difference == pytest.approx(observed)
    assert got.p_value == pytest.approx(p_value, abs=5 * 0.5 / math.sqrt(40_000))
    low, high = np.percentile(means, [2.5, 97.5])
    assert (got.low, got.high) == (pytest.approx(low, abs=0.05), pytest.approx(high, abs=0.05))


def test_bootstrap_of_equal_and_of_constant_differences():
    same = np.array([1, 0, 1], bool)
    assert analysis.paired_bootstrap(same, same) == (0.0, 0.0, 0.0, 1.0)
    for options, p_value in (({}, 1 / 10_001), ({"samples": 99}, 0.01)):
        got = analysis.paired_bootstrap(np.ones(5), np.zeros(5), **options)
        assert got == (1.0, 1.0, 1.0, pytest.approx(p_value))


def test_bootstrap_is_a_function_of_its_seed_and_not_of_the_order(np_rng):
    a, b = np_rng.random((2, 50)) < 0.5
    order = np_rng.permutation(50)
    first = analysis.paired_bootstrap(a, b, seed=3)
    assert first == analysis.paired_bootstrap(a, b, seed=3)
    assert first == analysis.paired_bootstrap(a[order], b[order], seed=3)
    assert first != analysis.paired_bootstrap(a, b, seed=4)


def test_bootstrap_interval_widens_with_its_level(np_rng):
    a, b = np_rng.random((2, 200)) < 0.5
    narrow = analysis.paired_bootstrap(a, b, level=0.5)
    wide = analysis.paired_bootstrap(a, b, level=0.99)
    assert wide.low < narrow.low < narrow.high < wide.high


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


UNITS = 10.0 ** np.arange(-12, 13, 3)


@pytest.mark.parametrize("kind", ["normal", "thirds", "grouped"])
def test_bootstrap_does_not_depend_on_the_unit_of_the_scores(kind, np_rng):
    a, b = np_rng.normal(0.2, 1, (2, 200))
    groups = None
    if kind == "thirds":  # many ties, which no rounding may break
        a, b = np_rng.integers(0, 4, (2, 200)) / 3
        a[:20] += 1 / 3
    if kind == "grouped":
        groups = np.arange(200) // 3
    found = [
        analysis.paired_bootstrap(a * unit, b * unit, groups=groups, samples=500) for unit in UNITS
    ]
    assert 0.002 < found[4].p_value < 0.9
    assert {one.p_value for one in found} == {found[4].p_value}
    scaled = np.array([one[:3] for one in found]) / UNITS[:, None]
    np.testing.assert_allclose(scaled, np.broadcast_to(found[4][:3], scaled.shape), rtol=1e-9)


def test_bootstrap_of_numbers_near_the_ends_of_floats():
    for unit in (2.0**1000, 5e-324):  # 2^-1074, the least of all, is not normal
        got = analysis.paired_bootstrap(np.full(9, unit), np.zeros(9), samples=99)
        assert got == (unit, unit, unit, 0.01)


def test_bootstrap_takes_rounding_errors_for_equal_scores():
    for unit in (1e-9, 1.0, 1e9):
        left, right = np.full(50, (0.1 + 0.2) * unit), np.full(50, 0.3 * unit)
        assert analysis.paired_bootstrap(left, right, samples=99) == (0.0, 0.0, 0.0, 1.0)


def test_bootstrap_sees_small_differences_of_large_scores(np_rng):
    noise = np_rng.normal(1, 1, 100)
    small = analysis.paired_bootstrap(1 + 1e-9 * noise, np.ones(100), samples=500)
    assert small.p_value == analysis.paired_bootstrap(noise, np.zeros(100), samples=500).p_value


def test_the_least_p_value_counts_no_rounding_errors():
    for unit in (1e-9, 1.0, 1e9):
        left, right = np.full(50, (0.1 + 0.2) * unit), np.full(50, 0.3 * unit)
        right[:3] = 0.1 * unit
        assert least_p_value(left, right) == 0.25
