"""F1 by class against scikit-learn and counts by hand."""

import numpy as np
import pytest

from gatedjax import analysis


@pytest.mark.slow
@pytest.mark.parametrize("weight", [None, np.arange(200) % 3 + 0.5])
def test_scores_are_those_of_scikit_learn(weight, np_rng):
    metrics = pytest.importorskip("sklearn.metrics")
    label, predicted = np_rng.integers(0, 4, 200), np_rng.integers(1, 5, 200)
    found = analysis.class_scores(label, predicted, 6, weight)
    weights = {"sample_weight": weight, "zero_division": 0}
    options = {"labels": list(range(6)), **weights}
    p, r, f, n = metrics.precision_recall_fscore_support(label, predicted, **options)
    for got, wanted in zip(
        (found.precision, found.recall, found.f1, found.support), (p, r, f, n), strict=True
    ):
        np.testing.assert_allclose(got, wanted)
    accuracy = metrics.accuracy_score(label, predicted, sample_weight=weight)
    assert found.accuracy == pytest.approx(accuracy)
    for name in ("weighted", "macro"):
        wanted = metrics.f1_score(label, predicted, average=name, **weights)
        assert getattr(found, name) == pytest.approx(wanted)


def test_classes_that_nobody_has_or_predicts():
    found = analysis.class_scores(np.array([0, 0, 1]), np.array([0, 2, 2]), 4)
    np.testing.assert_allclose(found.f1, [2 / 3, 0, 0, 0])
    assert found.weighted == pytest.approx(4 / 9)
    # class 3 is in neither
    assert found.macro == pytest.approx(2 / 9)
