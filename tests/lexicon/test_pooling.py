"""Gates before a mean of token vectors: equations, gates that hold, and the fit."""

import numpy as np
import pytest
from scipy.special import softmax

from gatedjax.lexicon import GatedPooling, fit_pooling
from gatedjax.lexicon._pooling import MADE_OPEN, _compute_gains, find_cut


def draw_texts(seed=0, count=60, width=5, dtype=np.float64):
    """Texts of noise with a single token that has the class in its first number."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    texts = []
    for label in labels:
        vectors = rng.normal(size=(rng.integers(3, 9), width))
        vectors[:, :2] = 0
        vectors[rng.integers(len(vectors)), :2] = [4 * label - 2, 3]
        texts.append(vectors.astype(dtype))
    return texts, labels


def draw_pooling(num_classes, width=6, seed=0):
    rng = np.random.default_rng(seed)
    columns = 1 if num_classes == 2 else num_classes
    return GatedPooling(
        num_classes,
        rng.normal(size=width).astype(np.float32),
        0.3,
        rng.normal(size=(width, columns)).astype(np.float32),
        rng.normal(size=columns).astype(np.float32),
        rng.dirichlet(np.ones(num_classes)),
        0.5,
        (2.0, 1.9, 1.8, 1.7),
    )


def read_slowly(pooling, vectors):
    """The equations of the docstring, token by token."""
    if not len(vectors):
        return [], pooling.prior
    logits = [sum(float(u) * float(h) for u, h in zip(pooling.gate, row, strict=True))
              for row in vectors]  # fmt: skip
    opened = [i for i, z in enumerate(logits) if z - pooling.cut > 0]
    if not opened:
        opened = [max(range(len(vectors)), key=lambda i: logits[i])]
    scores = pooling.bias.astype(float).tolist()
    for column in range(len(scores)):
        for i in opened:
            for d in range(pooling.width):
                scores[column] += (
                    float(pooling.weights[d, column]) * float(vectors[i][d]) / len(opened)
                )
    if pooling.num_classes == 2:
        scores = [-scores[0] / 2, scores[0] / 2]
    heat = pooling.temperatures[sum(len(opened) > most for most in (1, 2, 5))]
    return opened, softmax(np.array(scores) / heat)


@pytest.mark.parametrize(
    ("num_classes", "dtype"), [(2, np.float16), (3, np.float32), (2, np.float64)]
)
def test_the_prediction_is_that_of_the_equations(num_classes, dtype):
    pooling = draw_pooling(num_classes)
    rng = np.random.default_rng(1)
    texts = [rng.normal(size=(n, 6)).astype(dtype) for n in (1, 2, 7, 0, 30)]
    readings = pooling.read(texts)
    for row, vectors in enumerate(texts):
        opened, probabilities = read_slowly(pooling, vectors)
        assert np.flatnonzero(readings.is_read[row]).tolist() == opened
        np.testing.assert_allclose(readings.probabilities[row], probabilities, rtol=1e-12)
        parts = pooling.parts(vectors)
        logits = parts.bias + parts.words.sum(0)
        np.testing.assert_allclose(softmax(logits), probabilities, rtol=1e-12)
        assert not parts.words[~readings.is_read[row]].any()
    assert readings.is_prior.tolist() == [False, False, False, True, False]
    np.testing.assert_array_equal(readings.probabilities[3], pooling.prior)


@pytest.mark.parametrize("width", [1, 3, 6, 8, 9, 33, 200])
def test_the_open_vectors_alone_have_the_same_bits_in_each_batch(width):
    rng = np.random.default_rng(width)
    pooling = draw_pooling(3, width)
    texts = [rng.normal(size=(n, width)).astype(np.float32) for n in range(1, 60)]
    readings = pooling.read(texts)
    rest = [vectors[gates] for vectors, gates in zip(texts, readings.is_read, strict=True)]
    np.testing.assert_array_equal(pooling.read(rest).probabilities, readings.probabilities)
    single = [pooling.read([vectors]).probabilities[0] for vectors in rest]
    np.testing.assert_array_equal(single, readings.probabilities)
    # Another value in a closed token changes no bit, as long as its gate stays closed.
    for vectors, gates in zip(texts, readings.is_read, strict=True):
        vectors[~gates] -= pooling.gate
    np.testing.assert_array_equal(pooling.read(texts).probabilities, readings.probabilities)


def test_a_text_without_an_open_token_opens_the_likeliest():
    pooling = draw_pooling(2)
    vectors = -np.outer([3.0, 1.0, 2.0], pooling.gate)
    readings = pooling.read([vectors])
    assert readings.is_read[0].tolist() == [False, True, False]
    assert readings.notes == [MADE_OPEN]


def test_the_fit_finds_the_tokens_with_the_class_at_the_density():
    texts, labels = draw_texts()
    total = sum(map(len, texts))
    last = len(texts) / total
    stages = [*fit_pooling(texts, labels, 2, [1.0, 0.5, last])]
    # Wrong labels of a small weight change neither the classes nor the gates.
    both, weights = np.append(labels, 1 - labels), np.repeat([1.0, 1e-6], len(texts))
    stages += fit_pooling([*texts, *texts], both, 2, [last], sample_weight=weights)
    for pooling in stages:
        readings = pooling.read(texts)
        assert (readings.probabilities.argmax(1) == labels).all()
        part = np.mean(np.concatenate(readings.is_read))
        assert part == pytest.approx(pooling.share, abs=0.03)
        if pooling.share == last:
            # The open token of almost all texts is the token with the class.
            right = [
                vectors[gates][:, 1].min() == 3
                for vectors, gates in zip(texts, readings.is_read, strict=True)
            ]
            assert np.mean(right) > 0.9
    _, again = fit_pooling(texts, labels, 2, [1.0, 0.5])
    np.testing.assert_array_equal(again.gate, next(fit_pooling(texts, labels, 2, [0.5])).gate)


def test_gains_are_the_change_of_the_loss_without_the_token():
    rng = np.random.default_rng(0)
    scores, bias = rng.normal(size=(9, 3)), rng.normal(size=3)
    rows, labels = np.array([0, 0, 0, 1, 2, 2, 2, 2, 3]), np.array([1, 0, 2, 1])
    is_read = np.array([1, 1, 0, 1, 1, 0, 1, 1, 0], bool)
    gains = _compute_gains(scores, rows, is_read, labels, bias)

    def loss(members, label):
        mean = np.mean(scores[members], 0) if members else np.zeros(3)
        return -np.log(softmax(mean + bias)[label])

    for place, row in enumerate(rows):
        opened = [i for i in range(9) if rows[i] == row and is_read[i] and i != place]
        expected = loss(opened, labels[row]) - loss([*opened, place], labels[row])
        assert gains[place] == pytest.approx(expected * (len(opened) + 1))


def test_equal_vectors_are_open_together_and_nothing_divides_by_zero():
    texts, labels = [np.ones((3, 2)), np.ones((2, 2))] * 4, np.array([0, 1] * 4)
    for pooling in fit_pooling(texts, labels, 2, [1.0, 0.3]):
        readings = pooling.read(texts)
        assert np.isfinite(readings.probabilities).all()
        assert len(set(np.concatenate(readings.is_read).tolist())) == 1


@pytest.mark.parametrize(
    ("logits", "share", "part"),
    [
        ([0.0, 1.0, 2.0, 3.0], 0.25, 0.25),
        ([1.0, 1.0, 1.0], 0.3, 1.0),
        ([0.0, 5.0, 5.0], 0.4, 2 / 3),
    ],
)
def test_the_cut_lies_between_two_logits(logits, share, part):
    logits = np.array(logits)
    cut = find_cut(logits, share)
    assert np.mean(logits > cut) == part
    assert not (logits == cut).any()


def test_half_precision_vectors_and_many_classes():
    texts, labels = draw_texts(dtype=np.float16)
    pooling = next(fit_pooling(texts, labels + 1, 4, [0.5]))
    assert pooling.weights.shape == (5, 4)
    assert (pooling.read(texts).probabilities.argmax(1) == labels + 1).mean() > 0.9
