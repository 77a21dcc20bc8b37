"""Lexicons whose gates see the neighbours: loops, held gates, and the measured leak."""

import itertools

import numpy as np
import pytest

from gatedjax.lexicon import WindowLexicon, fit_lexicon, measure_window_leak
from gatedjax.lexicon._lexicon import NOTHING_KNOWN, NOTHING_READ
from gatedjax.lexicon._window import find_neighbours
from tests.lexicon.test_lexicon import LABELS, TEXTS

UNSEEN = [
    ["a", "fine", "but", "slow", "film"],
    ["zebra"],
    ["he", "said", "he", "said", "it"],
    [],
    ["flat"],
]


@pytest.fixture(scope="module")
def lexicon():
    """Gates drawn at random; about a third of the words is open."""
    words = tuple(sorted({word for text in TEXTS for word in text}))
    gates = np.random.default_rng(0).normal(size=(len(words) + 2, 3)).astype(np.float32)
    reader = next(fit_lexicon(TEXTS, LABELS, 2, [1.0]))
    return WindowLexicon(words, gates, 0.7, reader, 0.3)


def score_loop(lexicon, text):
    row = {word: i for i, word in enumerate(lexicon.words)}
    unknown, edge = len(row), len(row) + 1
    near = [edge, *(row.get(word, unknown) for word in text), edge]
    a, left, right = lexicon.gates.T
    return np.array(
        [
            a[near[t]] + left[near[t - 1]] + right[near[t + 1]] - lexicon.cut
            for t in range(1, len(near) - 1)
        ]
    )


def test_the_scores_are_those_of_a_loop_over_the_words(lexicon):
    texts = TEXTS[:5] + UNSEEN
    for text, scores in zip(texts, lexicon.score(texts), strict=True):
        np.testing.assert_allclose(scores, score_loop(lexicon, text), rtol=1e-5, atol=1e-6)


def test_the_reader_reads_the_open_words_and_no_other_to_the_last_bit(lexicon):
    texts = TEXTS[:20] + UNSEEN
    readings = lexicon.read(texts)
    selected = [
        list(itertools.compress(text, gates))
        for text, gates in zip(texts, readings.is_open, strict=True)
    ]
    assert 0 < sum(map(len, selected)) < sum(map(len, texts))
    np.testing.assert_array_equal(
        readings.probabilities, lexicon.reader.read(selected).probabilities
    )
    seen = {word for text in TEXTS for word in text}
    for text, gates, known, prior in zip(
        texts, readings.is_open, readings.is_known, readings.is_prior, strict=True
    ):
        open_words = set(itertools.compress(text, score_loop(lexicon, text) > 0))
        assert prior == open_words.isdisjoint(seen)
        assert set(itertools.compress(text, gates)) == (set() if prior else open_words)
        assert known.tolist() == [word in seen for word in text]
    assert 0 < readings.is_prior.sum() < len(texts)


def test_a_text_without_an_open_word_gets_the_prior(lexicon):
    closed = WindowLexicon(lexicon.words, lexicon.gates, 100.0, lexicon.reader, 0.3)
    readings = closed.read([*TEXTS[:2], ["xqx"], []])
    np.testing.assert_array_equal(readings.probabilities, [lexicon.reader.prior] * 4)
    assert not np.concatenate(readings.is_open).any()
    assert readings.notes == [NOTHING_READ] * 2 + [NOTHING_KNOWN] * 2
    shares = closed.share(TEXTS[0])
    assert not shares.words.any()
    np.testing.assert_array_equal(shares.bias, np.log(lexicon.reader.prior))


def test_a_text_has_the_same_bits_in_every_batch(lexicon):
    alone = np.concatenate([lexicon.read([text]).probabilities for text in TEXTS[:8]])
    np.testing.assert_array_equal(alone, lexicon.read(TEXTS[:8]).probabilities)
    assert lexicon.read([]).is_open == []


def test_the_shares_sum_to_the_logits_and_closed_words_have_none(lexicon):
    text = TEXTS[0]
    shares, readings = lexicon.share(text), lexicon.read([text])
    logits = shares.bias + shares.words.sum(0) + shares.pairs.sum(0)
    exponentials = np.exp(logits - logits.max())
    np.testing.assert_allclose(exponentials / exponentials.sum(), readings.probabilities[0])
    assert not shares.words[~readings.is_open[0]].any()
    assert readings.is_open[0][shares.places].all()


def test_the_leak_is_that_of_removing_words_one_by_one(lexicon):
    texts = [*TEXTS[:6], ["flat"]]
    closed, opened, changed = [], [], 0
    for text in texts[:-1]:
        before = lexicon.read([text])
        best = before.probabilities[0].argmax()
        for place in range(len(text)):
            after = lexicon.read([text[:place] + text[place + 1 :]])
            change = abs(before.probabilities[0, best] - after.probabilities[0, best])
            if before.is_open[0][place]:
                opened.append(change)
                continue
            closed.append(change)
            changed += (np.delete(before.is_open[0], place) != after.is_open[0]).any()
    leak = measure_window_leak(lexicon, texts)
    assert (leak.texts, leak.closed) == (7, len(closed))
    assert 0 < changed < len(closed)
    np.testing.assert_allclose(leak.closed_change, np.mean(closed))
    np.testing.assert_allclose(leak.open_change, np.mean(opened))
    assert leak.changed_gates == changed / len(closed)
    few = measure_window_leak(lexicon, texts, most=2)
    assert few.closed < leak.closed


def test_the_leak_of_gates_that_do_not_look_at_their_neighbours_is_zero(lexicon):
    gates = lexicon.gates.copy()
    gates[:, 1:] = 0
    leak = measure_window_leak(
        WindowLexicon(lexicon.words, gates, 0.0, lexicon.reader, 0.3), TEXTS[:6]
    )
    assert leak.closed > 0
    assert (leak.closed_change, leak.changed_gates) == (0.0, 0.0)
    assert leak.open_change > 0


def test_neighbours_do_not_cross_the_border_of_a_text():
    words, rows = np.arange(6), np.array([0, 0, 2, 2, 2, 3])
    near = find_neighbours(words, rows, 9)
    assert near.left_words.tolist() == [9, 0, 9, 2, 3, 9]
    assert near.right_words.tolist() == [1, 9, 3, 4, 9, 9]


@pytest.mark.parametrize(
    "gates",
    [np.zeros((3, 3), np.float32), *(np.full((2, 3), x, np.float32) for x in (np.nan, 3e38))],
    ids=["shape", "nan", "overflow"],
)
def test_damaged_gates_are_refused(gates, lexicon):
    with pytest.raises(ValueError, match=r"gates must be numbers below 1e[+]37 of shape"):
        WindowLexicon((), gates, 0.0, lexicon.reader, 0.3).check()


def test_a_gate_word_that_occurs_twice_is_refused(lexicon):
    words = (*lexicon.words, lexicon.words[0])
    gates = np.zeros((len(words) + 2, 3), np.float32)
    with pytest.raises(ValueError, match=f"words must be different, got '{words[0]}' more than"):
        WindowLexicon(words, gates, 0.0, lexicon.reader, 0.3).check()
