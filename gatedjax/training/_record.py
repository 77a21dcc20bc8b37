"""The progress of a run as its checkpoints record it."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from gatedjax.training.config import TrainConfig


@dataclasses.dataclass
class Record:
    """The progress of a run. A checkpoint stores it as JSON, without loss of precision."""

    step: int = 0
    best_step: int = 0  # 0 before the first evaluation
    best_metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    without_improvement: int = 0  # evaluations since the best one
    skipped_in_a_row: int = 0
    finished: Literal["done", "early"] | None = None
    history: list[dict[str, float]] = dataclasses.field(default_factory=list)
    # [sum, count] of each metric since the last line of the log, float32, which JSON stores exactly
    pending: dict[str, list[float]] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_json(cls, saved: Any) -> "Record":
        """Returns the record for `saved`, the dict of its fields in the JSON of a checkpoint."""
        if not isinstance(saved, dict):
            raise ValueError(f"it must be an object, got {type(saved).__name__}")
        fields = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(saved.keys() - fields):
            raise ValueError(f"its fields must be among {sorted(fields)}, got {unknown}")
        for name, value in saved.items():
            expected, fits = _FIELDS[name]
            if not fits(value):
                raise ValueError(f"{name} must be {expected}, got {str(value)[:80]!r}")
        if "step" not in saved:
            raise ValueError("it must have a step, got none")
        return cls(**saved)

    def add_evaluation(self, step: int, metrics: dict[str, float], config: TrainConfig) -> bool:
        """Records an evaluation and returns True if it is the best so far."""
        name = config.best_metric
        if name not in metrics:
            raise ValueError(f"best_metric must be one of {sorted(metrics)}, got {name!r}")
        self.history.append({"step": step, **metrics})
        # NaN is never an improvement, so that early stopping counts it.
        if config.is_better(metrics[name], self.best_metrics.get(name, math.nan)):
            self.best_step, self.best_metrics = step, metrics
            self.without_improvement = 0
            return True
        self.without_improvement += 1
        return False

    def find_end_reason(self, step: int, config: TrainConfig) -> Literal["done", "early"] | None:
        """Returns the reason why a run ends after a step, "done" or "early"; None if it goes on."""
        if step >= config.num_steps:
            return "done"
        patience = config.early_stop_patience
        return "early" if patience is not None and self.without_improvement >= patience else None


def _is_count(value: Any) -> bool:
    # `isinstance` would accept true and false, because bool is a subclass of int.
    return type(value) is int and value >= 0


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


def _are_evaluations(value: Any) -> bool:
    return isinstance(value, list) and all(
        _are_numbers(v) and _is_count(v.get("step")) for v in value
    )


def _are_sums(value: Any, lanes: int | None = None) -> bool:
    """Returns True if `value` is a dict of pairs [total, count] by the name of a metric."""

    def is_entry(x: Any) -> bool:
        if lanes is None:
            return _is_number(x)
        return isinstance(x, list) and len(x) == lanes and all(map(_is_number, x))

    return isinstance(value, dict) and all(
        isinstance(pair, list) and len(pair) == 2 and all(map(is_entry, pair))
        for pair in value.values()
    )


_FIELDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "step": ("a count", _is_count),
    "best_step": ("a count", _is_count),
    "best_metrics": ("numbers by name", _are_numbers),
    "without_improvement": ("a count", _is_count),
    "skipped_in_a_row": ("a count", _is_count),
    "finished": ("'done', 'early' or null", lambda value: value in (None, "done", "early")),
    "history": ("a list of evaluations with their steps", _are_evaluations),
    "pending": ("a sum and a count by name", _are_sums),
}


def check_run(run: Any, folder_step: int, array_steps: Any) -> None:
    """Checks that the record in a checkpoint is well formed and agrees with its arrays."""
    if not isinstance(run, dict):
        raise ValueError(f"run must be an object, got {type(run).__name__}")
    # Record and arrays are written separately, so a damaged or forged checkpoint may combine a
    # record with the arrays of another step.
    steps = np.atleast_1d(np.asarray(array_steps)).tolist()
    if "lanes" in run:
        if not isinstance(run["lanes"], list) or len(run["lanes"]) != len(steps):
            raise ValueError(f"run.lanes must be {len(steps)} records")
        if not _are_sums(run.get("pending"), len(steps)):
            raise ValueError(f"run.pending must be sums and counts of {len(steps)} lanes")
        named = {f"run.lanes[{i}]": lane for i, lane in enumerate(run["lanes"])}
    else:
        named = {"run": run}
    if type(run.get("step")) is not int or run["step"] != folder_step:
        raise ValueError(f"run.step must be {folder_step}, got {run.get('step')!r}")
    for (name, saved), step in zip(named.items(), steps, strict=True):
        try:
            record = Record.from_json(saved)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        if record.step != step:
            raise ValueError(
                f"{name}.step must be {step}, the step of its arrays, got {record.step}"
            )
