"""The linear model of all words against scikit-learn, and the parts of its predictions."""

import itertools
import pickle

import numpy as np
import pytest
from scipy.sparse import hstack
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from gatedjax.lexicon import ClassHead, LabelHead, OrdinalHead, RealHead
from gatedjax.lexicon._linear import fit_linear, spell_run

RNG = np.random.default_rng(0)
WORDS = ["fine", "dull", "film", "the", "a", "cast", "plot", "not", "very", "so", "so-so", "it's"]
WORDS += ["café", "10"]
TEXTS = [[WORDS[i] for i in RNG.integers(len(WORDS), size=RNG.integers(1, 9))] for _ in range(120)]
NEW = [["a", "fine", "film"], ["xyz", "dull", "a"], ["fine"] * 3, ["the", "the", "dull", "the"]]
NUMBERS = np.array([("fine" in t) - ("dull" in t) + 0.1 * t.count("film") for t in TEXTS])
TARGETS = {
    "two": (ClassHead(2), (NUMBERS > 0).astype(int)),
    "three": (ClassHead(3), np.digitize(NUMBERS, [0, 0.5])),
    "labels": (LabelHead(2), np.stack([NUMBERS > 0, NUMBERS < 0], 1)),
    "number": (RealHead.of_targets(NUMBERS), NUMBERS),
    "grades": (OrdinalHead(3), np.digitize(NUMBERS, [0, 0.5])),
}


@pytest.fixture(scope="module", params=TARGETS)
def fitted(request):
    head, targets = TARGETS[request.param]
    return fit_linear(TEXTS, targets, head), head, targets


def vectorized(linear):
    """The features of scikit-learn with the vocabulary of a model, fitted to the same texts."""

    def letters(words):
        grams = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4)).build_analyzer()
        return [gram for gram in grams(" ".join(words)) if gram != " "]

    def pairs(words):
        return [*words, *map("|".join, itertools.pairwise(words))]

    names = [*linear.words, *("|".join(linear.words[i] for i in pair) for pair in linear.pairs)]
    blocks = []
    for analyzer, vocabulary in ((pairs, names), (letters, linear.ngrams)):
        found = TfidfVectorizer(analyzer=analyzer, vocabulary=vocabulary, sublinear_tf=True)
        blocks.append(found.fit(TEXTS))
        # the vocabulary is that of scikit-learn: all words, and what two texts have
        often = CountVectorizer(analyzer=analyzer, min_df=2).fit(TEXTS).vocabulary_
        assert set(vocabulary) == set(often) | (set(linear.words) & set(vocabulary))
    assert set(linear.words) == set(itertools.chain(*TEXTS))

    def transform(texts):
        return hstack([block.transform(texts) for block in blocks]).tocsr() / np.sqrt(2)

    return transform


def test_the_logits_are_those_of_the_features_of_scikit_learn(fitted):
    linear, head, _ = fitted
    for texts in (TEXTS, NEW):
        rows = vectorized(linear)(texts)
        expected = head.add_bias(rows @ linear.weights.astype(float), linear.bias.astype(float))
        np.testing.assert_allclose(linear.read(texts).logits, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two", "three", "number"])
def test_the_fit_is_that_of_scikit_learn(name):
    head, targets = TARGETS[name]
    linear = fit_linear(TEXTS, targets, head)
    rows = vectorized(linear)(TEXTS)
    if name == "number":
        rival = Ridge(alpha=1 / head.inverse_penalty).fit(rows, targets)
        np.testing.assert_allclose(linear.read(TEXTS).logits[:, 0], rival.predict(rows), atol=0.05)
        return
    rival = LogisticRegression(C=head.inverse_penalty, tol=1e-8, max_iter=10_000)
    theirs = rival.fit(rows, targets).predict_proba(rows)
    # The solver of a lexicon stops earlier.
    np.testing.assert_allclose(linear.read(TEXTS).probabilities, theirs, atol=0.03)


def test_the_parts_sum_to_the_logits(fitted):
    linear, *_ = fitted
    for words in [*NEW, TEXTS[0], [], ["ж"], ["一", "一", "fine", "一"]]:
        parts = linear.parts(words)
        sums = parts.bias + parts.words.sum(0) + parts.pairs.sum(0)
        np.testing.assert_allclose(sums, linear.read([words]).logits[0], rtol=1e-12, atol=1e-12)
        assert parts.words.shape == (len(words), linear.head.num_logits)
        assert [words[i] + words[j] for i, j in parts.places] == [
            a + b for a, b in itertools.pairwise(words) if [a, b] in named_pairs(linear)
        ]


def named_pairs(linear):
    return [[linear.words[i] for i in pair] for pair in linear.pairs]


def test_all_words_are_read_and_an_unknown_one_counts_by_its_letters(fitted):
    linear, *_ = fitted
    readings = linear.read([["fine", "fins"], ["fine", "ж"], ["ж"], []])
    assert [flags.tolist() for flags in readings.is_read] == [[True] * 2] * 2 + [[True], []]
    assert readings.is_known[0].tolist() == [True, False]
    assert readings.is_prior.tolist() == [False, False, True, True]
    assert np.abs(linear.parts(["fine", "fins"]).words[1]).max() > 0
    assert np.abs(linear.parts(["fine", "ж"]).words[1]).max() == 0
    assert (linear.share, linear.is_read.all()) == (1.0, True)


def test_a_text_has_the_same_bits_in_each_batch(fitted):
    linear, *_ = fitted
    together = linear.read(TEXTS)
    for row in range(0, 120, 17):
        alone = linear.read([["never", "met"], TEXTS[row]]).logits[1]
        assert (alone == together.logits[row]).all()
    copy = pickle.loads(pickle.dumps(linear))
    assert (copy.read(TEXTS).logits == together.logits).all()
    head, targets = fitted[1:]
    assert (fit_linear(TEXTS, targets, head).weights == linear.weights).all()


def test_units_without_spaces_share_an_n_gram_by_their_letters():
    texts = [["我", "爱", "你"], ["你", "好"], ["我", "好"]] * 4
    linear = fit_linear(texts, np.array([0, 1, 1] * 4), ClassHead(2))
    assert " 我爱你" in linear.ngrams
    assert "我爱" in linear.ngrams
    parts = linear.parts(["我", "爱", "x"])
    # 爱 is known, and x is spelled alone
    assert np.abs(parts.words[1]).max() > 0
    assert "爱x" not in spell_run("x")
    sums = parts.bias + parts.words.sum(0) + parts.pairs.sum(0)
    np.testing.assert_allclose(sums, linear.read([["我", "爱", "x"]]).logits[0], atol=1e-12)


def test_weights_count_like_copies_but_for_the_frequencies():
    head, targets = TARGETS["three"]
    weights = np.where(targets == 2, 5.0, 1.0)
    plain, heavy = (
        fit_linear(TEXTS, targets, head, sample_weight=w) for w in (np.full(120, 7.0), weights)
    )
    assert (plain.weights == fit_linear(TEXTS, targets, head).weights).all()
    assert (
        heavy.read(TEXTS).probabilities[:, 2].mean() > plain.read(TEXTS).probabilities[:, 2].mean()
    )
