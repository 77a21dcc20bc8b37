"""Unlabelled bracket scores of trees against gold trees."""

import dataclasses
from collections.abc import Iterable

from numpy.typing import ArrayLike

from gatedjax.analysis._scores import MatchCounts, MatchScores
from gatedjax.analysis._trees import SpanTree

PUNCTUATION = frozenset({",", ":", "``", "''", "."})
"""Tags of the words that EVALB's usual parameter file leaves out."""


class BracketScores(MatchScores):
    """What `BracketCounts.value` returns, of spans."""


@dataclasses.dataclass(frozen=True)
class BracketCounts(MatchCounts):
    """Counts of spans; those of the sentences of a corpus are added.

    Attributes:
      matched: spans that both trees have.
      predicted: spans of the predicted trees.
      gold: spans of the gold trees.
    """

    def value(self) -> BracketScores:
        """The scores of the corpus (micro)."""
        return BracketScores(*self._shares())


def bracket_counts(
    gold: SpanTree, predicted: SpanTree, *, drop: ArrayLike | None = None, count_root: bool = True
) -> BracketCounts:
    """Counts the spans of a sentence that a tree shares with the gold tree, labels aside.

    Each span counts once, whatever the number of nodes that stand on it; spans of a single word do
    not count.

    Args:
      gold: the gold tree.
      predicted: the tree to score.
      drop: bool [N], True at words to take out of both trees first, as EVALB does with the tags
        `PUNCTUATION`; None keeps all.
      count_root: whether the span of the whole sentence, which every tree has, counts.

    Returns:
      The counts; all 0 for a sentence of which fewer than two words are left.

    Reference: Geng et al. 2020 (SSAN), table 6; Collins and Sekine's EVALB.
    """
    if gold.size != predicted.size:
        raise ValueError(
            f"the trees must have the same number of words, got {gold.size} and {predicted.size}"
        )
    if drop is not None:
        gold, predicted = gold.without(drop), predicted.without(drop)
    ours, theirs = set(predicted.spans), set(gold.spans)
    whole = (0, gold.size)
    if count_root and gold.size > 1:
        ours.add(whole)
        theirs.add(whole)
    else:
        ours.discard(whole)
        theirs.discard(whole)
    return BracketCounts(len(ours & theirs), len(ours), len(theirs))


def bracket_scores(
    pairs: Iterable[tuple[SpanTree, SpanTree]], *, count_root: bool = True
) -> BracketScores:
    """Scores a corpus of (gold, predicted) trees; take punctuation out with `without` before."""
    counts = BracketCounts()
    for gold, predicted in pairs:
        counts += bracket_counts(gold, predicted, count_root=count_root)
    return counts.value()
