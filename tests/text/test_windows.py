"""Documents that are longer than a network reads at once: windows and their scores."""

import json

import jax
import numpy as np
import pytest

from gatedjax.__main__ import main
from gatedjax.lexicon import fit_lexicon
from gatedjax.text import TextClassifier
from gatedjax.text._explanation import explain_texts
from gatedjax.text._gated import open_own
from gatedjax.text._options import TextOptions
from gatedjax.text._read import open_table
from gatedjax.text._saved import load_model
from gatedjax.text._training import train_model
from gatedjax.text._windows import (
    Windows,
    pool_windows,
    split_lengths,
    split_starts,
    split_words,
)
from tests.text._own import TEXTS, options, write_csv

# Each text is a document of 4 to 12 words, which the network reads four words at a time.
LONG = [(" ".join([text, *[other for other, _ in TEXTS[i : i + i % 3]]]), label)
        for i, (text, label) in enumerate(TEXTS)]  # fmt: skip
NETWORKS = ("ganet", "bilstm")


@pytest.fixture(scope="module", params=NETWORKS)
def model(request, tmp_path_factory):
    lines = []
    run = tmp_path_factory.mktemp("run")
    chosen = TextOptions(**options(request.param, max_len=4))
    trained = train_model("text", open_table(LONG), chosen, run, say=lines.append)
    return trained, lines


@pytest.mark.parametrize(("length", "longest"), [(0, 3), (1, 3), (3, 3), (4, 3), (400, 7), (8, 4)])
def test_windows_have_all_words_and_nearly_equal_lengths(length, longest):
    lengths = split_lengths(length, longest)
    assert sum(lengths) == length
    assert max(lengths) <= longest
    assert max(lengths) - min(lengths) <= 1
    assert len(lengths) == max(-(-length // longest), 1)
    words = tuple(map(str, range(length)))
    assert sum(split_words(words, longest), ()) == words


def test_rows_are_split_like_words():
    lengths = [3, 0, 9, 4, 1]
    rows = [np.arange(n) + 10 * i for i, n in enumerate(lengths)]
    starts, owners = split_starts(np.cumsum([0, *lengths]), 4)
    windows = Windows(rows, starts, owners)
    expected = []
    for row in rows:
        expected += np.split(row, np.cumsum(split_lengths(len(row), 4))[:-1])
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


def test_training_says_how_many_texts_are_read_in_windows(model):
    _, lines = model
    (line,) = [line for line in lines if "(max_len)" in line]
    assert line == (
        "32 of 48 texts are longer than 4 words (max_len) and are read in windows of at most so "
        "many words, 95 windows in total"
    )
    assert "not read" not in "\n".join(lines)
    assert any(line.startswith("split: 44 for train, 4 for validation") for line in lines)


def test_a_prediction_is_that_of_its_windows(model):
    trained, _ = model
    documents = [text for text, _ in LONG[:6]]
    for text, output in zip(documents, trained.read_texts([(t,) for t in documents]), strict=True):
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
        assert output.density == pytest.approx(
            sum(part.density * len(part.tokens[0]) for part in parts) / len(words)
        )
        if output.attention is not None:
            assert output.attention.sum() == pytest.approx(1, abs=1e-5)
    single = trained.probabilities([(documents[0],), (documents[5],)])
    np.testing.assert_allclose(single, trained.probabilities([(t,) for t in documents])[[0, 5]],
                               rtol=1e-5)  # fmt: skip


def test_a_word_of_the_last_window_counts(model):
    trained, _ = model
    first, second = trained.probabilities([("a b c d dull",), ("a b c d bright",)])
    assert not np.array_equal(first, second)


def test_the_report_is_that_of_the_documents(model):
    trained, _ = model
    counts = {name: part["n"] for name, part in trained.report["data"].items()}
    assert counts == {"train": 44, "validation": 4}
    assert trained.report["validation"]["n"] == 4


def test_evaluation_counts_documents_in_each_gate_mode(model, tmp_path):
    trained, _ = model
    classifier = TextClassifier.load(trained.save(tmp_path / "model", overwrite=False))
    report = classifier.evaluate(LONG)
    assert report["n"] == len(LONG)
    predicted = classifier.predict([text for text, _ in LONG])
    right = np.mean([p == label for p, (_, label) in zip(predicted, LONG, strict=True)])
    assert report["accuracy"] == pytest.approx(right)
    if trained.network == "ganet":
        assert report["gate_modes"]["threshold"] == pytest.approx(right)


def test_the_explanation_names_the_window_of_each_word(model):
    trained, _ = model
    text = LONG[2][0]
    explanation = explain_texts(trained, (text,))
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
    short = explain_texts(trained, (TEXTS[0][0],))
    assert short.windows == ()
    assert "windows" not in short.to_json()
    assert "window" not in short.render()


def test_a_flip_changes_its_window_only(model):
    trained, _ = model
    if trained.network != "ganet":
        return
    (output,) = trained.read_texts([(LONG[2][0],)])
    explanation = explain_texts(trained, (LONG[2][0],))
    windows = split_words(output.tokens[0], 4)
    parts = [part.probabilities for part in trained.read_tokens([(w,) for w in windows])]
    gates = output.masks[0][4:8].copy()
    gates[1] = not gates[1]
    if gates.any():
        parts[1] = trained.with_gates(windows[1], gates[None].astype(np.float32))[0]
        odds = np.exp(np.log(np.stack(parts)).mean(0))
        best = trained.classes.index(explanation.label)
        expected = odds[best] / odds.sum()
        assert explanation.flips[5].probability == pytest.approx(expected, rel=1e-5)


def test_a_saved_model_reads_the_same_windows(model, tmp_path):
    trained, _ = model
    folder = trained.save(tmp_path / "model", overwrite=False)
    loaded = load_model(folder, ("text",))
    texts = [(text,) for text, _ in LONG]
    np.testing.assert_array_equal(loaded.probabilities(texts), trained.probabilities(texts))
    assert not any(prediction.note for prediction in trained.predict(texts))


def test_the_commands_read_windows(model, tmp_path, capsys):
    trained, _ = model
    folder = trained.save(tmp_path / "model", overwrite=False)
    path = write_csv(tmp_path / "long.csv", LONG)
    assert main(["explain", str(folder), LONG[2][0]]) == 0
    assert "in 3 windows" in capsys.readouterr().out
    assert main(["predict", str(folder), "--file", str(path)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == len(LONG)


def test_a_report_on_gates_reads_each_window(model, tmp_path):
    trained, _ = model
    if trained.network != "ganet":
        return
    folder = trained.save(tmp_path / "model", overwrite=False)
    path = write_csv(tmp_path / "long.csv", LONG)
    gated = open_own(folder, path)
    assert len(gated.batch["label"]) == 95
    assert gated.batch["lengths"].max() == 4


def test_a_lexicon_reads_a_long_text_to_its_last_word():
    texts = [["a"] * (3000 + i) + [word] for i in range(4) for word in ("dull", "bright")]
    labels = np.array([0, 1] * 4)
    lexicon = next(fit_lexicon(texts, labels, 2, [1.0]))
    assert lexicon.read(texts).probabilities.argmax(1).tolist() == labels.tolist()
    model = TextClassifier().fit([" ".join(words) for words in texts], labels.tolist())
    explanation = model.explain("a " * 5000 + "dull")
    assert len(explanation.tokens) == 5001
    assert explanation.label == 0
    assert explanation.kept[-1]
