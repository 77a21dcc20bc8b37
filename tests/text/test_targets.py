"""Lexicons whose targets are several labels, numbers or grades: files, commands and classes."""

import functools
import json
import random

import numpy as np
import pytest
import sklearn.metrics
from scipy.sparse import csr_matrix
from scipy.stats import spearmanr
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import StackingClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_score

from gatedjax import (
    MultiLabelTextClassifier,
    OrdinalTextClassifier,
    TextClassifier,
    TextRegressor,
)
from gatedjax.__main__ import main
from gatedjax._commands._columns import parse_thresholds
from gatedjax.lexicon import Readings
from gatedjax.text import Columns
from gatedjax.text.answers._report import count_equal
from gatedjax.text.fit._rivals import train_rival
from gatedjax.text.models._lexicon import LexiconModel
from gatedjax.text.sources._open import open_table
from gatedjax.text.targets import ClassTarget, LabelTarget, OrdinalTarget
from gatedjax.text.targets._labels import choose_thresholds
from gatedjax.text.targets._number import RealTarget
from tests.refusals import refused
from tests.text._measures import measure_grades, measure_labels, measure_numbers, readings
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
Y = np.array([[name in labels for name in ("sport", "money", "tech")] for _, labels in ROWS], int)
TEXT = "goal word1 match word2 word3 word4 word5"


class Frame:
    """The part of the interface of a frame of pandas that is used."""

    def __init__(self, values, columns):
        self.values, self.columns = values, columns

    def to_numpy(self):
        return self.values


def number_of(text, labels):
    return round(10 + 5 * len(labels) + len(text) / 100, 3)


NUMBERS, GRADES = [number_of(*row) for row in ROWS], [len(labels) for _, labels in ROWS]
SETS = [labels for _, labels in ROWS]


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
ORDER = ["none", "some", "many", "all"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of each kind, with the files."""
    place = tmp_path_factory.mktemp("targets")
    for name, rows in (("train", ROWS), ("test", TEST)):
        with (place / f"labels_{name}.txt").open("w") as file:
            for text, labels in rows:
                file.write("".join(f"__label__{label} " for label in labels) + text + "\n")
        for kind in KINDS[1:]:
            write_csv(place / f"{kind}_{name}.csv", rows_of(kind, rows))
    for kind in KINDS:
        file = labelled_file(place, kind, "train")
        options = {"order": ORDER} if kind == "ordinal" else {}
        CLASSES[kind].train(file, test=rows_of(kind, TEST), **options).save(place / kind)
    return place


def labelled_file(folder, kind, part="test"):
    return str(folder / f"{kind}_{part}.{'txt' if kind == 'labels' else 'csv'}")


@pytest.mark.slow
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
    effects = [parts for _, parts, _ in explanation.ranked]
    total = np.sum([explanation.reasons.prior, *effects], axis=0)
    (prediction,) = reasons(model, [text])
    if kind == "labels":
        chances = dict(zip(model.classes_, 1 / (1 + np.exp(-total)), strict=True))
        for label, chance in zip(prediction.labels, prediction.probabilities, strict=True):
            assert chances[label] == pytest.approx(chance)
        assert set(prediction.labels) == {"money", "sport"}
    elif kind == "regression":
        assert total[0] == pytest.approx(prediction.value)
        refused(lambda: model.model_.probabilities([(text,)]), "a model of numbers: call predict")
    else:
        lexicon = model.model_.lexicon
        heat = lexicon.temperatures[sum(sum(explanation.read) > most for most in (1, 2, 5))]
        grade = int((total[0] > lexicon.bias / heat).sum())
        assert model.order_[grade] == prediction.label == "many"
        assert model.score(X, [grade for _, grade in rows_of("ordinal", ROWS)]) > 0.9
        assert model.order_.tolist() == list(clone(model).order) == ORDER
    assert json.dumps(explanation.to_json())
    assert "<article" in explanation.html()
    largest = [max(map(abs, parts)) for parts in effects]
    assert kind == "labels" or largest == sorted(largest, reverse=True)


# labels ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_forms_of_labels_give_the_same_bits(folder, tmp_path):
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"text": text, "label": labels}) + "\n" for text, labels in ROWS)
    )
    train = functools.partial(MultiLabelTextClassifier.train, share=0.5)
    plain = MultiLabelTextClassifier(share=0.5)
    indicator = np.array([[name in labels for name in sorted(WORDS)] for labels in SETS], int)
    lists, columns = clone(plain).fit(X, SETS), clone(plain).fit(X, indicator)
    frame = clone(plain).fit(X, Frame(indicator, sorted(WORDS)))
    wanted = train(folder / "labels_train.txt").predict_proba(X)
    for other in (train(tmp_path / "a.jsonl"), lists, columns, frame):
        np.testing.assert_array_equal(other.predict_proba(X), wanted)
    assert columns.classes_.tolist() == [0, 1, 2]
    assert frame.classes_.tolist() == lists.classes_.tolist() == sorted(WORDS)
    predicted = columns.predict(X)
    assert (predicted.shape, predicted.dtype) == (indicator.shape, np.int64)
    exact = (predicted == indicator).all(1).mean()
    assert columns.score(X, indicator) == columns.score(X, csr_matrix(indicator)) == exact
    assert lists.score(X, SETS) == exact
    names = [{str(lists.classes_[i]) for i in np.flatnonzero(row)} for row in lists.predict(X)]
    assert names == [set(prediction.labels) for prediction in reasons(lists, X)]


@pytest.mark.slow
def test_unknown_labels_are_counted_and_missed(folder, tmp_path, capsys):
    (tmp_path / "u.txt").write_text("__label__sport __label__tea goal match\n__label__art song\n")
    assert main(["evaluate", str(folder / "labels"), str(tmp_path / "u.txt")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the model does not have, which count as missed: 1 in the texts ('tea' 1)" in said
    model, columns = MultiLabelTextClassifier.load(folder / "labels"), Columns(("text",))
    metrics = model.evaluate(tmp_path / "u.txt", columns=columns)
    assert metrics["unknown"] == [{"label": "tea", "n": 1}]
    assert metrics["subset_accuracy"] == 0.5
    assert metrics["micro_recall"] == pytest.approx(2 / 3)
    many = "".join(f"__label__sport __label__t{number} goal match\n" for number in (0, *range(6)))
    (tmp_path / "u.txt").write_text(many)
    assert main(["evaluate", str(folder / "labels"), str(tmp_path / "u.txt")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "missed: 7 in the texts ('t0' 2, 't1' 1, 't2' 1, 't3' 1, 't4' 1 and 1 more)" in said
    data, lines = [*ROWS, ("goal song", ["sport", "odd"])], []
    test = [("goal", ["tea"])]
    model = MultiLabelTextClassifier.train(
        data, test=test, share=0.5, say=lines.append, columns=columns
    )
    assert model.report_["test"]["unknown"] == [{"label": "tea", "n": 1}]
    assert "odd" in model.classes_.tolist()
    assert any("labels with a single text" in line and "'odd'" in line for line in lines)


def test_a_missing_cell_is_set_aside_and_an_empty_list_is_no_label():
    rows = [("a", []), ("b", ""), ("c", None), ("d", ["x", "x"]), ("e", "y")]
    labels = [getattr(row, "label", "aside") for row in open_table(rows, Columns(target="labels"))]
    assert labels == [(), (), "aside", ("x",), ("y",)]
    numbers = [("a", "3.5"), ("b", 2), ("c", "x"), ("d", True), ("e", "inf"), ("f", None)]
    labels = [getattr(r, "label", "aside") for r in open_table(numbers, Columns(target="number"))]
    assert labels == [3.5, 2.0, *["aside"] * 4]
    with pytest.raises(ValueError, match=r"columns\.target must be one of"):
        Columns(target="numbers")


def test_label_metrics_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    targets, predicted = rng.random((30, 4)) < 0.3, rng.random((30, 4)) < 0.4
    metrics = measure_labels(targets, predicted, "abcd", [])
    f1 = sklearn.metrics.f1_score
    assert metrics["micro_f1"] == pytest.approx(f1(targets, predicted, average="micro"))
    assert metrics["macro_f1"] == pytest.approx(f1(targets, predicted, average="macro"))
    exact = sklearn.metrics.accuracy_score(targets, predicted)
    assert metrics["subset_accuracy"] == pytest.approx(exact)
    assert metrics["without_label"]["n"] == (~targets.any(1)).sum()
    found = readings([[0.9, 0.1], [0.1, 0.1]])  # the last column is an unknown label
    true = np.array([[True, False, True], [False] * 3])
    scores = LabelTarget(("a", "b"), (0.5, 0.5)).score_texts(true, found)
    np.testing.assert_allclose(scores, [2 / 3, 1])


def test_texts_with_labels_are_split_by_their_rarest_label():
    strata, names = LabelTarget(("a", "b")).stratify(np.array([[1, 0], [1, 1], [0, 0]], bool))
    assert (strata.tolist(), names) == ([0, 1, 2], ("a", "b", "(no label)"))


def test_thresholds_are_the_best_of_all():
    rng = np.random.default_rng(0)
    targets = rng.random((60, 2)) < 0.4
    probabilities = np.round(np.clip(targets * 0.3 + rng.random((60, 2)) * 0.7, 0, 1), 1)
    f1 = sklearn.metrics.f1_score
    for column, threshold in enumerate(choose_thresholds(probabilities, targets)):
        truth, values = targets[:, column], probabilities[:, column]
        best = max(f1(truth, values >= cut) for cut in np.arange(0, 1.05, 0.05))
        assert f1(truth, values >= threshold) == pytest.approx(best)
    # A label of three texts has the threshold of all labels.
    rare = targets.copy()
    rare[:, 1] = np.arange(60) < 3
    (alone,) = choose_thresholds(probabilities[:, 1:], rare[:, 1:])
    assert choose_thresholds(probabilities, rare)[1] != alone
    assert choose_thresholds(probabilities, targets & False) == (0.5, 0.5)


@pytest.mark.slow
def test_fixed_thresholds_are_used_and_stored(tmp_path):
    model = MultiLabelTextClassifier(threshold={"art": 0.9}, share=0.3).fit(X, SETS)
    model.save(tmp_path / "m")
    again = MultiLabelTextClassifier.load(tmp_path / "m")
    for one in (model, again):
        assert one.model_.target.thresholds == (0.9, 0.5, 0.5)
    np.testing.assert_array_equal(again.predict(X), again.predict_proba(X) >= [0.9, 0.5, 0.5])


def test_thresholds_of_labels_may_be_set_for_a_trained_model(folder, capsys):
    model, text = str(folder / "labels"), "word1 word2"
    (chances,) = MultiLabelTextClassifier.load(model).predict_proba([text]).astype(float)
    art, sport = chances[0] - 1e-6, (chances[2] + 1) / 2
    assert main(["predict", model, text, "--threshold", f"sport={sport}", f"art={art}"]) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == ["art"]
    assert parse_thresholds(["a=b=0.3", "c=0.5"]) == {"a=b": 0.3, "c": 0.5}
    path = labelled_file(folder, "labels")
    assert main(["evaluate", model, path, "--threshold", "1e-30"]) == 0
    # All labels are predicted for all texts.
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| sport")]
    assert [cell.strip() for cell in rows[0].split("|")][3:7:3] == ["1.000", "80"]
    numbers = str(folder / "regression")
    for args, message in (
        ([model, "--threshold", "tea=0.5"], "--threshold must name labels of the texts"),
        ([numbers, "--threshold", "0.5"], "--threshold must be left out for the task"),
        ([numbers, "--abstain", "0.5"], "--abstain must be left out unless the model has"),
    ):
        with pytest.raises(SystemExit):
            main(["predict", *args, "--file", labelled_file(folder, "regression")])
        assert message in " ".join(capsys.readouterr().err.split())


def test_names_of_columns_are_those_of_the_last_targets():
    model = MultiLabelTextClassifier()
    model._read_targets(Frame(Y, ["sport", "money", "tech"]))
    assert model._column_names == ("sport", "money", "tech")
    lists = np.array([["a"], ["b", "c"], []], object)
    assert model._read_targets(lists) == [["a"], ["b", "c"], []]
    assert model._column_names is None


# numbers -----------------------------------------------------------------------------------------


def test_metrics_of_numbers_and_grades_are_those_of_libraries():
    rng = np.random.default_rng(0)
    targets, predicted = rng.normal(size=40), rng.normal(size=40)
    metrics = measure_numbers(targets, predicted)
    assert metrics["rmse"] ** 2 == pytest.approx(np.mean((targets - predicted) ** 2))
    assert metrics["r2"] == pytest.approx(1 - metrics["rmse"] ** 2 / targets.var())
    assert metrics["spearman"] == pytest.approx(spearmanr(targets, predicted).statistic)
    constant = measure_numbers(np.ones(3), np.ones(3))
    assert (constant["r2"], constant["spearman"], constant["rmse_error"]) == (None, None, 0)
    grades, others = rng.choice([0, 1, 3], (2, 50))
    kappa = sklearn.metrics.cohen_kappa_score(grades, others, weights="quadratic", labels=range(4))
    assert measure_grades(grades, others, "abcd")["kappa"] == pytest.approx(kappa)
    assert measure_grades(np.zeros(3, int), np.zeros(3, int), "ab")["kappa"] is None
    assert measure_grades(np.zeros(3, int), np.arange(3) // 2, "ab")["kappa"] == 0


def test_the_rival_of_numbers_is_ridge_regression_on_tfidf():
    train, test = ([text.split() for text, _ in rows] for rows in (ROWS, TEST))
    targets = np.array([number_of(*row) for row in ROWS])
    values = train_rival(train, targets)(test)
    assert values.shape == (len(test), 1)
    # A pair is a feature if two texts have it, and so is every word.
    counts = CountVectorizer(ngram_range=(1, 2)).fit(X)
    often = (counts.transform(X) > 0).sum(0).A1
    names = counts.get_feature_names_out()
    names = [name for name, n in zip(names, often, strict=True) if " " not in name or n > 1]
    vectors = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), vocabulary=names)
    ridge = Ridge().fit(vectors.fit_transform(X), targets)
    expected = ridge.predict(vectors.transform([text for text, _ in TEST]))
    np.testing.assert_allclose(values[:, 0], expected, atol=1e-3 * targets.std())


@pytest.mark.slow
def test_the_unit_of_the_target_does_not_change_the_words():
    targets = np.array([number_of(*row) for row in ROWS])
    plain = TextRegressor(share=0.3).fit(X, targets)
    # A power of two changes no digit of the targets.
    scaled = TextRegressor(share=0.3).fit(X, 2.0**20 * targets)
    for one, other in zip(reasons(plain, X), reasons(scaled, X), strict=True):
        assert one.read == other.read
        assert 2.0**20 * one.value == other.value


@pytest.mark.slow
def test_shares_have_as_many_digits_as_the_target_needs():
    for unit in (1e-9, 1e6):
        model = TextRegressor(share=0.3).fit(X, unit * np.array([number_of(*r) for r in ROWS]))
        explanation = model.explain(TEXT)
        (line,) = [part for part in explanation.render().splitlines() if "| sum " in part]
        value = model.predict([TEXT])[0]
        assert float(line.split("|")[2]) == pytest.approx(value, rel=0.01)


def test_the_error_of_a_difference_of_root_mean_squares():
    """The oracle draws the texts anew."""
    rng = np.random.default_rng(3)
    truth = rng.normal(size=1500)
    guesses = [truth + rng.normal(size=1500) * scale for scale in (0.5, 0.55)]
    one, other = (Readings.of_outputs(np.zeros((1500, 0)), g[:, None]) for g in guesses)
    rows = rng.integers(0, 1500, (3000, 1500))
    roots = [np.sqrt(np.square(g - truth)[rows].mean(1)) for g in guesses]
    expected = (roots[1] - roots[0]).std()
    assert RealTarget(()).compare(truth, one, other) == pytest.approx(expected, rel=0.1)
    found = measure_numbers(truth, guesses[0])
    assert found["rmse_error"] == pytest.approx(roots[0].std(), rel=0.1)
    assert RealTarget(()).compare(guesses[0], one, one) == 0
    assert RealTarget(()).allow_loss({"rmse": 50.0}) == 0.5


@pytest.mark.slow
def test_a_column_of_numbers_names_the_task(tmp_path, capsys):
    write_csv(tmp_path / "n.csv", [(f"film {i}", f"{i / 3:.3f}") for i in range(40)])
    (tmp_path / "a.txt").write_text("__label__a __label__b x\n__label__c y\n" * 4)
    for name, more, task in (
        ("n.csv", [], "--task regression"),
        ("a.txt", ["--max-aside", "1"], "--task labels"),
    ):
        with pytest.raises(SystemExit):
            main(["train", str(tmp_path / name), "--out", str(tmp_path / "m"), *more])
        assert task in capsys.readouterr().err
    rows = [(f"film {i} {j}", i) for i in range(12) for j in range(6)]
    lines = []
    TextClassifier.train(rows, share=0.5, say=lines.append)
    assert any("the 12 classes are numbers: --task regression" in line for line in lines)


# thresholds of two classes -----------------------------------------------------------------------


def test_an_equal_probability_reaches_a_threshold_and_a_tie_of_grades_is_the_lower_one():
    half = readings([[0.5, 0.5]])
    for positive in (0, 1):
        assert ClassTarget(("bad", "good"), positive, 0.5).decide(half).tolist() == [positive]
    assert LabelTarget(("art", "sport"), (0.5, 0.6)).decide(half).tolist() == [[True, False]]
    assert OrdinalTarget(("1", "2")).decide(half).tolist() == [0]


@pytest.mark.slow
def test_a_threshold_of_two_classes_names_the_class(tmp_path, capsys):
    x, y = map(list, zip(*TEXTS, strict=True))
    model = TextClassifier(threshold={"bad": 0.999}, share=0.4).fit(x, y)
    chances = model.predict_proba(["film", *x])
    expected = np.where(chances[:, 0] >= 0.999, "bad", "good")
    assert model.predict(["film", *x]).tolist() == expected.tolist()
    (found,) = reasons(model, ["film"])
    assert found.probability == pytest.approx(float(chances[0, 1]))
    assert model.explain("film").label == "good"
    metrics = model.evaluate(list(zip(x, y, strict=True)))
    assert metrics["accuracy"] == model.score(x, y) == (expected[1:] == np.array(y)).mean()
    write_csv(tmp_path / "f.csv", TEXTS)
    folder, page = str(tmp_path / "c"), tmp_path / "p.html"
    args = ["train", str(tmp_path / "f.csv"), "--out", folder, "--share", "0.4"]
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
    (chance,) = TextClassifier.load(folder).predict_proba(["film"])[:, 1].tolist()
    for threshold, label in ((chance - 0.01, "good"), (chance + 0.01, "bad")):
        assert main(["predict", folder, "film", "--threshold", f"good={threshold}"]) == 0
        assert json.loads(capsys.readouterr().out)["label"] == label
    assert main(["explain", folder, "dull film"]) == 0
    assert main(["explain", folder, "dull film", "--html", str(page)]) == 0
    for shown in (capsys.readouterr().out, page.read_text()):
        assert "good is predicted if its probability is at least 0.2; the parts are exact." in shown


# options and scikit-learn ------------------------------------------------------------------------


@pytest.mark.slow
def test_scikit_learn_takes_the_models_and_their_predictions():
    numbers = np.array(NUMBERS)
    names = np.array(["sport" if "sport" in labels else "other" for labels in SETS])
    assert is_regressor(TextRegressor())
    assert is_classifier(MultiLabelTextClassifier())
    assert not hasattr(TextRegressor(), "predict_proba")
    log = TransformedTargetRegressor(TextRegressor(share=0.5), func=np.log1p, inverse_func=np.expm1)
    plain = TextRegressor(share=0.5).fit(X, np.log1p(numbers))
    np.testing.assert_array_equal(log.fit(X, numbers).predict(X), np.expm1(plain.predict(X)))
    stack = StackingClassifier([("a", TextClassifier(share=1.0))], cv=2).fit(X, names)
    assert stack.score(X, names) > 0.9
    assert set(stack.predict(X)) <= set(names)
    for model, y, least in (
        (TextRegressor(share=0.7), numbers, 0.6),
        (MultiLabelTextClassifier(share=0.3), Y[:, :2], 0.8),
    ):
        assert cross_val_score(model, X, y, cv=2).min() > least


@pytest.mark.slow
def test_columns_have_the_order_of_y_before_and_after_saving(tmp_path):
    names = ["sport", "money", "tech"]
    with pytest.warns(UserWarning, match="columns without a text"):
        model = MultiLabelTextClassifier(share=0.3).fit(X, Frame(Y, names))
    model.save(tmp_path / "m")
    again = MultiLabelTextClassifier.load(tmp_path / "m")
    for one in (model, again):
        assert one.classes_.tolist() == names
        assert (one.predict(X)[:, :2] == Y[:, :2]).mean() > 0.95
        for column in (0, 1):
            chances = one.predict_proba(X)[:, column]
            assert sklearn.metrics.roc_auc_score(Y[:, column], chances) > 0.95
    np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))
    path = tmp_path / "m" / "config.json"
    config = json.loads(path.read_text())
    assert config["columns"] == names
    (tmp_path / "m" / "SHA256SUMS").unlink()
    for columns in (["sport", "tech"], ["sport", "money", "money"], "sport"):
        path.write_text(json.dumps({**config, "columns": columns}))
        with pytest.raises(ValueError, match="must be a model that this version can read"):
            MultiLabelTextClassifier.load(tmp_path / "m")
    del config["columns"]
    path.write_text(json.dumps(config))
    assert MultiLabelTextClassifier.load(tmp_path / "m").classes_.tolist() == ["money", "sport"]


@pytest.mark.slow
def test_scorers_of_scikit_learn_take_grades_with_names(tmp_path):
    y = np.array([grade for _, grade in rows_of("ordinal", ROWS)])
    model = OrdinalTextClassifier(share=0.5, order=ORDER).fit(X, y)
    model.save(tmp_path / "m")
    for one in (model, OrdinalTextClassifier.load(tmp_path / "m")):
        assert one.classes_.tolist() == sorted(ORDER)
        assert one.order_.tolist() == ORDER
        chances = one.predict_proba(X)
        expected = sklearn.metrics.log_loss(y, chances, labels=one.classes_)
        assert expected < 0.7
        loss, area = map(sklearn.metrics.get_scorer, ("neg_log_loss", "roc_auc_ovr"))
        assert loss(one, X, y) == pytest.approx(-expected)
        assert area(one, X, y) > 0.9
        # The predicted grade is the median of the probabilities in the order of the grades.
        ordered = chances[:, [one.classes_.tolist().index(grade) for grade in ORDER]]
        medians = (1 - np.cumsum(ordered, 1)[:, :-1] > 0.5).sum(1)
        assert [ORDER[i] for i in medians] == one.predict(X).tolist()
    digits = OrdinalTextClassifier(share=0.5).fit(X, [str(8 + len(row)) for _, row in ROWS])
    assert digits.order_.tolist() == ["8", "9", "10", "11"]
    assert digits.classes_.tolist() == ["10", "11", "8", "9"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_class_that_loads_a_folder_is_named(folder, kind):
    noun = {"labels": "several labels", "regression": "a number", "ordinal": "a grade"}[kind]
    for other in {TextClassifier, *CLASSES.values()} - {CLASSES[kind]}:
        name = f"{CLASSES[kind].__name__}.load"
        said = refused(lambda other=other: other.load(folder / kind), name)
        assert noun in said or other is not TextClassifier


def test_scores_name_y(folder):
    model = TextRegressor.load(folder / "regression")
    labels = MultiLabelTextClassifier.load(folder / "labels")
    for given, parts in (
        (["1", "good"], "y|finite numbers|'good' at position 1"),
        ([1.0, None], "y|finite numbers"),
        ([1.0, 1.0], "y must have different numbers"),
    ):
        refused(lambda given=given: model.score(X[:2], given), parts)
    assert model.score(X[:2], ["1", "2"]) == model.score(X[:2], [1, 2])
    assert model.predict(X[:2]).dtype == np.float64
    assert labels.score([TEXT], [[" sport "]]) == 1
    refused(lambda: labels.score(X[:2], [["sport"], [None]]), "y must be labels|at position 1")
    for one in (model, labels):
        refused(lambda one=one: one.score([], []), "y must have at least one label, got none")
