"""BLEU by sacrebleu (the extra `mt`), and paired tests of corpus scores."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from experiments.core.comparison import ONE_SEED, SEEDS_DISAGREE, compare, p_text, verdict
from experiments.core.records import COLLAPSED, Records
from experiments.ssan.roles import RoleCounts
from gatedjax import analysis
from gatedjax.analysis._bleu import bleu_metric

SAMPLES = 1_000


def bleu_of(statistics: np.ndarray) -> float:
    """Returns BLEU in percent of summed statistics, smoothed as in sacrebleu.

    Args:
      statistics: int [10], the sum of the statistics of sentences: the lengths of output and
        reference, then the matches and totals of n-grams for n = 1 to 4.
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


def paired_bootstrap(
    first: Sequence[Sequence[int]],
    second: Sequence[Sequence[int]],
    score: Callable[[np.ndarray], float],
    *,
    samples: int = SAMPLES,
    seed: int = 0,
) -> analysis.Bootstrap:
    """Compares two systems by a paired bootstrap (Koehn 2004) of a score of summed statistics.

    Args:
      first, second: the statistics [n, k] of both systems on the same n examples.
      score: the score of the sum [k] over examples.
      samples: number of resampled test sets.
      seed: seed of the samples.

    Returns:
      The difference, first minus second, with its 95 % interval and the two-sided p-value: the
      share of resampled differences that are as far from the observed difference as it is from 0.
    """
    ours, theirs = np.asarray(first, np.int64), np.asarray(second, np.int64)
    if ours.shape != theirs.shape or ours.ndim != 2 or not len(ours):
        raise ValueError(
            f"statistics must be [n, k] of the same examples, got {ours.shape}, {theirs.shape}"
        )
    observed = score(ours.sum(0)) - score(theirs.sum(0))
    generator = np.random.default_rng(seed)
    resampled = np.empty(samples)
    for sample in range(samples):
        rows = generator.integers(0, len(ours), len(ours))
        resampled[sample] = score(ours[rows].sum(0)) - score(theirs[rows].sum(0))
    low, high = np.quantile(resampled, [0.025, 0.975])
    beyond = np.abs(resampled - observed) >= abs(observed)
    # The observed difference counts as a sample, so that the p-value is never 0.
    p_value = float((1 + beyond.sum()) / (1 + samples))
    return analysis.Bootstrap(
        difference=float(observed), low=float(low), high=float(high), p_value=p_value
    )


class Difference(NamedTuple):
    """The difference SSAN minus SAN in points."""

    boots: tuple[analysis.Bootstrap, ...]
    """The bootstrap of all seeds together (accuracy), or of each seed (F1 and BLEU)."""
    by_seed: tuple[float, ...]
    """The difference for each seed."""
    why_not: str | None
    """The reason why there is no verdict; None if there is a verdict."""

    def cells(self, p_values: Sequence[float]) -> list[str]:
        """Returns three cells of table 1: the difference, its 95 % interval and the corrected
        p-values."""
        if self.why_not == COLLAPSED:
            return ["-", "-", COLLAPSED]
        texts = [*map(p_text, p_values)]
        if verdict(p_values, self.by_seed) == "seeds disagree":
            texts.append(SEEDS_DISAGREE)
        return [
            ", ".join(f"{boot.difference:+.2f}" for boot in self.boots),
            ", ".join(f"[{boot.low:+.2f}, {boot.high:+.2f}]" for boot in self.boots),
            self.why_not or ", ".join(texts),
        ]


def difference(base: Records, full: Records, metric: str) -> Difference | None:
    """Compares SSAN with SAN on the seeds that both have.

    Args:
      base: the records of SAN.
      full: the records of SSAN.
      metric: "accuracy", "F1" or "BLEU".

    Returns:
      The difference, or None if no seed has both records.
    """
    if metric == "accuracy":
        comparison = compare(full, base)
        if comparison is None:
            return None
        shift, low, high, p_value = comparison.bootstrap
        points = analysis.Bootstrap(100 * shift, 100 * low, 100 * high, p_value)
        by_seed = tuple(100 * value for value in comparison.by_seed)
        return Difference((points,), by_seed, comparison.why_not)
    key, score = ("role_counts", f1_of) if metric == "F1" else ("bleu_statistics", bleu_of)
    ours, theirs = ({r["seed"]: r for r in records if key in r} for records in (full, base))
    # Seeds of a single system have no counterpart for a paired test.
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    boots = tuple(paired_bootstrap(ours[seed][key], theirs[seed][key], score) for seed in seeds)
    by_seed = tuple(boot.difference for boot in boots)
    return Difference(boots, by_seed, ONE_SEED if len(seeds) == 1 else None)
