"""Lexicons whose targets are several labels, numbers or grades: files, commands and classes."""

import json
import random
import subprocess
import sys

import numpy as np
import pytest
import sklearn.metrics
from scipy.sparse import csr_matrix
from scipy.stats import spearmanr
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import StackingClassifier, StackingRegressor, VotingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_predict, cross_val_score

from gatedjax import (
    MultiLabelTextClassifier,
    OrdinalTextClassifier,
    TextClassifier,
    TextRegressor,
)
from gatedjax.__main__ import main
from gatedjax.lexicon import RealHead
from gatedjax.text import Columns
from gatedjax.text._lexicon import LexiconModel
from gatedjax.text._lexicon_report import count_equal
from gatedjax.text._lexicon_training import choose_stage
from gatedjax.text._options import TextOptions, check_options
from gatedjax.text._read import open_table
from gatedjax.text._rivals import TfidfModel
from gatedjax.text._target_labels import LabelSets
from gatedjax.text._target_metrics import (
    choose_thresholds,
    label_metrics,
    ordinal_metrics,
    real_metrics,
)
from tests.conftest import ROOT
from tests.text._own import TEXTS, reasons, write_csv

WORDS = {
    "sport": ["goal", "match", "team"],
    "money": ["bank", "stock", "price"],
    "art": ["paint", "song", "stage"],
}


def make_rows(count, seed):
    """Texts with words of none to three labels among words without a meaning."""
    generator = random.Random(seed)
    rows = []
    for _ in range(count):
        labels = [label for label in WORDS if generator.random() < 0.4]
        words = [generator.choice(WORDS[label]) for label in labels for _ in range(2)]
        words += [f"word{generator.randrange(20)}" for _ in range(5)]
        generator.shuffle(words)
        rows.append((" ".join(words), labels))
    return rows


ROWS, TEST = make_rows(240, 0), make_rows(80, 1)
X = [text for text, _ in ROWS]
TEXT = "goal word1 match word2 word3 word4 word5"


class Frame:
    """The part of the interface of a frame of pandas that is used."""

    def __init__(self, values, columns):
        self.values, self.columns = values, columns

    def to_numpy(self):
        return self.values


def number_of(text, labels):
    return round(10 + 5 * len(labels) + len(text) / 100, 3)


def rows_of(kind, rows):
    if kind == "labels":
        return rows
    if kind == "regression":
        return [(text, number_of(text, labels)) for text, labels in rows]
    return [(text, ["none", "some", "many", "all"][len(labels)]) for text, labels in rows]


KINDS = ("labels", "regression", "ordinal")
CLASSES = {
    "labels": MultiLabelTextClassifier,
    "regression": TextRegressor,
    "ordinal": OrdinalTextClassifier,
}
EXTRA = {"labels": [], "regression": [], "ordinal": ["--order", "none,some, many,all"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of each kind that the command trained, with the files."""
    place = tmp_path_factory.mktemp("targets")
    for name, rows in (("train", ROWS), ("test", TEST)):
        with (place / f"labels_{name}.txt").open("w") as file:
            for text, labels in rows:
                file.write("".join(f"__label__{label} " for label in labels) + text + "\n")
        for kind in KINDS[1:]:
            write_csv(place / f"{kind}_{name}.csv", rows_of(kind, rows))
    for kind in KINDS:
        ending = "txt" if kind == "labels" else "csv"
        files = [str(place / f"{kind}_{name}.{ending}") for name in ("train", "test")]
        args = ["train", files[0], "--test", files[1], "--task", kind, *EXTRA[kind]]
        assert main([*args, "--out", str(place / kind)]) == 0
    return place


def labelled_file(folder, kind):
    return str(folder / f"{kind}_test.{'txt' if kind == 'labels' else 'csv'}")


@pytest.mark.parametrize("kind", KINDS)
def test_the_commands_train_evaluate_explain_and_predict(folder, kind, capsys, tmp_path):
    model = str(folder / kind)
    report = json.loads((folder / kind / "report.json").read_text())
    scores = report["test"]
    assert scores["same_answer"] == {"texts": 80, "equal": 80}
    least = {"labels": ("micro_f1", 0.9), "regression": ("r2", 0.75), "ordinal": ("kappa", 0.8)}
    name, value = least[kind]
    assert scores[name] > value
    assert scores["all_words"][name] > value
    assert len(report["baseline"]) == 1
    assert "<svg" in (folder / kind / "curve.svg").read_text()

    assert main(["evaluate", model, labelled_file(folder, kind), "--out", str(tmp_path / "e")]) == 0
    out = capsys.readouterr().out
    assert "yes, bit by bit (80 texts)" in out
    evaluated = json.loads((tmp_path / "e").read_text())
    assert evaluated[name] == pytest.approx(scores[name])

    assert main(["predict", model, TEXT, "--reasons"]) == 0
    line = json.loads(capsys.readouterr().out)
    expected = {"labels": ["sport"], "regression": None, "ordinal": "some"}[kind]
    assert line.get("labels", line.get("label")) == expected
    if kind == "regression":
        assert line["value"] == pytest.approx(15.2, abs=1.5)
        assert line["classes"] == ["value"]
    assert {"words", "parts"} == set(line["reasons"][0])

    assert main(["explain", model, TEXT]) == 0
    out = capsys.readouterr().out
    assert "The open words alone have the same prediction, bit by bit." in out
    print(CLASSES[kind].load(model).explain(TEXT))
    assert capsys.readouterr().out == out
    assert "goal" in out
    assert main(["explain", model, "goal match <word1>", "--html", str(tmp_path / "p.html")]) == 0
    assert "goal" in (tmp_path / "p.html").read_text()
    capsys.readouterr()
    assert main(["explain", model, "--json"]) == 0
    groups = [entry["label"] for entry in json.loads(capsys.readouterr().out)["classes"]]
    assert groups == (sorted(WORDS) if kind == "labels" else ["lower", "higher"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_open_words_alone_give_the_same_bits(folder, kind):
    model = LexiconModel.load(folder / kind)
    texts = [model.split(text) for text, _ in [*ROWS, *TEST]]
    assert count_equal(model.lexicon, model.splitter, texts) == len(texts)


def test_numbers_that_differ_are_counted_as_unequal(folder):
    """A number has no probabilities, so that its logit must be compared."""
    model = LexiconModel.load(folder / "regression")

    class Changing:
        calls = 0

        def read(self, texts):
            self.calls += 1
            reading = model.lexicon.read(texts)
            return reading._replace(logits=reading.logits + self.calls)

    assert count_equal(Changing(), model.splitter, [["goal"], ["match"]]) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_shares_of_an_explanation_sum_to_the_prediction(folder, kind):
    model = CLASSES[kind].load(folder / kind)
    text = "goal match bank price word3"
    explanation = model.explain(text)
    total = np.array(explanation.reasons.bias)
    total += np.sum([parts for _, parts in explanation.ranked], axis=0)
    (prediction,) = reasons(model, [text])
    if kind == "labels":
        chances = dict(zip(model.classes_, 1 / (1 + np.exp(-total)), strict=True))
        for label, chance in zip(prediction.labels, prediction.probabilities, strict=True):
            assert chances[label] == pytest.approx(chance)
        assert set(prediction.labels) == {"money", "sport"}
    elif kind == "regression":
        assert total[0] == pytest.approx(prediction.value)
    else:
        lexicon = model.model_.lexicon
        grade = int((total[0] > lexicon.bias / lexicon.temperature).sum())
        assert model.order_[grade] == prediction.label == "many"
        assert model.order_.tolist() == ["none", "some", "many", "all"]
        assert tuple(clone(model).order) == model.model_.classes
    assert json.dumps(explanation.to_json())
    assert "<article" in explanation.html()
    effects = [max(abs(p) for p in parts) for _, parts in explanation.ranked]
    assert kind == "labels" or effects == sorted(effects, reverse=True)


def test_predictions_need_no_jax(folder):
    code = (
        "import sys; from gatedjax.__main__ import main; "
        "[main(['predict', sys.argv[1] + '/' + k, 'goal']) for k in "
        "('labels', 'regression', 'ordinal')]; "
        "print([name for name in ('jax', 'flax', 'scipy') if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("kind", KINDS)
def test_a_classifier_refuses_the_folder_by_its_kind(folder, kind):
    nouns = {"labels": "several labels", "regression": "a number", "ordinal": "a grade"}
    with pytest.raises(ValueError, match=nouns[kind]):
        TextClassifier.load(folder / kind)


def test_a_damaged_folder_is_refused(folder, tmp_path):
    model = LexiconModel.load(folder / "labels")
    config = json.loads((folder / "labels" / "config.json").read_text())
    assert config["head"] == {"kind": "labels", "num_labels": 3}
    assert len(config["decision"]["thresholds"]) == 3
    with pytest.raises(ValueError, match="must have 3 numbers"):
        model.target.with_decision({"thresholds": [0.5]})


# labels ------------------------------------------------------------------------------------------


def test_forms_of_labels_give_the_same_bits(folder, tmp_path):
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"text": text, "label": labels}) + "\n" for text, labels in ROWS)
    )
    fast = MultiLabelTextClassifier.train(folder / "labels_train.txt").predict_proba(X)
    lines = MultiLabelTextClassifier.train(tmp_path / "a.jsonl").predict_proba(X)
    lists = MultiLabelTextClassifier().fit(X, [labels for _, labels in ROWS])
    indicator = np.array([[name in labels for name in sorted(WORDS)] for _, labels in ROWS], int)
    columns = MultiLabelTextClassifier().fit(X, indicator)
    frame = MultiLabelTextClassifier().fit(X, Frame(indicator, sorted(WORDS)))
    for other in (lines, lists.predict_proba(X), columns.predict_proba(X), frame.predict_proba(X)):
        np.testing.assert_array_equal(fast, other)
    assert columns.classes_.tolist() == [0, 1, 2]
    assert frame.classes_.tolist() == lists.classes_.tolist() == sorted(WORDS)
    predicted = columns.predict(X)
    assert predicted.shape == indicator.shape
    exact = (predicted == indicator).all(1).mean()
    assert columns.score(X, indicator) == columns.score(X, csr_matrix(indicator)) == exact
    assert lists.score(X, [labels for _, labels in ROWS]) == exact
    names = [{str(lists.classes_[i]) for i in np.flatnonzero(row)} for row in lists.predict(X)]
    assert names == [set(prediction.labels) for prediction in reasons(lists, X)]


def test_a_column_without_a_text_is_never_predicted():
    indicator = np.array([["sport" in labels, False, "art" in labels] for _, labels in ROWS])
    with pytest.warns(UserWarning, match="columns without a text"):
        model = MultiLabelTextClassifier().fit(X, indicator)
    assert model.predict_proba(X[:3])[:, 1].tolist() == [0, 0, 0]
    assert model.predict(X).shape == (len(X), 3)


def test_unknown_labels_are_counted_and_missed(folder, tmp_path, capsys):
    (tmp_path / "u.txt").write_text("__label__sport __label__tea goal match\n__label__art song\n")
    assert main(["evaluate", str(folder / "labels"), str(tmp_path / "u.txt")]) == 0
    out = capsys.readouterr().out
    assert "the model does not have, which count as missed: 1 in the texts ('tea' 1)" in out
    metrics = MultiLabelTextClassifier.load(folder / "labels").evaluate(tmp_path / "u.txt")
    assert metrics["unknown"] == [{"label": "tea", "n": 1}]
    assert metrics["subset_accuracy"] == 0.5
    assert metrics["micro_recall"] == pytest.approx(2 / 3)
    data = [*ROWS, ("goal tea", ["sport"])]
    model = MultiLabelTextClassifier.train(data, validation=TEST, test=[("goal", ["tea"])])
    assert model.report_["test"]["unknown"] == [{"label": "tea", "n": 1}]


def test_a_missing_cell_is_set_aside_and_an_empty_list_is_no_label():
    rows = [("a", []), ("b", ""), ("c", None), ("d", ["x", "x"]), ("e", "y")]
    labels = [getattr(row, "label", "aside") for row in open_table(rows, Columns(target="labels"))]
    assert labels == [(), (), "aside", ("x",), ("y",)]
    numbers = [("a", "3.5"), ("b", 2), ("c", "x"), ("d", True), ("e", "inf"), ("f", None)]
    labels = [getattr(r, "label", "aside") for r in open_table(numbers, Columns(target="number"))]
    assert labels == [3.5, 2.0, *["aside"] * 4]
    with pytest.raises(ValueError, match=r"columns\.target must be one of"):
        Columns(target="numbers")


def test_labels_that_only_look_the_same_are_refused():
    sets = LabelSets(None)
    sets.place((1, "a"), "x", 1)
    with pytest.raises(ValueError, match="look the same"):
        sets.place(("1",), "x", 2)


def test_label_metrics_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    targets, predicted = rng.random((30, 4)) < 0.3, rng.random((30, 4)) < 0.4
    metrics = label_metrics(targets, predicted, "abcd", [])
    f1 = sklearn.metrics.f1_score
    assert metrics["micro_f1"] == pytest.approx(f1(targets, predicted, average="micro"))
    assert metrics["macro_f1"] == pytest.approx(f1(targets, predicted, average="macro"))
    exact = sklearn.metrics.accuracy_score(targets, predicted)
    assert metrics["subset_accuracy"] == pytest.approx(exact)
    assert metrics["without_label"]["n"] == (~targets.any(1)).sum()


def test_thresholds_are_the_best_of_all(monkeypatch):
    rng = np.random.default_rng(0)
    targets = rng.random((60, 2)) < 0.4
    probabilities = np.round(np.clip(targets * 0.3 + rng.random((60, 2)) * 0.7, 0, 1), 1)
    thresholds = choose_thresholds(probabilities, targets)
    for column, threshold in enumerate(thresholds):
        scores = [
            sklearn.metrics.f1_score(targets[:, column], probabilities[:, column] >= cut)
            for cut in np.arange(0, 1.05, 0.05)
        ]
        chosen = probabilities[:, column] >= threshold
        assert sklearn.metrics.f1_score(targets[:, column], chosen) == pytest.approx(max(scores))
    rare = targets.copy()
    rare[:, 1] = False
    rare[:3, 1] = True
    # A label of three texts has the threshold of all labels.
    assert choose_thresholds(probabilities, rare)[1] not in (
        choose_thresholds(probabilities[:, 1:], rare[:, 1:]),
    )
    assert choose_thresholds(probabilities, targets & False) == (0.5, 0.5)


def test_fixed_thresholds_are_used_and_stored(tmp_path):
    model = MultiLabelTextClassifier(threshold={"art": 0.9}, density=0.3).fit(
        X, [labels for _, labels in ROWS]
    )
    assert model.model_.target.thresholds == (0.9, 0.5, 0.5)
    model.save(tmp_path / "m")
    again = MultiLabelTextClassifier.load(tmp_path / "m")
    assert again.model_.target.thresholds == (0.9, 0.5, 0.5)
    chances = again.predict_proba(X)
    np.testing.assert_array_equal(again.predict(X), chances >= [0.9, 0.5, 0.5])
    with pytest.raises(ValueError, match=r"threshold must name labels of the texts .*got 'tea'"):
        MultiLabelTextClassifier(threshold={"tea": 0.5}).fit(X, [labels for _, labels in ROWS])


def test_rare_labels_may_be_left_out():
    rows = [*ROWS, ("goal song", ["sport", "odd"])]
    model = MultiLabelTextClassifier.train(rows, min_class=2)
    assert model.classes_.tolist() == sorted(WORDS)
    lines = []
    model = MultiLabelTextClassifier.train(rows, say=lines.append)
    assert "odd" in model.classes_.tolist()
    assert any("labels with a single text" in line and "'odd'" in line for line in lines)


def test_thresholds_of_labels_may_be_set_for_a_trained_model(folder, capsys):
    model = str(folder / "labels")
    (chances,) = MultiLabelTextClassifier.load(model).predict_proba([TEXT]).astype(float)
    art, sport = chances[0] - 1e-6, (chances[2] + 1) / 2
    assert main(["predict", model, TEXT, "--threshold", f"sport={sport}", f"art={art}"]) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == ["art"]
    path = labelled_file(folder, "labels")
    assert main(["evaluate", model, path, "--threshold", "0.0000001"]) == 0
    # All labels are predicted for all texts.
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| sport")]
    assert rows[0].split("|")[3].strip() == "1.000"
    assert rows[0].split("|")[6].strip() == "80"
    for args, message in (
        ([model, "--threshold", "tea=0.5"], "--threshold must name labels of the texts"),
        (
            [str(folder / "regression"), "--threshold", "0.5"],
            "--threshold must be left out for the task",
        ),
        (
            [str(folder / "regression"), "--abstain", "0.5"],
            "--abstain must be left out unless the model has",
        ),
    ):
        with pytest.raises(SystemExit):
            main(["predict", *args, "--file", labelled_file(folder, "regression")])
        assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("kind", KINDS)
def test_look_shows_what_train_would_do(folder, kind, capsys):
    ending = "txt" if kind == "labels" else "csv"
    path = str(folder / f"{kind}_train.{ending}")
    assert main(["look", path, "--task", kind, *EXTRA[kind], "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["model"] == "lexicon"
    assert report["problems"] == []
    assert report["split"]["training"] + report["split"]["validation"] == len(ROWS)
    trained = json.loads((folder / kind / "report.json").read_text())["data"]
    assert report["split"]["validation"] == trained["validation"]["n"]
    assert main(["look", path, "--task", kind, *EXTRA[kind]]) == 0
    out = capsys.readouterr().out
    first = {"labels": "240 texts with 3 labels", "regression": "240 texts with numbers from"}
    assert first.get(kind, "240 texts, 4 classes") in out
    assert f"--task {kind}" in out.splitlines()[-1]


def test_look_names_an_order_that_is_missing(folder, capsys):
    assert main(["look", str(folder / "ordinal_train.csv"), "--task", "ordinal"]) == 1
    assert "training would stop: grades must be different numbers" in capsys.readouterr().out


# numbers -----------------------------------------------------------------------------------------


def test_metrics_of_numbers_and_grades_are_those_of_libraries():
    rng = np.random.default_rng(0)
    targets, predicted = rng.normal(size=40), rng.normal(size=40)
    metrics = real_metrics(targets, predicted)
    assert metrics["rmse"] ** 2 == pytest.approx(
        sklearn.metrics.mean_squared_error(targets, predicted)
    )
    assert metrics["r2"] == pytest.approx(sklearn.metrics.r2_score(targets, predicted))
    assert metrics["spearman"] == pytest.approx(spearmanr(targets, predicted).statistic)
    constant = real_metrics(np.ones(3), np.ones(3))
    assert (constant["r2"], constant["spearman"], constant["rmse_error"]) == (None, None, 0)
    grades, others = rng.integers(0, 4, 50), rng.integers(0, 4, 50)
    kappa = sklearn.metrics.cohen_kappa_score(grades, others, weights="quadratic")
    assert ordinal_metrics(grades, others, "abcd")["kappa"] == pytest.approx(kappa)
    assert ordinal_metrics(np.zeros(3, int), np.zeros(3, int), "ab")["kappa"] is None


def test_the_rival_of_numbers_is_ridge_regression_on_tfidf():
    train, test = ([text.split() for text, _ in rows] for rows in (ROWS, TEST))
    targets = np.array([number_of(*row) for row in ROWS])
    model = TfidfModel(RealHead.of_targets(targets)).fit(train, targets)
    vectors = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), analyzer="word")
    matrix = vectors.fit_transform(X)
    # A pair is a feature if it occurs twice.
    often = vectors.get_feature_names_out()
    counts = np.asarray((matrix > 0).sum(0)).ravel()
    keep = [i for i, name in enumerate(often) if " " not in name or counts[i] > 1]
    vocabulary = {often[i]: n for n, i in enumerate(keep)}
    vectors = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), vocabulary=vocabulary)
    ridge = Ridge(alpha=1.0).fit(vectors.fit_transform(X), targets)
    values = ridge.predict(vectors.transform([text for text, _ in TEST]))
    ours = model.compute_readings(test).logits[:, 0]
    np.testing.assert_allclose(ours, values, atol=0.03 * targets.std())


def test_the_unit_of_the_target_does_not_change_the_words():
    targets = np.array([number_of(*row) for row in ROWS])
    plain = TextRegressor(density=0.3).fit(X, targets)
    # A power of two changes no digit of the targets.
    scaled = TextRegressor(density=0.3).fit(X, 2.0**20 * targets)
    for one, other in zip(reasons(plain, X), reasons(scaled, X), strict=True):
        assert one.kept == other.kept
        assert 2.0**20 * one.value == other.value


def test_shares_have_as_many_digits_as_the_target_needs():
    for unit in (1e-9, 1e6):
        model = TextRegressor(density=0.3).fit(X, unit * np.array([number_of(*r) for r in ROWS]))
        explanation = model.explain(TEXT)
        (line,) = [part for part in explanation.render().splitlines() if "| sum " in part]
        value = model.predict([TEXT])[0]
        assert float(line.split("|")[2]) == pytest.approx(value, rel=0.01)


def test_the_density_is_chosen_by_the_error():
    assert choose_stage([-1.0, -0.99, -1.05, -2], 0.05) == 1
    report = TextRegressor().fit(X, [number_of(*row) for row in ROWS]).report_
    curve = [stage["rmse"] for stage in report["curve"]]
    chosen = [stage["density"] for stage in report["curve"]].index(report["density"])
    allowed = max(curve[: chosen + 1])
    assert curve[chosen] <= allowed
    assert all(value > curve[chosen] for value in curve[chosen + 1 :])


def test_a_column_of_numbers_names_the_task(tmp_path, capsys):
    rows = [(f"film {i}", f"{i / 3:.3f}") for i in range(40)]
    write_csv(tmp_path / "n.csv", rows)
    with pytest.raises(SystemExit):
        main(["train", str(tmp_path / "n.csv"), "--out", str(tmp_path / "m")])
    assert "--task regression" in capsys.readouterr().err
    rows = [(f"film {i} {j}", i) for i in range(12) for j in range(6)]
    lines = []
    TextClassifier.train(rows, density=0.5, say=lines.append)
    assert any("the 12 classes are numbers: --task regression" in line for line in lines)


def test_several_labels_name_the_task(folder, tmp_path, capsys):
    args = ["train", str(folder / "labels_train.txt"), "--out", str(tmp_path / "m")]
    with pytest.raises(SystemExit):
        main([*args, "--max-aside", "1"])
    assert "--task labels" in capsys.readouterr().err


# grades ------------------------------------------------------------------------------------------


def test_grades_are_ordered_by_number_or_by_name():
    rows = [(text, str(10 * len(labels))) for text, labels in ROWS]
    assert OrdinalTextClassifier.train(rows).classes_.tolist() == ["0", "10", "20", "30"]
    named = rows_of("ordinal", ROWS)
    with pytest.raises(ValueError, match=r"need an order, got .*: give the grades"):
        OrdinalTextClassifier.train(named)
    with pytest.raises(ValueError, match="order must have each label"):
        OrdinalTextClassifier.train(named, order=["none", "some", "all"])
    model = OrdinalTextClassifier.train(named, order=["all", "many", "some", "none"])
    chances = model.predict_proba(X)
    np.testing.assert_allclose(chances.sum(1), 1, rtol=1e-5)
    assert model.score(X, [grade for _, grade in named]) > 0.9


# thresholds of two classes -----------------------------------------------------------------------


def test_a_threshold_of_two_classes_names_the_class(tmp_path, capsys):
    x, y = map(list, zip(*TEXTS, strict=True))
    model = TextClassifier(threshold={"bad": 0.999}, density=0.4).fit(x, y)
    chances = model.predict_proba(["film", *x])
    expected = np.where(chances[:, 0] >= 0.999, "bad", "good")
    predicted = model.predict(["film", *x])
    assert predicted.tolist() == expected.tolist()
    (found,) = reasons(model, ["film"])
    assert found.probability == pytest.approx(float(chances[0, 1]))
    explanation = model.explain("film")
    assert explanation.label == "good"
    assert model.score(x, y) == (expected[1:] == np.array(y)).mean()
    metrics = model.evaluate(list(zip(x, y, strict=True)))
    assert metrics["accuracy"] == (expected[1:] == np.array(y)).mean()
    model.save(tmp_path / "m")
    assert TextClassifier.load(tmp_path / "m").predict(["film"])[0] == "good"
    with pytest.raises(ValueError, match=r"for one of the two classes, got 0\.3: name the class"):
        TextClassifier(threshold=0.3).fit(x, y)
    with pytest.raises(ValueError, match="threshold must be left out unless there are two classes"):
        TextClassifier(threshold={"a": 0.3}).fit(
            [f"{a} {b}" for a in "abc" for b in "xyz"], [a for a in "abc" for _ in "xyz"]
        )
    write_csv(tmp_path / "f.csv", TEXTS)
    args = ["train", str(tmp_path / "f.csv"), "--out", str(tmp_path / "c"), "--density", "0.4"]
    assert main([*args, "--threshold", "good=0.2"]) == 0
    config = json.loads((tmp_path / "c" / "config.json").read_text())
    assert config["decision"] == {"positive": 1, "threshold": 0.2}
    for value, message in (
        ("good=x", "error: --threshold must be numbers"),
        ("2", r"error: --threshold must be in (0, 1), got 2"),
        ("0.3", "name the class, as --threshold bad=0.3 or good=0.3"),
    ):
        with pytest.raises(SystemExit):
            main([*args, "--overwrite", "--threshold", value])
        assert message in " ".join(capsys.readouterr().err.split())
    folder = str(tmp_path / "c")
    (chance,) = TextClassifier.load(folder).predict_proba(["film"])[:, 1].tolist()
    for threshold, label in ((chance - 0.01, "good"), (chance + 0.01, "bad")):
        assert main(["predict", folder, "film", "--threshold", f"good={threshold}"]) == 0
        assert json.loads(capsys.readouterr().out)["label"] == label
    rule = "good is predicted if its probability is at least 0.2; the parts are exact."
    assert main(["explain", folder, "dull film"]) == 0
    assert rule in capsys.readouterr().out
    assert main(["explain", folder, "dull film", "--html", str(tmp_path / "p.html")]) == 0
    assert rule in (tmp_path / "p.html").read_text()


# options and scikit-learn ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("labels", {"model": "ganet"}, "model must be 'lexicon' for the task 'labels'"),
        ("regression", {"model": "gru"}, "model must be 'lexicon' for the task 'regression'"),
        ("regression", {"class_weight": "balanced"}, "class_weight must be left out for the task"),
        ("regression", {"threshold": 0.5}, "threshold must be left out for the task"),
        ("ordinal", {"best_metric": "macro_f1"}, "best_metric must be left out for the task"),
        ("text", {"order": ["a", "b"]}, "order must be left out for the task"),
        (
            "text",
            {"model": "gru", "threshold": {"a": 0.5}},
            "threshold must be left out unless model='lexicon'",
        ),
        ("ordinal", {"order": "abc"}, "order must be a sequence"),
        ("labels", {"threshold": {"a": 1.5}}, r"threshold must be in \(0, 1\), got 1.5"),
        ("labels", {"threshold": {}}, "threshold must have a number"),
        ("labels", {"epochs": 3}, "epochs"),
    ],
)
def test_options_without_a_meaning_are_refused(kind, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        check_options(TextOptions(**options), kind)


def test_they_have_the_interface_of_scikit_learn():
    numbers = np.array([number_of(*row) for row in ROWS])
    scores = cross_val_score(clone(TextRegressor(density=0.7)), X, numbers, cv=2)
    assert scores.min() > 0.6
    assert is_regressor(TextRegressor())
    assert is_classifier(MultiLabelTextClassifier())
    assert not hasattr(TextRegressor(), "predict_proba")
    indicator = np.array([[name in labels for name in WORDS] for _, labels in ROWS], int)
    scores = cross_val_score(MultiLabelTextClassifier(density=0.3), X, indicator, cv=2)
    assert scores.min() > 0.8
    grades = [len(labels) for _, labels in ROWS]
    assert cross_val_score(OrdinalTextClassifier(density=0.5), X, grades, cv=2).min() > 0.7
    with pytest.raises(ValueError, match="y must have different numbers"):
        TextRegressor(density=0.3).fit(X, numbers).score(X[:2], [1.0, 1.0])
    with pytest.raises(ValueError, match="must have different numbers, got only 1"):
        TextRegressor().fit(X, np.ones(len(X)))
    for y in (["sport"] * len(X), np.full((len(X), 2), 3)):
        with pytest.raises(ValueError, match="list of the lists of labels"):
            MultiLabelTextClassifier().fit(X, y)
    with pytest.raises(ValueError, match="must have a label, got none"):
        MultiLabelTextClassifier().fit(X, [[] for _ in X])


def test_meta_estimators_of_scikit_learn_take_the_predictions():
    numbers = np.array([number_of(*row) for row in ROWS])
    names = np.array(["sport" if "sport" in labels else "other" for _, labels in ROWS])
    indicator = np.array([[name in labels for name in WORDS] for _, labels in ROWS], int)
    log = TransformedTargetRegressor(TextRegressor(), func=np.log1p, inverse_func=np.expm1)
    plain = TextRegressor().fit(X, np.log1p(numbers))
    np.testing.assert_array_equal(log.fit(X, numbers).predict(X), np.expm1(plain.predict(X)))
    stack = StackingRegressor([("a", TextRegressor()), ("b", TextRegressor(density=0.3))], cv=2)
    assert stack.fit(X, numbers).score(X, numbers) > 0.8
    vote = VotingRegressor([("a", TextRegressor()), ("b", TextRegressor(density=0.7))])
    assert vote.fit(X, numbers).score(X, numbers) > 0.8
    models = [("a", TextClassifier()), ("b", TextClassifier(density=0.3))]
    for method in ("predict_proba", "auto"):
        stack = StackingClassifier(models, cv=2, stack_method=method).fit(X, names)
        assert stack.score(X, names) > 0.9
        assert set(stack.predict(X)) <= set(names)
    for model, y in (
        (TextClassifier(), names),
        (TextRegressor(), numbers),
        (OrdinalTextClassifier(), [len(labels) for _, labels in ROWS]),
        (MultiLabelTextClassifier(), indicator),
    ):
        held_out = cross_val_predict(model, X, y, cv=2)
        assert type(held_out) is type(model.fit(X, y).predict(X)) is np.ndarray
        assert held_out.shape == np.shape(y)
        # A list is compared entry by entry.
        right = np.mean(
            np.all(np.reshape(model.predict(X) == np.array(y).tolist(), (len(X), -1)), 1)
        )
        if not isinstance(model, TextRegressor):
            assert right == model.score(X, y)


def test_weights_of_texts_count_for_numbers():
    numbers = np.array([number_of(*row) for row in ROWS])
    heavy = np.where(numbers > 20, 10.0, 0.1)
    plain = TextRegressor(density=0.3).fit(X, numbers)
    weighted = TextRegressor(density=0.3).fit(X, numbers, sample_weight=heavy)
    assert np.mean(weighted.predict(X)) > np.mean(plain.predict(X))


Y = np.array([[name in labels for name in ("sport", "money", "tech")] for _, labels in ROWS], int)


def test_columns_have_the_order_of_y_before_and_after_saving(tmp_path):
    names = ["sport", "money", "tech"]
    with pytest.warns(UserWarning, match="columns without a text"):
        model = MultiLabelTextClassifier(density=0.3).fit(X, Frame(Y, names))
    model.save(tmp_path / "m")
    again = MultiLabelTextClassifier.load(tmp_path / "m")
    full = MultiLabelTextClassifier(density=0.3).fit(X, Frame(Y[:, :2], names[:2]))
    assert full.classes_.tolist() == names[:2]
    for one, columns in ((model, names), (again, names), (full, names[:2])):
        assert one.classes_.tolist() == columns
        predicted = one.predict(X)
        chances = one.predict_proba(X)
        assert (predicted[:, :2] == Y[:, :2]).mean() > 0.95
        for column in (0, 1):
            right = sklearn.metrics.roc_auc_score(Y[:, column], chances[:, column])
            assert right > 0.95
    np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert config["columns"] == names
    (tmp_path / "m" / "SHA256SUMS").unlink()
    for columns in (["sport", "tech"], ["sport", "money", "money"], "sport"):
        (tmp_path / "m" / "config.json").write_text(json.dumps({**config, "columns": columns}))
        with pytest.raises(ValueError, match="must be a model that this version can read"):
            MultiLabelTextClassifier.load(tmp_path / "m")
    del config["columns"]
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    assert MultiLabelTextClassifier.load(tmp_path / "m").classes_.tolist() == ["money", "sport"]


def test_rows_of_zero_and_one_are_no_lists_of_labels(tmp_path):
    lists = Y.tolist()
    for y in (lists, list(Y), list(Y == 1), [[0, 1], [1, 0]] * 120):
        with pytest.raises(ValueError, match=r"y must be a list of the lists .*np\.asarray\(y\)"):
            MultiLabelTextClassifier().fit(X, y)
    with pytest.raises(ValueError, match="got the indicator"):
        MultiLabelTextClassifier.train(list(zip(X, lists, strict=True)))
    path = tmp_path / "a.jsonl"
    lines = [json.dumps({"text": x, "label": row}) for x, row in zip(X, lists, strict=True)]
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match="got the indicator"):
        MultiLabelTextClassifier.train(path)
    # The numbers 0 and 1 stay possible labels.
    numbers = [[i for i in (0, 1) if row[i]] for row in lists]
    model = MultiLabelTextClassifier(density=0.3).fit(X, numbers)
    assert model.classes_.tolist() == [0, 1]
    assert model.score(["goal team bank"], [[0, 1]]) == 1


def test_columns_of_y_have_different_names():
    with pytest.raises(ValueError, match="y must have columns with different names, got 'a' twice"):
        MultiLabelTextClassifier().fit(X, Frame(Y, ["a", "b", " a"]))


def test_a_fault_of_y_in_columns_is_named():
    y = Y.astype(float)
    y[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"y must be .* got nan in row 3, column 1: give 0 or 1"):
        MultiLabelTextClassifier().fit(X, y)
    with pytest.raises(ValueError, match=r"got the shape \(240,\): give y\[:, None\]"):
        MultiLabelTextClassifier().fit(X, Y[:, 0])


@pytest.mark.parametrize("missing", [None, np.nan, np.inf, ""])
def test_a_hole_in_y_stops_a_fit(missing):
    numbers = [number_of(*row) for row in ROWS]
    grades = [len(labels) for _, labels in ROWS]
    for model, labels in (
        (TextRegressor(), numbers),
        (OrdinalTextClassifier(), grades),
        (TextClassifier(), grades),
        (MultiLabelTextClassifier(), [["a", label] for label in grades]),
    ):
        y = [*labels]
        y[2] = ["a", missing] if isinstance(model, MultiLabelTextClassifier) else missing
        with pytest.raises(ValueError, match=r"y must be .* at position 2 .*leave the text out"):
            model.fit(X, y)
    with pytest.raises(ValueError, match="y must be finite numbers, got"):
        TextRegressor(density=0.3).fit(X, numbers).score(X[:3], [1.0, 2.0, missing])


def test_a_missing_list_of_labels_stops_a_fit():
    for missing in (None, np.nan):
        with pytest.raises(ValueError, match=r"position 1: write .* for a text without a label"):
            MultiLabelTextClassifier().fit(X, [["a"], missing] * 120)


def test_scores_name_y():
    numbers = np.array([number_of(*row) for row in ROWS])
    model = TextRegressor(density=0.3).fit(X, numbers)
    with pytest.raises(ValueError, match="y must be finite numbers, got 'good' at position 1"):
        model.score(X[:2], ["1", "good"])
    labels = MultiLabelTextClassifier(density=0.3).fit(X, [row for _, row in ROWS])
    for one in (model, labels):
        with pytest.raises(ValueError, match="y must have at least one label, got none"):
            one.score([], [])
    for one in (TextRegressor(), OrdinalTextClassifier()):
        with pytest.raises(ValueError, match=r"got the row .*: give y\.ravel\(\)"):
            one.fit(X, numbers[:, None])


def test_scorers_of_scikit_learn_take_grades_with_names(tmp_path):
    order = ["none", "some", "many", "all"]
    y = np.array([grade for _, grade in rows_of("ordinal", ROWS)])
    model = OrdinalTextClassifier(density=0.5, order=order).fit(X, y)
    model.save(tmp_path / "m")
    again = OrdinalTextClassifier.load(tmp_path / "m")
    for one in (model, again):
        assert one.classes_.tolist() == sorted(order)
        assert one.order_.tolist() == order
        chances = one.predict_proba(X)
        expected = sklearn.metrics.log_loss(y, chances, labels=one.classes_)
        for name, value in (("neg_log_loss", -expected), ("roc_auc_ovr", None)):
            score = sklearn.metrics.get_scorer(name)(one, X, y)
            assert score == pytest.approx(value) if value else score > 0.9
        assert expected < 0.7
        # The predicted grade is the median of the probabilities in the order of the grades.
        ordered = chances[:, [one.classes_.tolist().index(grade) for grade in order]]
        medians = (1 - np.cumsum(ordered, 1)[:, :-1] > 0.5).sum(1)
        assert [order[i] for i in medians] == one.predict(X).tolist()
    digits = OrdinalTextClassifier(density=0.5).fit(X, [str(8 + len(row)) for _, row in ROWS])
    assert digits.order_.tolist() == ["8", "9", "10", "11"]
    assert digits.classes_.tolist() == ["10", "11", "8", "9"]


def test_a_loaded_model_has_its_threshold(tmp_path):
    lists = [labels for _, labels in ROWS]
    fixed = MultiLabelTextClassifier(density=0.3, threshold={"art": 0.9}).fit(X, lists)
    x, y = map(list, zip(*TEXTS, strict=True))
    for name, model, threshold in (
        ("a", fixed, {"art": 0.9}),
        ("b", MultiLabelTextClassifier(density=0.3).fit(X, lists), None),
        ("c", TextClassifier(threshold={"bad": 0.7}, density=0.4).fit(x, y), {"bad": 0.7}),
        ("d", TextClassifier(density=0.4).fit(x, y), None),
    ):
        model.save(tmp_path / name)
        again = type(model).load(tmp_path / name)
        assert again.get_params()["threshold"] == threshold
    refitted = clone(MultiLabelTextClassifier.load(tmp_path / "a")).fit(X, lists)
    assert refitted.model_.target.thresholds == fixed.model_.target.thresholds


@pytest.mark.parametrize("unit", [1e300, 1e-300])
def test_numbers_without_a_finite_deviation_are_named(unit):
    numbers = unit * np.array([number_of(*row) for row in ROWS])
    with pytest.raises(
        ValueError, match=r"labels \(y in Python\) must be .*: give them in another"
    ):
        TextRegressor(density=0.3).fit(X, numbers)


def test_the_class_that_loads_a_folder_is_named(folder, tmp_path):
    names = {
        "labels": "MultiLabelTextClassifier",
        "regression": "TextRegressor",
        "ordinal": "OrdinalTextClassifier",
    }
    for kind, name in names.items():
        with pytest.raises(ValueError, match=rf"{name}\.load"):
            TextClassifier.load(folder / kind)
    with pytest.raises(ValueError, match=r"MultiLabelTextClassifier\.load"):
        TextRegressor.load(folder / "labels")
