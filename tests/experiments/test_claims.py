"""The first sections of RESULTS.md: a word for each claim, from comparisons and records."""

import dataclasses
import math

import pytest

from experiments.core import claims
from experiments.core.comparison import compare
from experiments.core.paper import Claim, Table
from experiments.core.records import Store
from gatedjax.analysis import TwoWay
from tests.experiments._toy import PAPER


def records(*rights, **more):
    """Records of one system by seed, from how many of 40 examples are right."""
    return [
        {"seed": seed, "data": "x", "correct": "1" * n + "0" * (40 - n), "test_n": 40, **more}
        | {"config": {"data": {}, "train": {}}, "test": {"accuracy": n / 40}}
        for seed, n in enumerate(rights)
    ]


BASE = records(20, 20, 21)


def interval(low, high):
    return TwoWay((low + high) / 2, low, high, 0.01, 1.0, 4.0)


@pytest.mark.parametrize(
    ("low", "high", "p", "paper", "word"),
    [
        (1.0, 3.0, 0.01, 2.0, "reproduced"),  # the paper's size inside
        (1.0, 3.0, 0.01, 0.5, "reproduced"),  # below
        (1.0, 3.0, 0.01, 3.5, "excluded"),  # above, although ours differs that way
        (1.0, 3.0, 0.06, 2.0, "undecided"),  # not after the correction
        (-1.0, 3.0, 0.3, 2.0, "undecided"),  # the interval holds both
        (-1.0, 1.5, 0.3, 2.0, "excluded"),
        (-3.0, -1.0, 0.01, 2.0, "excluded"),  # the opposite
        (1.0, 3.0, 0.01, None, "reproduced"),  # no size: every gain
        (-1.0, 3.0, 0.3, None, "undecided"),
        (-3.0, -1.0, 0.01, None, "excluded"),
        (-3.0, -1.0, 0.01, -2.0, "reproduced"),  # the paper's own difference is negative
        (-3.0, -1.0, 0.01, -4.0, "excluded"),
        (1.0, 3.0, 0.01, -2.0, "excluded"),
    ],
)
def test_one_function_decides_from_our_interval_and_the_papers_difference(
    low, high, p, paper, word
):
    assert claims.decide(interval(low, high), p, paper) == word


def test_a_claim_holds_where_validation_chose_and_at_the_last_step_or_is_undecided():
    assert claims.combine("reproduced", None) == "reproduced"
    assert claims.combine("reproduced", "reproduced") == "reproduced"
    assert claims.combine("reproduced", "excluded") == "undecided"
    case = claims.Case(
        claim="X", label="A", seeds=3, difference=2.0, test=interval(1, 3),
        last=interval(-2, 1)._replace(p_value=0.5), paper=1.5,
    )  # fmt: skip
    (finding,) = claims.judge([case])
    assert (finding.chosen, finding.last, finding.word) == ("reproduced", "excluded", "undecided")
    assert finding.text == (
        "A (reproduced where validation chose: +2.00; excluded at the last step: -0.50; paper: "
        "+1.50)"
    )


@pytest.mark.parametrize(
    ("ours", "word", "flipped", "text"),
    [
        (records(38, 38, 39), "reproduced", "excluded", "TREC (+45.00; paper: +10.00)"),
        (records(2, 2, 3), "excluded", "reproduced", "TREC (-45.00; paper: +10.00)"),
        (records(38, 38), "undecided", "undecided", "TREC (these runs (n=2): +45.00; paper:"),
        (records(38), "undecided", "undecided", "TREC (these runs (n=1): +45.00; paper: +10.00)"),
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
    assert found.text.startswith(text)
    assert one.difference == pytest.approx(-other.difference)
    assert len(found.cells()) == len(turned.cells()) == 11


def test_what_could_be_shown_stands_beside_an_undecided_claim():
    comparison = compare(records(20, 23, 19), BASE)
    case = claims.case_of("c", "TREC", comparison, [], paper=2.0)
    (finding,) = claims.judge([case])
    assert finding.word == "undecided"
    wanted = f"could show {100 * comparison.test.smallest:.2f}"
    assert wanted in finding.text
    assert wanted.removeprefix("could show ") in finding.cells()


def test_without_both_systems_nothing_was_run_and_other_data_are_named():
    case = claims.case_of("c", "TREC", None, [], paper=1.0)
    (finding,) = claims.judge([case])
    assert (finding.word, finding.text) == ("not run", "TREC")
    other = records(20, substitute="ten questions")
    assert claims.case_of("c", "TREC", None, other).label == "TREC, other data"


def test_settings_that_differ_without_equal_searches_are_named():
    ours = records(38, 38, 39)
    for seed, record in enumerate(ours):
        record["config"] = {"data": {}, "train": {"num_steps": 7, "seed": seed}}
    case = claims.case_of("c", "TREC", compare(ours, BASE), ours, paper=1.0)
    assert claims.judge([case])[0].text == "TREC (+45.00; paper: +1.00; settings differ)"
    case = claims.case_of("c", "TREC", compare(ours, BASE), ours, paper=1.0, equal_search=True)
    assert claims.judge([case])[0].text == "TREC (+45.00; paper: +1.00)"


def test_lower_is_better_for_language_models():
    nats = [
        [
            {"seed": seed, "data": "x", "test_nll": [n + 0.01 * seed, n + 1.0], "test_n": 2}
            | {"config": {"data": {}, "train": {}}}
            for seed in range(3)
        ]
        for n in (1.0, 2.0)
    ]
    case = claims.case_of("c", "PTB", compare(*nats), [], paper=0.25, unit="nats per token")
    assert case.difference == pytest.approx(1.0)
    assert case.size(case.difference) == "+1.000 nats per token"


def test_the_p_values_of_all_claims_of_a_paper_are_one_family():
    tests = [interval(1, 3)._replace(p_value=p) for p in (0.02, 0.03, 0.9)]
    cases = [
        claims.Case(claim=str(i), label="A", seeds=3, difference=2.0, test=test, paper=2.0)
        for i, test in enumerate(tests)
    ]
    # a case of too few seeds and one that was not run are no tests
    cases += [dataclasses.replace(cases[0], seeds=2), dataclasses.replace(cases[0], seeds=0)]
    found = claims.judge(cases)
    assert [finding.p_value for finding in found] == pytest.approx([0.06, 0.06, 0.9, None, None])
    words = ["undecided"] * 4 + ["not run"]
    assert [finding.word for finding in found] == words
    alone = claims.judge(cases[:1])
    assert alone[0].word == "reproduced"


def test_a_line_names_every_data_set_once_in_the_order_of_the_words():
    case = claims.Case(claim="c", label="A", seeds=3, difference=2.0, test=interval(1, 3), paper=2)
    findings = [
        claims.Finding(case=dataclasses.replace(case, label="A", seeds=0), word="not run"),
        claims.Finding(case=dataclasses.replace(case, label="B"), word="reproduced"),
        claims.Finding(case=dataclasses.replace(case, label="C", seeds=1), word="undecided"),
        claims.Finding(case=dataclasses.replace(case, label="D"), word="reproduced"),
    ]
    assert claims.line("X is better than Y", findings) == (
        "- X is better than Y: reproduced on B (+2.00; paper: +2.00), D (+2.00; paper: +2.00); "
        "undecided on C (these runs (n=1): +2.00; paper: +2.00); not run on A."
    )
    assert claims.count(findings) == (
        "**Of 4 comparisons: 2 reproduced, 0 excluded, 1 undecided (1 of them with fewer than 3 "
        "seeds or collapsed), 1 not run.**"
    )


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
    assert claims.opening(numbers, "") == (
        "**M is within 0.6 points of the paper's numbers; stronger than in the paper: B by 1.6 to "
        "2.3 points; weaker than in the paper: D by 1.5 points; C is -0.7 to +2.2 points from the "
        "paper's; in perplexity of A (less is better) M has 114.0 (paper: 113.9).**"
    )
    above = claims.opening([number("M", 9.0, 5.0, True), number("M", 8.0, 5.0, True)], "")
    assert above == "**M is 3.0 to 4.0 points above the paper's numbers.**"
    assert "4.0 points below" in claims.opening([number("M", 5.0, 9.0, True)], "")
    assert claims.opening([], "none") == "**none.**"
    of_method = claims.level_line([number("M", 1.5, 2.0, True, remark="averaged"), numbers[2]])
    assert of_method == "- Ours, and in brackets the paper's: A 1.5 (2), averaged."


def test_numbers_are_of_runs_on_the_papers_data_that_learned():
    def of(ours):
        return claims.number_of(
            "M", "A", 50.0, ours, lambda r: 100 * r["test"]["accuracy"], is_method=True
        )

    (found,) = of(records(20, 22))
    assert math.isclose(found.ours, 52.5)
    assert of(records(20, substitute="ten questions")) == []
    assert of(records(20, predicted_classes=[40, 0])) == []


def test_the_data_line_tells_official_files_from_others():
    found = claims.data_line(
        {"trec": "TREC", "sst2": "SST-2"},
        {"trec": records(1), "sst2": records(1, substitute="ten questions")},
    )
    assert found == "- Data: official files for TREC; SST-2: ten questions."
    assert claims.data_line({}, {}) == ""
    known = records(1, substitute="ten questions; word vectors of width 9 where the paper has 300")
    assert claims.vectors_line(known) == "- Word vectors: of width 9 where the paper has 300."


def test_a_paper_with_claims_opens_its_page_with_them_and_one_without_does_not(tmp_path):
    store = Store(tmp_path)
    PAPER.write(store)
    assert "## In short" not in (tmp_path / "RESULTS.md").read_text("utf-8")
    paired = next(t for t in PAPER.sections(store) if isinstance(t, Table) and t.pair is not None)
    claim = Claim(says="it is better", table=paired, rows=tuple(paired.variants))
    dataclasses.replace(PAPER, claims=(claim,), search="none").write(store)
    text = (tmp_path / "RESULTS.md").read_text("utf-8")
    first, second = text.split("## ")[1:3]
    assert first.startswith("In short\n\n**No run here is on the paper's data")
    assert "0 reproduced, 0 excluded, 0 undecided, " in first
    assert "- it is better: not run on " in first
    assert "- Search for settings: none." in first
    assert second.startswith("Claims\n\n| claim")
    assert claims.RULES in second
