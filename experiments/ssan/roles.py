"""Semantic roles by the rules of the CoNLL shared tasks."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from gatedjax.analysis._chunks import chunks
from gatedjax.analysis._scores import MatchCounts, MatchScores

Argument = tuple[str, tuple[tuple[int, int], ...]]
"""A role and its spans (first word, word after the last); several if it goes on after a break."""


def arguments(labels: Sequence[str]) -> list[Argument]:
    """The arguments of a predicate as the CoNLL-2005 scorer counts them.

    C-X goes on the last argument X before it, and the two are right or wrong as one; without an X
    before it, it is an argument C-X of its own. The predicate itself (V, C-V) is no argument.
    """
    roles: list[tuple[str, list[tuple[int, int]]]] = []
    for first, past, role in chunks(labels):
        if role.startswith("C-"):
            before = [spans for name, spans in roles if name == role[2:]]
            if before:
                before[-1].append((first, past))
                continue
        roles.append((role, [(first, past)]))
    return [(role, tuple(spans)) for role, spans in roles if role not in ("V", "C-V")]


class RoleScores(MatchScores):
    """What `RoleCounts.value` returns, of arguments."""


@dataclasses.dataclass(frozen=True)
class RoleCounts(MatchCounts):
    """Counts of arguments; those of the predicates of a corpus are added.

    Attributes:
      matched: predicted arguments that have a gold role and exactly its words.
      predicted: predicted arguments.
      gold: gold arguments.
    """

    def value(self) -> RoleScores:
        """The scores of the corpus (micro)."""
        return RoleScores(*self._shares())


def role_counts(gold: Sequence[str], predicted: Sequence[str]) -> RoleCounts:
    """Compares the labels of the words of one predicate with the gold ones.

    Args:
      gold: BIO labels.
      predicted: BIO labels of the same words.

    Reference: Carreras and Marquez 2005, whose scorer the paper uses; libraries for BIO labels join
      no C- and score the predicate, too.
    """
    if len(gold) != len(predicted):
        raise ValueError(
            f"gold and predicted must have one label per word, got {len(gold)} and {len(predicted)}"
        )
    theirs, ours = arguments(gold), arguments(predicted)
    left = list(theirs)
    matched = 0
    for argument in ours:
        if argument in left:
            left.remove(argument)  # each counts once
            matched += 1
    return RoleCounts(matched, len(ours), len(theirs))


def constrained_labels(scores: ArrayLike, names: Sequence[str]) -> np.ndarray:
    """The best sequence of labels in which I-X only stands after B-X or I-X (Viterbi).

    Args:
      scores: log-probabilities or logits of the labels of every word [N, L].
      names: of the labels; with "O" or a "B-" among them.

    Returns:
      int [N]. Of equal sequences the one whose last labels come first.

    Raises:
      ValueError: also if no label may stand at the beginning.
    """
    scores = np.asarray(scores, np.float64)
    if scores.ndim != 2 or scores.shape[1] != len(names):
        raise ValueError(f"scores must be [N, {len(names)}], got {scores.shape}")
    inside = np.array([name.startswith("I-") for name in names])
    if inside.all():
        raise ValueError("names must have a label that may begin a sentence")
    role = np.array([name[2:] for name in names])
    follows = ~inside[None, :] | (role[:, None] == role[None, :])
    follows[np.array([name == "O" for name in names])] = ~inside  # "O" has the role ""
    allowed = np.where(follows, 0.0, -np.inf)
    if not len(scores):
        return np.zeros(0, int)
    best = np.where(inside, -np.inf, scores[0])
    back = np.zeros(scores.shape, int)
    for place in range(1, len(scores)):
        ways = best[:, None] + allowed
        back[place] = np.argmax(ways, axis=0)
        best = np.max(ways, axis=0) + scores[place]
    labels = np.zeros(len(scores), int)
    labels[-1] = np.argmax(best)
    for place in range(len(scores) - 1, 0, -1):
        labels[place - 1] = back[place, labels[place]]
    return labels
