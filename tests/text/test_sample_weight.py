"""Weights of texts: weight 0 means that a text is not there, and weights count in every choice."""

import numpy as np
import pytest
from scipy.sparse import coo_matrix

from gatedjax import (
    MultiLabelTextClassifier,
    OrdinalTextClassifier,
    TextClassifier,
    TextRegressor,
)
from gatedjax.lexicon import RealHead, fit_lexicon, fit_pooling
from gatedjax.text.targets import _calibration
from gatedjax.text.targets._base import count_effective, measure_error
from gatedjax.text.targets._labels import choose_thresholds
from tests.text._measures import (
    choose_temperature,
    measure_classes,
    measure_grades,
    measure_labels,
    measure_numbers,
    readings,
)
from tests.text._own import TEXTS
from tests.text.test_states import encode_static

X, Y = map(list, zip(*TEXTS, strict=True))
X = [f"{text} word{i % 7}" for i, text in enumerate(X)]
NUMBERS = [float(i % 5) + 3 * (label == "good") for i, label in enumerate(Y)]
RNG = np.random.default_rng(0)
KINDS = {
    "chosen metric": (TextClassifier(best_metric="macro_f1", class_weight="balanced"), Y, "wrong"),
    "states": (TextClassifier(encoder=encode_static, share=0.5), Y, "bad"),
    "number": (TextRegressor(share=0.5), NUMBERS, 1e9),
    "grade": (OrdinalTextClassifier(share=0.5), [n // 2 for n in NUMBERS], 99),
    "labels": (MultiLabelTextClassifier(share=0.5), [[y, "all"] for y in Y], ["bad", "new"]),
    "no label": (TextClassifier(share=0.5), Y, None),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_garbage_of_weight_0_changes_no_byte(kind, tmp_path):
    def fit(name, *given, **weights):
        model.fit(*given, **weights).save(tmp_path / name / "model")
        return {p.name: p.read_bytes() for p in (tmp_path / name / "model").iterdir()}

    model, y, wrong = KINDS[kind]
    weights = RNG.uniform(0.5, 2, len(X))
    texts, labels, given = [], [], []
    for text, label, weight in zip(X, y, weights, strict=True):
        texts += [f"{text} garbage", text]
        labels += [wrong, label]
        given += [0, weight]
    one = fit("a", texts, labels, sample_weight=given)
    report = model.report_
    assert fit("b", X, y, sample_weight=weights) == one
    assert report == model.report_
    if kind in ("number", "labels"):
        ones, none = fit("c", texts, labels, sample_weight=np.sign(given)), fit("d", X, y)
        # Only the report says that there are weights, in "effective_n".
        for name in {"model.safetensors", "words.txt"} & set(none):
            assert ones[name] == none[name]


@pytest.mark.slow
def test_columns_of_labels_and_frames_lose_the_rows_of_weight_0():
    y = np.array([[label == "good", label == "bad"] for label in Y], int)
    weights = np.ones(len(X))
    weights[::5] = 0
    rows = np.flatnonzero(weights)
    read = [X[i] for i in rows]
    expected = MultiLabelTextClassifier(share=0.5).fit(read, y[rows]).predict_proba(X)
    for form in (y, coo_matrix(y), y.astype(bool)):
        model = MultiLabelTextClassifier(share=0.5).fit(X, form, sample_weight=weights)
        np.testing.assert_array_equal(model.predict_proba(X), expected)
    with pytest.raises(ValueError, match="the same length, got 48 and 47"):
        TextClassifier().fit(X, Y[1:], sample_weight=weights)
    for wrong in (-weights, np.zeros(len(X)), weights * np.nan):
        with pytest.raises(ValueError, match="finite numbers of at least 0, and some above 0"):
            TextClassifier().fit(X, Y, sample_weight=wrong)


def test_the_public_fits_leave_out_texts_of_weight_0():
    words, labels = [text.split() for text in X], np.array([y == "good" for y in Y], int)
    weights = RNG.integers(0, 3, len(X)).astype(float)
    rows = np.flatnonzero(weights)
    some = [words[i] for i in rows]
    vectors = [RNG.normal(size=(len(text), 3)) for text in words]
    part = [vectors[i] for i in rows]
    for fit, texts, fewer in ((fit_lexicon, words, some), (fit_pooling, vectors, part)):
        one = list(fit(texts, labels, 2, [1.0, 0.5], sample_weight=weights))[-1]
        other = list(fit(fewer, labels[rows], 2, [1.0, 0.5], sample_weight=weights[rows]))[-1]
        np.testing.assert_allclose(one.prior[1], np.average(labels, weights=weights))
        readings = [lexicon.read(texts).probabilities for lexicon in (one, other)]
        np.testing.assert_array_equal(*readings)


@pytest.mark.slow
def test_wrong_texts_of_small_weight_choose_nothing():
    """Wrong validation texts would choose another temperature and spoil the accuracy."""
    weights = np.where(np.arange(300) % 2, 1.0, 1e-6)
    texts = [f"a {'good' if i % 4 < 2 else 'bad'} film word{i % 9} u{i}" for i in range(300)]
    true = ["pos" if i % 4 < 2 else "neg" for i in range(300)]
    other = {"pos": "neg", "neg": "pos"}
    wrong = [y if w == 1 else other[y] for y, w in zip(true, weights, strict=True)]
    model = TextClassifier().fit(texts, wrong, sample_weight=weights)
    assert model.report_["validation"]["accuracy"] > 0.999
    assert model.report_["validation"]["effective_n"] == pytest.approx(15, abs=2)
    assert model.report_["baseline"]["validation"] > 0.999
    assert model.predict_proba(["a good film"])[0].max() > 0.9


N = 60
WEIGHTS = RNG.integers(1, 5, N).astype(float)
TWICE = np.repeat(np.arange(N), WEIGHTS.astype(int))


def agree(one, other, names):
    for name in names:
        assert one[name] == pytest.approx(other[name]), name


def test_metrics_of_classes_are_those_of_repeated_texts():
    chances = RNG.dirichlet(np.ones(3), N)
    labels = RNG.integers(0, 3, N)
    metrics = measure_classes(labels, chances, "abc", weights=WEIGHTS)
    repeated = measure_classes(labels[TWICE], chances[TWICE], "abc")
    agree(metrics, repeated, ("accuracy", "macro_f1", "nll", "brier", "ece"))
    np.testing.assert_allclose(metrics["confusion"], repeated["confusion"])
    assert metrics["n"] == N == sum(entry["n"] for entry in metrics["per_class"])
    assert metrics["effective_n"] == pytest.approx(WEIGHTS.sum() ** 2 / (WEIGHTS**2).sum())
    # The scale of the weights has no effect, also where they are below 1.
    small = measure_classes(labels, chances, "abc", weights=WEIGHTS / 1000)
    agree(small, metrics, ("accuracy", "macro_f1", "nll", "brier", "ece", "effective_n"))


def test_metrics_of_labels_numbers_and_grades_are_those_of_repeated_texts():
    targets, predicted = RNG.random((2, N, 3)) < 0.4
    found = measure_labels(targets, predicted[:, :2], "ab", "c", WEIGHTS)
    repeated = measure_labels(targets[TWICE], predicted[TWICE, :2], "ab", "c")
    names = ("micro_f1", "micro_precision", "micro_recall", "macro_f1", "subset_accuracy")
    agree(found, repeated, names)
    assert found["labels"][0]["n"] == targets[:, 0].sum()
    assert found["decisions"] < repeated["decisions"]
    values, answers = RNG.integers(0, 9, (2, N)).astype(float)
    found = measure_numbers(values, answers, WEIGHTS)
    repeated = measure_numbers(values[TWICE], answers[TWICE])
    agree(found, repeated, ("rmse", "mae", "r2", "spearman"))
    grades, guesses = RNG.integers(0, 4, (2, N))
    found = measure_grades(grades, guesses, "abcd", WEIGHTS)
    repeated = measure_grades(grades[TWICE], guesses[TWICE], "abcd")
    agree(found, repeated, ("accuracy", "mae", "kappa"))


def test_the_error_of_a_weighted_mean_is_the_spread_of_draws():
    """A bootstrap of the texts with their weights has the standard error of the formula."""
    values, weights = RNG.normal(size=400), RNG.uniform(0.2, 3, 400)
    draws = RNG.integers(0, 400, (4000, 400))
    means = (values * weights)[draws].sum(1) / weights[draws].sum(1)
    assert measure_error(values, weights) == pytest.approx(means.std(), rel=0.05)
    assert measure_error(values, None) == pytest.approx(values.std() / 20)
    assert count_effective(np.full(9, 0.1), 9) == pytest.approx(9)


def test_choices_are_those_of_repeated_texts():
    chances = RNG.dirichlet(np.ones(3) / 2, N)
    labels = np.where(RNG.random(N) < 0.7, chances.argmax(1), RNG.integers(0, 3, N))
    # Sharp chances are evidence for a temperature. The smoothing depends on the number of texts,
    # and hardly moves the optimum.
    chances = chances**4 / np.sum(chances**4, 1, keepdims=True)
    fitted = choose_temperature(chances, labels, WEIGHTS)
    assert fitted == pytest.approx(choose_temperature(chances[TWICE], labels[TWICE]), rel=0.1)
    assert fitted != pytest.approx(choose_temperature(chances, labels), rel=1e-3)
    scores, targets = RNG.normal(size=(N, 2)), RNG.random((N, 2)) < [0.5, 0.04]
    found = choose_thresholds(scores, targets, WEIGHTS)
    assert found == pytest.approx(choose_thresholds(scores[TWICE], targets[TWICE]))
    head, numbers = RealHead.of_targets(scores[:, 0], WEIGHTS), scores[TWICE, 0]
    assert (head.centre_of_targets, head.unit) == pytest.approx((numbers.mean(), numbers.std()))
    found = readings(scores[:, :0], scores[:, :1])
    found = found._replace(is_prior=np.zeros(N, bool))
    assert _calibration.choose_temperatures(head, np.zeros((N, 1)), found, targets) == (
        (1.0,) * 4,
        1.0,
    )
