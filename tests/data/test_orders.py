"""The order of batches over epochs and seeds, and of words with equal counts."""

import numpy as np
import pytest

from gatedjax.data import Batches, Encoded, SequenceBatches, Source, SourceInfo, Vocabulary


def source_of(texts):
    examples = [
        {"tokens": tuple(text.split()), "label": 0, "example_id": i} for i, text in enumerate(texts)
    ]
    return Source(tuple(examples), SourceInfo("made", "train", ("a",)))


def texts_of(count, seed):
    """Texts of one length: one bucket, so that only the order can differ."""
    ids = [np.full(3, 2, np.int32)] * count
    numbers = np.arange(count, dtype=np.int32)
    lengths = np.full(count, 3, np.int32)
    source = source_of(["x x x"] * count)
    encoded = Encoded(ids, lengths, 0 * numbers, numbers, np.zeros(count, np.int64), source)
    return Batches(encoded, batch_size=4, seed=seed)


def sequences_of(count, seed):
    ids = [np.full(3, 2, np.int32)] * count
    options = {"lengths": {"lengths": "tokens"}, "batch_size": 4, "seed": seed}
    return SequenceBatches({"tokens": ids}, np.arange(count), **options)


@pytest.mark.parametrize("make", [texts_of, sequences_of])
def test_every_epoch_and_every_seed_has_batches_of_other_examples(make):
    found = []
    for seed in (0, 1):
        batches = make(12, seed)
        for epoch in (0, 1, 2):
            steps = range(epoch * len(batches), (epoch + 1) * len(batches))
            rows = [frozenset(batches[step]["example_id"].tolist()) for step in steps]
            assert frozenset().union(*rows) == frozenset(range(12))
            found.append(frozenset(rows))
    # which examples are together, not only when: each epoch and seed shuffles them anew
    assert len(set(found)) == len(found)


def test_words_of_equal_counts_are_in_the_order_of_the_alphabet():
    source = source_of(["c b a", "d b", "b e d"])
    vocabulary = Vocabulary.build([source])
    assert vocabulary.words[2:] == ("b", "d", "a", "c", "e")
