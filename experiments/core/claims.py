"""The results for a paper's claims, in the first sections of its RESULTS.md."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from experiments.core.comparison import (
    LEVEL,
    SEEDS,
    Comparison,
    interval_text,
    p_text,
    these_runs,
)
from experiments.core.kinds import Record, Records
from experiments.core.origins import OFFICIAL, origin_of, other_data, substitute_of
from experiments.core.records import COLLAPSED, LAST, alive, format_average
from gatedjax import analysis

Word = Literal["reproduced", "excluded", "undecided", "not run"]
WORDS: tuple[Word, ...] = ("reproduced", "excluded", "undecided", "not run")
"""The results of a comparison for a claim, in the order of a line."""
NOTE = (
    "Made from the records. Positive differences favour the system of the claim, in points of "
    "accuracy or as named."
)
RULES = (
    f"Reproduced: ours differs in the direction of the claim (corrected p < {LEVEL}), and the "
    "paper's difference is inside or below our 95 % interval. Excluded: the paper's difference is "
    "above our interval; where the paper gives no size, our interval is below 0. Undecided: "
    'neither; "could show" is the smallest difference that would exclude 0 with these seeds and '
    f"this test set. A verdict needs {SEEDS} seeds of both systems. If the result where validation "
    "chose and the result at the last step differ, the claim is undecided. The test is "
    "`gatedjax.analysis.two_way_test`, over seeds and test examples; p are corrected together "
    "(Holm) over the claims of this page, separately at the last step."
)
"""The rules of `decide` and `combine`, for the note of the table of claims."""


def decide(test: analysis.TwoWay, p_value: float, paper: float | None) -> Word:
    """Returns the result of a comparison for a claim, by the rules that `RULES` describes.

    Args:
      test: our difference, positive in the direction of the claim.
      p_value: the corrected p-value.
      paper: the paper's difference in the same unit; None if the paper gives no size. A negative
        difference turns the claim round.
    """
    sign = -1 if paper is not None and paper < 0 else 1
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

    def size(self, difference: float) -> str:
        """Formats a difference with its unit."""
        digits = 3 if self.unit.startswith("nats") else 2
        return f"{difference:+.{digits}f}" + f" {self.unit}" * bool(self.unit)


def scaled(test: analysis.TwoWay | None, factor: float) -> analysis.TwoWay | None:
    """Returns a test with the difference in another unit or direction; None for None."""
    if test is None:
        return None
    low, high = sorted((factor * test.low, factor * test.high))
    return test._replace(
        difference=factor * test.difference,
        low=low,
        high=high,
        standard_error=abs(factor) * test.standard_error,
    )


def label_of(label: str, records: Records) -> str:
    """Returns the name of a data set, with "other data" if the records are not of the paper's."""
    return label + ", other data" * other_data(records)


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
    def text(self) -> str:
        """The data set, and the difference in words."""
        case = self.case
        if self.word == "not run":
            return case.label
        if case.is_lost:
            return f"{case.label} ({COLLAPSED})"
        if not case.has_verdict:
            parts = [f"{these_runs(case.seeds)}: {case.size(case.difference)}"]
        elif self.last not in (None, self.chosen):
            assert case.last is not None
            parts = [
                f"{self.chosen} where validation chose: {case.size(case.difference)}",
                f"{self.last} at the last step: {case.size(case.last.difference)}",
            ]
        else:
            parts = [case.size(case.difference)]
            if self.word == "undecided" and case.test is not None:
                parts.append(f"could show {case.size(case.test.smallest).lstrip('+')}")
        parts.append("paper: no size" if case.paper is None else f"paper: {case.size(case.paper)}")
        return f"{case.label} ({'; '.join((*parts, *case.remarks))})"

    def cells(self) -> list[str]:
        """Returns the row of the table of claims."""
        case = self.case
        row = [case.claim, case.label, "-" if case.paper is None else case.size(case.paper)]
        if not case.seeds or case.is_lost:
            return [*row, *["-"] * 7, self.word + f" ({COLLAPSED})" * case.is_lost]
        row += [f"{case.size(case.difference)} (n={case.seeds})"]
        row += self._interval(case.test, self.p_value)
        row += ["-" if case.last is None else case.size(case.last.difference)]
        row += self._interval(case.last, self.last_p_value)
        row += ["-" if case.test is None else case.size(case.test.smallest).lstrip("+")]
        notes = [] if case.has_verdict else [these_runs(case.seeds)]
        if self.last not in (None, self.chosen):
            notes.append(f"{self.chosen} where validation chose, {self.last} at the last step")
        return [*row, "; ".join((self.word, *notes, *case.remarks))]

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


def line(claim: str, findings: Sequence[Finding]) -> str:
    """Returns a line of Markdown with a claim and its results."""
    parts = []
    for word in WORDS:
        places = [finding.text for finding in findings if finding.word == word]
        if places:
            parts.append(f"{word} on {', '.join(places)}")
    return f"- {claim}: {'; '.join(parts)}."


def count(findings: Iterable[Finding]) -> str:
    """Returns a sentence with the number of comparisons and their results."""
    findings = list(findings)
    words = [finding.word for finding in findings]
    few = sum(finding.word == "undecided" and finding.chosen is None for finding in findings)
    numbers = [f"{words.count(word)} {word}" for word in WORDS]
    if few:
        numbers[WORDS.index("undecided")] += (
            f" ({few} of them with fewer than {SEEDS} seeds or collapsed)"
        )
    return f"**Of {len(findings)} comparisons: {', '.join(numbers)}.**"


def table(findings: Iterable[Finding]) -> str:
    """Returns the table of all claims, as Markdown."""
    headings = ["claim", "data", "paper", "ours", "95 % interval", "p, corrected"]
    headings += [LAST, "95 % interval", "p, corrected", "could show", "verdict"]
    return analysis.render_table(headings, [finding.cells() for finding in findings])


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
      unit: "points", or a metric that is better when it is lower, such as "perplexity".
      remark: a condition of our number, for the reader.
    """

    system: str
    label: str
    paper: float
    ours: float
    text: str
    is_method: bool
    unit: str = "points"
    remark: str = ""


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
            unit=unit,
            remark=remark,
        )
    ]


def opening(numbers: Sequence[Number], otherwise: str) -> str:
    """Returns the first sentence of a page: our numbers of the method and of its baselines.

    Args:
      numbers: the numbers of the paper's systems on its data.
      otherwise: the sentence without numbers.
    """
    gaps: dict[str, list[float]] = {}
    methods = {number.system for number in numbers if number.is_method}
    for number in numbers:
        if number.unit == "points":
            gaps.setdefault(number.system, []).append(number.ours - number.paper)
    parts = [
        f"{system} is {_distance(values)}" for system, values in gaps.items() if system in methods
    ]
    baselines = {system: values for system, values in gaps.items() if system not in methods}
    kinds = {
        "stronger": [name for name, values in baselines.items() if min(values) > 0],
        "weaker": [name for name, values in baselines.items() if max(values) < 0],
    }
    for kind, names in kinds.items():
        if names:
            sizes = [f"{name} by {_range(baselines[name])}" for name in names]
            parts.append(f"{kind} than in the paper: {', '.join(sizes)} points")
    mixed = [name for name in baselines if not any(name in names for names in kinds.values())]
    parts += [
        f"{name} is {min(baselines[name]):+.1f} to {max(baselines[name]):+.1f} points from the "
        "paper's"
        for name in mixed
    ]
    for unit, label in dict.fromkeys((n.unit, n.label) for n in numbers if n.unit != "points"):
        sizes = [
            f"{n.system} has {n.ours:.1f} (paper: {n.paper:.1f})"
            for n in numbers
            if (n.unit, n.label) == (unit, label)
        ]
        parts.append(f"in {unit} of {label} (less is better) {', '.join(sizes)}")
    return f"**{'; '.join(parts) or otherwise}.**"


def _distance(gaps: Sequence[float]) -> str:
    """Describes the gaps of the method, ours minus the paper's, in points."""
    if max(map(abs, gaps)) <= 1:
        return f"within {max(map(abs, gaps)):.1f} points of the paper's numbers"
    if min(gaps) > 0:
        return f"{_range(gaps)} points above the paper's numbers"
    if max(gaps) < 0:
        return f"{_range(gaps)} points below the paper's numbers"
    return f"{min(gaps):+.1f} to {max(gaps):+.1f} points from the paper's numbers"


def _range(gaps: Sequence[float]) -> str:
    """Formats the sizes of gaps with one sign: "1.6 to 2.9", or a single number."""
    sizes = sorted(map(abs, gaps))
    low, high = f"{sizes[0]:.1f}", f"{sizes[-1]:.1f}"
    return low if low == high else f"{low} to {high}"


def level_line(numbers: Sequence[Number]) -> str:
    """Returns a line with our numbers of the method, and in brackets the paper's."""
    texts = []
    for number in numbers:
        if number.is_method:
            remark = f", {number.remark}" if number.remark else ""
            texts.append(f"{number.label} {number.text} ({number.paper:g}){remark}")
    return f"- Ours, and in brackets the paper's: {'; '.join(texts)}." if texts else ""


def data_line(names: Mapping[str, str], records: Mapping[str, Records]) -> str:
    """Returns a line with the origin of the data: the official files, or a substitute.

    Args:
      names: the names of data sets in tables.
      records: the records of each data set.
    """
    official, substitutes = [], []
    for name, ours in records.items():
        origins = list(dict.fromkeys(map(origin_of, ours)))
        if origins == [OFFICIAL]:
            official.append(names.get(name, name))
        else:
            substitutes.append(f"{names.get(name, name)}: {', '.join(origins)}")
    parts = [f"official files for {', '.join(official)}"] if official else []
    return f"- Data: {'; '.join([*parts, *substitutes])}." if parts or substitutes else ""


def vectors_line(records: Iterable[Record]) -> str:
    """Returns a line with the substitutes for the paper's word vectors; "" without a substitute."""
    remarks = [part for record in records for part in (substitute_of(record) or "").split("; ")]
    vectors = dict.fromkeys(
        remark.removeprefix("word vectors ") for remark in remarks if "word vectors" in remark
    )
    return f"- Word vectors: {'; '.join(vectors)}." if vectors else ""
