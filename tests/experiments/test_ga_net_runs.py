"""Real runs on the embedded corpus, a few steps long."""

import dataclasses
import json

import numpy as np
import pytest

from experiments.core.command import run_of, runs_of
from experiments.core.records import saved_record
from experiments.ga_net.config import PRESETS
from experiments.ga_net.paper import PAPER

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("small_polarity")]


@pytest.fixture(scope="module")
def config(tmp_path_factory, small_polarity):
    preset = PRESETS["polarity"]
    small = dataclasses.replace(preset.model, embedding_dim=8, hidden=4, aux_hidden=4)
    return dataclasses.replace(
        preset,
        workdir=str(tmp_path_factory.mktemp("run")),
        model=small,
        train=dataclasses.replace(preset.train, num_steps=6, log_every=2, eval_every=3),
    )


@pytest.fixture(scope="module")
def first(config):
    return run_of(PAPER, config)


def test_the_record_agrees_with_itself_and_is_what_the_file_holds(config, first):
    record = first.record
    workdir = PAPER.workdir_of(config)
    assert {"config.json", "environment.json"} <= {path.name for path in workdir.iterdir()}
    saved = json.loads((workdir / "results.json").read_text())
    assert saved == json.loads(json.dumps(saved_record(record)))
    assert [point[0] for point in record["curve"]] == [3, 6]
    assert record["parameters_without_embeddings"] < record["parameters"]
    assert {"test_last", "seconds_per_step", "train_n"} <= record.keys()
    assert record["test_n"] == len(record["correct"]) == 1000
    assert 0 < record["attended_tokens"] < record["test_tokens"]
    assert sum(record["predicted_classes"]) == 1000
    assert record["label_entropy"] == pytest.approx(np.log(2), abs=1e-3)
    assert len(record["test_digest"]) == 16
    assert [point[0] for point in record["train_curve"]] == [2, 4, 6]
    assert record["origin"] == "embedded in gatedjax"
    assert config.workdir not in json.dumps(record)
    lines = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    assert all(0 <= line["density"] <= 1 for line in lines)


def test_a_sweep_of_the_penalty_changes_the_gates(config, tmp_path):
    train = dataclasses.replace(
        config.train, sweep=(0.0, 10.0), sweep_over="penalty", num_steps=6, seeds=1
    )
    swept = dataclasses.replace(config, workdir=str(tmp_path), train=train)
    few, many = runs_of(PAPER, swept)
    assert few.record["config"]["model"]["gates"]["penalty"] == 0.0
    assert many.record["config"]["model"]["gates"]["penalty"] == 10.0
    assert many.record["test"]["density"] < few.record["test"]["density"]
    saved = json.loads((tmp_path / "results.json").read_text())
    assert [record["lanes"] for record in saved["lanes"]] == [2, 2]


def test_a_sweep_over_what_no_network_has_is_refused(config, tmp_path):
    train = dataclasses.replace(config.train, sweep=(1.0,), sweep_over="hidden")
    with pytest.raises(ValueError, match="sweep_over must be one of"):
        runs_of(PAPER, dataclasses.replace(config, workdir=str(tmp_path), train=train))
