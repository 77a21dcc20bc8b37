"""The base class of the targets of a lexicon, and the functions that several targets share.

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
from gatedjax.lexicon import Head, Readings
from gatedjax.text._calibration import choose_head_temperature
from gatedjax.text._labels import Classes
from gatedjax.text._prediction import LabelsPrediction, Prediction, ValuePrediction
from gatedjax.text._table import Label

LEAST_LOSS = 0.005
"""A stage may be this much worse than the best in accuracy or F1, or more if the standard error is
larger."""
MOST_SHOWN = 8
"""Largest number of classes, labels or grades in a sentence."""
SIDES: tuple[Label, ...] = ("lower", "higher")
"""The groups of the open words of a number or a grade."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """The options of a target, see the fields of `TextOptions` with the same names."""

    threshold: Any = None  # a number in (0, 1), a dict from labels to numbers, or None
    order: Sequence[Label] | None = None  # of the grades, the lowest first; None: by their numbers
    min_class: int = 1  # texts below which a label is left out
    has_columns: bool = False  # True if the labels are columns of an array


@dataclasses.dataclass(frozen=True)
class Target(abc.ABC):
    """The target of a lexicon: classes, labels, numbers or grades, each a subclass.

    In all methods `targets` of n texts are an array: the positions of classes or grades, int32 [n],
    from 0; the L labels, bool [n, L], with U more columns for the unknown labels of a source; or
    the numbers, float64 [n]. `readings` has the probabilities, logits and gates of n texts, and
    `row` is the position of a text, from 0. For several labels a "label" of a source is a tuple of
    labels.
    """

    classes: tuple[Label, ...]  # in the order of the probabilities; empty for a number

    kind: ClassVar[str]  # the name of the task
    metrics: ClassVar[Mapping[str, str]]  # name -> title; the first metric chooses the density
    is_error: ClassVar[bool] = False  # True if smaller values of the first metric are better

    @classmethod
    def make_places(cls, model_target: "Target | None") -> Any:
        """Returns a table that numbers the labels of a source by their first occurrence: its method
        `place(label, where, line)` returns the number, and its dict `places` has all numbers.
        `model_target` has the labels to compare with; None for training texts.
        """
        return Classes("label", None if model_target is None else model_target.classes)

    @classmethod
    @abc.abstractmethod
    def of_labels(
        cls, labels: Sequence[Any], counts: Sequence[int], options: TargetOptions
    ) -> "Target":
        """Returns the target of training texts with these different labels and their counts."""

    @abc.abstractmethod
    def make_head(self, targets: np.ndarray, sample_weight: np.ndarray | None = None) -> Head:
        """Returns the head, the loss and the link function, for the targets of training texts."""

    @abc.abstractmethod
    def encode(self, labels: Sequence[Any]) -> np.ndarray:
        """Returns the targets of texts with these labels."""

    def find_unknown(self, labels: Sequence[Any]) -> list[Label]:
        """Returns the labels that the model does not have, in the order of the columns of `encode`.
        Only the task of several labels accepts them.
        """
        return []

    def stratify(self, targets: np.ndarray) -> tuple[np.ndarray, tuple[Label, ...]]:
        """Returns the stratum of each text, int32 [n], and the names of the strata."""
        return targets.astype(np.int32), self.classes

    def list_single(self, targets: np.ndarray) -> list[Label]:
        """Returns the labels that a single training text has, if a text may have several labels."""
        return []

    def render_source(self, targets: np.ndarray) -> str | None:
        """Returns a sentence about the targets of a source, or None for the counts of classes."""
        return None

    @property
    def columns(self) -> tuple[Label, ...]:
        """The names of the logits of a text, in their order: the classes or labels."""
        return self.classes

    @abc.abstractmethod
    def decide(self, readings: Readings) -> np.ndarray:
        """Returns the prediction for each of n texts, in the form of the targets."""

    @abc.abstractmethod
    def measure(
        self,
        targets: np.ndarray,
        readings: Readings,
        unknown: Sequence[Label] = (),
        sample_weight: np.ndarray | None = None,
    ) -> Json:
        """Returns a dict of metrics: n, the names in `metrics`, and details. `unknown` has the
        names of the U unknown labels.
        """

    def choose_temperature(
        self,
        head: Head,
        bias: np.ndarray,
        readings: Readings,
        targets: np.ndarray,
        sample_weight: np.ndarray | None = None,
    ) -> tuple[float, float]:
        """Returns the number by which the logits are divided, and the number that validation texts
        fit. The first is 1 if the second does not reduce the loss by more than the standard error.
        """
        return choose_head_temperature(head, readings.logits, bias, targets, sample_weight)

    def choose_decision(
        self, readings: Readings, targets: np.ndarray, sample_weight: np.ndarray | None = None
    ) -> "Target":
        """Returns a copy of the target with decisions that are chosen on validation texts."""
        return self

    @classmethod
    def choose_metric(cls, best_metric: str) -> str:
        """Returns the name of the metric, a key of `metrics`, that chooses the density."""
        return next(iter(cls.metrics))

    def allow_loss(self, scores: Json, metric: str) -> float:
        """Returns the largest loss against the best stage that the chosen stage may have."""
        return allow_points(scores[metric], count_texts(scores))

    def with_threshold(self, threshold: Any) -> "Target":
        """Returns a copy of the target with thresholds of the user."""
        raise ValueError(
            f"threshold must be left out for the task {self.kind!r}, got {threshold!r}"
        )

    def get_threshold(self) -> dict[Label, float] | None:
        """Returns the thresholds of the user, from labels to numbers, or None if there are none."""
        return None

    def decision_to_json(self) -> Json:
        """Returns the thresholds as a dict for config.json, or {} if the target has none."""
        return {}

    def with_decision(self, value: Json) -> "Target":
        """Returns a copy of the target with the thresholds in `value`."""
        return self

    @abc.abstractmethod
    def predict(
        self, readings: Readings, row: int, words: Sequence[str]
    ) -> Prediction | LabelsPrediction | ValuePrediction:
        """Returns the prediction for a text."""

    @abc.abstractmethod
    def rank_columns(self, readings: Readings, row: int) -> list[int]:
        """Returns the positions of the logits that an explanation shows, the predicted first."""

    @abc.abstractmethod
    def measure_effect(self, parts: np.ndarray, columns: Sequence[int]) -> float:
        """Returns the size of the effect of a word, by which the reasons are sorted."""

    @abc.abstractmethod
    def render_prediction(self, readings: Readings, row: int) -> str:
        """Returns the first line of the explanation of a text, with the prediction."""

    @abc.abstractmethod
    def render_rule(self, bias: np.ndarray) -> str:
        """Returns the sentence by which the prediction follows from the sums of the shares."""

    def group_words(self, weights: np.ndarray) -> tuple[tuple[Label, ...], np.ndarray]:
        """Returns the groups in which open words are listed, and the weights of the words."""
        return self.classes, weights

    def name_groups(self, targets: np.ndarray) -> list[Any]:
        """Returns for each text the names of the groups of words of which it has examples."""
        return [self.classes[i] for i in targets.tolist()]


class ScoreTarget(Target):
    """The base class of targets with a single logit: a number, or the score that gives a grade. A
    larger logit means a larger number or a higher grade.
    """

    is_error: ClassVar[bool] = True

    def rank_columns(self, readings: Readings, row: int) -> list[int]:
        """Returns [0], the position of the single logit; `readings` and `row` are not used."""
        return [0]

    def measure_effect(self, parts: np.ndarray, columns: Sequence[int]) -> float:
        """Returns the absolute value of `parts`, [1], the share of a word in the logit."""
        return abs(float(parts[0]))

    def group_words(self, weights: np.ndarray) -> tuple[tuple[Label, ...], np.ndarray]:
        """Returns ("lower", "higher") and the weight of each word in these two groups: [D, 2]."""
        return SIDES, np.concatenate([-weights, weights], 1)

    def name_groups(self, targets: np.ndarray) -> list[Any]:
        """Returns for each text a frozenset of "lower", "higher" or, at the median, both."""
        middle = np.median(targets)
        return [
            frozenset(itertools.compress(SIDES, (value <= middle, value >= middle)))
            for value in targets.tolist()
        ]


def count_texts(scores: Json) -> float:
    """Returns the number of texts of a dict of `measure`, or that of `count_effective`."""
    return scores["effective_n"] if "effective_n" in scores else scores["n"]


def allow_points(best: float, count: float) -> float:
    """Returns half a point, 0.005, or the standard error of a share if it is larger."""
    return max(LEAST_LOSS, _standard_error(best, count))


def _standard_error(share: float, count: float) -> float:
    return float((share * (1 - share) / count) ** 0.5)


def describe_reading(readings: Readings, row: int, words: Sequence[str]) -> Json:
    """Returns the arguments that the predictions of all targets have in common."""
    is_open = readings.is_open[row]
    return {
        "kept": list(itertools.compress(words, is_open.tolist())),
        "density": float(is_open.sum() / max(len(is_open), 1)),
        "note": readings.notes[row],
        "unknown": list(itertools.compress(words, (~readings.is_known[row]).tolist())),
    }


def predict_class(target: Target, readings: Readings, row: int, words: Sequence[str]) -> Prediction:
    """Returns the predicted class or grade of a text, with the most probable class if it is
    another.
    """
    probabilities = readings.probabilities[row]
    predicted = int(target.decide(readings.take(row))[0])
    best = int(probabilities.argmax())
    return Prediction(
        target.classes[predicted],
        float(probabilities[predicted]),
        **describe_reading(readings, row, words),
        most_probable=(
            None if best == predicted else (target.classes[best], float(probabilities[best]))
        ),
    )


def list_shares(target: Target, readings: Readings, row: int, places: Sequence[int]) -> str:
    """Returns the names and probabilities of classes as text, such as "a 0.700, b 0.200"."""
    return ", ".join(f"{target.classes[i]} {readings.probabilities[row, i]:.3f}" for i in places)


def list_probabilities(target: Target, readings: Readings, row: int, places: Sequence[int]) -> str:
    """Returns the first class with its probability, and `list_shares` of all classes."""
    best = places[0]
    shares = list_shares(target, readings, row, places)
    return f"{target.classes[best]} {readings.probabilities[row, best]:.3f} (of {shares})"


def sort_key(label: Label) -> tuple[bool, Any]:
    """Returns a key of `label` for `sorted`: numbers by value come first, then texts."""
    return (True, label) if isinstance(label, str) else (False, label)


def find_thresholds(threshold: Any, classes: Sequence[Label]) -> dict[int, float]:
    """Returns a dict from the position of each class with a threshold, from 0, to the threshold."""
    if not isinstance(threshold, Mapping):
        return dict.fromkeys(range(len(classes)), float(threshold))
    # A command line has only texts, and the labels of a file may be numbers.
    by_text = {str(label): number for number, label in enumerate(classes)}
    thresholds = {}
    for label, value in threshold.items():
        if str(label) not in by_text:
            names = ", ".join(map(repr, list(by_text)[:MOST_SHOWN]))
            raise ValueError(f"threshold must name labels of the texts ({names}), got {label!r}")
        thresholds[by_text[str(label)]] = float(value)
    return thresholds
