"""`model="lexicon"`, the default for texts: fit, folder, commands and explanations."""

import json
import subprocess
import sys
from itertools import compress

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from gatedjax import TextClassifier
from gatedjax.__main__ import main
from gatedjax.export import BadFile
from gatedjax.text._lexicon_report import count_equal, draw_curve, render_equal
from gatedjax.text._lexicon_training import choose_stage
from gatedjax.text._model import TrainedModel
from gatedjax.text._saved import load_model
from tests.conftest import ROOT
from tests.text._own import TEXTS, write_csv

X, Y = map(list, zip(*TEXTS, strict=True))
QUERIES = ["a dull old film", "warm and new, here", "xyzzy"]


@pytest.fixture(scope="module")
def fitted():
    return TextClassifier().fit(X, Y)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that the command trained, beside the file that it was trained on."""
    place = tmp_path_factory.mktemp("lexicon")
    write_csv(place / "films.csv", TEXTS)
    args = ["train", str(place / "films.csv"), "--test", str(place / "films.csv")]
    assert main([*args, "--density", "0.4", "--out", str(place / "model")]) == 0
    return place / "model"


def test_it_is_the_default_and_learns(fitted):
    assert fitted.model == "lexicon"
    assert fitted.score(X, Y) == 1.0
    predictions = fitted.predict(QUERIES)
    assert [p.label for p in predictions][:2] == ["bad", "good"]
    assert "dull" in predictions[0].kept
    probabilities = fitted.predict_proba(QUERIES)
    assert probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-6)


def test_a_text_of_which_nothing_is_read_says_so():
    model = TextClassifier(density=0.3).fit(X, Y)
    (prediction,) = model.predict(["xyzzy"])
    assert (prediction.kept, prediction.density) == ([], 0)
    assert prediction.to_json()["note"] == "nothing of this text was read"
    assert "nothing of this text" in model.explain("xyzzy").render().lower()


def test_it_has_the_interface_of_scikit_learn(fitted):
    assert clone(fitted).get_params() == TextClassifier().get_params()
    assert len(cross_val_score(TextClassifier(), X, Y, cv=2)) == 2
    search = GridSearchCV(TextClassifier(), {"density": [0.3, 0.5]}, cv=2).fit(X, Y)
    assert search.best_score_ == 1.0
    pipeline = make_pipeline(FunctionTransformer(), TextClassifier()).fit(X, Y)
    assert pipeline.score(X, Y) == 1.0


def test_the_same_texts_give_the_same_bits(fitted, tmp_path):
    again = TextClassifier(seed=7).fit(X, Y)
    np.testing.assert_array_equal(again.predict_proba(QUERIES), fitted.predict_proba(QUERIES))
    loaded = TextClassifier.load(fitted.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(QUERIES), fitted.predict_proba(QUERIES))
    assert loaded.predict(QUERIES).labels.tolist() == fitted.predict(QUERIES).labels.tolist()
    assert loaded.report_ == json.loads(json.dumps(fitted.report_))


def test_density_fixes_the_share_of_open_words(fitted):
    sparse = TextClassifier(density=0.25).fit(X, Y)
    assert sparse.report_["density"] == 0.25
    assert sparse.report_["curve"][-1]["density"] == 0.25
    words = [sparse.model_.split(text) for text in X]
    assert np.concatenate(sparse.model_.lexicon.read(words).is_open).mean() <= 0.25
    assert len(fitted.report_["curve"]) >= 5


def test_the_smallest_stage_near_the_best_is_chosen():
    assert choose_stage([0.9, 0.896, 0.8], 10**6) == 1
    assert choose_stage([0.9, 0.894, 0.8], 10**6) == 0
    assert choose_stage([0.9, 0.896, 0.88, 0.9], 10**6) == 3
    # With 100 texts the standard error of 0.9 is 0.03.
    assert choose_stage([0.9, 0.88, 0.871, 0.869], 100) == 2
    assert choose_stage([1.0, 0.995, 0.99], 100) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_steps": 3}, "num_steps needs model='ganet' or another network, got 3"),
        ({"embeddings": "a.txt"}, "embeddings needs model='ganet'"),
        ({"network": {"hidden": 4}}, "network needs model='ganet'"),
        ({"max_len": 10}, "max_len needs model='ganet'"),
        ({"density": 1.5}, r"density must be in \(0, 1\)"),
        ({"density": 0.001}, "density must leave a word open, got 0.001"),
        ({"model": "lexikon"}, "Did you mean 'lexicon'"),
    ],
)
def test_options_without_an_effect_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        TextClassifier(**options).fit(X, Y)


def test_words_of_one_class_or_none_known_are_refused_or_read(fitted):
    with pytest.raises(ValueError, match="at least two classes"):
        TextClassifier().fit(X[:4], ["a"] * 4)
    assert len(fitted.predict(["zzz qqq", "жжж", "天气"])) == 3


def test_the_parts_of_an_explanation_sum_to_the_scores(fitted):
    explanation = fitted.explain("a dull old film, now dull")
    reasons = explanation.reasons
    totals = np.array(reasons.bias) + np.sum(reasons.words, 0)
    totals = totals + sum(np.array(parts) for *_, parts in reasons.pairs)
    expected = np.exp(totals) / np.exp(totals).sum()
    np.testing.assert_allclose(expected, list(explanation.probabilities.values()), rtol=1e-9)
    assert reasons.is_same
    for is_open, parts, change in zip(
        explanation.kept, reasons.words, explanation.removed, strict=True
    ):
        assert is_open or not any(parts)
        assert is_open or change.probability == explanation.probability
    shown = explanation.render()
    assert "| dull" in shown
    assert "bit by bit" in shown
    assert "Open word or pair" in explanation.html()
    assert explanation.to_json()["reasons"]["classes"] == ["bad", "good"]


def test_the_report_compares_accuracies_and_counts_equal_answers(folder, capsys):
    report = json.loads((folder / "report.json").read_text())
    assert report["test"]["same_answer"] == {"texts": 48, "equal": 48}
    assert {"test", "kind"} == set(report["baseline"]) == set(report["character_baseline"])
    assert (folder / "curve.svg").read_text().startswith("<svg")
    assert main(["evaluate", str(folder), str(folder.parent / "films.csv")]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("48 texts: accuracy 1.0000 from ")
    assert second == "the same answer from the open words alone: yes, bit by bit (48 texts)"
    assert render_equal({"texts": 5, "equal": 3}).endswith("NO, for 2 of 5 texts")


def test_unequal_answers_are_counted(fitted, monkeypatch):
    """The count is not 48 by construction: a splitter that changes the words is noticed."""
    lexicon = fitted.model_.lexicon
    words = [lexicon.units.split(text) for text in X]
    assert count_equal(lexicon, words) == 48
    monkeypatch.setattr(type(lexicon.units), "split", lambda self, text: ["bright"])
    assert count_equal(lexicon, words) < 48


def test_the_curve_has_a_ring_at_the_model():
    curve = [{"words": 1.0, "accuracy": 0.9}, {"words": 0.5, "accuracy": 0.8}]
    picture = draw_curve(curve, 1)
    assert picture.count("<circle") == 3
    assert 'cx="220.0"' in picture.partition('r="6"')[0].rpartition("<circle")[2]


def test_the_commands_predict_and_explain_it(folder, capsys):
    assert main(["predict", str(folder), "a dull old film"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert (line["label"], "dull" in line["kept"]) == ("bad", True)
    assert main(["predict", str(folder), "a dull old film", "", "--reasons"]) == 0
    line, empty = map(json.loads, capsys.readouterr().out.splitlines())
    assert (line["classes"], list(empty)) == (["bad", "good"], ["error"])
    assert line["reasons"][0]["words"].split()[0] in line["kept"]
    effects = [abs(entry["parts"][0] - entry["parts"][1]) for entry in line["reasons"]]
    assert effects == sorted(effects, reverse=True)
    assert main(["explain", str(folder), "a dull old film"]) == 0
    assert "bit by bit" in capsys.readouterr().out
    assert main(["explain", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "bad: " in shown
    assert "| dull" in shown
    assert main(["explain", str(folder), "--json"]) == 0
    listing = json.loads(capsys.readouterr().out)
    counts = {w["word"]: w["count"] for c in listing["classes"] for w in c["words"]}
    assert counts["dull"] == sum("dull" in text for text in X)


def test_a_command_of_networks_names_ganet(folder, capsys):
    films = str(folder.parent / "films.csv")
    with pytest.raises(SystemExit):
        main(["gates", "report", str(folder), "--file", films])
    assert "ganet" in capsys.readouterr().err
    with pytest.raises(BadFile, match="--model ganet"):
        TrainedModel.load(folder, ("text",))


def test_predict_and_explain_import_no_jax(folder):
    code = (
        "import sys\nfrom gatedjax.__main__ import main\n"
        "main(['predict', sys.argv[1], 'a dull film'])\n"
        "main(['explain', sys.argv[1], 'a dull film'])\n"
        "assert 'jax' not in sys.modules and 'scipy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], cwd=ROOT, check=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda config, words: words.pop("lowercase"),
        lambda config, words: config.update(classes=["a", "b", "c"]),
        lambda config, words: config["model"].pop("threshold"),
        lambda config, words: words.update(pieces=[1]),
    ],
)
def test_a_damaged_folder_is_refused(folder, tmp_path, change):
    (tmp_path / "model").mkdir()
    for path in folder.iterdir():
        if path.name != "SHA256SUMS":
            (tmp_path / "model" / path.name).write_bytes(path.read_bytes())
    config, words = (tmp_path / "model" / n for n in ("config.json", "vocabulary.json"))
    values = json.loads(config.read_text()), json.loads(words.read_text())
    change(*values)
    config.write_text(json.dumps(values[0]))
    words.write_text(json.dumps(values[1]))
    with pytest.raises(BadFile):
        load_model(tmp_path / "model", ("text",))


@pytest.mark.parametrize("name", ["words.txt", "ngrams.txt"])
def test_a_folder_with_a_line_too_few_is_refused(folder, tmp_path, name):
    (tmp_path / "model").mkdir()
    for path in folder.iterdir():
        if path.name != "SHA256SUMS":
            (tmp_path / "model" / path.name).write_bytes(path.read_bytes())
    path = tmp_path / "model" / name
    path.write_bytes(path.read_bytes().rpartition(b"\n")[0])
    with pytest.raises(BadFile):
        load_model(tmp_path / "model", ("text",))


def test_several_scripts_in_a_text():
    texts = [f"{a} {b}天气好 film" for a in ("dull", "bright") for b in ("о фильме", "ก้า")] * 6
    model = TextClassifier().fit(texts, [text.split()[0] for text in texts])
    lexicon = model.model_.lexicon
    words = [model.model_.split(text) for text in texts]
    assert count_equal(lexicon, words) == len(words)
    for text, gates in zip(words, lexicon.read(words).is_open, strict=True):
        assert set(compress(text, gates)) & {"dull", "bright"}
