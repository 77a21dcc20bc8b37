"""What `run` trains: a task with its batches, whatever kind of task it is."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gatedjax import data as gdata

Predictions = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False)
class Experiment:
    """One run, ready to be trained."""

    task: Any
    """A `gatedjax.training.Task`."""
    train: Any
    """Batches by step."""
    validation: Any
    """One ordered pass."""
    test: Any
    """One ordered pass."""
    vocabulary: str
    """Digest of what numbers the tokens."""
    facts: dict[str, Any]
    """What the record says of data and network: train_n, vocabulary_size, class_names, ..."""
    labels: Any = None
    """[n] classes of the training examples; None if the task is not one class per example."""
    substitute: str | None = None
    """What differs from the paper's data; None if nothing does."""
    score: Callable[[Predictions], dict[str, Any]] = lambda predictions: {}
    """What the record has of the test predictions, beside the metrics."""
    before: Callable[[Path], None] = lambda workdir: None
    """Writes into the work folder what belongs to the run, before it begins."""
    choose: Callable[[Path, Any], tuple[Any, dict[str, Any]]] = lambda workdir, best: (best, {})
    """(work folder, best parameters) -> those that are tested, and what the record says of it."""
    measure: Callable[[Any], dict[str, Any]] = lambda params: {}
    """What the record has of the tested parameters that no batch by itself tells, as BLEU."""


class StepColumn:
    """Batches with the number of their step as "step" [B], for what changes while training."""

    def __init__(self, batches: gdata.Batches) -> None:
        self._batches = batches

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, step: int) -> dict[str, np.ndarray]:
        return _with_step(self._batches[step], step)

    def iterate(self, start: int = 0, stop: int | None = None, **options: Any):
        """Yields the batches from a step on, made ahead of use."""
        for step, batch in enumerate(self._batches.iterate(start, stop, **options), start):
            yield _with_step(batch, step)


def _with_step(batch: dict[str, np.ndarray], step: int) -> dict[str, np.ndarray]:
    return {**batch, "step": np.full(len(batch["weight"]), step, np.int32)}


def by_step(batches: Any, model: Any) -> Any:
    """Adds the column if the network's temperature changes."""
    return batches if model.final_temperature is None else StepColumn(batches)
