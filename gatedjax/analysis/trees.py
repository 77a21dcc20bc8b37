"""Constituency trees from attention, and scores of these trees against gold trees.

    >>> tree = from_attention([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    >>> words, gold = from_brackets("(S (NP the film) ran)")
    >>> bracket_counts(gold, tree).value().f1
    1.0
    >>> bracket_counts(gold, right_branching(3)).value().f1  # a baseline
    0.5

Reference: Geng et al. 2020, How Does Selective Mechanism Improve Self-Attention Networks?, 5.2.
"""

from gatedjax.analysis._scores import PUNCTUATION as PUNCTUATION
from gatedjax.analysis._scores import bracket_counts as bracket_counts
from gatedjax.analysis._scores import bracket_scores as bracket_scores
from gatedjax.analysis._trees import Norm as Norm
from gatedjax.analysis._trees import SpanTree as SpanTree
from gatedjax.analysis._trees import balanced as balanced
from gatedjax.analysis._trees import from_attention as from_attention
from gatedjax.analysis._trees import from_brackets as from_brackets
from gatedjax.analysis._trees import left_branching as left_branching
from gatedjax.analysis._trees import random_binary as random_binary
from gatedjax.analysis._trees import right_branching as right_branching
