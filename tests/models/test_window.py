"""Gates that see the neighbours, and their training with a linear reader."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax.models import window
from gatedjax.models.window import Room, WindowParams, fit_gates, gate_logits, read_gated

EDGE, WORDS, CLASSES = 6, 7, 3


@pytest.fixture
def params(np_rng):
    tables = [np_rng.normal(size=EDGE + 1) for _ in range(3)]
    return WindowParams(
        *tables, np_rng.normal(size=(WORDS, CLASSES)), np_rng.normal(size=CLASSES), np.zeros(())
    )


@pytest.mark.parametrize("extra", [0, 3])
def test_the_logits_are_those_of_a_loop_and_padding_changes_none(extra, params, np_rng, x64):
    lengths = [4, 1, 0, 5]
    gates = np_rng.integers(0, EDGE, (4, 5 + extra))
    mask = np.arange(5 + extra) < np.array(lengths)[:, None]
    got = gate_logits(params, gates, jnp.asarray(mask), EDGE)
    for row, length in enumerate(lengths):
        near = [EDGE, *gates[row, :length], EDGE]
        for t in range(5 + extra):
            expected = -np.inf
            if t < length:
                own, left, right = params.word_logits, params.left_logits, params.right_logits
                expected = own[near[t + 1]] + left[near[t]] + right[near[t + 2]]
            np.testing.assert_allclose(got[row, t], expected, rtol=1e-12)


def test_the_scores_and_their_derivatives_are_those_of_a_loop(params, np_rng, x64):
    words, squares = np_rng.integers(0, WORDS, (3, 4)), np_rng.random(WORDS) + 0.1
    gates = np.array([[1.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])

    def scores(gates):
        rows = []
        for text, g in zip(words, gates, strict=True):
            total, square = np.zeros(CLASSES), 0.0
            for word, share in zip(text, g, strict=True):
                total += share * params.words[word]
                square += share * squares[word]
            rows.append(params.bias + total / np.sqrt(max(square, 1e-3)))
        return np.array(rows)

    np.testing.assert_allclose(read_gated(params, words, gates, squares), scores(gates), rtol=1e-12)
    np.testing.assert_array_equal(read_gated(params, words, gates, squares)[1], params.bias)
    slope = jax.grad(lambda g: jnp.sum(read_gated(params, words, g, squares) ** 2))(gates)
    for row in (0, 2):
        for t in range(4):
            step = np.zeros_like(gates)
            step[row, t] = 1e-6
            ends = [(scores(gates + sign * step) ** 2).sum() for sign in (1, -1)]
            np.testing.assert_allclose(slope[row, t], (ends[0] - ends[1]) / 2e-6, rtol=1e-5)
    assert np.isfinite(slope).all()


def texts_where_the_word_after_a_mark_decides(rng, count=400):
    """Words 0 and 1 are the classes behind the mark 2, and noise elsewhere; 3 to 5 are filler."""
    texts, labels = [], []
    for _ in range(count):
        label = int(rng.integers(2))
        noise = rng.choice([0, 1, 3, 4, 5], 6).tolist()
        place = int(rng.integers(1, 6))
        texts.append(np.array([*noise[:place], 2, label, 3, *noise[place:]]))
        labels.append(label)
    return texts, np.array(labels)


def fit(texts, labels, **options):
    scores = np.zeros((6, 2))
    scores[0, 0] = scores[1, 1] = 1.0
    own = np.array([3.0, 3.0, 1.0, 1.0, 1.0, 1.0])
    squares = np.ones(6)
    return fit_gates(
        texts, labels, np.arange(6), own, scores, np.zeros(2), squares, 0.12, **options
    )


def logits_of(gates, text):
    near = [6, *text, 6]
    return np.array(
        [
            gates[near[t], 0] + gates[near[t - 1], 1] + gates[near[t + 1], 2]
            for t in range(1, len(near) - 1)
        ]
    )


def test_gates_learn_that_a_neighbour_decides_and_keep_the_density():
    texts, labels = texts_where_the_word_after_a_mark_decides(np.random.default_rng(0))
    gates = fit(texts, labels)
    assert gates.shape == (7, 3)
    assert gates.dtype == np.float32
    logits = [logits_of(gates, text) for text in texts]
    share = np.mean(1 / (1 + np.exp(-np.concatenate(logits))))
    assert share == pytest.approx(0.12, abs=0.05)
    behind = [
        int(np.argmax(z)) == text.tolist().index(2) + 1
        for z, text in zip(logits, texts, strict=True)
    ]
    assert np.mean(behind) > 0.95


def test_a_fit_is_bit_equal_with_its_seed_and_shares_the_program_of_a_larger_fit():
    texts, labels = texts_where_the_word_after_a_mark_decides(np.random.default_rng(0))
    room = Room(texts=len(texts), words=6, length=9)
    first = fit(texts, labels)
    compiled = window._train._cache_size()
    np.testing.assert_array_equal(first, fit(texts, labels, room=room))
    assert (first != fit(texts, labels, seed=1)).any()
    fit(texts[:300], labels[:300], room=room)
    assert window._train._cache_size() == compiled


def test_a_text_of_weight_zero_teaches_nothing():
    texts, labels = texts_where_the_word_after_a_mark_decides(np.random.default_rng(0))
    room = Room(texts=len(texts), words=6, length=9)
    ones = fit(texts, labels, room=room, sample_weight=np.ones(len(texts)))
    np.testing.assert_array_equal(ones, fit(texts, labels, room=room))
    weights = np.where(np.arange(len(texts)) % 4 == 0, 0.0, 4 / 3)
    first = fit(texts, labels, room=room, sample_weight=weights)
    other_labels = np.where(weights == 0, 1 - labels, labels)
    np.testing.assert_array_equal(first, fit(texts, other_labels, room=room, sample_weight=weights))
    assert (first != fit(texts, other_labels, room=room)).any()
    with pytest.raises(ValueError, match=r"sample_weight must have shape \(400,\), got \(1,\)"):
        fit(texts, labels, sample_weight=[1.0])


@pytest.mark.parametrize("density", [0.0, 1.0, -1.0])
def test_a_density_out_of_range_is_refused(density):
    with pytest.raises(ValueError, match=r"density must be in \(0, 1\)"):
        fit_gates(
            [np.zeros(1, int)], *map(np.array, ([0], [0], [0.0], [[0.0]], [0.0], [1.0])), density
        )


def test_no_text_is_refused():
    with pytest.raises(ValueError, match="texts must have at least one text"):
        fit_gates([], *map(np.array, ([], [], [], [], [], [])), 0.5)
