"""The view of a lexicon: its shares are the parts of the logits, and its gates are spellings."""

import json

import numpy as np
import pytest

from gatedjax.explore._engine import Explorer
from gatedjax.explore._open import open_model

pytest.importorskip("gatedjax.text._lexicon")

TEXT = "the dull film was not bright here"
WORDS = {"good": ("bright", "warm", "not dull"), "bad": ("dull", "slow", "not bright")}
ROWS = [
    (f"the {word} film {end}", label)
    for label, words in WORDS.items()
    for word in words
    for end in ("here", "now", "was old", "today", "at home", "again")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A lexicon of generated sentences, which takes no compiler."""
    from gatedjax.text import TextClassifier

    texts, labels = zip(*ROWS, strict=True)
    classifier = TextClassifier("lexicon").fit(list(texts), list(labels))
    place = tmp_path_factory.mktemp("lexicon") / "model"
    classifier._get_trained().save(place, overwrite=False)
    return place


@pytest.fixture(scope="module")
def shown(folder):
    return Explorer([open_model(folder)], ["lexicon"])


def test_shares_sum_to_the_logits_and_the_logits_give_the_probabilities(shown):
    (one,) = shown.answer({"text": TEXT})["models"]
    json.dumps(one, allow_nan=False)
    (model,) = shown.models
    parts = [np.array(line["values"]).sum(axis=1) for line in one["lines"]]
    logits = np.sum(parts, axis=0) + model.lexicon.share(model.split(TEXT)).bias
    shares = np.exp(logits - logits.max())
    np.testing.assert_allclose(one["probabilities"], shares / shares.sum(), atol=1e-9)
    (read,) = model.predict([(TEXT,)])
    assert (one["title"], one["share"]) == (read.label, pytest.approx(read.probability))


def test_a_gate_depends_only_on_the_spelling(shown):
    words = shown.models[0].split(TEXT)
    (one,) = shown.answer({"text": TEXT})["models"]
    (again,) = shown.answer({"text": " ".join([*reversed(words)])})["models"]
    line, reverse = one["lines"][0], again["lines"][0]
    assert line["tokens"] == words
    assert line["gates"] == reverse["gates"][::-1]
    assert True in line["gates"]
    closed = np.flatnonzero(~np.array(line["gates"]))
    assert not np.array(line["values"])[:, closed].any()


def test_gates_with_windows_have_another_note():
    from gatedjax.text import TextClassifier

    texts, labels = zip(*ROWS, strict=True)
    model = TextClassifier("window", density=0.3).fit(list(texts), list(labels)).model_
    (one,) = Explorer([model], ["window"]).answer({"text": TEXT})["models"]
    assert one["lines"][0]["note"].startswith("The gate of a word depends on the word and its two")
    (read,) = model.predict([(TEXT,)])
    assert (one["title"], one["share"]) == (read.label, pytest.approx(read.probability))
    tokens, gates = one["lines"][0]["tokens"], one["lines"][0]["gates"]
    assert [token for token, gate in zip(tokens, gates, strict=True) if gate] == read.kept


def test_texts_without_words_and_options_of_networks(shown):
    answer = shown.answer({"text": " "})
    assert (answer["models"], answer["notes"]) == ([None], ["No word yet: type a sentence."])
    assert shown.removal({"text": TEXT})["models"] == [None]
    with pytest.raises(ValueError, match="networks that classify single texts"):
        shown.check_gates("--file")
    assert shown.answer(shown.about()["example"])["models"][0] is not None


def test_a_notebook_shows_a_fitted_lexicon(monkeypatch):
    pytest.importorskip("anywidget")
    import gatedjax

    texts, labels = zip(*ROWS, strict=True)
    classifier = gatedjax.TextClassifier("lexicon").fit(list(texts), list(labels))
    widget = gatedjax.explorer(classifier, text=TEXT)
    sent = []
    monkeypatch.setattr(widget, "send", lambda content, buffers=None: sent.append(content))
    widget._handle_custom_msg({"id": "1", "message": {"do": "answer", "text": TEXT}}, [])
    (answer,) = sent
    (prediction,) = classifier.predict([TEXT])
    assert answer["answer"]["models"][0]["title"] == prediction.label
