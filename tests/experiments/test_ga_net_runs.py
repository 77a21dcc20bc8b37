"""Real runs on the embedded corpus, a few steps long."""

import dataclasses
import json

import pytest

from experiments.ga_net import run as runs
from experiments.ga_net.config import PRESETS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    preset = PRESETS["polarity"]
    small = dataclasses.replace(preset.model, embedding_dim=8, hidden=4, aux_hidden=4)
    return dataclasses.replace(
        preset,
        workdir=str(tmp_path_factory.mktemp("run")),
        data=dataclasses.replace(preset.data, max_buckets=2),
        model=small,
        train=dataclasses.replace(preset.train, num_steps=6, log_every=2, eval_every=3),
    )


@pytest.fixture(scope="module")
def prepared(config):
    return runs.prepare(config.data, config.model.embedding_dim)


@pytest.fixture(scope="module")
def first(config, prepared):
    return runs.run(config, prepared)


def test_every_bucket_is_compiled_once(config, prepared, first):
    train, validation, _ = runs.batches(prepared, config.data, seed=config.train.seed)
    trained = {train[step]["tokens"].shape for step in range(6)}
    evaluated = {batch["tokens"].shape for batch in validation}
    assert len(evaluated) == 2
    assert first.fit.compilations == len(trained) + len(evaluated)


def test_metrics_are_one_json_object_a_line_at_the_asked_steps(config, first):
    path = runs.default_workdir(config) / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    steps = {
        split: [line["step"] for line in lines if line["split"] == split]
        for split in ("train", "eval")
    }
    assert steps == {"train": [2, 4, 6], "eval": [3, 6]}
    assert all(0 <= line["density"] <= 1 for line in lines)


def test_the_record_agrees_with_itself_and_is_what_the_file_holds(config, first):
    record = first.record
    saved = json.loads((runs.default_workdir(config) / "results.json").read_text())
    assert saved == json.loads(json.dumps(record))
    assert record["test_n"] == len(record["correct"]) == 1000
    assert 0 < record["attended_tokens"] < record["test_tokens"]
    assert config.workdir not in json.dumps(record)


def test_a_second_call_trains_nothing_and_finds_the_same(config, prepared, first):
    workdir = runs.default_workdir(config)
    before = (workdir / "metrics.jsonl").read_bytes()
    again = runs.run(config, prepared)
    assert again.fit.compilations == 0
    assert (workdir / "metrics.jsonl").read_bytes() == before
    volatile = ("seconds",)
    assert {k: v for k, v in again.record.items() if k not in volatile} == {
        k: v for k, v in first.record.items() if k not in volatile
    }


def test_a_work_folder_of_another_run_is_refused_with_what_differs(config, prepared, first):
    other = dataclasses.replace(config, model=dataclasses.replace(config.model, temperature=0.5))
    with pytest.raises(ValueError, match=r"temperature: saved 1\.0, now 0\.5"):
        runs.run(other, prepared)
