"""A word for each comparison of a paper's claims, and the paper's numbers with ours."""

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from scipy import stats

from experiments.core.comparison import (
    LEVEL,
    SEEDS,
    Comparison,
    interval_text,
    p_text,
    these_runs,
)
from experiments.core.kinds import Record, Records
from experiments.core.origins import other_data
from experiments.core.records import COLLAPSED, alive, format_average
from gatedjax import analysis

Word = Literal["reproduced", "excluded", "undecided", "not run"]
WORDS: tuple[Word, ...] = ("reproduced", "excluded", "undecided", "not run")
"""The results of a comparison for a claim, in the order of a line."""
MARKS: Mapping[Word, str] = {
    "reproduced": "\u2713",
    "excluded": "\u2717",
    "undecided": "?",
    "not run": "\u2013",
}
"""The sign before each result, so that a reader needs no colours to distinguish the results."""


def mark(word: Word) -> str:
    """Returns a result with its sign, as HTML in Markdown.

    The site colours the element. GitHub shows only its text.

    Args:
      word: the result.
    """
    return f'<span class="verdict verdict-{word.replace(" ", "")}">{MARKS[word]} {word}</span>'


def decide(test: analysis.TwoWay, p_value: float, paper: float | None) -> Word:
    """Returns the result of a comparison for a claim, by the rules that `RULES` describes.

    Args:
      test: our difference, positive in the direction of the claim.
      p_value: the corrected p-value.
      paper: the paper's difference in the same unit; None if the paper gives no size. A negative
        difference turns the claim round.
    """
    sign = -1 if paper is not None and paper < 0 else 1
    # Without a size of the paper any difference in its direction agrees with the claim.
    size = 0.0 if paper is None else abs(paper)
    high = test.high if sign == 1 else -test.low
    if size > high:
        return "excluded"
    return "reproduced" if p_value < LEVEL and sign * test.difference > 0 else "undecided"


def combine(chosen: Word, last: Word | None) -> Word:
    """Returns the result of both sets of parameters; different results leave a claim undecided.

    Args:
      chosen: the result of the parameters that validation chose.
      last: the result at the last step; None if the records do not have it.
    """
    return chosen if last in (None, chosen) else "undecided"


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
    remarks: tuple[str, ...] = ()

    @property
    def has_verdict(self) -> bool:
        """True if the case has enough seeds for a verdict, and no run collapsed."""
        return self.seeds >= SEEDS and not self.is_lost and self.test is not None

    @property
    def is_smaller(self) -> bool:
        """True if our interval is on the paper's side of 0, but does not reach the paper's size."""
        if self.test is None or not self.paper:
            return False
        low, high = sorted((self.test.low, self.test.high))
        return 0 < low <= high < self.paper if self.paper > 0 else self.paper < low <= high < 0

    def size(self, difference: float) -> str:
        """Formats a difference with its unit."""
        digits = 3 if self.unit.startswith("nats") else 2
        return f"{difference:+.{digits}f}" + f" {self.unit}" * bool(self.unit)


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
    )


def label_of(label: str, records: Records) -> str:
    """Returns the name of a data set, with "other data" if the records are not of the paper's."""
    return label + OTHER_DATA * other_data(records)


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
) -> Case:
    """Returns the case of a claim that a system is better than another.

    Args:
      claim: the claim.
      label: the data set.
      comparison: the comparison of the two systems; None if a system was not run.
      records: the records of the runs, for the origin of their data.
      flip: False if the claim favours the first system of the comparison, True for the second.
      paper: the paper's difference, see `Case`.
      unit: the unit of both differences, see `Case`.
      equal_search: True if the settings of both systems come from searches of the same size.
    """
    label = label_of(label, records)
    if comparison is None:
        return Case(claim=claim, label=label, paper=paper, unit=unit)
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
        remarks=() if comparison.alike or equal_search else ("settings differ",),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """The result for a claim on a data set.

    Attributes:
      case: the comparison.
      word: the result.
      chosen: the result of the parameters that validation chose.
      last: the result at the last step; None if the records do not have it.
      p_value: the corrected p-value; None without a verdict.
      last_p_value: the corrected p-value at the last step.
    """

    case: Case
    word: Word
    chosen: Word | None = None
    last: Word | None = None
    p_value: float | None = None
    last_p_value: float | None = None

    @property
    def place(self) -> str:
        """The data set, and in brackets the conditions that limit the result."""
        case = self.case
        # Places are joined by commas, so the parts of a label after a comma go into the brackets.
        label, *remarks = case.label.split(", ")
        if self.word != "not run":
            if case.is_lost:
                remarks.append(COLLAPSED)
            elif not case.has_verdict:
                remarks.append(f"these runs, {case.seeds} seed{'s' * (case.seeds > 1)}")
            else:
                remarks += self._checkpoints
            # "Excluded" would otherwise hide that the claim holds, but with a smaller difference.
            if self.word == "excluded" and case.is_smaller:
                remarks.append(
                    f"a smaller difference of {case.size(case.difference)}; the paper has "
                    f"{case.size(case.paper or 0.0)}"
                )
            remarks += case.remarks
        return f"{label} ({', '.join(remarks)})" if remarks else label

    @property
    def _checkpoints(self) -> list[str]:
        """A note if the result does not hold, or is not known, for the parameters of both steps."""
        if self.last is None:
            return ["only where validation chose"]
        if self.last == self.chosen:
            return []
        return [f"{self.chosen} where validation chose, {self.last} at the last step"]

    def cells(self) -> list[str]:
        """Returns the row of the table of claims."""
        case = self.case
        notes = [] if case.has_verdict or not case.seeds else [these_runs(case.seeds)]
        if case.is_lost:
            notes = [COLLAPSED]
        if case.has_verdict:
            notes += self._checkpoints
        row = [case.claim, case.label, "; ".join((mark(self.word), *notes, *case.remarks))]
        row += ["-" if case.paper is None else case.size(case.paper)]
        if not case.seeds or case.is_lost:
            return [*row, *["-"] * 7]
        row += [f"{case.size(case.difference)} (n={case.seeds})"]
        row += self._interval(case.test, self.p_value)
        row += ["-" if case.last is None else case.size(case.last.difference)]
        row += self._interval(case.last, self.last_p_value)
        return [*row, "-" if case.test is None else case.size(case.test.smallest).lstrip("+")]

    def _interval(self, test: analysis.TwoWay | None, p_value: float | None) -> list[str]:
        """Returns two cells: the interval of a test, and its corrected p-value."""
        digits = 3 if self.case.unit.startswith("nats") else 2
        return [
            "-" if test is None else interval_text(test, 1, digits),
            "-" if p_value is None else p_text(p_value),
        ]


def judge(cases: Sequence[Case]) -> list[Finding]:
    """Returns the findings of all claims of a page; their p-values are corrected together (Holm).

    The tests of the parameters that validation chose are a family, and the tests at the last step
    are another. A claim has to hold in both.

    Args:
      cases: the cases of all claims.
    """
    # Only cases with a verdict are corrected, because the others can make no false claim.
    p_values = _corrected(cases, lambda case: case.test)
    last_p_values = _corrected(cases, lambda case: case.last)
    findings = []
    for place, case in enumerate(cases):
        if not case.seeds:
            findings.append(Finding(case=case, word="not run"))
            continue
        if not case.has_verdict:
            findings.append(Finding(case=case, word="undecided"))
            continue
        p_value, last_p_value = p_values[place], last_p_values.get(place)
        assert case.test is not None
        chosen = decide(case.test, p_value, case.paper)
        last = None
        if case.last is not None and last_p_value is not None:
            last = decide(case.last, last_p_value, case.paper)
        findings.append(
            Finding(
                case=case,
                word=combine(chosen, last),
                chosen=chosen,
                last=last,
                p_value=p_value,
                last_p_value=last_p_value,
            )
        )
    return findings


def _corrected(
    cases: Sequence[Case], test_of: Callable[[Case], analysis.TwoWay | None]
) -> dict[int, float]:
    """Returns the corrected p-value of each case with a verdict, by its index."""
    tests = {
        place: test
        for place, case in enumerate(cases)
        if case.has_verdict and (test := test_of(case)) is not None
    }
    corrected = analysis.holm([test.p_value for test in tests.values()])
    return dict(zip(tests, map(float, corrected), strict=True))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Number:
    """A number of the paper, and ours on the paper's data.

    Attributes:
      system: the name of the system.
      label: the data set and metric.
      paper: the paper's number.
      ours: the mean over our runs that did not collapse.
      interval: the 95 % interval of our mean, by Student's t over the seeds; None with one seed.
      seeds: the number of our runs.
      text: our mean, deviation and number of runs.
      is_method: True for the paper's method, False for its baselines.
      unit: "points", or a metric that is better when it is lower, such as "perplexity".
      remark: a condition of our number, for the reader.
    """

    system: str
    label: str
    paper: float
    ours: float
    text: str
    is_method: bool
    interval: tuple[float, float] | None = None
    seeds: int = 0
    unit: str = "points"
    remark: str = ""

    @property
    def word(self) -> Word | None:
        """The result for a number of the method; None for a baseline and for too few seeds."""
        if not self.is_method or self.interval is None or self.seeds < SEEDS:
            return None
        low, high = self.interval
        # A metric other than points is better when it is lower.
        reaches = high >= self.paper if self.unit == "points" else low <= self.paper
        return "reproduced" if reaches else "excluded"


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

    Args:
      system: the name of the system.
      label: the data set.
      paper: the paper's number.
      records: the records of the seeds.
      value: returns our number from a record, or None if it is not recorded.
      is_method: see `Number`.
      unit: see `Number`.
      remark: see `Number`.
    """
    # A run that collapsed would shift the mean although it shows nothing about the system.
    living = alive(records)
    values = [number for record in living if (number := value(record)) is not None]
    if not values or other_data(living):
        return []
    mean = math.fsum(values) / len(values)
    return [
        Number(
            system=system,
            label=label,
            paper=paper,
            ours=mean,
            text=format_average(records, value, 2),
            is_method=is_method,
            interval=_interval_over_seeds(values),
            seeds=len(values),
            unit=unit,
            remark=remark,
        )
    ]


def _interval_over_seeds(values: Sequence[float]) -> tuple[float, float] | None:
    """Returns the 95 % interval of a mean by Student's t; None with a single value."""
    if len(values) < 2:
        return None
    # The runs are few, so that quantiles of the normal distribution would be too narrow.
    mean, deviation = math.fsum(values) / len(values), statistics.stdev(values)
    half = float(stats.t.ppf(0.975, len(values) - 1)) * deviation / math.sqrt(len(values))
    return mean - half, mean + half
