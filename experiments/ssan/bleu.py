"""BLEU by sacrebleu (the extra `mt`), and paired tests of corpus scores."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from experiments.core.claims import scaled
from experiments.core.comparison import SEEDS, compare, interval_text, p_text, these_runs
from experiments.core.records import COLLAPSED, Records
from experiments.ssan.roles import RoleCounts
from gatedjax import analysis
from gatedjax.analysis._bleu import bleu_metric
from gatedjax.analysis._two_way import student_test

SAMPLES = 1_000


def bleu_of(statistics: np.ndarray) -> float:
    """Returns BLEU in percent of summed statistics, smoothed as in sacrebleu. The statistics [10]
    are the lengths of output and reference, then the matches and totals of n-grams for n = 1 to 4.
    """
    metric = bleu_metric()
    total = [int(x) for x in statistics]
    return float(
        metric.compute_bleu(total[2:6], total[6:10], total[0], total[1], smooth_method="exp").score
    )


def f1_of(counts: np.ndarray) -> float:
    """Returns F1 in percent of the summed counts (matched, predicted, gold)."""
    matched, predicted, gold = (int(x) for x in counts)
    return 100 * RoleCounts(matched, predicted, gold).value().f1


def resample(
    first: np.ndarray,
    second: np.ndarray,
    score: Callable[[np.ndarray], float],
    *,
    samples: int = SAMPLES,
    seed: int = 0,
) -> np.ndarray:
    """Returns the differences [samples] of two systems on resampled test sets (Koehn 2004). Both
    have statistics [n, k] of the same n examples, and `score` takes the sum [k] over examples."""
    if first.shape != second.shape:
        raise ValueError(
            f"statistics must be [n, k] of the same examples, got {first.shape}, {second.shape}"
        )
    generator = np.random.default_rng(seed)
    differences = np.empty(samples)
    for sample in range(samples):
        # Both systems get the same examples, because the test is paired.
        rows = generator.integers(0, len(first), len(first))
        differences[sample] = score(first[rows].sum(0)) - score(second[rows].sum(0))
    return differences


class Difference(NamedTuple):
    """The difference SSAN minus SAN in points."""

    by_seed: tuple[float, ...]
    """The difference for each seed."""
    test: analysis.TwoWay | None
    """The difference with its interval; None with a single seed."""
    last: analysis.TwoWay | None
    """The same at the last step; None if the records do not have it."""
    why_not: str | None
    """The reason why there is no verdict; None if there is a verdict."""

    @property
    def mean(self) -> float:
        """The mean difference over the seeds."""
        return math.fsum(self.by_seed) / len(self.by_seed)

    def cells(self) -> list[str]:
        """Returns three cells of table 1: the difference, its 95 % interval and p."""
        if self.why_not == COLLAPSED:
            return ["-", "-", COLLAPSED]
        shift = f"{self.mean:+.2f}"
        if self.test is None:
            return [shift, "-", self.why_not or "-"]
        return [shift, interval_text(self.test), self.why_not or p_text(self.test.p_value)]


def difference(base: Records, full: Records, metric: str) -> Difference | None:
    """Compares SSAN with SAN on the seeds that both have.

    A score of summed statistics is no mean over examples. Its variance over examples is the mean
    over the seeds of the variance of a paired bootstrap; it contains the noise between networks,
    which is also in the variance over seeds, so the interval is rather too long.

    `metric` is "accuracy", "F1" or "BLEU". Returns None if no seed has both records.
    """
    if metric == "accuracy":
        comparison = compare(full, base)
        if comparison is None:
            return None
        return Difference(
            tuple(100 * value for value in comparison.by_seed),
            scaled(comparison.test, 100),
            scaled(comparison.last, 100),
            comparison.why_not,
        )
    key, score = ("role_counts", f1_of) if metric == "F1" else ("bleu_statistics", bleu_of)
    by_seed = [{r["seed"]: r for r in records if key in r} for records in (full, base)]
    # Seeds of a single system have no counterpart for a paired test.
    seeds = sorted(by_seed[0].keys() & by_seed[1].keys())
    if not seeds:
        return None
    pairs = [[np.asarray(of[seed][key], np.int64) for of in by_seed] for seed in seeds]
    scores = np.array([[score(rows.sum(0)) for rows in pair] for pair in pairs])
    test = None
    # A single seed has no variance over seeds.
    if len(seeds) > 1:
        variances = [resample(ours, theirs, score).var(ddof=1) for ours, theirs in pairs]
        parts = [(float(of.var(ddof=1)) / len(seeds), len(seeds) - 1.0) for of in scores.T]
        parts.append((float(np.mean(variances)), len(pairs[0][0]) - 1.0))
        test = student_test(float((scores[:, 0] - scores[:, 1]).mean()), parts)
    few = these_runs(len(seeds)) if len(seeds) < SEEDS else None
    return Difference(tuple((scores[:, 0] - scores[:, 1]).tolist()), test, None, few)
