"""BLEU by sacrebleu (the extra `mt`), and paired tests of it and of other scores of a corpus."""

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
    """BLEU in percent of summed statistics, as sacrebleu smooths it."""
    metric = bleu_metric()
    total = [int(x) for x in statistics]
    return float(
        metric.compute_bleu(total[2:6], total[6:10], total[0], total[1], smooth_method="exp").score
    )


def f1_of(counts: np.ndarray) -> float:
    """F1 in percent of summed (matched, predicted, gold)."""
    matched, predicted, gold = (int(x) for x in counts)
    return 100 * RoleCounts(matched, predicted, gold).value().f1


def paired(
    first: Sequence[Sequence[int]],
    second: Sequence[Sequence[int]],
    score: Callable[[np.ndarray], float],
    *,
    samples: int = SAMPLES,
    seed: int = 0,
) -> analysis.Bootstrap:
    """Paired bootstrap (Koehn 2004) of a score that is a function of sums over examples [n, k].

    The difference is first minus second, with its 95 % interval; the two-sided p-value is how often
    a resampled difference is as far from the observed one as that is from 0.
    """
    ours, theirs = np.asarray(first, np.int64), np.asarray(second, np.int64)
    if ours.shape != theirs.shape or ours.ndim != 2 or not len(ours):
        raise ValueError(
            f"statistics must be [n, k] of the same examples, got {ours.shape}, {theirs.shape}"
        )
    observed = score(ours.sum(0)) - score(theirs.sum(0))
    generator = np.random.default_rng(seed)
    drawn = np.empty(samples)
    for sample in range(samples):
        rows = generator.integers(0, len(ours), len(ours))
        drawn[sample] = score(ours[rows].sum(0)) - score(theirs[rows].sum(0))
    low, high = np.quantile(drawn, [0.025, 0.975])
    beyond = np.abs(drawn - observed) >= abs(observed)
    p_value = float((1 + beyond.sum()) / (1 + samples))
    return analysis.Bootstrap(
        difference=float(observed), low=float(low), high=float(high), p_value=p_value
    )


class Difference(NamedTuple):
    """SSAN minus SAN in points."""

    boots: tuple[analysis.Bootstrap, ...]
    """Of all seeds together (accuracy), or of every seed by itself."""
    by_seed: tuple[float, ...]
    """Of every seed by itself."""
    why_not: str | None
    """Why there is no verdict; None if there is one."""

    def cells(self, p_values: Sequence[float]) -> list[str]:
        """Difference, 95 % interval and these p-values of it, corrected."""
        if self.why_not == COLLAPSED:
            return ["-", "-", COLLAPSED]
        shown = [*map(p_text, p_values)]
        if verdict(p_values, self.by_seed) == "seeds disagree":
            shown.append(SEEDS_DISAGREE)
        return [
            ", ".join(f"{boot.difference:+.2f}" for boot in self.boots),
            ", ".join(f"[{boot.low:+.2f}, {boot.high:+.2f}]" for boot in self.boots),
            self.why_not or ", ".join(shown),
        ]


def difference(base: Records, full: Records, metric: str) -> Difference | None:
    """Compares the seeds that both have by accuracy, F1 or BLEU; None without one."""
    if metric == "accuracy":
        comparison = compare(full, base)
        if comparison is None:
            return None
        shift, low, high, p_value = comparison.bootstrap
        points = analysis.Bootstrap(100 * shift, 100 * low, 100 * high, p_value)
        by_seed = tuple(100 * one for one in comparison.by_seed)
        return Difference((points,), by_seed, comparison.why_not)
    key, score = ("role_counts", f1_of) if metric == "F1" else ("bleu_statistics", bleu_of)
    ours, theirs = ({r["seed"]: r for r in records if key in r} for records in (full, base))
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    boots = tuple(paired(ours[seed][key], theirs[seed][key], score) for seed in seeds)
    by_seed = tuple(boot.difference for boot in boots)
    return Difference(boots, by_seed, ONE_SEED if len(seeds) == 1 else None)
