"""Batches with the number of their step, for schedules inside a model."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

Batch = dict[str, np.ndarray]


class WithStep:
    """Training batches with the number of their step, from 0, as "step" [B]."""

    def __init__(self, batches: Any) -> None:
        self.batches = batches

    @property
    def one_pass(self) -> bool:
        """True if the batches end after an epoch, like the batches of a list."""
        return isinstance(self.batches, list | tuple) or getattr(self.batches, "one_pass", False)

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, step: int) -> Batch:
        return self._with(self.batches[step], step)

    def iterate(self, start: int = 0, stop: int | None = None) -> Iterator[Batch]:
        """Yields the batches of the steps from `start` to `stop` - 1, each with its step."""
        if hasattr(self.batches, "iterate"):
            for step, batch in enumerate(self.batches.iterate(start, stop), start):
                yield self._with(batch, step)
            return
        if stop is None and self.one_pass:
            stop = len(self)
        steps: Iterable[int] = itertools.count(start) if stop is None else range(start, stop)
        for step in steps:
            yield self[step]

    @staticmethod
    def _with(batch: Batch, step: int) -> Batch:
        return {**batch, "step": np.full(len(batch["weight"]), step, np.int32)}


def for_schedule(batches: Any, model: Any) -> Any:
    """Adds the step to the batches if the temperature of the model has a schedule.

        >>> from types import SimpleNamespace
        >>> batches = [{"weight": np.ones(2, np.float32)}]
        >>> model = SimpleNamespace(gates=SimpleNamespace(final_temperature=0.1))
        >>> sorted(for_schedule(batches, model)[0]), for_schedule(batches, None) is batches
        (['step', 'weight'], True)

    Args:
      batches: training data for `fit`, whose batches have "weight" [B].
      model: a configuration. Its temperature has a schedule if `final_temperature` of its `gates`
        is not None.

    Returns:
      `batches`, or with a schedule `WithStep(batches)`.
    """
    gates = getattr(model, "gates", None)
    changes = getattr(gates, "final_temperature", None) is not None
    return WithStep(batches) if changes else batches
