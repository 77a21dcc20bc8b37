"""Where attention goes, against loops over every pair of words."""

import collections

import numpy as np
import pytest

from gatedjax import analysis

TAGS = ["DT", "JJ", "NN", "VBZ", "MD", "IN", "TO", "PDT", ".", "HYPH", "NNP", "CD"]


def softmax_rows(rng, batch, size):
    weights = rng.gamma(0.5, size=(batch, size, size))
    return weights / weights.sum(-1, keepdims=True)


def test_distance_shares_equal_a_loop_over_the_pairs(np_rng):
    weights, lengths = softmax_rows(np_rng, 4, 6), np.array([6, 3, 1, 0])
    weights[0, 2] = 0
    counts = analysis.distance_counts(weights, lengths)
    mass, pairs = collections.Counter(), collections.Counter()
    for w, length in zip(weights, lengths, strict=True):
        for i in range(length):
            for j in range(length):
                mass[abs(i - j)] += w[i, j]
                pairs[abs(i - j)] += 1
    expected = np.array([mass[r] for r in range(6)])
    np.testing.assert_allclose(counts.shares(), expected / 10, rtol=1e-12)
    np.testing.assert_allclose(counts.pairs, [pairs[r] for r in range(6)])
    np.testing.assert_allclose(counts.per_neighbour()[:3], expected[:3] / counts.pairs[:3])
    assert (counts.queries, counts.empty_rate) == (10, 0.1)


def test_distance_counts_of_parts_add_up_whatever_their_width(np_rng):
    weights, lengths = softmax_rows(np_rng, 3, 5), np.array([5, 2, 2])
    whole = analysis.distance_counts(weights, lengths)
    parts = analysis.distance_counts(weights[1:, :2, :2], lengths[1:])
    parts = parts + analysis.distance_counts(weights[:1], lengths[:1])
    np.testing.assert_allclose(parts.shares(), whole.shares(), rtol=1e-12)
    assert np.isnan(analysis.distance_counts(np.zeros((0, 2, 2)), np.zeros(0, int)).empty_rate)


def test_padding_changes_no_distance_and_bad_input_is_refused(np_rng):
    weights = softmax_rows(np_rng, 2, 3)
    padded = np.pad(weights, ((0, 0), (0, 2), (0, 2)), constant_values=np.nan)
    got = analysis.distance_counts(padded, [3, 2])
    np.testing.assert_allclose(got.shares()[:3], analysis.distance_counts(weights, [3, 2]).shares())
    with pytest.raises(ValueError, match=r"weights must be \[B, N, N\]"):
        analysis.distance_counts(weights[0], [3])
    with pytest.raises(ValueError, match=r"lengths must be in \[0, 3\]"):
        analysis.distance_counts(weights, [3, 4])
    with pytest.raises(ValueError, match="lengths must have shape"):
        analysis.distance_counts(weights, [3])
    with pytest.raises(ValueError, match="finite and at least 0"):
        analysis.distance_counts(-weights, [3, 3])


def test_tags_fall_into_the_classes_of_the_paper():
    classes = [analysis.tag_class(tag) for tag in TAGS]
    assert classes == [
        *("Dete", "Adj", "Noun", "Verb", "Others", "Prep"),
        *("Prep", "Dete", "Punc", "Punc", "Noun", "Others"),
    ]
    assert analysis.tag_class("WDT") == "Dete"
    assert analysis.tag_class("``") == analysis.tag_class("-LRB-") == "Punc"
    assert analysis.tag_class("$") == "Others"  # stands for a word
    assert set(classes) <= set(analysis.TAG_CLASSES)


def test_tag_shares_pool_all_mass_and_sum_to_one(np_rng):
    long, short = softmax_rows(np_rng, 1, 12)[0], softmax_rows(np_rng, 1, 2)[0]
    counts = analysis.tag_counts(long, TAGS) + analysis.tag_counts(short, ["NN", "."])
    shares = counts.shares()
    noun = long[:, [2, 10]].sum() + short[:, 0].sum()
    assert shares["Noun"] == pytest.approx(noun / 14)
    assert sum(shares[name] for name in analysis.TAG_CLASSES) == pytest.approx(1)
    assert shares["Content"] + shares["Content-free"] == pytest.approx(1)
    assert shares["Content"] == pytest.approx(shares["Noun"] + shares["Verb"] + shares["Adj"])
    assert set(analysis.tag_counts(np.zeros((1, 1)), ["NN"]).shares().values()) == {0.0}
    padded = np.pad(long, (0, 3), constant_values=np.nan)
    assert analysis.tag_counts(padded, TAGS) == analysis.tag_counts(long, TAGS)
    with pytest.raises(ValueError, match="lengths must be in"):
        analysis.tag_counts(short, TAGS)


def test_pieces_merge_into_words_and_rows_keep_their_sum(np_rng):
    pieces = ["Gu@@", "ta@@", "ch", ":", "pedestri@@", "ans"]
    word = analysis.word_of_piece(pieces)
    assert word.tolist() == [0, 0, 0, 1, 2, 2]
    weights = softmax_rows(np_rng, 2, 6)
    merged = analysis.merge_pieces(weights, word)
    assert merged.shape == (2, 3, 3)
    expected = (weights[1, 4, :3].sum() + weights[1, 5, :3].sum()) / 2
    assert merged[1, 2, 0] == pytest.approx(expected)
    np.testing.assert_allclose(merged.sum(-1), 1, rtol=1e-12)
    np.testing.assert_allclose(analysis.merge_pieces(weights, np.arange(6)), weights)
    assert analysis.word_of_piece([]).shape == (0,)
    assert analysis.merge_pieces(np.zeros((0, 0)), []).shape == (0, 0)
    # the last piece may be cut off from its word
    assert analysis.word_of_piece(["a@@", "b@@"]).tolist() == [0, 0]
    with pytest.raises(ValueError, match=r"must be \[\.\.\., 2, 2\]"):
        analysis.merge_pieces(weights, [0, 1])
    for bad in ([1, 1, 2, 2, 3, 3], [0, 2, 2, 3, 3, 3], [0, 1, 0, 1, 1, 1]):
        with pytest.raises(ValueError, match="number the words"):
            analysis.merge_pieces(weights, bad)
