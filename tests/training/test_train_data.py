"""Training data as people have them: by step, grain, iterators, and loaders of other libraries."""

import dataclasses
import itertools

import chex
import numpy as np
import optax
import pytest

from gatedjax.training import CheckpointMismatch, CheckpointStore, fit
from gatedjax.training._batches import open_batches
from tests.conftest import ROOT
from tests.training._plane import CONFIG, Data, Plane, W, assert_close, loop

SGD = optax.sgd(0.05)
CONFIG = dataclasses.replace(CONFIG, num_steps=10, checkpoint_every=4)


def row(number):
    x = np.random.default_rng([8, number]).normal(size=3).astype(np.float32)
    return {"x": x, "y": x @ W + 1, "weight": np.float32(1), "example_id": np.int32(number)}


def map_dataset(grain):
    return grain.MapDataset.source(range(40)).shuffle(seed=3).repeat().map(row).batch(8)


def iter_dataset(grain):
    return map_dataset(grain).to_iter_dataset().map(lambda batch: batch)


def loader(grain):
    class Row(grain.transforms.Map):
        def map(self, element):
            return row(element)

    sampler = grain.samplers.IndexSampler(
        40, shuffle=True, seed=3, shard_options=grain.sharding.NoSharding()
    )
    return grain.DataLoader(
        data_source=range(40), sampler=sampler, operations=[Row(), grain.transforms.Batch(8)]
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
        return Data()[self.number - 1]

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
    whole = fit(Plane(), make(), None, CONFIG, tmp_path / "whole", optimizer=SGD)
    batches = list(itertools.islice(iter(make()), 10))
    assert len({batch["x"].tobytes() for batch in batches}) == 10
    fit(Plane(), make(), None, CONFIG, tmp_path / "two", optimizer=SGD, stop_when=lambda n: n == 3)
    again = fit(Plane(), make(), None, CONFIG, tmp_path / "two", optimizer=SGD)
    chex.assert_trees_all_equal(again.state, whole.state)
    # The right batches, not only the same ones.
    assert_close(whole.state.params, by_numpy(batches))


def by_numpy(batches):
    params = Plane().init(None, None)
    for batch in batches:
        error = 2 * (batch["x"] @ params["w"] + params["b"] - batch["y"]) / len(batch["x"])
        params = {
            "w": params["w"] - 0.05 * batch["x"].T @ error,
            "b": params["b"] - 0.05 * error.sum(0),
        }
    return params


def test_a_checkpoint_has_the_state_of_the_last_batch_that_was_trained_on(tmp_path):
    fit(Plane(), Counter(), None, CONFIG, tmp_path, optimizer=SGD)
    store = CheckpointStore(tmp_path / "checkpoints")
    assert {s: store.record(s)["data"] for s in store.steps()} == {
        8: {"json": {"number": 8}}, 10: {"json": {"number": 10}}
    }  # fmt: skip


def test_other_data_with_a_state_are_refused(tmp_path):
    fit(Plane(), Data(), None, CONFIG, tmp_path, optimizer=SGD, stop_when=lambda n: n == 3)
    with pytest.raises(CheckpointMismatch, match="the checkpoint has no state of train_data"):
        fit(Plane(), Counter(), None, CONFIG, tmp_path, optimizer=SGD)


@pytest.mark.parametrize("state", [object(), {"a": (1, 2)}, {"a": np.int64(3)}])
def test_a_state_that_json_cannot_hold_is_refused_before_the_first_step(state):
    class Odd(CounterIterator):
        def get_state(self):
            return state

    with pytest.raises(TypeError, match=r"get_state\(\) of train_data must return bytes or"):
        open_batches(Odd(), 4)


def generator(start=0, stop=None):
    return (Data()[step] for step in itertools.count(start) if stop is None or step < stop)


def finite(stop):
    return (Data()[step] for step in range(stop))


def test_an_iterator_is_read_once_and_a_run_that_continues_states_what_differs(tmp_path):
    whole = fit(Plane(), generator(), None, CONFIG, optimizer=SGD, repeatable=False)
    assert_close(whole.state.params, loop(SGD, 10)[0])
    stop = {"stop_when": lambda n: n == 4}
    options = {"optimizer": SGD, "repeatable": False}
    data = generator()
    fit(Plane(), data, None, CONFIG, tmp_path, **options, **stop)
    with pytest.warns(RuntimeWarning, match="continues from step 4 with the next batches that"):
        again = fit(Plane(), data, None, CONFIG, tmp_path, **options)
    # The program has the iterator still, which goes on where the first call ended.
    assert_close(again.state.params, loop(SGD, 10)[0])
    assert again.steps == 10


def test_data_by_step_may_differ_between_two_readings(tmp_path):
    class Augmented(Data):
        def __getitem__(self, step):
            noise = np.float32(np.random.default_rng().normal())
            batch = super().__getitem__(step)
            return batch | {"x": batch["x"] + noise}

    options = {"optimizer": SGD, "stop_when": lambda n: n == 4}
    fit(Plane(), Augmented(), None, CONFIG, tmp_path, repeatable=False, **options)
    with pytest.warns(RuntimeWarning, match="repeatable=False"):
        fit(Plane(), Augmented(), None, CONFIG, tmp_path, repeatable=False, optimizer=SGD)
    fit(Plane(), Augmented(), None, CONFIG, tmp_path / "b", **options)
    with pytest.raises(CheckpointMismatch, match="the training data, x in the first batch"):
        fit(Plane(), Augmented(), None, CONFIG, tmp_path / "b", optimizer=SGD)


@pytest.mark.parametrize("length", [3, 4])
def test_a_run_ends_with_its_data(length, tmp_path):
    evaluation = [Data()[1000]]
    lines = []
    with pytest.warns(RuntimeWarning, match=f"ended after {length} batches, .* num_steps is 10"):
        result = fit(
            Plane(), finite(length), evaluation, CONFIG, tmp_path, repeatable=False,
            optimizer=SGD, on_log=lines.append,
        )  # fmt: skip
    assert (result.steps, result.stopped, result.best_step) == (length, "done", length)
    assert [entry["step"] for entry in result.history] == sorted({2, length})
    assert [line["step"] for line in lines if line["split"] == "train"] == sorted({2, length})
    assert_close(result.state.params, loop(SGD, length)[0])
    assert CheckpointStore(tmp_path / "checkpoints").latest() == length
    with pytest.warns(RuntimeWarning) as caught:
        more = fit(
            Plane(), generator(length), evaluation, CONFIG, tmp_path, repeatable=False,
            optimizer=SGD,
        )  # fmt: skip
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
            batch = Data()[2 * epoch + int(step)]
            yield batch["x"], batch["y"]


def with_weights(loader):
    while True:
        for x, y in loader:
            weight = np.ones(len(x), np.float32)
            yield {"x": np.asarray(x), "y": np.asarray(y), "weight": weight}


class Epochs(Loader):
    """The same with dicts, so that `fit` iterates it."""

    def __iter__(self):
        return ({"x": x, "y": y, "weight": np.ones(8)} for x, y in super().__iter__())


@pytest.mark.parametrize("data", [with_weights(Loader()), Epochs()])
def test_a_loader_is_iterated_again_for_each_epoch(data):
    result = fit(Plane(), data, None, CONFIG, repeatable=False, optimizer=SGD)
    batches = list(itertools.islice(with_weights(Loader()), 10))
    assert_close(result.state.params, by_numpy(batches))


WRONG = {
    "a generator": (generator, {}, TypeError, "is a generator, .* give repeatable=False"),
    "a set": (set, {"repeatable": False}, ValueError, "at least one batch, set has none"),
    "pairs": (Loader, {"repeatable": False}, TypeError, "first batch of train_data must be a dict"),
    "a number": (lambda: 3, {}, TypeError, r"train_data\[step\], or be an iterable .* got int"),
}


@pytest.mark.parametrize("name", WRONG)
def test_data_that_cannot_work_are_refused(name, tmp_path):
    make, options, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        fit(Plane(), make(), None, CONFIG, tmp_path, **options)
    assert not list(tmp_path.iterdir())


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


def tensor_loader():
    """Two batches in an epoch: a loader of PyTorch where that is installed, else a stand-in."""
    try:
        import torch
    except ImportError:
        return TensorLoader(), list(itertools.islice(with_weights(Loader()), 10))
    rows = [(torch.from_numpy(row(i)["x"]), torch.from_numpy(row(i)["y"])) for i in range(16)]
    make = lambda: torch.utils.data.DataLoader(rows, batch_size=8, shuffle=False)  # noqa: E731
    return make(), list(itertools.islice(with_weights(make()), 10))


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
    loader, batches = tensor_loader()
    options = {"repeatable": False, "optimizer": SGD}
    result = fit(Plane(), scope["batches_of_torch"](loader), None, CONFIG, **options)
    assert_close(result.state.params, by_numpy(batches))
    of_columns = scope["batches_of_hugging_face"]
    result = fit(Plane(), of_columns(Columns(), rows=8), None, CONFIG, **options)
    batches = list(itertools.islice(of_columns(Columns(), rows=8), 10))
    assert {len(batch["x"]) for batch in batches} == {8}
    assert_close(result.state.params, by_numpy(batches))


def test_the_example_of_the_page_reads_grain(tmp_path):
    scope = {"np": np, "grain": pytest.importorskip("grain")}
    scope["rows"] = [{name: row(i)[name] for name in ("x", "y")} for i in range(64)]
    exec(compile(page_blocks("grain.MapDataset.source"), "training.md", "exec"), scope)
    result = fit(Plane(), scope["dataset"], None, CONFIG, tmp_path, optimizer=SGD)
    assert_close(result.state.params, by_numpy([scope["dataset"][step] for step in range(10)]))
