"""What commands, reports and pages say where a lexicon has nothing to go by."""

import dataclasses
import json
import random

import numpy as np
import pytest

from gatedjax import TextClassifier
from gatedjax.__main__ import main
from gatedjax.explore._engine import Explorer
from gatedjax.text._options import TextOptions
from gatedjax.text.answers._evaluation import evaluate_model
from gatedjax.text.answers._explain import explain
from gatedjax.text.fit._fit import train_any
from gatedjax.text.sources._open import open_table
from tests.explore._models import model as draw_model
from tests.explore._models import pair as draw_pair
from tests.text._own import reasons, write_csv
from tests.text.test_states import encode_static

NOTHING_KNOWN = "nothing of it was in the training texts"
NOTHING_READ = "none of its words from the training texts is read"
WORDS = {"shipping": ("parcel", "courier"), "billing": ("invoice", "refund"), "other": ("login",)}
SHARES = {"shipping": 0.5, "billing": 0.375, "other": 0.125}
NEUTRAL = ("hello", "please", "the", "today", "thanks")
UNKNOWN, CLOSED, LETTERS = "dull , lifeless film", "hello please", "the parcels refunded"


def make_rows(count=160, seed=0):
    """Tickets with a word of their class among words without a meaning, in the shares."""
    draw = random.Random(seed)
    labels = [label for label, share in SHARES.items() for _ in range(round(share * count))]
    draw.shuffle(labels)
    rows = []
    for label in labels:
        words = [draw.choice(WORDS[label]), *draw.choices(NEUTRAL, k=4)]
        draw.shuffle(words)
        rows.append((" ".join(words), label))
    return rows


ROWS = make_rows()
X, Y = map(list, zip(*ROWS, strict=True))
PRIOR = {"billing": 0.375, "other": 0.125, "shipping": 0.5}


@pytest.fixture(scope="module")
def fitted():
    return TextClassifier(share=0.2).fit(X, Y)


@pytest.fixture(scope="module")
def folder(fitted, tmp_path_factory):
    return fitted.save(tmp_path_factory.mktemp("prior") / "model")


def run(capsys, *args):
    """The lines of JSON that a command prints."""
    capsys.readouterr()
    assert main([str(arg) for arg in args]) == 0
    return list(map(json.loads, capsys.readouterr().out.splitlines()))


@pytest.mark.slow
def test_unknown_words_are_marked_and_counted_apart(fitted, folder, capsys, tmp_path):
    (line,) = run(capsys, "predict", folder, f"{LETTERS} parcel zzz")
    # The letters of the first two resemble known words, and nothing resembles the last.
    assert line["read"] == ["parcels", "refunded", "parcel"]
    assert line["unknown"] == ["parcels", "refunded", "zzz"]
    explanation = fitted.explain(f"{LETTERS} parcel zzz")
    assert explanation.to_json()["unknown"] == [False, True, True, False, True]
    shown = explanation.render()
    assert "3 of 5 words are read (60%), 2 of them unknown: by their letters only." in shown
    assert "| parcels (unknown) " in shown
    assert "| parcel  " in shown
    page = tmp_path / "p.html"
    assert main(["explain", str(folder), f"{LETTERS} parcel", "--html", str(page)]) == 0
    shown = page.read_text()
    assert shown.count('class="w unknown"') == 2
    assert "refunded (unknown)" in shown
    assert "Dotted" in shown
    # A text of unknown words is not read by its letters.
    (line,) = run(capsys, "predict", folder, LETTERS)
    assert (line["read"], line["note"]) == ([], NOTHING_READ)
    assert line["unknown"] == ["parcels", "refunded"]


def test_a_saved_model_reads_letters_alone_where_they_suffice(tmp_path):
    stems = [first + second for first in "bdgklmnprst" for second in ("ar", "el", "ov")]
    model = TextClassifier(share=1.0).fit(
        [stem + end for stem in stems for end in ("ski", "sen")], ["Poland", "Denmark"] * len(stems)
    )
    loaded = TextClassifier.load(model.save(tmp_path / "model"))
    assert list(loaded.predict(["wajski", "wajsen"])) == ["Poland", "Denmark"]
    assert "1 of them unknown: by their letters only." in loaded.explain("wajski").render()
    (line,) = (p.to_json() for p in reasons(loaded, ["42"]))
    assert (line["read"], line["note"]) == ([], NOTHING_KNOWN)


@pytest.mark.parametrize("text", [UNKNOWN, CLOSED, ""])
def test_the_explanation_of_the_prior_is_the_prior_alone(fitted, text):
    explanation = fitted.explain(text)
    reasons = explanation.reasons
    assert explanation.probabilities == PRIOR
    assert not any(explanation.read)
    assert not np.any(reasons.words)
    assert reasons.pairs == ()
    assert reasons.is_same
    np.testing.assert_allclose(reasons.prior, np.log(list(PRIOR.values())))
    assert {change.probability for change in explanation.removed} <= {0.5}
    shown = explanation.render()
    assert (NOTHING_READ if text == CLOSED else NOTHING_KNOWN) in shown.lower()
    assert "The probability of each class is its (weighted) frequency" in shown


@pytest.mark.slow
def test_the_reports_count_the_texts_that_are_not_read(folder, fitted, tmp_path, capsys):
    texts = [*ROWS[:20], *((f"{UNKNOWN} {i}", "other") for i in range(7)), (CLOSED, "billing")]
    path, out = write_csv(tmp_path / "test.csv", texts), tmp_path / "m.json"
    assert main(["evaluate", str(folder), str(path), "--out", str(out)]) == 0
    line = (
        "answered by the prior of the training texts, because no known word is read: 8 of 28 texts"
    )
    assert line in " ".join(capsys.readouterr().out.split())
    assert json.loads(out.read_text())["by_prior"] == 8
    said = []
    model = TextClassifier.train(ROWS, test=texts, share=0.2, say=said.append)
    assert model.report_["test"]["by_prior"] == 8
    assert line in said
    assert fitted.report_["validation"]["by_prior"] == 0


@pytest.mark.slow
def test_texts_that_are_not_read_are_no_evidence_for_the_temperature():
    held = make_rows(120, 1)
    for row in range(0, 120, 4):
        # Some labels are wrong, so that a temperature is used.
        held[row] = (held[row][0], "other")
    more = [*held, *((f"{UNKNOWN} {i}", "other") for i in range(200))]
    temperatures = [
        train_any(
            "text", open_table(ROWS), TextOptions(share=0.4), validation=open_table(rows)
        ).report["temperature"]
        for rows in (held, more)
    ]
    assert temperatures[0] == temperatures[1] > 1


def test_a_model_of_vectors_has_the_frequencies_for_a_text_without_a_token():
    model = TextClassifier(encoder=encode_static, share=0.3).fit(X, Y)
    chances = model.predict_proba([X[0], "", X[1]])
    np.testing.assert_array_equal(chances[1], list(PRIOR.values()))
    (empty,) = reasons(model, [""])
    assert (empty.label, empty.read, empty.note) == ("shipping", [], NOTHING_KNOWN)
    assert model.score([X[0], ""], [Y[0], "shipping"]) == 1.0
    explanation = model.explain("")
    assert explanation.probabilities == PRIOR
    np.testing.assert_allclose(explanation.reasons.prior, np.log(list(PRIOR.values())))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ganet", "agt"])
def test_an_untrained_network_answers_a_text_without_a_word_by_its_prior(name):
    model = dataclasses.replace(draw_model(name), prior=(0.25, 0.75))
    texts = [("a dull film",), ("",), (" \t",), ("a film",), ("\x00",)]
    chances = model.probabilities(texts)
    np.testing.assert_array_equal(chances[[1, 2, 4]], [[0.25, 0.75]] * 3)
    np.testing.assert_array_equal(chances[[0, 3]], model.probabilities([texts[0], texts[3]]))
    first, empty, *_ = model.predict(texts)
    assert (empty.label, empty.probability, empty.read) == ("good", 0.75, [])
    assert (empty.share, empty.note, first.note) == (0, NOTHING_KNOWN, "")
    explanation = explain(model, ("",))
    assert explanation.probabilities == {"bad": 0.25, "good": 0.75}
    np.testing.assert_allclose(explanation.reasons.prior, np.log([0.25, 0.75]))
    metrics = evaluate_model(model, open_table([("\x01", "good"), ("a film", "bad")]))
    assert (metrics["n"], metrics["by_prior"], metrics["aside"]) == (2, 1, 0)


def test_a_pair_with_an_empty_text_has_the_frequencies():
    model = dataclasses.replace(draw_pair("ssan"), prior=(0.5, 0.3, 0.2))
    half = ("a dull film", "")
    np.testing.assert_array_equal(
        model.probabilities([half, ("", ""), ("", "film")]), np.float32([model.prior] * 3)
    )
    explanation = explain(model, half)
    assert (explanation.label, explanation.read) == ("entailed", (False,) * 3)
    assert {change.probability for change in explanation.removed} == {explanation.probability}
    assert "A text of the pair has no word." in explanation.render()
    (line,) = model.predict([half])
    assert (line.note, line.read) == ("a text of the pair has no word", [[], []])


def test_the_explorer_marks_unknown_words_and_has_the_note(fitted):
    shown = Explorer([fitted.model_], ["lexicon"])
    (one,) = shown.answer({"text": f"{LETTERS} parcel"})["models"]
    assert one["lines"][0]["known"] == [True, False, False, True]
    assert "2 of them unknown: by their letters only." in one["note"]
    (one,) = shown.answer({"text": UNKNOWN})["models"]
    assert one["probabilities"] == list(PRIOR.values())
    assert NOTHING_KNOWN in one["note"].lower()


@pytest.mark.slow
def test_a_share_that_leaves_texts_to_the_prior_is_not_chosen():
    """With the words of one class alone the prior would be right for the other, by chance."""
    texts = [f"{word} film{i % 7}" for i in range(120) for word in ("dull", "fine", "fine")]
    model = TextClassifier().fit(texts, ["bad" if "dull" in text else "good" for text in texts])
    assert model.report_["validation"]["by_prior"] == 0
    for text, label in (("fine stage", "good"), ("dull stage", "bad")):
        assert (model.predict([text])[0], model.explain(text).read) == (label, (True, False))
