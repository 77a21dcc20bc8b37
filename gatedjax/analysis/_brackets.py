"""Unlabelled bracket scores of predicted trees against gold trees."""

import dataclasses
from collections.abc import Iterable

from numpy.typing import ArrayLike

from gatedjax.analysis._scores import MatchCounts, MatchScores
from gatedjax.analysis._trees import SpanTree

PUNCTUATION = frozenset({",", ":", "``", "''", "."})
"""The tags of punctuation that EVALB's usual parameter file deletes."""


class BracketScores(MatchScores):
    """Precision, recall and F1 of the spans of trees, each in [0, 1].

    Attributes:
      precision: share of the predicted spans that are in the gold trees; 0 without predictions.
      recall: share of the gold spans that are in the predicted trees; 0 without gold spans.
      f1: the harmonic mean of precision and recall; 0 if both are 0.
    """


@dataclasses.dataclass(frozen=True)
class BracketCounts(MatchCounts):
    """Counts of spans; the counts of the sentences of a corpus can be added.

    Attributes:
      matched: number of spans that are in both trees.
      predicted: number of spans in the predicted trees.
      gold: number of spans in the gold trees.
    """

    def value(self) -> BracketScores:
        """Returns the scores of the corpus, with the counts of all sentences pooled (micro)."""
        return BracketScores(*super().value())


def bracket_counts(
    gold: SpanTree, predicted: SpanTree, *, drop: ArrayLike | None = None, count_root: bool = True
) -> BracketCounts:
    """Counts the spans that a predicted tree shares with the gold tree, without their labels.

    A span counts once even if several nodes have the same words; a span of a single word does not
    count.

        >>> gold = SpanTree(3, ((0, 3), (1, 3)))
        >>> bracket_counts(gold, SpanTree(3, ((0, 3), (0, 2))))
        BracketCounts(matched=1, predicted=2, gold=2)

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
    return BracketCounts(len(ours & theirs), len(ours), len(theirs))


def bracket_scores(
    pairs: Iterable[tuple[SpanTree, SpanTree]], *, count_root: bool = True
) -> BracketScores:
    """Computes precision, recall and F1 of the spans of a corpus.

        >>> gold = SpanTree(3, ((0, 3), (1, 3)))
        >>> bracket_scores([(gold, SpanTree(3, ((0, 3), (0, 2))))])
        BracketScores(precision=0.5, recall=0.5, f1=0.5)

    Args:
      pairs: (gold, predicted) trees of each sentence. A tree is `SpanTree(number of words, spans)`,
        with the span (first word, word after the last) of each node. Remove punctuation before,
        with `SpanTree.without`.
      count_root: True counts the spans of whole sentences.

    Returns:
      The scores with the counts of all sentences pooled (micro).
    """
    counts = BracketCounts()
    for gold, predicted in pairs:
        counts += bracket_counts(gold, predicted, count_root=count_root)
    return counts.value()
