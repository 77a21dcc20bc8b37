"""BLEU by sacrebleu (the extra `mt`), and paired tests of corpus scores."""

from collections.abc import Callable

import numpy as np

from experiments.core.comparison import Comparison, compare
from experiments.core.kinds import Records
from gatedjax.analysis._scores import MatchCounts, bleu_metric
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
    return 100 * MatchCounts(matched, predicted, gold).value().f1


def resample(
    first: np.ndarray, second: np.ndarray, score: Callable[[np.ndarray], float]
) -> np.ndarray:
    """Returns the differences [SAMPLES] of two systems on resampled test sets (Koehn 2004). Both
    have statistics [n, k] of the same n examples, and `score` takes the sum [k] over examples."""
    if first.shape != second.shape:
        raise ValueError(
            f"statistics must be [n, k] of the same examples, got {first.shape}, {second.shape}"
        )
    generator = np.random.default_rng(0)
    differences = np.empty(SAMPLES)
    for sample in range(SAMPLES):
        # Both systems get the same examples, because the test is paired.
        rows = generator.integers(0, len(first), len(first))
        differences[sample] = score(first[rows].sum(0)) - score(second[rows].sum(0))
    return differences


def difference(base: Records, full: Records, metric: str) -> Comparison | None:
    """Compares SSAN with SAN on the seeds that both have; returns None if there is none.

    A score of summed statistics is no mean over examples. Its variance over examples is the mean
    over the seeds of the variance of a paired bootstrap; it contains the noise between networks,
    which is also in the variance over seeds, so the interval is rather too long.

    `metric` is "accuracy", "F1" or "BLEU"; the difference is a share, as that of accuracies.
    """
    if metric == "accuracy":
        return compare(full, base)
    key, score = ("role_counts", f1_of) if metric == "F1" else ("bleu_statistics", bleu_of)
    by_seed = [{r["seed"]: r for r in records if key in r} for records in (full, base)]
    # Seeds of a single system have no counterpart for a paired test.
    seeds = sorted(by_seed[0].keys() & by_seed[1].keys())
    if not seeds:
        return None
    pairs = [[np.asarray(of[seed][key], np.int64) for of in by_seed] for seed in seeds]
    scores = np.array([[score(rows.sum(0)) for rows in pair] for pair in pairs]) / 100
    shifts = scores[:, 0] - scores[:, 1]
    test = None
    # A single seed has no variance over seeds.
    if len(seeds) > 1:
        variances = [(resample(pair[0], pair[1], score) / 100).var(ddof=1) for pair in pairs]
        parts = [(float(of.var(ddof=1)) / len(seeds), len(seeds) - 1.0) for of in scores.T]
        parts.append((float(np.mean(variances)), len(pairs[0][0]) - 1.0))
        test = student_test(float(shifts.mean()), parts)
    return Comparison(
        seeds=tuple(seeds),
        by_seed=tuple(shifts.tolist()),
        test=test,
        last=None,
        exact=(),
        language=False,
        alike=True,
    )
