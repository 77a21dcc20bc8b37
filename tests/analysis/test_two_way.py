"""The test over seeds and examples against an oracle in loops, and its error rate."""

import math

import numpy as np
import pytest
from scipy import stats

from gatedjax import analysis


def oracle(a, b, groups, level=0.95):
    """Difference, interval and p-value by the equations of the docstring, in loops."""
    count = len(a[0])
    names = sorted(set(groups))
    size, mean = len(names), lambda xs: sum(xs) / len(xs)
    parts, residual = [], 0.0
    by_example = []
    for scores in (a, b):
        seeds = [mean(row) for row in scores]
        columns = [mean([row[i] for row in scores]) for i in range(count)]
        by_example.append(columns)
        grand = mean(seeds)
        spread = sum((s - grand) ** 2 for s in seeds) / (len(seeds) - 1)
        parts.append((spread / len(seeds), len(seeds) - 1))
        squares = 0.0
        for row, of_seed in zip(scores, seeds, strict=True):
            for name in names:
                total = sum(
                    row[i] - of_seed - columns[i] + grand for i in range(count) if groups[i] == name
                )
                squares += total**2
        residual += squares / ((len(seeds) - 1) * len(seeds)) * size / (size - 1) / count**2
    shift = [x - y for x, y in zip(*by_example, strict=True)]
    difference = mean(shift)
    examples = 0.0
    for name in names:
        examples += sum(shift[i] - difference for i in range(count) if groups[i] == name) ** 2
    examples *= size / (size - 1) / count**2
    parts.append((max(0.0, examples - residual), size - 1))
    variance = sum(v for v, _ in parts)
    freedom = variance**2 / sum(v**2 / f for v, f in parts)
    error = math.sqrt(variance)
    half = stats.t.ppf((1 + level) / 2, freedom) * error
    p_value = 2 * stats.t.sf(abs(difference) / error, freedom)
    return difference, difference - half, difference + half, p_value, error, freedom


@pytest.mark.parametrize("seeds", [(2, 2), (3, 5)])
@pytest.mark.parametrize("grouped", [False, True])
def test_the_numbers_are_those_of_the_equations(seeds, grouped):
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 2, (n, 40)).astype(float) for n in seeds)
    groups = np.arange(40) // 3 if grouped else np.arange(40)
    level = 0.9 if grouped else 0.95
    found = analysis.two_way_test(a, b, groups=groups if grouped else None, level=level)
    wanted = oracle(a.tolist(), b.tolist(), groups.tolist(), level)
    np.testing.assert_allclose(found[:6], wanted, rtol=1e-9)
    assert math.sqrt(sum(part for part, _ in found.parts)) == pytest.approx(found.standard_error)
    assert found.smallest == pytest.approx(found.high - found.difference)
    # the other system first: the opposite difference, the same p-value
    back = analysis.two_way_test(b, a, groups=groups if grouped else None)
    np.testing.assert_allclose(back.difference, -found.difference)
    np.testing.assert_allclose(back.p_value, found.p_value)


def test_the_unit_of_the_scores_and_the_order_of_the_examples_do_not_matter():
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(3, 30)), rng.normal(size=(3, 30))
    found = analysis.two_way_test(a, b)
    order = rng.permutation(30)
    for scale in (1e-100, 100.0, 1e100):
        other = analysis.two_way_test(a[:, order] * scale, b[:, order] * scale)
        np.testing.assert_allclose(other.p_value, found.p_value, rtol=1e-6)


def test_means_that_are_known_more_exactly_replace_those_of_the_rows():
    rng = np.random.default_rng(4)
    a, b = (rng.integers(0, 2, (3, 50)).astype(float) for _ in range(2))
    same = analysis.two_way_test(a, b, means_a=a.mean(1), means_b=b.mean(1))
    assert same == analysis.two_way_test(a, b)
    moved = analysis.two_way_test(a, b, means_a=a.mean(1) + 0.25)
    assert moved.difference == pytest.approx(same.difference + 0.25)
    assert moved.standard_error == pytest.approx(same.standard_error)


def rights(rng, seeds, difficulty, spread):
    """Which examples are right, of seeds with accuracies that spread by `spread`."""
    slope = stats.norm.pdf(1.2 / math.sqrt(2)) / math.sqrt(2)
    shift = rng.normal(0, spread / slope, (seeds, 1))
    return difficulty + shift + rng.normal(0, 1, (seeds, difficulty.size)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 5])
def test_of_equal_systems_at_most_six_percent_differ_where_a_bootstrap_finds_many(seeds):
    """Seeds spread by one point: over the examples alone a quarter of the tests is wrong."""
    rng = np.random.default_rng(seeds)
    wrong = over_examples = 0
    trials = 600
    for _ in range(trials):
        difficulty = rng.normal(1.2, 1, 2_000)
        a, b = (rights(rng, seeds, difficulty, 0.01).astype(float) for _ in range(2))
        wrong += analysis.two_way_test(a, b).p_value < 0.05
        shift = a.mean(0) - b.mean(0)
        over_examples += abs(shift.mean()) > 1.96 * shift.std(ddof=1) / math.sqrt(shift.size)
    assert wrong / trials <= 0.06
    assert over_examples / trials > 0.15


def test_a_difference_of_four_points_is_found():
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(100):
        difficulty = rng.normal(1.2, 1, 2_000)
        a = rights(rng, 5, difficulty + 0.2, 0.005).astype(float)
        found += (
            analysis.two_way_test(a, rights(rng, 5, difficulty, 0.005).astype(float)).p_value < 0.05
        )
    assert found > 90


def test_scores_without_any_spread_are_certain():
    ones, zeros = np.ones((2, 4)), np.zeros((3, 4))
    same = analysis.two_way_test(ones, ones)
    assert (same.difference, same.p_value, same.freedom) == (0, 1, math.inf)
    other = analysis.two_way_test(ones, zeros)
    assert (other.low, other.high, other.p_value) == (1, 1, 0)
