"""Metrics of a classifier against scikit-learn and loops."""

import itertools
import json

import numpy as np
import pytest
from sklearn import metrics

from gatedjax.text.answers._report import render_details, render_number, render_summary
from tests.text._measures import measure_classes


@pytest.fixture(scope="module")
def example():
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(4) / 2, 500)
    probabilities[:, 3] = 0  # a class that is never predicted ...
    probabilities /= probabilities.sum(1, keepdims=True)
    labels = np.array([rng.choice(4, p=p) for p in probabilities])
    labels[:5] = 3  # ... though it occurs
    return labels, probabilities


def test_scores_are_scikit_learns(example):
    labels, probabilities = example
    ours = measure_classes(labels, probabilities, "abcd")
    predicted = probabilities.argmax(1)
    assert ours["n"] == 500
    assert ours["accuracy"] == pytest.approx(metrics.accuracy_score(labels, predicted))
    assert ours["macro_f1"] == pytest.approx(
        metrics.f1_score(labels, predicted, average="macro", zero_division=0)
    )
    assert ours["confusion"] == metrics.confusion_matrix(labels, predicted).tolist()
    for key, theirs in zip(
        ("precision", "recall", "f1", "n"),
        metrics.precision_recall_fscore_support(labels, predicted, zero_division=0),
        strict=True,
    ):
        np.testing.assert_allclose([c[key] for c in ours["per_class"]], theirs)
    assert [c["label"] for c in ours["per_class"]] == list("abcd")
    known = labels < 3  # scikit-learn's log_loss has another least probability
    ours = measure_classes(labels[known], probabilities[known], "abcd")
    assert ours["nll"] == pytest.approx(
        metrics.log_loss(labels[known], probabilities[known], labels=range(4))
    )


def test_brier_ece_and_bins_are_those_of_loops(example):
    labels, probabilities = example
    brier, bins = 0.0, [[] for _ in range(15)]
    for label, row in zip(labels, probabilities, strict=True):
        brier += sum((p - (c == label)) ** 2 for c, p in enumerate(row))
        top = int(np.argmax(row))
        k = next(k for k in range(15) if row[top] <= (k + 1) / 15 + 1e-15)
        bins[k].append((row[top], top == label))
    ece = sum(abs(sum(p for p, _ in b) - sum(r for _, r in b)) for b in bins)
    ours = measure_classes(labels, probabilities, "abcd")
    assert ours["brier"] == pytest.approx(brier / 500)
    assert ours["ece"] == pytest.approx(ece / 500)
    for ours_bin, theirs in zip(ours["bins"], bins, strict=True):
        assert ours_bin["n"] == len(theirs)
        if theirs:
            assert ours_bin["confidence"] == pytest.approx(np.mean([p for p, _ in theirs]))
            assert ours_bin["accuracy"] == pytest.approx(np.mean([r for _, r in theirs]))
        else:
            assert ours_bin["confidence"] is ours_bin["accuracy"] is None


def test_certain_and_wrong_stays_a_number_and_json():
    ours = measure_classes(np.array([0, 1]), np.array([[0.0, 1.0], [1.0, 0.0]]), (True, 2))
    assert (ours["accuracy"], ours["macro_f1"], ours["brier"], ours["ece"]) == (0, 0, 2, 1)
    assert ours["nll"] == pytest.approx(-np.log(1e-12))
    assert json.loads(json.dumps(ours, allow_nan=False)) == ours


def test_the_table_names_classes_and_steers_no_terminal(example):
    labels, probabilities = example
    names = ["good", "b|a\x1b[31md", "\u202eodd", 4]
    metrics = measure_classes(labels, probabilities, names)
    shown = render_details(metrics)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert render_summary(metrics).startswith("500 texts: accuracy 0.")
    assert "| good " in shown
    assert "true / predicted" in shown
    # A bin with a single text has a line as well.
    first = measure_classes(labels[:1], probabilities[:1], names)
    assert render_details(first).splitlines()[-1].split("|")[2].strip() == "1"
    assert shown.count("0.93 to 1.00") == 1


def test_a_metric_has_four_decimals_or_five_digits():
    values = [None, 0.5, 9.99994, -12.3456789, 1234567.0]
    assert [*map(render_number, values)] == ["-", "0.5000", "9.9999", "-12.346", "1.2346e+06"]


def test_of_many_classes_the_largest_confusions_are_listed():
    labels = np.array([0] * 6 + [1] * 3 + list(range(12)))
    probabilities = np.eye(12)[[5] * 6 + [2] * 3 + list(range(12))]
    shown = render_details(measure_classes(labels, probabilities, [f"c{i}" for i in range(12)]))
    lines = shown.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| true"))
    table = itertools.takewhile(str.strip, lines[start + 2 :])
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table]
    assert rows == [["c0", "c5", "6"], ["c1", "c2", "3"]]
