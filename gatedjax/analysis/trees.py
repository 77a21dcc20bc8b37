"""Constituency trees from attention, and scores of these trees against gold trees.

    tree = trees.from_attention(weights)  # [N, N], the weights of a sentence
    trees.bracket_counts(gold, tree, drop=punctuation).value().f1
    trees.right_branching(len(words))  # a baseline that other trees should beat

Reference: Geng et al. 2020, How Does Selective Mechanism Improve Self-Attention Networks?, 5.2.
"""

from gatedjax.analysis._brackets import PUNCTUATION as PUNCTUATION
from gatedjax.analysis._brackets import bracket_counts as bracket_counts
from gatedjax.analysis._brackets import bracket_scores as bracket_scores
from gatedjax.analysis._trees import Norm as Norm
from gatedjax.analysis._trees import SpanTree as SpanTree
from gatedjax.analysis._trees import balanced as balanced
from gatedjax.analysis._trees import from_attention as from_attention
from gatedjax.analysis._trees import from_brackets as from_brackets
from gatedjax.analysis._trees import left_branching as left_branching
from gatedjax.analysis._trees import random_binary as random_binary
from gatedjax.analysis._trees import right_branching as right_branching
