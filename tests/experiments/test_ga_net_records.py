"""Records of runs: reused, made again, damaged, and rendered with exact numbers."""

import dataclasses
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.core.records import jsonable
from experiments.ga_net import config as settings
from experiments.ga_net import figures, render, run, tables, tune
from experiments.ga_net.results import Store, public_config
from tests.experiments._results import binomial_two_sided, rows_of, run_cell

MODES = ("sample", "threshold", "expected", "relaxed")


def make_record(config, correct, *, density=0.5):
    gated = config.model.system == "ganet"
    accuracy = correct.count("1") / len(correct)
    test = {"accuracy": accuracy}
    if gated:
        test |= {"density": density, "closed_sample": 0.0}
        test |= {f"accuracy_{m}": accuracy for m in MODES}
        test |= {f"density_{m}": density for m in MODES}
    return {
        "data": config.data.name,
        "substitute": None,
        "system": config.model.system,
        "seed": config.train.seed,
        "config": jsonable(public_config(config)),
        "correct": correct,
        "test_n": len(correct),
        "test_tokens": 10 * len(correct),
        "attended_tokens": 4 * len(correct),
        "best_step": 7,
        "seconds": 1.0,
        "hardware": {"device": "cpu", "devices": 1, "jax": "0"},
        "test": test,
    }


@pytest.fixture
def options(tmp_path):
    return tables.TablesConfig(
        what="table2",
        data=("polarity",),
        seeds=2,
        num_steps=6,
        results=tmp_path / "results",
        runs=tmp_path / "runs",
    )


@pytest.fixture
def runs(monkeypatch):
    """Replaces training by the record that it would leave; holds the configurations asked for."""
    asked = []

    def fake(config, prepared):
        assert prepared == "data"
        asked.append(config)
        record = make_record(config, "1101")
        return SimpleNamespace(
            record=record, fit=SimpleNamespace(stopped="done", exit_code=0, signal=None)
        )

    monkeypatch.setattr(run, "run", fake)
    monkeypatch.setattr(run, "prepare", lambda data, width: "data")
    monkeypatch.setattr(run, "substitute", lambda prepared: None)
    monkeypatch.setattr(tables, "_PREPARED", {})
    return asked


def save(store, variant, records):
    for record in records:
        path = store.path(record["data"], variant, record["seed"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record), encoding="utf-8")


def trec(system, seed, **model):
    preset = settings.PRESETS["trec"]
    return dataclasses.replace(
        preset,
        model=dataclasses.replace(preset.model, system=system, **model),
        train=dataclasses.replace(preset.train, seed=seed),
    )


def test_a_cell_runs_every_seed_once(options, runs):
    run_cell(tables, options, "polarity", "soft", system="soft")
    assert [c.train.seed for c in runs] == [0, 1]
    assert {c.model.system for c in runs} == {"soft"}
    assert {c.train.num_steps for c in runs} == {6}
    run_cell(tables, options, "polarity", "soft", system="soft")
    assert len(runs) == 2


def test_a_record_of_another_configuration_is_made_again_only_with_rerun(options, runs):
    run_cell(tables, options, "polarity", "soft", system="soft")
    longer = dataclasses.replace(options, num_steps=8)
    with pytest.raises(ValueError, match=r"train.num_steps 6, wanted 8.*--results DIR.*--rerun"):
        run_cell(tables, longer, "polarity", "soft", system="soft")
    assert [c.train.num_steps for c in runs] == [6, 6]
    longer = dataclasses.replace(longer, rerun=True)
    run_cell(tables, longer, "polarity", "soft", system="soft")
    assert [c.train.num_steps for c in runs] == [6, 6, 8, 8]
    record = Store(options.results).get("polarity", "soft", 0)
    assert record["config"]["train"]["num_steps"] == 8


def test_more_seeds_run_only_the_new_ones(options, runs):
    run_cell(tables, options, "polarity", "soft", system="soft")
    run_cell(tables, dataclasses.replace(options, seeds=4), "polarity", "soft", system="soft")
    assert [c.train.seed for c in runs] == [0, 1, 2, 3]


def test_a_finished_work_folder_of_the_same_run_is_taken_and_of_another_is_not(options, runs):
    for seed, steps in ((0, 6), (1, 5)):
        config = tables.run_config(options, "polarity", seed, system="soft")
        config = dataclasses.replace(
            config, train=dataclasses.replace(config.train, num_steps=steps)
        )
        folder = options.runs / f"polarity-soft-seed{seed}"
        folder.mkdir(parents=True)
        (folder / "results.json").write_text(json.dumps(make_record(config, "0000")))
    run_cell(tables, options, "polarity", "soft", system="soft")
    assert [c.train.seed for c in runs] == [1]
    store = Store(options.results)
    assert store.get("polarity", "soft", 0)["correct"] == "0000"
    assert store.get("polarity", "soft", 1)["correct"] == "1101"


def test_rerun_starts_from_an_empty_work_folder(options, runs):
    run_cell(tables, options, "polarity", "soft", system="soft")
    left = options.runs / "polarity-soft-seed0" / "checkpoints"
    left.mkdir(parents=True)
    other = options.runs / "polarity-ganet-seed0"
    other.mkdir()
    again = dataclasses.replace(options, rerun=True, seeds=1)
    run_cell(tables, again, "polarity", "soft", system="soft")
    assert [c.train.seed for c in runs] == [0, 1, 0]
    assert not left.exists()
    assert other.exists()


def test_an_interrupted_cell_leaves_no_record(options, runs, monkeypatch, capsys):
    stopped = SimpleNamespace(
        record={}, fit=SimpleNamespace(stopped="signal", exit_code=130, signal=2)
    )
    monkeypatch.setattr(run, "run", lambda config, prepared: stopped)
    with pytest.raises(SystemExit) as stop:
        run_cell(tables, options, "polarity", "soft", system="soft")
    assert stop.value.code == 130
    assert Store(options.results).get("polarity", "soft", 0) is None
    assert "the same command continues" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "reason"), [('{"config": ', "is damaged"), ('{"seed": 0}', "no config"), ("", "")]
)
def test_a_damaged_record_is_named(tmp_path, capsys, content, reason):
    path = Store(tmp_path).path("trec", "soft", 0)
    path.parent.mkdir()
    path.write_text(content, encoding="utf-8")
    with pytest.raises(SystemExit) as stop:
        tables.main(["render", "--results", str(tmp_path)])
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert str(path) in message
    assert reason in message
    assert "delete it" in message
    assert not (tmp_path / "RESULTS.md").exists()


def test_a_damaged_record_stops_a_table_before_it_trains(options, runs):
    run_cell(tables, options, "polarity", "soft", system="soft")
    path = Store(options.results).path("polarity", "soft", 1)
    path.write_text(path.read_text()[:40])
    with pytest.raises(ValueError, match=re.escape(str(path))):
        run_cell(tables, options, "polarity", "soft", system="soft")
    assert len(runs) == 2


def test_a_damaged_tuning_record_is_named(tmp_path, capsys):
    (tmp_path / "tuning.json").write_text("[{")
    with pytest.raises(SystemExit) as stop:
        tune.main(["--data", "polarity", "--results", str(tmp_path)])
    assert stop.value.code == 2
    assert str(tmp_path / "tuning.json") in capsys.readouterr().err


def test_a_work_folder_that_cannot_be_made_is_one_line(tmp_path, capsys):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(SystemExit) as stop:
        tables.main(["render", "--results", str(blocked / "below")])
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert str(blocked) in message


def test_store_reads_records_in_the_order_of_seeds_and_tells_variants_apart(tmp_path):
    store = Store(tmp_path)
    save(store, "ganet", [make_record(trec("ganet", seed), "10") for seed in (10, 2, 0)])
    save(store, "ganet_width_20", [make_record(trec("ganet", 0, aux_hidden=20), "10")])
    assert [record["seed"] for record in store.all("trec", "ganet")] == [0, 2, 10]
    assert list(store.variants("trec")) == ["ganet", "ganet_width_20"]
    assert store.get("trec", "ganet", 1) is None
    assert list(store.variants("sst1")) == []


def test_nothing_run_renders_the_papers_numbers_and_not_run(tmp_path):
    render.write(Store(tmp_path), "render")
    text = (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    table = {
        (row[0], row[1]): row[2:] for row in rows_of(text, "Table 2: test accuracy and density")
    }
    assert len(table) == 20
    assert table["TREC", "GA-Net"] == ["0.9124", "not run", "0.4431", "not run"]
    assert table["IMDB", "BiLSTM"] == ["0.8509", "not run", "-", "-"]
    assert {row[2] for row in rows_of(text, "Table 2, paired tests")} == {"not run"}
    assert rows_of(text, "Runs") == []


def test_rendered_numbers_equal_those_of_the_records(tmp_path, np_rng):
    store = Store(tmp_path)
    correct = {
        (system, seed): "".join(np.where(np_rng.random(50) < share, "1", "0"))
        for system, share in (("ganet", 0.9), ("soft", 0.6))
        for seed in range(3)
    }
    for system in ("ganet", "soft"):
        records = [
            make_record(trec(system, seed), correct[system, seed], density=0.3 + 0.1 * seed)
            for seed in range(3)
        ]
        save(store, system, records)
    render.write(store, "table2")
    text = (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    right = {key: np.array([c == "1" for c in row], float) for key, row in correct.items()}
    table = {
        (row[0], row[1]): row[2:] for row in rows_of(text, "Table 2: test accuracy and density")
    }
    for system, name in (("ganet", "GA-Net"), ("soft", "BiLSTM + softAtt")):
        seeds = [right[system, seed].mean() for seed in range(3)]
        wanted = f"{np.mean(seeds):.4f} ± {np.std(seeds, ddof=1):.4f} (n=3)"
        assert table["TREC", name][1] == wanted
    assert table["TREC", "GA-Net"][3] == "0.4000 ± 0.1000 (n=3)"

    paired = {(row[0], row[1]): row[2:] for row in rows_of(text, "Table 2, paired tests")}
    difference, interval, _, exact = paired["TREC", "BiLSTM + softAtt"]
    gap = np.mean([right["ganet", s].mean() - right["soft", s].mean() for s in range(3)])
    assert difference == f"{gap:+.4f} (n=3 seeds)"
    low, high = (float(end) for end in interval.strip("[]").split(","))
    assert low < gap < high
    wanted = [
        binomial_two_sided(
            int(np.sum(right["ganet", s] > right["soft", s])),
            int(np.sum(right["ganet", s] < right["soft", s])),
        )
        for s in range(3)
    ]
    # the only three tests of the table: none of the other systems was run
    corrected = np.minimum(1, np.maximum.accumulate(np.sort(wanted) * (3, 2, 1)))
    named = dict(zip(np.sort(wanted), corrected, strict=True))
    assert exact == ", ".join(f"{p:.3f}" if (p := named[q]) >= 0.001 else "<0.001" for q in wanted)
    assert "together (Holm): 1 of the bootstrap, 3 of McNemar's test." in text
    assert paired["TREC", "BiLSTM"][0] == "not run"

    # 4 of 10 words attended at width 200: n (4 D + 3), so the ratio is exactly 0.4
    flops = {
        row[0]: row[1:] for row in rows_of(text, "Table 3: attention operations over the test set")
    }
    assert flops["TREC"][3:6] == ["401.50k", "160.60k", "0.400"]
    runs = rows_of(text, "Runs")
    assert [row[1:3] for row in runs] == [["ganet", "0, 1, 2"], ["soft", "0, 1, 2"]]


def test_only_seeds_that_both_systems_have_are_paired(tmp_path):
    store = Store(tmp_path)
    save(
        store,
        "ganet",
        [make_record(trec("ganet", s), row) for s, row in ((0, "1111"), (1, "1100"))],
    )
    save(
        store, "soft", [make_record(trec("soft", s), row) for s, row in ((1, "1000"), (2, "0000"))]
    )
    render.write(store, "table2")
    text = (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    paired = {(row[0], row[1]): row[2:] for row in rows_of(text, "Table 2, paired tests")}
    assert paired["TREC", "BiLSTM + softAtt"][0] == "+0.2500 (n=1 seeds)"


def test_one_seed_has_no_deviation(tmp_path):
    store = Store(tmp_path)
    save(store, "soft", [make_record(trec("soft", 0), "1110")])
    assert "0.7500 (n=1)" in render.table2(store)
    assert "±" not in render.table2(store)


def test_a_baseline_alone_on_the_embedded_corpus_has_its_row(tmp_path):
    store = Store(tmp_path)
    preset = settings.PRESETS["polarity"]
    soft = dataclasses.replace(preset, model=dataclasses.replace(preset.model, system="soft"))
    save(store, "soft", [make_record(soft, "1110")])
    text = f"## table\n{render.table2(store)}"
    table = {(row[0], row[1]): row[2:] for row in rows_of(text, "table")}
    assert table["polarity", "BiLSTM + softAtt"] == ["-", "0.7500 (n=1)", "-", "-"]
    assert table["polarity", "GA-Net"] == ["-", "not run", "-", "not run"]


def test_figure_5_takes_the_presets_width_from_the_runs_of_table_2(tmp_path):
    store = Store(tmp_path)
    save(store, "ganet", [make_record(trec("ganet", 0), "1110")])
    save(store, "ganet_width_20", [make_record(trec("ganet", 0, aux_hidden=20), "1000")])
    # polarity's own width is none of the figure's: its GA-Net is no point of the figure
    polarity = settings.PRESETS["polarity"]
    wide = dataclasses.replace(polarity, model=dataclasses.replace(polarity.model, aux_hidden=20))
    save(store, "ganet", [make_record(polarity, "1111")])
    save(store, "ganet_width_20", [make_record(wide, "1100")])
    text = f"## figure\n{render.figure5(store)}"
    table = {(row[0], row[1]): row[2:] for row in rows_of(text, "figure")}
    rest = ["not run"] * 3
    assert table["TREC", "accuracy"] == ["0.2500 (n=1)", *rest, "0.7500 (n=1)"]
    assert table["polarity", "accuracy"] == ["0.5000 (n=1)", *rest, "not run"]


def test_records_of_the_repository_hold_nothing_of_one_machine():
    for path in sorted(Store().folder.glob("**/*.json")):
        assert not re.search(r'"(/|~|[A-Z]:\\)', path.read_text(encoding="utf-8")), path


def test_the_statistics_of_the_embedded_corpus_are_counted(tmp_path):
    options = tables.TablesConfig(what="table1", results=tmp_path)
    figures.table1(options, ("polarity",))
    found = json.loads((tmp_path / "table1.json").read_text())["polarity"]
    assert [found[split]["n"] for split in ("train", "validation", "test")] == [4000, 500, 1000]


def test_a_signal_with_the_last_step_keeps_the_record_and_stops_the_table(
    tmp_path, monkeypatch, capsys
):
    record = {"config": {}, "seed": 0, "test": {}, "correct": ""}
    done = SimpleNamespace(
        record=record, fit=SimpleNamespace(stopped="done", exit_code=130, signal=2)
    )
    monkeypatch.setattr("experiments.ga_net.run.run", lambda config, prepared: done)
    monkeypatch.setattr("experiments.ga_net.run.prepare", lambda *args: None)
    options = tables.TablesConfig(
        what="table2", results=tmp_path / "results", runs=tmp_path / "runs", seeds=2
    )
    with pytest.raises(SystemExit) as stop:
        run_cell(tables, options, "polarity", "soft", system="soft")
    assert stop.value.code == 130
    assert [path.name for path in (tmp_path / "results" / "runs").iterdir()] == [
        "polarity-soft-seed0.json"
    ]
    assert "stopped after this run" in capsys.readouterr().err
