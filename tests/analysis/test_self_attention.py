"""Where attention goes, against loops over every pair of words."""

import collections

import numpy as np

from gatedjax import analysis


def softmax_rows(rng, batch, size):
    weights = rng.gamma(0.5, size=(batch, size, size))
    return weights / weights.sum(-1, keepdims=True)


def test_distance_shares_equal_a_loop_over_the_pairs(np_rng):
    weights, lengths = softmax_rows(np_rng, 4, 6), np.array([6, 3, 1, 0])
    weights[0, 2] = 0
    weights[1, 3:], weights[1, :, 3:] = np.nan, np.nan  # padding
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
    weights[:2, 1] = 0
    whole = analysis.distance_counts(weights, lengths)
    parts = analysis.distance_counts(weights[1:, :2, :2], lengths[1:])
    parts = parts + analysis.distance_counts(weights[:1], lengths[:1])
    np.testing.assert_allclose(parts.shares(), whole.shares(), rtol=1e-12)
    assert (parts.queries, parts.empty) == (whole.queries, whole.empty) == (9, 2)
    assert np.isnan(analysis.distance_counts(np.zeros((0, 2, 2)), np.zeros(0, int)).empty_rate)
