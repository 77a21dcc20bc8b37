"""The target of a real number for each text."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.lexicon import Readings, RealHead
from gatedjax.text._prediction import REGRESSION, ValuePrediction
from gatedjax.text._table import Label
from gatedjax.text._target_base import ScoreTarget, Target, TargetOptions, describe_reading
from gatedjax.text._target_metrics import real_metrics

_LEAST_RMSE = 0.01
# Texts are split in proportion to so many ranges of a real target.
_RANGES = 10


@dataclasses.dataclass(frozen=True)
class RealTarget(ScoreTarget):
    """The target of a regression, a real number for each text."""

    kind: ClassVar[str] = REGRESSION
    metrics: ClassVar[Mapping[str, str]] = {
        "rmse": "RMSE",
        "mae": "MAE",
        "r2": "R^2",
        "spearman": "Spearman",
    }

    @classmethod
    def make_places(cls, model_target: Target | None) -> "Values":
        """Returns a table with a method `place(value, where, line)` that numbers the values."""
        return Values()

    @classmethod
    def of_labels(
        cls, labels: Sequence[Any], counts: Sequence[int], options: TargetOptions
    ) -> "RealTarget":
        """Returns the target of numbers."""
        if len(labels) < 2:
            raise ValueError(f"the texts must have different numbers, got only {labels[0]:g}")
        with np.errstate(over="ignore", invalid="ignore"):
            deviation = float(np.std(labels))
        if not 0 < deviation < np.inf:
            raise ValueError(
                "labels (y in Python) must be numbers with a positive and finite standard "
                f"deviation, got {deviation:g} for {min(labels):g} to {max(labels):g}: give them "
                "in another unit"
            )
        return cls(())

    def make_head(self, targets: np.ndarray, sample_weight: np.ndarray | None = None) -> RealHead:
        """Returns the head with the mean and the standard deviation of the targets."""
        return RealHead.of_targets(targets, sample_weight)

    def encode(self, labels: Sequence[Any]) -> np.ndarray:
        """Returns the n numbers of `labels` as an array, float64 [n]."""
        return np.array(labels, np.float64)

    def stratify(self, targets: np.ndarray) -> tuple[np.ndarray, tuple[Label, ...]]:
        """Returns the tenth of the sorted numbers in which each number is, int32 [n]."""
        # Equal numbers may fill several tenths, which then have the same bound.
        bounds = np.unique(np.quantile(targets, np.arange(1, _RANGES) / _RANGES))
        names, strata = np.unique(np.searchsorted(bounds, targets), return_inverse=True)
        return strata.astype(np.int32), tuple(names.tolist())

    def render_source(self, targets: np.ndarray) -> str:
        """Returns a sentence with the range, median, mean and standard deviation of the numbers."""
        low, middle, high = np.quantile(targets, [0, 0.5, 1])
        return (
            f"{len(targets):,} texts with numbers from {low:.6g} to {high:.6g}, median "
            f"{middle:.6g}, mean {targets.mean():.6g}, standard deviation {targets.std():.6g}"
        )

    @property
    def columns(self) -> tuple[Label, ...]:
        """The name of the single logit, ("value",)."""
        return ("value",)

    def decide(self, readings: Readings) -> np.ndarray:
        """Returns the predicted numbers, float64 [n]."""
        return readings.logits[:, 0]

    def measure(
        self,
        targets: np.ndarray,
        readings: Readings,
        unknown: Sequence[Label] = (),
        sample_weight: np.ndarray | None = None,
    ) -> Json:
        """Returns the dict of `real_metrics`: n, rmse, mae, r2, spearman and rmse_error."""
        return real_metrics(targets, self.decide(readings), sample_weight)

    def allow_loss(self, scores: Json, metric: str) -> float:
        """Returns a hundredth of the RMSE, or its standard error if it is larger."""
        return max(_LEAST_RMSE * scores["rmse"], scores["rmse_error"])

    def predict(self, readings: Readings, row: int, words: Sequence[str]) -> ValuePrediction:
        """Returns the predicted number of the text `row`, from 0."""
        return ValuePrediction(
            float(readings.logits[row, 0]), **describe_reading(readings, row, words)
        )

    def render_prediction(self, readings: Readings, row: int) -> str:
        """Returns the predicted number of the text `row`, from 0, with up to eight digits."""
        return f"{readings.logits[row, 0]:.8g}"

    def render_rule(self, bias: np.ndarray) -> str:
        """Returns the sentence of the rule: the sum is the prediction. `bias` is not used."""
        return "The sum is the prediction, and the parts are exact, in the unit of the target."


class Values:
    """A table that numbers the different numbers of a source as they come."""

    def __init__(self) -> None:
        self.places: dict[float, int] = {}

    def place(self, value: float, where: str, line: int) -> int:
        """Returns the number of a value, from 0, in the order in which values occur first."""
        return self.places.setdefault(value, len(self.places))
