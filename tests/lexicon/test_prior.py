"""What a lexicon answers where it has nothing to go by, against loops over words and texts."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from gatedjax.lexicon import fit_lexicon
from gatedjax.lexicon._lexicon import NOTHING_KNOWN, NOTHING_READ
from tests.lexicon.test_heads import HEADS, KINDS
from tests.lexicon.test_lexicon import TEXTS, naive_counts, naive_gate

WEIGHTS = np.random.default_rng(4).uniform(0, 3, len(TEXTS))
ONCE = "qwertz"
"""A word that a single training text has, and that therefore has no weight of its own."""
TRAINING = [[*TEXTS[0], ONCE], *TEXTS[1:]]
QUERIES = [
    *TEXTS[::5],
    [],
    ["dullness"],
    ["finest", "warmth", "xqx"],
    ["film"],
    [","],
    ["film", "warmth", "finest"],
    ["fine", "warmth"],
    ["a", "film", "finest", "dull", "dull"],
    ["said", "he", "zzz"],
    [ONCE],
]


def fit(kind, share, weights):
    head, targets = HEADS[kind]
    (lexicon,) = fit_lexicon(TRAINING, targets, 0, [share], sample_weight=weights, head=head)
    return dataclasses.replace(lexicon, temperatures=(1.9, 1.8, 1.75, 1.7))


def naive_prior(kind, weights):
    """The weighted frequencies, or the mean of the numbers, of the training texts, one by one."""
    head, targets = HEADS[kind]
    weights = np.ones(len(targets)) if weights is None else weights
    total = math.fsum(weights)
    if kind == "real":
        return [math.fsum(w * y for w, y in zip(weights, targets, strict=True)) / total]
    names = range(head.num_probabilities)
    has = {
        name: [bool(y[name]) if kind == "labels" else y == name for y in targets] for name in names
    }
    return [math.fsum(itertools.compress(weights, has[name])) / total for name in names]


def naive_output(lexicon, words):
    """(logits, probabilities) of a text of open words, feature by feature."""
    counts = naive_counts(lexicon, words)
    values = {c: float(lexicon.scale[c]) * (1 + math.log(n)) for c, n in counts.items()}
    length = math.sqrt(sum(v * v for v in values.values())) or 1.0
    scores = np.zeros(lexicon.head.num_columns)
    for column, value in values.items():
        scores = scores + value / length * lexicon.weights[column].astype(float)
    bias = lexicon.bias.astype(float)
    heat = lexicon.temperatures[sum(len(words) > most for most in (1, 2, 5))]
    logits = lexicon.head.add_bias(scores[None], bias) / heat
    return logits[0], lexicon.head.compute_probabilities(logits, bias / heat)[0]


@pytest.mark.parametrize(("share", "weights"), [(1.0, None), (0.3, WEIGHTS)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_text_without_a_known_word_that_is_read_gets_the_prior(kind, share, weights):
    lexicon, prior = fit(kind, share, weights), naive_prior(kind, weights)
    training_words = {word for text in TRAINING for word in text}
    reading = lexicon.read(QUERIES)
    reasons = set()
    for row, words in enumerate(QUERIES):
        gates = [naive_gate(lexicon, word) for word in words]
        is_known = [word in training_words for word in words]
        is_read = any(gate and known for gate, known in zip(gates, is_known, strict=True))
        assert reading.is_known[row].tolist() == is_known
        assert reading.is_prior[row] == (not is_read)
        assert reading.is_read[row].tolist() == (gates if is_read else [False] * len(words))
        if is_read:
            logits, probabilities = naive_output(lexicon, list(itertools.compress(words, gates)))
            np.testing.assert_allclose(reading.logits[row], logits, atol=1e-9)
            np.testing.assert_allclose(reading.probabilities[row], probabilities, atol=1e-12)
            assert reading.notes[row] == ""
            continue
        reasons.add(reading.notes[row])
        assert reading.notes[row] == (NOTHING_READ if any(is_known) else NOTHING_KNOWN)
        expected = reading.logits[row] if kind == "real" else reading.probabilities[row]
        np.testing.assert_allclose(expected, prior, rtol=1e-14)
        np.testing.assert_array_equal(expected, lexicon.prior)
        parts = lexicon.parts(words)
        np.testing.assert_array_equal(parts.bias, reading.logits[row])
        assert not parts.words.any()
        assert not len(parts.pairs)
    assert reasons == ({NOTHING_KNOWN} if share == 1 else {NOTHING_KNOWN, NOTHING_READ})


@pytest.mark.parametrize("num_alone", [10, 11])
def test_letters_alone_are_read_if_enough_training_texts_share_no_word(num_alone):
    """Family names tell the class by their ends, and each occurs in a single text."""
    stems = [first + second for first in "bdgklmnprst" for second in ("ar", "el", "ov")]
    texts = [[stem + end] for stem in stems[:num_alone] for end in ("ski", "sen")][:num_alone]
    labels = np.array([text[0].endswith("ski") for text in texts] + [True, False] * 20, int)
    texts += [["see", "him"], ["see", "her"]] * 20
    for lexicon in fit_lexicon(texts, labels, 2, [1.0, 0.7]):
        reading = lexicon.read([["tarski"], ["tarsen"], ["@tarski"], ["zzz"], []])
        is_read = lexicon.letters_suffice
        assert is_read == (num_alone > 10)
        assert reading.is_prior.tolist() == [not is_read] * 2 + [True] * 3
        assert [gates.tolist() for gates in reading.is_read[:2]] == [[is_read]] * 2
        if is_read:
            assert reading.probabilities[:2].argmax(1).tolist() == [1, 0]
        np.testing.assert_array_equal(reading.probabilities[2:], [lexicon.prior] * 3)


@pytest.mark.parametrize("kind", ["classes", "labels"])
def test_the_logits_of_the_prior_give_its_probabilities(kind):
    lexicon = fit(kind, 0.3, WEIGHTS)
    computed = lexicon.head.compute_probabilities(lexicon.read([[]]).logits, lexicon.bias)
    np.testing.assert_allclose(computed, [lexicon.prior], rtol=1e-12)


@pytest.mark.parametrize("kind", ["classes", "labels"])
def test_a_class_of_all_or_of_no_weight_has_finite_logits(kind):
    head, targets = HEADS[kind]
    has_class = targets[:, 1] if kind == "labels" else targets == 1
    (lexicon,) = fit_lexicon(
        TRAINING, targets, 0, [0.5], sample_weight=has_class.astype(float), head=head
    )
    reading = lexicon.read([[]])
    assert reading.probabilities[0, 1] == 1
    assert np.isfinite(reading.logits).all()
