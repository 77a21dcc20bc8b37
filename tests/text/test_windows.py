"""Documents that are longer than a network reads at once: windows and their scores."""

import dataclasses

import jax
import numpy as np
import pytest

from gatedjax.lexicon import fit_lexicon
from gatedjax.text import TextClassifier
from gatedjax.text._gated import open_own
from gatedjax.text._options import TextOptions
from gatedjax.text.answers._explain import explain
from gatedjax.text.corpus._corpus import Rows
from gatedjax.text.fit._fit import train_any
from gatedjax.text.models._buckets import (
    pool_windows,
    split_starts,
    split_words,
)
from gatedjax.text.sources._open import open_table
from tests.explore._models import model as draw_model
from tests.text._own import TEXTS, options, write_csv

# Each text is a document of 4 to 12 words, which the network reads four words at a time.
LONG = [(" ".join([text, *[other for other, _ in TEXTS[i : i + i % 3]]]), label)
        for i, (text, label) in enumerate(TEXTS)]  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A GA-Net after two steps."""
    chosen = TextOptions(**options(max_len=4))
    return train_any("text", open_table(LONG), chosen, tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module", params=["ganet", "bilstm"])
def trained(request, model):
    """It, and an untrained network without gates and attention."""
    if request.param == "ganet":
        return model
    return dataclasses.replace(draw_model(request.param, max_len=4), windows=True)


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
    logits = rng.normal(size=(2, 5, 3)) * 3
    lengths, owners = np.array([4, 2, 3, 0, 6]), np.array([0, 0, 1, 2, 0])
    owners, lengths = np.sort(owners), lengths[np.argsort(owners, kind="stable")]
    order = np.argsort([0, 0, 1, 2, 0], kind="stable")
    probabilities = np.asarray(jax.nn.softmax(logits[:, order]))
    pooled = pool_windows(probabilities, owners, lengths, 3)
    for document in range(3):
        places = np.flatnonzero(owners == document)
        mean = np.zeros((2, 3))
        for place in places:
            share = max(lengths[place], 1) / np.maximum(lengths[places], 1).sum()
            mean += share * logits[:, order][:, place]
        np.testing.assert_allclose(pooled[:, document], jax.nn.softmax(mean), rtol=1e-5)
        # The loss of the document is at most the mean of the losses of its windows.
        shares = np.maximum(lengths[places], 1) / np.maximum(lengths[places], 1).sum()
        losses = -np.log(probabilities[:, places])
        bound = (shares[:, None] * losses).sum(1)
        assert (-np.log(pooled[:, document]) <= bound + 1e-6).all()
    np.testing.assert_array_equal(pooled[:, 1], probabilities[:, 3])


def test_a_single_window_keeps_its_bits_and_its_type():
    probabilities = np.array([[0.2, 0.8], [0.0, 1.0]], np.float32)
    assert pool_windows(probabilities, np.arange(2), np.ones(2), 2) is probabilities
    two = pool_windows(probabilities, np.zeros(2, int), np.ones(2), 1)
    assert two.dtype == np.float32
    assert np.isfinite(two).all()


def test_a_prediction_is_that_of_its_windows(trained):
    documents = [text for text, _ in LONG[:6]]
    for text, output in zip(documents, trained.read([(t,) for t in documents]), strict=True):
        words = tuple(text.split())
        windows = split_words(words, 4)
        parts = trained.read_tokens([(window,) for window in windows])
        assert output.tokens == (words,)
        logits = np.log(np.stack([part.probabilities for part in parts]))
        shares = np.array([len(window) for window in windows]) / len(words)
        odds = np.exp(shares @ logits)
        np.testing.assert_allclose(output.probabilities, odds / odds.sum(), rtol=1e-5)
        np.testing.assert_array_equal(
            output.masks[0], np.concatenate([part.masks[0] for part in parts])
        )
        assert output.share == pytest.approx(
            sum(part.share * len(part.tokens[0]) for part in parts) / len(words)
        )
        if output.attention is not None:
            assert output.attention.sum() == pytest.approx(1, abs=1e-5)
    single = trained.probabilities([(documents[0],), (documents[5],)])
    np.testing.assert_allclose(single, trained.probabilities([(t,) for t in documents])[[0, 5]],
                               rtol=1e-5)  # fmt: skip


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
    printed = explanation.render()
    assert "They are in 3 windows" in printed
    assert printed.splitlines()[-1].split()[1] == "3" or "| 3" in printed
    assert '<th scope="col">Window</th>' in explanation.html()
    # A removal changes its window only.
    windows = split_words(explanation.tokens, 4)
    changed = [windows[0], windows[1][:1] + windows[1][2:], windows[2]]
    parts = trained.read_tokens([(window,) for window in changed])
    logits = np.log(np.stack([part.probabilities for part in parts]))
    best = trained.classes.index(explanation.label)
    odds = np.exp(logits.mean(0))
    assert explanation.removed[5].probability == pytest.approx(odds[best] / odds.sum(), abs=0.02)
    if trained.network == "ganet":
        assert len(explanation.flips) == 12
    short = explain(trained, (TEXTS[0][0],))
    assert short.windows == ()
    assert "windows" not in short.to_json()
    assert "window" not in short.render()


def test_a_flip_changes_its_window_only(model):
    (output,) = model.read([(LONG[2][0],)])
    explanation = explain(model, (LONG[2][0],))
    windows = split_words(output.tokens[0], 4)
    parts = [part.probabilities for part in model.read_tokens([(w,) for w in windows])]
    gates = output.masks[0][4:8].copy()
    gates[1] = not gates[1]
    if gates.any():
        parts[1] = model.with_gates(windows[1], gates[None].astype(np.float32))[0]
        odds = np.exp(np.log(np.stack(parts)).mean(0))
        best = model.classes.index(explanation.label)
        expected = odds[best] / odds.sum()
        assert explanation.flips[5].probability == pytest.approx(expected, rel=1e-5)


def test_a_lexicon_reads_a_long_text_to_its_last_word():
    texts = [["a"] * (600 + i) + [word] for i in range(4) for word in ("dull", "bright")]
    labels = np.array([0, 1] * 4)
    lexicon = next(fit_lexicon(texts, labels, 2, [1.0]))
    assert lexicon.read(texts).probabilities.argmax(1).tolist() == labels.tolist()
    model = TextClassifier().fit([" ".join(words) for words in texts], labels.tolist())
    explanation = model.explain("a " * 700 + "dull")
    assert len(explanation.tokens) == 701
    assert explanation.label == 0
    assert explanation.read[-1]
