"""Training data of several kinds as batches by step, and batches for evaluations."""

import base64
import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from gatedjax._utils.types import FILLER_ID
from gatedjax.training.checkpoint import CheckpointMismatch
from gatedjax.training.step import step_rngs
from gatedjax.training.task import Batch


def check_batch(batch: Any, name: str) -> Batch:
    """Returns a batch as a dict after checking that it is a mapping with at least a row and with
    finite weights of at least 0; the weight of a filler row is 0.
    """
    if not isinstance(batch, Mapping):
        raise TypeError(f"{name} must be a dict of arrays, got {type(batch).__name__}")
    if "weight" not in batch:
        raise ValueError(
            f"{name} must have 'weight' (1 = example, 0 = filler), got {sorted(batch)}"
        )
    weight = np.asarray(batch["weight"])
    if weight.ndim < 1 or not weight.size:
        raise ValueError(
            f"{name} must have at least one row, got 'weight' of shape {list(weight.shape)}"
        )
    # Most batches have the weights of the one before, and that check is remembered.
    is_small = weight.nbytes <= 4096
    row = _bad_row(weight.tobytes(), weight.dtype) if is_small else _first_bad(weight.reshape(-1))
    if row is not None:
        raise ValueError(
            f"{name} must have a finite 'weight' of at least 0 in each row, got "
            f"{weight.flat[row]} in row {row}: give 0 for a row that does not count"
        )
    return batch if type(batch) is dict else dict(batch)


@functools.lru_cache(maxsize=4)
def _bad_row(content: bytes, dtype: np.dtype) -> int | None:
    return _first_bad(np.frombuffer(content, dtype))


def _first_bad(weight: np.ndarray) -> int | None:
    # NaN is neither below infinity nor at least 0.
    if weight.min() >= 0 and weight.max() < np.inf:
        return None
    return int(np.flatnonzero(~((weight >= 0) & (weight < np.inf)))[0])


def pad_rows(batch: Batch, multiple: int) -> Batch:
    """Adds filler rows (zeros, example_id -1, weight 0) up to a multiple of the number of rows."""
    extra = -len(batch["weight"]) % multiple
    if not extra:
        return batch
    return {
        name: np.pad(
            np.asarray(x),
            [(0, extra)] + [(0, 0)] * (np.ndim(x) - 1),
            # 0 is the id of a real example, so filler rows need another id.
            constant_values=FILLER_ID if name == "example_id" else 0,
        )
        for name, x in batch.items()
    }


class TrainData:
    """The batches of a run, read by step.

    The data give the batch of a step as `data[step]` (and perhaps several as `iterate(start,
    stop)`), or are an iterable whose iterator has `get_state` and `set_state`, as in grain, or,
    with repeatable=False, any iterable. `first` is the batch of step 0.
    """

    def __init__(self, data: Any, num_steps: int, repeatable: bool = True) -> None:
        self._data, self.repeatable = data, repeatable
        self._iterator: Any = None
        name = "the first batch of train_data"
        if hasattr(data, "__getitem__"):
            name = "train_data[0]"
            # The length of other data is that of an epoch, after which they go on.
            ends = isinstance(data, list | tuple) or getattr(data, "one_pass", False)
            if ends and len(data) < num_steps:
                raise ValueError(
                    f"train_data must have at least num_steps = {num_steps} batches, got "
                    f"{len(data)}"
                )
            try:
                first = data[0]
            except (KeyError, IndexError, TypeError) as error:
                raise ValueError(
                    f"{name} must be the batch of step 0, got {type(error).__name__}: {error}"
                ) from error
        elif isinstance(data, Iterable):
            self._iterator = iter(data)
            if not hasattr(self._iterator, "get_state"):
                self.repeatable = False
                if repeatable:
                    raise TypeError(
                        "train_data must give each batch again to a run that continues, got "
                        f"{type(data).__name__}: give repeatable=False, and such a run goes on "
                        "with the next batches; or give data with the batch of a step as "
                        "train_data[step], or a grain dataset"
                    )
            self.state()  # a state that no checkpoint can hold is refused before the first step
            first = next(self._iterator, None)
            if first is None:
                raise ValueError(
                    f"train_data must have at least one batch, got {type(data).__name__} without"
                )
        else:
            raise TypeError(
                "train_data must give the batch of a step as train_data[step], or be an iterable "
                f"of batches, got {type(data).__name__}"
            )
        self.first = check_batch(first, name)

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        """Yields the batches of the steps from `start` to `stop` - 1, or fewer if the data end."""
        if self._iterator is None:
            iterate = getattr(self._data, "iterate", None)
            yield from (
                iterate(start, stop) if iterate else (self._data[n] for n in range(start, stop))
            )
            return
        by_state = hasattr(self._iterator, "get_state")
        if not start or not by_state:
            yield self.first
            start += 1
        # The iterator is read batch by batch, so that its state is that of the last step.
        for _ in range(start, stop):
            batch = next(self._iterator, None)
            if batch is None and not by_state and not isinstance(self._data, Iterator):
                self._iterator = iter(self._data)  # the next epoch of a loader
                batch = next(self._iterator, None)
            if batch is None:
                return
            yield batch

    def state(self) -> Any:
        """Returns the position after the last batch as a JSON value; None for data by step."""
        if not hasattr(self._iterator, "get_state"):
            return None
        state = self._iterator.get_state()
        if isinstance(state, bytes):
            return {"base64": base64.b64encode(state).decode()}
        try:
            is_same = json.loads(json.dumps(state, allow_nan=False)) == state
        except (TypeError, ValueError):
            is_same = False
        if not is_same:
            raise TypeError(
                "get_state() of train_data must return bytes or values that JSON represents, for "
                f"the checkpoints, got {state!r:.200}: give an iterator without such a state and "
                "repeatable=False"
            )
        return {"json": state}

    def restore(self, state: Any) -> None:
        """Sets the position to `state`, a result of the method `state`."""
        if not hasattr(self._iterator, "get_state"):
            return
        if state is None:
            raise CheckpointMismatch(
                "the checkpoint has no state of train_data, because its run read other data than "
                f"{type(self._data).__name__}: give the data of that run, or use another workdir"
            )
        # A fresh iterator has no batches of another position in its buffers.
        self._iterator = iter(self._data)
        is_bytes = "base64" in state
        self._iterator.set_state(base64.b64decode(state["base64"]) if is_bytes else state["json"])


def eval_batches(data: Any, name: str = "eval_data") -> Iterator[Batch]:
    """Yields the batches of an evaluation pass after checking them."""
    for number, batch in enumerate(_batches(data, name)):
        yield check_batch(batch, f"evaluation batch {number}")


def _batches(data: Any, name: str) -> Iterator[Batch]:
    if hasattr(data, "__iter__") or not hasattr(data, "__getitem__"):
        if not isinstance(data, Iterable):
            raise TypeError(f"{name} must be a list of batches, got {type(data).__name__}")
        yield from data
        return
    # Many datasets of PyTorch return a batch for every index, so that Python would never end.
    if not hasattr(data, "__len__"):
        raise TypeError(
            f"{name} must be a list of batches, got {type(data).__name__}, which has no __len__ "
            "and may never end"
        )
    for index in range(len(data)):
        try:
            batch = data[index]
        except IndexError as error:
            raise ValueError(
                f"{name} must have len({name}) = {len(data)} batches, got IndexError for "
                f"{name}[{index}]: return the number of batches from __len__"
            ) from error
        yield batch


def first_eval_batch(data: Any) -> Batch | None:
    """Returns the first batch of evaluation data that can be read several times; None for None."""
    if data is None:
        return None
    # A dict can be iterated again, but it would yield the names of its arrays.
    if isinstance(data, Iterator | Mapping):
        raise TypeError(
            "eval_data must be a list of batches, or another iterable that each evaluation can "
            f"read again, got {type(data).__name__}"
        )
    batch = next(_batches(data, "eval_data"), None)
    if batch is None:
        raise ValueError("eval_data must not be empty: give None for a run without evaluations")
    return check_batch(batch, "the first batch of eval_data")


def replay(
    train_data: Any, seed: int, step: int, example_id: int
) -> tuple[Batch, dict[str, jax.Array]]:
    """Returns the inputs of a network for an example in a training step.

    Random bits depend on (seed, step, example), so the network draws the same gates and dropout for
    this row as it did in the whole batch.

        >>> train_data = [{"x": np.array([0.5, 0.25]), "example_id": np.array([7, 3])}]
        >>> batch, rngs = replay(train_data, seed=0, step=0, example_id=3)
        >>> batch["x"].tolist(), sorted(rngs)
        ([0.25], ['dropout', 'gate'])

    Args:
      train_data: the training data of `fit`: `train_data[step]` is the batch of a step.
      seed: `TrainConfig.seed`.
      step: the number of the batch, from 0. In metrics.jsonl the update with this batch has the
        number step + 1.
      example_id: the "example_id" of the example in the batch.

    Returns:
      (batch, rngs): a batch with a single row, a dict of arrays, and a dict from the streams
      "dropout" and "gate" to their PRNG keys in the step.

    Raises:
      ValueError: if the batch of that step does not have the example.
    """
    batch = train_data[step]
    rows = np.flatnonzero(np.asarray(batch["example_id"]) == example_id)
    if example_id < 0 or len(rows) == 0:
        example_ids = sorted(int(i) for i in batch["example_id"] if i >= 0)
        raise ValueError(
            f"example_id must be in the batch of step {step}, {example_ids}, got {example_id}"
        )
    row_batch = {name: np.asarray(x)[rows[:1]] for name, x in batch.items()}
    return row_batch, step_rngs(jax.random.key(seed), step)
