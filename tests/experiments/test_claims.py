"""The first section of RESULTS.md: what came of a paper's claims, from comparisons and records."""

import dataclasses

import pytest

from experiments.core import claims
from experiments.core.comparison import compare_all
from experiments.core.paper import Claim, Table
from experiments.core.records import Store
from tests.experiments._toy import PAPER


def records(*rights, **more):
    """Records of one system by seed, from how many of 40 examples are right."""
    return [
        {"seed": seed, "data": "x", "correct": "1" * n + "0" * (40 - n), "test_n": 40, **more}
        | {"config": {"data": {}, "train": {}}, "test": {"accuracy": n / 40}}
        for seed, n in enumerate(rights)
    ]


BASE = records(20, 20)


@pytest.mark.parametrize(
    ("ours", "state", "flipped", "size"),
    [
        (records(38, 38), "shown", "opposite", "+45.00"),
        (records(2, 2), "opposite", "shown", "-45.00"),
        (records(20, 21), "neither", "neither", "+1.25"),
        (records(38), "one seed", "one seed", "+45.00"),
        (records(20, 20, predicted_classes=[40, 0]), "collapsed", "collapsed", ""),
    ],
)
def test_a_finding_is_what_the_comparison_shows_in_the_direction_of_the_claim(
    ours, state, flipped, size
):
    comparison = compare_all({"one": (ours, BASE)})["one"]
    one = claims.finding_for("TREC", comparison, ours, flip=False)
    assert (one.data, one.state, one.size) == ("TREC", state, size)
    other = claims.finding_for("TREC", comparison, ours, flip=True)
    assert other.state == flipped
    assert other.size == size.translate(str.maketrans("+-", "-+"))


def test_without_both_systems_nothing_was_run_and_other_data_are_named():
    assert claims.finding_for("TREC", None, [], flip=False) == claims.Finding("TREC", "not run")
    other = records(20, substitute="ten questions")
    assert claims.finding_for("TREC", None, other, flip=False).data == "TREC, other data"


def test_a_line_names_every_data_set_once_in_the_order_of_the_states():
    findings = [
        claims.Finding("A", "not run"),
        claims.Finding("B", "shown", "+2.00"),
        claims.Finding("C", "one seed", "+0.10"),
        claims.Finding("D", "shown", "+3.00"),
    ]
    assert claims.line("X is better than Y", findings) == (
        "- X is better than Y: shown on B (+2.00), D (+3.00); one seed, no verdict, on C (+0.10); "
        "not run on A."
    )
    assert claims.count(findings) == (
        "**Comparisons with two seeds or more: 2 of 4. The paper's difference is shown in 2, the "
        "opposite in 0, none in 0; 1 with one seed, 1 not run.**"
    )
    assert claims.count(findings[:1]) == (
        "**Comparisons with two seeds or more: none of 1; 1 not run.**"
    )


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
    dataclasses.replace(PAPER, claims=(claim,)).write(store)
    text = (tmp_path / "RESULTS.md").read_text("utf-8")
    first = text.split("## ")[1]
    assert first.startswith("In short\n\n**Comparisons with two seeds or more: none of ")
    assert "- it is better: not run on " in first
