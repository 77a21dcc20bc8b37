"""What commands, reports and pages say where a lexicon has nothing to go by."""

import dataclasses
import io
import json
import random
import sys

import numpy as np
import pytest

from gatedjax import (
    MultiLabelTextClassifier,
    OrdinalTextClassifier,
    PairClassifier,
    TextClassifier,
    TextRegressor,
)
from gatedjax.__main__ import main
from gatedjax.explore._engine import Explorer
from gatedjax.text._lexicon_training import train_lexicon
from gatedjax.text._options import TextOptions
from gatedjax.text._read import open_table
from tests.explore._models import model as draw_model
from tests.text._own import PAIRS, options, reasons, write_csv
from tests.text.test_states import encode_static

NOTHING_KNOWN = "nothing of it was in the training texts"
NOTHING_READ = "none of its words from the training texts is read"
WORDS = {"shipping": ("parcel", "courier"), "billing": ("invoice", "refund"), "other": ("login",)}
SHARES = {"shipping": 0.5, "billing": 0.375, "other": 0.125}
NEUTRAL = ("hello", "please", "the", "today", "thanks")
UNKNOWN, CLOSED, LETTERS = "dull , lifeless film", "hello please", "the parcels invoiced"


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
    return TextClassifier(density=0.2).fit(X, Y)


@pytest.fixture(scope="module")
def folder(fitted, tmp_path_factory):
    return fitted.save(tmp_path_factory.mktemp("prior") / "model")


def run(capsys, *args):
    """The lines of JSON that a command prints."""
    capsys.readouterr()
    assert main([str(arg) for arg in args]) == 0
    return list(map(json.loads, capsys.readouterr().out.splitlines()))


def test_texts_without_a_known_word_that_is_read_get_the_frequencies_and_a_note(
    fitted, folder, capsys
):
    texts = [UNKNOWN, CLOSED, "", f"{CLOSED} {UNKNOWN}", X[0]]
    lines = run(capsys, "predict", folder, *texts)
    notes = [NOTHING_KNOWN, NOTHING_READ, NOTHING_KNOWN, NOTHING_READ]
    for line, note in zip(lines, notes, strict=False):
        assert (line["label"], line["probability"]) == ("shipping", 0.5)
        assert (line["kept"], line["density"], line["note"]) == ([], 0, note)
    unknown = UNKNOWN.split()
    assert [line.get("unknown", []) for line in lines] == [unknown, [], [], unknown, []]
    assert "note" not in lines[-1]
    assert lines[-1]["kept"]
    for chances in fitted.predict_proba(texts[:4]):
        assert dict(zip(fitted.classes_, chances.tolist(), strict=True)) == PRIOR


def test_an_empty_text_does_not_break_a_batch(fitted):
    texts, labels = [X[0], "", " ", X[1]], [Y[0], "shipping", "billing", Y[1]]
    chances = fitted.predict_proba(texts)
    np.testing.assert_array_equal(chances[[0, 3]], fitted.predict_proba([X[0], X[1]]))
    np.testing.assert_array_equal(chances[1:3], [list(PRIOR.values())] * 2)
    assert fitted.score(texts, labels) == 0.75
    with pytest.warns(UserWarning, match="set aside"):
        again = TextClassifier(density=0.2).fit([*X, ""], [*Y, "other"])
    np.testing.assert_array_equal(again.predict_proba(texts), chances)


def test_unknown_words_are_marked_and_counted_apart(fitted, folder, capsys, tmp_path):
    (line,) = run(capsys, "predict", folder, f"{LETTERS} parcel zzz")
    # The letters of the first two resemble known words, and nothing resembles the last.
    assert line["kept"] == ["parcels", "invoiced", "parcel"]
    assert line["unknown"] == ["parcels", "invoiced", "zzz"]
    explanation = fitted.explain(f"{LETTERS} parcel zzz")
    assert explanation.unknown == (False, True, True, False, True)
    shown = explanation.render()
    assert "3 of 5 words are read (60%), 2 of them unknown: by their letters only." in shown
    assert "| parcels (unknown) " in shown
    assert "| parcel  " in shown
    (line,) = run(capsys, "explain", folder, f"{LETTERS} parcel zzz", "--json")
    assert line["unknown"] == [False, True, True, False, True]
    assert (
        main(["explain", str(folder), LETTERS + " parcel", "--html", str(tmp_path / "p.html")]) == 0
    )
    page = (tmp_path / "p.html").read_text()
    assert page.count('class="w unknown"') == 2
    assert "invoiced (unknown)" in page
    assert "Dotted" in page
    # A text of unknown words is not read by its letters.
    (line,) = run(capsys, "predict", folder, LETTERS)
    assert (line["kept"], line["note"]) == ([], NOTHING_READ)
    assert line["unknown"] == ["parcels", "invoiced"]


@pytest.mark.parametrize("text", [UNKNOWN, CLOSED, ""])
def test_the_explanation_of_the_prior_is_the_prior_alone(fitted, folder, capsys, text):
    explanation = fitted.explain(text)
    reasons = explanation.reasons
    assert explanation.probabilities == PRIOR
    assert not any(explanation.kept)
    assert not np.any(reasons.words)
    assert reasons.pairs == ()
    assert reasons.is_same
    np.testing.assert_allclose(reasons.bias, np.log(list(PRIOR.values())))
    for change in explanation.removed:
        assert change.probability == 0.5
    shown = explanation.render()
    assert (NOTHING_READ if text == CLOSED else NOTHING_KNOWN) in shown.lower()
    assert "The probability of each class is its (weighted) frequency" in shown
    (line,) = run(capsys, "predict", folder, text, "--reasons")
    assert line["reasons"] == []
    assert main(["explain", str(folder), text]) == 0
    assert capsys.readouterr().out.strip() == shown.strip()


def test_empty_lines_of_files_and_of_standard_input_have_a_prediction(
    folder, tmp_path, capsys, monkeypatch
):
    write_csv(tmp_path / "a.csv", [(X[0], "1"), ("", "2"), (X[1], "3")])
    (tmp_path / "a.txt").write_text(f"{X[0]}\n\n{X[1]}\n")
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in (X[0], None, X[1]))
    )
    expected = run(capsys, "predict", folder, X[0], "", X[1])
    for name in ("a.csv", "a.txt", "a.jsonl"):
        assert run(capsys, "predict", folder, "--file", tmp_path / name) == expected
    stream = io.TextIOWrapper(io.BytesIO((tmp_path / "a.txt").read_bytes()))
    monkeypatch.setattr(sys, "stdin", stream)
    assert run(capsys, "predict", folder, "-") == expected
    assert expected[1]["note"] == NOTHING_KNOWN


def test_labels_numbers_and_grades_have_a_prior_too():
    sets = [[label] if label != "other" else [] for label in Y]
    model = MultiLabelTextClassifier(density=0.3, threshold=0.45).fit(X, sets)
    (line,) = (p.to_json() for p in reasons(model, [UNKNOWN]))
    assert (line["labels"], line["probabilities"]) == (["shipping"], [0.5])
    assert (line["note"], line["unknown"]) == (NOTHING_KNOWN, UNKNOWN.split())
    np.testing.assert_array_equal(model.predict_proba([""]), [[0.375, 0.5]])
    numbers = np.array([{"shipping": 1.0, "billing": 2.5, "other": 9.0}[label] for label in Y])
    weights = np.linspace(0.5, 2, len(Y))
    model = TextRegressor(density=0.3, held_out=0.2).fit(X, numbers, weights)
    mean = float(np.sum(numbers * weights) / np.sum(weights))
    np.testing.assert_allclose(np.asarray(model.predict([UNKNOWN, "", CLOSED])), mean)
    explanation = model.explain(f"{CLOSED} {UNKNOWN}")
    assert explanation.to_json()["unknown"] == [False] * 2 + [True] * 4
    assert "The prediction is the (weighted) mean of the training texts." in explanation.render()
    assert explanation.reasons.bias == (pytest.approx(mean),)
    grades = [{"other": 1, "billing": 2, "shipping": 3}[label] for label in Y]
    model = OrdinalTextClassifier(density=0.3).fit(X, grades)
    np.testing.assert_array_equal(model.predict_proba([""]), [[0.125, 0.375, 0.5]])
    (prediction,) = reasons(model, [""])
    # Of the grades 1, 2 and 3 the median is 2: half of the texts are at most 2.
    assert (prediction.label, prediction.most_probable) == (2, (3, 0.5))
    assert model.explain("").density == 0


def test_balanced_classes_have_equal_frequencies():
    model = TextClassifier(density=0.3, class_weight="balanced").fit(X, Y)
    np.testing.assert_allclose(model.predict_proba([UNKNOWN]), [[1 / 3] * 3])


def test_the_reports_count_the_texts_that_are_not_read(folder, fitted, tmp_path, capsys):
    texts = [*ROWS[:20], *((f"{UNKNOWN} {i}", "other") for i in range(7)), (CLOSED, "billing")]
    write_csv(tmp_path / "test.csv", texts)
    assert main(["evaluate", str(folder), str(tmp_path / "test.csv"), "--out",
                 str(tmp_path / "m.json")]) == 0  # fmt: skip
    line = (
        "answered by the frequencies of the training texts, because no known word is read: "
        "8 of 28 texts"
    )
    assert line in capsys.readouterr().out
    assert json.loads((tmp_path / "m.json").read_text())["by_prior"] == 8
    said = []
    model = TextClassifier.train(ROWS, test=texts, density=0.2, say=said.append)
    assert model.report_["test"]["by_prior"] == 8
    assert line in said
    assert fitted.report_["validation"]["by_prior"] == 0


def test_texts_that_are_not_read_are_no_evidence_for_the_temperature():
    held = make_rows(120, 1)
    for row in range(0, 120, 4):
        # Some labels are wrong, so that a temperature is used.
        held[row] = (held[row][0], "other")
    more = [*held, *((f"{UNKNOWN} {i}", "other") for i in range(200))]
    temperatures = [
        train_lexicon(
            open_table(ROWS), TextOptions(density=0.4), validation=open_table(rows)
        ).report["temperature"]
        for rows in (held, more)
    ]
    assert temperatures[0] == temperatures[1] > 1


def test_a_density_of_1_reads_all_words(tmp_path, capsys):
    model = TextClassifier(density=1.0).fit(X, Y)
    assert model.report_["density"] == model.report_["validation"]["density"] == 1
    assert [len(p.kept) for p in reasons(model, [X[0], "zzz parcel"])] == [5, 2]
    write_csv(tmp_path / "a.csv", ROWS)
    assert (
        main(["train", str(tmp_path / "a.csv"), "--out", str(tmp_path / "m"), "--density", "1"])
        == 0
    )
    (line,) = run(capsys, "predict", tmp_path / "m", X[0])
    assert line["density"] == 1
    states = TextClassifier(encoder=encode_static, density=1.0).fit(X, Y)
    assert reasons(states, [X[0]])[0].kept == X[0].split()


def test_a_model_of_vectors_has_the_frequencies_for_a_text_without_a_token():
    model = TextClassifier(encoder=encode_static, density=0.3).fit(X, Y)
    chances = model.predict_proba([X[0], "", X[1]])
    np.testing.assert_array_equal(chances[1], list(PRIOR.values()))
    (empty,) = reasons(model, [""])
    assert (empty.label, empty.kept, empty.note) == ("shipping", [], NOTHING_KNOWN)
    assert model.score([X[0], ""], [Y[0], "shipping"]) == 1.0
    explanation = model.explain("")
    assert explanation.probabilities == PRIOR
    np.testing.assert_allclose(explanation.reasons.bias, np.log(list(PRIOR.values())))


@pytest.mark.parametrize("name", ["ganet", "agt", "ssan"])
def test_an_untrained_network_answers_a_text_without_a_word_by_its_prior(name):
    model = dataclasses.replace(draw_model(name), prior=(0.25, 0.75))
    texts = [("a dull film",), ("",), (" \t",), ("a film",), ("\x00",)]
    chances = model.probabilities(texts)
    np.testing.assert_array_equal(chances[[1, 2, 4]], [[0.25, 0.75]] * 3)
    np.testing.assert_array_equal(chances[[0, 3]], model.probabilities([texts[0], texts[3]]))
    first, empty, *_ = model.predict(texts)
    assert (empty.label, empty.probability, empty.kept) == ("good", 0.75, [])
    assert (empty.density, empty.note, first.note) == (0, NOTHING_KNOWN, "")


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A folder with texts and a GA-Net after two steps on 144 of them, in the shares of all."""
    folder = tmp_path_factory.mktemp("network")
    path = write_csv(folder / "a.csv", ROWS)
    TextClassifier.train(path, **options(seed=0)).save(folder / "model")
    return folder


@pytest.mark.slow
def test_an_empty_text_does_not_break_a_batch_of_a_network(network):
    model = TextClassifier.load(network / "model")
    texts, labels = [X[0], "", " ", X[1]], [Y[0], "shipping", "billing", Y[1]]
    chances = model.predict_proba(texts)
    np.testing.assert_array_equal(chances[[0, 3]], model.predict_proba([X[0], X[1]]))
    np.testing.assert_array_equal(chances[1:3], [list(PRIOR.values())] * 2)
    found = model.predict(texts).tolist()
    assert found[1:3] == ["shipping"] * 2
    assert model.score(texts, labels) == np.mean(np.array(found) == labels)
    explanation = model.explain("")
    assert explanation.probabilities == PRIOR
    np.testing.assert_allclose(explanation.reasons.bias, np.log(list(PRIOR.values())))


@pytest.mark.slow
def test_the_commands_answer_an_empty_text_of_a_network(network, tmp_path, capsys):
    write_csv(tmp_path / "b.csv", [(X[0], "1"), ("", "2"), (X[1], "3")])
    (tmp_path / "b.txt").write_text(f"{X[0]}\n\n{X[1]}\n")
    lines = run(capsys, "predict", network / "model", X[0], "", X[1])
    assert lines[1] == {
        "label": "shipping", "probability": 0.5, "kept": [], "density": 0, "note": NOTHING_KNOWN,
    }  # fmt: skip
    for name in ("b.csv", "b.txt"):
        assert run(capsys, "predict", network / "model", "--file", tmp_path / name) == lines
    assert main(["explain", str(network / "model"), "", "--html", str(tmp_path / "a.html")]) == 0
    assert "Nothing of it was in the training texts." in (tmp_path / "a.html").read_text()
    (line,) = run(capsys, "explain", network / "model", "", "--json")
    assert [(one["label"], one["probability"]) for one in line["probabilities"]] == [
        ("shipping", 0.5), ("billing", 0.375), ("other", 0.125),
    ]  # fmt: skip
    # A text of a control character has no word, and the file has it.
    texts = [*ROWS[:20], ("\x01", "shipping"), ("\x02", "billing")]
    write_csv(tmp_path / "test.csv", texts)
    metrics = TextClassifier.load(network / "model").evaluate(tmp_path / "test.csv")
    assert (metrics["n"], metrics["by_prior"], metrics["aside"]) == (22, 2, 0)
    found = [*run(capsys, "predict", network / "model", *(text for text, _ in texts))]
    right = [one["label"] == label for one, (_, label) in zip(found, texts, strict=True)]
    assert metrics["accuracy"] == metrics["gate_modes"]["threshold"] == np.mean(right)
    only = TextClassifier.load(network / "model").evaluate([("\x01", "shipping")])
    assert (only["accuracy"], only["density"], only["gate_gap"]) == (1, 0, 0)


@pytest.mark.slow
def test_a_pair_with_an_empty_text_has_the_frequencies(tmp_path, capsys):
    model = PairClassifier.train(PAIRS, validation=PAIRS, **options("ssan", kind="pair"))
    full, half = ("a dog runs", "a cat runs"), ("a dog runs", "")
    chances = model.predict_proba([full, half, ("", ""), ("", "a dog runs")])
    np.testing.assert_array_equal(chances[:1], model.predict_proba([full]))
    np.testing.assert_array_equal(chances[1:], np.float32([[2 / 3, 1 / 3]] * 3))
    explanation = model.explain(half)
    assert (explanation.label, explanation.kept) == ("other", (False,) * 3)
    assert {change.probability for change in explanation.removed} == {explanation.probability}
    assert "A text of the pair has no word." in explanation.render()
    folder = model.save(tmp_path / "model")
    write_csv(tmp_path / "a.csv", [full, half, ("", "x")], ("premise", "hypothesis"))
    lines = run(capsys, "predict", folder, "--file", tmp_path / "a.csv")
    assert lines == run(capsys, "predict", folder, *full, *half, "", "x")
    assert "note" not in lines[0]
    for line in lines[1:]:
        assert (line["label"], line["probability"], line["kept"]) == ("other", 0.666667, [[], []])
        assert line["note"] == "a text of the pair has no word"


def test_the_explorer_marks_unknown_words_and_has_the_note(fitted):
    shown = Explorer([fitted.model_], ["lexicon"])
    (one,) = shown.answer({"text": f"{LETTERS} parcel"})["models"]
    assert one["lines"][0]["known"] == [True, False, False, True]
    assert "2 of them unknown: by their letters only." in one["note"]
    (one,) = shown.answer({"text": UNKNOWN})["models"]
    assert one["probabilities"] == list(PRIOR.values())
    assert NOTHING_KNOWN in one["note"].lower()
    assert one["lines"][0]["gates"] == [False] * 4


def test_a_share_that_leaves_texts_to_the_prior_is_not_chosen():
    """With the words of one class alone the prior would be right for the other, by chance."""
    texts = [f"{word} film{i % 7}" for i in range(120) for word in ("dull", "fine", "fine")]
    model = TextClassifier().fit(texts, ["bad" if "dull" in text else "good" for text in texts])
    assert model.report_["validation"]["by_prior"] == 0
    for text, label in (("fine stage", "good"), ("dull stage", "bad")):
        assert (model.predict([text])[0], model.explain(text).kept) == (label, (True, False))
