"""The rule of verdicts: one of five words for a claim, from our runs and the paper's difference."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from scipy import stats

from gatedjax import analysis
from gatedjax.analysis._two_way import student_test

Word = Literal["reproduced", "smaller", "ruled out", "undecided", "not run"]
WORDS: tuple[Word, ...] = ("reproduced", "smaller", "ruled out", "undecided", "not run")
"""The results of a comparison for a claim, in the order of a line."""
MARKS: Mapping[Word, str] = {
    "reproduced": "\u2713",
    "smaller": "\u2193",
    "ruled out": "\u2717",
    "undecided": "?",
    "not run": "\u2013",
}
"""The sign before each result, so that a reader needs no colours to distinguish the results."""
LEVEL = 0.05
"""The level of the tests: p-values that are corrected over a page count below it."""
HARDLY = 0.2
"""Below this chance a claim could hardly have been reproduced, even if the paper's gain is true."""


def mark(word: Word) -> str:
    """Returns a result with its sign, as HTML in Markdown. The site colours the element. GitHub
    shows only its text."""
    return f'<span class="verdict verdict-{word.replace(" ", "")}">{MARKS[word]} {word}</span>'


class Evidence(NamedTuple):
    """The word of the runs for a claim with a set of parameters (best, or at the last step).

    Attributes:
      gain: our difference d, in the direction of the claim, against 0.
      size: d minus the paper's difference, against 0 (see `against`). Without a size of the paper
        it is `gain`.
    """

    gain: analysis.TwoWay
    size: analysis.TwoWay

    @property
    def rules_out(self) -> bool:
        """True if a gain as large as the paper's is ruled out."""
        return self.size.difference < 0 and self.size.p_value < LEVEL

    @property
    def shows(self) -> bool:
        """True if our difference is above 0 after the correction."""
        return self.gain.difference > 0 and self.gain.p_value < LEVEL


def decide(evidence: Sequence[Evidence]) -> Word:
    """Returns the result for a claim; its p-values are corrected over the claims of the page.

    Both sets of parameters have to agree. A gain as large as the paper's is

        ruled out    where d is below the paper's D:  corrected p of d - D < 0.05,
        reproduced   where it is not, and d is above 0:  corrected p of d < 0.05.

    A gain that is ruled out is "smaller" if our 95 % interval of d is above 0.

    Args:
      evidence: the evidence where validation chose and, if the records have it, at the last step.
    """
    out = [step.rules_out for step in evidence]
    if all(out):
        return "smaller" if all(step.gain.low > 0 for step in evidence) else "ruled out"
    if not any(out) and all(step.shows for step in evidence):
        return "reproduced"
    return "undecided"


def against(test: analysis.TwoWay, paper: float, runs: int = 1) -> analysis.TwoWay:
    """Tests our difference against the paper's, which is a draw with our spread of seeds.

    With the variances S of the seeds of both systems, n seeds of ours and k of the paper's, and the
    variance E over examples:

        V = S_A (1/n_A + 1/k) + S_B (1/n_B + 1/k) + E,   t = (d - D) / sqrt(V)

    d plus and minus the half-width of the interval is the prediction interval of the paper's
    difference. On the same test examples E is more than is needed, because both differences have
    the same examples.

    Args:
      test: our difference d.
      paper: the paper's difference D in the same unit.
      runs: the number k of runs behind each of the paper's two numbers.

    Source: Patil, Peng and Leek 2016; the degrees of freedom as in `two_way_test`.
    """
    if not test.parts:
        raise ValueError("test must have the parts of its variance, got none")
    *seeds, examples = test.parts
    # A part of the seeds is S / n with n - 1 degrees of freedom.
    parts = [(part * (1 + (freedom + 1) / runs), freedom) for part, freedom in seeds]
    return student_test(test.difference - paper, [*parts, examples])


def chance(test: analysis.TwoWay, paper: float, claims: int) -> float:
    """Returns the probability that d is above 0 after the correction, if the paper's D is true.

        P(T > t_{1 - 0.05 / 2m, f}),   T: noncentral t with f degrees of freedom, centre D / s

    The correction is that of the smallest of m p-values (Bonferroni), which is the hardest case.

    Args:
      test: our difference, with standard error s and f degrees of freedom.
      paper: the paper's difference D.
      claims: the number m of the claims of the page that are tested.
    """
    if not test.standard_error:
        return float(paper != 0)
    critical = stats.t.isf(LEVEL / 2 / claims, test.freedom)
    return float(stats.nct.sf(critical, test.freedom, abs(paper) / test.standard_error))


def corrected(tests: Sequence[analysis.TwoWay]) -> list[analysis.TwoWay]:
    """Returns the tests of a page with p-values that are corrected together (Holm)."""
    p_values = analysis.holm([test.p_value for test in tests])
    return [test._replace(p_value=float(p)) for test, p in zip(tests, p_values, strict=True)]


def weigh(evidence: Sequence[Evidence | None]) -> list[Evidence | None]:
    """Corrects the evidence for the claims of a page with one set of parameters; None stays. The
    tests against 0 are a family of tests, and the tests against the paper's size are another."""
    tested = [step for step in evidence if step is not None]
    gains = iter(corrected([step.gain for step in tested]))
    sizes = iter(corrected([step.size for step in tested]))
    return [None if step is None else Evidence(next(gains), next(sizes)) for step in evidence]


def student(values: Sequence[float], *, level: float = 1 - LEVEL) -> analysis.TwoWay:
    """Tests a mean over seeds against 0 (Student's t); needs two values."""
    summary = analysis.summary(values)
    assert summary.std is not None
    part = (summary.std**2 / summary.n, summary.n - 1.0)
    return student_test(summary.mean, [part, (0.0, 1.0)], level=level)
