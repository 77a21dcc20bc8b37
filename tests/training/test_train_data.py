"""Training data as people have them: by step, grain, iterators, and loaders of other libraries."""

import itertools
import types

import jax
import numpy as np
import optax
import pytest

from gatedjax import data as gdata
from gatedjax import functional as F
from gatedjax.training import CheckpointMismatch, CheckpointStore, replay, step_rngs
from tests.conftest import ROOT
from tests.training._tiny import (
    HELD_OUT,
    Points,
    W,
    assert_close,
    assert_same_run,
    descend,
    lines_to,
    plane,
    stop_at,
)

pytestmark = pytest.mark.slow

SGD = optax.sgd(0.05)


def go(workdir=None, train=None, evaluation=None, **given):
    options = {"num_steps": 10, "checkpoint_every": 4, "optimizer": SGD}
    return plane(workdir, train, evaluation, **options | given)


def row(number):
    x = np.random.default_rng([8, number]).normal(size=3).astype(np.float32)
    return {"x": x, "y": x @ W + 1, "weight": np.float32(1), "example_id": np.int32(number)}


# With its own options grain reads 500 batches ahead, in 16 threads.
AHEAD = {"num_threads": 1, "prefetch_buffer_size": 2}


def map_dataset(grain):
    return grain.MapDataset.source(range(40)).shuffle(seed=3).repeat().map(row).batch(8)


def iter_dataset(grain):
    options = grain.ReadOptions(**AHEAD)
    return map_dataset(grain).to_iter_dataset(options).map(lambda batch: batch)


def loader(grain):
    class Row(grain.transforms.Map):
        def map(self, element):
            return row(element)

    sampler = grain.samplers.IndexSampler(
        40, shuffle=True, seed=3, shard_options=grain.sharding.NoSharding()
    )
    return grain.DataLoader(
        data_source=range(40),
        sampler=sampler,
        operations=[Row(), grain.transforms.Batch(8)],
        read_options=grain.ReadOptions(**AHEAD),
    )


class Counter:
    """An iterable whose iterators have a state, without grain."""

    def __iter__(self):
        return CounterIterator()


class CounterIterator:
    number = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.number += 1
        return Points()[self.number - 1]

    def get_state(self):
        return {"number": self.number}

    def set_state(self, state):
        self.number = state["number"]


KINDS = {
    "MapDataset": map_dataset,
    "IterDataset": iter_dataset,
    "DataLoader": loader,
    "an iterator of an IterDataset": lambda grain: iter(iter_dataset(grain)),
    "an iterable with a state": lambda grain: Counter(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_was_stopped_reads_the_batches_of_an_unbroken_run(kind, tmp_path):
    make = lambda: KINDS[kind](pytest.importorskip("grain"))  # noqa: E731
    whole = go(None, make())
    batches = list(itertools.islice(iter(make()), 10))
    assert len({batch["x"].tobytes() for batch in batches}) == 10
    go(tmp_path, make(), hook=stop_at(3))
    assert_same_run(go(tmp_path, make()), whole)
    # The right batches, not only the same ones.
    assert_close(whole.state.params, descend(batches))
    if kind == "an iterable with a state":
        # A checkpoint has the state after the last batch that was trained on.
        store = CheckpointStore(tmp_path / "checkpoints")
        assert {s: store.record(s)["data"] for s in store.steps()} == {
            8: {"json": {"number": 8}}, 10: {"json": {"number": 10}}
        }  # fmt: skip


def test_other_data_with_a_state_are_refused(tmp_path):
    go(tmp_path, hook=stop_at(3))
    with pytest.raises(CheckpointMismatch, match="the checkpoint has no state of train_data"):
        go(tmp_path, Counter())


def batches_from(start=0, stop=None):
    return (Points()[step] for step in itertools.islice(itertools.count(start), stop))


def test_an_iterator_is_read_once_and_a_run_that_continues_states_what_differs(tmp_path):
    data = batches_from()
    go(tmp_path, data, repeatable=False, hook=stop_at(4))
    with pytest.warns(RuntimeWarning, match="continues from step 4 with the next batches that"):
        again = go(tmp_path, data, repeatable=False)
    # The program has the iterator still, which goes on where the first call ended.
    assert_close(again.state.params, descend(batches_from(stop=10)))
    assert again.steps == 10


def test_data_by_step_may_differ_between_two_readings(tmp_path):
    class Augmented(Points):
        def __getitem__(self, step):
            noise = np.float32(np.random.default_rng().normal())
            batch = super().__getitem__(step)
            return batch | {"x": batch["x"] + noise}

    go(tmp_path, Augmented(), repeatable=False, hook=stop_at(4))
    with pytest.warns(RuntimeWarning, match="repeatable=False"):
        go(tmp_path, Augmented(), repeatable=False)
    go(tmp_path / "b", Augmented(), hook=stop_at(4))
    with pytest.raises(CheckpointMismatch, match="the training data, x: saved"):
        go(tmp_path / "b", Augmented())


@pytest.mark.parametrize("length", [3, 4])
def test_a_run_ends_with_its_data(length, tmp_path):
    lines, once = [], {"repeatable": False, "evaluation": HELD_OUT}
    with pytest.warns(RuntimeWarning, match=f"ended after {length} batches, .* num_steps is 10"):
        result = go(tmp_path, batches_from(stop=length), hook=lines_to(lines), **once)
    assert (result.steps, result.stopped, result.best_step) == (length, "done", length)
    assert [entry["step"] for entry in result.history] == sorted({2, length})
    assert [line["step"] for line in lines if line["split"] == "train"] == sorted({2, length})
    assert_close(result.state.params, descend(batches_from(stop=length)))
    assert CheckpointStore(tmp_path / "checkpoints").latest() == length
    with pytest.warns(RuntimeWarning) as caught:
        more = go(tmp_path, batches_from(length), **once)
    assert len(caught) == 1
    assert more.steps == 10


class Loader:
    """A stand-in for a loader of PyTorch or Hugging Face: two batches in an epoch, in a new order.

    Iterating it again begins the next epoch.
    """

    def __init__(self):
        self.epochs = 0

    def __iter__(self):
        epoch = self.epochs
        self.epochs += 1
        for step in np.random.default_rng(epoch).permutation(2):
            batch = Points()[2 * epoch + int(step)]
            yield batch["x"], batch["y"]


def with_weights(loader):
    while True:
        for x, y in loader:
            weight = np.ones(len(x), np.float32)
            yield {"x": np.asarray(x), "y": np.asarray(y), "weight": weight}


class Epochs(Loader):
    """The same with mappings, so that `fit` iterates it."""

    def __iter__(self):
        batches = ({"x": x, "y": y, "weight": np.ones(8)} for x, y in super().__iter__())
        return map(types.MappingProxyType, batches)


@pytest.mark.parametrize("data", [with_weights(Loader()), Epochs()])
def test_a_loader_is_iterated_again_for_each_epoch(data):
    result = go(None, data, repeatable=False)
    assert_close(result.state.params, descend(itertools.islice(with_weights(Loader()), 10)))


def test_an_example_alone_sees_the_noise_that_it_saw_in_its_batch():
    source = gdata.load("polarity", "train")
    vocabulary = gdata.Vocabulary.build([source])
    encoded = gdata.encode(source, vocabulary)
    batches = gdata.Batches(encoded, batch_size=8, max_buckets=2, seed=3)
    batch = batches[4]
    rngs = step_rngs(jax.random.key(5), 4)
    one, streams = replay(batches, 5, 4, int(batch["example_id"][2]))
    for draw in (
        lambda keys: F.example_noise(keys, 9),
        lambda keys: F.example_dropout(np.ones((len(keys), 9, 3), np.float32), 0.5, keys),
    ):
        for stream in ("gate", "dropout"):
            whole = draw(F.example_keys(rngs[stream], batch["example_id"]))
            alone = draw(F.example_keys(streams[stream], one["example_id"]))
            np.testing.assert_array_equal(alone[0], whole[2])


# -- the page --------------------------------------------------------------------------------------


def page_blocks(word):
    """The code of the first block of docs/training.md that has a word, up to its call of `fit`."""
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    block = next(part for part in text.split("\n```")[1::2] if word in part)
    return block.lstrip("\n").partition("\nfit(")[0]


class Tensor:
    """A stand-in for a tensor of PyTorch."""

    def __init__(self, array):
        self.array = array

    def __len__(self):
        return len(self.array)

    def numpy(self):
        return self.array


class TensorLoader(Loader):
    def __iter__(self):
        return ((Tensor(x), Tensor(y)) for x, y in super().__iter__())


class Columns:
    """A stand-in for a dataset of Hugging Face with the format of NumPy."""

    def __init__(self, order=range(20)):
        self.order = list(order)

    def shuffle(self, seed):
        return Columns(np.random.default_rng(seed).permutation(self.order))

    def iter(self, batch_size, drop_last_batch=False):
        assert drop_last_batch
        for start in range(0, len(self.order) - batch_size + 1, batch_size):
            rows = [row(i) for i in self.order[start : start + batch_size]]
            yield {name: np.stack([r[name] for r in rows]) for name in ("x", "y")}


def test_the_adapters_of_the_page_feed_loaders_of_other_libraries():
    scope = {"np": np, "itertools": itertools}
    code = page_blocks("def batches_of_torch")
    exec(compile(code, "training.md", "exec"), scope)
    assert all(len(part.strip().splitlines()) <= 6 for part in code.split("\n\n\n")[:2])
    result = go(None, scope["batches_of_torch"](TensorLoader()), repeatable=False)
    assert_close(result.state.params, descend(itertools.islice(with_weights(Loader()), 10)))
    of_columns = scope["batches_of_hugging_face"]
    result = go(None, of_columns(Columns(), rows=8), repeatable=False)
    batches = list(itertools.islice(of_columns(Columns(), rows=8), 10))
    assert {len(batch["x"]) for batch in batches} == {8}
    assert_close(result.state.params, descend(batches))


def test_the_example_of_the_page_reads_grain():
    scope = {"np": np, "grain": pytest.importorskip("grain")}
    scope["rows"] = [{name: row(i)[name] for name in ("x", "y")} for i in range(64)]
    exec(compile(page_blocks("grain.MapDataset.source"), "training.md", "exec"), scope)
    result = go(None, scope["dataset"])
    assert_close(result.state.params, descend(scope["dataset"][step] for step in range(10)))
