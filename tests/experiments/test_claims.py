"""The first sections of RESULTS.md: a word for each claim, from comparisons and records."""

import dataclasses
import importlib
import math
import re
import shutil

import pytest

from experiments.agt.paper import PAPER as AGT
from experiments.core import chart, claims, summary, verdict
from experiments.core.comparison import compare
from experiments.core.paper import TRIALS, Claim, count_trials
from experiments.core.records import RESULTS, Store, read_json, write_json
from gatedjax.analysis import TwoWay
from gatedjax.analysis._figure import new_figure
from tests.conftest import ROOT
from tests.experiments._toy import PAPER, TABLE


def records(*rights, **more):
    """Records of one system by seed, from how many of 40 examples are right."""
    return [
        {"seed": seed, "data": "x", "correct": "1" * n + "0" * (40 - n), "test_n": 40, **more}
        | {"config": {"data": {}, "train": {}}}
        | {key: {"accuracy": n / 40} for key in ("test", "test_last")}
        for seed, n in enumerate(rights)
    ]


BASE = records(20, 20, 21)


def interval(low, high):
    """A test with its parts, which are small for the seeds and the examples."""
    parts = ((0.02, 4.0), (0.02, 4.0), (0.01, 39.0))
    return TwoWay((low + high) / 2, low, high, 0.01, 0.25, 10.0, parts)


def evidence(low, high, p=0.01, gap=0.5, p_size=0.5):
    return verdict.Evidence(
        interval(low, high)._replace(p_value=p),
        interval(gap - 1, gap + 1)._replace(p_value=p_size),
    )


@pytest.mark.parametrize(
    ("ours", "word", "flipped", "text"),
    [
        (records(38, 38, 39), "reproduced", "ruled out", "TREC (+45.00, the paper +10.00)"),
        (records(2, 2, 3), "ruled out", "reproduced", "TREC"),
        (records(38, 38), "undecided", "undecided", "TREC (these runs, 2 seeds)"),
        (records(38), "undecided", "undecided", "TREC (these runs, 1 seed)"),
        (records(20, 20, 21, predicted_classes=[40, 0]), "undecided", "undecided",
         "TREC (collapsed)"),
    ],
)  # fmt: skip
def test_a_case_is_in_the_direction_of_the_claim(ours, word, flipped, text):
    comparison = compare(ours, BASE)
    one = claims.case_of("c", "TREC", comparison, ours, paper=10.0)
    other = claims.case_of("c", "TREC", comparison, ours, flip=True, paper=10.0)
    found, turned = (claims.judge([case])[0] for case in (one, other))
    assert (found.word, turned.word) == (word, flipped)
    assert found.place == text
    assert one.difference == pytest.approx(-other.difference)
    assert len(found.cells()) == len(turned.cells()) == 15


def test_the_p_values_of_all_claims_of_a_paper_are_one_family():
    tests = [interval(1, 3)._replace(p_value=p) for p in (0.02, 0.03, 0.9)]
    cases = [
        claims.Case(claim=str(i), label="A", seeds=3, difference=2.0, test=test, paper=2.0)
        for i, test in enumerate(tests)
    ]
    # a case of too few seeds and one that was not run are no tests
    cases += [dataclasses.replace(cases[0], seeds=2), dataclasses.replace(cases[0], seeds=0)]
    found = claims.judge(cases)
    assert [finding.chosen is None for finding in found] == [False] * 3 + [True] * 2
    p_values = [finding.chosen.gain.p_value for finding in found[:3]]
    assert p_values == pytest.approx([0.06, 0.06, 0.9])
    words = ["undecided"] * 4 + ["not run"]
    assert [finding.word for finding in found] == words
    alone = claims.judge(cases[:1])
    assert alone[0].word == "reproduced"


def test_a_line_names_every_data_set_once_in_the_order_of_the_words():
    case = claims.Case(claim="c", label="A", seeds=3, difference=2.0, test=interval(1, 3), paper=2)
    shown, smaller = evidence(1, 3), evidence(1, 3, gap=-4, p_size=0.01)
    findings = [
        claims.Finding(case=dataclasses.replace(case, label="A", seeds=0), word="not run"),
        claims.Finding(case=dataclasses.replace(case, label="B"), word="reproduced", chosen=shown),
        claims.Finding(case=dataclasses.replace(case, label="C", seeds=1), word="undecided"),
        claims.Finding(
            case=dataclasses.replace(case, label="D", paper=6.0),
            word="smaller",
            chosen=smaller,
            last=smaller,
        ),
    ]
    reproduced, smaller, undecided, not_run = map(
        verdict.mark, ("reproduced", "smaller", "undecided", "not run")
    )
    assert summary.lines({"X is better than Y": findings, "Z": findings[:1], "none": []}) == [
        f"- X is better than Y: {reproduced} on B (+2.00, the paper +2.00, only where validation "
        f"chose); {smaller} on D (+2.00, the paper +6.00); {undecided} on C (these runs, 1 seed); "
        f"{not_run} on A.",
        f"- {not_run}: Z.",
    ]
    assert summary.count(findings) == (
        "**Of 4 comparisons 1 is reproduced, 1 is smaller, none is ruled out, 1 is undecided and "
        "1 was not run.** Of the undecided comparisons 1 has fewer than 3 seeds, a run that "
        "collapsed, or networks that do not learn the task."
    )
    assert summary.chart_title("X", findings) == (
        "X here and in the paper: of 4 comparisons 1 is reproduced, 1 is smaller, 1 is undecided "
        "and 1 was not run"
    )


def test_a_claim_without_a_comparison_has_its_reason():
    (case,) = claims.untested("no run")("Z", None)
    (finding,) = claims.judge([case])
    assert finding.word == "not run"
    assert summary.lines({"Z": [finding]}) == [f"- {verdict.mark('not run')}: Z (no run)."]


def test_a_mark_has_its_word_a_sign_and_a_class_for_its_colour():
    for word in verdict.WORDS:
        found = verdict.mark(word)
        assert found.startswith(f'<span class="verdict verdict-{word.replace(" ", "")}">')
        assert found.endswith(f" {word}</span>")
    assert len(set(verdict.MARKS.values())) == len(verdict.WORDS)
    css = (ROOT / "docs" / "_static" / "site.css").read_text(encoding="utf-8")
    for word in verdict.WORDS:
        assert css.count(f".verdict-{word.replace(' ', '')} {{") == 2  # light and dark
        assert word in chart.COLOURS


def number(system, ours, paper, is_method=False, **more):
    return claims.Number(
        system=system,
        label="A",
        paper=paper,
        ours=ours,
        text=f"{ours}",
        is_method=is_method,
        **more,
    )


def test_a_page_opens_with_the_papers_numbers_and_ours():
    numbers = [
        number("M", 89.5, 89.4, True), number("M", 44.0, 44.6, True),
        number("B", 87.4, 85.1), number("B", 43.5, 41.9), number("C", 85.0, 85.7),
        number("C", 91.6, 89.4), number("D", 1.0, 2.5),
        number("M", 114.0, 113.9, True, unit="perplexity"),
    ]  # fmt: skip
    assert summary.opening(numbers, "") == (
        "**M is within 0.6 points of the paper's numbers.** Another system of the paper is "
        "stronger here: B by 1.6 to 2.3 points. Another system of the paper is weaker here: D by "
        "1.5 points. C is 0.7 points below to 2.2 points above the paper's numbers. On A the "
        "perplexity, where less is better, is 114.0 for M; the paper has 113.9."
    )
    judged = dataclasses.replace(numbers[0], word="reproduced")
    assert summary.opening([judged, numbers[2]], "").startswith(
        "**M is within 0.1 points of the paper's numbers.** By the rule for numbers it is "
        "reproduced. Another system"
    )
    above = summary.opening([number("M", 9.0, 5.0, True), number("M", 8.0, 5.0, True)], "")
    assert above == "**M is 3.0 to 4.0 points above the paper's numbers.**"
    assert "4.0 points below" in summary.opening([number("M", 5.0, 9.0, True)], "")
    assert summary.opening([], "none") == "none"
    table = summary.numbers_table([number("M", 1.5, 2.0, True, remark="averaged"), numbers[2]])
    assert re.search(r"\| M +\| A +\| - +\| +2 \| +1.5 \| +-0.50 \| -.*\| averaged +\|", table)
    remark = summary.opening([number("M", 1.5, 2.0, True, unit="nats", remark="averaged")], "")
    assert remark.endswith("the paper has 2.0. For M: averaged.")


@pytest.mark.parametrize(
    ("values", "last", "unit", "word", "exceeded"),
    [
        ((89.8, 89.9, 90.0), (89.7, 89.8, 89.9), "points", "reproduced", False),
        ((95.0, 95.1, 95.2), (95.0, 95.1, 95.2), "points", "reproduced", True),
        ((89.8, 89.9, 90.0), (88.9, 89.0, 89.1), "points", "undecided", False),  # the last step
        ((89.0, 90.5, 90.0), (89.0, 90.5, 90.0), "points", "undecided", False),  # a wide interval
        ((85.0, 85.1, 85.2), (85.0, 85.1, 85.2), "points", "ruled out", False),
        ((85.0, 85.1, 85.2), (89.8, 89.9, 90.0), "points", "undecided", False),
        ((90.1, 90.2, 90.3), (), "perplexity", "reproduced", False),
        ((80.1, 80.2, 80.3), (), "perplexity", "reproduced", True),
        ((95.1, 95.2, 95.3), (), "perplexity", "ruled out", False),
        ((95.0, 95.1, 95.2), (80.0,), "points", "reproduced", True),  # the last step of one seed
        ((89.8, 89.9), (), "points", None, False),
        ((89.8,), (), "points", None, False),
    ],
)
def test_a_number_of_the_method_reaches_the_papers_within_a_point(
    values, last, unit, word, exceeded
):
    of = number("M", sum(values) / len(values), 90.0, True, values=values, last=last, unit=unit)
    baseline = dataclasses.replace(of, is_method=False)
    found, unjudged = claims.judge_numbers([of, baseline])
    assert (found.word, found.is_exceeded) == (word, exceeded)
    assert unjudged == baseline


def test_systems_with_as_many_trials_have_equal_searches(tmp_path):
    def remarks():
        findings = AGT.findings(AGT.store(tmp_path))
        return {finding.case.claim: finding.case.remarks for finding in findings}

    source = RESULTS / "agt" / "joined_400d"
    shutil.copytree(source / "runs", tmp_path / "runs")
    average, width = "AGT is better than the mean of the word vectors", "word vectors of width 400"
    assert remarks()[average] == ("settings differ", width)
    trials = read_json(source / TRIALS)
    write_json(tmp_path / TRIALS, trials)
    assert set(remarks().values()) == {
        (width,),
        ("no run with another bias; the paper gives no size",),
    }
    assert count_trials(AGT.store(tmp_path))["sst1"]["average"] == 6
    place = next(i for i, trial in enumerate(trials) if trial["system"] == "average")
    write_json(tmp_path / TRIALS, trials[:place] + trials[place + 1 :])
    assert remarks()[average] == ("settings differ", width)


@pytest.mark.parametrize("name", ["ga_net", "agt", "rau", "ga_reader", "ssan"])
def test_the_verdicts_of_a_page_are_those_of_its_records(name):
    """No verdict is missing from the tables; that of the accuracy is of the records."""
    paper = importlib.import_module(f"experiments.{name}.paper").PAPER
    stores = [paper.store(folder.parent) for folder in (RESULTS / name).rglob("runs")]
    findings = [finding for store in stores for finding in paper.findings(store)]
    words = {finding.word for finding in findings}
    together = claims.judge([finding.case for finding in findings])
    changed = [
        (one.case.claim, one.word, other.word)
        for one, other in zip(findings, together, strict=True)
        if one.word != other.word
    ]
    # docs/papers.md has the one word that a correction over all pages of a paper changes.
    assert len(changed) == (name == "ssan")
    assert all((one, other) == ("ruled out", "undecided") for _, one, other in changed)
    of_numbers = {number.word for store in stores for number in paper.judged_numbers(store)}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (row,) = (line for line in readme.splitlines() if f"](./docs/{name}.md)" in line)
    result = row.split(" | ")[-1]
    assert {word for word in verdict.WORDS if word in result} <= words | of_numbers
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    believe = page.split("## Did the claims hold?\n")[1].split("\n## ")[0]
    numbers = [number for store in stores for number in paper.judged_numbers(store)]
    for bullet in believe.split("\n- ")[1:]:
        word = next((word for word in verdict.WORDS if verdict.mark(word) in bullet), None)
        if "**Its accuracy**" in bullet:
            of_method = {n.word for n in numbers if n.is_method and n.unit == "points"}
            assert word in of_method
            assert None not in of_method
        elif word is not None:
            assert word in words, bullet


def test_numbers_are_of_runs_on_the_papers_data_that_learned():
    def of(ours):
        return claims.number_of(
            "M", "A", 50.0, ours, lambda r: 100 * r["test"]["accuracy"], is_method=True
        )

    (found,) = of(records(20, 22))
    assert math.isclose(found.ours, 52.5)
    # Student's t with one degree of freedom is 12.7062, and the standard error of the mean is 2.5
    assert found.values == found.last == pytest.approx((50.0, 55.0))
    assert found.interval == pytest.approx((52.5 - 12.7062 * 2.5, 52.5 + 12.7062 * 2.5), rel=1e-5)
    assert of(records(20))[0].interval is None
    assert of(records(20, substitute="ten questions")) == []
    assert of(records(20, predicted_classes=[40, 0])) == []


def test_word_vectors_that_are_not_the_papers_have_a_line():
    known = records(1, substitute="ten questions; word vectors of width 9 where the paper has 300")
    assert summary.vectors_line(known) == "- Word vectors: of width 9 where the paper has 300."
    assert summary.data_lines({}, {}) == []


def test_a_paper_without_claims_opens_its_page_with_data_and_a_chart_is_shown_where_it_is(tmp_path):
    store = Store(tmp_path)
    PAPER.write(store)
    assert "## In short" not in (tmp_path / "RESULTS.md").read_text("utf-8")
    claim = Claim(says="it is better", table=TABLE, rows=TABLE.variants)
    for is_there in (False, True):
        dataclasses.replace(PAPER, claims=(claim,)).write(store)
        page = (tmp_path / "RESULTS.md").read_text("utf-8")
        assert ("](claims.svg)" in page) == is_there
        (tmp_path / "claims.svg").touch()


def test_the_chart_has_a_row_for_each_comparison_and_number(tmp_path):
    case = claims.Case(claim="c", label="B", seeds=3, difference=2.0, test=interval(1, 3), paper=2)
    findings = [
        claims.Finding(case=dataclasses.replace(case, label="A", seeds=0), word="not run"),
        claims.Finding(case=case, word="reproduced", chosen=evidence(1, 3)),
        claims.Finding(
            case=dataclasses.replace(case, label="C, other data", test=None, seeds=1),
            word="undecided",
        ),
        claims.Finding(
            case=dataclasses.replace(case, label="P", unit="nats per token", last=interval(0, 1)),
            word="undecided", chosen=evidence(1, 3), last=evidence(0, 1, 0.5),
        ),
    ]  # fmt: skip
    numbers = [number("M", 52.0, 50.0, True, values=(51.5, 52.5))]
    panels = chart.panels_of(findings, numbers)
    assert [panel.axis.split(";")[0] for panel in panels] == [
        "difference in points",
        "difference in nats per token",
        "our number minus the paper's, in points",
    ]
    absent, shown, few = panels[0].groups["c"]
    assert (absent.ours, absent.paper, absent.end) == (None, 2, "\u2013 not run")
    assert (shown.ours, shown.interval, shown.paper) == (2.0, (1, 3), 2)
    assert shown.single == (1.0, 3.0)  # the half-width of the evidence, around ours
    assert (few.label, few.interval, few.end) == ("C*", None, "? undecided (n=1)")
    assert panels[1].groups["c"][0].last == (0.5, 0, 1)
    (row,) = panels[2].groups["M"]
    assert (row.ours, row.paper) == (2.0, 0.0)
    # Student's t with one degree of freedom is 12.7062, and the standard error of the mean is 0.5
    assert row.interval == pytest.approx((2 - 6.3531, 2 + 6.3531), rel=1e-5)
    assert row.end == "52.0, paper 50.0"
    chart.draw_chart("X", findings, numbers, tmp_path / "claims")
    text = (tmp_path / "claims.svg").read_text(encoding="utf-8")
    for mark in (absent, shown, few, row):
        assert f">{mark.label}</text>" in text
        assert f">{mark.end}</text>" in text
    for note in ("* other data than the paper's", "grey: the last step"):
        assert note in text
    assert (tmp_path / "claims.png").read_bytes().startswith(b"\x89PNG")


def test_a_row_has_the_marks_of_its_finding():
    case = claims.Case(claim="c", label="B", seeds=3, difference=2.0, test=interval(1, 3), paper=2)
    both = {"chosen": evidence(1, 3), "last": evidence(1, 3)}

    def mark(**changes):
        changed = dataclasses.replace(case, last=interval(1, 3), **changes)
        return chart.mark_of(claims.Finding(case=changed, word="undecided", **both))

    assert mark(unit="F1").label == "B, F1"
    assert (mark().last, mark(paper=None).single) == (None, None)  # both steps agree; no size
    lost = {"label": "B, collapsed", "paper": 2, "word": "undecided", "end": "? undecided"}
    assert mark(is_lost=True) == chart.Mark(**lost)


def test_a_row_far_beyond_the_others_does_not_stretch_the_axis():
    rows = [chart.Mark(label=str(x), ours=x) for x in (-1.0, 2.0, 41.5)]
    low, high = chart.Panel(axis="", groups={"c": rows}).limits()
    assert low == pytest.approx(-1.24)
    assert high == pytest.approx(2.24)
    low, high = chart.Panel(axis="", groups={"c": rows[1:]}).limits()
    assert high < 3
    assert chart.Panel(axis="", groups={"c": []}).limits() == (-1.0, 1.0)
    # it is an arrow at its side; a single seed is hollow, and has no interval
    rows[1] = dataclasses.replace(rows[1], interval=(1.0, 3.0), single=(0.5, 3.5))
    axes = new_figure(3, 3).subplots()
    chart._draw_panel(axes, chart.Panel(axis="", groups={"c": rows}))
    found = {(line.get_marker(), *line.get_xdata()) for line in axes.lines}
    assert {("o", -1.0), ("o", 2.0), ("None", 1.0, 3.0), ("None", 0.5, 3.5)} < found
    assert [mark for mark, *_ in found if mark in "<>"] == [">"]
    fills = [line.get_markerfacecolor() for line in axes.lines if line.get_marker() == "o"]
    assert fills == ["white", chart.COLOURS[None]]
    assert axes.yaxis_inverted()
