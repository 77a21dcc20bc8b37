"""The commands of experiments.ga_net as a stranger meets them."""

import dataclasses
import json
import re

import pytest

from experiments.core.records import jsonable
from experiments.ga_net import config as settings
from experiments.ga_net import render, tables
from experiments.ga_net.__main__ import main
from experiments.ga_net.cli import parse
from experiments.ga_net.demo import main as demo
from experiments.ga_net.results import Store, public_config
from experiments.ga_net.tune import TuneConfig, trials
from tests.experiments._commands import left_out_of_help, refused


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (main, ("--preset", "--model.temperature", "--train.num-steps", "--data.manual-dir")),
        (tables.main, ("--data", "--seeds", "--results", "table2")),
        (demo, ("--workdir", "--num-steps")),
    ],
)
def test_help_lists_the_options(command, options, capsys):
    assert left_out_of_help(command, options, capsys) == []


def test_unknown_preset_is_refused_with_a_suggestion(capsys):
    assert "Did you mean 'trec'?" in refused(main, ["--preset", "trek"], capsys)


def test_unknown_option_is_refused_with_a_suggestion(capsys):
    assert "--model.temperature" in refused(main, ["--model.temprature", "2"], capsys)


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


def test_options_that_are_not_given_come_from_the_preset():
    parsed = parse(["--preset", "sst2", "--model.system", "soft"], "x", "y")
    preset = settings.PRESETS["sst2"]
    assert parsed == dataclasses.replace(
        preset, model=dataclasses.replace(preset.model, system="soft")
    )


def record(seed, correct, system="soft", **test):
    config = jsonable(public_config(settings.PRESETS["trec"]))
    return {
        "data": "trec",
        "substitute": None,
        "system": system,
        "seed": seed,
        "config": config,
        "correct": correct,
        "test_n": len(correct),
        "test_tokens": 10 * len(correct),
        "attended_tokens": 4 * len(correct),
        "best_step": 7,
        "seconds": 1.0,
        "hardware": {"device": "cpu", "devices": 1, "jax": "0"},
        "test": {"accuracy": correct.count("1") / len(correct), **test},
    }


def test_results_show_mean_deviation_and_n_and_say_what_was_not_run(tmp_path):
    store = Store(tmp_path)
    modes = {
        f"{metric}_{mode}": 0.25
        for metric in ("accuracy", "density", "closed")
        for mode in ("sample", "threshold", "expected", "relaxed")
    }
    for seed, (a, b) in enumerate((("1110", "1100"), ("1111", "1110"))):
        for system, correct in (("ganet", a), ("soft", b)):
            path = store.path("trec", system, seed)
            path.parent.mkdir(exist_ok=True)
            extra = {"density": 0.5, **modes} if system == "ganet" else {}
            path.write_text(json.dumps(record(seed, correct, system, **extra)))
    render.write(store, "table2")
    text = (tmp_path / "RESULTS.md").read_text()
    assert "0.8750 ± 0.1768 (n=2)" in text
    assert "0.6250 ± 0.1768 (n=2)" in text
    assert "+0.2500 (n=2 seeds)" in text
    assert text.count("not run") > 10


def test_records_hold_nothing_of_one_machine():
    config = dataclasses.replace(
        settings.PRESETS["trec"],
        data=dataclasses.replace(
            settings.PRESETS["trec"].data,
            manual_dir="/somewhere/data",
            data_dir="/somewhere/tfds",
            embeddings="/somewhere/glove.txt.gz",
        ),
    )
    assert "somewhere" not in json.dumps(public_config(config))


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
