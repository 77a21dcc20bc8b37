"""Real runs of the GA Reader, a few steps long, on files in CBT's format."""

import dataclasses
import json

import numpy as np
import pytest

from experiments.core.config import with_changes
from experiments.ga_reader import figures, make_cloze, tables
from experiments.ga_reader.__main__ import main
from experiments.ga_reader.config import PRESETS
from experiments.ga_reader.paper import PAPER
from gatedjax import data as gdata
from gatedjax.__main__ import main as gatedjax_main
from gatedjax.text.models._reader import Reader
from tests.experiments.test_ga_reader_books import library

pytestmark = pytest.mark.slow

STEPS = 6


@pytest.fixture(scope="module", autouse=True)
def one_shape():
    """Each shape of a batch is a program for training and one for evaluation."""
    with pytest.MonkeyPatch.context() as patch:
        small = {"data.max_shapes": 1, "data.batch_size": 8, "model.embedding_dim": 8}
        patch.setitem(PRESETS, "cbt_ne", with_changes(PRESETS["cbt_ne"], small))
        yield


@pytest.fixture(scope="module")
def cloze(tmp_path_factory):
    """A folder in CBT's format, with word vectors for some words."""
    folder = tmp_path_factory.mktemp("cloze")
    args = ["make-cloze", "--books", *library(folder / "books", 3), "--out", str(folder)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make_cloze, "STRIDE", 12)
        assert main(args) == 0
    words = ["the", "house", "anna", "in", "."]
    rows = [
        f"{w} " + " ".join(f"{0.1 * (i - j):.1f}" for j in range(8)) for i, w in enumerate(words)
    ]
    (folder / "vectors.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


def small(cloze, workdir, *more):
    args = f"--preset cbt_ne --train.num-steps {STEPS} --train.eval-every 3 --train.log-every 3"
    args += " --train.checkpoint-every 3 --model.hidden 6 --data.embeddings vectors.txt"
    return main([*args.split(), "--data.manual-dir", str(cloze), "--workdir", str(workdir), *more])


@pytest.fixture(scope="module")
def trained(cloze, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("run")
    assert small(cloze, workdir) == 0
    return workdir


def test_a_run_counts_its_questions_and_keeps_fixed_vectors(cloze, trained):
    record = json.loads((trained / "results.json").read_text())
    assert record["steps"] == STEPS
    assert record["test_n"] == len(record["correct"]) == record["counts"]["test"]["questions"]
    assert record["counts"]["train"]["read"] == record["train_n"]
    assert 0 < record["embedding_coverage"] < 1
    made = "made of books in the way of the published procedure"
    assert record["origin"].startswith(
        f"{made}: {record['train_n']:,} questions where the official"
    )
    assert record["origin"] == record["substitute"]
    assert len(record["shapes"]) == 1
    assert record["parameters"] == record["parameters_without_embeddings"]
    line = json.loads((trained / "metrics.jsonl").read_text().splitlines()[0])
    assert line["split"] == "train"
    assert 0 <= line["padding"] < 1
    assert line["tokens_per_s"] > 0
    reader = Reader.open(trained)
    table = reader.params["embed"]["embedding"]
    given = gdata.load_embeddings(cloze / "vectors.txt", reader.vocabulary, dim=8, oov_std=1.0)
    assert np.array_equal(table, given.matrix)
    assert str(cloze) not in json.dumps(record)


def test_a_trained_reader_answers_about_a_text_with_words_it_has_not_seen(
    trained, tmp_path, capsys
):
    document = tmp_path / "d.txt"
    document.write_text("Zora saw the house of Anna. Then Zora and Emil went.", encoding="utf-8")
    args = ["answer", str(trained), "--document", str(document)]
    args += ["--question", "XXXXX saw the house.", "--figure", str(tmp_path / "map")]
    assert gatedjax_main([*args, "--candidates", "Zora", "Anna", "Emil", "Nobody", "Zora"]) == 0
    out = capsys.readouterr().out
    lines = [line.split(maxsplit=2) for line in out.splitlines()[:4]]
    assert {name for _, name, _ in lines} == {"Zora", "Anna", "Emil", "Nobody"}
    assert sum(float(p) for p, _, _ in lines) == pytest.approx(1, abs=1e-3)
    assert lines[-1] == ["0.0000", "Nobody", "(not in the document)"]
    assert "[Zora]" in out
    assert "hop 2 attends to" in out
    assert (tmp_path / "map.png").exists()
    with pytest.raises(SystemExit):
        gatedjax_main([*args, "--candidates", "Nobody", "None"])
    assert "candidates must occur in the document" in capsys.readouterr().err
    reader = Reader.open(trained)
    known = reader.with_words(["Zora", "anna"])
    assert len(known.vocabulary) == len(reader.vocabulary) + 1
    assert known.params["embed"]["embedding"].shape[0] == len(known.vocabulary)


def test_what_a_reader_says_of_a_file_is_what_training_measured(cloze, trained):
    record = json.loads((trained / "results.json").read_text())
    source = gdata.load("cbt_ne", "test", manual_dir=cloze)
    readings = Reader.open(trained).answer_questions(source)
    right = "".join("1" if r.best == r.example["label"] else "0" for r in readings)
    assert right == record["correct"]
    for reading in readings[:5]:
        assert reading.probabilities.sum() == pytest.approx(1, abs=1e-5)
        assert all(len(place.hops) == 2 for place in reading.places)
        assert sum(place.weight for place in reading.places) == pytest.approx(1, abs=1e-5)
        assert all(
            hop.sum() == pytest.approx(1, abs=1e-5) for p in reading.places for hop in p.hops
        )


def train_only(name, monkeypatch, **changes):
    """Leaves a single reader in the table of one budget, and changes its preset."""
    table = dataclasses.replace(PAPER.tables["cbt"], variants=(name,))
    monkeypatch.setitem(PAPER.tables, "cbt", table)
    changes = {f"data.{option}": value for option, value in changes.items()}
    monkeypatch.setitem(PRESETS, "cbt_ne", with_changes(PRESETS["cbt_ne"], changes))


def test_a_table_trains_every_cell_once_and_figure3_draws_its_run(cloze, tmp_path, monkeypatch):
    train_only("fix", monkeypatch, max_doc_len=120, fraction=0.5)
    args = ["--data", "cbt_ne", "--seeds", "1", "--num-steps", "3", "--hidden", "4"]
    args += ["--eval-every", "3"]
    args += ["--embeddings", "none", "--manual-dir", str(cloze)]
    args += ["--results", str(tmp_path / "r"), "--runs", str(tmp_path / "w")]
    assert tables.main(["cbt", *args]) == 0
    store = PAPER.store(tmp_path / "r")
    assert list(store.variants("cbt_ne")) == ["fix"]
    record = store.get("cbt_ne", "fix", 0)
    assert record["counts"]["train"]["documents_cut"] > 0
    assert "50 % of the training questions" in record["substitute"]
    paths = sorted((tmp_path / "r" / "runs").iterdir())
    before = [path.stat().st_mtime_ns for path in paths]
    assert tables.main(["cbt", *args]) == 0
    assert [path.stat().st_mtime_ns for path in paths] == before
    assert tables.main(["figure3", *args]) == 0
    drawn = list((tmp_path / "r").glob("figure3_cbt_ne_*.png"))
    assert 1 <= len(drawn) <= figures.SHOWN
    text = (tmp_path / "r" / "RESULTS.md").read_text(encoding="utf-8")
    assert "## One budget: CBT-NE" in text
    assert "figure3_cbt_ne_1.png" in text


def test_seeds_side_by_side_leave_the_records_of_single_runs(cloze, tmp_path, monkeypatch):
    train_only("hops_1", monkeypatch, max_doc_len=60)
    args = ["cbt", "--data", "cbt_ne", "--num-steps", "2", "--hidden", "4"]
    args += ["--eval-every", "2", "--cpu-devices", "1"]
    args += ["--embeddings", "none", "--manual-dir", str(cloze), "--results", str(tmp_path / "r")]
    args += ["--seeds", "2", "--lanes", "2", "--runs", str(tmp_path / "w")]
    assert tables.main(args) == 0
    records = PAPER.store(tmp_path / "r").all("cbt_ne", "hops_1")
    assert [(record["seed"], record["lanes"]) for record in records] == [(0, 2), (1, 2)]
