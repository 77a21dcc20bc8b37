"""The target of any number of labels for each text, its thresholds and its metrics."""

import collections
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.lexicon import LabelHead, Readings
from gatedjax.text.answers._prediction import LABELS, LabelsPrediction
from gatedjax.text.sources._labels import Classes, Label, is_zero_or_one
from gatedjax.text.targets import _base
from gatedjax.text.targets._base import Names, Target, Weights

# A label gets its own threshold if at least this many validation texts have it, because the F1 of
# fewer texts is too noisy.
_LEAST_TEXTS = 10


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
    has_classes: ClassVar[bool] = False
    ranges: ClassVar[str] = "labels"
    rival: ClassVar[str] = "one-vs-rest logistic regression on TF-IDF"
    constant: ClassVar[str] = "the same labels for all texts"
    paired: ClassVar[str] = "mean F1 of a text"

    @classmethod
    def make_places(cls, model_target: Target | None) -> "LabelSets":
        return LabelSets(None if model_target is None else model_target.classes)

    @classmethod
    def of_labels(
        cls, labels: Sequence[Any], counts: Sequence[int], options: Any, has_columns: bool = False
    ) -> "LabelTarget":
        totals = collections.Counter[Label]()
        for names, count in zip(labels, counts, strict=True):
            totals.update(dict.fromkeys(names, count))
        is_binary = all(len(names) == 1 and is_zero_or_one(names) for names in labels)
        if len(totals) == 2 and is_binary and not has_columns:
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
        classes = tuple(sorted(used, key=_base.sort_key))
        target = cls(classes, (0.5,) * len(classes), left_out=frozenset(totals.keys() - used))
        return target if options.threshold is None else target.with_threshold(options.threshold)

    def with_threshold(self, threshold: Any) -> "LabelTarget":
        by_place = _base.find_thresholds(threshold, self.classes)
        thresholds = tuple(by_place.get(i, old) for i, old in enumerate(self.thresholds))
        return dataclasses.replace(self, thresholds=thresholds, is_fixed=True)

    def make_head(self, targets: np.ndarray, weights: Weights = None) -> LabelHead:
        return LabelHead(len(self.classes))

    def find_unknown(self, labels: Sequence[Any]) -> list[Label]:
        expected = self.left_out.union(self.classes)
        different = dict.fromkeys(name for names in labels for name in names)
        return [name for name in different if name not in expected]

    def count_left_out(self, counts: Mapping[Any, int]) -> dict[Label, int]:
        totals = dict.fromkeys(sorted(self.left_out, key=str), 0)
        for names, count in counts.items():
            for name in self.left_out.intersection(names):
                totals[name] += count
        return totals

    def encode(self, labels: Sequence[Any]) -> np.ndarray:
        names = [*self.classes, *self.find_unknown(labels)]
        place = {name: number for number, name in enumerate(names)}
        targets = np.zeros((len(labels), len(names)), bool)
        for row, texts_labels in enumerate(labels):
            targets[row, [place[name] for name in texts_labels if name in place]] = True
        return targets

    def stratify(self, targets: np.ndarray) -> tuple[np.ndarray, tuple[Label, ...]]:
        # A stratum for each set of labels would be too small, because most sets are rare.
        counts = targets.sum(0)
        rarity = np.where(targets, counts, len(targets) + 1)
        rarest = np.where(targets.any(1), rarity.argmin(1), len(counts))
        return rarest.astype(np.int32), (*self.classes, "(no label)")

    def list_single(self, targets: np.ndarray) -> list[Label]:
        return [self.classes[i] for i in np.flatnonzero(targets.sum(0) == 1).tolist()]

    def render_source(self, targets: np.ndarray) -> str:
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
        return readings.probabilities >= np.array(self.thresholds)

    def measure(
        self, targets: np.ndarray, readings: Readings, unknown: Names = (), weights: Weights = None
    ) -> Json:
        """Computes F1 = 2 TP / (2 TP + FP + FN), micro of the pairs of a text and a label, macro
        over the labels that occur in targets or predictions. Unknown labels count as missed in the
        micro F1 and in the subset accuracy, the share of texts with all labels right, and have no
        part in the macro F1. "decisions" is half of 2 TP + FP + FN.
        """
        from sklearn.metrics import accuracy_score, precision_recall_fscore_support

        predicted, labels = self.decide(readings), self.classes
        # A last column without a label keeps scikit-learn from reading a single label as two
        # classes.
        widths = len(unknown) + 1
        true = np.pad(targets, ((0, 0), (0, 1)))
        ours = np.pad(predicted, ((0, 0), (0, widths)))
        options: Any = {"sample_weight": weights, "zero_division": 0}
        scores = precision_recall_fscore_support(true, ours, **options)
        micro = precision_recall_fscore_support(true, ours, average="micro", **options)
        occurs = (true | ours)[:, : len(labels)].any(0)
        each = np.ones(len(targets)) if weights is None else weights
        each = each * (_base.count_effective(weights, len(targets)) / each.sum())
        counts, times = targets.sum(0).tolist(), predicted.sum(0).tolist()
        return {
            "n": len(targets),
            **_base.describe_effective(weights),
            "micro_f1": float(micro[2]),
            "micro_precision": float(micro[0]),
            "micro_recall": float(micro[1]),
            "macro_f1": float(scores[2][: len(labels)][occurs].mean()) if occurs.any() else 0.0,
            "subset_accuracy": float(accuracy_score(true, ours, sample_weight=weights)),
            "decisions": float(each @ (true.sum(1) + ours.sum(1))) / 2,
            "labels": _base.list_scores(labels, scores, n=counts, predicted=times),
            "without_label": {
                "n": int((~targets.any(1)).sum()),
                "predicted": int((~predicted.any(1)).sum()),
            },
            "unknown": [
                {"label": label, "n": count}
                for label, count in zip(unknown, counts[len(labels) :], strict=True)
            ],
        }

    def choose_decision(
        self, readings: Readings, targets: np.ndarray, weights: Weights = None
    ) -> "LabelTarget":
        if self.is_fixed:
            return self
        # A threshold cannot be chosen for a label that the model does not have.
        targets = targets[:, : len(self.classes)]
        return dataclasses.replace(
            self, thresholds=choose_thresholds(readings.probabilities, targets, weights)
        )

    def score_texts(self, targets: np.ndarray, readings: Readings) -> np.ndarray:
        # The F1 of the labels of a text, 1 for a text that has none and gets none.
        predicted = self.decide(readings)
        right = (predicted & targets[:, : len(self.classes)]).sum(1)
        total = predicted.sum(1) + targets.sum(1)
        return np.where(total > 0, 2 * right / np.maximum(total, 1), 1.0)

    def decision_to_json(self) -> Json:
        decision: Json = {"thresholds": list(self.thresholds), "is_fixed": self.is_fixed}
        if self.left_out:
            decision["left_out"] = sorted(self.left_out, key=_base.sort_key)
        return decision

    def with_decision(self, value: Json) -> "LabelTarget":
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
        fields: Json = {"is_fixed": bool(value["is_fixed"]), "left_out": frozenset(left_out)}
        return dataclasses.replace(self, thresholds=thresholds, **fields)

    def predict(self, reading: Readings, words: Sequence[str]) -> LabelsPrediction:
        places = self._list_predicted(reading)
        return LabelsPrediction(
            tuple(self.classes[i] for i in places),
            tuple(reading.probabilities[0, places].tolist()),
            **_base.describe_reading(reading, words),
        )

    def _list_predicted(self, reading: Readings) -> list[int]:
        is_predicted = self.decide(reading)[0]
        return [i for i in self.rank_columns(reading) if is_predicted[i]]

    def render_prediction(self, reading: Readings) -> str:
        names = ", ".join(str(self.classes[i]) for i in self._list_predicted(reading))
        shares = ", ".join(
            f"{self.classes[i]} {reading.probabilities[0, i]:.3f} "
            f"({self.thresholds[i]:.3f} is needed)"
            for i in self.rank_columns(reading)[: _base.MOST_SHOWN]
        )
        return f"{names or '(no label)'} (of {shares})"

    def render_rule(self, bias: np.ndarray) -> str:
        return (
            "A label is predicted if 1 / (1 + exp(-sum)) is at least its threshold; the parts are "
            "exact."
        )

    def name_groups(self, targets: np.ndarray) -> list[frozenset[Label]]:
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

    def __init__(self, labels: Names | None) -> None:
        self._labels = Classes("label", labels, accept_unknown=True)
        self._numbers: dict[frozenset[Label], int] = {}
        self.places: dict[tuple[Label, ...], int] = {}

    def place(self, labels: tuple[Label, ...], where: str, line: int) -> int:
        """Returns the number of a tuple of labels in any order; look-alikes are refused."""
        for label in labels:
            self._labels.place(label, where, line)
        # The order of the labels in a line has no meaning.
        key = frozenset(labels)
        if key not in self._numbers:
            self._numbers[key] = self.places[labels] = len(self._numbers)
        return self._numbers[key]


def choose_thresholds(
    probabilities: np.ndarray, targets: np.ndarray, weights: Weights = None
) -> tuple[float, ...]:
    """Chooses the threshold of each of L labels with the largest F1 of n texts; a label that occurs
    in fewer than ten of them has the threshold with the largest micro F1 of all labels.

        >>> choose_thresholds(np.array([[0.2], [0.3], [0.4]]), np.array([[False], [True], [True]]))
        (0.25,)

    Reference: Yang 2001 (thresholds of rare categories).
    """
    if not targets.any():
        return (0.5,) * targets.shape[1]
    weights = np.ones(len(targets)) if weights is None else weights
    of_pairs = np.repeat(weights, targets.shape[1])
    common = _choose_threshold(probabilities.ravel(), targets.ravel(), of_pairs)
    return tuple(
        _choose_threshold(probabilities[:, i], targets[:, i], weights)
        if targets[:, i].sum() >= _LEAST_TEXTS
        else common
        for i in range(targets.shape[1])
    )


def _choose_threshold(probabilities: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> float:
    """Returns the threshold with the largest F1, in the middle between two probabilities."""
    order = np.argsort(-probabilities, kind="stable")
    ranked = probabilities[order]
    # The entry k - 1 has the weight of the right texts if the first k texts are predicted.
    right = np.cumsum((weights * targets)[order])
    f1 = 2 * right / (np.cumsum(weights[order]) + (weights * targets).sum())
    # Equal probabilities cannot be separated by a threshold.
    f1[:-1][ranked[:-1] == ranked[1:]] = -1
    best = int(np.argmax(f1))
    # The middle between two texts is the best guess for new texts with probabilities between them.
    following = ranked[best + 1] if best + 1 < len(ranked) else 0.0
    return float((ranked[best] + following) / 2)
