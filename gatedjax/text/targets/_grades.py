"""The target of a grade for each text, among grades with an order."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.lexicon import OrdinalHead, Readings
from gatedjax.text.answers._prediction import ORDINAL
from gatedjax.text.sources._labels import Label, parse_number
from gatedjax.text.targets import _base
from gatedjax.text.targets._base import Names, ScoreTarget, Weights


@dataclasses.dataclass(frozen=True)
class OrdinalTarget(ScoreTarget):
    """The target of an ordinal regression, a grade for each text. `classes` are the grades, the
    lowest first.
    """

    kind: ClassVar[str] = ORDINAL
    metrics: ClassVar[Mapping[str, str]] = {
        "mae": "MAE in grades",
        "accuracy": "accuracy",
        "kappa": "quadratic kappa",
    }
    constant: ClassVar[str] = "median grade of the training texts"
    paired: ClassVar[str] = "MAE in grades"

    @classmethod
    def of_labels(
        cls, labels: Sequence[Any], counts: Sequence[int], options: Any, has_columns: bool = False
    ) -> "OrdinalTarget":
        return cls(_order_grades(labels, options.order))

    def make_head(self, targets: np.ndarray, weights: Weights = None) -> OrdinalHead:
        return OrdinalHead(len(self.classes))

    def allow_loss(self, scores: Json) -> float:
        # A fiftieth of a grade.
        return 0.02

    def score_texts(self, targets: np.ndarray, readings: Readings) -> np.ndarray:
        return np.asarray(np.abs(self.decide(readings) - targets), np.float64)

    @property
    def columns(self) -> tuple[Label, ...]:
        return ("score",)

    def decide(self, readings: Readings) -> np.ndarray:
        # The median has a smaller mean distance than the most probable grade.
        above = 1 - np.cumsum(readings.probabilities, 1)[:, :-1]
        return (above > 0.5).sum(1)

    def measure(
        self, targets: np.ndarray, readings: Readings, unknown: Names = (), weights: Weights = None
    ) -> Json:
        """Computes the accuracy, the mean distance "mae" in grades and its standard error, the
        confusion (rows are true grades), and Cohen's kappa with quadratic weights (Cohen 1968),
        which is None if all texts have the same grade.
        """
        from sklearn.metrics import cohen_kappa_score

        predicted, grades = self.decide(readings), self.classes
        confusion = _base.count_pairs(targets, predicted, len(grades), weights)
        distances = np.abs(targets - predicted)
        kappa = None
        if len(np.union1d(targets, predicted)) > 1:
            kappa = cohen_kappa_score(
                targets,
                predicted,
                labels=np.arange(len(grades)),
                weights="quadratic",
                sample_weight=weights,
            )
        return {
            "n": len(targets),
            **_base.describe_effective(weights),
            "accuracy": float(confusion.trace() / confusion.sum()),
            "mae": float(np.average(distances, weights=weights)),
            "kappa": None if kappa is None else float(kappa),
            "mae_error": _base.measure_error(distances, weights),
            "grades": list(grades),
            "confusion": confusion.tolist(),
        }

    def render_prediction(self, reading: Readings) -> str:
        grade = self.classes[int(self.decide(reading)[0])]
        pairs = list(zip(self.classes, reading.probabilities[0].tolist(), strict=True))
        shown = ", ".join(f"{name} {share:.3f}" for name, share in pairs[: _base.MOST_SHOWN])
        return f"{grade} (of {shown})"

    def render_rule(self, bias: np.ndarray) -> str:
        steps = [
            f"{grade} above {threshold:+.3f}"
            for grade, threshold in zip(self.classes[1:], bias.tolist(), strict=True)
        ]
        shown = ", ".join(steps[: _base.MOST_SHOWN]) + ", ..." * (len(steps) > _base.MOST_SHOWN)
        return f"The grade is {self.classes[0]}, or {shown} of the sum; the parts are exact."


def _read_grade(label: Label) -> float | None:
    try:
        number = parse_number(label)
    except (ValueError, OverflowError):
        return None
    # The texts "nan" and "inf" are read as numbers, and are missing values or names.
    return number if np.isfinite(number) else None


def _order_grades(labels: Names, order: Names | None) -> tuple[Label, ...]:
    """Returns the labels in the order of their numbers, or of `order` if it is given."""
    if order is None:
        numbers = {label: _read_grade(label) for label in labels}
        # Two spellings of a number, such as "1" and "1.0", would be two grades without an order.
        if None in numbers.values() or len(set(numbers.values())) < len(labels):
            # Labels that are not numbers come first, so that the message names them.
            shown = sorted(labels, key=lambda label: numbers[label] is not None)[: _base.MOST_SHOWN]
            names = ",".join(str(label) for label in shown)
            raise ValueError(
                f"grades must be different numbers, all finite, or need an order, got {names}: "
                "give the grades from the lowest to the highest, as order low,mid,high"
            )
        return tuple(sorted(labels, key=numbers.__getitem__))  # type: ignore[arg-type]
    by_text = {str(label): label for label in labels}
    ordered = [str(name) for name in order]
    if sorted(ordered) != sorted(by_text):
        missing = sorted(set(by_text).difference(ordered))
        extra = list(dict.fromkeys(n for n in ordered if n not in by_text or ordered.count(n) > 1))
        actions = [
            f"{action} {', '.join(map(repr, names[: _base.MOST_SHOWN]))}"
            for action, names in (("add", missing), ("leave out or name once", extra))
            if names
        ]
        raise ValueError(
            f"order must have each label of the texts once ({', '.join(sorted(by_text)[:20])}), "
            f"got {', '.join(ordered[:20])}: {', and '.join(actions)}"
        )
    return tuple(by_text[name] for name in ordered)
