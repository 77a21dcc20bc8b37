"""Faults of targets that were found by attacks: wrong answers without a word, and messages."""

import json

import numpy as np
import pytest
from scipy.special import expit

from gatedjax.__main__ import main
from gatedjax._commands._thresholds import parse_thresholds
from gatedjax.lexicon import Readings
from gatedjax.text import TextClassifier, save_states
from gatedjax.text._prediction import ORDINAL
from gatedjax.text._states import encode_texts
from gatedjax.text._target_corpus import note_joined_labels
from gatedjax.text._target_metrics import label_metrics, render_unknown
from gatedjax.text._targets import (
    ClassTarget,
    LabelTarget,
    OrdinalTarget,
    TargetOptions,
)
from tests.text._own import TEXTS, write_csv

X, Y = map(list, zip(*TEXTS, strict=True))


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
    empty = np.zeros(len(rows), bool)
    gates = [np.array([True])] * len(rows)
    return Readings(rows, gates, rows.argmax(1), empty, np.log(rows))


def test_the_most_probable_class_is_part_of_a_prediction():
    grades = OrdinalTarget(("1", "2", "3"))
    # The median is 2, and 3 is more probable.
    readings = readings_of([0.35, 0.2, 0.45], [0.2, 0.6, 0.2])
    assert grades.kind == ORDINAL
    first, second = (grades.predict(readings, row, ["a"], "") for row in (0, 1))
    assert (first.label, first.probability, first.most_probable) == ("2", 0.2, ("3", 0.45))
    assert (second.label, second.most_probable) == ("2", None)
    classes = ClassTarget(("ham", "spam")).with_threshold({"spam": 0.3})
    prediction = classes.predict(readings_of([0.6, 0.4]), 0, ["a"], "")
    assert (prediction.label, prediction.most_probable) == ("spam", ("ham", 0.6))
    assert "most_probable" not in prediction.to_json()


def test_a_label_with_an_underscore_is_no_number(tmp_path, capsys):
    path = write_csv(tmp_path / "prices.csv", [("a film", "1_0"), ("b film", "-2.5"), ("c", "3")])
    run(["look", path, "--task", "regression", "--max-aside", 1])
    said = capsys.readouterr().out
    assert "prices.csv:2: label must be a number, got '1_0'" in said
    assert "prices.csv: 2 texts with numbers from -2.5 to 3" in said


def test_abstain_asks_the_most_probable_class(tmp_path, capsys):
    write_csv(tmp_path / "films.csv", TEXTS)
    run(["train", tmp_path / "films.csv", "--out", tmp_path / "model"])
    texts, limit = ["dull film"], 0.6
    capsys.readouterr()
    run(["predict", tmp_path / "model", *texts])
    plain = json.loads(capsys.readouterr().out)
    assert plain["label"] == "bad"
    assert plain["probability"] >= limit
    # The threshold predicts "good", whose probability is below the limit; "bad" reaches it.
    options = ["--threshold", "good=0.0001", "--abstain", limit]
    for more in ([], ["--reasons"]):
        run(["predict", tmp_path / "model", *texts, *options, *more])
        line = json.loads(capsys.readouterr().out)
        assert line["label"] == "good"
        assert line["probability"] < limit
        assert "note" not in line
    run(["predict", tmp_path / "model", *texts, *options[:2], "--abstain", 1])
    line = json.loads(capsys.readouterr().out)
    assert line["label"] is None
    assert line["note"].endswith("the most probable is bad")


@pytest.mark.parametrize("grade", ["nan", "inf", "1_0", float("nan")])
def test_grades_must_be_finite_numbers(grade, tmp_path, capsys):
    labels = ["1", "2", grade]
    with pytest.raises(ValueError, match=f"must be different numbers, all finite.* got {grade}"):
        OrdinalTarget.of_labels(labels, [1, 1, 1], TargetOptions())
    named = OrdinalTarget.of_labels(labels, [1, 1, 1], TargetOptions(order=[grade, "1", "2"]))
    assert named.classes[1:] == ("1", "2")
    assert OrdinalTarget.of_labels(["10", "-2.5", 3], [1, 1, 1], TargetOptions()).classes == (
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
    options = TargetOptions(order=order.split())
    with pytest.raises(ValueError, match="order must have each label of the texts once") as error:
        OrdinalTarget.of_labels(["low", "high", "mid"], [1, 1, 1], options)
    assert str(error.value).endswith(action)


def test_a_label_has_a_single_threshold(tmp_path, capsys):
    with pytest.raises(ValueError, match="threshold must have a single number for each label, got"):
        parse_thresholds(["sport=.3", "money=.2", "sport=.4"])
    assert parse_thresholds(["a=.3", "b=.3"]) == {"a": 0.3, "b": 0.3}


def write_labels(path, rows):
    with path.open("w", encoding="utf-8") as file:
        for text, labels in rows:
            file.write(json.dumps({"text": text, "label": labels}) + "\n")


def test_labels_that_training_leaves_out_are_named_and_saved(tmp_path, capsys):
    rows = [(text, [label]) for text, label in TEXTS]
    rows[0][1].append("rare")
    rows[7][1].append("rare")
    rows[9][1].append("odd")
    write_labels(tmp_path / "films.jsonl", rows)
    data, model = tmp_path / "films.jsonl", tmp_path / "model"
    common = [data, "--task", "labels", "--min-class", 3]
    run(["train", *common, "--test", data, "--out", model])
    assert "labels with too few texts (min_class) left out: 'odd' 1, 'rare' 2" in (
        capsys.readouterr().err
    )
    report = json.loads((model / "report.json").read_text())
    run(["evaluate", model, data, "--out", tmp_path / "metrics.json"])
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["unknown"] == []
    assert metrics["micro_f1"] == report["test"]["micro_f1"]
    assert metrics["subset_accuracy"] == report["test"]["subset_accuracy"]
    capsys.readouterr()
    run(["look", *common])
    assert "leaves out: odd 1, rare 2" in capsys.readouterr().out


def test_left_out_labels_in_a_folder_are_checked():
    target = LabelTarget(("a", "b"), (0.5, 0.5), left_out=frozenset([3, "c"]))
    value = json.loads(json.dumps(target.decision_to_json()))
    assert value["left_out"] == [3, "c"]
    assert LabelTarget(("a", "b")).with_decision(value) == target
    # The folders of earlier versions have no labels that were left out.
    assert LabelTarget(("a", "b")).with_decision({"thresholds": [0.5, 0.5]}).left_out == frozenset()
    for wrong in ("c", [["c"]], {"c": 1}):
        with pytest.raises(ValueError, match="left_out must be a list of labels, got"):
            LabelTarget(("a", "b")).with_decision(value | {"left_out": wrong})


def encode(texts):
    return [
        (text.split(), np.array([[len(w), float(expit(len(w))), ord(w[0])] for w in text.split()]))
        for text in texts
    ]


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """A folder with a model of states, its texts, and the states of other texts."""
    place = tmp_path_factory.mktemp("states")
    write_csv(place / "films.csv", TEXTS)
    save_states(place / "films.npz", encode(X))
    other = [" ".join(f"other{i}" for i in range(len(text.split()))) for text in X]
    save_states(place / "other.npz", encode(other))
    args = ["train", place / "films.csv", "--states", place / "films.npz", "--density", "0.5"]
    run([*args, "--out", place / "model"])
    return place


def test_evaluate_asks_about_the_states_of_other_texts(states, capsys):
    run(["evaluate", states / "model", states / "films.csv", "--states", states / "films.npz"])
    assert "of the tokens occur in the texts" not in capsys.readouterr().err
    run(["evaluate", states / "model", states / "films.csv", "--states", states / "other.npz"])
    assert "only 0% of the tokens occur in the texts" in capsys.readouterr().err


def test_states_are_for_the_model_of_states(states, tmp_path, capsys):
    data = ["train", states / "films.csv", "--out", tmp_path / "new"]
    run([*data, "--states", states / "films.npz", "--model", "lexicon"], 2)
    assert "--model must be states with --states, got lexicon" in capsys.readouterr().err
    run([*data, "--model", "states"], 2)
    printed = " ".join(capsys.readouterr().err.split())
    assert "there is no encoder: give --states FILE" in printed
    assert "encoder=" not in printed
    run([*data, "--states", states / "films.npz", "--test", states / "films.csv"], 2)
    printed = " ".join(capsys.readouterr().err.split())
    assert "give --test-states FILE" in printed
    assert "encoder=" not in printed
    assert not (tmp_path / "new").exists()


def test_an_encoder_without_results_is_named():
    with pytest.raises(
        ValueError, match=r"encoder must return a list .* got NoneType for 'a film'"
    ):
        list(encode_texts(lambda texts: None, ["a film"]))
    with pytest.raises(ValueError, match="encoder must give vectors of real numbers, got complex"):
        list(encode_texts(lambda texts: [(["a"], np.ones((1, 2), complex))], ["a film"]))
    with pytest.raises(ValueError, match="encoder must return a list"):
        TextClassifier(encoder=lambda texts: None).fit(X, Y)


@pytest.mark.parametrize("form", ["{}", "{};{}", "{} | {}", "{}, {}", "['{}', '{}']", '["{}"]'])
@pytest.mark.parametrize("task", ["text", "labels"])
def test_several_labels_in_a_cell_are_noticed(form, task, tmp_path, capsys):
    rows = [(text, form.format(label, "bad") if i % 5 == 0 else label)
            for i, (text, label) in enumerate(TEXTS)]  # fmt: skip
    write_csv(tmp_path / "films.csv", rows)
    run(["look", tmp_path / "films.csv", "--task", task])
    printed = capsys.readouterr().out
    assert ("several labels in a cell" in printed) == (form != "{}")


def test_training_names_several_labels_in_a_cell(tmp_path, capsys):
    rows = [(text, "good; bad" if i % 4 == 0 else label) for i, (text, label) in enumerate(TEXTS)]
    write_csv(tmp_path / "films.csv", rows)
    run(["train", tmp_path / "films.csv", "--task", "labels", "--out", tmp_path / "model"])
    printed = capsys.readouterr().err
    assert "several labels in a cell ('good; bad') count as single labels" in printed
    assert note_joined_labels([1, 2.5, "a,b", "a"]) is None
    assert note_joined_labels(["[PER]", "[a]", "a | b", "a"]) is None
    for label in ("[]", "[0, 1]", "[1. 0.]"):
        assert repr(label) in note_joined_labels([label, "a"])
    assert note_joined_labels([("a", "b"), ("a;b",), ()]) is not None


def test_many_numbers_as_labels_name_the_tasks_of_numbers(tmp_path, capsys):
    write_csv(tmp_path / "films.csv", [(text, i % 12) for i, (text, _) in enumerate(TEXTS)])
    run(["train", tmp_path / "films.csv", "--task", "labels", "--out", tmp_path / "model"])
    assert "the 12 labels are numbers: --task regression predicts the number" in (
        capsys.readouterr().err
    )


def test_validation_texts_must_have_a_label(tmp_path, capsys):
    write_labels(tmp_path / "films.jsonl", [(text, [label]) for text, label in TEXTS])
    args = ["train", tmp_path / "films.jsonl", "--task", "labels", "--out", tmp_path / "model"]
    for labels in ([], ["unknown"]):
        write_labels(tmp_path / "other.jsonl", [(text, labels) for text in X])
        run([*args, "--validation", tmp_path / "other.jsonl"], 2)
        printed = " ".join(capsys.readouterr().err.split())
        assert "the validation texts must have a label of the training texts" in printed
    assert not (tmp_path / "model").exists()


def test_the_sentence_about_unknown_labels_excepts_the_macro_f1():
    targets = np.array([[True, True], [True, False]])
    metrics = label_metrics(targets, targets[:, :1], ["a"], ["tea"])
    assert metrics["macro_f1"] == 1.0
    assert metrics["micro_f1"] < 1.0
    assert render_unknown(metrics["unknown"]).endswith("the macro F1 is the mean without them")
