"""The results for a paper's claims, in the first lines of its RESULTS.md."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from experiments.core.comparison import ONE_SEED, SEEDS_DISAGREE, SHOWN, Comparison
from experiments.core.kinds import Record, Records
from experiments.core.origins import NOT_RUN, OFFICIAL, origin_of, other_data, substitute_of
from experiments.core.records import COLLAPSED

State = Literal["shown", "opposite", "neither", "one seed", "collapsed", "not run"]
STATES: dict[State, str] = {
    "shown": "shown on",
    "opposite": "the opposite is shown on",
    "neither": "no difference is shown on",
    "one seed": "one seed, no verdict, on",
    "collapsed": f"{COLLAPSED} on",
    "not run": f"{NOT_RUN} on",
}
"""The words of a line for each result of a claim, in the order of the line."""
NOTE = (
    "Made from the records. Differences are those of the tables below, in points of accuracy or as "
    f"named; one is shown {SHOWN}."
)


@dataclasses.dataclass(frozen=True)
class Finding:
    """The result for a claim on a data set.

    Attributes:
      data: the data set, with "other data" if it is not the paper's.
      state: the result.
      size: the difference, in words.
    """

    data: str
    state: State
    size: str = ""


def finding_for(
    label: str, comparison: Comparison | None, records: Records, *, flip: bool
) -> Finding:
    """Returns the result for the claim that a system is better than another.

    Args:
      label: the data set.
      comparison: the comparison of the two systems; None if a system was not run.
      records: the records of the runs, for the origin of their data.
      flip: False if the claim favours the first system of the comparison, True for the second.
    """
    if other_data(records):
        label += ", other data"
    if comparison is None:
        return Finding(label, "not run")
    # A run that collapsed shows nothing about its system, so its difference is no result.
    if comparison.lost:
        return Finding(label, "collapsed")
    difference = comparison.bootstrap.difference * (-1 if flip else 1)
    size = (
        f"{difference:+.3f} nats, less is better"
        if comparison.language
        else f"{100 * difference:+.2f}"
    )
    if comparison.why_not == ONE_SEED:
        return Finding(label, "one seed", size)
    if comparison.better is None:
        return Finding(
            label, "neither", size + f", {SEEDS_DISAGREE}" * comparison.has_contradiction
        )
    return Finding(label, "shown" if comparison.better != flip else "opposite", size)


def line(claim: str, findings: Sequence[Finding]) -> str:
    """Returns a line of Markdown with a claim and its results."""
    parts = []
    for state, words in STATES.items():
        places = [
            finding.data + f" ({finding.size})" * bool(finding.size)
            for finding in findings
            if finding.state == state
        ]
        if places:
            parts.append(f"{words} {', '.join(places)}")
    return f"- {claim}: {'; '.join(parts)}."


def count(findings: Iterable[Finding]) -> str:
    """Returns a sentence with the number of comparisons and their results."""
    states = [finding.state for finding in findings]
    number = {state: states.count(state) for state in STATES}
    # Comparisons with a single seed or a collapsed run are no tests, because they have no verdict.
    tested = number["shown"] + number["opposite"] + number["neither"]
    lacking: tuple[tuple[State, str], ...] = (
        ("one seed", "with one seed"),
        ("collapsed", COLLAPSED),
        ("not run", NOT_RUN),
    )
    remarks = [f"{number[state]} {words}" for state, words in lacking if number[state]]
    ending = f"; {', '.join(remarks)}" if remarks else ""
    if not tested:
        return f"**Comparisons with two seeds or more: none of {len(states)}{ending}.**"
    return (
        f"**Comparisons with two seeds or more: {tested} of {len(states)}. The paper's difference "
        f"is shown in {number['shown']}, the opposite in {number['opposite']}, "
        f"none in {number['neither']}{ending}.**"
    )


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
