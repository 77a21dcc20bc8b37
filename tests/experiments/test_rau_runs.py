"""Real runs of RAU, a few steps long: digits end to end, and IMDB from a folder of texts."""

import json
import signal

import pytest

from experiments.rau import tables
from experiments.rau.__main__ import main
from experiments.rau.paper import PAPER
from gatedjax import data as gdata

pytestmark = pytest.mark.slow

STEPS = 12


def digits(workdir, *more):
    args = f"--preset digits --model.hidden 8 --train.num-steps {STEPS} --train.eval-every 3"
    return main([*args.split(), "--workdir", str(workdir), *more])


def test_a_run_stopped_by_ctrl_c_continues_to_the_record_of_an_unbroken_one(
    tmp_path, monkeypatch, capsys
):
    assert digits(tmp_path / "whole") == 0
    whole = json.loads((tmp_path / "whole" / "results.json").read_text())
    assert "best step" in capsys.readouterr().out

    take = gdata.ImageBatches.__getitem__

    def interrupted(self, step):
        if step == 5 and not self.one_pass:
            signal.raise_signal(signal.SIGINT)
        return take(self, step)

    monkeypatch.setattr(gdata.ImageBatches, "__getitem__", interrupted)
    assert digits(tmp_path / "broken") == 130
    assert "the same command continues" in " ".join(capsys.readouterr().out.split())
    assert not (tmp_path / "broken" / "results.json").exists()
    monkeypatch.setattr(gdata.ImageBatches, "__getitem__", take)
    assert digits(tmp_path / "broken") == 0
    broken = json.loads((tmp_path / "broken" / "results.json").read_text())
    for key in ("correct", "test", "test_last", "validation", "curve", "steps", "best_step"):
        assert broken[key] == whole[key]
    assert [point[0] for point in whole["curve"]] == [3, 6, 9, 12]
    assert whole["test_n"] == len(whole["correct"]) == 359
    share = whole["correct"].count("1") / 359
    assert whole["test"]["accuracy"] == pytest.approx(share, abs=1e-6)
    # 8 rows of 8 pixels into 8 units: 5 n (m + n) + 5 n, and 10 classes
    assert whole["recurrent_parameters"] == 5 * 8 * 16 + 5 * 8
    assert whole["parameters"] == whole["recurrent_parameters"] + 8 * 10 + 10
    assert str(tmp_path) not in json.dumps(whole)


def test_a_table_trains_its_seeds_side_by_side(tmp_path):
    args = ["table1", "--data", "digits", "--cells", "rau", "gru", "--seeds", "2", "--lanes", "2"]
    args += ["--num-steps", "2", "--results", str(tmp_path / "r"), "--runs", str(tmp_path / "w")]
    assert tables.main(args) == 0
    assert "RAU minus GRU" in (tmp_path / "r" / "RESULTS.md").read_text(encoding="utf-8")
    for cell, gates in (("rau", 5), ("gru", 3)):
        records = PAPER.store(tmp_path / "r").all("digits", cell)
        assert [(record["seed"], record["lanes"]) for record in records] == [(0, 2), (1, 2)]
        assert len({record["correct"] for record in records}) == 2
        # 8 rows of 8 pixels into 128 units
        assert records[0]["recurrent_parameters"] == gates * (128 * (8 + 128) + 128)


def test_imdb_from_a_folder_of_texts(tmp_path):
    words = {"pos": "a very fine film", "neg": "such a dull one"}
    for part, count in (("train", 10), ("test", 4)):
        for label, text in words.items():
            folder = tmp_path / "aclImdb" / part / label
            folder.mkdir(parents=True)
            for i in range(count):
                (folder / f"{i}_1.txt").write_text(f"{text} {'so ' * i}", encoding="utf-8")
    args = ["--preset", "imdb", "--workdir", str(tmp_path / "w"), "--model.hidden", "4"]
    args += ["--data.manual-dir", str(tmp_path), "--data.batch-size", "8", "--data.max-len", "6"]
    args += ["--data.vocabulary-size", "5", "--train.num-steps", "4", "--train.eval-every", "2"]
    args += ["--data.max-buckets", "1"]
    assert main(args) == 0
    record = json.loads((tmp_path / "w" / "results.json").read_text())
    assert record["test_n"] == len(record["correct"]) == 8
    # five words, padding and the unknown word
    assert record["vocabulary_size"] == 7
    recurrent = 5 * 4 * (100 + 4) + 5 * 4
    assert record["parameters"] == 7 * 100 + recurrent + 4 * 2 + 2
    assert [point[0] for point in record["curve"]] == [2, 4]
    assert "official file has 25,000" in record["substitute"]
    assert record["origin"] == record["substitute"]
    assert sum(record["predicted_classes"]) == 8
    assert 0 < record["label_entropy"] <= 0.6932
    assert len(record["test_digest"]) == 16
