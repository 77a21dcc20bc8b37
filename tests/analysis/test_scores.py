"""F1 by class against scikit-learn and counts by hand."""

import numpy as np
import pytest

from gatedjax import analysis


@pytest.mark.slow
def test_scores_are_those_of_scikit_learn(np_rng):
    metrics = pytest.importorskip("sklearn.metrics")
    label, predicted = np_rng.integers(0, 4, 200), np_rng.integers(1, 5, 200)
    found = analysis.class_scores(label, predicted, 6)
    classes = list(range(6))
    options = {"labels": classes, "zero_division": 0}
    p, r, f, n = metrics.precision_recall_fscore_support(label, predicted, **options)
    for got, wanted in zip(
        (found.precision, found.recall, found.f1, found.support), (p, r, f, n), strict=True
    ):
        np.testing.assert_allclose(got, wanted)
    assert found.accuracy == pytest.approx(metrics.accuracy_score(label, predicted))
    for name in ("weighted", "macro"):
        wanted = metrics.f1_score(label, predicted, average=name, zero_division=0)
        assert getattr(found, name) == pytest.approx(wanted)


def test_classes_that_nobody_has_or_predicts():
    found = analysis.class_scores(np.array([0, 0, 1]), np.array([0, 2, 2]), 4)
    np.testing.assert_allclose(found.f1, [2 / 3, 0, 0, 0])
    assert found.weighted == pytest.approx(4 / 9)
    # class 3 is in neither
    assert found.macro == pytest.approx(2 / 9)
