"""Records of the GA Reader's runs: rendered with exact numbers, drawn."""

import dataclasses
import functools

import pytest

from experiments.core import command
from experiments.core.config import with_changes
from experiments.core.paper import Job
from experiments.ga_reader import figures, statistics, tables
from experiments.ga_reader.config import PRESETS
from experiments.ga_reader.paper import PAPER, VARIANTS
from gatedjax.text.models._reader import Place, Reading, shown_places
from tests.experiments import _results
from tests.experiments._results import rows_of

rendered = functools.partial(_results.rendered, PAPER)


def make_record(data, variant, seed, correct, **more):
    config = with_changes(PRESETS[data], {**VARIANTS[variant].changes, "train.seed": seed})
    facts = {"parameters": 1234, "embedding_coverage": 0.875, "train_n": 1000}
    facts |= {"steps_per_epoch": 32, "curve": [], "train_curve": []}
    return _results.record_of(PAPER, config, correct, **facts | more)


def save(store, data, variant, seed, correct, **more):
    record = make_record(data, variant.split("_50")[0], seed, correct, **more)
    _results.save(store, data, variant, [record])


def job_of(**options):
    return Job(PAPER, command.options_of(PAPER)(**options))


@pytest.fixture
def store(tmp_path):
    return PAPER.store(tmp_path / "results")


def test_one_sided_tests_pair_the_seeds_that_both_have():
    make = lambda seed, correct: make_record("wdw", "fix", seed, correct)  # noqa: E731
    found = statistics.one_sided([make(0, "110"), make(2, "111")], [make(1, "000"), make(2, "001")])
    assert [(test.b, test.c, test.p_value) for test in found] == [(2, 0, 0.25)]


@pytest.mark.slow
def test_figure2_is_drawn(store):
    pytest.importorskip("matplotlib")
    save(store, "cnn", "update_50", 0, "1110", train_n=500)
    save(store, "cnn", "no_gating_50", 0, "1000", train_n=500)
    figures.bars(job_of(what="figure2", data=("cnn",), results=store.folder))
    assert (store.folder / "figure2_cnn.png").exists()
    assert "[figure2_cnn.png](figure2_cnn.png)" in rendered(store)


@pytest.mark.slow
def test_curves_are_means_over_the_seeds_that_learned(store, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    drawn, plot = [], figures.analysis.plot_lines
    monkeypatch.setattr(
        figures.analysis,
        "plot_lines",
        lambda one, *a, **kw: (drawn.append(one), plot(one, *a, **kw)),
    )
    order = ["curves", "--results", str(store.folder)]
    with pytest.raises(SystemExit):
        tables.main(order)
    assert "must have a record of a run on cbt_ne that learned" in capsys.readouterr().err
    for variant, seed, reached in (("fix", 0, 0.5), ("fix", 1, 0.75), ("hops_1", 0, 0.625)):
        curves = {"curve": [[5, 1.5, 0.25], [10, 1.0, reached]]}
        curves["train_curve"] = [[10, 0.75, reached + 0.125]]
        save(store, "cbt_ne", variant, seed, "1110", **curves)
    # neither of one that collapsed nor of one on a share of the questions
    curves = {"curve": [[5, 1.5, 0.0]], "train_curve": [[10, 1.5, 0.0]]}
    save(store, "cbt_ne", "fix", 2, "0000", **curves, predicted_classes=[0, 4])
    save(store, "cbt_ne", "fix_50", 0, "1110", **curves)
    assert tables.main(order) == 0
    root = pytest.approx(0.125 * 2**0.5)
    (panels,) = drawn
    assert panels == {
        "validation accuracy": {
            "GA, fixed vectors": [(5, 0.25, 0.0), (10, 0.625, root)],
            "K = 1": [(5, 0.25, None), (10, 0.625, None)],
        },
        "training accuracy": {
            "GA, fixed vectors": [(10, 0.75, root)],
            "K = 1": [(10, 0.75, None)],
        },
    }
    assert (store.folder / "curves_cbt_ne.png").stat().st_size > 1_000
    assert "[curves_cbt_ne.png](curves_cbt_ne.png)" in rendered(store)


@pytest.mark.slow
def test_statistics_count_what_is_here_and_name_what_is_not(store, tmp_path, capsys):
    job = job_of(
        what="statistics",
        data=("toy", "cbt_ne"),
        results=store.folder,
        manual_dir=str(tmp_path),
    )
    statistics.count(job)
    assert "cbt_ne: not counted" in capsys.readouterr().out
    rows = rows_of(rendered(store), "Table 5: statistics")
    counted = {(row[0], row[1]): row[2:] for row in rows}
    assert counted["two facts", "counted"][1:3] == ["500", "1,000"]
    assert counted["two facts", "counted"][-2:] == ["0", "none"]
    assert counted["CBT-NE", "paper"][:5] == ["108,719", "2,000", "2,500", "53,063", "1,338"]
    assert counted["CBT-NE", "counted"][0] == "not run"


def test_readers_of_corpus_vectors_are_left_out_without_them(store, tmp_path, capsys, monkeypatch):
    table = dataclasses.replace(PAPER.tables["table4"], variants=("corpus",))
    monkeypatch.setitem(PAPER.tables, "table4", table)
    args = ["table4", "--seeds", "1", "--results", str(store.folder), "--runs", str(tmp_path)]
    assert tables.main(args) == 0
    assert "wdw, corpus: left out, it needs --corpus-vectors" in capsys.readouterr().out


def reading(label, counts, probabilities, words=5):
    places = [
        Place(c, 10 * c + i, 0.1 * (i + 1), ()) for c, n in enumerate(counts) for i in range(n)
    ]
    names = tuple(f"c{i}" for i in range(len(counts)))
    return Reading({"label": label}, names, probabilities, tuple(places), ("w",) * words)


def test_figure3_shows_right_answers_that_counting_does_not_give():
    wrong = reading(0, [1, 2], [0.1, 0.9])
    easy = reading(1, [1, 2], [0.1, 0.9])
    long = reading(0, [1, 2], [0.9, 0.1], words=30)
    hard = reading(0, [1, 2], [0.9, 0.1])
    assert figures.chosen_readings([wrong, easy, long, hard]) == [hard, easy]
    assert figures.chosen_readings([wrong, long]) == [long]
    assert len(figures.chosen_readings([hard] * 9)) == 5
    kept = shown_places(reading(0, [20, 20], [0.5, 0.5]).places)
    assert len(kept) == 24
    assert [(p.candidate, p.position) for p in kept] == sorted(
        (p.candidate, p.position) for p in kept
    )
    assert min(p.weight for p in kept) > 0.8
