"""`--model window`: the fit, the folder, and what the commands report."""

import json
import subprocess
import sys

import numpy as np
import pytest

from gatedjax.__main__ import main
from gatedjax.text import TextClassifier
from gatedjax.text._window import find_cut, fit_window
from tests._programs import environment
from tests.text._own import TEXTS, write_csv

SPLIT = [text.split() for text, _ in TEXTS]
LABELS = np.array([label == "good" for _, label in TEXTS]).astype(int)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("window")
    write_csv(path / "texts.csv", TEXTS)
    args = ["train", str(path / "texts.csv"), "--out", str(path / "model"), "--model", "window"]
    assert main([*args, "--density", "0.3", "--test", str(path / "texts.csv")]) == 0
    return path


def test_the_share_of_open_training_words_is_the_density_and_the_classes_are_learned():
    whole, third = fit_window(SPLIT, LABELS, 2, [1.0, 0.3])
    assert np.concatenate(whole.read(SPLIT).is_open).all()
    readings = third.read(SPLIT)
    # Equal texts have equal gates, so that the share is exact only up to the nearest step.
    assert np.mean(np.concatenate(readings.is_open)) == pytest.approx(0.3, abs=0.06)
    assert (readings.probabilities.argmax(1) == LABELS).mean() > 0.9
    (again,) = fit_window(SPLIT, LABELS, 2, [0.3])
    np.testing.assert_array_equal(again.gates, third.gates)


def test_three_classes_and_rare_words():
    labels = np.arange(len(SPLIT)) % 3
    texts = [
        [*words, f"rare{i}", "abc"[label]]
        for i, (words, label) in enumerate(zip(SPLIT, labels, strict=True))
    ]
    (lexicon,) = fit_window(texts, labels, 3, [0.3])
    readings = lexicon.read([*texts, ["never"], ["c", "seen"]])
    assert (readings.probabilities[: len(texts)].argmax(1) == labels).mean() > 0.9
    assert readings.probabilities[-1].argmax() == 2


@pytest.mark.parametrize(
    ("logits", "density", "share"),
    [
        ([0.0, 1.0, 2.0, 3.0], 0.25, 0.25),
        ([1.0, 1.0, 1.0], 0.3, 1.0),
        ([0.0, 5.0, 5.0], 0.4, 2 / 3),
    ],
)
def test_the_cut_lies_between_two_logits(logits, density, share):
    logits = np.array(logits)
    cut = find_cut(logits, density)
    assert np.mean(logits > cut) == share
    assert not (logits == cut).any()


def test_the_report_has_the_leak_and_the_equal_answers(folder, capsys):
    report = json.loads((folder / "model" / "report.json").read_text())
    leak = report["test"]["window_leak"]
    assert set(leak) == {"texts", "closed", "closed_change", "open_change", "changed_gates"}
    assert leak["texts"] == len(TEXTS)
    assert leak["closed_change"] < leak["open_change"]
    assert report["test"]["same_answer"]["texts"] == len(TEXTS)
    out = folder / "metrics.json"
    assert (
        main(["evaluate", str(folder / "model"), str(folder / "texts.csv"), "--out", str(out)]) == 0
    )
    printed = capsys.readouterr().out
    assert "a closed word removed, and the gates computed again" in printed
    assert json.loads(out.read_text())["window_leak"] == leak


def test_the_folder_is_read_without_jax_and_predicts_the_same(folder):
    code = (
        "import sys; from gatedjax.__main__ import main; "
        "assert main(sys.argv[1:]) == 0; assert 'jax' not in sys.modules"
    )
    args = [sys.executable, "-c", code, "predict", str(folder / "model"), "a bright old film"]
    done = subprocess.run(args, capture_output=True, text=True, env=environment(), check=True)
    line = json.loads(done.stdout)
    loaded = TextClassifier.load(folder / "model")
    assert loaded.model == "window"
    assert loaded.density == 0.3
    assert loaded.predict(["a bright old film"])[0].label == line["label"]
    assert line["label"] == "good"
    assert "bright" in line["kept"]


def test_a_saved_model_has_the_same_bits(folder, tmp_path):
    loaded = TextClassifier.load(folder / "model")
    again = TextClassifier.load(loaded.save(tmp_path / "copy"))
    texts = [text for text, _ in TEXTS]
    np.testing.assert_array_equal(loaded.predict_proba(texts), again.predict_proba(texts))


def test_explain_says_that_a_gate_depends_on_the_neighbours(folder, capsys):
    assert main(["explain", str(folder / "model"), "a bright old film"]) == 0
    printed = capsys.readouterr().out
    assert "bright" in printed
    assert "error of the program" not in printed
    assert main(["explain", str(folder / "model")]) == 0
    assert "a gate also depends on the neighbours" in capsys.readouterr().out


def test_an_option_of_networks_is_refused(folder, capsys):
    args = ["train", str(folder / "texts.csv"), "--out", str(folder / "no"), "--model", "window"]
    with pytest.raises(SystemExit):
        main([*args, "--num-steps", "3"])
    assert "--num-steps needs --model 'ganet'" in capsys.readouterr().err
