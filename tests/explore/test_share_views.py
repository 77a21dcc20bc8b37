"""The views of labels, numbers, grades and states: the same numbers and words as `explain`."""

import json
import types

import numpy as np
import pytest

from gatedjax import (
    MultiLabelTextClassifier,
    OrdinalTextClassifier,
    TextClassifier,
    TextRegressor,
)
from gatedjax.__main__ import main
from gatedjax.explore._engine import Explorer
from gatedjax.explore._lexicon_view import _describe_prediction
from gatedjax.explore._open import open_model
from gatedjax.explore._server import Server
from gatedjax.lexicon import Readings
from gatedjax.text import read_states, save_states
from gatedjax.text._states import open_states
from gatedjax.text._states_model import UNMEASURED, render_states_leak
from gatedjax.text._target_grades import OrdinalTarget
from tests.text._own import TEXTS, reasons
from tests.text.test_states import encode_static, encode_with_neighbours

TOPICS = {"sport": ("goal", "team"), "money": ("bank", "stock"), "art": ("paint", "song")}
PARTS = [(), *([name] for name in TOPICS), ["sport", "money"], ["money", "art"]]
ROWS = [
    (
        " ".join(
            [f"the {word} today" for name in part for word in TOPICS[name][: 1 + i % 2]] + [end]
        ),
        list(part),
    )
    for part in PARTS
    for i in range(2)
    for end in ("here", "now again", "was old", "at home", "of them", "and more")
]
TEXT = "the goal today the bank today has"
UNIT = 2e-6
KINDS = {
    "labels": lambda: MultiLabelTextClassifier.train(ROWS, threshold=0.2),
    "regression": lambda: TextRegressor.train([(text, UNIT * len(names)) for text, names in ROWS]),
    "ordinal": lambda: OrdinalTextClassifier.train(
        [(text, ("none", "some", "many")[len(names)]) for text, names in ROWS],
        order=["none", "some", "many"],
    ),
}


@pytest.fixture(scope="module")
def fitted():
    return {kind: make() for kind, make in KINDS.items()}


@pytest.fixture(scope="module")
def contextual():
    return TextClassifier(encoder=encode_with_neighbours, density=0.3).fit(
        *zip(*TEXTS, strict=True)
    )


@pytest.fixture(scope="module")
def folder(contextual, tmp_path_factory):
    """A model of states without its encoder, and a file of vectors."""
    place = tmp_path_factory.mktemp("states")
    contextual.save(place / "model")
    texts = [text for text, _ in TEXTS[:3]]
    save_states(place / "few.npz", [*encode_with_neighbours(texts), ([], np.zeros((0, 12)))])
    return place


def answer_of(shown, text):
    answer = shown.answer({"text": text})
    json.dumps(answer, allow_nan=False)
    return answer["models"][0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_has_the_numbers_and_sentences_of_explain(fitted, kind, tmp_path):
    explanation = fitted[kind].explain(TEXT)
    fitted[kind].save(tmp_path / kind)
    shown = Explorer([open_model(tmp_path / kind)], [kind])
    one = answer_of(shown, TEXT)
    words = one["lines"][0]
    assert words["tokens"] == list(explanation.tokens)
    assert words["gates"] == list(explanation.kept)
    assert explanation.headline.startswith(one["title"])
    assert "The open words alone have the same prediction, bit by bit." in one["note"]
    assert words["rule"] == explanation.rule
    assert np.any(words["values"])
    reasons = explanation.reasons
    np.testing.assert_array_equal(np.atleast_2d(words["values"]).T, reasons.words)
    pairs = one["lines"][1:]
    assert len(pairs) == bool(reasons.pairs)
    for line in pairs:
        np.testing.assert_array_equal(
            np.atleast_2d(line["values"]).T, [parts for *_, parts in reasons.pairs]
        )
    # The sentence of the page has the sum of the table of `explain`, with another minus sign.
    names, rows = explanation._list_rows()
    for name, total in zip(names, rows[-1][1:], strict=True):
        place = (words["of"] or ["score" if kind == "ordinal" else "value"]).index(name)
        assert f"sum to {total}".replace("-", "\u2212") in words["totals"][place]


def test_labels_have_thresholds_and_shares_for_a_chosen_label(fitted):
    model = fitted["labels"]
    one = answer_of(Explorer([model.model_], ["labels"]), TEXT)
    (prediction,) = reasons(model, [TEXT])
    assert one["title"] == ", ".join(prediction.labels)
    assert len(prediction.labels) > 1
    assert [one["classes"][i] for i in one["best"]] == list(prediction.labels)
    assert one["order"][: len(one["best"])] == one["best"]
    assert one["chosen"] == one["best"][0]
    assert (one["share"], one["exclusive"]) == (None, False)
    logits = sum(np.sum(part["values"], 1) for part in one["lines"])
    lexicon = model.model_.lexicon
    logits += lexicon.bias.astype(float) / lexicon.temperature
    np.testing.assert_allclose(one["probabilities"], 1 / (1 + np.exp(-logits)), atol=1e-9)
    reached = [
        p >= float(t) - 5e-4 for p, t in zip(one["probabilities"], one["details"], strict=True)
    ]
    assert np.flatnonzero(reached).tolist() == sorted(one["best"])
    assert one["lines"][0]["of"] == one["classes"]
    nothing = answer_of(Explorer([model.model_], ["labels"]), "here")
    assert (nothing["title"], nothing["best"]) == ("(no label)", [])


def test_a_number_is_the_sum_of_the_shares_in_its_unit(fitted):
    model = fitted["regression"]
    one = answer_of(Explorer([model.model_], ["numbers"]), TEXT)
    (prediction,) = reasons(model, [TEXT])
    assert float(one["title"]) == pytest.approx(prediction.value, rel=1e-7)
    shares = sum(np.sum(line["values"]) for line in one["lines"])
    constant = model.model_.lexicon.share(model.model_.split(TEXT)).bias[0]
    assert shares + constant == pytest.approx(prediction.value)
    assert (one["classes"], one["head"], one["choice"]) == ([], None, None)
    assert one["signs"] == ["raises the prediction", "lowers it"]
    # The unit of the target is small, so that three decimals would show zeros.
    assert one["lines"][0]["decimals"] > 6
    assert one["lines"][0]["strong"] < 10 * UNIT


def test_grades_are_listed_in_their_order(fitted):
    model = fitted["ordinal"]
    one = answer_of(Explorer([model.model_], ["grades"]), TEXT)
    (prediction,) = reasons(model, [TEXT])
    assert (one["title"], one["share"]) == (prediction.label, pytest.approx(prediction.probability))
    assert one["classes"] == ["none", "some", "many"]
    assert one["order"] == [0, 1, 2]
    assert one["best"] == [one["classes"].index(prediction.label)]


def test_of_many_grades_the_most_probable_are_listed_and_the_median_is_predicted():
    probabilities = np.full((1, 12), 0.03)
    probabilities[0, [0, 3, 5, 8]] = 0.02, 0.4, 0.04, 0.3
    reading = Readings.of_outputs(probabilities, np.zeros((1, 1)))
    target = OrdinalTarget(tuple(range(12)))
    model = types.SimpleNamespace(kind="ordinal", target=target, classes=target.classes)
    entries = _describe_prediction(model, reading, (0,))
    assert entries["order"][:10] == sorted(entries["order"][:10])
    assert set(entries["order"]) == set(range(12))
    assert 0 not in entries["order"][:10]
    # The median of the distribution, 0.02 + 2 * 0.03 + 0.4 + 0.03, is not its most probable grade.
    assert entries["best"] == [4]
    assert entries["title"] == "4"


def test_a_threshold_decides_the_class_on_the_page():
    texts, labels = zip(*TEXTS, strict=True)
    model = TextClassifier("lexicon", threshold={"bad": 0.05}).fit(texts, labels)
    text = next(text for text in texts if model.predict_proba([text])[0, 0] < 0.5)
    one = answer_of(Explorer([model.model_], ["lexicon"]), text)
    (prediction,) = reasons(model, [text])
    assert one["title"] == prediction.label == one["classes"][one["best"][0]]
    assert "is predicted if its probability is at least 0.05" in one["lines"][0]["rule"]


# states ------------------------------------------------------------------------------------------


def test_with_an_encoder_texts_are_typed_and_the_leak_is_stated(contextual):
    shown = Explorer([contextual.model_], ["states"])
    assert "options" not in shown.about()["fields"][0]
    text = TEXTS[0][0]
    one = answer_of(shown, text)
    explanation = contextual.explain(text)
    assert (one["title"], one["share"]) == (explanation.label, explanation.probability)
    (line,) = one["lines"]
    assert line["tokens"] == list(explanation.tokens)
    np.testing.assert_array_equal(np.transpose(line["values"]), explanation.reasons.words)
    leak = explanation.reasons.leak
    assert leak[1:] in one["note"]
    assert render_states_leak(contextual.report_["leak"]) in one["note"]
    text = json.dumps({**shown.about(), "answer": one}).replace("has read the closed", "")
    assert not any(f" {word} " in text for word in ("read", "used", "kept"))
    answer = shown.answer({"text": " "})
    assert (answer["models"], answer["notes"]) == ([None], ["No word yet: type a sentence."])


def test_without_a_leak_the_open_tokens_alone_have_the_same_bits():
    texts, labels = zip(*TEXTS, strict=True)
    model = TextClassifier(encoder=encode_static, density=0.3).fit(texts, labels)
    shown = Explorer([model.model_], ["states"])
    assert shown.about()["title"] == "Which words does the prediction rest on?"
    note = answer_of(shown, texts[0])["note"]
    assert "The open words alone have the same probabilities, bit by bit." in note
    assert "the same answer from the open tokens alone: yes" in note


def test_without_an_encoder_the_texts_of_a_file_are_offered(folder, contextual):
    model = open_model(folder / "model")
    shown = Explorer([model], ["states"], states=read_states(folder / "few.npz"))
    about = shown.about()
    assert about["fields"][0]["options"][0] == f"1: [CLS] {TEXTS[0][0]}"
    one = answer_of(shown, about["example"]["text"])
    assert one["title"] == contextual.predict([TEXTS[0][0]])[0]
    # The field of the state is the number of the text, which is a single word.
    assert shown.answer({"text": "0"})["words"] == len(one["lines"][0]["tokens"]) > 1
    assert shown.answer({"text": "9"})["words"] == 0
    assert UNMEASURED[1:] in one["note"]
    assert render_states_leak(contextual.report_["leak"]) in one["note"]
    for text, note in {"4": "Choose a text", "-1": "Choose a text"}.items():
        answer = shown.answer({"text": text})
        assert answer["models"] == [None]
        assert note in answer["notes"][0]
    # A text without a token has the frequencies of the classes.
    (empty,) = shown.answer({"text": "3"})["models"]
    assert empty["probabilities"] == model.pooling.prior.tolist()


def test_what_does_not_fit_is_refused(folder, contextual, fitted):
    model = open_model(folder / "model")
    with pytest.raises(ValueError, match="give --states FILE"):
        Explorer([model], ["states"])
    narrow = open_states([(["a"], np.ones((1, 3)))])
    with pytest.raises(ValueError, match="width 12"):
        Explorer([model], ["states"], states=narrow)
    with pytest.raises(ValueError, match="must be None for a model that reads texts"):
        Explorer([fitted["labels"].model_], ["labels"], states=narrow)
    with pytest.raises(ValueError, match="networks that classify single texts"):
        Explorer([contextual.model_], ["states"]).check_gates("--file")


def test_the_command_reads_the_file_of_states(folder, fitted, monkeypatch, capsys):
    asked = []

    def serve(self, *args):
        asked.append(self.ask({"do": "answer", "text": "1"}))
        raise KeyboardInterrupt

    monkeypatch.setattr(Server, "serve_forever", serve)
    args = ["explore", str(folder / "model"), "--no-browser"]
    states = ["--states", str(folder / "few.npz")]
    assert main([*args, *states]) == 0
    assert asked[0]["models"][0]["lines"][0]["tokens"][0] == "[CLS]"
    fitted["labels"].save(folder / "labels")
    labels = ["explore", str(folder / "labels"), "--no-browser"]
    assert main(labels) == 0
    capsys.readouterr()
    for wrong, message in (
        (args, "give --states FILE"),
        ([*args, *states, "--text", "a"], "texts or --states must be left out"),
        ([*labels, *states], "--states must be left out"),
        ([*args, "--states", str(folder / "none.npz")], "there is no such file"),
    ):
        with pytest.raises(SystemExit):
            main(wrong)
        assert message in capsys.readouterr().err


def test_a_notebook_shows_the_texts_of_a_file(folder, monkeypatch):
    pytest.importorskip("anywidget")
    import gatedjax

    widget = gatedjax.explorer(folder / "model", states=folder / "few.npz")
    sent = []
    monkeypatch.setattr(widget, "send", lambda content, buffers=None: sent.append(content))
    widget._handle_custom_msg({"id": "1", "message": {"do": "about"}}, [])
    assert len(sent[0]["answer"]["fields"][0]["options"]) == 4
