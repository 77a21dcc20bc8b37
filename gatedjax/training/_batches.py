"""Training data of several kinds as batches by step, with the state that a checkpoint saves."""

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from gatedjax.training._checks import check_batch
from gatedjax.training.identity import CheckpointMismatch
from gatedjax.training.task import Batch


class Batches(Protocol):
    """The batches of a run, dicts of arrays that are read by the number of a step, from 0.

    An object has the methods `read`, which yields batches, and `state` and `restore`, which return
    and set the position in the data. `open_batches` creates it for training data of any kind.

    Attributes:
      first: the batch of step 0. If the data cannot be repeated, and the run continues from a
        checkpoint, it is the next batch.
      is_repeatable: True if a run that continues from a checkpoint reads the same batches as an
        unbroken run.
    """

    first: Batch
    is_repeatable: bool

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        """Yields the batches of the steps from `start` to `stop` - 1, or fewer if the data end."""

    def state(self) -> Any:
        """Returns the position after the last batch that was read, as a JSON value, or None.

        It is None for data that need no state, because they are read by the number of a step.
        """

    def restore(self, state: Any) -> None:
        """Sets the position in the data to `state`, a result of the method `state`.

        It is called before `read`, when a run continues from a checkpoint.
        """


class _ByStep:
    """Batches that `train_data[step]` returns."""

    def __init__(self, data: Any, num_steps: int, repeatable: bool) -> None:
        # The length of other data is that of an epoch, after which they go on. Only for a list and
        # for data of a single pass it limits the steps.
        ends = isinstance(data, list | tuple) or getattr(data, "one_pass", False)
        if ends and len(data) < num_steps:
            raise ValueError(
                f"train_data must have at least num_steps = {num_steps} batches, got {len(data)}"
            )
        try:
            self.first = data[0]
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(
                f"train_data[0] must be the batch of step 0, got {type(error).__name__}: {error}"
            ) from error
        check_batch(self.first, "train_data[0]")
        self._data, self.is_repeatable = data, repeatable

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        if hasattr(self._data, "iterate"):
            yield from self._data.iterate(start, stop)
            return
        for step in range(start, stop):
            yield self._data[step]

    def state(self) -> Any:
        return None

    def restore(self, state: Any) -> None:
        return


class _ByState:
    """Batches of an iterator with `get_state` and `set_state`, as in grain."""

    def __init__(self, data: Any, iterator: Any, repeatable: bool) -> None:
        # A state that no checkpoint can hold is refused before the first step.
        _encode_state(iterator.get_state())
        self.first = _first_of(iterator, data)
        self._data, self._iterator, self.is_repeatable = data, iterator, repeatable

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        if start == 0:
            yield self.first
        for _ in range(max(start, 1), stop):
            # The iterator is read batch by batch, so that its state is that of the last step.
            try:
                batch = next(self._iterator)
            except StopIteration:
                return
            yield batch

    def state(self) -> Any:
        return _encode_state(self._iterator.get_state())

    def restore(self, state: Any) -> None:
        if state is None:
            raise CheckpointMismatch(
                "the checkpoint has no state of train_data, because its run read other data than "
                f"{type(self._data).__name__}: give the data of that run, or use another workdir"
            )
        # A fresh iterator has no batches of another position in its buffers.
        self._iterator = iter(self._data)
        self._iterator.set_state(_decode_state(state))


class _Once:
    """Batches read only once, or in another order each time; only an iterator ends the run."""

    is_repeatable = False

    def __init__(self, data: Any) -> None:
        self._data, self._iterator = data, iter(data)
        self.first = _first_of(self._iterator, data)

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        yield self.first
        for _ in range(start + 1, stop):
            batch = next(self._iterator, None)
            if batch is None and not isinstance(self._data, Iterator):
                self._iterator = iter(self._data)
                batch = next(self._iterator, None)
            if batch is None:
                return
            yield batch

    def state(self) -> Any:
        return None

    def restore(self, state: Any) -> None:
        return


def open_batches(train_data: Any, num_steps: int, repeatable: bool = True) -> Batches:
    """Returns the batches of training data of any kind, after checking the first batch."""
    # A batch in place of the data is a mapping, for which `train_data[0]` gives the clearer error.
    if hasattr(train_data, "__getitem__"):
        return _ByStep(train_data, num_steps, repeatable)
    if isinstance(train_data, Iterable):
        iterator = iter(train_data)
        if hasattr(iterator, "get_state") and hasattr(iterator, "set_state"):
            return _ByState(train_data, iterator, repeatable)
        if not repeatable:
            return _Once(train_data)
        raise TypeError(
            "train_data must give each batch again to a run that continues, got "
            f"{type(train_data).__name__}: give repeatable=False, and such a run goes on with the "
            "next batches; or give data with the batch of a step as train_data[step], or a grain "
            "dataset"
        )
    raise TypeError(
        "train_data must give the batch of a step as train_data[step], or be an iterable of "
        f"batches, got {type(train_data).__name__}"
    )


def first_batch(train_data: Any, num_steps: int) -> Batch:
    """Returns the batch of step 0 of a lane, from training data that a step must index."""
    if not hasattr(train_data, "__getitem__"):
        raise TypeError(
            "train_data(seed) must give the batch of a step as data[step], got "
            f"{type(train_data).__name__}"
        )
    return open_batches(train_data, num_steps).first


def _first_of(iterator: Iterator[Any], data: Any) -> Batch:
    batch = next(iterator, None)
    if batch is None:
        raise ValueError(
            f"train_data must have at least one batch, got {type(data).__name__} without"
        )
    check_batch(batch, "the first batch of train_data")
    return batch


def _encode_state(state: Any) -> Any:
    """Returns the state of an iterator as a JSON value, from which `_decode_state` restores it."""
    if isinstance(state, bytes):
        return {"base64": base64.b64encode(state).decode()}
    try:
        is_same = json.loads(json.dumps(state, allow_nan=False)) == state
    except (TypeError, ValueError):
        is_same = False
    if not is_same:
        raise TypeError(
            "get_state() of train_data must return bytes or values that JSON represents, for the "
            f"checkpoints, got {state!r:.200}: give an iterator without such a state and "
            "repeatable=False"
        )
    return {"json": state}


def _decode_state(saved: Any) -> Any:
    return base64.b64decode(saved["base64"]) if "base64" in saved else saved["json"]
