"""The targets of a lexicon: a class, several labels, a real number, or a grade for each text.

A `Target` has all that differs between these tasks outside of the fit: how labels are numbered,
what is predicted, the metrics, and the sentences of an explanation. The loss and the probabilities
are those of its head, see `gatedjax.lexicon.Head`.
"""

import abc
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.lexicon import ClassHead, Head, LabelHead, OrdinalHead, Readings, RealHead
from gatedjax.text._calibration import choose_head_temperature, choose_temperature
from gatedjax.text._labels import Classes
from gatedjax.text._metrics import classification_metrics
from gatedjax.text._prediction import (
    LABELS,
    ORDINAL,
    REGRESSION,
    LabelsPrediction,
    Prediction,
    ValuePrediction,
)
from gatedjax.text._table import Label, read_label
from gatedjax.text._target_metrics import (
    choose_thresholds,
    label_metrics,
    ordinal_metrics,
    real_metrics,
)

LEAST_LOSS = 0.005
"""A stage may be this much worse than the best in accuracy or F1, or more if the standard error is
larger."""
_LEAST_RMSE = 0.01
# Texts are split in proportion to so many ranges of a real target.
_RANGES = 10
_SHOWN = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """The options of a target, see the fields of `TextOptions` with the same names.

    Attributes:
      threshold: a number, a dict from labels to numbers, or None.
      order: the grades from the lowest to the highest, or None.
      min_class: the number of texts below which a label is left out.
    """

    threshold: Any = None
    order: Sequence[Label] | None = None
    min_class: int = 1


@dataclasses.dataclass(frozen=True)
class Target(abc.ABC):
    """The target of a lexicon.

    Attributes:
      classes: the classes, labels or grades, in the order of the probabilities; empty for a number.
      kind: the kind of the model folder.
      metrics: the metrics of the report and their titles. The first chooses the density.
      is_error: True if smaller values of the first metric are better.
    """

    classes: tuple[Label, ...]

    kind: ClassVar[str]
    metrics: ClassVar[Mapping[str, str]]
    is_error: ClassVar[bool] = False

    @classmethod
    def make_places(cls, model_target: "Target | None") -> Any:
        """Returns a table that numbers the labels of a source as they come, see `Classes`.

        Args:
          model_target: the target of the model; None for the training texts.
        """
        return Classes("label", None if model_target is None else model_target.classes)

    @classmethod
    @abc.abstractmethod
    def of_labels(
        cls, labels: Sequence[Any], counts: Sequence[int], options: TargetOptions
    ) -> "Target":
        """Returns the target of training texts.

        Args:
          labels: the different labels of the texts; for several labels tuples of them.
          counts: the number of texts of each.
          options: the options.

        Raises:
          ValueError: if the labels are no targets of this kind.
        """

    @abc.abstractmethod
    def make_head(self, targets: np.ndarray) -> Head:
        """Returns the head for training texts with these targets."""

    @abc.abstractmethod
    def encode(self, labels: Sequence[Any]) -> np.ndarray:
        """Returns the targets of labels, an array with a row for each label."""

    def find_unknown(self, labels: Sequence[Any]) -> list[Label]:
        """Returns the labels that the model does not have, in the order of the columns."""
        return []

    def stratify(self, targets: np.ndarray) -> tuple[np.ndarray, tuple[Label, ...]]:
        """Returns the stratum of each text, int32 [n], and the names of the strata.

        The texts are split into training and validation in proportion to the strata.
        """
        return targets.astype(np.int32), self.classes

    def list_single(self, targets: np.ndarray) -> list[Label]:
        """Returns the labels that a single training text has, if a text may have several."""
        return []

    def render_source(self, targets: np.ndarray) -> str | None:
        """Returns a sentence about the targets of a source, or None for the counts of classes."""
        return None

    @property
    def columns(self) -> tuple[Label, ...]:
        """The names of the logits of a text."""
        return self.classes

    @abc.abstractmethod
    def decide(self, readings: Readings) -> np.ndarray:
        """Returns the prediction for each text, in the form of the targets."""

    @abc.abstractmethod
    def measure(
        self, targets: np.ndarray, readings: Readings, unknown: Sequence[Label] = ()
    ) -> Json:
        """Returns the metrics of the predictions for texts.

        Args:
          targets: the targets of the texts.
          readings: the readings of the texts.
          unknown: the result of `find_unknown` for the labels of the texts.
        """

    def choose_temperature(
        self, head: Head, bias: np.ndarray, readings: Readings, targets: np.ndarray
    ) -> tuple[float, float]:
        """Chooses the number by which the logits are divided, on validation texts.

        Args:
          head: the head of the lexicon.
          bias: its biases.
          readings: the readings of the texts at the temperature 1.
          targets: their targets.

        Returns:
          The temperature to use and the fitted one, see `_calibration.choose_temperature`.
        """
        return choose_head_temperature(head, readings.logits, bias, targets)

    def choose_decision(self, readings: Readings, targets: np.ndarray) -> "Target":
        """Returns the target with decisions that are chosen on validation texts."""
        return self

    @classmethod
    def choose_metric(cls, best_metric: str) -> str:
        """Returns the metric that chooses the density, for the option `best_metric`."""
        return next(iter(cls.metrics))

    def allow_loss(self, scores: Json, metric: str) -> float:
        """Returns how much worse than the best stage the stage of the model may be.

        Args:
          scores: the metrics of the best stage.
          metric: the metric that chooses the density.
        """
        return max(LEAST_LOSS, _standard_error(scores[metric], scores["n"]))

    def with_threshold(self, threshold: Any) -> "Target":
        """Returns the target with thresholds of the user.

        Args:
          threshold: a number in (0, 1), or a dict from labels to numbers.

        Raises:
          ValueError: if the target has no thresholds, or does not have a label.
        """
        raise ValueError(
            f"threshold must be left out for the task {self.kind!r}, got {threshold!r}"
        )

    def decision_to_json(self) -> Json:
        """Returns the decisions for config.json, or {}."""
        return {}

    def with_decision(self, value: Json) -> "Target":
        """Returns the target with the decisions of `decision_to_json`."""
        return self

    @abc.abstractmethod
    def predict(
        self, readings: Readings, row: int, open_words: list[str], note: str
    ) -> Prediction | LabelsPrediction | ValuePrediction:
        """Returns the prediction for a text.

        Args:
          readings: the readings of texts.
          row: the position of the text.
          open_words: its open words.
          note: a remark, or "".
        """

    @abc.abstractmethod
    def rank_columns(self, readings: Readings, row: int) -> list[int]:
        """Returns the columns of the logits that an explanation shows, the first first."""

    @abc.abstractmethod
    def measure_effect(self, parts: np.ndarray, columns: Sequence[int]) -> float:
        """Returns the size of the effect of a word, by which the reasons are sorted.

        Args:
          parts: [C], its share in the logits.
          columns: the result of `rank_columns`.
        """

    @abc.abstractmethod
    def render_prediction(self, readings: Readings, row: int) -> str:
        """Returns the first line of the explanation of a text."""

    @abc.abstractmethod
    def render_rule(self, bias: np.ndarray) -> str:
        """Returns the sentence by which the prediction follows from the sums of the shares.

        Args:
          bias: the biases of the lexicon, divided by its temperature.
        """

    def group_words(self, weights: np.ndarray) -> tuple[tuple[Label, ...], np.ndarray]:
        """Returns the groups of the list of open words, and the weight of each word in them.

        Args:
          weights: [D, C], the share of each word in the logits.
        """
        return self.classes, weights

    def name_groups(self, targets: np.ndarray) -> list[Any]:
        """Returns for each text the names of the groups of words of which it is an example."""
        return [self.classes[i] for i in targets.tolist()]


@dataclasses.dataclass(frozen=True)
class ClassTarget(Target):
    """A class for each text.

    Attributes:
      positive: for two classes the position of the class that is predicted if its probability is at
        least `threshold`; None predicts the most probable class.
      threshold: the threshold.
    """

    positive: int | None = None
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
        """Returns the target with the threshold of one of two classes."""
        if len(self.classes) != 2:
            raise ValueError(
                "threshold must be left out unless there are two classes, or several labels for "
                f"each text, got {threshold!r} for {len(self.classes)} classes"
            )
        thresholds = _find_thresholds(threshold, self.classes)
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
        """Returns the option itself."""
        return best_metric

    def make_head(self, targets: np.ndarray) -> ClassHead:
        """Returns the head of the classes."""
        return ClassHead(len(self.classes))

    def encode(self, labels: Sequence[Any]) -> np.ndarray:
        """Returns the position of each label in the classes: int [n]."""
        # Models of earlier versions may have classes with spaces around them.
        place = {read_label("label", label): number for number, label in enumerate(self.classes)}
        return np.array([place[label] for label in labels], np.int32)

    def choose_temperature(
        self, head: Head, bias: np.ndarray, readings: Readings, targets: np.ndarray
    ) -> tuple[float, float]:
        """Chooses the temperature with smoothed targets, see `Target.choose_temperature`."""
        return choose_temperature(readings.probabilities, targets)

    def decide(self, readings: Readings) -> np.ndarray:
        """Returns the position of the predicted class of each text: int [n]."""
        if self.positive is None:
            return readings.probabilities.argmax(1)
        # The threshold itself counts as reached, as for several labels.
        is_positive = readings.probabilities[:, self.positive] >= self.threshold
        return np.where(is_positive, self.positive, 1 - self.positive)

    def measure(
        self, targets: np.ndarray, readings: Readings, unknown: Sequence[Label] = ()
    ) -> Json:
        """Returns the dict of `classification_metrics`."""
        return classification_metrics(
            targets, readings.probabilities, self.classes, self.decide(readings)
        )

    def decision_to_json(self) -> Json:
        """Returns the class with a threshold, or {}."""
        if self.positive is None:
            return {}
        return {"positive": self.positive, "threshold": self.threshold}

    def with_decision(self, value: Json) -> "ClassTarget":
        """Returns the target with the class and the threshold."""
        if not value:
            return self
        positive, threshold = value["positive"], float(value["threshold"])
        if positive not in (0, 1) or len(self.classes) != 2:
            raise ValueError(f"positive must be 0 or 1 for two classes, got {positive!r}")
        return dataclasses.replace(self, positive=positive, threshold=threshold)

    def predict(self, readings: Readings, row: int, open_words: list[str], note: str) -> Prediction:
        """Returns the predicted class with its probability."""
        best = int(self.decide(_select(readings, row))[0])
        share = float(np.mean(readings.is_open[row]))
        probability = float(readings.probabilities[row, best])
        return Prediction(self.classes[best], probability, open_words, share, note)

    def rank_columns(self, readings: Readings, row: int) -> list[int]:
        """Returns the predicted class, then the classes by falling probability."""
        best = int(self.decide(_select(readings, row))[0])
        # With a threshold the predicted class may have the smaller probability.
        order = np.argsort(-readings.probabilities[row], kind="stable").tolist()
        return [best, *(i for i in order if i != best)]

    def measure_effect(self, parts: np.ndarray, columns: Sequence[int]) -> float:
        """Returns the part for the predicted class, against the mean of all classes."""
        return abs(float(parts[columns[0]] - parts.mean()))

    def render_prediction(self, readings: Readings, row: int) -> str:
        """Returns the classes with the largest probabilities."""
        return _list_probabilities(self, readings, row, self.rank_columns(readings, row)[:_SHOWN])

    def render_rule(self, bias: np.ndarray) -> str:
        """Returns the rule of the largest sum, or of the threshold."""
        if self.positive is None:
            return "The class with the largest sum is predicted; the parts are exact."
        return (
            f"{self.classes[self.positive]} is predicted if its probability is at least "
            f"{self.threshold:g}; the parts are exact."
        )


@dataclasses.dataclass(frozen=True)
class LabelTarget(Target):
    """Any number of labels for each text.

    Attributes:
      thresholds: the probability from which each label is predicted.
      is_fixed: True if the user has fixed the thresholds.
      left_out: labels that are too rare, which training and its validation ignore.
    """

    thresholds: tuple[float, ...] = ()
    is_fixed: bool = False
    left_out: frozenset[Label] = frozenset()

    kind: ClassVar[str] = LABELS
    metrics: ClassVar[Mapping[str, str]] = {
        "micro_f1": "micro F1",
        "macro_f1": "macro F1",
        "subset_accuracy": "subset accuracy",
    }

    @classmethod
    def make_places(cls, model_target: Target | None) -> "LabelSets":
        """Returns a table of tuples of labels."""
        return LabelSets(None if model_target is None else model_target.classes)

    @classmethod
    def of_labels(
        cls, labels: Sequence[Any], counts: Sequence[int], options: TargetOptions
    ) -> "LabelTarget":
        """Returns the target with the sorted labels of all texts."""
        totals: dict[Label, int] = {}
        for names, count in zip(labels, counts, strict=True):
            for name in names:
                totals[name] = totals.get(name, 0) + count
        used = {name for name, count in totals.items() if count >= options.min_class}
        if not used:
            raise ValueError(
                f"the texts must have a label, got none with min_class={options.min_class} texts"
            )
        classes = tuple(sorted(used, key=_sort_key))
        target = cls(classes, (0.5,) * len(classes), left_out=frozenset(totals.keys() - used))
        return target if options.threshold is None else target.with_threshold(options.threshold)

    def with_threshold(self, threshold: Any) -> "LabelTarget":
        """Returns the target with fixed thresholds; labels without a number keep theirs."""
        by_place = _find_thresholds(threshold, self.classes)
        thresholds = tuple(by_place.get(i, old) for i, old in enumerate(self.thresholds))
        return dataclasses.replace(self, thresholds=thresholds, is_fixed=True)

    @classmethod
    def choose_metric(cls, best_metric: str) -> str:
        """Returns the macro F1 if it is asked for, else the micro F1."""
        return "macro_f1" if best_metric == "macro_f1" else "micro_f1"

    def make_head(self, targets: np.ndarray) -> LabelHead:
        """Returns the head of the labels."""
        return LabelHead(len(self.classes))

    def find_unknown(self, labels: Sequence[Any]) -> list[Label]:
        """Returns the labels of the texts that the model does not have."""
        expected = self.left_out.union(self.classes)
        different = dict.fromkeys(name for names in labels for name in names)
        return [name for name in different if name not in expected]

    def encode(self, labels: Sequence[Any]) -> np.ndarray:
        """Returns a bool [n, L + U]: the labels of the model, then the unknown labels."""
        names = [*self.classes, *self.find_unknown(labels)]
        place = {name: number for number, name in enumerate(names)}
        targets = np.zeros((len(labels), len(names)), bool)
        for row, texts_labels in enumerate(labels):
            targets[row, [place[name] for name in texts_labels if name in place]] = True
        return targets

    def stratify(self, targets: np.ndarray) -> tuple[np.ndarray, tuple[Label, ...]]:
        """Returns the rarest label of each text, so that both parts have each label."""
        # A stratum for each set of labels would be too small, because most sets are rare.
        counts = targets.sum(0)
        rarity = np.where(targets, counts, len(targets) + 1)
        rarest = np.where(targets.any(1), rarity.argmin(1), len(counts))
        return rarest.astype(np.int32), (*self.classes, "(no label)")

    def list_single(self, targets: np.ndarray) -> list[Label]:
        """Returns the labels that a single training text has."""
        return [self.classes[i] for i in np.flatnonzero(targets.sum(0) == 1).tolist()]

    def render_source(self, targets: np.ndarray) -> str:
        """Returns the number of texts of the most frequent labels."""
        counts = targets[:, : len(self.classes)].sum(0)
        order = np.argsort(-counts, kind="stable")[:10]
        listing = ", ".join(f"{self.classes[i]} {counts[i]:,}" for i in order.tolist())
        remainder = f", and {len(counts) - 10} more" if len(counts) > 10 else ""
        per_text = targets.sum() / max(len(targets), 1)
        return (
            f"{len(targets):,} texts with {len(counts)} labels, {per_text:.2f} for a text, "
            f"{int((~targets.any(1)).sum()):,} texts without a label: {listing}{remainder}"
        )

    def decide(self, readings: Readings) -> np.ndarray:
        """Returns True at the predicted labels: bool [n, L]."""
        return readings.probabilities >= np.array(self.thresholds)

    def measure(
        self, targets: np.ndarray, readings: Readings, unknown: Sequence[Label] = ()
    ) -> Json:
        """Returns the dict of `label_metrics`."""
        return label_metrics(targets, self.decide(readings), self.classes, unknown)

    def choose_decision(self, readings: Readings, targets: np.ndarray) -> "LabelTarget":
        """Returns the target with the thresholds of the largest F1, unless they are fixed."""
        if self.is_fixed:
            return self
        # A threshold cannot be chosen for a label that the model does not have.
        targets = targets[:, : len(self.classes)]
        return dataclasses.replace(
            self, thresholds=choose_thresholds(readings.probabilities, targets)
        )

    def allow_loss(self, scores: Json, metric: str) -> float:
        """Returns half a point of F1, or its standard error.

        The micro F1 is treated as a share among (2 TP + FP + FN) / 2 decisions.
        """
        count = scores["decisions"] if metric == "micro_f1" else scores["n"]
        return max(LEAST_LOSS, _standard_error(scores[metric], max(count, 1)))

    def decision_to_json(self) -> Json:
        """Returns the thresholds."""
        return {"thresholds": list(self.thresholds)}

    def with_decision(self, value: Json) -> "LabelTarget":
        """Returns the target with the thresholds."""
        thresholds = tuple(map(float, value["thresholds"]))
        if len(thresholds) != len(self.classes):
            raise ValueError(
                f"thresholds must have {len(self.classes)} numbers, got {len(thresholds)}"
            )
        return dataclasses.replace(self, thresholds=thresholds)

    def predict(
        self, readings: Readings, row: int, open_words: list[str], note: str
    ) -> LabelsPrediction:
        """Returns the predicted labels with their probabilities."""
        is_predicted = self.decide(_select(readings, row))[0]
        places = [i for i in self.rank_columns(readings, row) if is_predicted[i]]
        return LabelsPrediction(
            tuple(self.classes[i] for i in places),
            tuple(float(readings.probabilities[row, i]) for i in places),
            open_words,
            float(np.mean(readings.is_open[row])),
            note,
        )

    def rank_columns(self, readings: Readings, row: int) -> list[int]:
        """Returns the predicted labels, then the remaining labels, by falling probability."""
        probabilities = readings.probabilities[row]
        is_predicted = probabilities >= np.array(self.thresholds)
        return np.lexsort((-probabilities, ~is_predicted)).tolist()

    def measure_effect(self, parts: np.ndarray, columns: Sequence[int]) -> float:
        """Returns the largest part for the first labels of the explanation."""
        return float(np.abs(parts[list(columns)]).max())

    def render_prediction(self, readings: Readings, row: int) -> str:
        """Returns the predicted labels, and the labels with the largest probabilities."""
        ranked = self.rank_columns(readings, row)
        is_predicted = self.decide(_select(readings, row))[0]
        names = [str(self.classes[i]) for i in ranked if is_predicted[i]]
        shares = ", ".join(
            f"{self.classes[i]} {readings.probabilities[row, i]:.3f} "
            f"({self.thresholds[i]:.3f} is needed)"
            for i in ranked[:_SHOWN]
        )
        return f"{', '.join(names) or '(no label)'} (of {shares})"

    def render_rule(self, bias: np.ndarray) -> str:
        """Returns the rule of the thresholds."""
        return (
            "A label is predicted if 1 / (1 + exp(-sum)) is at least its threshold; the parts are "
            "exact."
        )

    def name_groups(self, targets: np.ndarray) -> list[Any]:
        """Returns the set of the labels of each text."""
        return [
            frozenset(itertools.compress(self.classes, row.tolist()))
            for row in targets[:, : len(self.classes)]
        ]


@dataclasses.dataclass(frozen=True)
class RealTarget(Target):
    """A real number for each text."""

    kind: ClassVar[str] = REGRESSION
    metrics: ClassVar[Mapping[str, str]] = {
        "rmse": "RMSE",
        "mae": "MAE",
        "r2": "R^2",
        "spearman": "Spearman",
    }
    is_error: ClassVar[bool] = True

    @classmethod
    def make_places(cls, model_target: Target | None) -> "Values":
        """Returns a table of numbers."""
        return Values()

    @classmethod
    def of_labels(
        cls, labels: Sequence[Any], counts: Sequence[int], options: TargetOptions
    ) -> "RealTarget":
        """Returns the target; refuses texts that all have the same number."""
        if len(labels) < 2:
            raise ValueError(f"the texts must have different numbers, got only {labels[0]:g}")
        return cls(())

    def make_head(self, targets: np.ndarray) -> RealHead:
        """Returns the head with the mean and the standard deviation of the targets."""
        return RealHead.of_targets(targets)

    def encode(self, labels: Sequence[Any]) -> np.ndarray:
        """Returns the numbers, float64 [n]."""
        return np.array(labels, np.float64)

    def stratify(self, targets: np.ndarray) -> tuple[np.ndarray, tuple[Label, ...]]:
        """Returns the tenth of the numbers in which the number of each text is."""
        # Equal numbers may fill several tenths, which then have the same bound.
        bounds = np.unique(np.quantile(targets, np.arange(1, _RANGES) / _RANGES))
        names, strata = np.unique(np.searchsorted(bounds, targets), return_inverse=True)
        return strata.astype(np.int32), tuple(names.tolist())

    def render_source(self, targets: np.ndarray) -> str:
        """Returns the range, the mean and the standard deviation of the numbers."""
        low, middle, high = np.quantile(targets, [0, 0.5, 1])
        return (
            f"{len(targets):,} texts with numbers from {low:.6g} to {high:.6g}, median "
            f"{middle:.6g}, mean {targets.mean():.6g}, standard deviation {targets.std():.6g}"
        )

    @property
    def columns(self) -> tuple[Label, ...]:
        """The name of the single logit."""
        return ("value",)

    def decide(self, readings: Readings) -> np.ndarray:
        """Returns the predicted numbers, float64 [n]."""
        return readings.logits[:, 0]

    def measure(
        self, targets: np.ndarray, readings: Readings, unknown: Sequence[Label] = ()
    ) -> Json:
        """Returns the dict of `real_metrics`."""
        return real_metrics(targets, self.decide(readings))

    def allow_loss(self, scores: Json, metric: str) -> float:
        """Returns a hundredth of the RMSE of the best stage, or its standard error."""
        return max(_LEAST_RMSE * scores["rmse"], scores["rmse_error"])

    def predict(
        self, readings: Readings, row: int, open_words: list[str], note: str
    ) -> ValuePrediction:
        """Returns the predicted number."""
        share = float(np.mean(readings.is_open[row]))
        return ValuePrediction(float(readings.logits[row, 0]), open_words, share, note)

    def rank_columns(self, readings: Readings, row: int) -> list[int]:
        """Returns the single column."""
        return [0]

    def measure_effect(self, parts: np.ndarray, columns: Sequence[int]) -> float:
        """Returns the absolute share."""
        return abs(float(parts[0]))

    def render_prediction(self, readings: Readings, row: int) -> str:
        """Returns the number."""
        return f"{readings.logits[row, 0]:.8g}"

    def render_rule(self, bias: np.ndarray) -> str:
        """Returns the rule of the sum."""
        return "The sum is the prediction, and the parts are exact, in the unit of the target."

    def group_words(self, weights: np.ndarray) -> tuple[tuple[Label, ...], np.ndarray]:
        """Returns the words that lower and the words that raise the number."""
        return _SIDES, np.concatenate([-weights, weights], 1)

    def name_groups(self, targets: np.ndarray) -> list[Any]:
        """Returns for each text the side of the median on which its number is."""
        middle = np.median(targets)
        return [
            frozenset(itertools.compress(_SIDES, (value <= middle, value >= middle)))
            for value in targets.tolist()
        ]


@dataclasses.dataclass(frozen=True)
class OrdinalTarget(Target):
    """A grade for each text, among grades with an order; `classes` has the lowest grade first."""

    kind: ClassVar[str] = ORDINAL
    metrics: ClassVar[Mapping[str, str]] = {
        "mae": "MAE in grades",
        "accuracy": "accuracy",
        "kappa": "quadratic kappa",
    }
    is_error: ClassVar[bool] = True

    @classmethod
    def of_labels(
        cls, labels: Sequence[Any], counts: Sequence[int], options: TargetOptions
    ) -> "OrdinalTarget":
        """Returns the target with the grades in the order of their numbers, or of `order`."""
        return cls(_order_grades(labels, options.order))

    def make_head(self, targets: np.ndarray) -> OrdinalHead:
        """Returns the head of the grades."""
        return OrdinalHead(len(self.classes))

    def encode(self, labels: Sequence[Any]) -> np.ndarray:
        """Returns the position of each label among the grades: int [n]."""
        place = {label: number for number, label in enumerate(self.classes)}
        return np.array([place[label] for label in labels], np.int32)

    @property
    def columns(self) -> tuple[Label, ...]:
        """The name of the single logit."""
        return ("score",)

    def decide(self, readings: Readings) -> np.ndarray:
        """Returns the median of the distribution of the grades of each text: int [n]."""
        # The median has a smaller mean distance than the most probable grade.
        above = 1 - np.cumsum(readings.probabilities, 1)[:, :-1]
        return (above > 0.5).sum(1)

    def measure(
        self, targets: np.ndarray, readings: Readings, unknown: Sequence[Label] = ()
    ) -> Json:
        """Returns the dict of `ordinal_metrics`."""
        return ordinal_metrics(targets, self.decide(readings), self.classes)

    def allow_loss(self, scores: Json, metric: str) -> float:
        """Returns a hundredth of a grade, or the standard error of the MAE."""
        return max(2 * LEAST_LOSS, scores["mae_error"])

    def predict(self, readings: Readings, row: int, open_words: list[str], note: str) -> Prediction:
        """Returns the predicted grade with its probability."""
        grade = int(self.decide(_select(readings, row))[0])
        share = float(np.mean(readings.is_open[row]))
        probability = float(readings.probabilities[row, grade])
        return Prediction(self.classes[grade], probability, open_words, share, note)

    def rank_columns(self, readings: Readings, row: int) -> list[int]:
        """Returns the single column."""
        return [0]

    def measure_effect(self, parts: np.ndarray, columns: Sequence[int]) -> float:
        """Returns the absolute share in the score."""
        return abs(float(parts[0]))

    def render_prediction(self, readings: Readings, row: int) -> str:
        """Returns the predicted grade, and the probabilities of all grades in their order."""
        grade = int(self.decide(_select(readings, row))[0])
        shares = _list_shares(self, readings, row, range(min(len(self.classes), _SHOWN)))
        return f"{self.classes[grade]} (of {shares})"

    def render_rule(self, bias: np.ndarray) -> str:
        """Returns the thresholds between the grades."""
        steps = [
            f"{grade} above {threshold:+.3f}"
            for grade, threshold in zip(self.classes[1:], bias.tolist(), strict=True)
        ]
        shown = ", ".join(steps[:_SHOWN]) + ", ..." * (len(steps) > _SHOWN)
        return f"The grade is {self.classes[0]}, or {shown} of the sum; the parts are exact."

    def group_words(self, weights: np.ndarray) -> tuple[tuple[Label, ...], np.ndarray]:
        """Returns the words that lower and the words that raise the grade."""
        return _SIDES, np.concatenate([-weights, weights], 1)

    def name_groups(self, targets: np.ndarray) -> list[Any]:
        """Returns for each text the side of the median on which its grade is."""
        middle = np.median(targets)
        return [
            frozenset(itertools.compress(_SIDES, (value <= middle, value >= middle)))
            for value in targets.tolist()
        ]


_SIDES: tuple[Label, ...] = ("lower", "higher")
TARGET_OF: dict[str, type[Target]] = {
    target.kind: target for target in (ClassTarget, LabelTarget, RealTarget, OrdinalTarget)
}
"""The targets by the kind of the model folder."""


class LabelSets:
    """A table that numbers tuples of labels as they come.

        >>> sets = LabelSets(None)
        >>> [sets.place(labels, "a.txt", 1) for labels in (("a", "b"), (), ("b", "a"))]
        [0, 1, 0]

    Args:
      labels: the labels of the model, with which the labels are compared; None for training texts.

    Attributes:
      places: a dict from each tuple of labels to its number.
    """

    def __init__(self, labels: Sequence[Label] | None) -> None:
        self._labels = Classes("label", labels)
        self._is_complete = labels is not None
        self._numbers: dict[frozenset[Label], int] = {}
        self.places: dict[tuple[Label, ...], int] = {}

    def place(self, labels: tuple[Label, ...], where: str, line: int) -> int:
        """Returns the number of a tuple of labels in any order.

        Raises:
          ValueError: if a label only looks like another label, see `Classes`.
        """
        for label in labels:
            if self._is_complete:
                self._labels.find(label, where, line)
            else:
                self._labels.place(label, where, line)
        # The order of the labels in a line has no meaning.
        key = frozenset(labels)
        if key not in self._numbers:
            self._numbers[key] = self.places[labels] = len(self._numbers)
        return self._numbers[key]


class Values:
    """A table that numbers the different numbers of a source as they come.

    Attributes:
      places: a dict from each number to its position.
    """

    def __init__(self) -> None:
        self.places: dict[float, int] = {}

    def place(self, value: float, where: str, line: int) -> int:
        """Returns the position of a number."""
        return self.places.setdefault(value, len(self.places))


def _standard_error(share: float, count: float) -> float:
    return float((share * (1 - share) / count) ** 0.5)


def _select(readings: Readings, row: int) -> Readings:
    """Returns the probabilities and logits of a text, as readings of a single text."""
    part = slice(row, row + 1)
    return readings._replace(
        probabilities=readings.probabilities[part], logits=readings.logits[part]
    )


def _list_shares(target: Target, readings: Readings, row: int, places: Sequence[int]) -> str:
    return ", ".join(f"{target.classes[i]} {readings.probabilities[row, i]:.3f}" for i in places)


def _list_probabilities(target: Target, readings: Readings, row: int, places: Sequence[int]) -> str:
    best = places[0]
    shares = _list_shares(target, readings, row, places)
    return f"{target.classes[best]} {readings.probabilities[row, best]:.3f} (of {shares})"


def _sort_key(label: Label) -> tuple[bool, Any]:
    """Returns a key that sorts numbers by value, and then texts."""
    return (True, label) if isinstance(label, str) else (False, label)


def _find_thresholds(threshold: Any, classes: Sequence[Label]) -> dict[int, float]:
    """Returns the thresholds by the position of the class; a single number is for all classes."""
    if not isinstance(threshold, Mapping):
        return dict.fromkeys(range(len(classes)), float(threshold))
    # A command line has only texts, and the labels of a file may be numbers.
    by_text = {str(label): number for number, label in enumerate(classes)}
    thresholds = {}
    for label, value in threshold.items():
        if str(label) not in by_text:
            names = ", ".join(map(repr, list(by_text)[:_SHOWN]))
            raise ValueError(f"threshold must name labels of the texts ({names}), got {label!r}")
        thresholds[by_text[str(label)]] = float(value)
    return thresholds


def _order_grades(labels: Sequence[Label], order: Sequence[Label] | None) -> tuple[Label, ...]:
    """Returns the labels in the order of their numbers, or of the names in `order`."""
    if order is None:
        try:
            numbers = [float(label) for label in labels]
        except (ValueError, OverflowError):
            numbers = []
        # Two spellings of a number, such as "1" and "1.0", would be two grades without an order.
        if len(set(numbers)) < len(labels):
            names = ",".join(str(label) for label in labels[:_SHOWN])
            raise ValueError(
                f"grades must be different numbers, or need an order, got {names}: give the "
                "grades from the lowest to the highest, as order low,mid,high"
            )
        return tuple(label for _, label in sorted(zip(numbers, labels, strict=True)))
    by_text = {str(label): label for label in labels}
    ordered = [str(name) for name in order]
    if sorted(ordered) != sorted(by_text):
        raise ValueError(
            f"order must have each label of the texts once ({', '.join(sorted(by_text)[:20])}), "
            f"got {', '.join(ordered[:20])}"
        )
    return tuple(by_text[name] for name in ordered)
