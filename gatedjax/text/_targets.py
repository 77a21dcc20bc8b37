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
      threshold: the least probability at which a label is predicted: a number in (0, 1) for all
        labels, a dict from labels to numbers, or None for the default.
      order: the grades from the lowest to the highest; None means the order of their numbers.
      min_class: the number of texts below which a label is left out.
    """

    threshold: Any = None
    order: Sequence[Label] | None = None
    min_class: int = 1


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
    def make_head(self, targets: np.ndarray) -> Head:
        """Returns the head, the loss and the link function, for training texts with these targets.

        `targets` are the targets of n texts, as `encode` returns them: int [n] of classes or
        grades, bool [n, L] of L labels, or float [n] of numbers.
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
        self, targets: np.ndarray, readings: Readings, unknown: Sequence[Label] = ()
    ) -> Json:
        """Returns a dict of the metrics of the predictions for texts.

        It has "n", the number of texts, the names in `metrics`, and details such as "confusion".

        Args:
          targets: the targets of n texts, as `encode` returns them: int [n] of classes or grades,
            bool [n, L + U] of L labels of the model and U unknown labels, or float [n] of numbers.
          readings: the probabilities and logits of the texts.
          unknown: the names of the U unknown labels; () for the remaining tasks.
        """

    def choose_temperature(
        self, head: Head, bias: np.ndarray, readings: Readings, targets: np.ndarray
    ) -> tuple[float, float]:
        """Chooses the number by which the logits are divided, on validation texts.

        Args:
          head: the head of the lexicon.
          bias: its biases: [L] for L labels, [1] for a number, or for G grades their G - 1
            thresholds.
          readings: the probabilities and logits of the texts at the temperature 1.
          targets: the targets of n texts, as `encode` returns them: int [n] of classes or grades,
            bool [n, L + U] of L labels of the model and U unknown labels, or float [n] of numbers.

        Returns:
          The temperature to use, and the fitted temperature. The first is 1 if the fitted
          temperature does not reduce the loss by more than the standard error.
        """
        return choose_head_temperature(head, readings.logits, bias, targets)

    def choose_decision(self, readings: Readings, targets: np.ndarray) -> "Target":
        """Returns a copy of the target with decisions that are chosen on validation texts.

        `readings` has the probabilities of the n texts, and `targets` are their targets, for labels
        bool [n, L + U] of L labels of the model and U unknown labels. Only a target of labels has
        decisions to choose, its thresholds; other targets return themselves.
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
        return allow_points(scores[metric], scores["n"])

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


@dataclasses.dataclass(frozen=True)
class ClassTarget(Target):
    """The target of a classifier, a class for each text, constructed from the tuple of the classes.

    Attributes:
      positive: for two classes the position of the class that is predicted if its probability is at
        least `threshold`; None predicts the most probable class.
      threshold: the least probability at which the class `positive` is predicted; it has no effect
        if `positive` is None.
    """

    positive: int | None = None
    threshold: float = 0.5

    kind: ClassVar[str] = "text"
    metrics: ClassVar[Mapping[str, str]] = {"accuracy": "accuracy", "macro_f1": "macro F1"}

    @classmethod
    def of_labels(
        cls, labels: Sequence[Any], counts: Sequence[int], options: TargetOptions
    ) -> "ClassTarget":
        """Returns the target with the classes in the order of the corpus.

        `labels` are the different classes, `counts` their numbers of texts, which are not used, and
        the threshold of `options` is for two classes only.
        """
        target = cls(tuple(labels))
        return target if options.threshold is None else target.with_threshold(options.threshold)

    def with_threshold(self, threshold: Any) -> "ClassTarget":
        """Returns a copy of the target with the threshold of one of two classes.

        `threshold` is a dict from the name of the class to its least probability, such as {"spam":
        0.3}.

        Raises:
          ValueError: if there are not two classes, or the dict does not name exactly one of them.
        """
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
        """Returns `best_metric` itself, "accuracy" or "macro_f1"."""
        return best_metric

    def make_head(self, targets: np.ndarray) -> ClassHead:
        """Returns a softmax head with a logit for each class; `targets` are not used."""
        return ClassHead(len(self.classes))

    def encode(self, labels: Sequence[Any]) -> np.ndarray:
        """Returns the position of each of n labels in the classes: int32 [n], from 0."""
        # Models of earlier versions may have classes with spaces around them.
        place = {read_label("label", label): number for number, label in enumerate(self.classes)}
        return np.array([place[label] for label in labels], np.int32)

    def choose_temperature(
        self, head: Head, bias: np.ndarray, readings: Readings, targets: np.ndarray
    ) -> tuple[float, float]:
        """Returns the temperature to use, and the fitted temperature, chosen with smoothed targets.

        `readings` has the probabilities [n, C] of C classes for n validation texts at the
        temperature 1, and `targets`, int [n], are their classes. `head` and `bias` are not used.
        """
        return choose_temperature(readings.probabilities, targets)

    def decide(self, readings: Readings) -> np.ndarray:
        """Returns the position of the predicted class of each of n texts: int [n], from 0.

        `readings` has the probabilities [n, C] of C classes. The most probable class is predicted,
        unless the target has a threshold for a class, `positive`: then this class is predicted if
        its probability is at least the threshold.
        """
        if self.positive is None:
            return readings.probabilities.argmax(1)
        # The threshold itself counts as reached, as for several labels.
        is_positive = readings.probabilities[:, self.positive] >= self.threshold
        return np.where(is_positive, self.positive, 1 - self.positive)

    def measure(
        self, targets: np.ndarray, readings: Readings, unknown: Sequence[Label] = ()
    ) -> Json:
        """Returns the dict of `classification_metrics`, with n, accuracy, macro_f1 and more.

        `targets`, int [n], are the positions of the classes, and `readings` has the probabilities
        of the texts. `unknown` is not used.
        """
        return classification_metrics(
            targets, readings.probabilities, self.classes, self.decide(readings)
        )

    def get_threshold(self) -> dict[Label, float] | None:
        """Returns {class: threshold} for the class with a threshold, or None if there is none."""
        return None if self.positive is None else {self.classes[self.positive]: self.threshold}

    def decision_to_json(self) -> Json:
        """Returns the class with a threshold for config.json, or {} if there is none.

        The dict is {"positive": the position of the class, "threshold": its least probability}.
        """
        if self.positive is None:
            return {}
        return {"positive": self.positive, "threshold": self.threshold}

    def with_decision(self, value: Json) -> "ClassTarget":
        """Returns a copy of the target with the threshold in `value`.

        `value` is {"positive": the position of the class, 0 or 1, "threshold": its least
        probability}; {} returns the target itself.

        Raises:
          ValueError: if the position is not 0 or 1, or there are not two classes.
        """
        if not value:
            return self
        positive, threshold = value["positive"], float(value["threshold"])
        if positive not in (0, 1) or len(self.classes) != 2:
            raise ValueError(f"positive must be 0 or 1 for two classes, got {positive!r}")
        return dataclasses.replace(self, positive=positive, threshold=threshold)

    def predict(self, readings: Readings, row: int, open_words: list[str], note: str) -> Prediction:
        """Returns the predicted class of the text `row`, from 0, with its probability.

        `readings` has the probabilities and gates of n texts, `open_words` are the open words of
        this text, and `note` is a remark about it, or "".
        """
        return _predict_class(self, readings, row, open_words, note)

    def rank_columns(self, readings: Readings, row: int) -> list[int]:
        """Returns the positions of all classes: the predicted class, then by falling probability.

        `readings` has the probabilities and logits of n texts, and `row` is the position of the
        text, from 0.
        """
        best = int(self.decide(_select(readings, row))[0])
        # With a threshold the predicted class may have the smaller probability.
        order = np.argsort(-readings.probabilities[row], kind="stable").tolist()
        return [best, *(i for i in order if i != best)]

    def measure_effect(self, parts: np.ndarray, columns: Sequence[int]) -> float:
        """Returns the absolute share of a word in the predicted class, against the mean.

        `parts`, [C], are the shares of the word in the logits, and `columns` is the result of
        `rank_columns`, with the predicted class first. The mean is that of all C shares.
        """
        return abs(float(parts[columns[0]] - parts.mean()))

    def render_prediction(self, readings: Readings, row: int) -> str:
        """Returns the predicted class and the probabilities of up to eight classes, as a line.

        `readings` has the probabilities and logits of n texts, and `row` is the position of the
        text, from 0.
        """
        return _list_probabilities(self, readings, row, self.rank_columns(readings, row)[:_SHOWN])

    def render_rule(self, bias: np.ndarray) -> str:
        """Returns the sentence of the rule: the class with the largest sum, or the threshold.

        `bias` is not used.
        """
        if self.positive is None:
            return "The class with the largest sum is predicted; the parts are exact."
        return (
            f"{self.classes[self.positive]} is predicted if its probability is at least "
            f"{self.threshold:g}; the parts are exact."
        )


@dataclasses.dataclass(frozen=True)
class LabelTarget(Target):
    """The target of a model that predicts any number of labels for each text.

    Attributes:
      thresholds: for each of the L labels the least probability at which it is predicted.
      is_fixed: True if the user has given the thresholds, so that validation does not choose them.
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
        """Returns a table that numbers the different sets of labels of a source.

        Its method `place(labels, where, line)` returns the number of a tuple of labels, from 0.
        `model_target` is the target of the model, with which new labels are compared: a label that
        only looks like one of its labels is an error. None for the training texts.
        """
        return LabelSets(None if model_target is None else model_target.classes)

    @classmethod
    def of_labels(
        cls, labels: Sequence[Any], counts: Sequence[int], options: TargetOptions
    ) -> "LabelTarget":
        """Returns the target with the sorted labels of all texts.

        Args:
          labels: the different tuples of labels of the texts; a text without a label has ().
          counts: the number of texts with each tuple.
          options: the thresholds, and `min_class`, the number of texts below which a label is left
            out.

        Raises:
          ValueError: if no label has enough texts, or a threshold is for another label.
        """
        totals: dict[Label, int] = {}
        for names, count in zip(labels, counts, strict=True):
            for name in names:
                totals[name] = totals.get(name, 0) + count
        used = {name for name, count in totals.items() if count >= options.min_class}
        if not used:
            raise ValueError(
                f"the texts must have a label, got none with min_class={options.min_class} texts"
            )
        classes = tuple(sorted(used, key=sort_key))
        target = cls(classes, (0.5,) * len(classes), left_out=frozenset(totals.keys() - used))
        return target if options.threshold is None else target.with_threshold(options.threshold)

    def with_threshold(self, threshold: Any) -> "LabelTarget":
        """Returns a copy of the target with fixed thresholds.

        `threshold` is the least probability at which a label is predicted: a number for all labels,
        or a dict from labels to numbers, in which missing labels keep their thresholds.
        """
        by_place = _find_thresholds(threshold, self.classes)
        thresholds = tuple(by_place.get(i, old) for i, old in enumerate(self.thresholds))
        return dataclasses.replace(self, thresholds=thresholds, is_fixed=True)

    @classmethod
    def choose_metric(cls, best_metric: str) -> str:
        """Returns "macro_f1" if `best_metric` is "macro_f1", and "micro_f1" otherwise."""
        return "macro_f1" if best_metric == "macro_f1" else "micro_f1"

    def make_head(self, targets: np.ndarray) -> LabelHead:
        """Returns a head with a sigmoid for each label; `targets` are not used."""
        return LabelHead(len(self.classes))

    def find_unknown(self, labels: Sequence[Any]) -> list[Label]:
        """Returns the labels of texts that the model does not have, by first occurrence.

        `labels` has a tuple of labels for each text. Labels that training has left out are not
        unknown.
        """
        expected = self.left_out.union(self.classes)
        different = dict.fromkeys(name for names in labels for name in names)
        return [name for name in different if name not in expected]

    def encode(self, labels: Sequence[Any]) -> np.ndarray:
        """Returns the labels of n texts as a bool [n, L + U], True where a text has a label.

        `labels` has a tuple of the labels of each text, () for a text without a label. The first L
        columns are the labels of the model, in the order of `classes`; the next U are the unknown
        labels, in the order of `find_unknown`. Labels that training has left out have no column.
        """
        names = [*self.classes, *self.find_unknown(labels)]
        place = {name: number for number, name in enumerate(names)}
        targets = np.zeros((len(labels), len(names)), bool)
        for row, texts_labels in enumerate(labels):
            targets[row, [place[name] for name in texts_labels if name in place]] = True
        return targets

    def stratify(self, targets: np.ndarray) -> tuple[np.ndarray, tuple[Label, ...]]:
        """Returns the rarest label of each text, so that both parts of the split have each label.

        `targets`, bool [n, L], are the L labels of n texts. The result is the position of the
        label, int32 [n], or L for a text without a label, and the names of these L + 1 strata.
        """
        # A stratum for each set of labels would be too small, because most sets are rare.
        counts = targets.sum(0)
        rarity = np.where(targets, counts, len(targets) + 1)
        rarest = np.where(targets.any(1), rarity.argmin(1), len(counts))
        return rarest.astype(np.int32), (*self.classes, "(no label)")

    def list_single(self, targets: np.ndarray) -> list[Label]:
        """Returns the labels that a single training text has.

        `targets`, bool [n, L], are the L labels of n texts.
        """
        return [self.classes[i] for i in np.flatnonzero(targets.sum(0) == 1).tolist()]

    def render_source(self, targets: np.ndarray) -> str:
        """Returns a sentence with the number of texts and of the ten most frequent labels.

        `targets`, bool [n, L + U], are the labels of the texts: L of the model, then U unknown
        labels.
        """
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
        """Returns True at the predicted labels: bool [n, L].

        `readings` has the probabilities [n, L] of L labels for n texts. A label is predicted if its
        probability is at least its threshold.
        """
        return readings.probabilities >= np.array(self.thresholds)

    def measure(
        self, targets: np.ndarray, readings: Readings, unknown: Sequence[Label] = ()
    ) -> Json:
        """Returns the dict of `label_metrics`, with n, micro_f1, macro_f1 and more.

        `targets`, bool [n, L + U], are the labels of n texts: L of the model, then U unknown
        labels, which count as missed. `readings` has the probabilities of the L labels, and
        `unknown` the names of the U unknown labels.
        """
        return label_metrics(targets, self.decide(readings), self.classes, unknown)

    def choose_decision(self, readings: Readings, targets: np.ndarray) -> "LabelTarget":
        """Returns a copy with the thresholds of the largest F1, or itself if they are fixed.

        `readings` has the probabilities [n, L] of L labels for n validation texts, and `targets`,
        bool [n, L + U], are the labels of these texts, of which the last U, unknown labels, are
        ignored.
        """
        if self.is_fixed:
            return self
        # A threshold cannot be chosen for a label that the model does not have.
        targets = targets[:, : len(self.classes)]
        return dataclasses.replace(
            self, thresholds=choose_thresholds(readings.probabilities, targets)
        )

    def allow_loss(self, scores: Json, metric: str) -> float:
        """Returns half a point of F1, 0.005, or the standard error of F1 if it is larger.

        The micro F1 is treated as a share among (2 TP + FP + FN) / 2 decisions. `scores` is the
        dict of `measure` for the best stage, and `metric` is "micro_f1" or "macro_f1".
        """
        count = scores["decisions"] if metric == "micro_f1" else scores["n"]
        return allow_points(scores[metric], max(count, 1))

    def get_threshold(self) -> dict[Label, float] | None:
        """Returns a dict from labels to thresholds if the user has given them, else None."""
        return dict(zip(self.classes, self.thresholds, strict=True)) if self.is_fixed else None

    def decision_to_json(self) -> Json:
        """Returns the thresholds for config.json, a dict with "thresholds" and "is_fixed".

        "thresholds" is a list with the least probability at which each label is predicted, in the
        order of `classes`. "is_fixed" is True if the user has given the thresholds. If training has
        left out labels, "left_out" is their sorted list.
        """
        decision: Json = {"thresholds": list(self.thresholds), "is_fixed": self.is_fixed}
        if self.left_out:
            decision["left_out"] = sorted(self.left_out, key=sort_key)
        return decision

    def with_decision(self, value: Json) -> "LabelTarget":
        """Returns a copy of the target with the thresholds in `value`.

        `value` is the dict of `decision_to_json`: "thresholds" has for each label, in the order of
        `classes`, the least probability at which it is predicted, and "left_out" the labels that
        training has left out. Folders of earlier versions have no "is_fixed" and no "left_out".

        Raises:
          ValueError: if there is not a threshold for each label, or the labels that were left out
            are no list of labels.
        """
        thresholds = tuple(map(float, value["thresholds"]))
        if len(thresholds) != len(self.classes):
            raise ValueError(
                f"thresholds must have {len(self.classes)} numbers, got {len(thresholds)}"
            )
        left_out = value.get("left_out", [])
        if not isinstance(left_out, list) or not all(
            isinstance(label, str | int | float) for label in left_out
        ):
            raise ValueError(f"left_out must be a list of labels, got {left_out!r:.80}")
        is_fixed = value.get("is_fixed", False)
        if not isinstance(is_fixed, bool):
            raise ValueError(f"is_fixed must be true or false, got {is_fixed!r}")
        return dataclasses.replace(
            self, thresholds=thresholds, is_fixed=is_fixed, left_out=frozenset(left_out)
        )

    def predict(
        self, readings: Readings, row: int, open_words: list[str], note: str
    ) -> LabelsPrediction:
        """Returns the predicted labels of the text `row`, from 0, with their probabilities.

        The most probable label is first. `readings` has the probabilities and gates of n texts,
        `open_words` are the open words of this text, and `note` is a remark about it, or "".
        """
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
        """Returns the positions of all labels: the predicted labels, then the rest.

        `readings` has the probabilities and logits of n texts, and `row` is the position of the
        text, from 0. Both parts are sorted by falling probability.
        """
        probabilities = readings.probabilities[row]
        is_predicted = probabilities >= np.array(self.thresholds)
        return np.lexsort((-probabilities, ~is_predicted)).tolist()

    def measure_effect(self, parts: np.ndarray, columns: Sequence[int]) -> float:
        """Returns the largest absolute share of a word in the labels of an explanation.

        `parts`, [L], are the shares of the word in the logits of the L labels, and `columns` are
        the positions of the labels that the explanation shows.
        """
        return float(np.abs(parts[list(columns)]).max())

    def render_prediction(self, readings: Readings, row: int) -> str:
        """Returns the predicted labels, and the probabilities of up to eight, as a line.

        `readings` has the probabilities and logits of n texts, and `row` is the position of the
        text, from 0. The threshold of each label follows its probability.
        """
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
        """Returns the sentence of the rule: a label is predicted from its threshold on.

        `bias` is not used.
        """
        return (
            "A label is predicted if 1 / (1 + exp(-sum)) is at least its threshold; the parts are "
            "exact."
        )

    def name_groups(self, targets: np.ndarray) -> list[Any]:
        """Returns the frozenset of the labels of each text.

        `targets`, bool [n, L + U], are the labels of n texts: L of the model, then U unknown
        labels, which are ignored.
        """
        return [
            frozenset(itertools.compress(self.classes, row.tolist()))
            for row in targets[:, : len(self.classes)]
        ]


@dataclasses.dataclass(frozen=True)
class RealTarget(Target):
    """The target of a regression, a real number for each text.

    It is constructed from `classes`, which is always ().
    """

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
        """Returns a table with a method `place(value, where, line)` that numbers the values.

        It returns the position of a number, from 0, in the order in which the different numbers of
        a source occur. `model_target` is not used, because all numbers are allowed.
        """
        return Values()

    @classmethod
    def of_labels(
        cls, labels: Sequence[Any], counts: Sequence[int], options: TargetOptions
    ) -> "RealTarget":
        """Returns the target of numbers.

        `labels` are the different numbers of the texts; `counts` and `options` are not used.

        Raises:
          ValueError: if all texts have the same number, or the standard deviation of the numbers is
            no positive float64.
        """
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

    def make_head(self, targets: np.ndarray) -> RealHead:
        """Returns the head with the mean and the standard deviation of the targets.

        `targets`, float64 [n], are the numbers of the training texts. The head computes predictions
        in their unit.
        """
        return RealHead.of_targets(targets)

    def encode(self, labels: Sequence[Any]) -> np.ndarray:
        """Returns the n numbers of `labels` as an array, float64 [n]."""
        return np.array(labels, np.float64)

    def stratify(self, targets: np.ndarray) -> tuple[np.ndarray, tuple[Label, ...]]:
        """Returns for each text the tenth of the sorted numbers in which its number is: int32 [n].

        `targets`, float64 [n], are the numbers. The second result has the names of the strata, the
        numbers of the tenths, from 0, without tenths that no text is in.
        """
        # Equal numbers may fill several tenths, which then have the same bound.
        bounds = np.unique(np.quantile(targets, np.arange(1, _RANGES) / _RANGES))
        names, strata = np.unique(np.searchsorted(bounds, targets), return_inverse=True)
        return strata.astype(np.int32), tuple(names.tolist())

    def render_source(self, targets: np.ndarray) -> str:
        """Returns a sentence with the range, median, mean and standard deviation of the numbers.

        `targets`, float64 [n], are the numbers of the texts.
        """
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
        """Returns the predicted numbers, float64 [n].

        They are the logits of `readings`, [n, 1].
        """
        return readings.logits[:, 0]

    def measure(
        self, targets: np.ndarray, readings: Readings, unknown: Sequence[Label] = ()
    ) -> Json:
        """Returns the dict of `real_metrics`: n, rmse, mae, r2, spearman and rmse_error.

        `targets`, float64 [n], are the numbers of the texts, and `readings` has the predictions as
        logits. `unknown` is not used.
        """
        return real_metrics(targets, self.decide(readings))

    def allow_loss(self, scores: Json, metric: str) -> float:
        """Returns a hundredth of the RMSE of the best stage, or its standard error if it is larger.

        `scores` is the dict of `measure` for this stage; `metric` is not used.
        """
        return max(_LEAST_RMSE * scores["rmse"], scores["rmse_error"])

    def predict(
        self, readings: Readings, row: int, open_words: list[str], note: str
    ) -> ValuePrediction:
        """Returns the predicted number of the text `row`, from 0.

        `readings` has the logits and gates of n texts, `open_words` are the open words of this
        text, and `note` is a remark about it, or "".
        """
        share = float(np.mean(readings.is_open[row]))
        return ValuePrediction(float(readings.logits[row, 0]), open_words, share, note)

    def rank_columns(self, readings: Readings, row: int) -> list[int]:
        """Returns [0], the position of the single logit; `readings` and `row` are not used."""
        return [0]

    def measure_effect(self, parts: np.ndarray, columns: Sequence[int]) -> float:
        """Returns the absolute value of `parts`, [1], the share of a word in the number.

        `columns` is not used.
        """
        return abs(float(parts[0]))

    def render_prediction(self, readings: Readings, row: int) -> str:
        """Returns the predicted number of the text `row`, from 0, with up to eight digits.

        `readings` has the logits of n texts.
        """
        return f"{readings.logits[row, 0]:.8g}"

    def render_rule(self, bias: np.ndarray) -> str:
        """Returns the sentence of the rule: the sum is the prediction. `bias` is not used."""
        return "The sum is the prediction, and the parts are exact, in the unit of the target."

    def group_words(self, weights: np.ndarray) -> tuple[tuple[Label, ...], np.ndarray]:
        """Returns ("lower", "higher") and the weight of each word in these two groups: [D, 2].

        `weights`, [D, 1], are the shares of D words in the number; a group of words lowers it, and
        the other raises it.
        """
        return _SIDES, np.concatenate([-weights, weights], 1)

    def name_groups(self, targets: np.ndarray) -> list[Any]:
        """Returns for each text a frozenset of "lower", "higher" or both.

        `targets`, float64 [n], are the numbers. A number at most the median is lower, a number at
        least the median higher, and the median itself is both.
        """
        middle = np.median(targets)
        return [
            frozenset(itertools.compress(_SIDES, (value <= middle, value >= middle)))
            for value in targets.tolist()
        ]


@dataclasses.dataclass(frozen=True)
class OrdinalTarget(Target):
    """The target of an ordinal regression, a grade for each text.

    It is constructed from `classes`, the tuple of the grades, the lowest grade first.
    """

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
        """Returns the target with the grades in the order of their numbers, or of `options.order`.

        `labels` are the different grades; `counts` are not used.

        Raises:
          ValueError: if the grades are not different numbers and have no order, or the order is not
            that of these grades.
        """
        return cls(_order_grades(labels, options.order))

    def make_head(self, targets: np.ndarray) -> OrdinalHead:
        """Returns a head with a threshold between neighbouring grades; `targets` are not used."""
        return OrdinalHead(len(self.classes))

    def encode(self, labels: Sequence[Any]) -> np.ndarray:
        """Returns the position of each of n labels among the grades: int32 [n], from 0.

        The lowest grade has the position 0. `labels` has a grade for each text.
        """
        place = {label: number for number, label in enumerate(self.classes)}
        return np.array([place[label] for label in labels], np.int32)

    @property
    def columns(self) -> tuple[Label, ...]:
        """The name of the single logit, ("score",)."""
        return ("score",)

    def decide(self, readings: Readings) -> np.ndarray:
        """Returns the median of the distribution of the grades of each text: int [n].

        The grades count from 0. `readings` has the probabilities [n, G] of G grades.
        """
        # The median has a smaller mean distance than the most probable grade.
        above = 1 - np.cumsum(readings.probabilities, 1)[:, :-1]
        return (above > 0.5).sum(1)

    def measure(
        self, targets: np.ndarray, readings: Readings, unknown: Sequence[Label] = ()
    ) -> Json:
        """Returns the dict of `ordinal_metrics`: n, accuracy, mae, kappa, mae_error and more.

        `targets`, int [n], are the positions of the grades, and `readings` has the probabilities of
        the texts. `unknown` is not used.
        """
        return ordinal_metrics(targets, self.decide(readings), self.classes)

    def allow_loss(self, scores: Json, metric: str) -> float:
        """Returns a hundredth of a grade, or the standard error of the MAE if it is larger.

        `scores` is the dict of `measure` for the best stage; `metric` is not used.
        """
        return max(2 * LEAST_LOSS, scores["mae_error"])

    def predict(self, readings: Readings, row: int, open_words: list[str], note: str) -> Prediction:
        """Returns the predicted grade of the text `row`, from 0, with its probability.

        `readings` has the probabilities and gates of n texts, `open_words` are the open words of
        this text, and `note` is a remark about it, or "".
        """
        return _predict_class(self, readings, row, open_words, note)

    def rank_columns(self, readings: Readings, row: int) -> list[int]:
        """Returns [0], the position of the single logit; `readings` and `row` are not used."""
        return [0]

    def measure_effect(self, parts: np.ndarray, columns: Sequence[int]) -> float:
        """Returns the absolute value of `parts`, [1], the share of a word in the score.

        `columns` is not used.
        """
        return abs(float(parts[0]))

    def render_prediction(self, readings: Readings, row: int) -> str:
        """Returns a line with the predicted grade, and the probabilities of the first eight grades.

        `readings` has the probabilities and logits of n texts, and `row` is the position of the
        text, from 0.
        """
        grade = int(self.decide(_select(readings, row))[0])
        shares = _list_shares(self, readings, row, range(min(len(self.classes), _SHOWN)))
        return f"{self.classes[grade]} (of {shares})"

    def render_rule(self, bias: np.ndarray) -> str:
        """Returns a sentence with the thresholds of the sum between the grades.

        `bias`, [G - 1], are the thresholds of the G grades, divided by the temperature.
        """
        steps = [
            f"{grade} above {threshold:+.3f}"
            for grade, threshold in zip(self.classes[1:], bias.tolist(), strict=True)
        ]
        shown = ", ".join(steps[:_SHOWN]) + ", ..." * (len(steps) > _SHOWN)
        return f"The grade is {self.classes[0]}, or {shown} of the sum; the parts are exact."

    def group_words(self, weights: np.ndarray) -> tuple[tuple[Label, ...], np.ndarray]:
        """Returns ("lower", "higher") and the weight of each word in these two groups: [D, 2].

        `weights`, [D, 1], are the shares of D words in the score; a group of words lowers the
        grade, and the other raises it.
        """
        return _SIDES, np.concatenate([-weights, weights], 1)

    def name_groups(self, targets: np.ndarray) -> list[Any]:
        """Returns for each text a frozenset of "lower", "higher" or both.

        `targets`, int [n], are the grades from 0. A grade at most the median is lower, a grade at
        least the median higher, and the median itself is both.
        """
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

        `where` and `line` are the source and the number of its line, for messages. Numbers count
        from 0, in the order in which sets occur first.

        Raises:
          ValueError: if a label only looks like another label, such as the text "1" and the number
            1.
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
        """Returns the number of a value, from 0, in the order in which values occur first.

        `where` and `line`, the source and the number of its line, are not used.
        """
        return self.places.setdefault(value, len(self.places))


def allow_points(best: float, count: int) -> float:
    """Returns half a point, 0.005, or the standard error of a share if it is larger.

    Args:
      best: the share of right decisions of the best stage, in [0, 1].
      count: the number of decisions.
    """
    return max(LEAST_LOSS, _standard_error(best, count))


def _standard_error(share: float, count: float) -> float:
    """Returns the standard error of a share in [0, 1] that was observed in `count` cases."""
    return float((share * (1 - share) / count) ** 0.5)


def _select(readings: Readings, row: int) -> Readings:
    """Returns the readings with the probabilities and logits of a single text only.

    `readings` has these arrays with a row for each of n texts, and `row` is the position of the
    text, from 0. In the result they have a single row; its gates and flags still belong to all
    texts.
    """
    part = slice(row, row + 1)
    return readings._replace(
        probabilities=readings.probabilities[part], logits=readings.logits[part]
    )


def _predict_class(
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
    predicted = int(target.decide(_select(readings, row))[0])
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


def _list_shares(target: Target, readings: Readings, row: int, places: Sequence[int]) -> str:
    """Returns the names and probabilities of classes as text, such as "a 0.700, b 0.200".

    `readings` has the probabilities of n texts, `row` is the position of the text, and `places` are
    the positions of the classes in `target`, from 0.
    """
    return ", ".join(f"{target.classes[i]} {readings.probabilities[row, i]:.3f}" for i in places)


def _list_probabilities(target: Target, readings: Readings, row: int, places: Sequence[int]) -> str:
    """Returns the first class with its probability, and then all classes of `places` with theirs.

    `readings` has the probabilities of n texts, `row` is the position of the text, and `places` are
    the positions of the classes in `target`, from 0.
    """
    best = places[0]
    shares = _list_shares(target, readings, row, places)
    return f"{target.classes[best]} {readings.probabilities[row, best]:.3f} (of {shares})"


def sort_key(label: Label) -> tuple[bool, Any]:
    """Returns a key of `label` for `sorted`: numbers by value come first, then texts."""
    return (True, label) if isinstance(label, str) else (False, label)


def _find_thresholds(threshold: Any, classes: Sequence[Label]) -> dict[int, float]:
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
            names = ", ".join(map(repr, list(by_text)[:_SHOWN]))
            raise ValueError(f"threshold must name labels of the texts ({names}), got {label!r}")
        thresholds[by_text[str(label)]] = float(value)
    return thresholds


def _read_grade(label: Label) -> float:
    """Returns the number of a grade.

    Raises:
      ValueError, OverflowError: if the label is no finite number in the usual notation.
    """
    number = float(label)
    # `float` also reads the texts "nan", "inf" and "1_0", which are missing values or names.
    if not np.isfinite(number) or "_" in str(label):
        raise ValueError(f"a grade must be a finite number, got {label!r}")
    return number


def _is_grade(label: Label) -> bool:
    """Returns True if the label is a finite number, see `_read_grade`."""
    try:
        _read_grade(label)
    except (ValueError, OverflowError):
        return False
    return True


def _order_grades(labels: Sequence[Label], order: Sequence[Label] | None) -> tuple[Label, ...]:
    """Returns the labels in the order of their numbers, or of the names in `order`, if it is given.

    Raises:
      ValueError: if the labels are not different finite numbers and `order` is None, or `order`
        does not have each label once.
    """
    if order is None:
        try:
            numbers = [_read_grade(label) for label in labels]
        except (ValueError, OverflowError):
            numbers = []
        # Two spellings of a number, such as "1" and "1.0", would be two grades without an order.
        if len(set(numbers)) < len(labels):
            # The labels that are no numbers come first, so that the message has them.
            shown = sorted(labels, key=_is_grade)[:_SHOWN]
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
            f"{action} {', '.join(map(repr, names[:_SHOWN]))}"
            for action, names in (("add", missing), ("leave out or name once", extra))
            if names
        ]
        raise ValueError(
            f"order must have each label of the texts once ({', '.join(sorted(by_text)[:20])}), "
            f"got {', '.join(ordered[:20])}: {', and '.join(actions)}"
        )
    return tuple(by_text[name] for name in ordered)
