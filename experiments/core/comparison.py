"""Comparisons of two systems on the same test examples, in numbers and in a sentence."""

import dataclasses
import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from experiments.core.kinds import Record, Records
from experiments.core.origins import origin_of
from experiments.core.records import COLLAPSED, has_collapsed
from experiments.core.text import correctness
from gatedjax import analysis

SEEDS = 3
"""The least number of seeds of both systems for a verdict."""
TEST = (
    "Test: Student's t over seeds and test examples (`gatedjax.analysis.two_way_test`), p not "
    'corrected; "these runs": fewer than three seeds. The verdicts, with corrected p, are in '
    "Claims."
)
"""The description of the test, for pages of results."""
K = TypeVar("K", bound=Hashable)
FAR = 0.03
"""The least distance, in shares of accuracy or in nats, at which a seed may lie far off."""
Groups = Callable[[Record], np.ndarray | None]
"""A function that returns the group of each test example of a record, or None if the examples are
independent."""


def these_runs(seeds: int) -> str:
    """Returns the words for a difference of fewer than `SEEDS` seeds, which has no verdict."""
    return f"these runs (n={seeds})"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A comparison of two systems on the same test set.

    Attributes:
      seeds: the seeds that both systems have.
      by_seed: the difference of each seed.
      test: the difference with its interval and p-value; None with a single seed.
      last: the same at the last step; None with a single seed, or if a record does not have the
        result at the last step.
      exact: p-value of McNemar's test for each seed. It is empty for language models and where
        examples depend on one another, because the test takes them as independent.
      language: True for language models.
      alike: True if both were trained with the same settings, apart from the network.
      lost: the number of compared runs that collapsed.
      far_off: True if a seed lies far from the other seeds of its system, see `lies_far_off`.
    """

    seeds: tuple[int, ...]
    by_seed: tuple[float, ...]
    test: analysis.TwoWay | None
    last: analysis.TwoWay | None
    exact: tuple[float, ...]
    language: bool
    alike: bool
    lost: int = 0
    far_off: bool = False

    @property
    def difference(self) -> float:
        """The mean difference over the seeds."""
        return math.fsum(self.by_seed) / len(self.by_seed)

    @property
    def why_not(self) -> str | None:
        """The reason why there can be no verdict, or None if there can be a verdict."""
        if self.lost:
            return COLLAPSED
        return these_runs(len(self.seeds)) if len(self.seeds) < SEEDS else None

    def cells(self, *, points: bool = True, seeds: bool = True, digits: int = 3) -> list[str]:
        """Returns table cells: difference, 95 % interval, p, McNemar p of each seed. `digits` are
        those of p; `points` shows accuracy in percentage points."""
        if self.lost:
            return ["-", "-", COLLAPSED, "-"]
        times, after = 100 if points else 1, 2 if points else 4
        of = f" (n={len(self.seeds)} seeds)" if seeds else ""
        shift = f"{times * self.difference:+.{after}f}{of}"
        interval = "-" if self.test is None else interval_text(self.test, times, after)
        if self.why_not is not None or self.test is None:
            return [shift, interval, self.why_not or "-", "-"]
        p = self.test.p_value
        exact = ", ".join(map(p_text, self.exact)) or "-"
        return [shift, interval, p_text(p) if digits == 3 else f"{p:.{digits}f}", exact]

    def last_cells(self) -> list[str]:
        """Returns table cells of accuracy at the last step: difference and interval, in points."""
        if self.last is None or self.lost:
            return ["-", COLLAPSED if self.lost else "-"]
        return [f"{100 * self.last.difference:+.2f}", interval_text(self.last, 100)]


def interval_text(test: analysis.TwoWay, times: float = 1, digits: int = 2) -> str:
    """Formats the interval of a test, multiplied by `times`."""
    return f"[{times * test.low:+.{digits}f}, {times * test.high:+.{digits}f}]"


def compare_all(
    pairs: Mapping[K, tuple[Sequence[Record], Sequence[Record]]],
    groups: Groups = lambda record: None,
) -> dict[K, Comparison | None]:
    """Makes all comparisons of a table, see `compare`."""
    return {key: compare(list(a), list(b), groups) for key, (a, b) in pairs.items()}


def test_note(comparisons: Iterable[Comparison | None]) -> str:
    """Returns the description of the test for a table with comparisons, "" for another table."""
    return TEST if any(comparison is not None for comparison in comparisons) else ""


def paragraphs(*parts: str) -> str:
    """Joins paragraphs of text; empty paragraphs are left out."""
    return "\n\n".join(part.rstrip() for part in parts if part.strip())


def compare(
    first: Records, second: Records, groups: Groups = lambda record: None
) -> Comparison | None:
    """Compares the seeds that both systems have.

    The test is `analysis.two_way_test`: over the seeds of both systems, which are independent, and
    over the test examples, which are the same. The score of a seed is the accuracy in its record.
    GA-Net's accuracy is the mean of several draws of its gates, and the correctness of each example
    is that of the first draw, so that only the variance over examples rests on the first draw. The
    score of a language model is the negative log-likelihood of each window of the test text, in
    nats per token.

    The records have the correctness of each example only for the parameters that validation chose.
    At the last step the seeds have the scores of the last step, and the variance over
    examples is that of the chosen parameters.

    Returns None if the systems have no seed in common. Raises ValueError if the records have
    different test sets.
    """
    a, b = ({record["seed"]: record for record in records} for records in (first, second))
    # Only common seeds count, so that no run of one system stands against nothing of the other.
    seeds = sorted(a.keys() & b.keys())
    if not seeds:
        return None
    ours, theirs = [a[seed] for seed in seeds], [b[seed] for seed in seeds]
    check_same_test(ours, theirs)
    language = "test_nll" in ours[0]
    of_each: np.ndarray | None = None
    exact: tuple[float, ...] = ()
    if language:
        scores = [_nats_per_token(rows) for rows in (ours, theirs)]
    else:
        scores = [correctness(rows) for rows in (ours, theirs)]
        of_each = groups(ours[0])
        pairs = zip(*scores, strict=True) if of_each is None else ()
        # McNemar's test takes examples as independent, so it is left out if they come in groups.
        exact = tuple(analysis.mcnemar(x, y).p_value for x, y in pairs)
    means = [
        [_score(record, row) for record, row in zip(rows, of, strict=True)]
        for rows, of in zip((ours, theirs), scores, strict=True)
    ]
    last = [
        [score for record in rows if (score := last_accuracy(record)) is not None]
        for rows in (ours, theirs)
    ]
    # Two compared runs should share their settings of data and training.
    settings = [
        [(record["config"]["data"], record["config"]["train"]) for record in rows]
        for rows in (ours, theirs)
    ]
    # Older records lack the result at the last step, and the test needs it for all seeds.
    has_last = len(last[0]) == len(last[1]) == len(seeds)
    return Comparison(
        seeds=tuple(seeds),
        by_seed=tuple(float(x - y) for x, y in zip(*means, strict=True)),
        test=_test(scores, means, of_each),
        last=_test(scores, last, of_each) if has_last else None,
        exact=exact,
        language=language,
        alike=settings[0] == settings[1],
        lost=sum(map(has_collapsed, (*ours, *theirs))),
        far_off=any(map(lies_far_off, (*means, *last))),
    )


def lies_far_off(scores: Sequence[float]) -> bool:
    """Returns True if a seed of a system lies far from all other seeds, as after a failed run. Its
    distance from the median of the other seeds is above `FAR` and twice their range. Few seeds
    cannot show how often a training fails, so such a row is marked."""
    if len(scores) < SEEDS:
        return False
    for place, score in enumerate(scores):
        neighbours = [*scores[:place], *scores[place + 1 :]]
        distance = abs(score - statistics.median(neighbours))
        if distance > max(FAR, 2 * (max(neighbours) - min(neighbours))):
            return True
    return False


def check_same_test(ours: Records, theirs: Records) -> None:
    """Refuses to compare records with different test sets. Raises ValueError if their number of
    test examples, the origin of their data or their test examples differ."""
    both = (*ours, *theirs)
    names = [record.get("cell") or record.get("system") for record in (ours[0], theirs[0])]
    of = f"records of {ours[0].get('data')}, {names[0]} and {names[1]}"
    key = "test_nll" if "test_nll" in ours[0] else "correct"
    counts = {len(record[key]) for record in both}
    counts_of_records = {record["test_n"] for record in both}
    if len(counts) > 1 or len(counts_of_records) > 1:
        got = " / ".join(map(str, sorted(counts | counts_of_records)))
        raise ValueError(f"{of}: test_n must be equal, got {got}; run them again with --rerun")
    origins = sorted({origin_of(record) for record in both})
    if len(origins) > 1:
        raise ValueError(
            f"{of}: the origin of the data must be equal, got {' / '.join(origins)}; run them "
            "again with --rerun"
        )
    # Older records have no digest, so they are left out of the comparison.
    digests = sorted({record["test_digest"] for record in both if "test_digest" in record})
    if len(digests) > 1:
        raise ValueError(
            f"{of}: test_digest must be equal, got {' / '.join(digests)}: the test examples or "
            "their order differ, as between raw files (--manual-dir) and a prepared set "
            "(--data-dir); run them again with --rerun"
        )


def _nats_per_token(records: Records) -> np.ndarray:
    """Returns the scores [seeds, windows] of a language model, with nats per token as mean."""
    windows = np.array([record["test_nll"] for record in records], np.float64)
    # A window has the sum over its tokens. With the factor the mean over windows is the mean over
    # tokens.
    return windows * (windows.shape[1] / records[0]["test_n"])


def _score(record: Record, row: np.ndarray) -> float:
    """Returns the score of a seed: the recorded accuracy, or the mean of the scores `row`."""
    accuracy = None if "test_nll" in record else record.get("test", {}).get("accuracy")
    return float(row.mean() if accuracy is None else accuracy)


def last_accuracy(record: Record) -> float | None:
    """Returns the test accuracy at the last step, or None if the record does not have it."""
    accuracy: float | None = record.get("test_last", {}).get("accuracy")
    return accuracy


def _test(
    scores: Sequence[np.ndarray], means: Sequence[Sequence[float]], groups: np.ndarray | None
) -> analysis.TwoWay | None:
    """Returns the test of two systems; None with a single seed. `scores` are arrays [seeds,
    examples], and `means` the score of each seed."""
    # Each of the two variances, over seeds and over examples, needs two values.
    if len(scores[0]) < 2 or scores[0].shape[1] < 2:
        return None
    first, second = scores
    return analysis.two_way_test(first, second, groups=groups, means_a=means[0], means_b=means[1])


def p_text(p: float) -> str:
    """Formats a p-value for tables."""
    return f"{p:.3f}" if p >= 0.001 else "<0.001"


def sentence(data: str, first: str, second: str, comparison: Comparison | None) -> str:
    """Returns a sentence with the result of a comparison, without a verdict."""
    if comparison is None:
        return f"{data}, {first} against {second}: not run."
    if comparison.lost:
        return f"{data}, {first} against {second}: {COLLAPSED}, nothing to compare."
    unit = "nats per token, less is better" if comparison.language else "accuracy"
    text = f"{data}, {first} minus {second}: {comparison.difference:+.4f} ({unit})"
    test = comparison.test
    if test is not None:
        text += f", 95 % interval {interval_text(test, 1, 4)}"
    if comparison.why_not is not None or test is None:
        text += f", {comparison.why_not}"
    else:
        text += f", p = {test.p_value:.4f} ({len(comparison.seeds)} seeds)"
        if comparison.exact:
            text += f"; McNemar p {', '.join(map(p_text, comparison.exact))}"
    seeds = ", ".join(f"{difference:+.4f}" for difference in comparison.by_seed)
    if len(comparison.by_seed) > 1:
        text += f"; by seed {seeds}"
    if comparison.last is not None:
        text += f"; at the last step {comparison.last.difference:+.4f}"
        if comparison.why_not is None:
            text += f" (p = {comparison.last.p_value:.4f})"
    return f"{text}." + ("" if comparison.alike else " Their data or training settings differ.")
