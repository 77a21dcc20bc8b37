"""The commands of experiments.agt as a stranger meets them."""

import dataclasses
import gzip
import json
import re
import types

import pytest

from experiments.agt import tables
from experiments.agt.__main__ import main
from experiments.agt.config import OPTIMIZERS, PRESETS
from experiments.agt.experiment import resolve_width, substitute
from experiments.agt.paper import PAPER
from experiments.core.config import with_changes
from tests.experiments import _commands
from tests.experiments._commands import plain


def parse(*args):
    return _commands.parse(PAPER, list(args))


@pytest.mark.parametrize("packed", [False, True])
def test_the_width_of_the_word_vectors_is_that_of_their_file(tmp_path, packed):
    path = tmp_path / ("v.txt.gz" if packed else "v.txt")
    with gzip.open(path, "wb") if packed else path.open("wb") as file:
        file.write(b"the 0.5 1 -1e-3\nfilm 1 2 3\n")
    config = parse(f"--data.embeddings={path}")
    assert config.model.embedding_dim == 300
    assert resolve_width(config).model.embedding_dim == 3
    asked = parse(f"--data.embeddings={path}", "--model.embedding-dim=7")
    assert resolve_width(asked) == asked
    absent = parse(f"--data.embeddings={tmp_path / 'no.txt'}")
    assert resolve_width(absent) == absent


@pytest.mark.parametrize(
    ("embeddings", "width", "wanted"),
    [
        ("d/glove.6B.300d.txt", 300, None),
        ("glove.6B.100d.txt.gz", 100, "word vectors of width 100 where the paper has 300"),
        (
            "glove/reviews.300d.txt",
            300,
            "word vectors reviews.300d.txt of width 300 where the paper has GloVe 300-d",
        ),
        ("none", 300, "random word vectors of width 300 where the paper has GloVe 300-d"),
    ],
)
def test_other_word_vectors_than_the_papers_are_named(embeddings, width, wanted):
    changes = {"data.embeddings": embeddings, "model.embedding_dim": width}
    texts = types.SimpleNamespace(substitute=None)
    assert substitute(with_changes(PRESETS["sst1"], changes), texts) == wanted


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_preset_changes_the_update_rule_alone(name):
    parsed = parse("--preset", "trec", "--optimizer-preset", name)
    changes = {"optimizer_preset": name, "train.optimizer": OPTIMIZERS[name]}
    assert parsed == with_changes(PRESETS["trec"], changes)
    more = ["--train.optimizer.learning-rate", "0.25"]
    optimizer = parse("--optimizer-preset", name, *more).train.optimizer
    assert optimizer == dataclasses.replace(OPTIMIZERS[name], learning_rate=0.25)


@pytest.mark.slow
def test_polarity_from_the_first_step_to_every_figure(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    folders = ["--results", str(tmp_path / "r"), "--runs", str(tmp_path / "w")]
    more = ["--data", "polarity", "--seeds", "2", "--num-steps", "12", "--lanes", "2", *folders]
    assert tables.main(["table1", *more]) == 0
    record, other = PAPER.store(tmp_path / "r").all("polarity", "agt")
    assert (record["seed"], other["seed"], record["lanes"]) == (0, 1, 2)
    assert record["layers"] != other["layers"]
    assert record["test_n"] == len(record["correct"]) == 1000
    share = record["correct"].count("1") / 1000
    assert record["test"]["accuracy"] == pytest.approx(share, abs=1e-6)
    # projection, 8 attentions, 7 gates and candidates, head and classes
    own = 50 * 32 + 32 + 8 * (32 * 32 + 32) + 7 * (32 * 32 + 32 + 64 * 32 + 32)
    own += 32 * 32 + 32 + 32 * 2 + 2
    assert record["parameters_without_embeddings"] == own
    assert record["parameters"] == own + 50 * record["vocabulary_size"]
    assert record["substitute"] is None
    assert record["origin"] == "embedded in gatedjax"
    assert sum(record["predicted_classes"]) == 1000
    assert record["label_entropy"] == pytest.approx(0.6931, abs=1e-3)
    assert len(record["test_digest"]) == 16
    words = sum(len(e["tokens"]) for e in record["examples"])
    assert len(record["examples"]) == 3
    assert words > 0
    layers = record["layers"]
    assert len(layers["attention"]) == len(layers["mean_run"]) == 8
    assert len(layers["gates"]) == len(layers["mean_gate"]) == 7
    assert {sum(row) for row in layers["gates"]} == {1000 * 32}
    assert len({sum(row) for row in layers["attention"]}) == 1
    before = sorted(p.stat().st_mtime_ns for p in (tmp_path / "r" / "runs").iterdir())
    for what in ("figure2", "figure3", "figure4", "selected", "first_layer_words"):
        assert tables.main([what, *more]) == 0
    assert before == sorted(p.stat().st_mtime_ns for p in (tmp_path / "r" / "runs").iterdir())
    drawn = {path.name for path in (tmp_path / "r").glob("*.png")}
    figure4 = {f"figure4_polarity_{n}.png" for n in (1, 2, 3)}
    assert drawn == {"figure2_polarity.png", "figure3_polarity.png"} | figure4
    assert (tmp_path / "w" / "selected_polarity.html").exists()
    assert "rank" in capsys.readouterr().out
    text = (tmp_path / "r" / "RESULTS.md").read_text(encoding="utf-8")
    assert "figure4_polarity_3.png" in text
    # twelve steps may leave a network that says one class to everything
    assert re.search(r"\(n=2\)|\(n=1\), 1 collapsed", text)
    assert str(tmp_path) not in json.dumps(record)


@pytest.mark.slow
def test_a_run_of_sst_trains_on_phrases_and_tests_on_sentences(tmp_path, capsys):
    folder = tmp_path / "trees"
    folder.mkdir()
    lines = [
        "(3 (2 The) (3 (3 good) (2 film)))",
        "(1 (2 Not) (1 (2 so) (1 (2 much) (2 (2 a) (2 movie)))))",
    ]
    for part in ("train", "dev", "test"):
        (folder / f"{part}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    vectors = tmp_path / "glove.4d.txt"
    vectors.write_text("the 1 2 3 4\nfilm 0 1 0 1\n", encoding="utf-8")
    args = ["--preset", "sst1", "--workdir", str(tmp_path / "w"), "--data.manual-dir"]
    args += [str(tmp_path), "--data.embeddings", str(vectors), "--train.num-steps", "2"]
    args += ["--data.max-buckets", "1"]
    args += ["--train.eval-every", "1", "--model.num-layers", "2", "--model.hidden", "4"]
    assert main(args) == 0
    record = json.loads((tmp_path / "w" / "results.json").read_text())
    # the film: 5 spans; the other sentence: 9
    assert record["train_n"] == 14
    assert record["test_n"] == len(record["correct"]) == 2
    assert record["embedding_dim"] == record["config"]["model"]["embedding_dim"] == 4
    assert "word vectors of width 4 where the paper has 300" in record["substitute"]
    assert [point[0] for point in record["curve"]] == [1, 2]
    assert "14 phrases" in plain(capsys.readouterr().out)


@pytest.mark.slow
def test_missing_vectors_of_our_own_are_named_with_the_command_that_makes_them():
    config = with_changes(PAPER.presets["sst1"], {"data.embeddings": "skipgram.x.txt"})
    with pytest.raises(FileNotFoundError, match=r"agt\.vectors --out skipgram\.x\.txt"):
        PAPER.experiment(config)
