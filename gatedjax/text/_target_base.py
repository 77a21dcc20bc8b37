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
    """The options of a target, see the fields of `TextOptions` with the same names.

    Attributes:
      threshold: the least probability at which a label is predicted: a number in (0, 1) for all
        labels, a dict from labels to numbers, or None for the default.
      order: the grades from the lowest to the highest; None means the order of their numbers.
      min_class: the number of texts below which a label is left out.
      has_columns: True if the labels are the numbers or names of the columns of an array.
    """

    threshold: Any = None
    order: Sequence[Label] | None = None
    min_class: int = 1
    has_columns: bool = False


@dataclasses.dataclass(frozen=True)
class Target(abc.ABC):
    """The target of a lexicon: classes, labels, numbers or grades, each a subclass.

    A target has the names of the outputs and computes decisions, metrics and predictions.
    The targets of n texts are an array: the positions of the classes or grades, int32 [n], from 0;
    the L labels, bool [n, L]; or the numbers, float64 [n]. The "readings" of texts, a
    `lexicon.Readings`, have the probabilities, logits and gates that the lexicon computes for them.

    Attributes:
      classes: the classes, labels or grades, in the order of the probabilities; empty for a number.
      kind: the name of the task in the model folder: "text" (a class), "labels", "regression" or
        "ordinal".
      metrics: a dict from the name of each metric of the report to its title, such as {"mae":
        "MAE"}. The first metric chooses the density, the share of open words.
      is_error: True if smaller values of the first metric are better.
    """

    classes: tuple[Label, ...]

    kind: ClassVar[str]
    metrics: ClassVar[Mapping[str, str]]
    is_error: ClassVar[bool] = False

    @classmethod
    def make_places(cls, model_target: "Target | None") -> Any:
        """Returns a table that numbers the labels of a source by their first occurrence.

        It has a method `place(label, where, line)`, which returns the number of a label, from 0,
        and an attribute `places`, a dict from labels to numbers. `Classes`, `LabelSets` and
        `Values` are such tables.

        Args:
          model_target: the target of the model, which has the labels that are compared with the
            labels of the source; None for the training texts, which define the labels.
        """
        return Classes("label", None if model_target is None else model_target.classes)

    @classmethod
    @abc.abstractmethod
    def of_labels(
        cls, labels: Sequence[Any], counts: Sequence[int], options: TargetOptions
    ) -> "Target":
        """Returns the target of training texts.

        Args:
          labels: the different labels of the texts; for the task "labels" the different tuples of
            labels, for "regression" numbers.
          counts: the number of texts with each of them, in the same order.
          options: the thresholds, the order of grades and the least number of texts of a label.

        Raises:
          ValueError: if the labels are no targets of this kind, such as grades without an order.
        """

    @abc.abstractmethod
    def make_head(self, targets: np.ndarray, sample_weight: np.ndarray | None = None) -> Head:
        """Returns the head, the loss and the link function, for training texts with these targets.

        `targets` are the targets of n texts, as `encode` returns them: int [n] of classes or
        grades, bool [n, L] of L labels, or float [n] of numbers. `sample_weight`, [n], are the
        weights of the texts, which count in the unit of numbers; None is 1.
        """

    @abc.abstractmethod
    def encode(self, labels: Sequence[Any]) -> np.ndarray:
        """Returns the targets of labels as an array with a row for each of the n labels.

        `labels` has a class, a grade or a number for each row, or for the task "labels" a tuple of
        labels. The result is int32 [n] of positions in `classes`, float64 [n] of numbers, or bool
        [n, L + U], True where a text has a label: the L labels of the model, then U unknown labels.
        """

    def find_unknown(self, labels: Sequence[Any]) -> list[Label]:
        """Returns the labels that the model does not have, in the order of the columns of `encode`.

        `labels` has a tuple of labels for each text. Only the task "labels" accepts unknown labels;
        the result of other tasks is [].
        """
        return []

    def stratify(self, targets: np.ndarray) -> tuple[np.ndarray, tuple[Label, ...]]:
        """Returns the stratum of each text, int32 [n], and the names of the strata.

        The texts are split into training and validation in proportion to the strata. `targets` are
        the targets of the n texts, as `encode` returns them: int [n] of classes or grades, bool [n,
        L] of L labels, or float [n] of numbers.
        """
        return targets.astype(np.int32), self.classes

    def list_single(self, targets: np.ndarray) -> list[Label]:
        """Returns the labels that a single training text has, if a text may have several labels.

        `targets`, bool [n, L], are the L labels of n texts. The result of other tasks is [].
        """
        return []

    def render_source(self, targets: np.ndarray) -> str | None:
        """Returns a sentence about the targets of a source, or None for the counts of classes.

        `targets` are the targets of the n texts of the source, as `encode` returns them: int [n] of
        classes or grades, bool [n, L + U] of L labels of the model and U unknown labels, or float
        [n] of numbers.
        """
        return None

    @property
    def columns(self) -> tuple[Label, ...]:
        """The names of the logits of a text, in their order: the classes or labels.

        A number or a grade has a single logit, with the name "value" or "score".
        """
        return self.classes

    @abc.abstractmethod
    def decide(self, readings: Readings) -> np.ndarray:
        """Returns the prediction for each of n texts, in the form of the targets.

        These are positions of classes or grades, int [n], L labels, bool [n, L], or numbers,
        float64 [n]. `readings` has the probabilities and logits of the texts.
        """

    @abc.abstractmethod
    def measure(
        self,
        targets: np.ndarray,
        readings: Readings,
        unknown: Sequence[Label] = (),
        sample_weight: np.ndarray | None = None,
    ) -> Json:
        """Returns a dict of the metrics of the predictions for texts.

        It has "n", the number of texts, the names in `metrics`, and details such as "confusion".

        Args:
          targets: the targets of n texts, as `encode` returns them: int [n] of classes or grades,
            bool [n, L + U] of L labels of the model and U unknown labels, or float [n] of numbers.
          readings: the probabilities and logits of the texts.
          unknown: the names of the U unknown labels; () for the remaining tasks.
          sample_weight: [n], the weight of each text in the metrics; None is 1.
        """

    def choose_temperature(
        self,
        head: Head,
        bias: np.ndarray,
        readings: Readings,
        targets: np.ndarray,
        sample_weight: np.ndarray | None = None,
    ) -> tuple[float, float]:
        """Chooses the number by which the logits are divided, on validation texts.

        Args:
          head: the head of the lexicon.
          bias: its biases: [L] for L labels, [1] for a number, or for G grades their G - 1
            thresholds.
          readings: the probabilities and logits of the texts at the temperature 1.
          targets: the targets of n texts, as `encode` returns them: int [n] of classes or grades,
            bool [n, L + U] of L labels of the model and U unknown labels, or float [n] of numbers.
          sample_weight: [n], the weight of each text; None is 1.

        Returns:
          The temperature to use, and the fitted temperature. The first is 1 if the fitted
          temperature does not reduce the loss by more than the standard error.
        """
        return choose_head_temperature(head, readings.logits, bias, targets, sample_weight)

    def choose_decision(
        self, readings: Readings, targets: np.ndarray, sample_weight: np.ndarray | None = None
    ) -> "Target":
        """Returns a copy of the target with decisions that are chosen on validation texts.

        `readings` has the probabilities of the n texts, and `targets` are their targets, for labels
        bool [n, L + U] of L labels of the model and U unknown labels. `sample_weight`, [n], are the
        weights of the texts, or None. Only a target of labels has decisions to choose, its
        thresholds; other targets return themselves.
        """
        return self

    @classmethod
    def choose_metric(cls, best_metric: str) -> str:
        """Returns the name of the metric, a key of `metrics`, that chooses the density.

        `best_metric` is the option of training, "accuracy" or "macro_f1". The task "text" uses it,
        and "labels" the F1 that corresponds to it; other tasks always use their first metric.
        """
        return next(iter(cls.metrics))

    def allow_loss(self, scores: Json, metric: str) -> float:
        """Returns the largest loss against the best stage that the chosen stage may have.

        A stage is the lexicon of a density, the share of open words; the smallest density is chosen
        with a metric that is worse by at most this loss.

        Args:
          scores: the dict of `measure` for the best stage.
          metric: the name of the metric that chooses the density, a key of `metrics`.
        """
        return allow_points(scores[metric], count_texts(scores))

    def with_threshold(self, threshold: Any) -> "Target":
        """Returns a copy of the target with thresholds of the user.

        A threshold is the least probability at which a label is predicted.

        Args:
          threshold: a number in (0, 1), or a dict from labels to numbers.

        Raises:
          ValueError: if the target has no thresholds, or does not have a label.
        """
        raise ValueError(
            f"threshold must be left out for the task {self.kind!r}, got {threshold!r}"
        )

    def get_threshold(self) -> dict[Label, float] | None:
        """Returns the thresholds of the user, from labels to numbers, or None if there are none.

        They are the argument `threshold` of a training that would have the same thresholds.
        """
        return None

    def decision_to_json(self) -> Json:
        """Returns the thresholds as a dict for config.json, or {} if the target has none.

        The dict is {"positive": position, "threshold": number} for a class. For labels it has
        "thresholds", a list with a number for each label, "is_fixed", True if the user has given
        them, and "left_out" if training has left out labels.
        """
        return {}

    def with_decision(self, value: Json) -> "Target":
        """Returns a copy of the target with the thresholds in `value`.

        `value` is a dict that `decision_to_json` returned, read from config.json: for two classes
        "positive" and "threshold", for labels "thresholds", "is_fixed" and "left_out". A target
        without thresholds ignores it and returns itself.

        Raises:
          ValueError: if the thresholds do not fit the classes of the target.
        """
        return self

    @abc.abstractmethod
    def predict(
        self, readings: Readings, row: int, open_words: list[str], note: str
    ) -> Prediction | LabelsPrediction | ValuePrediction:
        """Returns the prediction for a text.

        It is a `Prediction` for a class or a grade, a `LabelsPrediction` for several labels, and a
        `ValuePrediction` for a number.

        Args:
          readings: the probabilities, logits and gates of n texts.
          row: the position of the text, from 0.
          open_words: the words of the text with an open gate, in their order.
          note: a remark about the text that the prediction carries, or "".
        """

    @abc.abstractmethod
    def rank_columns(self, readings: Readings, row: int) -> list[int]:
        """Returns the positions of the logits that an explanation shows, in its order.

        `readings` has the probabilities and logits of n texts, and `row` is the position of the
        text, from 0. Predicted classes or labels come first.
        """

    @abc.abstractmethod
    def measure_effect(self, parts: np.ndarray, columns: Sequence[int]) -> float:
        """Returns the size of the effect of a word, by which the reasons are sorted.

        Args:
          parts: [C], the share of the word in the C logits.
          columns: the positions of the logits that the explanation shows, from 0, as `rank_columns`
            returns them.
        """

    @abc.abstractmethod
    def render_prediction(self, readings: Readings, row: int) -> str:
        """Returns the first line of the explanation of a text, with the prediction.

        `readings` has the probabilities and logits of n texts, and `row` is the position of the
        text, from 0.
        """

    @abc.abstractmethod
    def render_rule(self, bias: np.ndarray) -> str:
        """Returns the sentence by which the prediction follows from the sums of the shares.

        The shares are the numbers that the open words and the bias add to each logit.

        Args:
          bias: the biases of the lexicon, divided by the temperature of its probabilities: a number
            for each class or label (for two classes a single one), for each threshold between
            grades, or for the real number.
        """

    def group_words(self, weights: np.ndarray) -> tuple[tuple[Label, ...], np.ndarray]:
        """Returns the groups in which open words are listed, and the weights of the words.

        Args:
          weights: [D, C], the share of each of D words in the C logits.

        Returns:
          The names of the G groups: the classes or labels, or ("lower", "higher") for numbers and
          grades; and the weights, [D, G].
        """
        return self.classes, weights

    def name_groups(self, targets: np.ndarray) -> list[Any]:
        """Returns for each text the names of the groups of words of which it has examples.

        `group_words` returns the groups: classes or labels, or "lower" and "higher".

        `targets` are the targets of n texts, as `encode` returns them: int [n] of classes or
        grades, bool [n, L + U] of L labels of the model and U unknown labels, or float [n] of
        numbers. The result has the class of each text, or a frozenset of the names of groups if a
        text may belong to several.
        """
        return [self.classes[i] for i in targets.tolist()]


class ScoreTarget(Target):
    """The base class of targets with a single logit: a number, or the score that gives a grade.

    A larger logit means a larger number or a higher grade, so that a word lowers or raises it.
    """

    is_error: ClassVar[bool] = True

    def rank_columns(self, readings: Readings, row: int) -> list[int]:
        """Returns [0], the position of the single logit; `readings` and `row` are not used."""
        return [0]

    def measure_effect(self, parts: np.ndarray, columns: Sequence[int]) -> float:
        """Returns the absolute value of `parts`, [1], the share of a word in the logit.

        `columns` is not used.
        """
        return abs(float(parts[0]))

    def group_words(self, weights: np.ndarray) -> tuple[tuple[Label, ...], np.ndarray]:
        """Returns ("lower", "higher") and the weight of each word in these two groups: [D, 2].

        `weights`, [D, 1], are the shares of D words in the logit; a group of words lowers it, and
        the other raises it.
        """
        return SIDES, np.concatenate([-weights, weights], 1)

    def name_groups(self, targets: np.ndarray) -> list[Any]:
        """Returns for each text a frozenset of "lower", "higher" or both.

        `targets`, [n], are the numbers, float64, or the grades from 0, int. A target at most the
        median is lower, a target at least the median higher, and the median itself is both.
        """
        middle = np.median(targets)
        return [
            frozenset(itertools.compress(SIDES, (value <= middle, value >= middle)))
            for value in targets.tolist()
        ]


def count_texts(scores: Json) -> float:
    """Returns the number of texts of a dict of `measure`, or that of `count_effective`."""
    return scores["effective_n"] if "effective_n" in scores else scores["n"]


def allow_points(best: float, count: float) -> float:
    """Returns half a point, 0.005, or the standard error of a share if it is larger.

    Args:
      best: the share of right decisions of the best stage, in [0, 1].
      count: the number of decisions.
    """
    return max(LEAST_LOSS, _standard_error(best, count))


def _standard_error(share: float, count: float) -> float:
    """Returns the standard error of a share in [0, 1] that was observed in `count` cases."""
    return float((share * (1 - share) / count) ** 0.5)


def select_text(readings: Readings, row: int) -> Readings:
    """Returns the readings with the probabilities and logits of a single text only.

    `readings` has these arrays with a row for each of n texts, and `row` is the position of the
    text, from 0. In the result they have a single row; its gates and flags still belong to all
    texts.
    """
    part = slice(row, row + 1)
    return readings._replace(
        probabilities=readings.probabilities[part], logits=readings.logits[part]
    )


def predict_class(
    target: Target, readings: Readings, row: int, open_words: list[str], note: str
) -> Prediction:
    """Returns the class or grade that `target` predicts for a text, as a `Prediction`.

    The prediction also has the most probable class if it is another class.

    Args:
      target: the classes or grades, and the rule that predicts them.
      readings: the probabilities, logits and gates of n texts.
      row: the position of the text, from 0.
      open_words: the words of the text with an open gate, in their order.
      note: a remark about the text, or "".
    """
    probabilities = readings.probabilities[row]
    predicted = int(target.decide(select_text(readings, row))[0])
    best = int(probabilities.argmax())
    return Prediction(
        target.classes[predicted],
        float(probabilities[predicted]),
        open_words,
        float(np.mean(readings.is_open[row])),
        note,
        most_probable=(
            None if best == predicted else (target.classes[best], float(probabilities[best]))
        ),
    )


def list_shares(target: Target, readings: Readings, row: int, places: Sequence[int]) -> str:
    """Returns the names and probabilities of classes as text, such as "a 0.700, b 0.200".

    `readings` has the probabilities of n texts, `row` is the position of the text, and `places` are
    the positions of the classes in `target`, from 0.
    """
    return ", ".join(f"{target.classes[i]} {readings.probabilities[row, i]:.3f}" for i in places)


def list_probabilities(target: Target, readings: Readings, row: int, places: Sequence[int]) -> str:
    """Returns the first class with its probability, and then all classes of `places` with theirs.

    `readings` has the probabilities of n texts, `row` is the position of the text, and `places` are
    the positions of the classes in `target`, from 0.
    """
    best = places[0]
    shares = list_shares(target, readings, row, places)
    return f"{target.classes[best]} {readings.probabilities[row, best]:.3f} (of {shares})"


def sort_key(label: Label) -> tuple[bool, Any]:
    """Returns a key of `label` for `sorted`: numbers by value come first, then texts."""
    return (True, label) if isinstance(label, str) else (False, label)


def find_thresholds(threshold: Any, classes: Sequence[Label]) -> dict[int, float]:
    """Returns a dict from the position of each class with a threshold, from 0, to the threshold.

    `threshold` is a number for all classes, or a dict from names of `classes` to numbers.

    Raises:
      ValueError: if a name is not that of a class.
    """
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
