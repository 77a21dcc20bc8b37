"""Faults of targets that were found by attacks: wrong answers without a word, and messages."""

import dataclasses
import json

import numpy as np
import pytest

from gatedjax import MultiLabelTextClassifier, OrdinalTextClassifier, TextRegressor
from gatedjax.__main__ import main
from gatedjax.export import BadFile
from gatedjax.lexicon import Readings
from gatedjax.text import TextClassifier
from gatedjax.text._options import TextOptions
from gatedjax.text.answers._prediction import ORDINAL
from gatedjax.text.corpus._corpus import are_numbers, note_joined_labels
from gatedjax.text.targets._class import ClassTarget
from gatedjax.text.targets._grades import OrdinalTarget
from gatedjax.text.targets._labels import LabelTarget
from tests.text._own import TEXTS, X, Y, write_csv
from tests.text.test_states import encode_static


def run(args, code=None):
    """Runs the program; `code` is the status of a refusal."""
    if code is None:
        assert main([str(arg) for arg in args]) == 0
        return
    with pytest.raises(SystemExit) as stopped:
        main([str(arg) for arg in args])
    assert stopped.value.code == code


def readings_of(*probabilities):
    rows = np.array(probabilities)
    gates = [np.array([True])] * len(rows)
    return Readings.of_outputs(rows, np.log(rows))._replace(
        is_read=gates, is_known=gates, notes=[""] * len(rows)
    )


def test_the_most_probable_class_is_part_of_a_prediction():
    grades = OrdinalTarget(("1", "2", "3"))
    # The median is 2, and 3 is more probable.
    readings = readings_of([0.35, 0.2, 0.45], [0.2, 0.6, 0.2])
    assert grades.kind == ORDINAL
    first, second = (grades.predict(readings.take(row), ["a"]) for row in (0, 1))
    assert (first.label, first.probability, first.most_probable) == ("2", 0.2, ("3", 0.45))
    assert (second.label, second.most_probable) == ("2", None)
    assert ClassTarget((1, 2)).with_threshold({"2": 0.3}).positive == 1  # as a command has it
    classes = ClassTarget(("ham", "spam")).with_threshold({"spam": 0.3})
    prediction = classes.predict(readings_of([0.6, 0.4]), ["a"])
    assert (prediction.label, prediction.most_probable) == ("spam", ("ham", 0.6))
    assert "most_probable" not in prediction.to_json()


@pytest.mark.parametrize("grade", ["nan", "inf", "1_0", float("nan")])
def test_grades_must_be_finite_numbers(grade, tmp_path, capsys):
    labels = ["1", "2", grade]
    with pytest.raises(ValueError, match=f"must be different numbers, all finite.* got {grade}"):
        OrdinalTarget.of_labels(labels, [1, 1, 1], TextOptions())
    with pytest.raises(ValueError, match=r"must be different numbers.* got 1,1\.0,2:"):
        OrdinalTarget.of_labels(["1", "1.0", 2], [1, 1, 1], TextOptions())
    named = OrdinalTarget.of_labels(labels, [1, 1, 1], TextOptions(order=[grade, "1", "2"]))
    assert named.classes[1:] == ("1", "2")
    assert OrdinalTarget.of_labels(["10", "-2.5", 3], [1, 1, 1], TextOptions()).classes == (
        "-2.5",
        3,
        "10",
    )


@pytest.mark.parametrize(
    ("order", "action"),
    [
        ("low high", "got low, high: add 'mid'"),
        ("low mid mid high", "got low, mid, mid, high: leave out or name once 'mid'"),
        ("low mid top", "got low, mid, top: add 'high', and leave out or name once 'top'"),
    ],
)
def test_an_order_of_other_grades_names_the_difference(order, action):
    options = TextOptions(order=order.split())
    with pytest.raises(ValueError, match="order must have each label of the texts once") as error:
        OrdinalTarget.of_labels(["low", "high", "mid"], [1, 1, 1], options)
    assert str(error.value).endswith(action)


def write_labels(path, rows):
    with path.open("w", encoding="utf-8") as file:
        for text, labels in rows:
            file.write(json.dumps({"text": text, "label": labels}) + "\n")


@pytest.mark.slow
def test_labels_that_training_leaves_out_are_named_and_saved(tmp_path, capsys):
    rows = [(text, [label]) for text, label in TEXTS]
    rows[0][1].append("rare")
    rows[7][1].append("rare")
    rows[9][1].append("odd")
    write_labels(tmp_path / "films.jsonl", rows)
    data, model = tmp_path / "films.jsonl", tmp_path / "model"
    trained = MultiLabelTextClassifier.train(data, test=data, min_class=3, say=print)
    trained.save(model)
    assert "labels with too few texts (min_class) left out: 'odd' 1, 'rare' 2" in (
        capsys.readouterr().out
    )
    report = json.loads((model / "report.json").read_text())
    run(["evaluate", model, data, "--out", tmp_path / "metrics.json"])
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["unknown"] == []
    assert metrics["micro_f1"] == report["test"]["micro_f1"]
    assert metrics["subset_accuracy"] == report["test"]["subset_accuracy"]


def test_left_out_labels_in_a_folder_are_checked():
    target = LabelTarget(("a", "b"), (0.5, 0.5), left_out=frozenset([3, "c"]))
    value = json.loads(json.dumps(target.decision_to_json()))
    assert value["left_out"] == [3, "c"]
    assert LabelTarget(("a", "b")).with_decision(value) == target
    for wrong in ("c", [["c"]], {"c": 1}):
        with pytest.raises(ValueError, match="left_out must be a list of labels, got"):
            LabelTarget(("a", "b")).with_decision(value | {"left_out": wrong})
    with pytest.raises(ValueError, match="must have 2 numbers"):
        LabelTarget(("a", "b")).with_decision({"thresholds": [0.5]})


def test_the_class_of_a_threshold_in_a_folder_is_one_of_two():
    decision = {"positive": -1, "threshold": 0.5}
    with pytest.raises(ValueError, match="positive must be 0 or 1 for two classes, got -1"):
        ClassTarget(("a", "b")).with_decision(decision)
    with pytest.raises(ValueError, match="positive must be 0 or 1 for two classes, got 1"):
        ClassTarget(("a", "b", "c")).with_decision(decision | {"positive": 1})


JOINED = (
    "labels with several labels in a cell ({}) count as single labels: for several labels of a "
    "text give a list in .jsonl, or __label__a __label__b in .txt, with --task labels"
)


@pytest.mark.slow
def test_training_notes_labels_that_look_like_something_else():
    forms = ("good;bad", "good | bad", "good, bad", "['good', 'bad']", '["good"]', "[]", "[0, 1]")
    for form in forms:
        assert note_joined_labels([(form, "bad"), "good"]) == JOINED.format(repr(form))
    assert note_joined_labels(["good", "[PER]", "good;odd"]) is None
    for labels, note in (
        (("good;bad", "bad", "good"), JOINED.format("'good;bad'")),
        (("good", "[PER]"), None),
        (range(12), "the 12 labels are numbers: --task regression predicts the number, and "
         "--task ordinal a grade (TextRegressor, OrdinalTextClassifier)"),
    ):  # fmt: skip
        rows = [(text, labels[i % len(labels)]) for i, (text, _) in enumerate(TEXTS)]
        said = []
        MultiLabelTextClassifier.train(rows, share=0.5, say=said.append)
        lines = [line for line in said if "in a cell" in line or "are numbers" in line]
        assert lines == [note] * (note is not None)


def test_validation_texts_must_have_a_label(tmp_path, capsys):
    write_labels(tmp_path / "films.jsonl", [(text, [label]) for text, label in TEXTS])
    args = ["train", tmp_path / "films.jsonl", "--task", "labels", "--out", tmp_path / "model"]
    for labels in ([], ["unknown"]):
        write_labels(tmp_path / "other.jsonl", [(text, labels) for text in X])
        run([*args, "--validation", tmp_path / "other.jsonl"], 2)
        printed = " ".join(capsys.readouterr().err.split())
        assert "the validation texts must have a label of the training texts" in printed
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
def test_a_number_has_the_usual_notation(tmp_path, capsys):
    rows = [(text, f"{len(text)}.5") for text, _ in TEXTS]
    write_csv(tmp_path / "lengths.csv", [*rows, ("an old film", "1_0"), ("a new film", " 1e1 ")])
    args = ["train", tmp_path / "lengths.csv", "--task", "regression", "--max-aside", 0.1]
    run([*args, "--out", tmp_path / "model"])
    error = capsys.readouterr().err
    assert "label must be a number, got '1_0'" in error
    assert "1e1" not in error
    model = TextRegressor.load(tmp_path / "model")
    metrics = model.evaluate([("an old film", "1e1"), ("a new film", " 10 ")])
    assert metrics["n"] == 2
    with pytest.raises(ValueError, match="y must be finite numbers, got '1_0' at position 0"):
        model.score(X[:2], ["1_0", "10"])
    for text in ("1_0", "3,5", "1,000"):
        assert not are_numbers(["1", text])


@pytest.mark.slow
def test_rows_of_a_single_0_or_1_are_no_lists_of_labels(tmp_path):
    column = [[int(label == "bad")] for label in Y]
    model = MultiLabelTextClassifier(share=0.5).fit(X, np.array(column))
    assert model.classes_.tolist() == [0]
    np.testing.assert_array_equal(model.predict(X), column)
    with pytest.raises(ValueError, match="give np"):
        model.score(X, column)
    assert model.score(X, np.array(column)) == 1
    # An array with a column for each of two labels, of which each text has exactly one.
    pair = np.array([[1 - row[0], row[0]] for row in column])
    both = MultiLabelTextClassifier(share=0.5).fit(X, pair)
    assert both.classes_.tolist() == [0, 1]
    assert both.score(X, pair) == 1
    np.testing.assert_array_equal(both.predict(X), pair)
    # Other integers, the texts "0" and "1", and the numbers 0 and 1 beside other lists are names.
    for zero, one, more in ((3, 10, []), ("0", "1", []), (0, 1, [0])):
        names = [[*more, one] if label == "bad" else [zero] for label in Y]
        names[-1] = [] if more else names[-1]
        named = MultiLabelTextClassifier(share=0.5).fit(X, names)
        assert named.classes_.tolist() == [zero, one]
        assert named.score(X, names) > 0.97


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "y"),
    [
        (lambda **options: TextClassifier(threshold={"bad": 0.7}, **options), Y),
        (lambda **options: TextClassifier(encoder=encode_static, **options), Y),
        (
            lambda **options: MultiLabelTextClassifier(threshold=0.4, **options),
            [[label] for label in Y],
        ),
        (lambda **options: OrdinalTextClassifier(order=["good", "bad"], **options), Y),
    ],
)
def test_a_loaded_model_has_the_parameters_of_its_training(make, y, tmp_path):
    model = make(share=0.5, min_class=3, held_out=0.25, seed=7)
    model.fit(X, y).save(tmp_path / "model")
    again = type(model).load(tmp_path / "model", encoder=model.encoder)
    assert again.get_params() == model.get_params()
    # A second folder, of a loaded model, has them too.
    again.save(tmp_path / "again")
    assert type(model).load(tmp_path / "again", encoder=model.encoder).get_params() == (
        model.get_params()
    )


def test_folders_with_unknown_and_with_damaged_options(tmp_path):
    model = TextClassifier(share=0.4, threshold={"bad": 0.7}).fit(X, Y)

    def load(options):
        folder = tmp_path / "model"
        changed = dataclasses.replace(model.model_, options=options)
        changed.save(folder, overwrite=True)
        return TextClassifier.load(folder)

    assert load({**model.model_.options, "of_tomorrow": 1}).share == 0.4
    for wrong in (3, {"threshold": [3]}):
        with pytest.raises(BadFile, match="must be"):
            load(wrong)
