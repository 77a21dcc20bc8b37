"""Texts as numbers, their fixed split, the vocabulary and the counts, against plain loops."""

import collections
import itertools
import math

import numpy as np
import pytest

from gatedjax.data import tokenize
from gatedjax.data.text._vocabulary import UNK
from gatedjax.text import _corpus, _tokens
from gatedjax.text._corpus import Numbers, build_vocabulary, log_ratios, read_corpus, split_texts
from gatedjax.text._read import Columns, open_table
from tests.text._own import PAIRS, TEXTS

WORDS = ("Film", "film", "dull", "great", "it's", "3.5", "...")


def drawn(n, seed=0, classes=("a", "b", "c")):
    """Texts of 1 to 9 words with labels."""
    rng = np.random.default_rng(seed)
    return [
        (" ".join(rng.choice(WORDS, rng.integers(1, 10))), str(rng.choice(classes)))
        for _ in range(n)
    ]


def read(rows, folder, *, lowercase=True, columns=None, **options):
    numbers = Numbers(lowercase=lowercase)
    return read_corpus(open_table(rows, columns), folder, "train", numbers, **options), numbers


@pytest.mark.parametrize("lowercase", [True, False])
def test_every_text_is_there_in_its_order(lowercase, tmp_path, monkeypatch):
    monkeypatch.setattr(_corpus, "_FLUSH", 16)  # so that the texts are written in many pieces
    rows = drawn(60)
    corpus, numbers = read(rows, tmp_path, lowercase=lowercase)
    words = list(numbers.ids)
    fold = str.lower if lowercase else str
    wanted = [[fold(word) for word in tokenize(text)] for text, _ in rows]
    assert [[words[i] for i in row] for row in corpus.texts[0]] == wanted
    # numbers follow first use
    assert words == list(dict.fromkeys(itertools.chain(*wanted)))
    assert [corpus.classes[i] for i in corpus.labels] == [label for _, label in rows]
    assert corpus.class_counts == dict(collections.Counter(label for _, label in rows))
    assert corpus.lines.tolist() == list(range(1, 61))
    pieces = np.concatenate(list(corpus.texts[0].pieces()))
    np.testing.assert_array_equal(pieces, np.concatenate(list(corpus.texts[0])))


def test_rows_are_cut_numbered_and_chosen(tmp_path):
    rows = drawn(20)
    corpus, numbers = read(rows, tmp_path)
    table = np.arange(len(numbers.ids), dtype=np.int32)[::-1] + 7
    texts = corpus.texts[0].renumber(table, 3)
    wanted = [[int(table[i]) for i in row[:3]] for row in corpus.texts[0]]
    assert [row.tolist() for row in texts] == wanted
    assert [row.tolist() for row in texts[2:5]] == wanted[2:5]
    chosen = texts.select(np.array([5, 0, 5]))
    assert len(chosen) == 3
    assert [row.tolist() for row in chosen] == [wanted[5], wanted[0], wanted[5]]
    assert [row.tolist() for row in chosen[1:]] == [wanted[0], wanted[5]]


def test_a_second_reading_leaves_the_rows_of_the_first(tmp_path):
    first, _ = read(TEXTS, tmp_path)
    wanted = [row.tolist() for row in first.texts[0]]
    second, _ = read([("other", "x"), ("words", "y")], tmp_path)
    assert [row.tolist() for row in first.texts[0]] == wanted
    assert len(second) == 2


def test_a_few_examples_may_have_a_class_each(tmp_path):
    corpus, _ = read([("a", "x"), ("b", "x"), ("c", "y")], tmp_path)
    assert corpus.classes == ("x", "y")
    _corpus.check_trainable(corpus, split=True)
    _corpus.check_trainable(corpus, split=False)  # what is validated on is another file


def test_pairs_have_a_column_each(tmp_path):
    columns = Columns(("premise", "hypothesis"))
    corpus, numbers = read(PAIRS, tmp_path, columns=columns)
    words = list(numbers.ids)
    for rows, place in zip(corpus.texts, (0, 1), strict=True):
        found = [" ".join(words[i] for i in row) for row in rows]
        assert found == [pair[place] for pair in PAIRS]


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
def test_labels_stay_as_written_and_are_sorted(labels, classes, tmp_path):
    corpus, _ = read([("a b", label) for label in labels], tmp_path)
    assert corpus.classes == classes
    assert [corpus.classes[i] for i in corpus.labels] == list(labels)


def test_lines_that_cannot_be_used_are_counted_and_shown(tmp_path):
    bad = [("", "x"), ("a", None), ("\x01\x1f\x7f\x9b", "x")]
    corpus, _ = read([*TEXTS, *bad], tmp_path)
    assert (len(corpus), corpus.aside) == (len(TEXTS), 3)
    shown = [str(one) for one in corpus.first_aside]
    assert shown == ["rows:49: no text", "rows:50: no label", "rows:51: a text without a word"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(f"text {i}", f"label {i}") for i in range(9)], "9 of 9 labels are distinct"),
        ([("", "a")] * 4, "no labelled text: 4 lines cannot be used, the first is rows:1: no text"),
    ],
)
def test_what_is_no_corpus_is_refused(rows, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read(rows, tmp_path)


def test_many_labels_are_refused_before_the_end(tmp_path):
    seen = []

    class Watched(list):
        def __iter__(self):
            for row in super().__iter__():
                seen.append(row)
                yield row

    with pytest.raises(ValueError, match="are distinct, so they are no classes"):
        read(Watched((f"text {i}", f"label {i}") for i in range(9000)), tmp_path)
    assert len(seen) < 3000


def test_other_texts_have_the_classes_of_the_first(tmp_path):
    corpus, _ = read([("a", "y"), ("b", "x")] * 2, tmp_path, classes=("x", "y", "z"))
    assert corpus.classes == ("x", "y", "z")
    assert corpus.labels.tolist() == [1, 0, 1, 0]
    with pytest.raises(ValueError, match=r"rows:2: label must .* \('x', 'y', 'z'\), got 'w'$"):
        read([("a", "y"), ("b", "w")], tmp_path, classes=("x", "y", "z"))


def test_what_no_classifier_can_learn_is_refused(tmp_path):
    one, _ = read([("a", "x")] * 4, tmp_path)
    with pytest.raises(ValueError, match="at least two classes for a classifier, got only 'x'"):
        _corpus.check_trainable(one, split=False)
    rare, _ = read([*[("a", "x")] * 4, ("b", "y"), *[("a", "x")] * 4], tmp_path)
    with pytest.raises(ValueError, match="must have a class with two different texts"):
        _corpus.check_trainable(rare, split=True)
    _corpus.check_trainable(rare, split=False)


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("counts", [(2, 2), (2, 3, 40), (30, 70)])
def test_the_split_is_fixed_and_has_every_class_in_either_part(counts, fraction):
    labels = np.random.default_rng(3).permutation(np.repeat(np.arange(len(counts)), counts))
    kept, held = split_texts(labels, fraction)
    assert sorted([*kept, *held]) == list(range(len(labels)))
    assert set(labels[kept]) == set(labels[held]) == set(range(len(counts)))
    for one, count in enumerate(counts):
        wanted = min(max(count * fraction, 1), count - 1)
        assert abs(np.sum(labels[held] == one) - wanted) <= 1
    again = split_texts(labels, fraction)
    np.testing.assert_array_equal(again[0], kept)
    np.testing.assert_array_equal(again[1], held)


@pytest.mark.parametrize(("min_count", "max_words"), [(1, 99), (3, 99), (1, 4)])
def test_the_vocabulary_counts_the_words_that_are_not_held_out(min_count, max_words, tmp_path):
    rows = [*drawn(40), ("only held held held held", "a")]
    corpus, numbers = read(rows, tmp_path)
    held = np.array([3, 40])
    vocabulary, table = build_vocabulary(
        corpus,
        held,
        numbers,
        min_count=min_count,
        max_words=max_words,
        extra_words=("vector", "film"),
    )
    counts = collections.Counter()
    for i, (text, _) in enumerate(rows):
        if i not in held:
            counts.update(word.lower() for word in tokenize(text))
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


def test_another_text_label_or_part_is_another_digest(tmp_path):
    def digest(rows, part="train"):
        return _corpus.digest_of({part: read(rows, tmp_path)[0]})

    rows = drawn(20)
    assert digest(rows) == digest(list(rows))
    swapped = [(rows[0][0], "c" if rows[0][1] != "c" else "a"), *rows[1:]]
    others = [[*rows[1:], rows[0]], swapped, [("other " + rows[0][0], rows[0][1]), *rows[1:]]]
    found = {digest(rows), *map(digest, others), digest(rows, "test")}
    assert len(found) == 5


def test_characters_that_nobody_sees_are_no_words():
    assert _tokens.split_words("\u200b\u202e\ufeff\x1b\x00") == ()
    assert _tokens.split_words("a\u200bdull\u2060film\x1b") == ("a", "dull", "film")


@pytest.mark.parametrize(
    ("labels", "seen"), [((1, True), None), ((False, 2), None), ((1,), (True,))]
)
def test_numbers_beside_true_and_false_are_no_classes(labels, seen, tmp_path):
    rows = [(text, labels[i % len(labels)]) for i, (text, _) in enumerate(drawn(20))]
    with pytest.raises(ValueError, match="labels must be only numbers or only true and false"):
        read(rows, tmp_path, classes=seen)


def test_texts_and_numbers_are_classes_of_one_file(tmp_path):
    rows = [(text, (1, "one", 2)[i % 3]) for i, (text, _) in enumerate(drawn(30))]
    corpus, _ = read(rows, tmp_path)
    assert corpus.classes == (1, 2, "one")
