"""Labels: one rule for every source, and no two that a reader cannot tell apart."""

import enum
import json
import types
import unicodedata
from fractions import Fraction
from http import HTTPStatus

import numpy as np
import pytest

from gatedjax import OrdinalTextClassifier, TextClassifier
from gatedjax.text import Prediction
from gatedjax.text.corpus._corpus import Numbers, read_corpus
from gatedjax.text.corpus._tagged import read_tagged
from gatedjax.text.estimators import _base as _estimator
from gatedjax.text.models._buckets import TextOutput
from gatedjax.text.models._tagging import word_probabilities
from gatedjax.text.sources._conll import open_sentences
from gatedjax.text.sources._labels import Classes
from gatedjax.text.sources._open import open_table

CAFE = "caf\u00e9"
APART = unicodedata.normalize("NFD", CAFE)
SPACES = ("", " ", "\t", "\u3000", "\u00a0")


class Colour(str, enum.Enum):  # noqa: UP042 (as text a StrEnum is its value)
    RED = " red"


def labels_of(data):
    return [record.label for record in open_table(data)]


def corpus_of(labels, classes=None):
    rows = [(f"word {i}", label) for i, label in enumerate(labels)]
    places = Classes("label", classes)
    return read_corpus(open_table(rows), Numbers(lowercase=True), places=places)


LABELS = [CAFE, APART, *(f"{space}bar{space}" for space in SPACES)]
FAST = [CAFE, APART, "bar", "bar\u3000", "bar\u00a0", "bar", "bar"]
TABLES = {
    "csv": ("text,label\n", 't{},"{}"\n', LABELS),
    "tsv": ("text\tlabel\n", "t{}\t{}\n", [label.strip("\t") for label in LABELS]),
    "jsonl": ("", '{{"text": "t{}", "label": {}}}\n', [json.dumps(label) for label in LABELS]),
    "txt": ("", "__label__{1} t{0}\n", FAST),
}


@pytest.mark.parametrize("source", [*TABLES, "folder", "rows", "dict"])
def test_a_label_is_composed_and_has_no_spaces_around_it_in_every_source(source, tmp_path):
    texts, data = [f"text {i}" for i in range(len(LABELS))], tmp_path / f"a.{source}"
    if source in TABLES:
        head, line, labels = TABLES[source]
        lines = [line.format(i, label) for i, label in enumerate(labels)]
        data.write_text(head + "".join(lines), encoding="utf-8")
    elif source == "folder":
        for name in (CAFE, APART, "bar", "bar ", " bar", "bar\u3000", "\u00a0bar"):
            (data / name).mkdir(parents=True)
            (data / name / "a.txt").write_text("a text")
    elif source == "rows":
        data = list(zip(texts, LABELS, strict=True))
    else:
        data = {"text": texts, "label": np.array(LABELS)}
    assert sorted(labels_of(data)) == ["bar"] * 5 + [CAFE] * 2


def test_a_label_of_fasttext_ends_where_fasttext_ends_it(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("__label__new\u00a0york a film\n__label__a\u3000b\tx y\n", encoding="utf-8")
    assert [(one.label, *one.inputs) for one in open_table(path)] == [
        ("new\u00a0york", "a film"), ("a\u3000b", "x y")
    ]  # fmt: skip


def test_scalars_of_numpy_and_members_of_enumerations_are_plain_labels():
    given = [np.int64(3), np.float32(0.5), np.bool_(True), np.str_(" a"), np.array(2), Colour.RED]
    given.append(HTTPStatus.OK)
    read = labels_of([("text", one) for one in given])
    assert read == [3, 0.5, True, "a", 2, "red", 200]
    assert list(map(type, read)) == [int, float, bool, str, int, str, int]
    reason = next(iter(open_table([("text", Fraction(1, 2))]))).reason
    assert reason == "label must be a text or a number, got Fraction Fraction(1, 2)"


ALIKE = [
    ((1, "1"), "'1' (str)", "1 (int)"),
    (("1", 1), "1 (int)", "'1' (str)"),
    ((1.0, "1"), "'1' (str)", "1.0 (float)"),
    (("1.0", 1), "1 (int)", "'1.0' (str)"),
    ((0.5, "0.5"), "'0.5' (str)", "0.5 (float)"),
    ((1, "1.0"), "'1.0' (str)", "1 (int)"),
    ((True, "TRUE"), "'TRUE' (str)", "True (bool)"),
    (("false", np.bool_(False)), "False (bool)", "'false' (str)"),
    (("new york", "new\u00a0york"), r"'new\xa0york' (str)", "'new york' (str)"),
    (("pos", "p\u200bos"), r"'p\u200bos' (str)", "'pos' (str)"),
    (("pos", "p\u00ados"), r"'p\xados' (str)", "'pos' (str)"),
    (("\u2764", "\u2764\ufe0f"), r"'\u2764\ufe0f' (str)", r"'\u2764' (str)"),
]


@pytest.mark.parametrize(("labels", "ours", "theirs"), ALIKE)
def test_labels_that_only_look_the_same_are_refused_with_their_types(labels, ours, theirs):
    with pytest.raises(ValueError) as caught:
        corpus_of([*labels, "other"] * 4)
    assert str(caught.value) == (
        f"rows:2: labels that look the same must be equal, got {ours}, and {theirs} in rows:1: "
        "write both in the same way"
    )
    with pytest.raises(ValueError) as caught:
        corpus_of([labels[1]], classes=(labels[0], "other"))
    assert f"got {ours}, which only looks like the class {theirs}: " in str(caught.value)


def test_labels_that_look_different_are_different():
    labels = ["1", "01", "1.0", "1.00", "True", "true", "pos", "Pos", 2, 2.5, "2.50"]
    assert set(corpus_of(labels * 3).classes) == set(labels)
    assert corpus_of([1, 1.0, np.float32(1), 2] * 3).classes == (1, 2)


def classifier(classes, predicted):
    """A trained classifier, of which only the classes and the predictions matter."""
    one = TextClassifier()
    made = [Prediction(label, 1.0, [], 1.0) for label in predicted]
    one._take(types.SimpleNamespace(classes=classes, report={}, predict=lambda texts: made))
    return one


TEXTS = ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("classes", "predicted", "y", "score"),
    [
        ((0, 1), (0, 1, 1, 0), np.array([0, 1, 1, 0]), 1.0),
        ((0, 1), (0, 1, 1, 0), [0.0, 1.0, 1.0, 2.0], 0.75),
        (("0", "1"), tuple("0110"), np.array(["0", "1", "1", "0"]), 1.0),
        ((1, "b"), (1, 1, 1, "b"), ["b", 1, 1, "b"], 0.75),  # an array would have texts alone
        ((1, "b"), (1, 1, 1, 1), [1, 1, 1, "b"], 0.75),
        ((CAFE, "bar"), (CAFE, CAFE, "bar", "bar"), [APART, f" {CAFE}", "bar", "bar "], 1.0),
        ((10**30, 0.5), (0.5, 10**30, 0.5, 0.5), [0.5, 10**30, 0.5, 0.5], 1.0),
        (("a ", "b"), ("a ", "b", "b", "b"), ["a", "a ", "b", "b"], 0.75),  # of an old model
    ],
)  # fmt: skip
def test_score_compares_labels_as_what_they_are(classes, predicted, y, score):
    assert classifier(classes, predicted).score(TEXTS, y) == score


@pytest.mark.parametrize(
    ("classes", "y", "message"),
    [
        (("0", "1"), [0, 1, 0, 1], "y:1: label must be a class of the model, got 0 (int), which "
         "only looks like the class '0' (str): give it as str"),
        ((0, 1), np.array(["1", "0", "0", "0"]), "y:1: label must be a class of the model"),
        ((0, 1), [0, True, False, 1], "y:2: labels must be only numbers or only true and "
         "false, because true equals 1, got True (bool) where other labels are numbers"),
        ((False, True), [False, True, 1, 0], "y:3: labels must be only numbers or only true"),
        ((0, 1), [0, 1, None, float("nan")], "y:3: no label"),
    ],
)  # fmt: skip
def test_score_refuses_labels_that_only_look_like_classes(classes, y, message):
    with pytest.raises(ValueError) as caught:
        classifier(classes, (classes[0],) * 4).score(TEXTS, y)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("labels", [(1, "b"), (True, "b"), (10**30, -1), (2**63, -1)])
def test_arrays_of_labels_keep_what_they_are(labels):
    one = classifier(labels, labels)
    for found in (one.predict(TEXTS).tolist(), one.classes_.tolist()):
        assert found == list(labels)
        assert list(map(type, found)) == list(map(type, labels))


def test_grades_are_sorted_by_value_and_ordered_as_they_are():
    one = OrdinalTextClassifier()
    one._take(types.SimpleNamespace(classes=("x", 10, 9), report={}))
    assert (one.classes_.tolist(), one.order_.tolist()) == ([9, 10, "x"], ["x", 10, 9])


@pytest.mark.parametrize("labels", [("a", "bc"), (0, 1), (0.5, 1)])
def test_arrays_of_labels_of_one_type_have_its_dtype(labels):
    one = classifier(labels, labels)
    for found in (one.predict(TEXTS), one.classes_):
        assert found.dtype == np.array(labels).dtype


def test_fit_warns_where_the_class_of_a_label_is_spelt_otherwise(tmp_path, monkeypatch):
    monkeypatch.setattr(_estimator, "train_any", lambda _, table, o, run, **more: [run, *table])
    one, taken, run = TextClassifier("ganet"), [], tmp_path / "run"
    monkeypatch.setattr(one, "_take", taken.extend)
    with pytest.warns(UserWarning, match=r"y has 'b ', which becomes the class 'b'"):
        one.fit(TEXTS, ["a", "b ", "b", "a"], workdir=run)
    assert [record.label for record in taken[1:]] == ["a", "b", "b", "a"]
    assert taken[0] == run


def test_tags_and_their_words_are_composed(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text(f"{APART}\tB-{APART}\nx\tO \n", encoding="utf-8")
    rows = [([APART, "x"], [f"B-{APART}", " O"])]
    for table in (open_sentences(path), open_sentences(rows)):
        (record,) = table
        assert (record.words, record.tags) == ((CAFE, "x"), (f"B-{CAFE}", "O"))
    rows = open_sentences([(["x", "y"], ["O", "O\u200b"])] * 3)
    with pytest.raises(ValueError, match=r"tags that look .* got 'O\\u200b' \(str\), and 'O'"):
        read_tagged(rows, Numbers(lowercase=True), longest=9)


def test_a_word_of_a_sentence_is_known_in_either_form():
    seen = []
    model = types.SimpleNamespace(
        max_len=9,
        read_tokens=lambda pieces: [
            seen.append(piece) or TextOutput((), np.eye(2), (), 1.0, None, None) for piece in pieces
        ],
    )  # fmt: skip
    word_probabilities(model, [(APART, "x")])
    assert seen == [((CAFE, "x"),)]


def test_classes_of_a_folder_that_are_equal_as_labels_are_refused():
    with pytest.raises(ValueError, match="classes must differ without outer spaces"):
        Classes("label", ["bar", " bar"])
