"""The comparisons of a paper's claims with their verdicts, and the paper's numbers with ours."""

import dataclasses
import math
from collections.abc import Callable, Sequence

from experiments.core import verdict
from experiments.core.comparison import (
    SEEDS,
    Comparison,
    interval_text,
    p_text,
    these_runs,
)
from experiments.core.kinds import Record, Records
from experiments.core.origins import marks_of, other_data
from experiments.core.records import COLLAPSED, alive, format_average
from experiments.core.verdict import Evidence, Word, decide, mark
from gatedjax import analysis

NOT_LEARNED = "our networks do not learn this task"
"""The reason of an undecided claim on data where no network learns, see `learns`."""
HARDLY_SHOWN = "could hardly have been reproduced"
"""The note of a claim with a small chance, see `verdict.chance`."""
BEST_ONLY = "only where validation chose"
"""The note of a result without a test at the last step."""
OTHER_DATA = ", other data"
"""The end of the label of a data set that is not the paper's."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A comparison that tests a claim. All differences are positive in the claim's direction.

    Attributes:
      claim: the claim.
      label: the data set, with "other data" if it is not the paper's.
      seeds: the number of seeds that both systems have, 0 if a system was not run.
      difference: our difference.
      test: our difference with its interval; None with a single seed.
      last: the same at the last step; None if the records do not have it.
      paper: the paper's difference; None if the paper gives no size.
      unit: the unit in words; "" means points of accuracy.
      is_lost: True if a run collapsed, which shows nothing about its system.
      has_learned: False if neither system learned the task, see `learns`.
      remarks: what a reader has to know in addition, such as different settings.
    """

    claim: str
    label: str
    seeds: int = 0
    difference: float = 0.0
    test: analysis.TwoWay | None = None
    last: analysis.TwoWay | None = None
    paper: float | None = None
    unit: str = ""
    is_lost: bool = False
    has_learned: bool = True
    remarks: tuple[str, ...] = ()

    @property
    def why_not(self) -> str:
        """The reason why a comparison that was run can have no verdict, or ""."""
        if self.is_lost:
            return COLLAPSED
        if self.seeds < SEEDS or self.test is None:
            return these_runs(self.seeds)
        return "" if self.has_learned else NOT_LEARNED

    @property
    def has_verdict(self) -> bool:
        """True if the case can have a verdict."""
        return bool(self.seeds) and not self.why_not

    @property
    def sign(self) -> int:
        """-1 if the paper itself has a negative difference, which turns the claim round, else 1."""
        return -1 if self.paper is not None and self.paper < 0 else 1

    def evidence(self, test: analysis.TwoWay | None) -> Evidence | None:
        """Returns our difference in the direction of the paper's, against 0 and the paper's."""
        gain = scaled(test, self.sign)
        if gain is None:
            return None
        return Evidence(
            gain, gain if self.paper is None else verdict.against(gain, abs(self.paper))
        )

    def size(self, difference: float) -> str:
        """Formats a difference with its unit."""
        digits = 3 if self.unit.startswith("nats") else 2
        return f"{difference:+.{digits}f}" + f" {self.unit}" * bool(self.unit)


def learns(systems: Sequence[Records], least: float, linear: float | None = None) -> bool:
    """Returns True if a system learns its task: by its mean over seeds it is above `least`, and the
    95 % interval of the mean is above `linear`. `least` is an accuracy in percent, such as half of
    the paper's, and `linear` that of a linear classifier of the same inputs, if it was run."""
    scores = [[100 * record["test"]["accuracy"] for record in records] for records in systems]
    tests = [verdict.student(of) for of in scores if len(of) > 1]
    return any(test.difference > least and (linear is None or test.low > linear) for test in tests)


def scaled(test: analysis.TwoWay | None, factor: float) -> analysis.TwoWay | None:
    """Returns a test with the difference in another unit or direction; None for None."""
    if test is None:
        return None
    # A negative factor exchanges the ends of the interval.
    low, high = sorted((factor * test.low, factor * test.high))
    return test._replace(
        difference=factor * test.difference,
        low=low,
        high=high,
        standard_error=abs(factor) * test.standard_error,
        parts=tuple((factor**2 * variance, freedom) for variance, freedom in test.parts),
    )


def case_of(
    claim: str,
    label: str,
    comparison: Comparison | None,
    records: Records,
    *,
    flip: bool = False,
    paper: float | None = None,
    unit: str = "",
    equal_search: bool = False,
    has_learned: bool = True,
    remarks: tuple[str, ...] = (),
    why_not_run: str = "",
) -> Case:
    """Returns the case of a claim that a system is better than another. `flip` is True if the claim
    favours the second system of the comparison. `equal_search` is True if the settings of both
    systems come from searches of the same size. The other arguments are fields of `Case`;
    `why_not_run` is the reason of a comparison that was not run."""
    label += OTHER_DATA * other_data(records)
    if comparison is None:
        reasons = (why_not_run,) * bool(why_not_run)
        return Case(claim=claim, label=label, paper=paper, unit=unit, remarks=reasons)
    if comparison.far_off:
        remarks = ("a seed lies far off", *remarks)
    if not (comparison.alike or equal_search):
        remarks = ("settings differ", *remarks)
    # For language models the lower number is better.
    sign = -1 if flip != comparison.language else 1
    factor = sign * (1 if comparison.language else 100)
    return Case(
        claim=claim,
        label=label,
        seeds=len(comparison.seeds),
        difference=factor * comparison.difference,
        test=scaled(comparison.test, factor),
        last=scaled(comparison.last, factor),
        paper=paper,
        unit=unit,
        is_lost=bool(comparison.lost),
        has_learned=has_learned,
        remarks=(*remarks, *marks_of(records)),
    )


def percent(share: float | None) -> str:
    """Formats a share in percent; None is a dash."""
    return "-" if share is None else f"{100 * share:.0f} %"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """The result for a claim on a data set.

    Attributes:
      case: the comparison.
      word: the result.
      chosen: the evidence of the parameters that validation chose; None without a verdict.
      last: the evidence at the last step; None without it.
      chance: the probability of "reproduced" if the paper's gain is true; None without a size.
    """

    case: Case
    word: Word
    chosen: Evidence | None = None
    last: Evidence | None = None
    chance: float | None = None

    @property
    def place(self) -> str:
        """The data set, and in brackets the conditions that limit the result."""
        case = self.case
        # Places are joined by commas, so the parts of a label after a comma go into the brackets.
        label, *remarks = case.label.split(", ")
        if self.word in ("reproduced", "smaller") and case.paper is not None:
            remarks.append(f"{case.size(case.difference)}, the paper {case.size(case.paper)}")
        if case.seeds and not case.is_lost and case.seeds < SEEDS:
            remarks.append(f"these runs, {case.seeds} seed{'s' * (case.seeds > 1)}")
        else:
            remarks += self.limits
        if self.could_hardly_show:
            remarks.append(f"chance {percent(self.chance)}")
        remarks += case.remarks
        return f"{label} ({', '.join(remarks)})" if remarks else label

    @property
    def limits(self) -> list[str]:
        """The reason why there is no verdict, or the steps at which it does not hold."""
        if self.chosen is None:
            return [self.case.why_not] if self.case.seeds else []
        if self.last is None:
            return [BEST_ONLY]
        if not self.is_reversed:
            return []
        first, second = decide([self.chosen]), decide([self.last])
        return [f"{first} where validation chose, {second} at the last step"]

    @property
    def is_reversed(self) -> bool:
        """True if the last step by itself has another result."""
        steps = [step for step in (self.chosen, self.last) if step is not None]
        return len({decide([step]) for step in steps}) > 1

    @property
    def could_hardly_show(self) -> bool:
        """True if the claim is not reproduced and had a small chance, even if it is true."""
        return (
            self.word != "reproduced" and self.chance is not None and self.chance < verdict.HARDLY
        )

    def cells(self) -> list[str]:
        """Returns the row of the table of claims."""
        case = self.case
        notes = [mark(self.word), *self.limits]
        if self.could_hardly_show:
            notes.append(f"{HARDLY_SHOWN}: {percent(self.chance)}")
        row = [case.claim, case.label, "; ".join((*notes, *case.remarks))]
        row += ["-" if case.paper is None else case.size(case.paper)]
        if not case.seeds or case.is_lost:
            return [*row, *["-"] * 11]
        row += [f"{case.size(case.difference)} (n={case.seeds})"]
        row += self._tests(case.test, self.chosen)
        row += ["-" if case.last is None else case.size(case.last.difference)]
        row += self._tests(case.last, self.last)
        return [*row, percent(self.chance)]

    def _tests(self, test: analysis.TwoWay | None, evidence: Evidence | None) -> list[str]:
        """Returns four cells: each interval with the corrected p-value of its test."""
        digits = 3 if self.case.unit.startswith("nats") else 2
        if test is None:
            return ["-"] * 4
        ours = interval_text(test, 1, digits)
        if evidence is None:
            return [ours, "-", "-", "-"]
        gain = [ours, p_text(evidence.gain.p_value)]
        if self.case.paper is None:
            return [*gain, "-", "-"]
        # The interval is that of the difference between both, so it lies around ours.
        half = evidence.size.smallest
        around = test._replace(low=test.difference - half, high=test.difference + half)
        return [*gain, interval_text(around, 1, digits), p_text(evidence.size.p_value)]


def judge(cases: Sequence[Case]) -> list[Finding]:
    """Returns the findings of all claims of a page, by the rule of `verdict.decide`."""
    # Only cases with a verdict are corrected, because the others can make no false claim.
    steps = (
        [case.evidence(of(case)) if case.has_verdict else None for case in cases]
        for of in (lambda case: case.test, lambda case: case.last)
    )
    chosen, last = map(verdict.weigh, steps)
    count = sum(case.has_verdict for case in cases)
    findings = []
    for case, best, at_last in zip(cases, chosen, last, strict=True):
        if best is None:
            findings.append(Finding(case=case, word="undecided" if case.seeds else "not run"))
            continue
        evidence = [best] if at_last is None else [best, at_last]
        chance = None
        if case.paper is not None:
            # Both sets of parameters have to agree, so the smaller chance is the limit.
            chance = min(verdict.chance(step.gain, case.paper, count) for step in evidence)
        word = decide(evidence)
        findings.append(Finding(case=case, word=word, chosen=best, last=at_last, chance=chance))
    return findings


def untested(reason: str) -> Callable[[str, object], list[Case]]:
    """Returns a function that finds the case of a claim without a comparison, with the reason."""
    return lambda claim, store: [Case(claim=claim, label="all data", remarks=(reason,))]


TOLERANCE = 1.0
"""The largest distance below the paper's number at which ours reaches it: in points, or of a metric
such as perplexity in percent of the paper's."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Number:
    """A number of the paper, and ours on the paper's data.

    Attributes:
      system: the name of the system.
      label: the data set and metric.
      paper: the paper's number.
      ours: the mean over our runs that did not collapse.
      text: our mean, deviation and number of runs.
      is_method: True for the paper's method, False for its baselines.
      values: our number of each seed.
      last: the same at the last step; () if the records do not have it.
      unit: "points", or a metric that is better when it is lower, such as "perplexity".
      remark: a condition of our number, for the reader.
      word: the result for a number of the method; None for a baseline and for too few seeds.
      is_exceeded: True if ours is better than the paper's by more than `TOLERANCE`.
    """

    system: str
    label: str
    paper: float
    ours: float
    text: str
    is_method: bool
    values: tuple[float, ...] = ()
    last: tuple[float, ...] = ()
    unit: str = "points"
    remark: str = ""
    word: Word | None = None
    is_exceeded: bool = False

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of our mean, by Student's t over the seeds; None with one seed."""
        if len(self.values) < 2:
            return None
        test = verdict.student(self.values)
        return test.low, test.high

    @property
    def seeds(self) -> int:
        """The number of our runs."""
        return len(self.values)

    def gaps(self) -> list[list[float]]:
        """Returns ours minus the paper's for each seed, positive where ours is better. The first
        list is of the parameters that validation chose; a second is of the last step."""
        factor = 1.0 if self.unit == "points" else -100 / self.paper
        both = (self.values, self.last) if len(self.last) == self.seeds else (self.values,)
        return [[factor * (value - self.paper) for value in values] for values in both]


def judge_numbers(numbers: Sequence[Number]) -> list[Number]:
    """Returns the numbers of a page with their words, by an equivalence test at both steps.

    With our mean m over n seeds, deviation s and the paper's number P, in units of the tolerance:

        reproduced   m - t_{0.95, n - 1} s / sqrt(n) > P - 1   (one-sided, at 5 %)
        ruled out    corrected p of (m - P) / (s sqrt(1/n + 1)) < 0.05, and m < P

    Ruling out takes the paper's number as a single run with our spread of seeds; its p-values are
    corrected over the page (Holm).
    """
    gaps = [
        number.gaps() if number.is_method and number.seeds >= SEEDS else [] for number in numbers
    ]
    draws = [
        iter(
            verdict.corrected(
                [verdict.against(verdict.student(of[step]), 0.0) for of in gaps if len(of) > step]
            )
        )
        for step in (0, 1)
    ]
    judged = []
    for number, steps in zip(numbers, gaps, strict=True):
        if not steps:
            judged.append(number)
            continue
        # The second of `draws` has only the numbers whose records have the last step.
        tests = [next(draws[step]) for step in range(len(steps))]
        # A one-sided test at 5 % is the lower end of an interval of 90 %.
        lows = [verdict.student(of, level=1 - 2 * verdict.LEVEL).low for of in steps]
        word: Word = "undecided"
        if all(low > -TOLERANCE for low in lows):
            word = "reproduced"
        elif all(test.p_value < verdict.LEVEL and test.difference < 0 for test in tests):
            word = "ruled out"
        is_exceeded = all(low > TOLERANCE for low in lows)
        judged.append(dataclasses.replace(number, word=word, is_exceeded=is_exceeded))
    return judged


def number_of(
    system: str,
    label: str,
    paper: float,
    records: Records,
    value: Callable[[Record], float | None],
    *,
    is_method: bool,
    unit: str = "points",
    remark: str = "",
) -> list[Number]:
    """Returns a list with a `Number`; it is empty without a run on the paper's data that learned.
    `value` returns our number from a record, or None; the other arguments are fields of `Number`.
    """
    # A run that collapsed would shift the mean although it shows nothing about the system.
    living = alive(records)
    values = [number for record in living if (number := value(record)) is not None]
    if not values or other_data(living):
        return []
    mean = math.fsum(values) / len(values)
    # The numbers at the last step have the same metric, in the other part of a record.
    last = [
        number
        for record in living
        if "test_last" in record
        and (number := value({**record, "test": record["test_last"]})) is not None
    ]
    return [
        Number(
            system=system,
            label=label,
            paper=paper,
            ours=mean,
            text=format_average(records, value, 2),
            is_method=is_method,
            values=tuple(values),
            last=tuple(last),
            unit=unit,
            remark=remark,
        )
    ]
