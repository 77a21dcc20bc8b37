"""The commands of experiments.ga_net as a stranger meets them."""

import json
import re

import pytest

from experiments.ga_net import config as settings
from experiments.ga_net import tables
from experiments.ga_net.__main__ import main
from experiments.ga_net.demo import main as demo
from experiments.ga_net.tune import TuneConfig, trials


def test_an_impossible_value_is_refused_by_name(capsys):
    with pytest.raises((SystemExit, ValueError), match=r"2|temperature"):
        main(["--model.temperature", "0"])


def test_missing_word_vectors_say_where_to_get_them_and_how_to_do_without(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--preset", "trec", "--data.embeddings", str(tmp_path / "no.txt")])
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert "--data.embeddings none" in message
    assert "glove" in message.lower()


def test_a_grid_varies_only_what_was_asked():
    options = TuneConfig(data="trec", dropouts=(0.1, 0.2), temperatures=(0.5, 1.0))
    found = trials(options)
    assert len(found) == 4
    assert {c.model.pool_dropout for _, c in found} == {0.1, 0.2}
    assert {c.train.optimizer.learning_rate for _, c in found} == {
        settings.PRESETS["trec"].train.optimizer.learning_rate
    }


@pytest.mark.slow
def test_a_run_leaves_its_files_and_is_not_repeated(tmp_path, capsys):
    args = ["--preset", "polarity", "--workdir", str(tmp_path), "--train.num-steps", "6"]
    assert main(args) == 0
    for name in ("metrics.jsonl", "config.json", "environment.json", "results.json"):
        assert (tmp_path / name).exists()
    found = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert {"train", "eval"} <= {line["split"] for line in found}
    first = json.loads((tmp_path / "results.json").read_text())
    assert main(args) == 0
    second = json.loads((tmp_path / "results.json").read_text())
    assert first["correct"] == second["correct"]
    assert first["steps"] == second["steps"] == 6


@pytest.mark.slow
def test_a_table_trains_every_seed_once(tmp_path):
    args = ["table2", "--data", "polarity", "--systems", "soft", "--seeds", "2"]
    args += ["--num-steps", "4", "--results", str(tmp_path / "r"), "--runs", str(tmp_path / "w")]
    assert tables.main(args) == 0
    text = (tmp_path / "r" / "RESULTS.md").read_text()
    (row,) = (line for line in text.splitlines() if "polarity" in line and "softAtt" in line)
    # four steps may leave a network that says one class to everything
    assert re.search(r"\(n=2\)|\(n=1\), 1 collapsed", row)
    paths = sorted((tmp_path / "r" / "runs").iterdir())
    assert len(paths) == 2
    before = [path.stat().st_mtime_ns for path in paths]
    assert tables.main(args) == 0
    assert [path.stat().st_mtime_ns for path in paths] == before


@pytest.mark.slow
def test_demo_draws_its_heat_map(tmp_path, capsys):
    assert demo(["--workdir", str(tmp_path), "--num-steps", "8"]) == 0
    for name in ("heatmap.png", "heatmap.svg", "metrics.jsonl", "config.json", "checkpoints"):
        assert (tmp_path / name).exists()
    assert "gate precision" in capsys.readouterr().out
