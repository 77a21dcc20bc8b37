"""Semantic roles: spans, the rules of the scorer by hand, and Viterbi against enumeration."""

import itertools

import numpy as np
import pytest

from experiments.ssan import roles
from experiments.ssan.roles import arguments
from gatedjax.analysis._scores import MatchCounts, chunks


def test_labels_become_spans_whatever_their_form():
    assert chunks(["B-A0", "I-A0", "O", "B-A1"]) == [(0, 2, "A0"), (3, 4, "A1")]
    assert chunks(["I-A0", "I-A1", "I-A1"]) == [(0, 1, "A0"), (1, 3, "A1")]
    assert chunks(["B-A0", "B-A0", "I-A0"]) == [(0, 1, "A0"), (1, 3, "A0")]
    assert chunks([]) == chunks(["O"]) == []
    with pytest.raises(ValueError, match="labels must be 'O', 'B-X' or 'I-X', got 'A0'"):
        chunks(["A0"])


def test_a_continued_argument_is_one_and_the_predicate_is_none():
    labels = ["B-A1", "B-V", "B-C-A1", "I-C-A1", "B-C-V", "B-R-A1"]
    assert arguments(labels) == [("A1", ((0, 1), (2, 4))), ("R-A1", ((5, 6),))]
    # the last one before it goes on; without one before it, it stands alone
    assert arguments(["B-A1", "O", "B-A1", "B-C-A1"]) == [
        ("A1", ((0, 1),)),
        ("A1", ((2, 3), (3, 4))),
    ]
    assert arguments(["B-C-A1", "B-A1"]) == [("C-A1", ((0, 1),)), ("A1", ((1, 2),))]


def test_scores_of_a_hand_made_example():
    gold = ["B-A0", "B-V", "B-A1", "I-A1", "O", "B-C-A1"]
    assert roles.role_counts(gold, gold) == MatchCounts(2, 2, 2)
    # the continuation is missing: the whole argument is wrong, the predicate counts for nothing
    ours = ["B-A0", "B-A1", "B-A1", "I-A1", "O", "O"]
    counts = roles.role_counts(gold, ours)
    assert counts == MatchCounts(1, 3, 2)
    assert counts.value() == (1 / 3, 1 / 2, 2 / 5)
    both = counts + roles.role_counts(gold, gold)
    assert both.value().f1 == 2 * 3 / 9
    nothing = roles.role_counts(["B-V"], ["O"])
    assert nothing == MatchCounts(0, 0, 0)
    assert nothing.value() == (0.0, 0.0, 0.0)
    # two equal predictions are not both right
    assert roles.role_counts(["B-A0", "O"], ["B-A0", "B-A0"]).matched == 1


NAMES = ["I-A", "O", "B-A", "I-B", "B-B"]


def legal(labels):
    for before, after in itertools.pairwise(["O", *labels]):
        if after.startswith("I-") and before not in (f"B-{after[2:]}", after):
            return False
    return True


def test_viterbi_finds_the_best_legal_sequence(np_rng):
    for _ in range(20):
        scores = np_rng.normal(size=(4, 5)) * 2
        best = max(
            (c for c in itertools.product(range(5), repeat=4) if legal([NAMES[i] for i in c])),
            key=lambda c: sum(scores[i, label] for i, label in enumerate(c)),
        )
        assert roles.constrained_labels(scores, NAMES).tolist() == list(best)
    free = np.argmax(scores, axis=1)
    assert not legal([NAMES[i] for i in free]) or free.tolist() == list(best)
    assert roles.constrained_labels(np.zeros((0, 5)), NAMES).shape == (0,)
