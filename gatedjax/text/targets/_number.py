"""The target of a real number for each text."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.lexicon import Readings, RealHead
from gatedjax.text.answers._prediction import REGRESSION, ValuePrediction
from gatedjax.text.sources._labels import Label
from gatedjax.text.targets import _base
from gatedjax.text.targets._base import Names, ScoreTarget, Target, Weights

# By this share the RMSE may be larger with fewer words.
_ALLOWED = 0.01
# Texts are split in proportion to this many ranges of a real target.
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
    has_classes: ClassVar[bool] = False
    ranges: ClassVar[str] = "tenths of the numbers"
    rival: ClassVar[str] = "ridge regression on TF-IDF"
    constant: ClassVar[str] = "mean of the training texts"
    paired: ClassVar[str] = "mean squared error"
    answers: ClassVar[str] = "predictions"

    @classmethod
    def make_places(cls, model_target: Target | None) -> "Values":
        return Values()

    @classmethod
    def of_labels(
        cls, labels: Sequence[Any], counts: Sequence[int], options: Any, has_columns: bool = False
    ) -> "RealTarget":
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

    def encode(self, labels: Sequence[Any]) -> np.ndarray:
        return np.array(labels, np.float64)

    def stratify(self, targets: np.ndarray) -> tuple[np.ndarray, tuple[Label, ...]]:
        # A stratum is a tenth of the sorted numbers. Equal numbers may fill several tenths, which
        # then have the same bound.
        bounds = np.unique(np.quantile(targets, np.arange(1, _RANGES) / _RANGES))
        names, strata = np.unique(np.searchsorted(bounds, targets), return_inverse=True)
        return strata.astype(np.int32), tuple(names.tolist())

    def render_source(self, targets: np.ndarray) -> str:
        low, middle, high = np.quantile(targets, [0, 0.5, 1])
        return (
            f"{len(targets):,} texts with numbers from {low:.6g} to {high:.6g}, median "
            f"{middle:.6g}, mean {targets.mean():.6g}, standard deviation {targets.std():.6g}"
        )

    def make_head(self, targets: np.ndarray, weights: Weights = None) -> RealHead:
        return RealHead.of_targets(targets, weights)

    def allow_loss(self, scores: Json) -> float:
        return float(_ALLOWED * scores["rmse"])

    def score_texts(self, targets: np.ndarray, readings: Readings) -> np.ndarray:
        return np.square(self.decide(readings) - targets)

    def compare(
        self, targets: np.ndarray, readings: Readings, other: Readings, weights: Weights = None
    ) -> float:
        # The delta method turns the error of the mean square into that of its root.
        squares, other_squares = (self.score_texts(targets, m) for m in (readings, other))
        root = float(np.sqrt(np.average(squares, weights=weights)))
        return (
            _base.measure_error(squares - other_squares, weights) / (2 * root) if root > 0 else 0.0
        )

    @property
    def columns(self) -> tuple[Label, ...]:
        return ("value",)

    def decide(self, readings: Readings) -> np.ndarray:
        return readings.logits[:, 0]

    def measure(
        self, targets: np.ndarray, readings: Readings, unknown: Names = (), weights: Weights = None
    ) -> Json:
        """Computes RMSE and its standard error, MAE, R^2 and the correlation of ranks; the last two
        are None if the targets, or for the correlation the predictions, are all equal.
        """
        from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

        predicted = self.decide(readings)
        options: Any = {"sample_weight": weights}
        rmse = float(root_mean_squared_error(targets, predicted, **options))
        # The delta method needs the error of the mean square.
        of_squares = _base.measure_error((predicted - targets) ** 2, weights)
        return {
            "n": len(targets),
            **_base.describe_effective(weights),
            "rmse": rmse,
            "mae": float(mean_absolute_error(targets, predicted, **options)),
            "r2": float(r2_score(targets, predicted, **options)) if np.ptp(targets) > 0 else None,
            "spearman": _correlate_ranks(targets, predicted, weights),
            "rmse_error": of_squares / (2 * rmse) if rmse > 0 else 0.0,
        }

    def predict(self, reading: Readings, words: Sequence[str]) -> ValuePrediction:
        return ValuePrediction(
            float(reading.logits[0, 0]), **_base.describe_reading(reading, words)
        )

    def render_prediction(self, reading: Readings) -> str:
        return f"{reading.logits[0, 0]:.8g}"

    def render_rule(self, bias: np.ndarray) -> str:
        return "The sum is the prediction, and the parts are exact, in the unit of the target."


class Values:
    """A table that numbers the different numbers of a source as they come."""

    def __init__(self) -> None:
        self.places: dict[float, int] = {}

    def place(self, value: float, where: str, line: int) -> int:
        """Returns the number of a value, from 0, in the order in which values occur first."""
        return self.places.setdefault(value, len(self.places))


def _correlate_ranks(first: np.ndarray, second: np.ndarray, weights: Weights) -> float | None:
    """Returns Spearman's correlation, which SciPy has without weights; None for equal numbers.
    A rank is the middle of the weights of a number, after the weights of all smaller numbers.
    """
    ranks = []
    for values in (first, second):
        different, place = np.unique(values, return_inverse=True)
        if len(different) == 1:
            return None
        masses = np.bincount(place, weights)
        ranks.append((np.cumsum(masses) - masses / 2)[place])
    covariance = np.cov(ranks, aweights=weights)
    return float(covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1]))
