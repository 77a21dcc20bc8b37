"""The rule of verdicts: an oracle in loops, its five words, and what it refuses."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from experiments.core import verdict
from experiments.core.claims import Case, judge, learns
from experiments.core.comparison import lies_far_off
from gatedjax import analysis
from gatedjax.analysis import TwoWay


def two_systems(rng, shift=0.0, count=60):
    """Scores of three and of four seeds on the same examples."""
    return rng.normal(shift, 1, (3, count)), rng.normal(0, 1, (4, count))


def oracle(a, b, paper, runs):
    """Interval and p-value of single runs by the equations of `against`, in loops."""
    count = len(a[0])
    mean = lambda xs: sum(xs) / len(xs)  # noqa: E731
    parts, residual, by_example = [], 0.0, []
    for rows in (a, b):
        seeds = [mean(row) for row in rows]
        columns = [mean([row[i] for row in rows]) for i in range(count)]
        by_example.append(columns)
        spread = sum((s - mean(seeds)) ** 2 for s in seeds) / (len(seeds) - 1)
        parts.append((spread * (1 / len(seeds) + 1 / runs), len(seeds) - 1))
        for row, seed in zip(rows, seeds, strict=True):
            for i in range(count):
                error = row[i] - seed - columns[i] + mean(seeds)
                residual += error**2 / ((len(seeds) - 1) * len(seeds) * (count - 1) * count)
    shift = [x - y for x, y in zip(*by_example, strict=True)]
    difference = mean(shift)
    texts = sum((d - difference) ** 2 for d in shift) / (count * (count - 1))
    parts.append((max(0.0, texts - residual), count - 1))
    variance = sum(v for v, _ in parts)
    freedom = variance**2 / sum(v**2 / f for v, f in parts)
    half = stats.t.ppf(0.975, freedom) * math.sqrt(variance)
    gap = difference - paper
    return gap, gap - half, gap + half, 2 * stats.t.sf(abs(gap) / math.sqrt(variance), freedom)


@pytest.mark.parametrize("runs", [1, 5])
def test_single_runs_have_the_interval_of_the_equations(runs):
    a, b = two_systems(np.random.default_rng(1), 0.3)
    found = verdict.against(analysis.two_way_test(a, b), 0.7, runs)
    wanted = oracle(a.tolist(), b.tolist(), 0.7, runs)
    np.testing.assert_allclose(found[:4], wanted, rtol=1e-9)
    # the more runs are behind the paper's number, the surer is a difference
    assert found.smallest <= verdict.against(analysis.two_way_test(a, b), 0.7).smallest


def test_the_chance_is_the_integral_over_the_spread_of_seeds():
    test = TwoWay(0.0, -1.0, 1.0, 1.0, 0.5, 6.0)
    critical = stats.t.ppf(1 - 0.05 / 2 / 8, 6)

    def density(s2):
        # P(d > critical * s) for the variance s2 of a scaled chi-square
        s = math.sqrt(s2)
        return stats.norm.sf((critical * s * 0.5 - 1.7) / 0.5) * stats.chi2.pdf(6 * s2, 6) * 6

    wanted, _ = integrate.quad(density, 0, 12)
    assert verdict.chance(test, 1.7, 8) == pytest.approx(wanted, rel=1e-4)
    assert verdict.chance(test, -1.7, 8) == pytest.approx(wanted, rel=1e-4)
    # the true gain is 0: half of the level of one test
    assert verdict.chance(test, 0.0, 8) == pytest.approx(0.05 / 16)
    assert verdict.chance(test._replace(standard_error=0.0), 1.0, 8) == 1.0


def evidence(low, high, p, gap, p_size):
    """Evidence from our interval and p, and the gap to the paper with its p."""
    middle = (low + high) / 2
    return verdict.Evidence(
        TwoWay(middle, low, high, p, 1.0, 4.0), TwoWay(gap, gap - 1, gap + 1, p_size, 1.0, 4.0)
    )


ABOVE = evidence(1, 3, 0.01, -0.5, 0.4)
UNSURE = evidence(1, 3, 0.2, -0.5, 0.4)
SMALLER = evidence(1, 3, 0.2, -4.0, 0.01)
SMALLER_SHOWN = evidence(1, 3, 0.01, -4.0, 0.01)
OUT = evidence(-1, 1, 0.9, -4.0, 0.01)
BELOW = evidence(-3, -1, 0.01, -5.0, 0.01)
LARGER = evidence(5, 7, 0.01, 4.0, 0.01)


@pytest.mark.parametrize(
    ("steps", "word"),
    [
        ([ABOVE], "reproduced"),
        ([ABOVE, ABOVE], "reproduced"),
        ([LARGER, ABOVE], "reproduced"),  # more than the paper's is no fault
        ([ABOVE, UNSURE], "undecided"),
        ([UNSURE, UNSURE], "undecided"),
        ([SMALLER, SMALLER], "smaller"),
        ([SMALLER_SHOWN, SMALLER], "smaller"),
        ([SMALLER, OUT], "ruled out"),  # 0 is inside our interval at one step
        ([OUT, OUT], "ruled out"),
        ([OUT, BELOW], "ruled out"),
        ([ABOVE, SMALLER_SHOWN], "undecided"),  # the paper's size at one step only
        ([OUT, UNSURE], "undecided"),
    ],
)
def test_both_steps_have_to_agree(steps, word):
    assert verdict.decide(steps) == word
    assert verdict.decide(steps[::-1]) == word


def case(rng, paper, shift, claim="c", **more):
    """A case with a test of real scores, where validation chose and at the last step."""
    tests = [analysis.two_way_test(*two_systems(rng, shift, 400)) for _ in range(2)]
    return Case(
        claim=claim, label="A", seeds=3, difference=tests[0].difference, test=tests[0],
        last=tests[1], paper=paper, **more
    )  # fmt: skip


@pytest.mark.parametrize(
    ("paper", "shift", "word"),
    [
        (1.0, 1.0, "reproduced"),
        (0.2, 1.0, "reproduced"),
        (3.0, 1.0, "smaller"),
        (3.0, 0.0, "ruled out"),
        (3.0, -1.0, "ruled out"),
        (0.1, 0.0, "undecided"),
        (None, 1.0, "reproduced"),
        (None, -1.0, "ruled out"),
        (None, 0.0, "undecided"),
        (-1.0, -1.0, "reproduced"),  # the paper's own difference turns the claim round
        (-3.0, -1.0, "smaller"),
        (-3.0, 1.0, "ruled out"),
    ],
)
def test_a_claim_is_judged_in_the_direction_of_the_papers_difference(paper, shift, word):
    (finding,) = judge([case(np.random.default_rng(2), paper, shift)])
    assert finding.word == word
    if paper is None:
        assert finding.chance is None
    else:  # both steps have to agree
        gains = finding.chosen.gain, finding.last.gain
        assert finding.chance == min(verdict.chance(gain, paper, 1) for gain in gains)


@pytest.mark.parametrize("word", ["reproduced", "ruled out"])
def test_ruling_out_takes_the_correction_over_the_page_as_reproducing_does(word):
    """A p-value of 0.02 decides a page of one claim, and no page of twelve, on either side."""
    rng = np.random.default_rng(0)
    test = case(rng, 1.0, 0.0).test
    deciding = test if word == "reproduced" else verdict.against(test, 0.0)
    gap = stats.t.isf(0.01, deciding.freedom) * deciding.standard_error
    # Ours is the gap above 0, or the paper's is the gap above ours.
    middle, paper = (gap, None) if word == "reproduced" else (0.0, gap)
    p_value = 2 * stats.t.sf(middle / test.standard_error, test.freedom)
    half = test.smallest
    moved = test._replace(difference=middle, low=middle - half, high=middle + half, p_value=p_value)
    one = Case(
        claim="c", label="A", seeds=3, difference=middle, test=moved, last=moved, paper=paper
    )
    assert judge([one])[0].word == word
    others = [case(rng, None, 0.0) for _ in range(11)]
    assert judge([one, *others])[0].word == "undecided"


def test_a_test_without_its_parts_has_no_single_runs():
    with pytest.raises(ValueError, match="test must have the parts of its variance, got none"):
        verdict.against(TwoWay(1.0, 0.0, 2.0, 0.1, 0.5, 4.0), 2.0)


def of_accuracies(*accuracies):
    return [{"test": {"accuracy": accuracy}} for accuracy in accuracies]


def test_a_task_is_learned_above_the_floor_only():
    low, high = of_accuracies(0.24, 0.26, 0.23), of_accuracies(0.58, 0.55, 0.60)
    assert learns([low, high], 30.0, 49.4)
    assert not learns([low, low], 22.8, 24.1)  # a linear classifier is inside the interval
    assert learns([low, low], 22.8)
    assert not learns([low, low], 30.0)
    (finding,) = judge([case(np.random.default_rng(2), 3.0, 0.0, has_learned=False)])
    assert finding.word == "undecided"
    assert "our networks do not learn this task" in finding.cells()[2]


@pytest.mark.parametrize(
    ("scores", "far"),
    [
        ([0.5728, 0.6072, 0.6072], True),
        ([0.844, 0.8297, 0.8776], True),
        ([0.8943, 0.8951, 0.8944], False),
        ([0.90, 0.93, 0.96], False),  # a wide spread without an outlier
        ([0.5, 0.9], False),
    ],
)
def test_a_seed_far_from_all_others_is_marked(scores, far):
    assert lies_far_off(scores) == far
