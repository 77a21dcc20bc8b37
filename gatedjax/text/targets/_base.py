"""The base class of the targets of a lexicon, and the functions that several targets share."""

import abc
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.lexicon import Head, Readings
from gatedjax.text.answers._prediction import AnyPrediction, Prediction
from gatedjax.text.sources._labels import Classes, Label, read_label

Names = Sequence[Label]
Weights = np.ndarray | None
"""The weights [n] of n texts, or None if all are equal."""


def count_effective(weights: Weights, count: int) -> float:
    """Returns how many equally weighted texts would give a mean with the same standard error: for
    weights w (sum w)^2 / sum w^2, for None the `count` of the texts.

    Reference: Kish 1965.
    """
    return count if weights is None else float(weights.sum() ** 2 / np.square(weights).sum())


def describe_effective(weights: Weights) -> Json:
    """Returns {"effective_n": the number of `count_effective`}, or {} without weights."""
    return {} if weights is None else {"effective_n": count_effective(weights, len(weights))}


def measure_error(values: np.ndarray, weights: Weights) -> float:
    """Returns the standard error of the mean m of values v, sqrt(sum w^2 (v - m)^2) / sum w."""
    weights = np.ones(len(values)) if weights is None else weights
    distances = weights * (values - np.average(values, weights=weights))
    return float(np.sqrt(np.square(distances).sum()) / weights.sum())


def count_pairs(
    true: np.ndarray, predicted: np.ndarray, number: int, weights: Weights
) -> np.ndarray:
    """Returns the confusion matrix of so many classes; its rows are the true classes."""
    # A pair of classes is a number, so that a single count gives the whole matrix.
    cells = np.bincount(true * number + predicted, weights, minlength=number**2)
    return cells.reshape(number, number)


def list_scores(names: Names, scores: Sequence[Any], **counts: Sequence[int]) -> list[Json]:
    """Returns a dict of precision, recall, F1 and counts for each class or label."""
    shares = dict(zip(("precision", "recall", "f1"), scores, strict=False))
    return [
        {
            "label": name,
            **{key: float(values[i]) for key, values in shares.items()},
            **{key: int(values[i]) for key, values in counts.items()},
        }
        for i, name in enumerate(names)
    ]


MOST_SHOWN = 8
"""Largest number of classes, labels or grades in a sentence."""
SIDES: tuple[Label, ...] = ("lower", "higher")
"""The groups of the words of a number or a grade."""


@dataclasses.dataclass(frozen=True)
class Target(abc.ABC):
    """The target of a lexicon: all that differs between classes, labels, numbers and grades outside
    the fit. Its head computes the loss and the probabilities, see `gatedjax.lexicon.Head`.

    In all methods `targets` of n texts are an array: the positions of classes or grades, int32 [n],
    from 0; the L labels, bool [n, L], with U more columns for the unknown labels of a source; or
    the numbers, float64 [n]. `readings` has the probabilities, logits and gates of n texts, and
    `reading` is of a single text. For several labels a "label" of a source is a tuple of labels.
    """

    classes: tuple[Label, ...]  # in the order of the probabilities; empty for a number

    kind: ClassVar[str]  # the name of the task
    metrics: ClassVar[Mapping[str, str]]  # name -> title; the first metric chooses the share
    is_error: ClassVar[bool] = False  # True if smaller values of the first metric are better
    has_classes: ClassVar[bool] = True  # True if a text has a single class or grade
    ranges: ClassVar[str] = (
        "classes"  # the name of the strata, in proportion to which texts are split
    )
    rival: ClassVar[str] = "logistic regression on words"  # see `train_rival`
    constant: ClassVar[str] = "most frequent class"  # the name of `repeat_prior`
    paired: ClassVar[str] = "accuracy"  # the mean of `score_texts`
    answers: ClassVar[str] = "probabilities"  # the name of the outputs in a report

    # reading a source

    @classmethod
    def make_places(cls, model_target: "Target | None") -> Any:
        """Returns a table that numbers the labels of a source by their first occurrence, with the
        method `place(label, where, line)` and the dict `places`. `model_target` has the labels to
        compare with; None for training texts.
        """
        return Classes("label", None if model_target is None else model_target.classes)

    @classmethod
    @abc.abstractmethod
    def of_labels(
        cls, labels: Sequence[Any], counts: Sequence[int], options: Any, has_columns: bool = False
    ) -> "Target":
        """Returns the target of training texts with these different labels and their counts;
        `options` are the `TextOptions`, and `has_columns` is True for the columns of an array.
        """

    def encode(self, labels: Sequence[Any]) -> np.ndarray:
        """Returns the targets of texts with these labels."""
        # The classes of a folder from elsewhere may have spaces around them.
        place = {read_label("label", label): number for number, label in enumerate(self.classes)}
        return np.array([place[label] for label in labels], np.int32)

    def find_unknown(self, labels: Sequence[Any]) -> list[Label]:
        """Returns the labels that the model does not have, in the order of the columns of `encode`.
        Only the task of several labels accepts them.
        """
        return []

    def count_left_out(self, counts: Mapping[Any, int]) -> dict[Label, int]:
        """Returns the labels that training leaves out, with their numbers of texts."""
        # The texts of rare classes are not in the corpus.
        return {}

    def stratify(self, targets: np.ndarray) -> tuple[np.ndarray, tuple[Label, ...]]:
        """Returns the stratum of each text, int32 [n], and the names of the strata."""
        return targets.astype(np.int32), self.classes

    def list_single(self, targets: np.ndarray) -> list[Label]:
        """Returns the labels that a single training text has, if a text may have several labels."""
        return []

    def render_source(self, targets: np.ndarray) -> str | None:
        """Returns a sentence about the targets of a source, or None for the counts of classes."""
        return None

    # fitting and deciding

    @abc.abstractmethod
    def make_head(self, targets: np.ndarray, weights: Weights = None) -> Head:
        """Returns the head, the loss and the link function, for the targets of training texts."""

    @classmethod
    def choose_metric(cls, best_metric: str) -> str:
        """Returns the name of the metric, a key of `metrics`, that chooses the share."""
        if best_metric in cls.metrics and not cls.is_error:
            return best_metric
        return next(iter(cls.metrics))

    def allow_loss(self, scores: Json) -> float:
        """Returns how much worse fewer words may be than all words, whose metrics are given."""
        return 0.01

    @abc.abstractmethod
    def score_texts(self, targets: np.ndarray, readings: Readings) -> np.ndarray:
        """Returns a score of each text, [n]. Their mean is or resembles the first metric."""

    def compare(
        self, targets: np.ndarray, readings: Readings, other: Readings, weights: Weights = None
    ) -> float:
        """Returns the standard error of the difference of two models in the first metric. A text is
        added on which they differ, because few texts without a difference prove nothing.
        """
        weights = np.ones(len(targets)) if weights is None else weights
        scores = [self.score_texts(targets, model) for model in (readings, other)]
        squares = np.square(weights * (scores[0] - scores[1])).sum() + np.square(weights).mean()
        return float(np.sqrt(squares) / weights.sum())

    def choose_decision(
        self, readings: Readings, targets: np.ndarray, weights: Weights = None
    ) -> "Target":
        """Returns a copy of the target with decisions that are chosen on validation texts."""
        return self

    def with_threshold(self, threshold: Any) -> "Target":
        """Returns a copy of the target with thresholds of the user."""
        raise ValueError(
            f"threshold must be left out for the task {self.kind!r}, got {threshold!r}"
        )

    def decision_to_json(self) -> Json:
        """Returns the thresholds as a dict for config.json, or {} if the target has none."""
        return {}

    def with_decision(self, value: Json) -> "Target":
        """Returns a copy of the target with the thresholds in `value`."""
        return self

    @abc.abstractmethod
    def decide(self, readings: Readings) -> np.ndarray:
        """Returns the prediction for each of n texts, in the form of the targets."""

    @abc.abstractmethod
    def measure(
        self, targets: np.ndarray, readings: Readings, unknown: Names = (), weights: Weights = None
    ) -> Json:
        """Returns a dict of metrics for JSON: n, the names in `metrics`, and details. `unknown` has
        the names of the U unknown labels.
        """

    def repeat_prior(self, prior: np.ndarray, count: int) -> Readings:
        """Returns the outputs of a model that predicts the prior of a head for each text."""
        rows = np.tile(prior, (count, 1))
        return Readings.of_outputs(rows, rows)

    # answering

    @property
    def columns(self) -> tuple[Label, ...]:
        """The names of the logits of a text, in their order: the classes or labels."""
        return self.classes

    def predict(self, reading: Readings, words: Sequence[str]) -> AnyPrediction:
        """Returns the prediction for a text: here the predicted class or grade, with the most
        probable class if it is another.
        """
        probabilities = reading.probabilities[0].tolist()
        predicted = int(self.decide(reading)[0])
        best = int(reading.probabilities[0].argmax())
        return Prediction(
            self.classes[predicted],
            probabilities[predicted],
            **describe_reading(reading, words),
            most_probable=(
                None if best == predicted else (self.classes[best], probabilities[best])
            ),
        )

    def rank_columns(self, reading: Readings) -> list[int]:
        """Returns the positions of the logits that an explanation shows, the predicted first."""
        decided = self.decide(reading)[0]
        is_predicted = decided if decided.ndim else np.arange(len(self.classes)) == decided
        # With a threshold the predicted class may have the smaller probability.
        return np.lexsort((-reading.probabilities[0], ~is_predicted)).tolist()

    def measure_effect(self, parts: np.ndarray, columns: Sequence[int]) -> float:
        """Returns the size of the effect of a word, by which the reasons are sorted."""
        return float(np.abs(parts[list(columns)]).max())

    def render_prediction(self, reading: Readings) -> str:
        """Returns the first line of an explanation, or "" for a class and all probabilities."""
        return ""

    @abc.abstractmethod
    def render_rule(self, bias: np.ndarray) -> str:
        """Returns the sentence by which the prediction follows from the sums of the parts."""

    def group_words(self, weights: np.ndarray) -> tuple[tuple[Label, ...], np.ndarray]:
        """Returns the groups in which words are listed, and the weights of the words in them."""
        return self.classes, weights

    def name_groups(self, targets: np.ndarray) -> list[frozenset[Label]]:
        """Returns for each text the names of the groups of words of which it has examples."""
        return [frozenset([self.classes[i]]) for i in targets.tolist()]


class ScoreTarget(Target):
    """The base class of targets with a single logit, larger for larger numbers and grades."""

    is_error: ClassVar[bool] = True

    def rank_columns(self, reading: Readings) -> list[int]:
        return [0]

    def group_words(self, weights: np.ndarray) -> tuple[tuple[Label, ...], np.ndarray]:
        return SIDES, np.concatenate([-weights, weights], 1)

    def name_groups(self, targets: np.ndarray) -> list[frozenset[Label]]:
        # A text at the median has examples of both groups.
        middle = np.median(targets)
        return [
            frozenset(itertools.compress(SIDES, (value <= middle, value >= middle)))
            for value in targets.tolist()
        ]


def describe_reading(reading: Readings, words: Sequence[str]) -> Json:
    """Returns the arguments that the predictions of all targets have in common."""
    is_read = reading.is_read[0]
    return {
        "read": list(itertools.compress(words, is_read.tolist())),
        "share": float(is_read.sum() / max(len(is_read), 1)),
        "note": reading.notes[0],
        "unknown": list(itertools.compress(words, (~reading.is_known[0]).tolist())),
    }


def sort_key(label: Label) -> tuple[bool, Any]:
    """Returns a key of `label` for `sorted`: numbers by value come first, then texts."""
    return isinstance(label, str), label


def find_thresholds(threshold: Any, classes: Names) -> dict[int, float]:
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
