"""Tests of the difference between systems, and mean with standard deviation."""

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from gatedjax._utils.choices import check_choice
from gatedjax.analysis._checks import check_numbers

# The number of counts that are in memory at the same time.
_CHUNK = 2_000_000
# Differences of scores of size 1 are rounded to this number of decimal digits, because further
# digits are rounding errors.
_DIGITS = 12


class McNemar(NamedTuple):
    """Result of `mcnemar`, which compares systems A and B on the same examples.

    Attributes:
      b: number of examples that only system A has right.
      c: number of examples that only system B has right.
      p_value: exact probability, if both systems are right equally often, of a split of the b + c
        examples that is at least as uneven.
    """

    b: int
    c: int
    p_value: float


class Proportion(NamedTuple):
    """Result of `proportion_test`, which compares an accuracy with a known accuracy.

    Attributes:
      z: (p1 - p0) / sqrt(p0 (1 - p0) / n) for the accuracy p1 on n examples and the known accuracy
        p0.
      p_value: one-sided; the normal probability of a z that is at least as large.
    """

    z: float
    p_value: float


class Bootstrap(NamedTuple):
    """Result of `paired_bootstrap`.

        >>> Bootstrap(difference=0.25, low=0.0, high=0.5, p_value=0.125).high
        0.5

    Attributes:
      difference: mean of system A minus mean of system B.
      low: lower end of the percentile interval of the difference.
      high: upper end of the interval.
      p_value: two-sided, of the hypothesis that the means are equal.
    """

    difference: float
    low: float
    high: float
    p_value: float


class Summary(NamedTuple):
    """Result of `summary`: the mean and spread of n values.

    Attributes:
      mean: arithmetic mean.
      std: sample standard deviation (n - 1); None for a single value.
      n: number of values.
    """

    mean: float
    std: float | None
    n: int


def summary(values: ArrayLike) -> Summary:
    """Computes the mean and the sample standard deviation of values.

        >>> summary([1.0, 2.0, 3.0])
        Summary(mean=2.0, std=1.0, n=3)

    Args:
      values: [n] numbers, such as the accuracy of each seed.

    Returns:
      Mean, standard deviation and n; the standard deviation is None for n = 1, because a single
      value has no spread.
    """
    values = np.asarray(values, np.float64).ravel()
    if values.size == 0:
        raise ValueError("values must have at least one number, got none")
    std = float(values.std(ddof=1)) if values.size > 1 else None
    return Summary(float(values.mean()), std, int(values.size))


def mcnemar(
    correct_a: ArrayLike,
    correct_b: ArrayLike,
    *,
    alternative: Literal["two-sided", "greater"] = "two-sided",
) -> McNemar:
    """Tests whether two systems are right equally often on the same examples (exact McNemar test).

    two-sided: p = min(1, 2 P(X <= min(b, c))),  X ~ Binomial(b + c, 1/2);
    greater (A is right more often than B): p = P(X >= b).

        >>> mcnemar([1, 1, 1, 0], [1, 0, 0, 0])
        McNemar(b=2, c=0, p_value=0.5)

    Args:
      correct_a: [N] bool for N examples, True where system A is right.
      correct_b: [N] bool, True where system B is right.
      alternative: the alternative hypothesis, "two-sided" or "greater".

    Returns:
      The discordant counts and the p-value, which is 1 if the systems never differ.
    """
    check_choice(("two-sided", "greater"), alternative=alternative)
    a, b = _check_pair(correct_a, correct_b)
    for name, values in (("correct_a", a), ("correct_b", b)):
        if not np.all((values == 0) | (values == 1)):
            bad = values[(values != 0) & (values != 1)]
            raise ValueError(f"{name} must be bool (or 0 and 1), got {bad[0]}")
    only_a, only_b = int(np.sum(a > b)), int(np.sum(a < b))
    one_sided = alternative == "greater"
    # "greater" sums the lower tail up to c, because P(X >= b) = P(X <= c) by symmetry.
    total, least = only_a + only_b, only_b if one_sided else min(only_a, only_b)
    # All numbers are integers, so that the tail sum is exact and the division rounds it correctly.
    term = tail = 1
    for k in range(1, least + 1):
        term = term * (total - k + 1) // k
        tail += term
    sides = 1 if one_sided else 2
    return McNemar(only_a, only_b, min(1.0, (sides * tail) / (1 << total)))


def proportion_test(accuracy: float, known: float, n: int) -> Proportion:
    """Tests whether an accuracy on n examples is above a known accuracy (one-sided).

    z = (p1 - p0) / sqrt(p0 (1 - p0) / n),  p = P(Z >= z), the normal approximation.

    The test treats the known accuracy as exact. Its p-value is therefore too small if the known
    accuracy was measured on a similar number of examples. If the results of both systems on each
    example are available, use `mcnemar`.

        >>> proportion_test(0.75, known=0.5, n=64).z
        4.0

    Args:
      accuracy: p1, in [0, 1].
      known: p0, inside (0, 1).
      n: the number of examples of `accuracy`.

    Returns:
      z and the p-value.
    """
    if not 0 <= accuracy <= 1:
        raise ValueError(f"accuracy must be in [0, 1], got {accuracy}")
    if not 0 < known < 1:
        raise ValueError(f"known must be inside (0, 1), got {known}")
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    z = (accuracy - known) / math.sqrt(known * (1 - known) / n)
    return Proportion(z, math.erfc(z / math.sqrt(2)) / 2)


def holm(p_values: ArrayLike) -> np.ndarray:
    """Corrects the p-values of a family of tests for multiple testing (Holm's step-down method).

    With p_(1) <= ... <= p_(m):  corrected p_(i) = max over j <= i of min(1, (m - j + 1) p_(j)).

    If all hypotheses with a corrected p-value below alpha are rejected, the probability that any of
    them is true is at most alpha, however the tests depend on each other.

        >>> print(holm([0.25, 0.0625, 0.125]))
        [0.25   0.1875 0.25  ]

    Args:
      p_values: [m] p-values of the tests.

    Returns:
      [m] corrected p-values, in the order of `p_values`.

    Reference: Holm 1979.
    """
    values = np.asarray(p_values, np.float64)
    if values.ndim != 1:
        raise ValueError(f"p_values must have shape [m], got {values.shape}")
    check_numbers("p_values", values, 0, 1)
    order = np.argsort(values, kind="stable")
    scaled = np.minimum(1.0, np.arange(values.size, 0, -1) * values[order])
    corrected = np.empty_like(values)
    # The factors fall, so that without the maximum a larger p-value could end below a smaller.
    corrected[order] = np.maximum.accumulate(scaled)
    return corrected


def paired_bootstrap(
    correct_a: ArrayLike,
    correct_b: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    samples: int = 10_000,
    seed: int = 0,
    level: float = 0.95,
) -> Bootstrap:
    """Bootstraps the difference between the mean scores of two systems on the same examples.

    Pairs of scores (a_i, b_i) of the systems A and B are drawn with replacement, as many as there
    are. With groups, whole groups g_1 .. g_G are drawn, and the difference of a sample is

        d* = sum_k s_k / sum_k n_k over the drawn k,  s_k = sum_{i in g_k} (a_i - b_i),  n_k = |g_k|

    Use groups for examples that depend on each other, such as several examples from the same
    sentence, because drawing them separately would make the interval too short. The p-value is the
    share of the samples, including the observed sample, whose difference is as far from the
    observed difference d as d is from 0: (1 + #{|d* - d| >= |d|}) / (1 + samples).

    The result does not depend on the unit of the scores: differences below 1e-12 of the largest
    score count as 0, because they are rounding errors, and means count as equal within 1e-9 of the
    largest difference.

    With fewer than about 20 examples the interval is too short and the p-value too small (with a
    single example it is 1 / (1 + samples)); use `mcnemar` then. The trained networks are fixed, and
    other seeds may reverse the difference; with two or more seeds use `two_way_test`.

        >>> paired_bootstrap([1, 1, 1, 0] * 8, [1, 0, 1, 0] * 8).difference
        0.25

    Args:
      correct_a: [N] correctness of system A on N examples: bool, or any score per example (such as
        the correctness averaged over seeds).
      correct_b: [N] correctness or scores of system B.
      groups: [N] the group of each example, as integers or names; None draws examples separately.
      samples: number of bootstrap samples.
      seed: seed of the draws.
      level: confidence level of the percentile interval.

    Returns:
      The difference A - B, its interval and the p-value.

    Raises:
      ValueError: if the scores are empty, are not finite or differ in length, groups does not have
        a value for each example, samples < 1, or level is not inside (0, 1).

    Reference: Efron and Tibshirani 1993, algorithm 16.2 (one sample, shifted); Davison and Hinkley
      1997, section 3.8, for the groups ("cluster bootstrap").
    """
    a, b = _check_pair(correct_a, correct_b)
    if a.size == 0:
        raise ValueError("correct_a must have at least one score, got none")
    if samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}")
    if not 0 < level < 1:
        raise ValueError(f"level must be inside (0, 1), got {level}")
    scaled, exponent = _scale_difference(a, b)
    sums, sizes = _sum_groups(scaled, groups)
    # A sample is described by how often each distinct difference is drawn, and there are few
    # distinct differences. They are rounded, because rounding errors would split equal values.
    kinds, counts = np.unique(
        np.column_stack([np.round(sums, _DIGITS), sizes]), axis=0, return_counts=True
    )
    values, sizes = np.ascontiguousarray(kinds.T)
    observed = float(values @ counts / a.size)
    rng = np.random.default_rng(seed)
    # All samples at once, [samples, values], would need gigabytes for many different values.
    chunk = max(1, _CHUNK // values.size)
    total = counts.sum()
    draws = []
    for start in range(0, samples, chunk):
        times = rng.multinomial(total, counts / total, size=min(chunk, samples - start))
        draws.append((times @ values) / (times @ sizes))
    differences = np.concatenate(draws)
    # Equal differences must count as equal despite the rounding error of the mean, which grows with
    # the differences.
    tolerance = 1e-9 * np.max(np.abs(values / sizes))
    extreme = np.abs(differences - observed) >= abs(observed) - tolerance
    tail = 50 * (1 - level)
    low, high = np.percentile(differences, [tail, 100 - tail])
    p_value = (1 + int(extreme.sum())) / (1 + samples)
    observed, low, high = (float(np.ldexp(x, exponent)) for x in (observed, low, high))
    return Bootstrap(observed, low, high, p_value)


def least_p_value(scores_a: np.ndarray, scores_b: np.ndarray) -> float:
    """Returns 2^(1 - m), the least p-value of an exact two-sided test, for m differences not 0."""
    scaled, _ = _scale_difference(scores_a, scores_b)
    return min(1.0, 2.0 ** (1.0 - np.count_nonzero(np.round(scaled, _DIGITS))))


def _scale_difference(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, int]:
    # The division by 2^e is exact, and a tolerance for scores of size 1 then fits all scores.
    mantissa, exponent = math.frexp(max(float(np.max(np.abs(array))) for array in (a, b)))
    # `frexp` returns a mantissa below 1, so that the exponent of a power of two is 1 too large.
    exponent -= mantissa == 0.5
    return np.ldexp(a, -exponent) - np.ldexp(b, -exponent), exponent


def _sum_groups(differences: np.ndarray, groups: ArrayLike | None) -> tuple[np.ndarray, np.ndarray]:
    places = place_groups(groups, differences.size)
    return np.bincount(places, weights=differences), np.bincount(places).astype(np.float64)


def place_groups(groups: ArrayLike | None, count: int) -> np.ndarray:
    """Returns the number of the group of each of N = `count` examples, int [N] in 0 .. G - 1."""
    if groups is None:
        return np.arange(count)
    names = np.asarray(groups)
    if names.shape != (count,):
        raise ValueError(f"groups must have shape {(count,)}, got {names.shape}")
    _, places = np.unique(names, return_inverse=True)
    return places


def _check_pair(correct_a: ArrayLike, correct_b: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Returns the scores of two systems on N examples, both as float64 [N]."""
    a, b = np.asarray(correct_a, np.float64), np.asarray(correct_b, np.float64)
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(
            f"correct_a and correct_b must have the same shape [N], got {a.shape} and {b.shape}"
        )
    check_numbers("correct_a", a)
    check_numbers("correct_b", b)
    return a, b
