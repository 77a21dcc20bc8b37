"""A test of the difference between systems over seeds and test examples."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from gatedjax.analysis._checks import check_numbers
from gatedjax.analysis._significance import place_groups


class TwoWay(NamedTuple):
    """Result of `two_way_test`, which compares two systems over seeds and examples.

        >>> TwoWay(0.25, 0.0, 0.5, 0.05, 0.1, 4.0).high
        0.5

    Attributes:
      difference: mean of system A minus mean of system B.
      low: lower end of the interval of the difference.
      high: upper end of the interval.
      p_value: two-sided, of the hypothesis that the expected scores are equal.
      standard_error: the square root of the variance of the difference.
      freedom: the degrees of freedom of Student's t; infinite if the variance is 0.
      parts: the variances that sum to the square of the standard error, each with its degrees of
        freedom: of the seeds of A, of the seeds of B, and of the examples.
    """

    difference: float
    low: float
    high: float
    p_value: float
    standard_error: float
    freedom: float
    parts: tuple[tuple[float, float], ...] = ()

    @property
    def smallest(self) -> float:
        """The half-width of the interval, the smallest difference that would exclude 0."""
        return (self.high - self.low) / 2


def two_way_test(
    scores_a: ArrayLike,
    scores_b: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    means_a: ArrayLike | None = None,
    means_b: ArrayLike | None = None,
    level: float = 0.95,
) -> TwoWay:
    """Tests whether two systems differ, for other seeds and for other test examples.

    A bootstrap over examples keeps the trained networks. With many examples it is certain of a
    difference that the next seed may reverse. This test has a variance for each source, and
    Student's t with the degrees of freedom of Welch and Satterthwaite:

        y_si = m + u_s + v_i + e_si                     seed s, example i, for each system
        V = S_A / n_A + S_B / n_B + max(0, D - R)       S: variance of the means of the seeds
        D = sum_i (d_i - d)^2 / (N (N - 1))             d_i: difference of the means over seeds
        R = sum over A, B of sum_si e_si^2 / ((n - 1) (N - 1) n N)
        t = d / sqrt(V),  freedom = V^2 / sum_k (V_k^2 / f_k),  f = n_A - 1, n_B - 1, N - 1

    The residuals e_si are part of both S and D, so R is subtracted once. With groups, the sums of
    the differences d_i - d and of the residuals e_si over each group take the place of the terms.

        >>> import numpy as np
        >>> right = np.array([[1, 1, 1, 0] * 30, [1, 1, 0, 1] * 30, [1, 0, 1, 1] * 30])
        >>> test = two_way_test(right, right[:, ::-1] * ([1, 0] * 60))
        >>> print(round(test.difference, 3), test.p_value < 0.05)
        0.417 True

    Args:
      scores_a: [n_A, N] scores of system A, a row for each seed and a column for each example.
      scores_b: [n_B, N] scores of system B on the same examples.
      groups: [N] the group of each example, for examples that depend on each other, such as
        examples from the same sentence; None means that examples are independent.
      means_a: [n_A] the mean score of each seed of A, if it is known more exactly than by
        `scores_a`, for example over several draws; None takes the means of the rows. `scores_a`
        then gives only the variance over examples.
      means_b: [n_B] the same for system B.
      level: confidence level of the interval.

    Returns:
      The difference A - B, its interval, the p-value, the standard error, the degrees of freedom
      and the parts of the variance. If no score varies, the p-value is 0 for a difference and 1
      without a difference.

    Raises:
      ValueError: if a system has fewer than two seeds, there are fewer than two examples or groups,
        the scores are not finite or differ in their number of examples, or level is not inside
        (0, 1).

    Source: Welch 1947; Satterthwaite 1946. The variances of crossed seeds and examples are those
      of two-way clustering (Cameron, Gelbach and Miller 2011).
    """
    a, b = _check("scores_a", scores_a), _check("scores_b", scores_b)
    count = a.shape[1]
    if count != b.shape[1]:
        raise ValueError(
            "scores_a and scores_b must have the same number of examples, got "
            f"{count} and {b.shape[1]}"
        )
    means = [_check_means("means_a", means_a, a), _check_means("means_b", means_b, b)]
    places = place_groups(groups, count)
    size = int(places.max()) + 1
    if size < 2:
        raise ValueError(f"scores_a must have at least 2 examples (or groups), got {size}")
    shift = a.mean(0) - b.mean(0)
    correction = size / (size - 1) / count**2
    examples = correction * _square_sums(shift - shift.mean(), places)
    residual = 0.0
    parts = []
    for scores, values in zip((a, b), means, strict=True):
        seeds = len(scores)
        errors = scores - scores.mean(1, keepdims=True) - scores.mean(0) + scores.mean()
        squares = sum(_square_sums(row, places) for row in errors)
        residual += correction * squares / ((seeds - 1) * seeds)
        parts.append((float(values.var(ddof=1)) / seeds, seeds - 1.0))
    # A variance is at least 0, but its estimate is a difference, which may be negative.
    parts.append((max(0.0, examples - residual), size - 1.0))
    return student_test(float(means[0].mean() - means[1].mean()), parts, level=level)


def student_test(
    difference: float, parts: Sequence[tuple[float, float]], *, level: float = 0.95
) -> TwoWay:
    """Tests whether a difference is 0, by Student's t. Its variance is the sum of `parts`, each a
    pair of a variance and its degrees of freedom; `level` is that of the interval.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be inside (0, 1), got {level}")
    largest = max(part for part, _ in parts)
    if largest == 0:
        p_value = float(difference == 0)
        return TwoWay(difference, difference, difference, p_value, 0.0, math.inf, tuple(parts))
    # The parts are divided by the largest part, because their squares may underflow.
    shares = [(part / largest, freedom) for part, freedom in parts]
    total = sum(share for share, _ in shares)
    freedom = total**2 / sum(share**2 / free for share, free in shares)
    error = math.sqrt(total * largest)
    # SciPy is imported only here, because commands that only print tables start faster without it.
    from scipy import special

    half = float(special.stdtrit(freedom, (1 + level) / 2)) * error
    p_value = 2 * float(special.stdtr(freedom, -abs(difference) / error))
    low, high = difference - half, difference + half
    return TwoWay(difference, low, high, p_value, error, freedom, tuple(parts))


def _square_sums(values: np.ndarray, places: np.ndarray) -> float:
    return float((np.bincount(places, weights=values) ** 2).sum())


def _check(name: str, scores: ArrayLike) -> np.ndarray:
    """Returns scores [n, N] as float64; raises ValueError for fewer than two seeds."""
    array = np.asarray(scores, np.float64)
    if array.ndim != 2:
        raise ValueError(f"{name} must have shape [seeds, examples], got {array.shape}")
    if len(array) < 2:
        raise ValueError(
            f"{name} must have at least 2 seeds, got {len(array)}: a single seed has no spread; to "
            "compare only these networks, use paired_bootstrap"
        )
    check_numbers(name, array)
    return array


def _check_means(name: str, means: ArrayLike | None, scores: np.ndarray) -> np.ndarray:
    """Returns the given mean scores of n seeds [n], or the means of `scores` [n, N] for None."""
    if means is None:
        return scores.mean(1)
    array = np.asarray(means, np.float64)
    if array.shape != (len(scores),) or not np.all(np.isfinite(array)):
        raise ValueError(
            f"{name} must have {len(scores)} finite numbers, one for each seed, got {means!r}"
        )
    return array
