"""Attention by part of speech and from pieces to words, and F1 of groups of classes, by hand."""

import collections

import numpy as np
import pytest

from experiments.ssan.attention import TAG_CLASSES, by_tag, merge_pieces, shares_of, tag_class
from experiments.ssan.sentences import group_scores
from gatedjax import analysis
from tests.analysis.test_self_attention import softmax_rows

TAGS = ["DT", "JJ", "NN", "VBZ", "MD", "IN", "TO", "PDT", ".", "HYPH", "NNP", "CD"]


def test_tags_fall_into_the_classes_of_the_paper():
    classes = [tag_class(tag) for tag in TAGS]
    assert classes == [
        *("Dete", "Adj", "Noun", "Verb", "Others", "Prep"),
        *("Prep", "Dete", "Punc", "Punc", "Noun", "Others"),
    ]
    assert tag_class("WDT") == "Dete"
    assert tag_class("``") == tag_class("-LRB-") == "Punc"
    assert tag_class("$") == "Others"  # stands for a word
    assert set(classes) <= set(TAG_CLASSES)


def test_tag_shares_pool_all_mass_and_sum_to_one(np_rng):
    long, short = softmax_rows(np_rng, 1, 12)[0], softmax_rows(np_rng, 1, 2)[0]
    mass = collections.Counter(by_tag(long, TAGS))
    mass.update(by_tag(short, ["NN", "."]))
    shares = shares_of(mass)
    noun = long[:, [2, 10]].sum() + short[:, 0].sum()
    assert shares["Noun"] == pytest.approx(noun / 14)
    assert sum(shares[name] for name in TAG_CLASSES) == pytest.approx(1)
    assert shares["Content"] + shares["Content-free"] == pytest.approx(1)
    assert shares["Content"] == pytest.approx(shares["Noun"] + shares["Verb"] + shares["Adj"])
    assert set(shares_of(by_tag(np.zeros((1, 1)), ["NN"])).values()) == {0.0}


def test_pieces_merge_into_words_and_rows_keep_their_sum(np_rng):
    word = [0, 0, 0, 1, 2, 2]  # Gu@@ ta@@ ch : pedestri@@ ans
    weights = softmax_rows(np_rng, 2, 6)
    merged = merge_pieces(weights, word)
    assert merged.shape == (2, 3, 3)
    expected = (weights[1, 4, :3].sum() + weights[1, 5, :3].sum()) / 2
    assert merged[1, 2, 0] == pytest.approx(expected)
    np.testing.assert_allclose(merged.sum(-1), 1, rtol=1e-12)
    np.testing.assert_allclose(merge_pieces(weights, np.arange(6)), weights)
    assert merge_pieces(np.zeros((0, 0)), []).shape == (0, 0)


def test_groups_are_averaged_by_support_and_merged():
    label, predicted = np.array([0, 0, 0, 1, 2, 2]), np.array([0, 1, 2, 0, 2, 2])
    groups = group_scores(label, predicted, {"a": (0, 1), "none": ()}, 3)
    f1 = analysis.class_scores(label, predicted, 3).f1
    average, merged = groups["a"]
    assert average == pytest.approx((3 * f1[0] + f1[1]) / 4)
    # merged: 3 of 4 are found, and nothing else is called so
    assert merged == pytest.approx(2 * 3 / (4 + 3))
    assert groups["none"] == (0.0, 0.0)
