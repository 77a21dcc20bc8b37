"""`words_`, explanations of lists, and a model that is sent to other processes."""

import pickle

import numpy as np
import pandas
import pytest

from gatedjax import (
    MultiLabelTextClassifier,
    OrdinalTextClassifier,
    TextClassifier,
    TextRegressor,
)
from tests.text._own import TEXTS, X, Y

QUERIES = ["a dull old film", "warm and new, here", "xyzzy", ""]


@pytest.fixture(scope="module")
def fitted():
    return TextClassifier(share=0.5).fit(X, Y)


@pytest.mark.slow
def test_the_words_are_those_that_are_read_with_their_weights(fitted, tmp_path):
    words = fitted.words_
    table = pandas.DataFrame(words)
    assert list(table) == ["word", "label", "weight", "count"]
    side = {"dull": "bad", "slow": "bad", "bright": "good", "warm": "good"}
    assert {row.word: row.label for row in words if row.word in side} == side
    counts = pandas.Series(" ".join(X).split()).value_counts()
    assert (table["count"].to_numpy() == counts[table.word].to_numpy()).all()
    # the most important first; a word alone moves the score to the class of its row
    importance = (table.weight * np.sqrt(table["count"])).to_numpy()
    assert (np.diff(importance) <= 0).all()
    assert (table.weight > 0).all()
    for row, explanation in zip(words, fitted.explain([row.word for row in words]), strict=True):
        assert explanation.read == (True,)
        parts = dict(zip(explanation.reasons.classes, explanation.reasons.words[0], strict=True))
        assert max(parts, key=parts.get) == row.label
    assert TextClassifier.load(fitted.save(tmp_path / "model")).words_ == words
    unread = sorted(set(counts.index) - set(table.word))
    assert unread
    assert not any(any(explanation.read) for explanation in fitted.explain(unread))


@pytest.mark.slow
def test_the_words_of_labels_numbers_and_grades_have_a_label_or_a_side():
    numbers = [1.0 if label == "bad" else 5.0 for label in Y]
    for kind in (TextRegressor, OrdinalTextClassifier):
        sides = {row.word: row.label for row in kind(share=0.5).fit(X, numbers).words_}
        assert (sides["dull"], sides["warm"]) == ("lower", "higher")
    # no text of these has both labels, and "here" speaks for neither
    rows = [(text, [label] * ("here" not in text)) for text, label in TEXTS]
    words = {row.word: row for row in MultiLabelTextClassifier.train(rows, share=1.0).words_}
    assert (words["dull"].label, words["warm"].label) == ("bad", "good")
    assert words["here"].weight < 0 < words["dull"].weight


def test_the_words_of_a_linear_model_are_all_that_have_weights():
    linear = TextClassifier("linear").fit(X, Y)
    sides = {row.word: row.label for row in linear.words_}
    assert sides.keys() == set(" ".join(X).split())
    assert (sides["dull"], sides["warm"]) == ("bad", "good")
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(linear)).predict_proba(QUERIES), linear.predict_proba(QUERIES)
    )


def test_words_of_a_model_without_a_lexicon_are_no_attribute():
    assert not hasattr(TextClassifier(), "words_")
    network = TextClassifier("gru")
    network.model_ = type("Network", (), {"network": "gru"})()
    message = "words_ must be asked of lexicon or linear, got 'gru'"
    with pytest.raises(AttributeError, match=message):
        network.words_  # noqa: B018


def test_a_list_of_texts_has_a_list_of_explanations(fitted):
    singles = [fitted.explain(text) for text in QUERIES]
    for texts in (QUERIES, tuple(QUERIES), np.array(QUERIES), pandas.Series(QUERIES)):
        assert fitted.explain(texts) == singles
    assert fitted.explain([]) == []
    with pytest.raises(TypeError, match="X must be a list of texts, got 3 at position 1"):
        fitted.explain(["dull", 3])


def test_a_pickle_is_small_and_has_nothing_of_the_texts_that_were_read(fitted, tmp_path):
    folder = fitted.save(tmp_path / "model")
    before = pickle.dumps(fitted)
    assert len(before) < sum(path.stat().st_size for path in folder.iterdir())
    texts = [f"{query} secret{number}" for number in range(500) for query in QUERIES]
    expected = fitted.predict_proba(texts)
    after = pickle.dumps(fitted)
    assert after == before
    assert b"secret" not in after
    np.testing.assert_array_equal(pickle.loads(after).predict_proba(texts), expected)
