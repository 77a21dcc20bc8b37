"""Scores of semantic roles by the rules of the CoNLL shared tasks."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from gatedjax.analysis._scores import MatchCounts, chunks

Argument = tuple[str, tuple[tuple[int, int], ...]]
"""A role and its spans (first word, word after the last). An argument that continues after a break
has several spans."""


def arguments(labels: Sequence[str]) -> list[Argument]:
    """Returns the arguments of a predicate as the CoNLL-2005 scorer counts them. A span C-X
    continues the last argument X before it, and both are right or wrong together. Without an X
    before it, it is a separate argument C-X. The predicate itself (V, C-V) is not an argument."""
    roles: list[tuple[str, list[tuple[int, int]]]] = []
    for first, past, role in chunks(labels):
        if role.startswith("C-"):
            # The scorer joins C-X with the nearest X before it, even if other arguments are between
            # them.
            before = [spans for name, spans in roles if name == role[2:]]
            if before:
                before[-1].append((first, past))
                continue
        roles.append((role, [(first, past)]))
    return [(role, tuple(spans)) for role, spans in roles if role not in ("V", "C-V")]


def role_counts(gold: Sequence[str], predicted: Sequence[str]) -> MatchCounts:
    """Counts the arguments in the gold and the predicted labels of a predicate. A matched argument
    has the role and exactly the words of a gold argument. Reference: Carreras and Marquez 2005, the
    scorer of the paper. Libraries for BIO labels differ: they do not join C-, and they score the
    predicate."""
    # An argument is a role with all of its spans. A continuation with a wrong word makes the whole
    # argument wrong, as in the scorer of the shared task.
    theirs, ours = arguments(gold), arguments(predicted)
    unmatched = list(theirs)
    matched = 0
    for argument in ours:
        if argument in unmatched:
            unmatched.remove(argument)  # A gold argument matches only once.
            matched += 1
    return MatchCounts(matched, len(ours), len(theirs))


def constrained_labels(scores: ArrayLike, names: Sequence[str]) -> np.ndarray:
    """Finds the best sequence of labels in which I-X only follows B-X or I-X (Viterbi). The scores
    [N, L] are log-probabilities or logits. Of equally good sequences it returns the one with the
    lowest index at the last word at which they differ."""
    scores = np.asarray(scores, np.float64)
    inside = np.array([name.startswith("I-") for name in names])
    role = np.array([name[2:] for name in names])
    # Rows are the label of a word and columns the label of the next word.
    follows = ~inside[None, :] | (role[:, None] == role[None, :])
    follows[np.array([name == "O" for name in names])] = ~inside  # The role of "O" is "".
    # A transition has no score, because the network scores only words. Invalid transitions are
    # excluded.
    allowed = np.where(follows, 0.0, -np.inf)
    if not len(scores):
        return np.zeros(0, int)
    # An I- label cannot begin a sentence, because no label precedes it.
    best = np.where(inside, -np.inf, scores[0])
    back = np.zeros(scores.shape, int)
    for place in range(1, len(scores)):
        ways = best[:, None] + allowed
        # `argmax` returns the first maximum, which makes the result of a tie the same on all
        # machines.
        back[place] = np.argmax(ways, axis=0)
        best = np.max(ways, axis=0) + scores[place]
    labels = np.zeros(len(scores), int)
    labels[-1] = np.argmax(best)
    for place in range(len(scores) - 1, 0, -1):
        labels[place - 1] = back[place, labels[place]]
    return labels
