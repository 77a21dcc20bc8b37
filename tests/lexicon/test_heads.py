"""The heads of a lexicon against loops over texts, and what its gates promise for each of them."""

import itertools
import math
import random

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from gatedjax.lexicon import (
    ClassHead,
    LabelHead,
    OrdinalHead,
    RealHead,
    fit_lexicon,
    fit_weights,
)
from tests.lexicon.test_lexicon import TEXTS

RNG = np.random.default_rng(0)
IS_GOOD = np.array(["fine" in t or "moving" in t or "bright" in t or "warm" in t for t in TEXTS])
HAS_END = np.array(["end" in t for t in TEXTS])
COUNTS = np.array([sum(w in ("fine", "bright", "slow") for w in t) for t in TEXTS])
HEADS = {
    "classes": (ClassHead(3), np.where(HAS_END, 2, IS_GOOD.astype(int))),
    "labels": (LabelHead(2), np.stack([IS_GOOD, HAS_END], 1)),
    "real": (None, COUNTS * 2.5 + IS_GOOD * 4.0 - 100),
    "ordinal": (OrdinalHead(3), COUNTS.astype(int)),
}
HEADS["real"] = (RealHead.of_targets(HEADS["real"][1]), HEADS["real"][1])
KINDS = sorted(HEADS)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def naive_loss(head, scores, bias, target):
    """The loss of a text by the definition, with probabilities that are not rearranged."""
    if head.kind == "classes":
        z = [s + b for s, b in zip(scores, bias, strict=True)]
        return math.log(sum(map(math.exp, z))) - z[target]
    if head.kind == "labels":
        chances = [sigmoid(s + b) for s, b in zip(scores, bias, strict=True)]
        return -sum(math.log(p if y else 1 - p) for p, y in zip(chances, target, strict=True))
    if head.kind == "real":
        value = head.centre_of_targets + head.unit * (scores[0] + bias[0])
        return ((value - target) / head.unit) ** 2 / 2
    above = [1.0, *(sigmoid(scores[0] - t) for t in bias), 0.0]
    return -math.log(above[target] - above[target + 1])


@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_slopes_are_those_of_the_definition(kind):
    head, targets = HEADS[kind]
    targets = targets[::12]
    scores = RNG.normal(size=(len(targets), head.num_columns))
    free = RNG.normal(size=head.num_biases) * 0.7
    losses, slopes, of_free = head.compute_slopes(scores, free, targets)
    bias = head.make_bias(free)
    expected = [naive_loss(head, s, bias, y) for s, y in zip(scores, targets, strict=True)]
    np.testing.assert_allclose(losses, expected, rtol=1e-10)
    logits = head.add_bias(scores, bias)
    np.testing.assert_allclose(head.compute_losses(logits, bias, targets), expected, rtol=1e-10)
    step = 1e-6
    for row, column in itertools.product(range(len(targets)), range(head.num_columns)):
        ends = []
        for sign in (1, -1):
            moved = scores[row].copy()
            moved[column] += sign * step
            ends.append(naive_loss(head, moved, bias, targets[row]))
        np.testing.assert_allclose(slopes[row, column], (ends[0] - ends[1]) / 2 / step, atol=1e-6)
    for column in range(head.num_biases):
        ends = []
        for sign in (1, -1):
            moved = free.copy()
            moved[column] += sign * step
            moved = head.make_bias(moved)
            ends.append(
                [naive_loss(head, s, moved, y) for s, y in zip(scores, targets, strict=True)]
            )
        difference = (np.array(ends[0]) - ends[1]) / 2 / step
        np.testing.assert_allclose(of_free[:, column], difference, atol=1e-6)
    np.testing.assert_allclose(head.make_free(bias), free, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_finite_far_from_the_targets(kind):
    head, targets = HEADS[kind]
    for size in (-1e4, 1e4):
        scores = np.full((len(targets), head.num_columns), size)
        losses, slopes, of_free = head.compute_slopes(scores, head.start_free(targets), targets)
        for values in (losses, slopes, of_free):
            assert np.isfinite(values).all()
    assert RealHead.of_targets(np.array([2.0, 2.0])).unit == 1


def test_ridge_regression_is_the_solution_of_the_normal_equations():
    features = RNG.normal(size=(40, 3))
    targets = features @ [2.0, -1.0, 0.5] * 30 + 500 + RNG.normal(size=40)
    head = RealHead.of_targets(targets)
    weights, bias = fit_weights(csr_matrix(features), targets, 1, 3.0, steps=1000, head=head)
    centred = features - features.mean(0)
    exact = np.linalg.solve(centred.T @ centred + np.eye(3) / 3, centred.T @ targets) / head.unit
    np.testing.assert_allclose(weights[:, 0], exact, atol=2e-3)
    values = head.add_bias(features @ weights, bias)[:, 0]
    np.testing.assert_allclose(values.mean(), targets.mean(), atol=0.1)


def test_labels_are_independent_logistic_regressions():
    features = csr_matrix(RNG.normal(size=(50, 4)))
    targets = RNG.random((50, 3)) < [0.2, 0.5, 0.8]
    together, biases = fit_weights(features, targets, 3, 2.0, steps=1000, head=LabelHead(3))
    for column in range(3):
        single, bias = fit_weights(features, targets[:, column].astype(int), 2, 2.0, steps=1000)
        np.testing.assert_allclose(together[:, column], single[:, 0], atol=2e-2)
        np.testing.assert_allclose(biases[column], bias[0], atol=2e-2)


def test_thresholds_of_grades_stay_in_order_also_for_a_grade_without_a_text():
    for grades in ([0, 1, 3], [1, 2, 3], [0, 1, 2]):
        targets = np.array(grades * 10)
        features = csr_matrix(np.stack([targets + 0.1 * RNG.normal(size=30), np.ones(30)], 1))
        weights, bias = fit_weights(features, targets, 0, 5.0, head=OrdinalHead(4))
        assert (np.diff(bias) > 0).all()
        assert weights[0, 0] > 0
    # The solver may try thresholds that are equal after rounding.
    slopes = OrdinalHead(4).compute_slopes(
        np.zeros((4, 1)), np.array([1.0, -90.0, 0]), np.arange(4)
    )
    assert all(np.isfinite(part).all() for part in slopes)


@pytest.mark.parametrize("kind", KINDS)
def test_the_open_words_alone_have_the_same_bits(kind):
    """For all texts, shuffled, shortened, with unknown words, in any batch."""
    generator = random.Random(0)
    words = sorted({word for text in TEXTS for word in text} | {"unseen", "filmy", "finest"})
    texts = [*TEXTS, *([generator.choice(words) for _ in range(n % 9 + 1)] for n in range(150))]
    head, targets = HEADS[kind]
    for lexicon in fit_lexicon(TEXTS, targets, 0, (0.5, 0.3), head=head):
        readings = lexicon.read(texts)
        pairs = zip(texts, readings.is_read, strict=True)
        alone = [list(itertools.compress(text, gates)) for text, gates in pairs]
        again = lexicon.read(alone)
        np.testing.assert_array_equal(readings.logits, again.logits)
        np.testing.assert_array_equal(readings.probabilities, again.probabilities)
        for number in range(0, len(texts), 37):
            single = lexicon.read([texts[number]])
            np.testing.assert_array_equal(single.logits[0], readings.logits[number])
            np.testing.assert_array_equal(single.probabilities[0], readings.probabilities[number])
