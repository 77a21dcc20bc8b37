"""Scores of predicted classes, spans, trees and translations."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from gatedjax._utils.missing import missing
from gatedjax.analysis._trees import SpanTree

PUNCTUATION = frozenset({",", ":", "``", "''", "."})
"""The tags of punctuation that EVALB's usual parameter file deletes."""


@dataclasses.dataclass(frozen=True)
class ClassScores:
    """Scores of a classifier that predicts a class for each example; C is the number of classes.

    Attributes:
      precision: [C] share of the predictions of a class that are correct; 0 without predictions.
      recall: [C] share of the examples of a class that are predicted correctly; 0 without examples.
      f1: [C] harmonic mean of precision and recall; 0 for a class that does not occur.
      support: [C] number of examples with each class as their label, or the sum of their weights.
      accuracy: share of correct predictions, which is also the micro-averaged F1.
      weighted: mean of F1 over the classes, weighted by support.
      macro: mean of F1 over the classes that occur in labels or predictions.
    """

    precision: np.ndarray
    recall: np.ndarray
    f1: np.ndarray
    support: np.ndarray
    accuracy: float
    weighted: float
    macro: float


def class_scores(
    label: np.ndarray,
    predicted: np.ndarray,
    num_classes: int,
    sample_weight: np.ndarray | None = None,
) -> ClassScores:
    """Computes precision, recall and F1 of each class, and their averages.

        >>> label, predicted = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 0])
        >>> scores = class_scores(label, predicted, num_classes=2)
        >>> print(scores.f1, scores.accuracy)
        [0.5 0.5] 0.5

    Args:
      label: int [N], the class of each of N examples.
      predicted: int [N], the predicted class of each example.
      num_classes: C, the number of classes.
      sample_weight: [N], the weight with which each example counts, also in `support`; None is 1.

    Returns:
      The scores.
    """
    label, predicted = np.asarray(label), np.asarray(predicted)
    if label.shape != predicted.shape or label.ndim != 1 or not len(label):
        raise ValueError(
            "label and predicted must have the same shape [N] with N at least 1, got "
            f"{label.shape} and {predicted.shape}"
        )
    for name, values in {"label": label, "predicted": predicted}.items():
        if values.min() < 0 or values.max() >= num_classes:
            raise ValueError(
                f"{name} must be in [0, {num_classes}), got {values.min()} to {values.max()}"
            )
    right = label == predicted
    of_right = None if sample_weight is None else sample_weight[right]
    hits = np.bincount(label[right], of_right, num_classes).astype(float)
    support = np.bincount(label, sample_weight, num_classes)
    predictions = np.bincount(predicted, sample_weight, num_classes)
    # This form of F1 is also defined for a class without predictions or without examples.
    f1 = ratio(2 * hits, support + predictions)
    return ClassScores(
        precision=ratio(hits, predictions),
        recall=ratio(hits, support),
        f1=f1,
        support=support,
        accuracy=float(hits.sum() / support.sum()),
        weighted=float(f1 @ support / support.sum()),
        macro=float(f1[support + predictions > 0].mean()),
    )


def ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """Returns `top` / `bottom` elementwise for arrays of counts; 0 where `bottom` is 0."""
    return np.divide(top, bottom, out=np.zeros(np.shape(top)), where=bottom > 0)


class MatchScores(NamedTuple):
    """Scores of predicted items, such as spans, against gold items, each in [0, 1].

    Attributes:
      precision: share of the predicted items that are gold; 0 without predictions.
      recall: share of the gold items that are predicted; 0 without gold items.
      f1: the harmonic mean of precision and recall; 0 if both are 0.
    """

    precision: float
    recall: float
    f1: float


@dataclasses.dataclass(frozen=True)
class MatchCounts:
    """Counts of items, such as spans; the counts of the parts of a corpus can be added.

    Attributes:
      matched: number of items that are both predicted and gold.
      predicted: number of predicted items.
      gold: number of gold items.
    """

    matched: int = 0
    predicted: int = 0
    gold: int = 0

    def __add__(self, other: "MatchCounts") -> "MatchCounts":
        return MatchCounts(
            self.matched + other.matched, self.predicted + other.predicted, self.gold + other.gold
        )

    def value(self) -> MatchScores:
        """Returns the scores of all items pooled (micro)."""
        matched = np.array([self.matched, self.matched, 2 * self.matched])
        items = np.array([self.predicted, self.gold, self.predicted + self.gold])
        return MatchScores(*ratio(matched, items).tolist())


def bracket_counts(
    gold: SpanTree, predicted: SpanTree, *, drop: ArrayLike | None = None, count_root: bool = True
) -> MatchCounts:
    """Counts the spans that a predicted tree shares with the gold tree, without their labels.

    A span counts once even if several nodes have the same words; a span of a single word does not
    count.

        >>> gold = SpanTree(3, ((0, 3), (1, 3)))
        >>> bracket_counts(gold, SpanTree(3, ((0, 3), (0, 2))))
        MatchCounts(matched=1, predicted=2, gold=2)

    Args:
      gold: the gold tree, `SpanTree(number of words, spans)`. A span is (first word, word after the
        last) of a node.
      predicted: the tree that is scored, over the same words.
      drop: bool [N] for the N words, True at words that are removed from both trees first, as EVALB
        does with the tags `PUNCTUATION`; None removes no words.
      count_root: True counts the span of the whole sentence, which both trees have.

    Returns:
      The counts; all 0 if fewer than two words remain.

    Reference: Geng et al. 2020 (SSAN), table 6; Collins and Sekine's EVALB.
    """
    if gold.size != predicted.size:
        raise ValueError(
            "gold and predicted must be trees with the same number of words, got "
            f"{gold.size} and {predicted.size}"
        )
    if drop is not None:
        gold, predicted = gold.without(drop), predicted.without(drop)
    ours, theirs = set(predicted.spans), set(gold.spans)
    # A tree may or may not list the span of the whole sentence, so it is added to both or removed
    # from both.
    root = (0, gold.size)
    if count_root and gold.size > 1:
        ours.add(root)
        theirs.add(root)
    else:
        ours.discard(root)
        theirs.discard(root)
    return MatchCounts(len(ours & theirs), len(ours), len(theirs))


def bracket_scores(
    pairs: Iterable[tuple[SpanTree, SpanTree]], *, count_root: bool = True
) -> MatchScores:
    """Computes precision, recall and F1 of the spans of a corpus.

        >>> gold = SpanTree(3, ((0, 3), (1, 3)))
        >>> bracket_scores([(gold, SpanTree(3, ((0, 3), (0, 2))))])
        MatchScores(precision=0.5, recall=0.5, f1=0.5)

    Args:
      pairs: (gold, predicted) trees of each sentence. A tree is `SpanTree(number of words, spans)`,
        with the span (first word, word after the last) of each node. Remove punctuation before,
        with `SpanTree.without`.
      count_root: True counts the spans of whole sentences.

    Returns:
      The scores with the counts of all sentences pooled (micro).
    """
    counts = MatchCounts()
    for gold, predicted in pairs:
        counts += bracket_counts(gold, predicted, count_root=count_root)
    return counts.value()


def chunks(labels: Sequence[str]) -> list[tuple[int, int, str]]:
    """Finds the spans (first word, word after the last, class) that BIO labels mark, in order. An
    "I-X" that does not follow a "B-X" or "I-X" of the same class X begins a new span.

        >>> chunks(["B-A", "I-A", "O", "I-B"])
        [(0, 2, 'A'), (3, 4, 'B')]
    """
    spans: list[tuple[int, int, str]] = []
    current, first = None, 0
    # The additional "O" closes a span that reaches the end of the sentence.
    for place, label in enumerate([*labels, "O"]):
        if label != "O" and label[:2] not in ("B-", "I-"):
            raise ValueError(f"labels must be 'O', 'B-X' or 'I-X', got {label!r}")
        role = None if label == "O" else label[2:]
        if current is not None and (role != current or label.startswith("B-")):
            spans.append((first, place, current))
            current = None
        if role is not None and current is None:
            current, first = role, place
    return spans


class Scored(NamedTuple):
    """BLEU of a corpus, with the counts of each sentence."""

    score: float
    signature: str
    # For each sentence the lengths of translation and reference, the numbers of matching n-grams
    # for n from 1 to 4, and the numbers of all n-grams.
    statistics: list[list[int]]


def corpus_bleu(translations: Sequence[str], references: Sequence[str]) -> Scored:
    """Computes cased BLEU of detokenised translations with the default options of sacrebleu.

    >>> corpus_bleu(["the cat sat on the mat"], ["the cat sat on the mat"]).statistics
    [[6, 6, 6, 5, 4, 3, 6, 5, 4, 3]]
    """
    if len(translations) != len(references) or not references:
        raise ValueError(
            "translations and references must have the same length of at least 1, got "
            f"{len(translations)} and {len(references)}"
        )
    metric = bleu_metric()
    score = metric.corpus_score(list(translations), [list(references)])
    statistics = []
    for translation, reference in zip(translations, references, strict=True):
        # A corpus of a single sentence gives the counts; `sentence_score` would warn about options
        # that matter only for its score.
        sentence = metric.corpus_score([translation], [[reference]])
        lengths = [sentence.sys_len, sentence.ref_len]
        statistics.append([*lengths, *sentence.counts, *sentence.totals])
    return Scored(float(score.score), str(metric.get_signature()), statistics)


def bleu_metric() -> Any:
    """Returns sacrebleu's metric, an object `sacrebleu.BLEU`, with its default options."""
    try:
        from sacrebleu.metrics import BLEU
    except ImportError as error:
        raise ImportError(missing("BLEU needs", "sacrebleu")) from error
    return BLEU()
