"""Paired tests of two systems on the same examples, and mean with standard deviation."""

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

# draws held in memory at once
_CHUNK = 2_000_000
# digits behind the point of a difference, for scores of size 1; the rest is rounding
_DIGITS = 12


class McNemar(NamedTuple):
    """What `mcnemar` returns.

    Attributes:
      b: examples that only system A has right.
      c: examples that only system B has right.
      p_value: exact probability of a split at least as uneven.
    """

    b: int
    c: int
    p_value: float


class Proportion(NamedTuple):
    """What `proportion_test` returns.

    Attributes:
      z: (p1 - p0) / sqrt(p0 (1 - p0) / n).
      p_value: one-sided normal probability of a z at least as large.
    """

    z: float
    p_value: float


class Bootstrap(NamedTuple):
    """What `paired_bootstrap` returns.

    Attributes:
      difference: mean of A minus mean of B.
      low: lower end of the percentile interval.
      high: upper end of the interval.
      p_value: two-sided, of the hypothesis that the systems are equal.
    """

    difference: float
    low: float
    high: float
    p_value: float


class Summary(NamedTuple):
    """What `summary` returns.

    Attributes:
      mean: arithmetic mean.
      std: sample standard deviation (n - 1); None for a single value.
      n: number of values.
    """

    mean: float
    std: float | None
    n: int


def summary(values: ArrayLike) -> Summary:
    """Mean, sample standard deviation and number of values.

    Args:
      values: [n] numbers, such as the accuracy of each seed.

    Returns:
      The summary; std is None for n = 1, where nothing is known about the spread.
    """
    values = np.asarray(values, np.float64).ravel()
    if values.size == 0:
        raise ValueError("values must not be empty")
    std = float(values.std(ddof=1)) if values.size > 1 else None
    return Summary(float(values.mean()), std, int(values.size))


def mcnemar(
    correct_a: ArrayLike,
    correct_b: ArrayLike,
    *,
    alternative: Literal["two-sided", "greater"] = "two-sided",
) -> McNemar:
    """The exact McNemar test: are two systems right equally often, on the same examples?

    two-sided: p = min(1, 2 P(X <= min(b, c))),  X ~ Binomial(b + c, 1/2);
    greater (A is right more often than B): p = P(X >= b).

    Args:
      correct_a: [N] bool, True where system A is right.
      correct_b: [N] bool, likewise for B.
      alternative: what the test is against.

    Returns:
      The discordant counts and the p-value; 1 if the systems never differ.
    """
    if alternative not in ("two-sided", "greater"):
        raise ValueError(f"alternative must be 'two-sided' or 'greater', got {alternative!r}")
    a, b = _pair(correct_a, correct_b)
    for name, values in (("correct_a", a), ("correct_b", b)):
        if not np.all((values == 0) | (values == 1)):
            raise ValueError(f"{name} must be bool (or 0 and 1), got other values")
    only_a, only_b = int(np.sum(a > b)), int(np.sum(a < b))
    one_sided = alternative == "greater"
    # by symmetry P(X >= b) = P(X <= c)
    total, least = only_a + only_b, only_b if one_sided else min(only_a, only_b)
    # Integers throughout: the tail sum is exact, and one division rounds it correctly.
    term = tail = 1
    for k in range(1, least + 1):
        term = term * (total - k + 1) // k
        tail += term
    sides = 1 if one_sided else 2
    return McNemar(only_a, only_b, min(1.0, (sides * tail) / (1 << total)))


def proportion_test(accuracy: float, known: float, n: int) -> Proportion:
    """Is an accuracy on n examples above a known one? One-sided, by the normal approximation.

    z = (p1 - p0) / sqrt(p0 (1 - p0) / n),  p = P(Z >= z).

    The known accuracy is taken as exact, though it was measured too: the test says too much where
    that was on as few examples. With the examples of both systems, use `mcnemar`.

    Args:
      accuracy: p1, in [0, 1].
      known: p0, inside (0, 1).
      n: examples.
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
    """Corrects the p-values of tests that are read together (Holm's step-down method).

    With p_(1) <= ... <= p_(m):  corrected p_(i) = max over j <= i of min(1, (m - j + 1) p_(j)).

    Calling every difference with a corrected p below alpha shown errs in any of them with a
    probability of at most alpha, however the tests depend on each other.

    Args:
      p_values: [m] of the tests of one family.

    Returns:
      [m] corrected p-values, in the order given; empty for none.

    Reference: Holm 1979.
    """
    given = np.asarray(p_values, np.float64)
    if given.ndim != 1:
        raise ValueError(f"p_values must have shape [m], got {given.shape}")
    if not np.all((given >= 0) & (given <= 1)):  # also refuses NaN
        raise ValueError("p_values must be in [0, 1]")
    order = np.argsort(given, kind="stable")
    scaled = np.minimum(1.0, np.arange(given.size, 0, -1) * given[order])
    corrected = np.empty_like(given)
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
    """Bootstraps the difference of two means over the same examples.

    Examples are drawn with replacement, a pair at a time; with groups, whole groups g_1 .. g_G are,

        d* = sum_k s_k / sum_k n_k over the drawn k,  s_k = sum_{i in g_k} (a_i - b_i),  n_k = |g_k|

    for examples that depend on one another inside a group, such as several made of one sentence:
    drawing examples one by one would make the interval too short. The p-value is the share of
    samples whose difference is as far from the observed one as that is from 0, with the observed
    sample counted in: (1 + #{|d* - d| >= |d|}) / (1 + samples).

    The result does not depend on the unit of the scores: differences below 1e-12 of the largest
    score count as 0, being rounding errors, and means count as equal within 1e-9 of the largest
    difference.

    A bootstrap knows no more than its examples: of fewer than some 20 the interval is too short and
    the p-value too small (of one example it is 1 / (1 + samples)); of those take `mcnemar`.

    Args:
      correct_a: [N] correctness of system A: bool, or any score per example (such as the
        correctness averaged over seeds).
      correct_b: [N], likewise for B.
      groups: [N] which group an example is of, as whole numbers or names; None has each by itself.
      samples: number of bootstrap samples.
      seed: of the draws.
      level: of the percentile interval.

    Returns:
      The difference A - B, its interval and the p-value.

    Raises:
      ValueError: also if groups is not of one value for every example.

    Reference: Efron and Tibshirani 1993, algorithm 16.2 (one sample, shifted); Davison and Hinkley
      1997, section 3.8, for the groups ("cluster bootstrap").
    """
    a, b = _pair(correct_a, correct_b)
    if a.size == 0:
        raise ValueError("correct_a must not be empty")
    if samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}")
    if not 0 < level < 1:
        raise ValueError(f"level must be inside (0, 1), got {level}")
    scaled, exponent = _scaled_difference(a, b)
    sums, sizes = _of_groups(scaled, groups)
    # Samples only see how often each difference was drawn, and there are few different ones. They
    # are rounded far below any score's meaning, so that 1/3 - 1/3 in two orders is one value.
    kinds, counts = np.unique(
        np.column_stack([np.round(sums, _DIGITS), sizes]), axis=0, return_counts=True
    )
    values, sizes = np.ascontiguousarray(kinds.T)
    observed = float(values @ counts / a.size)
    rng = np.random.default_rng(seed)
    chunk = max(1, _CHUNK // values.size)
    total = counts.sum()
    drawn = []
    for start in range(0, samples, chunk):
        times = rng.multinomial(total, counts / total, size=min(chunk, samples - start))
        drawn.append((times @ values) / (times @ sizes))
    differences = np.concatenate(drawn)
    # A tie must count as a tie whatever the rounding of the mean, which grows with the differences.
    tolerance = 1e-9 * np.max(np.abs(values / sizes))
    extreme = np.abs(differences - observed) >= abs(observed) - tolerance
    tail = 50 * (1 - level)
    low, high = np.percentile(differences, [tail, 100 - tail])
    p_value = (1 + int(extreme.sum())) / (1 + samples)
    observed, low, high = (float(np.ldexp(x, exponent)) for x in (observed, low, high))
    return Bootstrap(observed, low, high, p_value)


def least_p_value(scores_a: np.ndarray, scores_b: np.ndarray) -> float:
    """Returns the least p-value that an exact two-sided test of paired scores can have: 2^(1 - m).

    It is the probability that the signs of the m differences which are not 0, rounding errors
    aside, are all the same, each sign being as likely as the other.
    """
    scaled, _ = _scaled_difference(scores_a, scores_b)
    return min(1.0, 2.0 ** (1.0 - np.count_nonzero(np.round(scaled, _DIGITS))))


def _scaled_difference(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, int]:
    """Returns (a - b) / 2^e and e, the least with |x| <= 2^e for every score x; 0 if all are 0.

    The division is exact. It lets tolerances be those of scores of size 1.
    """
    mantissa, exponent = math.frexp(max(float(np.max(np.abs(array))) for array in (a, b)))
    exponent -= mantissa == 0.5
    return np.ldexp(a, -exponent) - np.ldexp(b, -exponent), exponent


def _of_groups(differences: np.ndarray, groups: ArrayLike | None) -> tuple[np.ndarray, np.ndarray]:
    """Sum and size of every group."""
    if groups is None:
        return differences, np.ones_like(differences)
    given = np.asarray(groups)
    if given.shape != differences.shape:
        raise ValueError(f"groups must have shape {differences.shape}, got {given.shape}")
    _, places = np.unique(given, return_inverse=True)
    return np.bincount(places, weights=differences), np.bincount(places).astype(np.float64)


def _pair(correct_a: ArrayLike, correct_b: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.asarray(correct_a, np.float64), np.asarray(correct_b, np.float64)
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(
            f"correct_a and correct_b must have one shape [N], got {a.shape} and {b.shape}"
        )
    for name, values in (("correct_a", a), ("correct_b", b)):
        if not np.all(np.isfinite(values)):
            raise ValueError(f"{name} must be finite")
    return a, b
