"""Records of runs: reused, made again, damaged, and rendered with exact numbers."""

import json

import numpy as np
import pytest

from experiments.core.claims import mark
from experiments.core.command import options_of
from experiments.core.paper import Job
from experiments.core.records import RESULTS, read_json
from experiments.ga_net import figures, tune
from experiments.ga_net.paper import FIGURE5, PAPER, TABLE2, TUNED
from tests.experiments import _results
from tests.experiments._results import binomial_two_sided, rows_of, save

MODES = ("sample", "threshold", "expected", "relaxed")


def make_record(config, correct, *, density=0.5):
    gated = config.model.system == "ganet"
    accuracy = correct.count("1") / len(correct)
    test = {"accuracy": accuracy}
    if gated:
        test |= {"density": density, "closed_sample": 0.0}
        test |= {f"accuracy_{m}": accuracy for m in MODES}
        test |= {f"density_{m}": density for m in MODES}
    words = {"test_tokens": 10 * len(correct), "attended_tokens": 4 * len(correct)}
    system = config.model.system
    return _results.record_of(PAPER, config, correct, system=system, test=test, **words)


def trec(system, seed, **model):
    return _results.config_of(PAPER, "trec", seed, system=system, **model)


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


def test_nothing_run_renders_the_papers_numbers_and_not_run(tmp_path):
    text = _results.rendered(PAPER, PAPER.store(tmp_path))
    table = {
        (row[0], row[1]): row[2:] for row in rows_of(text, "Table 2: test accuracy and density")
    }
    assert len(table) == 20
    assert table["TREC", "GA-Net"] == ["0.9124", "not run", "-", "0.4431", "not run"]
    assert table["IMDB", "BiLSTM"] == ["0.8509", "not run", "-", "-", "-"]
    assert {row[2] for row in rows_of(text, "Table 2, paired tests")} == {"not run"}
    assert rows_of(text, "Runs") == []


def test_rendered_numbers_equal_those_of_the_records(tmp_path, np_rng):
    store = PAPER.store(tmp_path)
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
        save(store, "trec", system, records)
    text = _results.rendered(PAPER, store)
    right = {key: np.array([c == "1" for c in row], float) for key, row in correct.items()}
    table = {
        (row[0], row[1]): row[2:] for row in rows_of(text, "Table 2: test accuracy and density")
    }
    for system, name in (("ganet", "GA-Net"), ("soft", "BiLSTM + softAtt")):
        seeds = [right[system, seed].mean() for seed in range(3)]
        wanted = f"{np.mean(seeds):.4f} ± {np.std(seeds, ddof=1):.4f} (n=3)"
        assert table["TREC", name][1:3] == [wanted, "0.2500 ± 0.0000 (n=3)"]
    assert table["TREC", "GA-Net"][4] == "0.4000 ± 0.1000 (n=3)"

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
    assert exact == ", ".join(f"{p:.3f}" if p >= 0.001 else "<0.001" for p in wanted)
    assert "p not corrected" in text
    claims = {(row[0], row[1]): row[2:] for row in rows_of(text, "Claims")}
    claim = claims["GA-Net is better than BiLSTM + softAtt", "TREC"]
    assert claim[1:3] == ["+1.16", f"{100 * gap:+.2f} (n=3)"]
    # at the last step both have the same accuracy, so the claim does not hold there
    assert claim[5] == "+0.00"
    assert claim[0].startswith(f"{mark('undecided')}; reproduced where validation chose, ")
    assert paired["TREC", "BiLSTM"][0] == "not run"

    # 4 of 10 words attended at width 200: n (4 D + 3), so the ratio is exactly 0.4
    flops = {
        row[0]: row[1:] for row in rows_of(text, "Table 3: attention operations over the test set")
    }
    assert flops["TREC"][3:6] == ["401.50k", "160.60k", "0.400"]
    runs = rows_of(text, "Runs")
    assert [row[1:3] for row in runs] == [["ganet", "0, 1, 2"], ["soft", "0, 1, 2"]]


def test_only_seeds_that_both_systems_have_are_paired(tmp_path):
    store = PAPER.store(tmp_path)
    rights = {"ganet": ((0, "1111"), (1, "1100")), "soft": ((1, "1000"), (2, "0000"))}
    for system, seeds in rights.items():
        save(store, "trec", system, [make_record(trec(system, s), row) for s, row in seeds])
    text = _results.rendered(PAPER, store)
    paired = {(row[0], row[1]): row[2:] for row in rows_of(text, "Table 2, paired tests")}
    assert paired["TREC", "BiLSTM + softAtt"][0] == "+0.2500 (n=1 seeds)"


def test_one_seed_has_no_deviation(tmp_path):
    store = PAPER.store(tmp_path)
    save(store, "trec", "soft", [make_record(trec("soft", 0), "1110")])
    assert "0.7500 (n=1)" in TABLE2.text(PAPER, store)
    assert "±" not in TABLE2.text(PAPER, store)


def test_a_baseline_alone_on_the_embedded_corpus_has_its_row(tmp_path):
    store = PAPER.store(tmp_path)
    soft = _results.config_of(PAPER, "polarity", 0, system="soft")
    save(store, "polarity", "soft", [make_record(soft, "1110")])
    text = f"## table\n{TABLE2.text(PAPER, store)}"
    table = {(row[0], row[1]): row[2:] for row in rows_of(text, "table")}
    assert table["polarity", "BiLSTM + softAtt"] == ["-", "0.7500 (n=1)", "0.2500 (n=1)", "-", "-"]
    assert table["polarity", "GA-Net"] == ["-", "not run", "-", "-", "not run"]


def test_figure_5_takes_the_presets_width_from_the_runs_of_table_2(tmp_path):
    store = PAPER.store(tmp_path)
    save(store, "trec", "ganet", [make_record(trec("ganet", 0), "1110")])
    save(store, "trec", "ganet_width_20", [make_record(trec("ganet", 0, aux_hidden=20), "1000")])
    # polarity's own width is none of the figure's: its GA-Net is no point of the figure
    polarity = _results.config_of(PAPER, "polarity", 0)
    wide = _results.config_of(PAPER, "polarity", 0, aux_hidden=20)
    save(store, "polarity", "ganet", [make_record(polarity, "1111")])
    save(store, "polarity", "ganet_width_20", [make_record(wide, "1100")])
    text = f"## figure\n{FIGURE5.text(PAPER, store)}"
    table = {(row[0], row[1]): row[2:] for row in rows_of(text, "figure")}
    rest = ["not run"] * 3
    assert table["TREC", "accuracy"] == ["0.2500 (n=1)", *rest, "0.7500 (n=1)"]
    assert table["polarity", "accuracy"] == ["0.5000 (n=1)", *rest, "not run"]


def test_the_statistics_of_the_embedded_corpus_are_counted(tmp_path):
    options = options_of(PAPER)(what="table1", data=("polarity",), results=tmp_path)
    figures.count(Job(PAPER, options))
    counts = json.loads((tmp_path / "table1.json").read_text())["polarity"]
    assert [counts[split]["n"] for split in ("train", "validation", "test")] == [4000, 500, 1000]
