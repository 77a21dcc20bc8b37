"""Records of RAU's runs: reused, made again, damaged, and rendered with exact numbers."""

import functools
import math
import re

import numpy as np
import pytest

from experiments.core.command import options_of
from experiments.core.comparison import compare, sentence
from experiments.core.curves import MAX_POINTS, curve, points, seconds_per_step
from experiments.core.paper import Job
from experiments.rau import figures
from experiments.rau.paper import PAPER
from gatedjax import analysis
from tests.experiments import _results
from tests.experiments._results import binomial_two_sided, rows_of, save

rendered = functools.partial(_results.rendered, PAPER)


def config_of(preset, cell, seed, **model):
    return _results.config_of(PAPER, preset, seed, cell=cell, **model)


def make_record(config, correct, **more):
    facts = {"cell": config.model.cell, "parameters": 1234}
    return _results.record_of(PAPER, config, correct, **facts | more)


def make_language(cell, seed, nll, tokens):
    config = config_of("ptb_small", cell, seed)
    loss = sum(nll) / tokens
    record = make_record(config, "1", test_nll=nll, train_last_epoch_perplexity=40.0 + seed)
    for key in ("correct", "test_last"):
        record.pop(key)
    metrics = {"loss": loss, "perplexity": math.exp(loss)}
    return record | {"test": metrics, "validation": metrics, "test_n": tokens}


def p_text(p):
    return f"{p:.3f}" if p >= 0.001 else "<0.001"


def test_nothing_run_renders_the_papers_numbers_and_not_run(tmp_path):
    text = rendered(PAPER.store(tmp_path))
    table = {(r[0], r[1]): r[2:] for r in rows_of(text, "Table 1: accuracy and perplexity")}
    assert len(table) == 18
    no = "not run"
    assert table["MNIST", "RAU"] == ["-", "-", no, "0.9880", no, "-"]
    assert table["IMDB", "LSTM"] == ["-", "0.7897", no, "0.7896", no, "-"]
    assert table["PTB medium", "GRU"] == ["-", "86.50", no, "83.01", no, "-"]
    assert {r[2] for r in rows_of(text, "Table 1, paired tests")} == {no}
    assert "- MNIST, RAU against GRU: not run." in text
    errors = rows_of(text, "Table 3: MNIST error")
    assert [r[1] for r in errors if r[2].startswith("quoted")] == [
        *("1.35", "42.85", "6.27", "2.70", "1.73", "1.55", "1.29", "1.47")
    ]
    assert [r for r in errors if r[2] == "ours"] == [
        [c, no, "ours"] for c in ("RAU", "GRU", "LSTM")
    ]
    assert rows_of(text, "Runs") == []
    assert text.count("](figure") == 0


def test_rendered_numbers_equal_those_of_the_records(tmp_path, np_rng):
    store = PAPER.store(tmp_path)
    right = {
        (cell, seed): np_rng.random(200) < share
        for cell, share in (("rau", 0.9), ("gru", 0.6), ("lstm", 0.9))
        for seed in range(3)
    }
    for (cell, seed), row in right.items():
        record = make_record(
            config_of("mnist", cell, seed), "".join("1" if x else "0" for x in row)
        )
        save(store, "mnist", cell, [record])
    text = rendered(store)
    table = {(r[0], r[1]): r[2:] for r in rows_of(text, "Table 1: accuracy and perplexity")}
    for cell in ("rau", "gru", "lstm"):
        shares = [right[cell, seed].mean() for seed in range(3)]
        test = f"{np.mean(shares):.4f} ± {np.std(shares, ddof=1):.4f} (n=3)"
        row = table["MNIST", cell.upper()]
        assert row[0] == "1,234"
        assert row[2] == "0.5000 ± 0.0000 (n=3)"
        assert row[4:] == [test, "0.2500 ± 0.0000 (n=3)"]
        errors = [100 * (1 - share) for share in shares]
        error = f"{np.mean(errors):.2f} ± {np.std(errors, ddof=1):.2f} (n=3)"
        assert [cell.upper(), error, "ours"] in rows_of(text, "Table 3: MNIST error")

    tests = {}
    paired = {(r[0], r[1]): r[2:] for r in rows_of(text, "Table 1, paired tests")}
    for cell in ("gru", "lstm"):
        difference, interval, p, exact = paired["MNIST", cell.upper()]
        a, b = (np.array([right[c, s] for s in range(3)], float) for c in ("rau", cell))
        gap = float((a - b).mean())
        assert difference == f"{gap:+.4f} (n=3 seeds)"
        test = analysis.two_way_test(a, b)
        assert interval == f"[{test.low:+.4f}, {test.high:+.4f}]"
        assert p == f"{test.p_value:.4f}"
        counts = [(int(np.sum(x > y)), int(np.sum(x < y))) for x, y in zip(a, b, strict=True)]
        assert exact == ", ".join(p_text(binomial_two_sided(*pair)) for pair in counts)
        tests[cell] = test
    # Holm over the claims of the paper, of which two were run on one data set
    small, large = sorted(test.p_value for test in tests.values())
    corrected = {small: 2 * small, large: max(large, 2 * small)}
    claims = {(r[0], r[1]): r[2:] for r in rows_of(text, "Claims")}
    for cell, test in tests.items():
        row = claims[f"RAU is better than {cell.upper()}", "MNIST"]
        assert row[4] == p_text(min(1, corrected[test.p_value]))
        assert row[8] == f"{100 * test.smallest:.2f}"
    assert "- MNIST, RAU minus GRU: +0." in text
    runs_table = {(r[0], r[1]): r[2:] for r in rows_of(text, "Runs")}
    assert runs_table["MNIST", "gru"][0] == "0, 1, 2"
    assert len(runs_table) == 3


def test_after_the_papers_steps_the_last_step_is_compared_too(tmp_path, np_rng):
    store = PAPER.store(tmp_path)
    last = {"rau": (0.91, 0.92, 0.90), "gru": (0.88, 0.90, 0.89)}
    for cell, accuracies in last.items():
        for seed, accuracy in enumerate(accuracies):
            right = "".join("1" if x < 0.9 else "0" for x in np_rng.random(200))
            record = make_record(config_of("fashion_mnist", cell, seed), right)
            record["test_last"] = {"accuracy": accuracy, "loss": 1.0}
            save(store, "fashion_mnist", f"{cell}_long", [record])
    rows = rows_of(rendered(store), "Images: the paper's 100,000 steps")
    table = {(r[0], r[1]): r[2:] for r in rows}
    gru, rau = table["Fashion-MNIST", "GRU"], table["Fashion-MNIST", "RAU"]
    steps, paper, _, ours, gain, *_, difference, interval = gru
    assert (steps, paper, ours) == ("9", "0.8789", "0.8900 ± 0.0100 (n=3)")
    assert (gain, difference) == ("+1.71", "+2.00")
    test = compare(*(store.all("fashion_mnist", f"{cell}_long") for cell in last)).last
    assert interval == f"[{100 * test.low:+.2f}, {100 * test.high:+.2f}]"
    assert test.low < 0.02 < test.high
    assert rau[4:] == ["-"] * 6
    assert table["MNIST", "GRU"][2] == table["Fashion-MNIST", "LSTM"][2] == "not run"
    # a run that learned nothing takes the difference away, at the last step too
    save(store, "fashion_mnist", "gru_long", [record | {"predicted_classes": [200]}])
    rows = rows_of(rendered(store), "Images: the paper's 100,000 steps")
    assert [r[-6:] for r in rows if r[:2] == ["Fashion-MNIST", "GRU"]] == [
        ["+1.71", "-", "-", "collapsed", "-", "collapsed"]
    ]


def test_language_models_are_compared_window_by_window(tmp_path, np_rng):
    store = PAPER.store(tmp_path)
    windows, tokens = 60, 60 * 20 - 7
    base = np_rng.normal(100.0, 20.0, windows)
    # RAU needs 2 nats less in every window but the first ten
    gain = np.where(np.arange(windows) < 10, 1.0, -2.0)
    for seed in range(3):
        save(store, "ptb_small", "gru", [make_language("gru", seed, base.tolist(), tokens)])
        nll = (base + gain + seed).tolist()
        save(store, "ptb_small", "rau", [make_language("rau", seed, nll, tokens)])
    text = rendered(store)
    paired = {(r[0], r[1]): r[2:] for r in rows_of(text, "Table 1, paired tests")}
    difference, interval, p, exact = paired["PTB small", "GRU"]
    wanted = float((gain + 1).sum() / tokens)
    assert difference == f"{wanted:+.4f} (n=3 seeds)"
    low, high = (float(end) for end in interval.strip("[]").split(","))
    assert low < wanted < high
    assert 0 < float(p) < 1
    assert exact == "-"
    claims = {(r[0], r[1]): r[2:] for r in rows_of(text, "Claims")}
    # the claim is that RAU needs less
    assert claims["RAU is better than GRU", "PTB small"][2].startswith(f"{-wanted:+.3f} nats")
    assert "nats per token" in text
    table = {(r[0], r[1]): r[2:] for r in rows_of(text, "Table 1: accuracy and perplexity")}
    assert table["PTB small", "GRU"][4] == f"{math.exp(base.sum() / tokens):.2f} ± 0.00 (n=3)"
    assert table["PTB small", "GRU"][5] == "-"
    row = rows_of(text, "Text: training perplexity in the last epoch")[0]
    assert row[2] == "13"
    assert row[4:] == ["45.72", "41.00 ± 1.00 (n=3)"]


def test_a_worse_rau_is_called_worse():
    worse = "0" * 30 + "1" * 10
    rau = [make_record(config_of("mnist", "rau", seed), worse) for seed in (0, 1)]
    gru = [make_record(config_of("mnist", "gru", seed), "1" * 40) for seed in (0, 1)]
    found = compare(rau, gru)
    assert found.difference == -0.75
    assert found.exact == (binomial_two_sided(0, 30),) * 2
    alone = sentence("MNIST", "RAU", "GRU", compare(rau[:1], gru))
    assert alone == "MNIST, RAU minus GRU: -0.7500 (accuracy), these runs (n=1)."


def test_only_seeds_that_both_have_are_paired_and_other_settings_are_named():
    rau = [make_record(config_of("mnist", "rau", s), c) for s, c in ((0, "1111"), (1, "1100"))]
    gru = [make_record(config_of("mnist", "gru", s), c) for s, c in ((1, "1000"), (2, "0000"))]
    found = compare(rau, gru)
    assert found.seeds == (1,)
    assert found.difference == 0.25
    assert "settings differ" not in sentence("MNIST", "RAU", "GRU", found)
    window = rau[1]["config"]["data"].pop("window")
    assert not compare(rau, gru).alike
    rau[1]["config"]["data"]["window"] = window
    assert compare(rau, gru).alike
    gru[0]["config"]["train"]["num_steps"] += 1
    assert "settings differ" in sentence("MNIST", "RAU", "GRU", compare(rau, gru))
    assert compare(rau[:1], gru) is None


def test_records_of_other_test_sets_are_not_paired():
    rau = [make_record(config_of("mnist", "rau", 0), "1111")]
    gru = [make_record(config_of("mnist", "gru", 0), "111")]
    with pytest.raises(ValueError, match=r"test_n must be equal, got \d+ / \d+"):
        compare(rau, gru)


def test_tables_of_ours_show_what_was_run(tmp_path):
    store = PAPER.store(tmp_path)
    save(store, "mnist", "gru", [make_record(config_of("mnist", "gru", 0), "1100")])
    small = config_of("mnist", "rau", 0, hidden=96)
    save(store, "mnist", "rau_matched", [make_record(small, "1110")])
    save(store, "mnist", "rau_hidden28", [make_record(config_of("mnist", "rau", 0), "1000")])
    save(store, "mnist", "gru_lr0.5", [make_record(config_of("mnist", "gru", 0), "1110")])
    save(store, "imdb", "gru_lr1e-4", [make_record(config_of("imdb", "gru", 0), "1111")])
    save(store, "imdb", "lstm_lr2e-3", [make_record(config_of("imdb", "lstm", 0), "1011")])
    plain = make_record(config_of("mnist", "rau", 0), "1100")
    save(store, "mnist", "attention_feature_proj", [plain])
    concat = make_record(config_of("mnist", "rau", 0, attention="concat", rescale=True), "1111")
    save(store, "mnist", "attention_concat_rescale", [concat])
    text = rendered(store)
    matched = {(r[0], r[1]): r[2:] for r in rows_of(text, "Equal parameter counts")}
    assert matched["MNIST", "RAU"][0] == "96"
    assert matched["MNIST", "RAU"][3:6] == ["0.7500 (n=1)", "0.2500 (n=1)", "+0.2500"]
    assert matched["MNIST", "LSTM"][3] == "not run"
    last = "0.2500 (n=1)"
    assert rows_of(text, "Other widths and learning rates") == [
        ["MNIST", "GRU", "learning rate 0.5", "1,234", "0.5000 (n=1)", "0.7500 (n=1)", last],
        ["MNIST", "RAU", "width 28", "1,234", "0.5000 (n=1)", "0.2500 (n=1)", last],
        ["IMDB", "LSTM", "learning rate 2e-3", "1,234", "0.5000 (n=1)", "0.7500 (n=1)", last],
    ]
    rates = {(r[0], r[1]): r[3] for r in rows_of(text, "IMDB: learning rates")}
    assert rates.pop(("1e-4", "GRU")) == "1.0000 (n=1)"
    assert set(rates.values()) == {"not run"}
    forms = {(r[1], r[2]): r[5:8] for r in rows_of(text, "Forms of the attention")}
    assert forms["feature_proj", "no"] == ["0.5000 (n=1)", last, "-"]
    assert forms["concat", "yes"] == ["1.0000 (n=1)", last, "+0.5000"]
    assert ("sigmoid", "yes") not in forms
    assert forms["matrix", "no"] == ["not run", "-", "-"]


def test_curves_are_means_over_seeds_and_thinned(tmp_path):
    records = [
        {"curve": [[5, 1.0, 0.2], [10, 0.5, 0.6]]},
        {"curve": [[5, 1.0, 0.4], [10, 0.5, None]]},
        {},
    ]
    found = points(records, "curve", 2)
    assert found == [
        (5.0, pytest.approx(0.3), pytest.approx(0.1 * math.sqrt(2))),
        (10.0, pytest.approx(0.6), 0.0),
    ]
    long = [{"train_curve": [[step, float(step)] for step in range(1, 101)]}]
    thin = points(long, "train_curve", 1)
    assert len(thin) <= MAX_POINTS
    assert thin[0] == (3.0, 2.0, None)  # of one seed
    assert thin[-1] == (100.0, 100.0, None)
    assert points([], "curve", 1) == []


def test_lines_of_a_log_become_points_of_a_curve():
    lines = [
        {"split": "train", "step": 1, "loss": 4.0, "accuracy": 0.0, "steps_per_s": 10.0},
        {"split": "train", "step": 2, "loss": 2.0, "accuracy": 0.5, "steps_per_s": 40.0},
        {"split": "eval", "step": 2, "loss": 3.0, "accuracy": 0.25},
        {"split": "train", "step": 3, "loss": None, "accuracy": 1.0, "steps_per_s": 20.0},
    ]
    assert curve(lines, "eval") == [[2, 3.0, 0.25]]
    assert curve(lines, "train", 2) == [[2, 3.0, 0.25], [3, None, 1.0]]
    assert seconds_per_step(lines) == 0.05
    assert seconds_per_step([]) is None


@pytest.mark.parametrize(
    ("what", "data", "variant", "line"),
    [
        (
            "figure5",
            "fashion_mnist",
            "rau_long",
            "validation while training, Fashion-MNIST: [figure5.png]",
        ),
        ("figure6", "ptb_medium", "gru", "while training, PTB medium: [figure6_ptb_medium.png]"),
        (
            "figure6",
            "ptb_small",
            "gru",
            "PTB small (the paper: PTB medium, not run): [figure6.png]",
        ),
        ("figure7", "imdb", "lstm_lr1e-5", "training on IMDB: [figure7.png]"),
        ("figure7", "imdb_100", "lstm_lr1e-5", "IMDB, width 100: [figure7_imdb_100.png]"),
    ],
)
def test_a_figure_is_drawn_from_records_alone(tmp_path, what, data, variant, line):
    pytest.importorskip("matplotlib")
    store = PAPER.store(tmp_path)
    cell = re.match("[a-z]+", variant)[0]
    save(store, data, variant, [make_record(config_of(data, cell, seed), "1") for seed in (0, 1)])
    figures.curves(Job(PAPER, options_of(PAPER)(what=what, data=(data,), results=tmp_path)))
    (file,) = tmp_path.glob("*.png")
    assert file.read_bytes().startswith(b"\x89PNG")
    assert line in rendered(store)
