"""Records of runs: reused, made again, damaged, and rendered with exact numbers."""

import json

import pytest

from experiments.core.command import options_of
from experiments.core.paper import Job
from experiments.core.records import RESULTS, read_json
from experiments.ga_net import figures, tune
from experiments.ga_net.paper import PAPER, TUNED


def test_a_damaged_tuning_record_is_named(tmp_path, capsys):
    (tmp_path / "tuning.json").write_text("[{")
    with pytest.raises(SystemExit) as stop:
        tune.main(["--data", "polarity", "--results", str(tmp_path)])
    assert stop.value.code == 2
    assert str(tmp_path / "tuning.json") in capsys.readouterr().err


@pytest.mark.parametrize("data", TUNED)
def test_systems_train_as_in_the_best_of_as_many_trials(data):
    trials = [r for r in read_json(RESULTS / "ga_net" / "tuning.json") if "loss" in r]
    for system, (rate, dropout) in TUNED[data].items():
        losses = {
            (trial["values"]["learning rate"], trial["values"]["dropout"]): trial["loss"]
            for trial in trials
            if (trial["data"], trial["system"]) == (data, system)
        }
        assert len(losses) == 6
        assert min(losses, key=losses.__getitem__) == (rate, dropout), system


@pytest.mark.slow
def test_the_statistics_of_the_embedded_corpus_are_counted(tmp_path):
    options = options_of(PAPER)(what="table1", data=("polarity",), results=tmp_path)
    figures.count(Job(PAPER, options))
    counts = json.loads((tmp_path / "table1.json").read_text())["polarity"]
    assert [counts[split]["n"] for split in ("train", "validation", "test")] == [4000, 500, 1000]
