"""Texts that occur more than once: counts against plain loops, and one side of the split."""

import collections

import numpy as np
import pytest

from gatedjax.text.corpus import _corpus
from gatedjax.text.corpus._corpus import (
    Numbers,
    count_overlap,
    equal_texts,
    find_duplicates,
    read_corpus,
    read_training,
    single_text_classes,
    split_texts,
)
from gatedjax.text.sources._labels import Classes
from gatedjax.text.sources._open import open_table
from gatedjax.text.sources._table import Columns


def read(rows, **options):
    return read_training(open_table(rows), lowercase=True, **options)


def drawn(n, words, classes, seed=0):
    """Texts of one to three words, many of them equal, with labels."""
    rng = np.random.default_rng(seed)
    return [
        (" ".join(rng.choice(words, rng.integers(1, 4))), str(rng.choice(classes)))
        for _ in range(n)
    ]


def test_copies_and_contradictions_are_those_of_a_loop():
    rows = drawn(120, ["dull", "Dull", "bright", "film"], ["a", "b", "c"])
    corpus, _ = read(rows)
    lines, labels = collections.defaultdict(list), collections.defaultdict(set)
    for number, (text, label) in enumerate(rows, 1):
        lines[text.lower()].append(number)
        labels[text.lower()].add(label)
    copies = find_duplicates(corpus)
    assert copies.copies == len(rows) - len(lines)
    several = [text for text in lines if len(labels[text]) > 1]
    assert copies.conflicts == len(several)
    assert copies.lines == sum(len(lines[text]) for text in several)
    for example in copies.examples:
        assert len({rows[line - 1][0].lower() for line, _ in example}) == 1
        assert len({label for _, label in example}) == len(example) > 1
        assert all(rows[line - 1][1] == label for line, label in example)
    firsts = [lines[text.lower()][0] - 1 for text, _ in rows]
    assert equal_texts(corpus).tolist() == firsts
    counts, contradictions = copies.render()
    assert counts == f"{copies.copies} duplicate lines"
    assert f"{copies.conflicts} texts with different labels on " in contradictions


def test_pairs_are_equal_if_both_texts_are():
    rows = [("a", "b c", 0), ("a b", "c", 1), ("A", "b c", 1), ("a", "c", 1)]
    table = open_table(rows, Columns(("premise", "hypothesis")))
    corpus = read_corpus(table, Numbers(lowercase=True))
    assert equal_texts(corpus).tolist() == [0, 1, 0, 3]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("fraction", [0.02, 0.1, 0.5])
def test_equal_texts_stay_on_one_side_and_training_has_every_class(seed, fraction):
    rows = drawn(90, ["dull", "bright", "film", "new", "old"], ["a", "b", "c"], seed)
    rows.append(("a text of its own class", "d"))
    corpus, _ = read(rows)
    equal = equal_texts(corpus)
    training, validation = split_texts(corpus.labels, fraction, equal)
    assert sorted([*training, *validation]) == list(range(len(rows)))
    assert not set(equal[training]) & set(equal[validation])
    assert set(corpus.labels[training]) == {0, 1, 2, 3}
    assert set(corpus.labels[validation]) == {0, 1, 2}
    again = split_texts(corpus.labels, fraction, equal)
    np.testing.assert_array_equal(again[1], validation)


def test_a_text_with_very_many_copies_does_not_fill_the_validation_part():
    # 700 of 1,000 lines have a single text.
    equal = np.array([0] * 700 + list(range(700, 1000)))
    labels = np.arange(1000, dtype=np.int32) % 2
    training, validation = split_texts(labels, 0.1, equal)
    assert 0 in training
    assert 20 <= len(validation) <= 40


def test_a_class_with_a_single_text_is_for_training():
    rows = [("a", "x"), ("b", "x"), ("c", "x"), ("d", "y"), ("d", "y"), ("D", "y")]
    corpus, _ = read(rows)
    assert single_text_classes(corpus) == ["y"]
    _corpus.check_trainable(corpus, split=True)
    for fraction in (0.1, 0.5, 0.9):
        training, validation = _corpus.split_training(corpus, fraction)
        assert {3, 4, 5} <= set(training)
        assert len(validation)


def test_a_label_that_only_contradicts_never_leaves_the_training_part():
    # All texts of class 1 have copies of class 0.
    equal, labels = np.array([0, 0, 2, 2, 4, 5]), np.array([0, 1, 0, 1, 0, 0], np.int32)
    for fraction in (0.1, 0.3, 0.5, 0.7):
        training, _ = split_texts(labels, fraction, equal)
        assert set(labels[training]) == {0, 1}


def test_rare_classes_are_left_out_of_all_parts():
    rows = [("a", "x"), ("b", "x"), ("c", "y"), ("d", "y"), ("e", "z")]
    rare = _corpus.find_rare_classes(open_table(rows), 2)
    corpus, numbers = read(rows, left_out=rare)
    assert corpus.classes == ("x", "y")
    assert corpus.left_out == {"z": 1}
    assert corpus.lines.tolist() == [1, 2, 3, 4]
    table = open_table([("f", "z"), ("A", "x")])
    places = Classes("label", corpus.classes)
    test = read_corpus(table, numbers, places=places, left_out=rare)
    assert len(test) == 1
    assert test.left_out == {"z": 1}
    assert count_overlap(corpus, test) == 1
    with pytest.raises(ValueError, match=r"min_class must be at most 2, .*, got 3"):
        _corpus.find_rare_classes(open_table(rows), 3)
