"""What a run remembers between evaluations, and through checkpoints."""

import dataclasses
import math
from typing import Literal

from gatedjax.training.config import TrainConfig


@dataclasses.dataclass
class Record:
    """What a checkpoint remembers beside arrays; JSON, and exact through it."""

    step: int = 0
    best_step: int = 0
    best_metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    without_improvement: int = 0
    skipped_in_a_row: int = 0
    finished: Literal["done", "early"] | None = None
    history: list[dict[str, float]] = dataclasses.field(default_factory=list)
    pending: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    """Sums and counts since the last line of metrics.jsonl: float32 values, exact as JSON."""

    def evaluated(self, step: int, metrics: dict[str, float], config: TrainConfig) -> bool:
        """Notes an evaluation; returns whether it is the best so far.

        Raises:
          ValueError: if the metrics do not have `config.best_metric`.
        """
        name = config.best_metric
        if name not in metrics:
            raise ValueError(f"best_metric must be one of {sorted(metrics)}, got {name!r}")
        self.history.append({"step": step, **metrics})
        sign = 1.0 if config.best_mode == "max" else -1.0
        best = self.best_metrics.get(name, math.nan)
        # NaN is never an improvement, so that early stopping counts it
        if sign * metrics[name] > sign * best or (
            math.isnan(best) and not math.isnan(metrics[name])
        ):
            self.best_step, self.best_metrics = step, metrics
            self.without_improvement = 0
            return True
        self.without_improvement += 1
        return False

    def ended(self, step: int, config: TrainConfig) -> Literal["done", "early"] | None:
        """Why a run is over after a step, if it is."""
        if step >= config.num_steps:
            return "done"
        patience = config.early_stop_patience
        return "early" if patience is not None and self.without_improvement >= patience else None
