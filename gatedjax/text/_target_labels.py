"""The target of any number of labels for each text."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.lexicon import LabelHead, Readings
from gatedjax.text._labels import Classes
from gatedjax.text._prediction import LABELS, LabelsPrediction
from gatedjax.text._table import Label, is_zero_or_one
from gatedjax.text._target_base import (
    MOST_SHOWN,
    Target,
    TargetOptions,
    allow_points,
    count_texts,
    describe_reading,
    find_thresholds,
    sort_key,
)
from gatedjax.text._target_metrics import choose_thresholds, label_metrics


@dataclasses.dataclass(frozen=True)
class LabelTarget(Target):
    """The target of a model that predicts any number of labels for each text."""

    thresholds: tuple[float, ...] = ()  # the least probability of each predicted label
    is_fixed: bool = False  # True if the user gave the thresholds
    left_out: frozenset[Label] = frozenset()  # rare labels, which training ignores

    kind: ClassVar[str] = LABELS
    metrics: ClassVar[Mapping[str, str]] = {
        "micro_f1": "micro F1",
        "macro_f1": "macro F1",
        "subset_accuracy": "subset accuracy",
    }

    @classmethod
    def make_places(cls, model_target: Target | None) -> "LabelSets":
        """Returns a table that numbers the different sets of labels of a source."""
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
        is_binary = all(len(names) == 1 and is_zero_or_one(names) for names in labels)
        if len(totals) == 2 and is_binary and not options.has_columns:
            raise ValueError(
                "labels must be names, got [0] or [1] for each text: give the array y of 0 and 1, "
                "of shape (n, 1), for a single label (in a file its name, or an empty list), or "
                "leave the task 'labels' out for two classes"
            )
        used = {name for name, count in totals.items() if count >= options.min_class}
        if not used:
            raise ValueError(
                f"the texts must have a label, got none with min_class={options.min_class} texts"
            )
        classes = tuple(sorted(used, key=sort_key))
        target = cls(classes, (0.5,) * len(classes), left_out=frozenset(totals.keys() - used))
        return target if options.threshold is None else target.with_threshold(options.threshold)

    def with_threshold(self, threshold: Any) -> "LabelTarget":
        """Returns a copy with fixed thresholds; labels that a dict lacks keep their thresholds."""
        by_place = find_thresholds(threshold, self.classes)
        thresholds = tuple(by_place.get(i, old) for i, old in enumerate(self.thresholds))
        return dataclasses.replace(self, thresholds=thresholds, is_fixed=True)

    @classmethod
    def choose_metric(cls, best_metric: str) -> str:
        """Returns "macro_f1" if `best_metric` is "macro_f1", and "micro_f1" otherwise."""
        return "macro_f1" if best_metric == "macro_f1" else "micro_f1"

    def make_head(self, targets: np.ndarray, sample_weight: np.ndarray | None = None) -> LabelHead:
        """Returns a head with a sigmoid for each label; its arguments are not used."""
        return LabelHead(len(self.classes))

    def find_unknown(self, labels: Sequence[Any]) -> list[Label]:
        """Returns the labels of texts that the model does not have, by first occurrence. Labels
        that training left out are not unknown.
        """
        expected = self.left_out.union(self.classes)
        different = dict.fromkeys(name for names in labels for name in names)
        return [name for name in different if name not in expected]

    def encode(self, labels: Sequence[Any]) -> np.ndarray:
        """Returns the labels of n texts as bool [n, L + U]: the labels of the model, then of
        `find_unknown`. Labels that training left out have no column.
        """
        names = [*self.classes, *self.find_unknown(labels)]
        place = {name: number for number, name in enumerate(names)}
        targets = np.zeros((len(labels), len(names)), bool)
        for row, texts_labels in enumerate(labels):
            targets[row, [place[name] for name in texts_labels if name in place]] = True
        return targets

    def stratify(self, targets: np.ndarray) -> tuple[np.ndarray, tuple[Label, ...]]:
        """Returns the rarest label of each text, so that each label is in both parts of a split."""
        # A stratum for each set of labels would be too small, because most sets are rare.
        counts = targets.sum(0)
        rarity = np.where(targets, counts, len(targets) + 1)
        rarest = np.where(targets.any(1), rarity.argmin(1), len(counts))
        return rarest.astype(np.int32), (*self.classes, "(no label)")

    def list_single(self, targets: np.ndarray) -> list[Label]:
        """Returns the labels that a single training text has."""
        return [self.classes[i] for i in np.flatnonzero(targets.sum(0) == 1).tolist()]

    def render_source(self, targets: np.ndarray) -> str:
        """Returns a sentence with the number of texts and of the ten most frequent labels."""
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
        self,
        targets: np.ndarray,
        readings: Readings,
        unknown: Sequence[Label] = (),
        sample_weight: np.ndarray | None = None,
    ) -> Json:
        """Returns the dict of `label_metrics`, with n, micro_f1, macro_f1 and more."""
        return label_metrics(targets, self.decide(readings), self.classes, unknown, sample_weight)

    def choose_decision(
        self, readings: Readings, targets: np.ndarray, sample_weight: np.ndarray | None = None
    ) -> "LabelTarget":
        """Returns a copy with the thresholds of the largest F1, or itself if they are fixed."""
        if self.is_fixed:
            return self
        # A threshold cannot be chosen for a label that the model does not have.
        targets = targets[:, : len(self.classes)]
        return dataclasses.replace(
            self, thresholds=choose_thresholds(readings.probabilities, targets, sample_weight)
        )

    def allow_loss(self, scores: Json, metric: str) -> float:
        """Returns half a point of F1, 0.005, or the standard error of F1 if it is larger."""
        count = scores["decisions"] if metric == "micro_f1" else count_texts(scores)
        return allow_points(scores[metric], max(count, 1))

    def get_threshold(self) -> dict[Label, float] | None:
        """Returns a dict from labels to thresholds if the user has given them, else None."""
        return dict(zip(self.classes, self.thresholds, strict=True)) if self.is_fixed else None

    def decision_to_json(self) -> Json:
        """Returns the thresholds for config.json, a dict with "thresholds" and "is_fixed"."""
        decision: Json = {"thresholds": list(self.thresholds), "is_fixed": self.is_fixed}
        if self.left_out:
            decision["left_out"] = sorted(self.left_out, key=sort_key)
        return decision

    def with_decision(self, value: Json) -> "LabelTarget":
        """Returns a copy of the target with the thresholds in `value`."""
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
        is_fixed = value["is_fixed"]
        if not isinstance(is_fixed, bool):
            raise ValueError(f"is_fixed must be true or false, got {is_fixed!r}")
        return dataclasses.replace(
            self, thresholds=thresholds, is_fixed=is_fixed, left_out=frozenset(left_out)
        )

    def predict(self, readings: Readings, row: int, words: Sequence[str]) -> LabelsPrediction:
        """Returns the predicted labels of the text `row`, from 0, with their probabilities."""
        is_predicted = self.decide(readings.take(row))[0]
        places = [i for i in self.rank_columns(readings, row) if is_predicted[i]]
        return LabelsPrediction(
            tuple(self.classes[i] for i in places),
            tuple(float(readings.probabilities[row, i]) for i in places),
            **describe_reading(readings, row, words),
        )

    def rank_columns(self, readings: Readings, row: int) -> list[int]:
        """Returns the positions of all labels: the predicted labels, then the rest."""
        probabilities = readings.probabilities[row]
        is_predicted = probabilities >= np.array(self.thresholds)
        return np.lexsort((-probabilities, ~is_predicted)).tolist()

    def measure_effect(self, parts: np.ndarray, columns: Sequence[int]) -> float:
        """Returns the largest absolute share of a word in the labels of an explanation."""
        return float(np.abs(parts[list(columns)]).max())

    def render_prediction(self, readings: Readings, row: int) -> str:
        """Returns the predicted labels, and the probabilities of up to eight, as a line."""
        ranked = self.rank_columns(readings, row)
        is_predicted = self.decide(readings.take(row))[0]
        names = [str(self.classes[i]) for i in ranked if is_predicted[i]]
        shares = ", ".join(
            f"{self.classes[i]} {readings.probabilities[row, i]:.3f} "
            f"({self.thresholds[i]:.3f} is needed)"
            for i in ranked[:MOST_SHOWN]
        )
        return f"{', '.join(names) or '(no label)'} (of {shares})"

    def render_rule(self, bias: np.ndarray) -> str:
        """Returns the sentence of the rule: a label is predicted from its threshold on."""
        return (
            "A label is predicted if 1 / (1 + exp(-sum)) is at least its threshold; the parts are "
            "exact."
        )

    def name_groups(self, targets: np.ndarray) -> list[Any]:
        """Returns the frozenset of the labels of each text."""
        return [
            frozenset(itertools.compress(self.classes, row.tolist()))
            for row in targets[:, : len(self.classes)]
        ]


class LabelSets:
    """A table that numbers tuples of labels as they come; `places` has the number of each.

    >>> sets = LabelSets(None)
    >>> [sets.place(labels, "a.txt", 1) for labels in (("a", "b"), (), ("b", "a"))]
    [0, 1, 0]
    """

    def __init__(self, labels: Sequence[Label] | None) -> None:
        self._labels = Classes("label", labels)
        self._is_complete = labels is not None
        self._numbers: dict[frozenset[Label], int] = {}
        self.places: dict[tuple[Label, ...], int] = {}

    def place(self, labels: tuple[Label, ...], where: str, line: int) -> int:
        """Returns the number of a tuple of labels in any order. A label that only looks like
        another, such as the text "1" and the number 1, is an error.
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
