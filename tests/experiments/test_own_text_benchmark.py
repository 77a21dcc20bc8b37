"""The benchmark of two models of labelled texts: its rows, and a run of its command."""

import json

import pytest

from experiments.benchmarks import own_text
from tests.text._own import TEXTS, write_csv


def _save(runs, name, report, seconds="12.5"):
    (runs / name).mkdir(parents=True)
    (runs / name / "report.json").write_text(json.dumps(report))
    if seconds:
        (runs / f"{name}.seconds").write_text(f"{seconds}\n")


def test_rows_have_the_goal_the_better_baseline_and_the_effect_of_closed_words(tmp_path):
    baselines = {"baseline": {"test": 0.8}, "character_baseline": {"test": 0.85}}
    test = {"accuracy": 0.9, "density": 0.31, "all_words": 0.92}
    _save(tmp_path, "trec.lexicon",
          {"test": test | {"same_answer": {"texts": 5, "equal": 5}}, **baselines})  # fmt: skip
    network = {"accuracy": 0.7, "density": 0.3, "leak": {"closed": 0.02, "open": 0.2}}
    _save(tmp_path, "trec.ganet",
          {"test": network, "baseline": {"test": 0.8}, "character_baseline": {}})  # fmt: skip
    rows = [own_text.read_row("trec", m, tmp_path / f"trec.{m}") for m in own_text.Options.models]
    assert [row["goal"] for row in rows] == [0.86, 0.84]
    assert [row["baseline"] for row in rows] == [0.85, 0.8]
    assert [row["closed_change"] for row in rows] == [0.0, 0.02]
    assert own_text.cells_of(rows[0]) == [
        *("trec", "lexicon", "0.860", "0.9000", "0.31", "0.9200", "0.8500", "0.0000", "12.5")
    ]


def test_a_lexicon_with_another_answer_from_open_words_has_no_zero(tmp_path):
    test = {"accuracy": 0.9, "density": 0.31, "same_answer": {"texts": 5, "equal": 4}}
    _save(tmp_path, "mr.lexicon", {"test": test, "baseline": {"test": 0.8}})
    assert own_text.read_row("mr", "lexicon", tmp_path / "mr.lexicon")["closed_change"] is None


def test_a_run_without_its_seconds_is_not_measured(tmp_path):
    _save(tmp_path, "mr.lexicon", {}, seconds="")
    cells = own_text.cells_of(own_text.read_row("mr", "lexicon", tmp_path / "mr.lexicon"))
    assert cells == ["mr", "lexicon", "0.775", "not measured", *[""] * 5]


@pytest.mark.slow
def test_the_command_trains_once_and_lists_the_goals_that_it_does_not_measure(tmp_path):
    path = tmp_path / "films.csv"
    write_csv(path, TEXTS)
    page = tmp_path / "page.md"
    begin, end = own_text._harness.marks(own_text.COMMAND)
    page.write_text(f"{begin}\nold\n{end}\n")
    options = own_text.Options(
        sets=(f"films={path},{path}",), models=("lexicon",), runs=tmp_path / "runs", docs=page
    )
    first = own_text.main(options)
    assert first[0]["accuracy"] > 0.9
    assert first[0]["closed_change"] == 0.0
    assert first[0]["seconds"] > 0
    assert {row["set"] for row in first[1:]} == set(own_text.GOALS)
    assert "not measured" in page.read_text()
    assert own_text.main(options) == first
    broken = own_text.Options(sets=("x=no.csv,no.csv",), models=("lexicon",), runs=tmp_path / "x")
    with pytest.raises(ValueError, match=r"gatedjax train no\.csv .* failed: .*no\.csv"):
        own_text.main(broken)
