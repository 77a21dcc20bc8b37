"""`model="linear"`: logistic regression on all words and letters, from training to the explorer."""

import json

import pytest

from gatedjax import (
    MultiLabelTextClassifier,
    OrdinalTextClassifier,
    TextClassifier,
    TextRegressor,
)
from gatedjax.__main__ import main
from gatedjax.explore._engine import open_model, view_of
from gatedjax.explore._state import State
from tests.text._own import TEXTS, X, Y, write_csv

QUERIES = ["dull old film here", "warm and new, here", "xyzzy", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("linear")
    write_csv(place / "films.csv", TEXTS)
    args = ["train", str(place / "films.csv"), "--test", str(place / "films.csv")]
    assert main([*args, "--model", "linear", "--out", str(place / "model")]) == 0
    return place / "model"


def test_it_is_trained_saved_and_loaded_like_a_lexicon(folder, tmp_path):
    fitted = TextClassifier(model="linear").fit(X, Y)
    assert fitted.score(X, Y) == 1
    again = TextClassifier.load(fitted.save(tmp_path / "again"))
    assert again.model == "linear"
    assert (again.predict_proba(QUERIES) == fitted.predict_proba(QUERIES)).all()
    report = json.loads((folder / "report.json").read_text())
    assert report["share"] == report["test"]["share"] == 1
    assert report["test"]["accuracy"] == 1
    assert "same_answer" not in report["test"]
    assert not (folder / "curve.svg").exists()
    assert "tags: [jax" not in (folder / "README.md").read_text()


def test_it_says_that_all_words_are_read(folder, capsys):
    assert main(["predict", str(folder), "dull old film here", "--reasons"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert (line["label"], line["read"], line["share"]) == (
        "bad",
        ["dull", "old", "film", "here"],
        1,
    )
    assert line["reasons"][0]["words"] == "dull"
    assert main(["explain", str(folder), "dull old film here"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "4 words, all of them read. A linear model reads all words of a text." in shown
    assert "read alone" not in shown
    assert main(["explain", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("All words are read; ")
    assert main(["evaluate", str(folder), str(folder.parent / "films.csv")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "100% of the words are read" in " ".join(shown.split())
    assert "a linear model leaves no word of a text out" in shown


def test_the_explorer_shows_its_parts(folder):
    view = view_of(open_model(folder), "model")
    assert "linear model" in view.network
    _, answer = view.answer(State(text="dull old film here"))
    assert answer["title"] == "bad"
    assert answer["lines"][0]["read"] == [True] * 4
    assert answer["lines"][0]["note"].startswith("All words are read;")
    assert "A linear model reads all words" in answer["note"]
    assert view.example()["text"]


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        (MultiLabelTextClassifier, [[label] for label in Y]),
        (TextRegressor, [1.0 if label == "bad" else 2.0 for label in Y]),
        (OrdinalTextClassifier, [1 if label == "bad" else 2 for label in Y]),
    ],
)
def test_it_has_all_tasks(kind, labels, tmp_path):
    model = kind("linear").fit(X, labels)
    assert model.score(X, labels) > 0.9
    again = kind.load(model.save(tmp_path / "model"))
    assert (again.predict(QUERIES) == model.predict(QUERIES)).all()
    explanation = again.explain("dull old film here")
    assert len(explanation.reasons.words) == 4
