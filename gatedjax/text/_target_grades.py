"""The target of a grade for each text, among grades with an order."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.lexicon import OrdinalHead, Readings
from gatedjax.text._prediction import ORDINAL, Prediction
from gatedjax.text._table import Label, parse_number
from gatedjax.text._target_base import (
    LEAST_LOSS,
    MOST_SHOWN,
    ScoreTarget,
    TargetOptions,
    list_shares,
    predict_class,
)
from gatedjax.text._target_metrics import ordinal_metrics


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

    @classmethod
    def of_labels(
        cls, labels: Sequence[Any], counts: Sequence[int], options: TargetOptions
    ) -> "OrdinalTarget":
        """Returns the target with the grades by their numbers, or as in `options.order`."""
        return cls(_order_grades(labels, options.order))

    def make_head(
        self, targets: np.ndarray, sample_weight: np.ndarray | None = None
    ) -> OrdinalHead:
        """Returns a head with thresholds between the grades; its arguments are not used."""
        return OrdinalHead(len(self.classes))

    def encode(self, labels: Sequence[Any]) -> np.ndarray:
        """Returns the position of each of n labels among the grades: int32 [n], from 0."""
        place = {label: number for number, label in enumerate(self.classes)}
        return np.array([place[label] for label in labels], np.int32)

    @property
    def columns(self) -> tuple[Label, ...]:
        """The name of the single logit, ("score",)."""
        return ("score",)

    def decide(self, readings: Readings) -> np.ndarray:
        """Returns the median of the distribution of the grades of each text: int [n]."""
        # The median has a smaller mean distance than the most probable grade.
        above = 1 - np.cumsum(readings.probabilities, 1)[:, :-1]
        return (above > 0.5).sum(1)

    def measure(
        self,
        targets: np.ndarray,
        readings: Readings,
        unknown: Sequence[Label] = (),
        sample_weight: np.ndarray | None = None,
    ) -> Json:
        """Returns the dict of `ordinal_metrics`: n, accuracy, mae, kappa, mae_error and more."""
        return ordinal_metrics(targets, self.decide(readings), self.classes, sample_weight)

    def allow_loss(self, scores: Json, metric: str) -> float:
        """Returns a hundredth of a grade, or the standard error of the MAE if it is larger."""
        return max(2 * LEAST_LOSS, scores["mae_error"])

    def predict(self, readings: Readings, row: int, words: Sequence[str]) -> Prediction:
        """Returns the predicted grade of the text `row`, from 0, with its probability."""
        return predict_class(self, readings, row, words)

    def render_prediction(self, readings: Readings, row: int) -> str:
        """Returns a line with the predicted grade, and the first eight grades' probabilities."""
        grade = int(self.decide(readings.take(row))[0])
        shares = list_shares(self, readings, row, range(min(len(self.classes), MOST_SHOWN)))
        return f"{self.classes[grade]} (of {shares})"

    def render_rule(self, bias: np.ndarray) -> str:
        """Returns a sentence with the thresholds of the sum between the grades."""
        steps = [
            f"{grade} above {threshold:+.3f}"
            for grade, threshold in zip(self.classes[1:], bias.tolist(), strict=True)
        ]
        shown = ", ".join(steps[:MOST_SHOWN]) + ", ..." * (len(steps) > MOST_SHOWN)
        return f"The grade is {self.classes[0]}, or {shown} of the sum; the parts are exact."


def _read_grade(label: Label) -> float:
    number = parse_number(label)
    # The texts "nan" and "inf" are read as numbers, and are missing values or names.
    if not np.isfinite(number):
        raise ValueError(f"a grade must be a finite number, got {label!r}")
    return number


def _is_grade(label: Label) -> bool:
    try:
        _read_grade(label)
    except (ValueError, OverflowError):
        return False
    return True


def _order_grades(labels: Sequence[Label], order: Sequence[Label] | None) -> tuple[Label, ...]:
    """Returns the labels in the order of their numbers, or of `order` if it is given."""
    if order is None:
        try:
            numbers = [_read_grade(label) for label in labels]
        except (ValueError, OverflowError):
            numbers = []
        # Two spellings of a number, such as "1" and "1.0", would be two grades without an order.
        if len(set(numbers)) < len(labels):
            # The labels that are no numbers come first, so that the message has them.
            shown = sorted(labels, key=_is_grade)[:MOST_SHOWN]
            names = ",".join(str(label) for label in shown)
            raise ValueError(
                f"grades must be different numbers, all finite, or need an order, got {names}: "
                "give the grades from the lowest to the highest, as order low,mid,high"
            )
        return tuple(label for _, label in sorted(zip(numbers, labels, strict=True)))
    by_text = {str(label): label for label in labels}
    ordered = [str(name) for name in order]
    if sorted(ordered) != sorted(by_text):
        missing = sorted(set(by_text).difference(ordered))
        extra = list(dict.fromkeys(n for n in ordered if n not in by_text or ordered.count(n) > 1))
        actions = [
            f"{action} {', '.join(map(repr, names[:MOST_SHOWN]))}"
            for action, names in (("add", missing), ("leave out or name once", extra))
            if names
        ]
        raise ValueError(
            f"order must have each label of the texts once ({', '.join(sorted(by_text)[:20])}), "
            f"got {', '.join(ordered[:20])}: {', and '.join(actions)}"
        )
    return tuple(by_text[name] for name in ordered)
