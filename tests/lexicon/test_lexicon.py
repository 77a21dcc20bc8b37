"""The gated lexicon against loops over texts, and what its gates promise."""

import collections
import concurrent.futures
import dataclasses
import itertools
import math
import pickle
import random
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.special import softmax
from threadpoolctl import threadpool_limits

from gatedjax.lexicon import (
    choose_words,
    fit_lexicon,
    fit_weights,
    spell,
)
from gatedjax.lexicon._spelling import is_spaceless
from gatedjax.text.corpus._tokens import Splitter, Tokenizer, learn_units
from tests._programs import environment
from tests.conftest import ROOT

GOOD, BAD = ["fine", "moving", "bright", "warm"], ["dull", "slow", "flat", "cold"]
TEXTS = [
    f"a {one} and {two} film , {end}".split()
    for words in (GOOD, BAD)
    for one, two in itertools.permutations(words, 2)
    for end in ("see it .", "the end !", "he said")
]
LABELS = np.repeat([1, 0], len(TEXTS) // 2)
# The same texts in units of Han, Thai and kana, with some words in letters between spaces.
_UNITS = ["好", "好看", "ดี", "ดีมาก", "差", "不好", "ไม่ดี", "看差"]
UNIT_OF = dict(zip([*GOOD, *BAD], _UNITS, strict=True)) | {
    "a": "一",
    "and": "和一",
    "film": "电影",
    "see": "看",
    "it": "これ",
    "the": "の",
}
UNITS = [[UNIT_OF.get(word, word) for word in text] for text in TEXTS]
both_scripts = pytest.mark.parametrize(
    ("num_classes", "texts"), [(2, TEXTS), (3, UNITS)], ids=["spaces", "units"]
)


def lexicons(num_classes=2, shares=(1.0, 0.5, 0.25), texts=TEXTS, **options):
    """A lexicon of each share; with three classes the first texts have a class of their own."""
    labels = LABELS.copy()
    if num_classes == 3:
        labels[:6] = 2
    return list(fit_lexicon(texts, labels, num_classes, shares, **options))


def naive_across(left, right):
    """The n-grams of up to 4 characters across the border of two units, up to 3 on each side."""
    if not is_spaceless(left) or not is_spaceless(right):
        return []
    joined, border = left + right, len(left)
    return [
        joined[begin:end]
        for begin in range(max(border - 3, 0), border)
        for end in range(border + 1, min(border + 3, len(joined)) + 1)
        if end - begin <= 4
    ]


def naive_counts(lexicon, words):
    """Column -> how often a text of open words has the feature, word by word."""
    number = {word: i for i, word in enumerate(lexicon.words)}
    weighted = len(lexicon.counts)
    counts = {}

    def add(column):
        counts[column] = counts.get(column, 0) + 1

    for word in words:
        if number.get(word, weighted) < weighted:
            add(number[word])
        for ngram in spell(word):
            if ngram in lexicon.ngrams:
                add(weighted + len(lexicon.pairs) + lexicon.ngrams.index(ngram))
    pairs = {tuple(pair): i for i, pair in enumerate(lexicon.pairs.tolist())}
    for pair in itertools.pairwise(words):
        key = tuple(number.get(word, -1) for word in pair)
        if key in pairs:
            add(weighted + pairs[key])
        for ngram in naive_across(*pair):
            if ngram in lexicon.ngrams:
                add(weighted + len(lexicon.pairs) + lexicon.ngrams.index(ngram))
    return counts


def naive_gate(lexicon, word):
    """The gate of a word, from the sum of the centred weights of its n-grams, one by one."""
    if word in lexicon.words:
        return bool(lexicon.is_read[lexicon.words.index(word)])
    if word.startswith("@"):
        return False
    weights = lexicon.head.centre(lexicon.scale.astype(float)[:, None] * lexicon.weights)
    total = np.zeros(weights.shape[1])
    for ngram in spell(word):
        if ngram in lexicon.ngrams:
            total = total + weights[lexicon.ngrams.index(ngram) - len(lexicon.ngrams)]
    return bool(np.abs(total).max() > lexicon.threshold)


def naive_bits(lexicon, words):
    """The scores W f / |f| of open words with the bits of a loop over columns in their order."""
    counts = naive_counts(lexicon, words)
    values = [float(lexicon.scale[c]) * (1 + float(np.log(n))) for c, n in sorted(counts.items())]
    square = 0.0
    for value in values:
        square += value * value
    factor = 1 / math.sqrt(square) if square > 0 else 1.0
    scores = np.zeros(lexicon.weights.shape[1])
    for column, value in zip(sorted(counts), values, strict=True):
        scores = scores + value * factor * lexicon.weights[column].astype(float)
    return scores


@pytest.mark.slow
@both_scripts
def test_texts_are_read_with_the_bits_of_a_loop(num_classes, texts, monkeypatch):
    """In parts of any size, and whatever was read before."""
    stages = lexicons(num_classes, texts=texts)[::2]
    splitter = social(["天气好 今天天气好", "天气 今天"] * 3)
    odd = [
        ["fine", "fine", "unseen", "and"],
        ["看好", "电", "影", "好看", "film"],
        ["好", ",", "好看"],
    ]
    texts = [*odd, *texts[::7], *(splitter.split(text) for text in random_texts()[::2])]
    for lexicon in stages:
        monkeypatch.setattr("gatedjax.lexicon._features.PART", 10**6)
        reading = lexicon.read(texts)
        for words, is_read, is_prior in zip(texts, reading.is_read, reading.is_prior, strict=True):
            gates = [naive_gate(lexicon, word) for word in words]
            read_words = set(itertools.compress(words, gates))
            assert is_prior == read_words.isdisjoint(lexicon.words)
            assert is_read.tolist() == [gate and not is_prior for gate in gates]
        scores = [
            naive_bits(lexicon, list(itertools.compress(words, is_read)))
            for words, is_read in zip(texts, reading.is_read, strict=True)
        ]
        logits = lexicon.head.add_bias(np.array(scores), lexicon.bias.astype(float))
        logits[reading.is_prior] = np.log(lexicon.prior)
        np.testing.assert_array_equal(reading.logits, logits)
        np.testing.assert_allclose(reading.probabilities, softmax(logits, 1), rtol=1e-12)
        monkeypatch.setattr("gatedjax.lexicon._features.PART", 7)
        fresh = dataclasses.replace(lexicon)
        for part in (texts[150:], texts[:150], texts):
            again = fresh.read(part)
        np.testing.assert_array_equal(again.logits, logits)
        for one, other in zip(again.is_read, reading.is_read, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_lexicon_that_has_read_texts_is_copied_and_recovers_from_a_word_that_is_no_text():
    lexicon = lexicons()[-1]
    expected = lexicon.read(TEXTS).logits
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(lexicon)).read(TEXTS).logits, expected)
    for _ in range(2):
        with pytest.raises(AttributeError):
            lexicon.read([["fine", 3]])
    np.testing.assert_array_equal(lexicon.read(TEXTS).logits, expected)


def test_threads_share_the_words_that_a_lexicon_has_read():
    lexicon = lexicons()[-1]
    texts = [[f"word{i % 97}", f"fine{i % 89}", *TEXTS[i % len(TEXTS)]] for i in range(2000)]
    expected = lexicon.read(texts).logits
    fresh = dataclasses.replace(lexicon)
    parts = [texts[start::40] for start in range(40)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        readings = list(pool.map(fresh.read, parts))
    for start, reading in enumerate(readings):
        np.testing.assert_array_equal(reading.logits, expected[start::40])


def naive_scale(lexicon, texts, labels):
    """The weight of each feature, by loops over the texts and the classes."""
    rows = [set(naive_counts(lexicon, words)) for words in texts]
    first = len(lexicon.counts) + len(lexicon.pairs)
    scale = np.zeros(len(lexicon.scale))
    for columns, factor in ((range(first), 1.0), (range(first, len(scale)), 0.5)):
        idf, largest = [], []
        for column in columns:
            count = sum(column in row for row in rows)
            idf.append(math.log((1 + len(texts)) / (1 + count)) + 1)
        tables = []
        for label in set(labels.tolist()):
            inside = [
                1 + sum(c in r for r, y in zip(rows, labels, strict=True) if y == label)
                for c in columns
            ]
            outside = [
                1 + sum(c in r for r, y in zip(rows, labels, strict=True) if y != label)
                for c in columns
            ]
            tables.append([
                abs(math.log(i / sum(inside)) - math.log(o / sum(outside)))
                for i, o in zip(inside, outside, strict=True)
            ])  # fmt: skip
        largest = [max(values) for values in zip(*tables, strict=True)]
        for column, one, other in zip(columns, idf, largest, strict=True):
            mean = (one / np.mean(idf) + other / np.mean(largest)) / 2
            scale[column] = factor * mean**1.5
    return scale


@both_scripts
def test_features_have_the_weights_of_the_equation(num_classes, texts):
    lexicon = lexicons(num_classes, texts=texts)[0]
    labels = LABELS.copy()
    labels[:6] = num_classes - 1 if num_classes == 3 else labels[:6]
    np.testing.assert_allclose(lexicon.scale, naive_scale(lexicon, texts, labels), rtol=1e-6)


@both_scripts
def test_ngrams_are_in_two_words_or_borders_and_in_two_texts(num_classes, texts):
    once = ["水", "山水", "山水"]
    carriers, rows = collections.defaultdict(set), collections.defaultdict(set)
    for row, words in enumerate([*texts, once]):
        spelled = [(word, spell(word)) for word in words]
        spelled += [(pair, naive_across(*pair)) for pair in itertools.pairwise(words)]
        for carrier, ngrams in spelled:
            for ngram in ngrams:
                carriers[ngram].add(carrier)
                rows[ngram].add(row)
    wanted = {g for g in carriers if len(carriers[g]) > 1 and len(rows[g]) > 1}
    (lexicon,) = fit_lexicon([*texts, once], np.append(LABELS, 0), 2, [1.0])
    assert set(lexicon.ngrams) == wanted
    assert any(" " not in ngram for ngram in wanted)


def naive_effects(lexicon, texts):
    """Word -> at each of its places the largest absolute part."""
    number = {word: i for i, word in enumerate(lexicon.words)}
    pairs = {tuple(pair): i for i, pair in enumerate(lexicon.pairs.tolist())}
    weights = lexicon.head.centre(lexicon.scale[:, None].astype(float) * lexicon.weights)
    first_pair, first_ngram = len(lexicon.counts), len(lexicon.counts) + len(lexicon.pairs)
    effects = {}
    for words in texts:
        counts = naive_counts(lexicon, words)
        square = sum((lexicon.scale[c] * (1 + math.log(n))) ** 2 for c, n in counts.items())
        for place, word in enumerate(words):
            part = weights[number[word]].copy()
            for ngram in spell(word):
                if ngram in lexicon.ngrams:
                    part += weights[first_ngram + lexicon.ngrams.index(ngram)]
            for pair in (words[max(place - 1, 0) : place + 1], words[place : place + 2]):
                key = tuple(number[word] for word in pair)
                part += weights[first_pair + pairs[key]] if key in pairs else 0.0
                for ngram in naive_across(*pair) if len(pair) == 2 else ():
                    if ngram in lexicon.ngrams:
                        part += weights[first_ngram + lexicon.ngrams.index(ngram)]
            effects.setdefault(word, []).append(np.abs(part).max() / math.sqrt(square))
    return effects


@pytest.mark.parametrize("pseudo_count", [0, 3])
@both_scripts
def test_the_words_of_the_largest_effects_are_read(num_classes, texts, pseudo_count):
    """As many as fit into the share of the words; a word that is closed stays closed."""
    # Two words occur once, which the pseudo-count ranks lower.
    texts = [[*texts[0], "brightest"], [*texts[1], "coldest"], *texts[2:]]
    every, half, quarter = lexicons(num_classes, texts=texts, pseudo_count=pseudo_count)
    found = naive_effects(every, texts)
    effects = {word: sum(each) / (len(each) + pseudo_count) for word, each in found.items()}
    counts = collections.Counter(itertools.chain.from_iterable(texts))
    scores, before = np.array([*map(effects.get, counts)]), set(counts)
    for lexicon in (half, quarter):
        room = lexicon.share * counts.total()
        is_read = choose_words(scores, np.array([*counts.values()]), room)
        chosen = set(itertools.compress(lexicon.words, lexicon.is_read.tolist()))
        assert chosen == set(itertools.compress(counts, is_read.tolist())) < before
        assert sum(map(counts.get, chosen)) <= room
        before = chosen


def test_choose_words_is_a_greedy_loop():
    rng = np.random.default_rng(1)
    for _ in range(50):
        scores = rng.integers(-3, 3, 12).astype(float)
        scores[rng.integers(0, 12, 2)] = -np.inf
        counts, room = rng.integers(1, 9, 12), float(rng.uniform(0, 40))
        expected, left = np.zeros(12, bool), room
        for i in sorted(range(12), key=lambda i: -scores[i]):
            if scores[i] > -np.inf and counts[i] <= left:
                expected[i], left = True, left - counts[i]
        np.testing.assert_array_equal(choose_words(scores, counts, room), expected)


def test_a_name_that_training_has_not_seen_is_not_read():
    texts = [["@ann", "fine"], ["@bob", "dull"]] * 4
    (lexicon,) = fit_lexicon(texts, np.array([1, 0] * 4), 2, [1.0])
    (is_read,) = lexicon.read([["@ann", "@anna", "fine", "finer"]]).is_read
    assert is_read.tolist() == [True, False, True, True]


@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_weights_are_a_stationary_point_of_the_loss(num_classes):
    """The slope by differences of the loss, in loops, is nearly 0 at the weights."""
    rng = np.random.default_rng(2)
    features = rng.normal(size=(30, 4)) * (rng.random((30, 4)) < 0.5)
    labels = rng.integers(0, num_classes, 30)
    given = rng.uniform(0, 2, 30)
    weights, bias = fit_weights(csr_matrix(features), labels, num_classes, 5.0, sample_weight=given)

    def loss(point):
        w, b = point[:-1], point[-1]
        total = 0.5 * (w**2).sum()
        for row, label, weight in zip(features, labels, given, strict=True):
            z = row @ w + b
            z = np.array([-z[0] / 2, z[0] / 2]) if len(z) == 1 else z
            total += 5 * weight * (np.log(np.exp(z).sum()) - z[label])
        return total

    point = np.concatenate([weights, bias[None]])
    for place in np.ndindex(point.shape):
        step = np.zeros_like(point)
        step[place] = 1e-4
        slope = (loss(point + step) - loss(point - step)) / 2e-4
        assert abs(slope) / len(labels) < 2e-2
        assert loss(point + 300 * step) >= loss(point) - 1e-2


def social(texts):
    return Splitter(learn_units(Tokenizer("social"), texts))


def random_texts():
    """Texts of words of the lexicon, of unknown words, and of any characters of Unicode."""
    rng = random.Random(3)
    words = [*GOOD, *BAD, "film", "a", "dullness", "xyz", "fine-ish", "it's", "天气好", "ก้า", "İ"]
    texts = [" ".join(rng.choices(words, k=rng.randrange(1, 12))) for _ in range(300)]
    for _ in range(300):
        letters = [chr(rng.randrange(1, 0x2FFFF)) for _ in range(rng.randrange(1, 20))]
        texts.append("".join(c for c in letters if unicodedata.category(c) != "Cs") + " fine")
    return texts


@pytest.mark.slow
@both_scripts
def test_the_open_words_alone_have_the_same_bits(num_classes, texts):
    splitter = social(
        ["天气好 今天天气好", "天气 今天"] * 3 if texts is TEXTS else map("".join, texts)
    )
    stages = lexicons(num_classes, texts=texts)
    rng = random.Random(4)
    units = [*UNIT_OF.values(), *UNIT_OF, "天", "。", " ", "\u0e49", "ー", "#好"]
    raw = ["".join(rng.choices(units, k=rng.randrange(1, 20))) for _ in range(500)]
    texts = [splitter.split(text) for text in [*random_texts(), *raw]]
    texts = [words for words in texts if words]
    for lexicon in stages:
        reading = lexicon.read(texts)
        assert not all(gates.all() for gates in reading.is_read) or lexicon.share == 1
        remaining = [
            splitter.split(" ".join(itertools.compress(words, gates)))
            for words, gates in zip(texts, reading.is_read, strict=True)
        ]
        again = lexicon.read(remaining)
        np.testing.assert_array_equal(reading.probabilities, again.probabilities)
        assert [len(words) for words in remaining] == [int(g.sum()) for g in reading.is_read]
        single = [lexicon.read([words]).probabilities[0] for words in texts[::9]]
        np.testing.assert_array_equal(reading.probabilities[::9], single)


@both_scripts
def test_shares_sum_to_the_logits(num_classes, texts):
    for lexicon in lexicons(num_classes, texts=texts):
        odd = [["fine", "fine", "fine", "dullness"], ["unseen"], ["好"], ["好"] * 3]
        for words in (*texts[::9], *odd, ["看好", "电", "影", "好看"]):
            parts = lexicon.parts(words)
            total = parts.bias + parts.words.sum(0) + parts.pairs.sum(0)
            reading = lexicon.read([words])
            np.testing.assert_allclose(total, reading.logits[0], atol=1e-12)
            assert not parts.words[~reading.is_read[0]].any()


TRAIN = """
import random, sys
from gatedjax import TextClassifier
draw = random.Random(0)
words = [f"{draw.choice('abcd')}{i}" for i in range(3000)]
texts = [" ".join(draw.choices(words, k=12)) for _ in range(700)]
labels = [max("abcdef", key=lambda c: text.count(c)) for text in texts]
TextClassifier(share=0.5).fit(texts, labels).save(sys.argv[1])
"""


@pytest.mark.slow
def test_threads_of_the_linear_algebra_and_hash_seeds_change_no_bit_of_a_model(tmp_path):
    # This process has another hash seed, drawn by Python.
    changes = {"OPENBLAS_NUM_THREADS": "2", "PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", TRAIN, tmp_path / "there" / "model"]
    subprocess.run(command, cwd=ROOT, env=environment(**changes), check=True)
    with threadpool_limits(1, "blas"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["", tmp_path / "here" / "model"])
        exec(TRAIN, {})
    one, two = (
        {path.name: path.read_bytes() for path in (tmp_path / name / "model").iterdir()}
        for name in ("here", "there")
    )
    assert one.keys() == two.keys()
    assert not [name for name in one if one[name] != two[name]]


def test_tokens_are_the_ngrams_of_their_script():
    assert spell("at") == ["a", "t", " a", "at", "t ", " at", "at ", " at "]
    assert spell("天气") == ["天", "气", "天气"]
    assert spell("#天")[:3] == ["#", "天", " #"]
    assert len(spell("x" * 99)) == 30 + 31 + 30 + 29 + 28


def test_weights_of_texts_change_the_fit_and_their_scale_does_not():
    def fit(weights):
        return list(fit_lexicon(TEXTS, LABELS, 2, (1.0, 0.5), sample_weight=weights))[-1]

    same, plain = fit(np.full(len(TEXTS), 7)), fit(None)
    np.testing.assert_array_equal(same.weights, plain.weights)
    heavy = fit(np.where(LABELS == 1, 9.0, 1.0))
    ambiguous = [["unseen"], ["film"]]
    assert (
        heavy.read(ambiguous).probabilities[:, 1] > plain.read(ambiguous).probabilities[:, 1]
    ).all()


@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_temperature_divides_the_logits_and_their_parts(num_classes):
    plain = lexicons(num_classes)[-1]
    warm = dataclasses.replace(plain, temperatures=(5.0, 4.0, 3.0, 2.5))
    reading = plain.read(TEXTS)
    counts = [int(gates.sum()) for gates in reading.is_read]
    # By hand: 1 word, 2 words, 3 to 5 words, more.
    of_text = [{1: 5.0, 2: 4.0, 3: 3.0, 4: 3.0, 5: 3.0}.get(n, 2.5) for n in counts]
    powers = reading.probabilities ** (1 / np.array(of_text)[:, None])
    expected = powers / powers.sum(1, keepdims=True)
    np.testing.assert_allclose(warm.read(TEXTS).probabilities, expected, rtol=1e-12)
    parts = warm.parts(TEXTS[0])
    total = np.exp(parts.bias + parts.words.sum(0) + parts.pairs.sum(0))
    np.testing.assert_allclose(total / total.sum(), expected[0], rtol=1e-9)
