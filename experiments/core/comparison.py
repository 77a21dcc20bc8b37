"""Comparisons of two systems on the same test examples, in numbers and in a sentence."""

import dataclasses
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Literal, TypeVar

import numpy as np

from experiments.core.kinds import Json, Record, Records
from experiments.core.origins import origin_of
from experiments.core.records import COLLAPSED, has_collapsed, train_settings
from experiments.core.text import correctness
from gatedjax import analysis

LEVEL = 0.05
"""A difference with a corrected p-value below this level is shown, if no seed contradicts it."""
SHOWN = f"if the corrected p < {LEVEL} and every seed by itself differs that way"
"""The condition for a shown difference, in the words of notes and pages."""
WINDOW_SAMPLES = 2_000
"""Bootstrap samples of the windows of a language model's test text."""
ONE_SEED = "one seed: no verdict"
SEEDS_DISAGREE = "the seeds disagree"
Verdict = Literal["shown", "seeds disagree", "neither"]
K = TypeVar("K", bound=Hashable)
Groups = Callable[[Record], np.ndarray | None]
"""A function that returns the group of each test example of a record, or None if the examples are
independent."""


def verdict(p_values: Sequence[float], by_seed: Sequence[float]) -> Verdict:
    """Returns the verdict of corrected p-values and the differences of the seeds.

    A bootstrap draws examples of the test set and keeps the runs. With many examples it is certain
    of a difference between these runs that the next seed may reverse, so the seeds must agree.

    Args:
      p_values: the corrected p-values.
      by_seed: the difference of each seed.
    """
    if not all(p_value < LEVEL for p_value in p_values):
        return "neither"
    agree = all(difference > 0 for difference in by_seed) or all(
        difference < 0 for difference in by_seed
    )
    return "shown" if agree else "seeds disagree"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A comparison of two systems on the same test set, seed by seed.

    Attributes:
      seeds: the seeds that both systems have.
      bootstrap: difference, interval and p-value, corrected or not.
      exact: p-value of McNemar's test for each seed. It is empty for language models and where
        examples depend on one another, because the test takes them as independent.
      language: True for language models.
      alike: True if both were trained with the same settings, apart from the network.
      by_seed: the difference of each seed.
      lost: the number of compared runs that collapsed.
    """

    seeds: tuple[int, ...]
    bootstrap: analysis.Bootstrap
    exact: tuple[float, ...]
    language: bool
    alike: bool
    by_seed: tuple[float, ...]
    lost: int = 0

    @property
    def why_not(self) -> str | None:
        """The reason why there is no verdict, or None if there is a verdict."""
        if self.lost:
            return COLLAPSED
        return ONE_SEED if len(self.seeds) == 1 else None

    @property
    def has_contradiction(self) -> bool:
        """True if the bootstrap finds a difference on which the seeds do not agree."""
        return self._verdict == "seeds disagree"

    @property
    def _verdict(self) -> Verdict:
        """The verdict of the bootstrap and of the seeds."""
        if self.why_not is not None:
            return "neither"
        return verdict([self.bootstrap.p_value], self.by_seed)

    @property
    def better(self) -> bool | None:
        """True if the first system is better, or None if no difference is shown."""
        if self._verdict != "shown":
            return None
        # For language models the lower number is better.
        return (self.bootstrap.difference > 0) != self.language

    def verdict(self, first: str, second: str) -> str:
        """Returns the verdict in words.

        Args:
          first: the name of the first system.
          second: the name of the second system.
        """
        if self.lost:
            return f"{first} against {second}: {COLLAPSED}, nothing to compare"
        if self.why_not is not None:
            return f"{first} against {second}: {self.why_not}"
        if self.better is None:
            why = f", {SEEDS_DISAGREE}" if self.has_contradiction else ""
            return f"no difference between {first} and {second} is shown{why}"
        return f"{first} beats {second}" if self.better else f"{second} beats {first}"

    def cells(self, *, points: bool = True, seeds: bool = True, digits: int = 3) -> list[str]:
        """Returns table cells: difference, 95 % interval, bootstrap p, McNemar p of each seed.

        Args:
          points: True shows accuracy in percentage points.
          seeds: True shows the number of seeds.
          digits: digits of the bootstrap p.
        """
        if self.lost:
            return ["-", "-", COLLAPSED, "-"]
        boot, times, after = self.bootstrap, 100 if points else 1, 2 if points else 4
        of = f" (n={len(self.seeds)} seeds)" if seeds else ""
        numbers = [
            f"{times * boot.difference:+.{after}f}{of}",
            f"[{times * boot.low:+.{after}f}, {times * boot.high:+.{after}f}]",
        ]
        if self.why_not is not None:
            return [*numbers, self.why_not, "-"]
        exact = ", ".join(map(p_text, self.exact)) or "-"
        p = p_text(boot.p_value) if digits == 3 else f"{boot.p_value:.{digits}f}"
        return [*numbers, p + f", {SEEDS_DISAGREE}" * self.has_contradiction, exact]


def correct_together(comparisons: Mapping[K, Comparison | None]) -> dict[K, Comparison | None]:
    """Corrects the p-values of the comparisons of a table together, by Holm's method.

    Comparisons without a verdict (a single seed, or a run that collapsed) are no tests and are not
    counted. The bootstrap has a test per comparison and McNemar a test per seed; each is a family
    of tests.

    Args:
      comparisons: comparisons by any key; None if a system was not run.

    Returns:
      The comparisons with corrected p-values, by the same keys.
    """
    tests = {
        key: comparison
        for key, comparison in comparisons.items()
        if comparison is not None and comparison.why_not is None
    }
    # The bootstrap and McNemar's test answer different questions, so they are corrected separately.
    boots = dict(
        zip(tests, analysis.holm([t.bootstrap.p_value for t in tests.values()]), strict=True)
    )
    exact = iter(analysis.holm([p for comparison in tests.values() for p in comparison.exact]))
    changed = {
        key: dataclasses.replace(
            comparison,
            bootstrap=comparison.bootstrap._replace(p_value=float(boots[key])),
            exact=tuple(float(next(exact)) for _ in comparison.exact),
        )
        for key, comparison in tests.items()
    }
    return {**comparisons, **changed}


def compare_all(
    pairs: Mapping[K, tuple[Sequence[Record], Sequence[Record]]],
    groups: Groups = lambda record: None,
) -> dict[K, Comparison | None]:
    """Makes all comparisons of a table and corrects them together, see `compare`.

    Args:
      pairs: the records of the two systems, by any key.
      groups: see `Groups`.
    """
    return correct_together(
        {key: compare(list(a), list(b), groups) for key, (a, b) in pairs.items()}
    )


def holm_note(comparisons: Mapping[K, Comparison | None]) -> str:
    """Returns the note of a table that its p-values were corrected together; "" without a test."""
    tests = [
        comparison
        for comparison in comparisons.values()
        if comparison is not None and comparison.why_not is None
    ]
    if not tests:
        return ""
    exact = sum(len(comparison.exact) for comparison in tests)
    ending = f", {exact} of McNemar's test" if exact else ""
    return (
        f"The p of this table are corrected together (Holm): {len(tests)} of the bootstrap{ending}."
    )


def paragraphs(*parts: str) -> str:
    """Joins paragraphs of text; empty paragraphs are left out."""
    return "\n\n".join(part.rstrip() for part in parts if part.strip())


def compare(
    first: Records, second: Records, groups: Groups = lambda record: None
) -> Comparison | None:
    """Compares the seeds that both systems have.

    Classifiers have a paired bootstrap over the test examples of the correctness averaged over
    seeds, and the exact McNemar test of each pair of runs. If examples come in groups, the
    bootstrap draws groups and there is no McNemar test. Language models have a paired bootstrap
    over the windows of the test text of the negative log-likelihood averaged over seeds, in nats
    per token.

    Args:
      first: records of the first system.
      second: records of the second system.
      groups: see `Groups`.

    Returns:
      The comparison; None if the systems have no seed in common.

    Raises:
      ValueError: if the records have different test sets.
    """
    a, b = ({record["seed"]: record for record in records} for records in (first, second))
    seeds = sorted(a.keys() & b.keys())
    if not seeds:
        return None
    ours, theirs = [a[seed] for seed in seeds], [b[seed] for seed in seeds]
    language = "test_nll" in ours[0]
    lost = sum(map(has_collapsed, (*ours, *theirs)))
    alike = all(_settings(x) == _settings(y) for x, y in zip(ours, theirs, strict=True))
    sizes = {len(record["test_nll" if language else "correct"]) for record in (*ours, *theirs)}
    names = [record.get("cell") or record.get("system") for record in (ours[0], theirs[0])]
    of = f"records of {ours[0].get('data')}, {names[0]} and {names[1]}"
    counts = {record["test_n"] for record in (*ours, *theirs)}
    if len(sizes) > 1 or len(counts) > 1:
        got = " / ".join(map(str, sorted(sizes | counts)))
        raise ValueError(f"{of}: test_n must be equal, got {got}; run them again with --rerun")
    origins = sorted({origin_of(record) for record in (*ours, *theirs)})
    if len(origins) > 1:
        raise ValueError(
            f"{of}: the origin of the data must be equal, got {' / '.join(origins)}; run them "
            "again with --rerun"
        )
    # Older records have no digest, so they are left out of the comparison.
    digests = sorted(
        {record["test_digest"] for record in (*ours, *theirs) if "test_digest" in record}
    )
    if len(digests) > 1:
        raise ValueError(
            f"{of}: test_digest must be equal, got {' / '.join(digests)}: the test examples or "
            "their order differ, as between raw files (--manual-dir) and a prepared set "
            "(--data-dir); run them again with --rerun"
        )
    if language:
        x, y = (np.mean([record["test_nll"] for record in rows], axis=0) for rows in (ours, theirs))
        # The bootstrap averages over windows. The factor turns the mean of a window into nats per
        # token.
        per_token = len(x) / ours[0]["test_n"]
        boot = analysis.paired_bootstrap(x * per_token, y * per_token, samples=WINDOW_SAMPLES)
        by_seed = tuple(
            (math.fsum(x["test_nll"]) - math.fsum(y["test_nll"])) / x["test_n"]
            for x, y in zip(ours, theirs, strict=True)
        )
        return Comparison(tuple(seeds), boot, (), True, alike, by_seed, lost)
    right, other = correctness(ours), correctness(theirs)
    of_each = groups(ours[0])
    boot = analysis.paired_bootstrap(right.mean(axis=0), other.mean(axis=0), groups=of_each)
    pairs = zip(right, other, strict=True) if of_each is None else ()
    # McNemar's test takes examples as independent, so it is left out if they come in groups.
    exact = [analysis.mcnemar(x, y).p_value for x, y in pairs]
    by_seed = tuple((right.mean(axis=1) - other.mean(axis=1)).tolist())
    return Comparison(tuple(seeds), boot, tuple(exact), False, alike, by_seed, lost)


def _settings(record: Record) -> tuple[Json, Json]:
    """Returns (data, training): the settings of a record that two compared runs should share."""
    return record["config"]["data"], train_settings(record["config"])


def p_text(p: float) -> str:
    """Formats a p-value for tables."""
    return f"{p:.3f}" if p >= 0.001 else "<0.001"


def sentence(data: str, first: str, second: str, comparison: Comparison | None) -> str:
    """Returns a sentence with the result of a comparison, for or against a difference.

    Args:
      data: the data set.
      first: the name of the first system.
      second: the name of the second system.
      comparison: the comparison; None if a system was not run.
    """
    if comparison is None:
        return f"{data}, {first} against {second}: not run."
    if comparison.lost:
        return f"{data}: {comparison.verdict(first, second)}."
    boot = comparison.bootstrap
    unit = "nats per token, less is better" if comparison.language else "accuracy"
    count = len(comparison.seeds)
    by = f"bootstrap, {count} {'seed' if count == 1 else 'seeds'}"
    if comparison.why_not is None:
        exact = (
            f"; McNemar p {', '.join(map(p_text, comparison.exact))}" if comparison.exact else ""
        )
        seeds = ", ".join(f"{difference:+.4f}" for difference in comparison.by_seed)
        tests = f", p = {boot.p_value:.4f} ({by}, corrected){exact}; by seed {seeds}."
    else:
        tests = f" ({by})."
    return (
        f"{data}: {comparison.verdict(first, second)}. {first} minus {second}: difference "
        f"{boot.difference:+.4f} ({unit}), 95 % interval [{boot.low:+.4f}, {boot.high:+.4f}]"
        f"{tests}" + ("" if comparison.alike else " Their data or training settings differ.")
    )
