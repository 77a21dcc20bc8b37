"""Texts as numbers, their fixed split, the vocabulary and the counts, against plain loops."""

import collections
import itertools
import math

import numpy as np
import pytest

from gatedjax.data import tokenize
from gatedjax.data.text._vocabulary import UNK
from gatedjax.text.corpus import _corpus, _tokens
from gatedjax.text.corpus._corpus import (
    Numbers,
    build_vocabulary,
    log_ratios,
    read_corpus,
    split_texts,
)
from gatedjax.text.sources._open import open_table
from gatedjax.text.sources._table import Columns

WORDS = ("Film", "film", "dull", "great", "it's", "3.5", "...")


def drawn(n, seed=0, classes=("a", "b", "c")):
    """Texts of 1 to 9 words with labels."""
    rng = np.random.default_rng(seed)
    return [
        (" ".join(rng.choice(WORDS, rng.integers(1, 10))), str(rng.choice(classes)))
        for _ in range(n)
    ]


def read(rows, *, lowercase=True, columns=None, **options):
    numbers = Numbers(lowercase=lowercase)
    return read_corpus(open_table(rows, columns), numbers, **options), numbers


@pytest.mark.parametrize("lowercase", [True, False])
def test_every_text_is_there_in_its_order(lowercase):
    rows = drawn(60)
    corpus, numbers = read(rows, lowercase=lowercase)
    words = list(numbers.ids)
    fold = str.lower if lowercase else str
    wanted = [[fold(word) for word in tokenize(text)] for text, _ in rows]
    assert [[words[i] for i in row] for row in corpus.texts[0]] == wanted
    # numbers follow first use
    assert words == list(dict.fromkeys(itertools.chain(*wanted)))
    assert [corpus.classes[i] for i in corpus.labels] == [label for _, label in rows]
    assert corpus.class_counts == dict(collections.Counter(label for _, label in rows))
    assert corpus.lines.tolist() == list(range(1, 61))
    np.testing.assert_array_equal(corpus.texts[0].flat, np.concatenate(list(corpus.texts[0])))


def test_rows_are_cut_numbered_and_chosen():
    rows = drawn(20)
    corpus, numbers = read(rows)
    table = np.arange(len(numbers.ids), dtype=np.int32)[::-1] + 7
    texts = corpus.texts[0].renumber(table).cut(3)
    wanted = [[int(table[i]) for i in row[:3]] for row in corpus.texts[0]]
    assert [row.tolist() for row in texts] == wanted
    assert [row.tolist() for row in texts[2:5]] == wanted[2:5]
    chosen = texts.select(np.array([5, 0, 5]))
    assert len(chosen) == 3
    assert [row.tolist() for row in chosen] == [wanted[5], wanted[0], wanted[5]]
    assert [row.tolist() for row in chosen[1:]] == [wanted[0], wanted[5]]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ((10, 9, 10, 9), (9, 10)),
        (("10", "9", "10", "9"), ("10", "9")),
        ((2.5, 1, 2.5, 1), (1, 2.5)),
        ((True, False, True, False), (False, True)),
        ((10**400, 0.5, 10**400, 0.5), (0.5, 10**400)),
        (("b", 1, "b", 1), (1, "b")),
    ],
)
def test_labels_stay_as_written_and_are_sorted(labels, classes):
    corpus, _ = read([("a b", label) for label in labels])
    assert corpus.classes == classes
    assert [corpus.classes[i] for i in corpus.labels] == list(labels)


def test_many_labels_are_refused_before_the_end():
    seen = []

    class Watched(list):
        def __iter__(self):
            for row in super().__iter__():
                seen.append(row)
                yield row

    with pytest.raises(ValueError, match="labels must be classes, got 2,001 different labels"):
        read(Watched((f"text {i}", f"label {i}") for i in range(9000)))
    assert len(seen) < 3000


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("counts", [(2, 2), (2, 3, 40), (30, 70)])
def test_the_split_is_fixed_and_has_every_class_in_either_part(counts, fraction):
    labels = np.random.default_rng(3).permutation(np.repeat(np.arange(len(counts)), counts))
    read, held = split_texts(labels, fraction, np.arange(len(labels)))
    assert sorted([*read, *held]) == list(range(len(labels)))
    assert set(labels[read]) == set(labels[held]) == set(range(len(counts)))
    for one, count in enumerate(counts):
        wanted = min(max(count * fraction, 1), count - 1)
        assert abs(np.sum(labels[held] == one) - wanted) <= 1
    again = split_texts(labels, fraction, np.arange(len(labels)))
    np.testing.assert_array_equal(again[0], read)
    np.testing.assert_array_equal(again[1], held)


@pytest.mark.parametrize("columns", [None, Columns(("premise", "hypothesis"))])
@pytest.mark.parametrize(("min_count", "max_words"), [(1, 99), (3, 99), (1, 4)])
def test_the_vocabulary_counts_the_words_that_are_not_held_out(min_count, max_words, columns):
    rows = [*drawn(40), ("only held held held held", "a")]
    if columns is not None:
        rows = [("a pair", *row) for row in rows]
    corpus, numbers = read(rows, columns=columns)
    held = np.array([3, 40])
    vocabulary, table = build_vocabulary(
        corpus,
        held,
        numbers,
        min_count=min_count,
        max_words=max_words,
        extra_words=("vector", "film", "vector"),
    )
    counts = collections.Counter()
    for i, (*texts, _) in enumerate(rows):
        if i not in held:
            counts.update(word.lower() for text in texts for word in tokenize(text))
    wanted = sorted((w for w, n in counts.items() if n >= min_count), key=lambda w: (-counts[w], w))
    wanted = wanted[:max_words]
    more = [word for word in ("vector", "film") if word not in wanted]
    assert vocabulary.words[2:] == (*wanted, *more)
    for word, number in numbers.ids.items():
        assert table[number] == (vocabulary.encode([word])[0] if word in vocabulary else UNK)
    assert "held" not in vocabulary


def test_log_ratios_are_those_of_loops():
    rng = np.random.default_rng(0)
    words, classes = 9, 3
    texts = [rng.integers(1, words, rng.integers(1, 6)).astype(np.int32) for _ in range(20)]
    labels = rng.integers(0, classes, 20)
    found = log_ratios([texts], labels, words, classes)
    logs = np.zeros((words, classes))
    for c in range(classes):
        have = [
            2 + sum(word in text for text, label in zip(texts, labels, strict=True) if label == c)
            for word in range(words)
        ]
        logs[:, c] = [math.log(n / sum(have)) for n in have]
    wanted = logs - logs.mean(axis=1, keepdims=True)
    wanted[:2] = 0  # padding and unknown words say nothing
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)


def test_another_text_label_or_part_is_another_digest():
    def digest(rows, part="train"):
        return _corpus.digest_of({part: read(rows)[0]})

    rows = drawn(20)
    assert digest(rows) == digest(list(rows))
    swapped = [(rows[0][0], "c" if rows[0][1] != "c" else "a"), *rows[1:]]
    others = [[*rows[1:], rows[0]], swapped, [("other " + rows[0][0], rows[0][1]), *rows[1:]]]
    # the same words, of which one belongs to the text before
    moved, *rest = rows[1][0].split()
    others += [[(f"{rows[0][0]} {moved}", rows[0][1]), (" ".join(rest), rows[1][1]), *rows[2:]]]
    found = {digest(rows), *map(digest, others), digest(rows, "test")}
    assert len(found) == 6


def test_characters_that_nobody_sees_are_no_words():
    assert _tokens.split_words("\u200b\u202e\ufeff\x1b\x00") == ()
    assert _tokens.split_words("a\u200bdull\u2060film\x1b") == ("a", "dull", "film")
    # a pair needs a word in both of its texts
    rows = [("a", "film", "x"), ("\u200b", "film", "y"), ("a", "\x1b", "y"), ("dull", "film", "y")]
    corpus, _ = read(rows, columns=Columns(("premise", "hypothesis")), max_aside=1.0)
    assert (corpus.lines.tolist(), corpus.asides.count) == ([1, 4], 2)
