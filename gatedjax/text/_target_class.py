"""The target of a class for each text."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.lexicon import ClassHead, Head, Readings
from gatedjax.text._calibration import choose_temperature
from gatedjax.text._metrics import classification_metrics
from gatedjax.text._prediction import Prediction
from gatedjax.text._table import Label, read_label
from gatedjax.text._target_base import (
    MOST_SHOWN,
    Target,
    TargetOptions,
    find_thresholds,
    list_probabilities,
    predict_class,
)


@dataclasses.dataclass(frozen=True)
class ClassTarget(Target):
    """The target of a classifier, a class for each text. The most probable class is predicted, or
    with a threshold the class `positive` if its probability is at least the threshold.
    """

    positive: int | None = None  # a position in two classes; None: no threshold
    threshold: float = 0.5

    kind: ClassVar[str] = "text"
    metrics: ClassVar[Mapping[str, str]] = {"accuracy": "accuracy", "macro_f1": "macro F1"}

    @classmethod
    def of_labels(
        cls, labels: Sequence[Any], counts: Sequence[int], options: TargetOptions
    ) -> "ClassTarget":
        """Returns the target with the classes in the order of the corpus."""
        target = cls(tuple(labels))
        return target if options.threshold is None else target.with_threshold(options.threshold)

    def with_threshold(self, threshold: Any) -> "ClassTarget":
        """Returns a copy with the threshold of one of two classes, such as {"spam": 0.3}."""
        if len(self.classes) != 2:
            raise ValueError(
                "threshold must be left out unless there are two classes, or several labels for "
                f"each text, got {threshold!r} for {len(self.classes)} classes"
            )
        thresholds = find_thresholds(threshold, self.classes)
        if len(thresholds) != 1:
            first, second = self.classes
            raise ValueError(
                f"threshold must be for one of the two classes, got {threshold!r}: name the class, "
                f"as threshold {first}=0.3 or {second}=0.3 (in Python {{{first!r}: 0.3}})"
            )
        ((position, number),) = thresholds.items()
        return dataclasses.replace(self, positive=position, threshold=number)

    @classmethod
    def choose_metric(cls, best_metric: str) -> str:
        """Returns `best_metric` itself, "accuracy" or "macro_f1"."""
        return best_metric

    def make_head(self, targets: np.ndarray, sample_weight: np.ndarray | None = None) -> ClassHead:
        """Returns a softmax head with a logit for each class; its arguments are not used."""
        return ClassHead(len(self.classes))

    def encode(self, labels: Sequence[Any]) -> np.ndarray:
        """Returns the position of each of n labels in the classes: int32 [n], from 0."""
        # The classes of a folder from elsewhere may have spaces around them.
        place = {read_label("label", label): number for number, label in enumerate(self.classes)}
        return np.array([place[label] for label in labels], np.int32)

    def choose_temperature(
        self,
        head: Head,
        bias: np.ndarray,
        readings: Readings,
        targets: np.ndarray,
        sample_weight: np.ndarray | None = None,
    ) -> tuple[float, float]:
        """Chooses the temperature with smoothed targets."""
        return choose_temperature(readings.probabilities, targets, sample_weight)

    def decide(self, readings: Readings) -> np.ndarray:
        """Returns the position of the predicted class of each of n texts: int [n], from 0."""
        if self.positive is None:
            return readings.probabilities.argmax(1)
        # The threshold itself counts as reached, as for several labels.
        is_positive = readings.probabilities[:, self.positive] >= self.threshold
        return np.where(is_positive, self.positive, 1 - self.positive)

    def measure(
        self,
        targets: np.ndarray,
        readings: Readings,
        unknown: Sequence[Label] = (),
        sample_weight: np.ndarray | None = None,
    ) -> Json:
        """Returns the dict of `classification_metrics`, with n, accuracy, macro_f1 and more."""
        return classification_metrics(
            targets, readings.probabilities, self.classes, self.decide(readings), sample_weight
        )

    def get_threshold(self) -> dict[Label, float] | None:
        """Returns {class: threshold} for the class with a threshold, or None if there is none."""
        return None if self.positive is None else {self.classes[self.positive]: self.threshold}

    def decision_to_json(self) -> Json:
        """Returns the class with a threshold for config.json, or {} if there is none."""
        if self.positive is None:
            return {}
        return {"positive": self.positive, "threshold": self.threshold}

    def with_decision(self, value: Json) -> "ClassTarget":
        """Returns a copy of the target with the threshold in `value`."""
        if not value:
            return self
        positive, threshold = value["positive"], float(value["threshold"])
        if positive not in (0, 1) or len(self.classes) != 2:
            raise ValueError(f"positive must be 0 or 1 for two classes, got {positive!r}")
        return dataclasses.replace(self, positive=positive, threshold=threshold)

    def predict(self, readings: Readings, row: int, words: Sequence[str]) -> Prediction:
        """Returns the predicted class of the text `row`, from 0, with its probability."""
        return predict_class(self, readings, row, words)

    def rank_columns(self, readings: Readings, row: int) -> list[int]:
        """Returns the positions of the classes: the predicted, then by falling probability."""
        best = int(self.decide(readings.take(row))[0])
        # With a threshold the predicted class may have the smaller probability.
        order = np.argsort(-readings.probabilities[row], kind="stable").tolist()
        return [best, *(i for i in order if i != best)]

    def measure_effect(self, parts: np.ndarray, columns: Sequence[int]) -> float:
        """Returns the absolute share of a word in the predicted class, against the mean."""
        return abs(float(parts[columns[0]] - parts.mean()))

    def render_prediction(self, readings: Readings, row: int) -> str:
        """Returns the predicted class and the probabilities of up to eight classes, as a line."""
        return list_probabilities(
            self, readings, row, self.rank_columns(readings, row)[:MOST_SHOWN]
        )

    def render_rule(self, bias: np.ndarray) -> str:
        """Returns the sentence of the rule: the class with the largest sum, or the threshold."""
        if self.positive is None:
            return "The class with the largest sum is predicted; the parts are exact."
        return (
            f"{self.classes[self.positive]} is predicted if its probability is at least "
            f"{self.threshold:g}; the parts are exact."
        )
