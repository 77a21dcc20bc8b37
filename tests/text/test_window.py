"""`--model window`: the fit, the folder, and what the commands report."""

import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_sample_weight

from gatedjax.__main__ import main
from gatedjax.text import TextClassifier, _target_class
from gatedjax.text._lexicon_explanation import find_examples
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
    # A word that is closed in all training texts is known, and a word of another text is not.
    assert [is_known.tolist() for is_known in readings.is_known[-2:]] == [[False], [True, False]]
    assert all(is_known.all() for is_known in readings.is_known[: len(texts)])


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
    assert loaded.predict(["a bright old film"])[0] == line["label"]
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


def test_the_tokens_are_those_of_the_rule(folder, tmp_path):
    model = TextClassifier.load(folder / "model").model_
    assert model.split("It's @ann #film") == ["it's", "@ann", "#film"]
    texts = [text.replace(" ", "/") for text, _ in TEXTS]
    labels = [label for _, label in TEXTS]

    def cut(text):
        return text.split("/")

    slashes = TextClassifier("window", density=0.3, tokenizer=cut).fit(texts, labels)
    again = TextClassifier.load(slashes.save(tmp_path / "slashes"), tokenizer=cut)
    np.testing.assert_array_equal(slashes.predict_proba(texts), again.predict_proba(texts))
    assert again.score(texts, labels) > 0.9


def test_weights_change_the_gates_and_the_reader():
    texts, labels = map(list, zip(*TEXTS[:30], strict=True))
    unsure = ["film", "unseen words"]
    column = int(np.argmin([labels.count(label) for label in ("bad", "good")]))

    def fit(sample_weight=None, **options):
        model = TextClassifier("window", density=0.3, **options)
        return model.fit(texts, labels, sample_weight=sample_weight)

    plain, balanced = fit(), fit(class_weight="balanced")
    assert (plain.model_.lexicon.gates != balanced.model_.lexicon.gates).any()
    rare = [model.predict_proba(unsure)[:, column] for model in (plain, balanced)]
    assert (rare[1] > rare[0]).all()
    # The weights that "balanced" gives, by their definition in scikit-learn.
    weighted = fit(compute_sample_weight("balanced", labels))
    np.testing.assert_array_equal(weighted.predict_proba(unsure), balanced.predict_proba(unsure))


def test_the_metric_chooses_the_density(monkeypatch):
    from gatedjax.text import _lexicon_training

    curves = []

    def choose(values, allowed):
        curves.append(values)
        return 1

    monkeypatch.setattr(_lexicon_training, "DENSITIES", (1.0, 0.3))
    monkeypatch.setattr(_lexicon_training, "choose_stage", choose)
    texts, labels = map(list, zip(*TEXTS, strict=True))
    model = TextClassifier("window", best_metric="macro_f1").fit(texts, labels)
    assert curves == [[stage["macro_f1"] for stage in model.report_["curve"]]]
    assert model.model_.lexicon.density == 0.3


def test_the_temperature_and_the_examples_are_in_the_folder(folder):
    report = json.loads((folder / "model" / "report.json").read_text())
    model = TextClassifier.load(folder / "model").model_
    assert model.lexicon.reader.temperature == report["temperature"]
    assert {"ece", "uncalibrated_ece"} <= set(report["test"])
    assert model.examples


def test_a_fitted_temperature_is_in_the_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(_target_class, "choose_temperature", lambda *arguments: (1.75, 1.75))
    texts, labels = map(list, zip(*TEXTS, strict=True))
    fitted = TextClassifier("window", density=0.3).fit(texts, labels)
    fitted.save(tmp_path / "model")
    model = TextClassifier.load(tmp_path / "model")
    assert model.model_.lexicon.reader.temperature == model.report_["temperature"] == 1.75
    np.testing.assert_array_equal(model.predict_proba(texts), fitted.predict_proba(texts))


def test_examples_show_places_where_the_word_is_open():
    listing = {"classes": [{"label": "x", "words": [{"word": "w"}]}]}
    texts = [["w"], ["w", "a"], ["b", "w", "c", "w", *"defghi"]]
    is_open = [np.array([False]), np.array([False, True]), np.arange(10) == 3]
    assert find_examples(listing, texts, ["x"] * 3, is_open) == {"w": ["b w c w d e f g h"]}
    assert find_examples(listing, texts, ["x"] * 3) == {"w": ["w a", "b w c w d e f"]}


def test_an_option_of_networks_is_refused(folder, capsys):
    args = ["train", str(folder / "texts.csv"), "--out", str(folder / "no"), "--model", "window"]
    with pytest.raises(SystemExit):
        main([*args, "--num-steps", "3"])
    assert "--num-steps must be left out for a lexicon" in capsys.readouterr().err
