"""The log-linear baseline: its optimum, odd texts, and its bounds."""

import sys

import numpy as np
import pytest

from gatedjax.text import _baseline
from gatedjax.text._baseline import LinearBaseline


def reviews(n, num_classes=2, seed=0):
    """Words of which some tell the class, most of the time."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(num_classes, size=n)
    texts = []
    for label in labels:
        told = label if rng.random() < 0.9 else rng.integers(num_classes)
        words = [f"w{i}" for i in rng.integers(300, size=12)]
        words.insert(int(rng.integers(12)), f"Class{told}")
        texts.append(tuple(words))
    return texts, labels


@pytest.mark.parametrize("num_classes", [2, 3])
def test_it_learns_and_says_who_solved_it(num_classes):
    texts, labels = reviews(600, num_classes)
    model = LinearBaseline().fit(iter(texts), labels, num_classes)
    assert model.kind.split()[0] == "scipy"
    assert model.texts_used == 600
    test, truth = reviews(300, num_classes, seed=1)
    probabilities = model.probabilities(iter(test))
    assert probabilities.shape == (300, num_classes)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-12)
    assert (probabilities.argmax(1) == truth).mean() > 0.85
    again = LinearBaseline().fit(texts, labels, num_classes)
    np.testing.assert_array_equal(again.probabilities(test), probabilities)


@pytest.mark.parametrize("num_classes", [2, 4])
def test_its_optimum_is_the_one_of_scikit_learn(num_classes, monkeypatch):
    monkeypatch.setattr(_baseline, "_TOLERANCE", 1e-8)
    linear_model = pytest.importorskip("sklearn.linear_model")
    texts, labels = reviews(300, num_classes)
    model = LinearBaseline().fit(texts, labels, num_classes)
    ids = np.array([model._words[word.lower()] for text in texts for word in text])
    ends = np.cumsum([len(text) for text in texts])
    rows = _baseline._weight_rows(model._rows(ids, ends), model._weights)
    theirs = linear_model.LogisticRegression(C=10.0, tol=1e-8, max_iter=5000).fit(rows, labels)
    np.testing.assert_allclose(
        model.probabilities(texts), theirs.predict_proba(rows), atol=1e-5, rtol=0
    )


def test_it_is_the_same_whatever_is_installed(monkeypatch):
    texts, labels = reviews(100, 3)
    found = LinearBaseline().fit(texts, labels, 3)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    again = LinearBaseline().fit(texts, labels, 3)
    assert again.kind == found.kind
    np.testing.assert_allclose(
        again.probabilities(texts), found.probabilities(texts), rtol=0, atol=1e-9
    )


def test_the_order_of_words_counts_where_a_pair_recurs():
    texts = [("not", "good"), ("good", "not")] * 20
    model = LinearBaseline().fit(texts, np.arange(40) % 2, 2)
    assert model.probabilities(texts).argmax(1).tolist() == [0, 1] * 20


def test_features_are_words_and_pairs_each_once():
    texts = [("a", "B", "a", "b"), ("c",), ("A", "b"), ()]
    model = LinearBaseline().fit(texts, np.array([0, 1, 0, 1]), 2)
    assert model._words == {"a": 0, "b": 1, "c": 2}
    assert model._pairs.tolist() == [0 * 3 + 1]  # "a b" occurs three times, "b a" once
    rows = model._rows(np.array([0, 1, 0, 2, -1, 0, 1]), np.array([3, 3, 5, 7]))
    assert rows.indptr.tolist() == [0, 3, 3, 4, 7]
    assert rows.indices.tolist() == [0, 1, 3, 2, 0, 1, 3]


def test_parts_of_a_corpus_are_encoded_alike(monkeypatch):
    texts, labels = reviews(200)
    texts[10:13] = [(), (), ()]
    whole = LinearBaseline().fit(texts, labels, 2).probabilities(texts)
    monkeypatch.setattr(_baseline, "_CHUNK", 7)
    parts = LinearBaseline().fit(texts, labels, 2).probabilities(texts)
    np.testing.assert_allclose(parts, whole, rtol=1e-9)


def test_texts_of_nothing_known_have_one_answer():
    texts, labels = reviews(100)
    model = LinearBaseline().fit([*texts, ()], np.append(labels, 0), 2)
    probabilities = model.probabilities([(), ("never",), ("\x00", "", "🙂"), ("x",) * 5000])
    assert np.isfinite(probabilities).all()
    assert (probabilities == probabilities[0]).all()
    assert model.probabilities([]).shape == (0, 2)


def test_what_cannot_be_learned_is_the_share_of_the_class():
    model = LinearBaseline().fit([(), (), (), ()], np.array([0, 0, 0, 2]), 4)
    np.testing.assert_allclose(model.probabilities([("a",)]), [[0.75, 0, 0.25, 0]])
    model = LinearBaseline().fit([("a",), ("b",)], np.array([1, 1]), 2)
    np.testing.assert_allclose(model.probabilities([("a",)]), [[0, 1]])


def test_a_class_without_texts_is_never_predicted():
    texts, labels = reviews(100)
    model = LinearBaseline().fit(texts, 2 * labels, 3)
    probabilities = model.probabilities(texts)
    assert (probabilities[:, 1] == 0).all()
    assert (probabilities.argmax(1) == 2 * labels).mean() > 0.9


def test_of_too_many_words_some_texts_are_left_out_evenly(monkeypatch):
    texts, labels = reviews(1000)  # 13 words each
    monkeypatch.setattr(_baseline, "_MOST_WORDS", 2000)
    model = LinearBaseline().fit(iter(texts), labels, 2)
    assert 2000 / 13 / 2 * 0.8 < model.texts_used <= 2000 / 13
    kept = [n for n in range(1000) if _baseline._is_kept(n, 3)]
    assert max(np.diff(kept)) <= 21
    # one text of more words than that is still one to learn from
    model = LinearBaseline().fit([("a", "b") * 2000, ("c",)], np.array([0, 1]), 2)
    assert model.texts_used == 1


def test_words_beyond_the_limit_are_unknown(monkeypatch):
    monkeypatch.setattr(_baseline, "_MOST_KINDS", 2)
    model = LinearBaseline().fit([("a", "b"), ("c", "a", "b")], np.array([0, 1]), 2)
    assert model._words == {"a": 0, "b": 1}
    assert model._pairs.tolist() == [1]


@pytest.mark.parametrize(
    ("texts", "labels", "error", "message"),
    [
        ([], [], ValueError, "the same length of at least 1"),
        ([("a",)], [0, 1], ValueError, "the same length of at least 1, got 1 and 2"),
        ([("a",)] * 3, [0, 1], ValueError, "got 3 and 2"),
        ([("a",)], [2], ValueError, r"labels must be in \[0, 2\), got 2 to 2"),
        ([("a",)], [0.0], TypeError, "integers"),
        (["a text"], [0], TypeError, "got the string 'a text'"),
    ],
)
def test_what_does_not_fit_is_refused(texts, labels, error, message):
    kind = None if labels and isinstance(labels[0], float) else int
    with pytest.raises(error, match=message):
        LinearBaseline().fit(texts, np.array(labels, kind), 2)
