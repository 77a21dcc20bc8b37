"""Documents that are longer than a network reads at once: windows and their scores."""

import dataclasses
import itertools
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from gatedjax.text import TextClassifier
from gatedjax.text._gated import open_own
from gatedjax.text.answers._explain import _flip_gates, explain
from gatedjax.text.answers._explanation import Change
from gatedjax.text.corpus._corpus import Rows
from gatedjax.text.models._buckets import (
    TextOutput,
    pool_windows,
    split_starts,
    split_words,
)
from gatedjax.text.targets import ClassTarget
from tests.explore._models import model as draw_model
from tests.text._own import TEXTS, write_csv

# Each text is a document of 4 to 12 words, which the network reads four words at a time.
LONG = [(" ".join([text, *[other for other, _ in TEXTS[i : i + i % 3]]]), label)
        for i, (text, label) in enumerate(TEXTS)]  # fmt: skip


@pytest.fixture(scope="module")
def model():
    """A GA-Net that nobody trained."""
    return dataclasses.replace(draw_model(max_len=4), windows=True)


@pytest.fixture(scope="module", params=["ganet", "bilstm"])
def trained(request, model):
    """It, and a network without gates and attention."""
    if request.param == "ganet":
        return model
    return dataclasses.replace(draw_model(request.param, max_len=4), windows=True)


def pooled_by_hand(parts, lengths):
    """Probabilities from the mean of the logits of windows, weighted by their words."""
    logits = np.log(np.stack([np.asarray(part, np.float64) for part in parts]))
    odds = np.exp(np.array(lengths) / sum(lengths) @ logits)
    return odds / odds.sum()


@pytest.mark.parametrize(("length", "longest"), [(0, 3), (1, 3), (3, 3), (4, 3), (400, 7), (8, 4)])
def test_windows_have_all_words_and_nearly_equal_lengths(length, longest):
    words = tuple(map(str, range(length)))
    lengths = list(map(len, split_words(words, longest)))
    assert sum(lengths) == length
    assert max(lengths) <= longest
    assert max(lengths) - min(lengths) <= 1
    assert len(lengths) == max(-(-length // longest), 1)
    assert sum(split_words(words, longest), ()) == words


def test_rows_are_split_like_words():
    lengths = [3, 0, 9, 4, 1]
    rows = [np.arange(n) + 10 * i for i, n in enumerate(lengths)]
    starts, owners = split_starts(np.cumsum([0, *lengths]), 4)
    windows = Rows(np.concatenate(rows), starts)
    expected = []
    for row in rows:
        expected += np.split(
            row, np.cumsum([len(part) for part in split_words(tuple(row), 4)])[:-1]
        )
    assert len(windows) == len(expected)
    for window, other in zip(windows, expected, strict=True):
        np.testing.assert_array_equal(window, other)
    assert owners.tolist() == [0, 1, 2, 2, 2, 3, 4]


def test_the_pooled_scores_are_the_weighted_mean_of_the_logits():
    rng = np.random.default_rng(0)
    owners, lengths = np.array([0, 0, 0, 1, 2]), np.array([4, 2, 6, 3, 0])
    probabilities = np.asarray(jax.nn.softmax(rng.normal(size=(2, 5, 3)) * 3))
    pooled = pool_windows(probabilities, owners, lengths, 3)
    for row, document in itertools.product(range(2), range(3)):
        windows, counts = probabilities[row, owners == document], lengths[owners == document]
        mean = pooled_by_hand(windows, np.maximum(counts, 1))
        np.testing.assert_allclose(pooled[row, document], mean, rtol=1e-5)
        # The loss of the document is at most the mean of the losses of its windows.
        losses = -np.log(windows)
        bound = np.average(losses, axis=0, weights=np.maximum(counts, 1))
        assert (-np.log(pooled[row, document]) <= bound + 1e-6).all()
    np.testing.assert_array_equal(pooled[:, 1], probabilities[:, 3])
    # A single window keeps its bits, and two their type.
    probabilities = np.array([[0.2, 0.8], [0.0, 1.0]], np.float32)
    assert pool_windows(probabilities, np.arange(2), np.ones(2), 2) is probabilities
    two = pool_windows(probabilities, np.zeros(2, int), np.ones(2), 1)
    assert two.dtype == np.float32
    assert np.isfinite(two).all()


@pytest.mark.slow
def test_a_prediction_is_that_of_its_windows(trained):
    documents = [(text,) for text, _ in LONG[:6]]
    for (text,), output in zip(documents, trained.read(documents), strict=True):
        words = tuple(text.split())
        windows = split_words(words, 4)
        parts = trained.read_tokens([(window,) for window in windows])
        assert output.tokens == (words,)
        lengths = [len(window) for window in windows]
        expected = pooled_by_hand([part.probabilities for part in parts], lengths)
        np.testing.assert_allclose(output.probabilities, expected, rtol=1e-5)
        np.testing.assert_array_equal(
            output.masks[0], np.concatenate([part.masks[0] for part in parts])
        )
        share = np.average([part.share for part in parts], weights=lengths)
        assert output.share == pytest.approx(share)
        if output.attention is not None:
            assert output.attention.sum() == pytest.approx(1, abs=1e-5)
    single = trained.probabilities([documents[0], documents[5]])
    together = trained.probabilities(documents)
    np.testing.assert_allclose(single, together[[0, 5]], rtol=1e-5)


@pytest.mark.slow
def test_evaluation_counts_documents_in_each_gate_mode(model, tmp_path):
    folder = model.save(tmp_path / "model", overwrite=False)
    classifier = TextClassifier.load(folder)
    report = classifier.evaluate(LONG)
    assert report["n"] == len(LONG)
    predicted = classifier.predict([text for text, _ in LONG])
    right = np.mean([p == label for p, (_, label) in zip(predicted, LONG, strict=True)])
    assert report["accuracy"] == report["gate_modes"]["threshold"] == pytest.approx(right)
    # A report on gates reads each window.
    gated = open_own(folder, write_csv(tmp_path / "long.csv", LONG))
    assert len(gated.batch["label"]) == 95
    assert gated.batch["lengths"].max() == 4


def test_the_explanation_names_the_window_of_each_word(trained):
    text = LONG[2][0]
    explanation = explain(trained, (text,))
    assert explanation.tokens == tuple(text.split())
    assert explanation.windows == (1,) * 4 + (2,) * 4 + (3,) * 4
    assert explanation.cut == 0
    assert explanation.to_json()["windows"] == list(explanation.windows)
    assert "They are in 3 windows" in explanation.render()
    assert '<th scope="col">Window</th>' in explanation.html()
    # A removal changes its window only.
    windows = split_words(explanation.tokens, 4)
    changed = [windows[0], windows[1][:1] + windows[1][2:], windows[2]]
    parts = trained.read_tokens([(window,) for window in changed])
    best = trained.classes.index(explanation.label)
    expected = pooled_by_hand([part.probabilities for part in parts], [1, 1, 1])[best]
    assert explanation.removed[5].probability == pytest.approx(expected, abs=0.02)
    short = explain(trained, (TEXTS[0][0],))
    assert short.windows == ()
    assert "windows" not in short.to_json()
    assert "window" not in short.render()


def test_a_flip_changes_its_window_only(model):
    (output,) = model.read([(LONG[2][0],)])
    explanation = explain(model, (LONG[2][0],))
    assert len(explanation.flips) == 12
    windows = split_words(output.tokens[0], 4)
    parts = [part.probabilities for part in model.read_tokens([(w,) for w in windows])]
    gates = output.masks[0][4:8].copy()
    gates[1] = not gates[1]
    assert gates.any()
    parts[1] = model.with_gates(windows[1], gates[None].astype(np.float32))[0]
    best = model.classes.index(explanation.label)
    expected = pooled_by_hand(parts, [1, 1, 1])[best]
    assert explanation.flips[5].probability == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("empty", "is_last"), [("max_gate", True), ("zero", False)])
def test_the_last_open_gate_of_a_window_has_no_flip_if_the_likeliest_opens_again(empty, is_last):
    network = SimpleNamespace(
        classes=("x", "y"), target=ClassTarget(("x", "y")),
        config=SimpleNamespace(gates=SimpleNamespace(empty=empty)),
        list_windows=lambda texts: (texts, np.zeros(1, int)),
        with_gates=lambda words, gates: np.tile([0.4, 0.6], (3, 1)),
    )  # fmt: skip
    mask, gates = np.array([False, True, False]), np.array([0.1, 0.9, 0.2])
    output = TextOutput((tuple("abc"),), np.array([0.7, 0.3]), (mask,), 1 / 3, None, gates)
    changed = Change(label="y", probability=0.4)
    assert _flip_gates(network, output, 0) == (changed, None if is_last else changed, changed)


@pytest.mark.slow
def test_a_lexicon_reads_a_long_text_to_its_last_word():
    texts = [["a"] * (600 + i) + [word] for i in range(4) for word in ("dull", "bright")]
    labels = [0, 1] * 4
    model = TextClassifier(share=1.0).fit([" ".join(words) for words in texts], labels)
    assert model.predict([" ".join(words) for words in texts]).tolist() == labels
    explanation = model.explain("a " * 700 + "dull")
    assert len(explanation.tokens) == 701
    assert explanation.label == 0
    assert explanation.read[-1]
