"""The linear models of scikit-learn that stand beside every model: odd texts, weights, bounds,
the chi-squared filter, and the comparison of their scores.
"""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.feature_selection import chi2
from sklearn.linear_model import LogisticRegression

from gatedjax._commands import _training
from gatedjax.data import Vocabulary
from gatedjax.lexicon import Readings
from gatedjax.text.answers._report import render_better
from gatedjax.text.corpus._corpus import Rows
from gatedjax.text.fit import _rivals
from gatedjax.text.fit._network import _Part
from gatedjax.text.fit._rivals import (
    compare_scores,
    filter_words,
    measure_rivals,
    train_rival,
    train_rivals,
)
from gatedjax.text.fit._stages import TextPart
from gatedjax.text.targets import ClassTarget, RealTarget


def reviews(n, num_classes=2, seed=0):
    """Words of which some tell the class, most of the time, and a bool column for each class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(num_classes, size=n)
    texts = []
    for label in labels:
        told = label if rng.random() < 0.9 else rng.integers(num_classes)
        words = [f"w{i}" for i in rng.integers(300, size=12)]
        words.insert(int(rng.integers(12)), f"Class{told}")
        texts.append(tuple(words))
    return texts, np.eye(num_classes, dtype=bool)[labels]


def test_the_order_of_words_counts_where_a_pair_recurs():
    texts = [("not", "good"), ("good", "not")] * 20
    columns = np.eye(2, dtype=bool)[np.arange(40) % 2]
    assert train_rival(texts, columns)(texts).argmax(1).tolist() == [0, 1] * 20


def test_a_label_is_the_logistic_regression_of_scikit_learn():
    texts, columns = reviews(300)
    weights = np.random.default_rng(2).uniform(0.5, 2, 300)
    found = train_rival(texts, columns, weights)(texts)[:, 1]
    features = _rivals._choose_features(texts, 10**6)
    assert any(" " in name for name in features)
    vectors = TfidfVectorizer(
        analyzer=_rivals._list_features, vocabulary=features, lowercase=False, sublinear_tf=True
    )
    rows = vectors.fit_transform(texts)
    model = LogisticRegression(C=10.0, solver="liblinear", tol=0.1)
    model.fit(rows, columns[:, 1], weights / weights.mean())
    np.testing.assert_allclose(found, model.predict_proba(rows)[:, 1], rtol=1e-12)


def test_the_words_of_a_second_text_are_other_words():
    texts = tuple(Rows.join([np.array(ids)]) for ids in ([2, 3], [3]))
    words = _Part(texts, np.zeros(1, int)).words(Vocabulary(["a", "b"]))
    assert list(words) == [["a", "b", "2:b"]]


def test_weights_count_and_their_unit_does_not():
    texts, columns = reviews(150, 3)
    plain = train_rival(texts, columns)(texts)
    heavy = train_rival(texts, columns, np.where(columns[:, 2], 5.0, 1.0))(texts)
    assert heavy[:, 2].mean() > plain[:, 2].mean()
    same = train_rival(texts, columns, np.full(150, 7.0))(texts)
    np.testing.assert_allclose(same, plain, atol=1e-12)


def test_texts_of_nothing_known_have_one_answer():
    texts, columns = reviews(100)
    read = train_rival([*texts, ()], np.concatenate([columns, columns[:1]]))
    found = read([(), ("never",), ("\x00", "", "🙂"), ("x",) * 5000])
    assert np.isfinite(found).all()
    assert (found == found[0]).all()


def test_what_cannot_be_learned_is_constant():
    columns = np.array([[True, False, True]] * 3 + [[True, False, False]])
    found = train_rival([(), (), (), ()], columns)([("a",)])
    assert found[0, :2].tolist() == [1, 0]
    assert 0.5 < found[0, 2] < 1


def test_of_too_many_words_and_features_some_are_left_out(monkeypatch):
    texts, columns = reviews(1000)  # 13 words each
    monkeypatch.setattr(_rivals, "_MOST_WORDS", 2000)
    monkeypatch.setattr(_rivals, "_MOST_FEATURES", 50)
    kept = _rivals._choose_texts(1000, 13_000, 2000)
    assert 150 <= kept.sum() <= 154
    monkeypatch.setattr(_rivals, "_choose_texts", lambda *_: kept)
    seen = []
    choose = _rivals._choose_features
    monkeypatch.setattr(
        _rivals, "_choose_features", lambda t, most: seen.append(len(t)) or choose(t, most)
    )
    read = train_rival(iter(texts), columns, size=13_000)
    assert seen == [kept.sum()]
    assert len(choose(texts, 50)) == 50
    assert {"class0", "class1"} < set(choose(texts, 50))
    assert (read(texts).argmax(1) == columns.argmax(1)).mean() > 0.7
    # one text of more words than that is still one to learn from
    monkeypatch.undo()
    assert _rivals._choose_texts(2, 4001, 1).sum() == 1


def part_of(texts, labels):
    return TextPart(texts, texts, [" ".join(text) for text in texts], np.asarray(labels))


def test_long_texts_have_no_model_of_characters(monkeypatch):
    texts, columns = reviews(60)
    part, target = part_of(texts, columns.argmax(1)), ClassTarget(("a", "b"))
    ours = target.repeat_prior(np.array([0.5, 0.5]), 60)
    both, _ = measure_rivals(target, part, part, part, part, ours, 1.0)
    assert set(both) == {"baseline", "character_baseline", "constant_baseline"}
    assert both["character_baseline"]["accuracy"] > 0.9
    monkeypatch.setattr(_rivals, "_MOST_CHARACTERS", 100)
    both.pop("character_baseline")
    assert measure_rivals(target, part, part, part, part, ours, 1.0)[0] == both


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_the_filter_keeps_the_words_of_the_chi_squared_of_scikit_learn(share):
    texts, columns = reviews(200, 3)
    texts[-1] = ()  # a text without a word counts as well
    counted = CountVectorizer(analyzer=list)
    rows = counted.fit_transform(texts)
    totals = np.asarray(rows.sum(0)).ravel()
    scores = chi2(rows, columns.argmax(1))[0] / totals
    room, expected = share * totals.sum(), set()
    for place in np.lexsort((np.arange(len(totals)), -scores)).tolist():
        if totals[place] > 1 and totals[place] <= room:
            room -= totals[place]
            expected.add(str(counted.get_feature_names_out()[place]))
    kept = filter_words(texts, columns, share)
    # words of equal scores are chosen by another order
    least = min(scores[counted.vocabulary_[word]] for word in kept)
    ties = {w for w, i in counted.vocabulary_.items() if np.isclose(scores[i], least)}
    assert kept - ties == expected - ties
    used = sum(totals[counted.vocabulary_[word]] for word in kept)
    assert share - 0.05 < used / totals.sum() <= share
    assert {"Class0", "Class1", "Class2"} <= kept or share == 0.1


def test_the_filtered_model_reads_no_other_word():
    texts, columns = reviews(300)
    part, target = part_of(texts, columns.argmax(1)), ClassTarget(("a", "b"))
    kept = filter_words(texts, columns, 0.3)
    read = train_rivals(target, part, 0.3)["chi2_baseline"]
    test, _ = reviews(100, seed=1)
    shorter = [tuple(word for word in text if word in kept) for text in test]
    readings = read(part_of(test, np.zeros(100, int)))
    again = read(part_of(shorter, np.zeros(100, int)))
    assert (readings.probabilities == again.probabilities).all()
    flags = np.concatenate(readings.is_read)
    assert flags.tolist() == [word in kept for text in test for word in text]
    assert 0.1 < flags.mean() < 0.4


def test_the_interval_is_that_of_mcnemars_test():
    rng = np.random.default_rng(3)
    ours, theirs = rng.random(500) < 0.7, rng.random(500) < 0.78
    found = compare_scores(ours.astype(float), theirs.astype(float), None)
    better, worse = int((theirs & ~ours).sum()), int((ours & ~theirs).sum())
    # the standard error of two paired proportions (Agresti, Categorical Data Analysis, 11.1)
    error = math.sqrt(better + worse - (better - worse) ** 2 / 500) / 500
    mean = (better - worse) / 500
    np.testing.assert_allclose(found["interval"], [mean - 1.96 * error, mean + 1.96 * error])
    assert (found["ours"], found["theirs"]) == (ours.mean(), theirs.mean())
    # whole weights are like copies of the texts, up to the error, which counts the copies once
    weights = rng.integers(1, 4, 500)
    heavy = compare_scores(ours.astype(float), theirs.astype(float), weights.astype(float))
    copies = compare_scores(*(np.repeat(v.astype(float), weights) for v in (ours, theirs)), None)
    assert sum(heavy["interval"]) == pytest.approx(sum(copies["interval"]))
    assert np.ptp(heavy["interval"]) > np.ptp(copies["interval"])


def test_of_two_errors_the_smaller_is_better():
    texts, columns = reviews(60)
    numbers = columns.argmax(1).astype(float)
    target, part = RealTarget(()), part_of(texts, numbers)

    def name_better(ours):
        readings = Readings.of_outputs(ours[:, None], ours[:, None])
        return set(measure_rivals(target, part, part, part, part, readings, 1.0)[1])

    assert name_better(numbers) == set()
    assert name_better(1 - numbers) == {target.rival, target.constant}


@pytest.mark.slow
def test_only_a_model_that_is_better_by_more_than_chance_is_named():
    texts, columns = reviews(400)
    labels, target = columns.argmax(1), ClassTarget(("a", "b"))
    part = part_of(texts, labels)

    def name_better(wrong):
        ours = np.where(np.arange(400) < wrong, 1 - labels, labels)
        readings = target.repeat_prior(np.array([1.0, 0.0]), 400)._replace(
            probabilities=np.eye(2)[ours]
        )
        return measure_rivals(target, part, part, part, part, readings, 1.0)[1]

    assert name_better(0) == {}
    better = name_better(120)
    assert set(better) == {"logistic regression on words", "logistic regression on characters"}
    entry = better["logistic regression on words"]
    assert entry["ours"] == pytest.approx(0.7)
    assert entry["interval"][0] > 0
    assert name_better(400)["most frequent class"]["ours"] == 0
    report = {"better": better}
    lines = render_better(report, "test", target, "lexicon")
    assert "--model linear` trains such a model of words and letters, which reads all" in lines[-1]
    assert len(render_better(report, "test", target, "linear")) == len(lines) - 1
    entry = {"ours": 0.7, "interval": [0.05, 0.15]}
    rivals = {name: entry | {"theirs": theirs} for name, theirs in (("a", 0.8), ("b", 0.9))}
    for kind, order in ((target, "ba"), (RealTarget, "ab")):  # a number has an error
        *lines, hint = render_better({"better": rivals}, "test", kind, "lexicon")
        assert lines == [
            f"{name} is better than this model: {kind.paired} {rivals[name]['theirs']:.4f} against "
            "0.7000 on the test texts (95 % interval of the difference 0.0500 to 0.1500)"
            for name in order
        ]
        assert ("FOLDER --task regression --model linear`" in hint) == (kind is RealTarget)
    only = {"better": {"most frequent class": better["logistic regression on words"]}}
    assert len(render_better(only, "test", target, "lexicon")) == 1


@pytest.mark.parametrize("checked", ["test", "validation"])
def test_the_card_names_the_part_on_which_a_simple_model_is_better(checked):
    entry = {"ours": 0.5, "theirs": 0.75, "interval": [0.125, 0.375]}
    report = {"better": {"most frequent class": entry}, "baseline": {}, "data": {}}
    report |= {"validation": {"accuracy": 0.5}} | {checked: {"accuracy": 0.5}}
    trained = SimpleNamespace(report=report, target=ClassTarget(("a", "b")))
    options = SimpleNamespace(model="lexicon", share=None, seed=0)
    command = SimpleNamespace(out=Path("model"), data="reviews.csv")
    card = _training._card(command, "text", options, trained)
    assert f"accuracy 0.7500 against 0.5000 on the {checked} texts" in card.description
