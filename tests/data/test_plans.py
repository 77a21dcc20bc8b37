"""Batches of every kind by step: each example once in an epoch, in an order of seed and epoch."""

import itertools
import sys

import numpy as np
import pytest

from gatedjax import data
from gatedjax.data.sets import _cloze
from tests.data._same import equal

SIZE = 37
INFO = data.SourceInfo("toy", "train", ("a", "b"))
WORDS = [f"w{i}" for i in range(9)]


def texts(longest, **options):
    rng = np.random.default_rng(0)
    examples = [
        {"tokens": tuple(rng.choice(WORDS, rng.integers(1, longest))), "label": 0, "example_id": i}
        for i in range(SIZE)
    ]
    source = data.Source(examples, INFO)
    return data.Batches(data.encode(source, data.Vocabulary.build([source])), **options)


def sequences(**options):
    rng = np.random.default_rng(0)
    rows = [np.ones(size, np.int32) for size in rng.integers(1, 20, SIZE)]
    lengths = {"lengths": "tokens"}
    return data.SequenceBatches(
        {"tokens": rows}, np.arange(SIZE), lengths=lengths, max_buckets=2, **options
    )


def images(**options):
    zeros = np.zeros(SIZE, int)
    source = data.ImageSource(np.zeros((SIZE, 2, 2), np.uint8), zeros, np.arange(SIZE), INFO)
    return data.ImageBatches(source, **options)


def questions(**options):
    rng = np.random.default_rng(0)
    examples = []
    for i in range(SIZE):
        document = " ".join(rng.choice(WORDS, rng.integers(1, 20)))
        made = _cloze.question(document, "w1 @placeholder", "w1", ["w1", "w2 w3"])
        examples.append(_cloze.example(made, i))
    source = data.Source(examples, data.SourceInfo("toy", "train", _cloze.CLASSES))
    vocabulary = data.cloze_vocabulary([source])
    spelt = data.Characters.build(vocabulary).table(vocabulary)
    encoded = data.encode_cloze(source, vocabulary)
    return data.ClozeBatches(encoded, max_shapes=4, characters=spelt, **options)


MAKERS = {
    "texts": lambda **options: texts(20, **options),
    "texts of one length": lambda **options: texts(2, **options),
    "sequences": sequences,
    "images": images,
    "questions": questions,
}
each_maker = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def ids_of(batch):
    return batch["example_id"][batch["weight"] > 0].tolist()


@each_maker
def test_every_epoch_and_every_seed_has_each_example_once_in_other_batches(make):
    found = []
    for seed, epoch in itertools.product((0, 1), (0, 1, 2)):
        batches = make(batch_size=8, seed=seed)
        steps = range(epoch * len(batches), (epoch + 1) * len(batches))
        assert {batches.epoch(step) for step in steps} == {epoch}
        rows = [frozenset(ids_of(batches[step])) for step in steps]
        assert sorted(i for step in steps for i in ids_of(batches[step])) == list(range(SIZE))
        found.append(frozenset(rows))
    # Which examples are together, and not only when: each epoch and seed shuffles them anew.
    assert len(set(found)) == len(found)


@each_maker
def test_a_batch_is_a_function_of_seed_and_step_and_its_shape_of_the_step(make):
    first, again, other = (make(batch_size=8, seed=seed) for seed in (3, 3, 4))
    for step in (100, 3, 50, 3, 0, np.int64(len(first))):
        assert equal(first[step], again[step])
        shapes = [{name: array.shape for name, array in b[step].items()} for b in (first, other)]
        assert shapes[0] == shapes[1]
    assert any(not equal(first[step], other[step]) for step in range(3))
    still = make(batch_size=8, shuffle=False)
    assert equal(still[1], still[1 + 3 * len(still)])


@each_maker
def test_filler_rows_are_empty(make):
    filled = [batch for batch in make(batch_size=8) if not batch["weight"].all()]
    assert filled
    for batch in filled:
        empty = batch["weight"] == 0
        assert (batch["example_id"][empty] == -1).all()
        assert not any(batch[name][empty].any() for name in set(batch) - {"example_id"})
        assert all(len(array) == 8 for array in batch.values())


@each_maker
@pytest.mark.parametrize("num_threads", [0, 2, None])
def test_iterating_gives_what_indexing_gives_from_any_step(make, num_threads, monkeypatch):
    if num_threads is None:  # the number has no effect without grain
        monkeypatch.setitem(sys.modules, "grain", None)
    batches = make(batch_size=8, seed=1)
    start, stop = 2, 2 * len(batches) + 3
    made = list(batches.iterate(start, stop, num_threads=num_threads))
    assert len(made) == stop - start
    assert all(equal(batch, batches[step]) for step, batch in enumerate(made, start))
    endless = batches.iterate(10**6, num_threads=num_threads)
    assert equal(next(endless), batches[10**6])
    endless.close()
    assert next(batches.iterate(4, 4), None) is next(batches.iterate(0, 0), None) is None


@each_maker
def test_one_pass_keeps_the_order_within_a_shape_and_ends(make):
    batches = make(batch_size=8, shuffle=False, one_pass=True)
    by_shape = {}
    for batch in batches:
        shape = tuple(array.shape for array in batch.values())
        by_shape.setdefault(shape, []).extend(ids_of(batch))
    assert all(ids == sorted(ids) for ids in by_shape.values())
    assert sorted(itertools.chain(*by_shape.values())) == list(range(SIZE))
    assert sum(1 for _ in batches.iterate()) == len(batches)
    with pytest.raises(IndexError, match=f"below {len(batches)}"):
        batches[len(batches)]
    with pytest.raises(IndexError, match="at least 0"):
        batches[-1]
    with pytest.raises(ValueError, match=rf"must be in \[0, {len(batches)}\]"):
        batches.iterate(0, len(batches) + 1)
