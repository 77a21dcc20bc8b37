"""Results that can be trusted: what is kept, what is averaged, and what a number is beside."""

import importlib
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.core import origins, records
from experiments.core.command import run_cells
from experiments.core.comparison import compare, compare_all
from experiments.core.paper import Cell, Job
from experiments.core.records import Store, count_each, format_average, read_json, refuse_other
from experiments.ga_net import tables as ga_net_tables
from experiments.ga_reader import tables
from gatedjax.data.sets._cbt import MADE_OF_BOOKS
from tests.experiments._results import store_of

BOOKS = MADE_OF_BOOKS["build_report.json"]
REBUILT = f"{BOOKS}: 45,000 questions where the official file has 120,769"


def paper_of(name):
    return importlib.import_module(f"experiments.{name}.paper").PAPER


def written(name, cell, folder, seeds=2):
    """The files of a small store with the records of one cell."""
    store_of(paper_of(name), folder, {cell: ["1101", "1011"][:seeds]})
    return {path: path.read_bytes() for path in sorted(folder.rglob("*.json"))}


def told(tables, args, capsys):
    """The one line with which a command stops with status 2."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        tables.main(args)
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert message.count("\n") == 1
    return message


def test_records_of_two_configurations_or_of_two_origins_are_never_averaged(tmp_path, capsys):
    (path,) = written("ga_reader", ("cbt_ne", "fix"), tmp_path, seeds=1)
    first = json.loads(path.read_text())
    second = first | {"seed": 7}
    place = path.with_name("cbt_ne-fix-seed7.json")
    steps = first["config"]["train"]["num_steps"]
    train = first["config"]["train"] | {"seed": 7, "num_steps": steps + 1}
    place.write_text(json.dumps(second | {"config": first["config"] | {"train": train}}))
    message = told(tables, ["render", "--results", str(tmp_path)], capsys)
    wanted = f"train.num_steps is {steps} in seed 0 and {steps + 1} in seed 7"
    assert f"records of cbt_ne, fix: {wanted}; they are not averaged" in message
    place.write_text(json.dumps(second | {"substitute": "a tenth of the sentences"}))
    message = told(tables, ["render", "--results", str(tmp_path)], capsys)
    assert "origin of the data is" in message
    assert "a tenth of the sentences in seed 7" in message
    assert not (tmp_path / "RESULTS.md").exists()


def test_seeds_of_other_data_do_not_join_the_records_of_a_cell(tmp_path):
    before = written("rau", ("mnist", "gru"), tmp_path)
    config = read_json(next(iter(before)))["config"]
    of_seed = lambda seed: config | {"train": config["train"] | {"seed": seed}}  # noqa: E731
    seeds = {seed: of_seed(seed) for seed in range(len(before))}

    def job(substitute):
        paper = SimpleNamespace(
            recorded=lambda config: config,
            experiment=lambda config: SimpleNamespace(substitute=substitute),
            store=lambda folder: Store(tmp_path),
        )
        options = SimpleNamespace(rerun=False, results=tmp_path, runs=tmp_path / "w", lanes=1)
        return Job(paper, options)

    other = job("9 of 60,000 images")
    with pytest.raises(ValueError, match="origin of the data official files, wanted 9 of 60,000"):
        run_cells(other, [Cell("mnist", "gru", {**seeds, 9: of_seed(9)})])
    # without a new seed nothing is read at all
    run_cells(other, [Cell("mnist", "gru", seeds)])
    assert {path: path.read_bytes() for path in sorted(tmp_path.rglob("*.*"))} == before


def test_questions_made_of_books_have_an_origin_of_their_own():
    counted = {"data": "cbt_cn", "substitute": REBUILT}
    assert origins.origin_of(counted) == REBUILT
    assert origins.other_data([counted])
    for vectors in (None, "word vectors of width 4 where the paper has 300", "random word vectors"):
        # whatever the word vectors are
        assert origins.origin_of({"data": "trec", "substitute": vectors}) == origins.OFFICIAL
    assert origins.origin_of({"data": "two_facts"}) == "made by gatedjax"


@pytest.mark.slow
def test_records_have_the_origin_that_the_reader_of_their_files_tells(shared_data):
    from experiments.core.text import SPLITS
    from gatedjax import data as gdata

    if not (shared_data / "cloze").is_dir():
        pytest.skip("the cloze sets are not on this machine")
    parts = [gdata.load("cbt_cn", s, manual_dir=shared_data).info.substitute for s in SPLITS[1:]]
    assert parts == [BOOKS] * 2
    recorded = paper_of("ga_reader").store().get("cbt_cn", "fix", 0)
    assert origins.origin_of(recorded) == origins.join_remarks([REBUILT, *parts])


def test_on_other_data_the_papers_number_has_a_row_of_its_own():
    record = {"data": "trec", "substitute": "ten questions"}
    assert origins.beside("TREC", ["0.91"], ["0.50", "-"], [record]) == [
        ["TREC", "0.91", "not run", "-"],
        ["TREC, other data", "-", "0.50", "-"],
    ]
    for same in ([], [record | {"substitute": "word vectors of width 4 where the paper has 300"}]):
        assert origins.beside("TREC", ["0.91"], ["0.50"], same) == [["TREC", "0.91", "0.50"]]
    assert origins.columns([record]) == ("paper, official data", "ours, other data")
    assert origins.join_remarks(["a", None, "a: 3 of 9", "b"]) == "a: 3 of 9; b"
    assert origins.join_remarks([None]) is None


def curve(*losses):
    return {"train_curve": [[10 * (i + 1), loss, 0.5] for i, loss in enumerate(losses)]}


def test_a_loss_at_the_entropy_of_the_labels_over_its_last_third_is_a_collapse():
    known = records.class_facts([0, 0, 0, 1], [1, 0, 1, 1])
    assert known["predicted_classes"] == [1, 3]
    least = known["label_entropy"]
    assert least == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25), abs=1e-6)
    near, far = least + 0.0004, least + 0.0006
    for losses, wanted in (
        ([far, far, far, far, near, near], True),
        ([far, far, far, near, near, far], False),
        ([far, far, far, near, far, near], False),
        ([far, far, far, near, near, least - 0.0006], False),
        ([near, near, near, near, near, None], True),
    ):
        assert records.has_collapsed(known | curve(*losses)) == wanted, losses
    assert not records.has_collapsed(known)
    assert not records.has_collapsed(curve(least))  # nobody knows the labels
    assert records.has_collapsed({"predicted_classes": [0, 9, 0]})
    assert records.has_collapsed({"confusion": [[0, 3], [0, 2]]})
    assert not records.has_collapsed({"confusion": [[0, 3], [1, 2]]})


def systems(*rights, first=0, **more):
    """Records of one system by seed, from the share that is right of 40."""
    return [
        {"seed": first + i, "data": "x", "correct": "1" * n + "0" * (40 - n), "test_n": 40, **more}
        | {"config": {"data": {}, "train": {}}, "test": {"accuracy": n / 40}}
        for i, n in enumerate(rights)
    ]


def test_a_mean_leaves_out_what_collapsed_and_says_how_much():
    lost = systems(20, 20, predicted_classes=[40])
    figure = lambda record: record["test"].get("accuracy")  # noqa: E731
    assert format_average(systems(20, 28), figure) == "0.6000 ± 0.1414 (n=2)"
    assert format_average(lost, figure) == "collapsed (n=2)"
    assert format_average([*systems(30), *lost], figure, 2) == "0.75 (n=1), 2 collapsed"
    without = systems(20)[0] | {"test": {}}
    assert format_average([*systems(20, 28), without], figure) == "0.6000 ± 0.1414 (n=2)"
    assert format_average([without], figure) == "not run"
    assert format_average([], figure) == "not run"


def test_a_verdict_needs_three_seeds_and_no_collapse():
    base = systems(20, 20, 20)
    found = compare_all(
        {
            "better": (systems(30, 30, 31), base),
            "two": (systems(30, 30), base),
            "single": (systems(40), base),
            "lost": (systems(20, 20, 20, predicted_classes=[40, 0]), base),
            "none": (systems(20, first=5), base),
        }
    )
    assert found["none"] is None
    assert found["better"].why_not is None
    assert found["better"].test.p_value < 0.01
    # ten and eleven examples that only one has right
    np.testing.assert_allclose(found["better"].exact, [2 / 2**10, 2 / 2**10, 2 / 2**11])
    assert found["two"].cells()[2:] == ["these runs (n=2)", "-"]
    assert found["single"].cells()[1:] == ["-", "these runs (n=1)", "-"]
    assert found["lost"].cells() == ["-", "-", "collapsed", "-"]


def test_systems_on_data_of_two_origins_are_not_compared():
    with pytest.raises(ValueError, match="the origin of the data must be equal"):
        compare(systems(30, 30), systems(20, 20, substitute="other questions"))


def test_what_was_measured_is_replaced_only_with_rerun(tmp_path):
    path, known = tmp_path / "table6-x.json", {"gold": "trees", "san": [0.25, 0.5]}
    refuse_other(path, "result", None, {"gold": "leaves"}, rerun=False)
    refuse_other(path, "result", known, {"gold": "trees", "san": (0.25, 0.5)}, rerun=False)
    refuse_other(path, "result", known, {"gold": "leaves"}, rerun=True)
    # where it was counted is no part of the result
    here, there = ({**known, "hardware": {"cores": n}} for n in (2, 8))
    refuse_other(path, "result", here, there, rerun=False)
    wanted = r"table6-x.json has another result: san \[0.25, 0.5\], wanted \[0.5, 0.5\]; .*--rerun"
    with pytest.raises(ValueError, match=wanted):
        refuse_other(path, "result", known, {"gold": "trees", "san": [0.5, 0.5]}, rerun=False)


def test_a_count_of_other_files_does_not_replace_the_one_that_is_there(tmp_path, capsys):
    def write(count):
        for name in ("train_5500.label", "TREC_10.label"):
            lines = [f"{c}:x what is this {i} ?" for i in range(count) for c in ("HUM", "LOC")]
            (tmp_path / "trec" / name).write_text("\n".join(lines) + "\n", encoding="latin-1")

    (tmp_path / "trec").mkdir()
    write(20)
    args = ["table1", "--data", "trec", "--manual-dir", str(tmp_path), "--results", str(tmp_path)]
    assert ga_net_tables.main(args) == 0
    before = (tmp_path / "table1.json").read_bytes()
    write(30)
    message = told(ga_net_tables, args, capsys)
    assert "table1.json has another count of trec" in message
    assert (tmp_path / "table1.json").read_bytes() == before


def test_counts_that_two_commands_add_at_once_are_all_kept(tmp_path):
    path = tmp_path / "counts.json"

    def count(name):
        # Another command ends while this one counts.
        count_each(path, ["other"], lambda _: {"n": 2}, rerun=False)
        return {"n": 1}

    count_each(path, ["trec"], count, rerun=False)
    assert read_json(path) == {"other": {"n": 2}, "trec": {"n": 1}}
