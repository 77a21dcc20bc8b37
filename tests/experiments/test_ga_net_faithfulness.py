"""The tables of faithfulness and recursive ROAR: what they train, refuse, record and show."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.core.experiment import Run
from experiments.ga_net import faithfulness, roar, tables
from experiments.ga_net.paper import PAPER
from gatedjax import analysis
from tests.experiments._commands import refused
from tests.experiments._results import config_of, record_of, rendered, rows_of, save

ROAR = "Recursive ROAR: accuracy by share of masked words"
MEANS = "Faithfulness of the gates"
PAIRED = "Faithfulness of the gates, paired tests"

pytestmark = pytest.mark.usefixtures("small_polarity")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["roar", "--seeds", "0"], "--seeds must be at least 1, got 0"),
    ],
)
def test_options_that_nothing_can_use_are_refused(args, message, tmp_path, capsys):
    said = refused(tables.main, [*args, "--results", str(tmp_path)], capsys)
    assert message in said
    assert not list(tmp_path.iterdir())


def curve_record(measure, seed, accuracy, shares):
    config = config_of(PAPER, "trec", seed, system="ganet")
    more = {"measure": measure, "shares": shares, "accuracy": accuracy, "system": "ganet"}
    return record_of(PAPER, config, "1101", **more)


@pytest.mark.slow
def test_a_curve_shows_its_means_and_the_area_of_the_seeds_that_both_have(tmp_path, np_rng):
    store, shares = PAPER.store(tmp_path), [0.0, 0.5, 1.0]
    drawn = {
        (measure, seed): sorted(np_rng.random(3), reverse=True)
        for measure, seeds in (("gates", (0, 1, 2)), ("random", (1, 2, 3)))
        for seed in seeds
    }
    for (measure, seed), accuracy in drawn.items():
        save(
            store, "trec", f"roar_ganet_{measure}", [curve_record(measure, seed, accuracy, shares)]
        )
    text = rendered(PAPER, store)
    rows = {tuple(row[1:3]): row[3:] for row in rows_of(text, ROAR)}
    means = np.mean([drawn["gates", seed] for seed in range(3)], axis=0)
    assert rows["GA-Net", "gates"][:4] == ["3", *(f"{mean:.3f}" for mean in means)]
    gates, random = (
        np.transpose([drawn[name, seed] for seed in (1, 2)]) for name in ("gates", "random")
    )
    found = analysis.racu(shares, gates, random)
    assert rows["GA-Net", "gates"][4:] == [
        f"{found.mean:+.3f} (n=2)",
        f"[{found.low:+.3f}, {found.high:+.3f}]",
    ]
    assert rows["GA-Net", "random"][4:] == ["-", "-"]
    assert rows["GA-Net", "gradient"][0] == "not run"
    # an importance without random words beside it has no area, and equal ends have none
    save(store, "trec", "roar_soft_attention", [curve_record("attention", 0, [1, 0, 0], shares)])
    rows = {tuple(row[1:3]): row[3:] for row in rows_of(rendered(PAPER, store), ROAR)}
    assert rows["BiLSTM + softAtt", "attention"][4:] == ["not run", "-"]
    save(store, "trec", "roar_soft_random", [curve_record("random", 0, [1, 1, 1], shares)])
    rows = {tuple(row[1:3]): row[3:] for row in rows_of(rendered(PAPER, store), ROAR)}
    assert rows["BiLSTM + softAtt", "attention"][4:] == ["masking all costs nothing", "-"]


def trained(asked, test_words):
    """Stands for `run_lanes`: networks whose accuracy is the share of words that are left."""

    def fake(build, config, place, settings, *, seeds):
        made, runs = build(config), []
        for seed in range(config.train.seed, config.train.seed + seeds):
            words = {
                name: np.concatenate([batch["tokens"].ravel() for batch in part(seed)])
                for name, part in (("validation", made.validation), ("test", made.test))
            }
            batch = made.train(seed)[0]
            words["train"] = batch["tokens"].ravel()
            left = {name: 1 - np.mean(one[one > 0] == 1) for name, one in words.items()}
            asked.append((place.workdir.name, seed, left))
            test_words.append(words["test"])
            one = dataclasses.replace(config, train=dataclasses.replace(config.train, seed=seed))
            record = record_of(PAPER, one, "11", system=config.model.system, lanes=seeds)
            record["test"]["accuracy"] = left["test"]
            runs.append(Run(SimpleNamespace(), made.task, record | {"signal": None}))
        return runs

    return fake


@pytest.mark.slow
def test_every_seed_reads_its_own_masked_texts_and_its_curve_is_recorded(tmp_path, monkeypatch):
    asked, test_words = [], []
    monkeypatch.setattr(roar, "run_lanes", trained(asked, test_words))
    monkeypatch.setattr(roar, "ROWS", {"soft": ("random",)})
    monkeypatch.setattr(roar, "SHARES", (0.0, 0.25, 0.5, 1.0))
    args = ["roar", "--data", "polarity", "--results", str(tmp_path / "r")]
    args += ["--runs", str(tmp_path / "w")]
    assert tables.main([*args, "--seeds", "2"]) == 0
    names = ["all_0", "random_0.25", "random_0.5", "all_1"]
    assert [name for name, _, _ in asked[::2]] == [
        f"polarity-roar_soft_{name}-seeds0to1" for name in names
    ]
    for (_, _, left), share in zip(asked, np.repeat([0, 0.25, 0.5, 1], 2), strict=True):
        for part in left.values():
            # rounded down in every text, whose few words are unknown from the start
            assert 1 - share - 0.02 <= part <= 1 - share + 0.15
    paths = sorted((tmp_path / "r" / "runs").iterdir())
    assert [path.name for path in paths] == [
        f"polarity-roar_soft_random-seed{seed}.json" for seed in range(2)
    ]
    records = [json.loads(path.read_text()) for path in paths]
    for seed, record in enumerate(records):
        assert record["seed"] == record["config"]["train"]["seed"] == seed
        assert record["shares"] == [0, 0.25, 0.5, 1]
        assert record["accuracy"] == [left["test"] for _, one, left in asked if one == seed]
        assert {"hardware", "seconds", "test_n", "origin", "lanes"} <= record.keys()
    assert [
        bool((a != b).any()) for a, b in zip(test_words[::2], test_words[1::2], strict=True)
    ] == [0, 1, 1, 0]
    assert (tmp_path / "r" / "roar_polarity.png").exists()
    text = (tmp_path / "r" / "RESULTS.md").read_text()
    (row,) = (row for row in rows_of(text, ROAR) if row[:3] == ["polarity", *row[1:2], "random"]
              and row[3] == "2")  # fmt: skip
    assert row[4:8] == [f"{x:.3f}" for x in np.mean([r["accuracy"] for r in records], axis=0)]
    # a third seed is trained alone
    del asked[:]
    assert tables.main([*args, "--seeds", "3"]) == 0
    assert {name.rsplit("-", 1)[1] for name, _, _ in asked} == {"seeds2to2"}
    del asked[:]
    assert tables.main([*args, "--seeds", "3"]) == 0
    assert not asked


def faithful_record(variant, seed, drawn):
    model = {"system": "ganet", "gates.density": 0.2}
    if variant == "ganet_input":
        model["gates.gates_on"] = "input"
    values = {
        rationale: {of: drawn[rationale, of, seed].tolist() for of in faithfulness.MEASURES}
        for rationale in faithfulness.RATIONALES
    }
    facts = {"texts": 30, "density": 0.2 + 0.01 * seed, "shares": [0.5], "values": values}
    config = config_of(PAPER, "trec", seed, **model)
    return record_of(PAPER, config, "1101", system="ganet", faithfulness=facts)


def test_means_and_paired_tests_are_those_of_the_texts(tmp_path, np_rng):
    store = PAPER.store(tmp_path)
    drawn = {
        (rationale, of, seed): np.round(np_rng.random(30), 4)
        for rationale in faithfulness.RATIONALES
        for of in faithfulness.MEASURES
        for seed in range(3)
    }
    for seed in range(3):
        drawn["own", "leak", seed] += 1
        drawn["random", "sufficiency", seed] += 3 - 4 * (seed % 2)
        save(store, "trec", "ganet_density", [faithful_record("ganet_density", seed, drawn)])
    text = rendered(PAPER, store)
    rows = {tuple(row[1:3]): row[3:] for row in rows_of(text, MEANS)}
    title = "GA-Net, density 0.2"
    assert rows[title, "gates"][:2] == ["0.7500 ± 0.0000 (n=3)", "0.2100 ± 0.0100 (n=3)"]
    for rationale, name in faithfulness.RATIONALES.items():
        for cell, of in zip(rows[title, name][2:], faithfulness.MEASURES, strict=True):
            means = [drawn[rationale, of, seed].mean() for seed in range(3)]
            assert cell == f"{np.mean(means):.4f} ± {np.std(means, ddof=1):.4f} (n=3)"
    assert rows["GA-Net, density 0.2, gates on the input", "not run"]

    pairs = [row[2:] for row in rows_of(text, PAIRED) if row[1] == title]
    others = [name for name in faithfulness.RATIONALES if name != "own"]
    tests = {}
    for other in others:
        for of in faithfulness.MEASURES:
            shift = np.array([drawn["own", of, s] - drawn[other, of, s] for s in range(3)])
            tests[other, of] = analysis.two_way_test(shift, 0 * shift)
    corrected = analysis.holm([test.p_value for test in tests.values()])
    assert len(pairs) == len(tests) == 12
    for row, ((other, of), test), p in zip(pairs, tests.items(), corrected, strict=True):
        assert row[:2] == [faithfulness.RATIONALES[other], faithfulness.MEASURES[of]]
        assert row[2] == f"{test.difference:+.4f} (n=3 seeds)"
        assert row[4] == (f"{p:.3f}" if p >= 0.001 else "<0.001") + " *" * bool(p < 0.05)
    assert sum(row[4].endswith("*") for row in pairs) >= 3  # the leak
    # the seeds differ by 4, so that no number of texts makes their mean certain
    assert float(pairs[1][4]) > 0.05

    # two seeds give no verdict
    path = store.path("trec", "ganet_density", 2)
    path.unlink()
    assert {row[6] for row in rows_of(rendered(PAPER, store), PAIRED) if row[1] == title} == {
        "these runs (n=2)"
    }


@pytest.mark.slow
def test_a_trained_network_is_measured_once(tmp_path, monkeypatch):
    monkeypatch.setattr(faithfulness, "TEXTS", 6)
    args = ["faithfulness", "--data", "polarity", "--seeds", "1", "--num-steps", "4"]
    args += ["--results", str(tmp_path / "r"), "--runs", str(tmp_path / "w")]
    assert tables.main(args) == 0
    paths = sorted((tmp_path / "r" / "runs").iterdir())
    records = {path.name: json.loads(path.read_text()) for path in paths}
    assert list(records) == [
        f"polarity-{name}-seed0.json" for name in sorted(faithfulness.VARIANTS)
    ]
    on_input = records["polarity-ganet_input-seed0.json"]["faithfulness"]
    assert set(on_input["values"]) == set(faithfulness.RATIONALES)
    found = records["polarity-ganet_density-seed0.json"]["exact"]
    assert min(found["texts"], found["left_out"]) > 0
    assert "exact" not in records["polarity-ganet_input-seed0.json"]
    for values in on_input["values"].values():
        assert len(values["comprehensiveness"]) == on_input["texts"] == 6
        assert set(values["leak"]) == set(values["flipped"]) == {0}
    monkeypatch.setattr(analysis, "faithfulness", lambda *_: pytest.fail("measured again"))
    assert tables.main(args) == 0


@pytest.mark.slow
def test_the_recursion_trains_real_networks_and_continues(tmp_path, monkeypatch):
    monkeypatch.setattr(roar, "ROWS", {"soft": ("attention",)})
    monkeypatch.setattr(roar, "SHARES", (0.0, 0.5, 1.0))
    args = ["roar", "--data", "polarity", "--seeds", "1", "--num-steps", "3"]
    args += ["--results", str(tmp_path / "r"), "--runs", str(tmp_path / "w")]
    assert tables.main(args) == 0
    paths = sorted((tmp_path / "r" / "runs").iterdir())
    before = [json.loads(path.read_text())["accuracy"] for path in paths]
    assert [len(curve) for curve in before] == [3]
    for path in paths:
        path.unlink()
    logs = sorted((tmp_path / "w").rglob("metrics.jsonl"))
    lines = [path.read_bytes() for path in logs]
    assert len(logs) == 3
    assert tables.main(args) == 0
    assert [json.loads(path.read_text())["accuracy"] for path in paths] == before
    assert [path.read_bytes() for path in logs] == lines  # nothing was trained again
