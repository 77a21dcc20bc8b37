"""The views of labels, numbers, grades and states: the same numbers and words as `explain`."""

import json

import numpy as np
import pytest

from gatedjax import (
    MultiLabelTextClassifier,
    OrdinalTextClassifier,
    TextClassifier,
    TextRegressor,
)
from gatedjax.explore._engine import Explorer, open_model
from gatedjax.text.models._states import render_states_leak
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
    return TextClassifier(encoder=encode_with_neighbours, share=0.3).fit(*zip(*TEXTS, strict=True))


def answer_of(shown, text):
    answer = shown.answer({"text": text})
    json.dumps(answer, allow_nan=False)
    return answer["models"][0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_has_the_numbers_and_sentences_of_explain(fitted, kind, tmp_path):
    explanation = fitted[kind].explain(TEXT)
    fitted[kind].save(tmp_path / kind)
    one = answer_of(Explorer([open_model(tmp_path / kind)], [kind]), TEXT)
    words, *pairs = one["lines"]
    assert words["tokens"] == list(explanation.tokens)
    assert words["read"] == list(explanation.read)
    assert explanation.headline.startswith(one["title"])
    assert "words read alone give the same prediction, bit for bit." in one["note"]
    reasons = explanation.reasons
    assert words["rule"] == reasons.rule
    assert np.any(words["values"])
    np.testing.assert_array_equal(np.atleast_2d(words["values"]).T, reasons.words)
    of_pairs = [parts for *_, parts in reasons.pairs]
    assert len(pairs) == bool(of_pairs)
    for line in pairs:
        np.testing.assert_array_equal(np.atleast_2d(line["values"]).T, of_pairs)
    sums = np.sum([reasons.prior, *reasons.words, *of_pairs], 0)
    for total, sentence in zip(sums, words["totals"], strict=True):
        assert f"sum to {total:+.{words['decimals']}f}".replace("-", "\u2212") in sentence


def test_labels_have_thresholds_and_shares_for_a_chosen_label(fitted):
    model = fitted["labels"]
    shown = Explorer([model.model_], ["labels"])
    one = answer_of(shown, TEXT)
    (prediction,) = reasons(model, [TEXT])
    assert one["title"] == ", ".join(prediction.labels)
    assert len(prediction.labels) > 1
    assert [one["classes"][i] for i in one["best"]] == list(prediction.labels)
    assert one["order"][: len(one["best"])] == one["best"]
    assert one["chosen"] == one["best"][0]
    assert (one["share"], one["exclusive"]) == (None, False)
    (chances,) = model.predict_proba([TEXT])
    np.testing.assert_allclose(one["probabilities"], chances, atol=1e-6)
    reached = np.array(one["probabilities"]) >= np.array(one["details"], float) - 5e-4
    assert np.flatnonzero(reached).tolist() == sorted(one["best"])
    assert one["lines"][0]["of"] == one["classes"]
    nothing = answer_of(shown, "here")
    assert (nothing["title"], nothing["best"]) == ("(no label)", [])


def test_a_number_has_shares_in_its_unit_and_grades_their_order(fitted):
    model = fitted["regression"]
    one = answer_of(Explorer([model.model_], ["numbers"]), TEXT)
    (prediction,) = reasons(model, [TEXT])
    assert float(one["title"]) == pytest.approx(prediction.value, rel=1e-7)
    assert (one["classes"], one["head"], one["choice"]) == ([], None, None)
    assert one["signs"] == ["raises the prediction", "lowers it"]
    # The unit of the target is small, so that three decimals would show zeros.
    assert one["lines"][0]["decimals"] > 6
    assert one["lines"][0]["strong"] < 10 * UNIT
    model = fitted["ordinal"]
    one = answer_of(Explorer([model.model_], ["grades"]), TEXT)
    (prediction,) = reasons(model, [TEXT])
    assert (one["title"], one["share"]) == (prediction.label, pytest.approx(prediction.probability))
    assert one["classes"] == ["none", "some", "many"]
    assert one["order"] == [0, 1, 2]
    assert one["best"] == [one["classes"].index(prediction.label)]


@pytest.mark.slow
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
    assert explanation.reasons.leak[1:] in one["note"]
    assert render_states_leak(contextual.report_["leak"]) in one["note"]
    # The encoder has read all tokens.
    assert "tokens are read by the gates (share" in one["note"]
    assert "do the gates read" in shown.about()["title"]


def test_without_a_leak_the_open_tokens_alone_have_the_same_bits():
    texts, labels = zip(*TEXTS, strict=True)
    model = TextClassifier(encoder=encode_static, share=0.3).fit(texts, labels)
    shown = Explorer([model.model_], ["states"])
    assert shown.about()["title"] == "Which words does the prediction rest on?"
    note = answer_of(shown, texts[0])["note"]
    assert "words read alone give the same probabilities, bit for bit." in note
    assert render_states_leak(model.report_["leak"]) in note
