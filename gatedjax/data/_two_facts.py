"""`two_facts`: cloze questions made here, each of whose answers takes two facts.

A document states chains of two facts in random order,

    the key is in the box . ... the box is in the hall .

one chain per candidate, and the query asks for the end of one of them:

    the key is at last in @placeholder

The candidates are the ends of all chains. Nothing but following the chain tells them apart: every
end occurs once, every name takes every part (thing, holder, end) equally often over questions, no
two facts of one chain stand side by side more often than chance has it, and the query names only
the first thing, which stands in the same sentence as no candidate. A reader that looks for what
stands beside the words of the query finds the holder, which is no candidate.
"""

import functools

import numpy as np

from gatedjax.data import _cloze
from gatedjax.data._source import Example, Source, SourceInfo

SIZES = {"train": 20_000, "validation": 500, "test": 1_000}
CHAINS = 3
_STREAM = {"train": 0, "validation": 1, "test": 2}
_ROOT_SEED = 17_606
NAMES = ("bag", "basket", "box", "cup", "drawer", "garden", "hall", "jar", "kitchen", "pocket")
NAMES += ("shed", "tin", "tower", "trunk", "van", "well")


def make(split: str, index: int) -> Example:
    """Makes question `index` of a split; a pure function of the two.

    Args:
      split: "train", "validation" or "test".
      index: from 0.
    """
    stream = _STREAM[split]
    draw = np.random.default_rng(np.random.SeedSequence([_ROOT_SEED, stream, index]))
    names = [NAMES[i] for i in draw.permutation(len(NAMES))[: 3 * CHAINS]]
    chains = [tuple(names[i : i + 3]) for i in range(0, len(names), 3)]
    facts = [fact for a, b, c in chains for fact in ((a, b), (b, c))]
    document = " ".join(
        f"{facts[i][0]} is in {facts[i][1]} ." for i in draw.permutation(len(facts))
    )
    thing, _, end = chains[int(draw.integers(CHAINS))]
    ends = sorted(chain[2] for chain in chains)
    question = _cloze.question(document, f"{thing} is in {_cloze.PLACEHOLDER}", end, ends)
    return _cloze.example(question, stream * 100_000_000 + index)


@functools.cache
def _examples(split: str) -> tuple[Example, ...]:
    return tuple(make(split, index) for index in range(SIZES[split]))


def source(split: str) -> Source:
    """Returns a split: 20,000 train, 500 validation, 1,000 test questions."""
    examples = [dict(example) for example in _examples(split)]
    return Source(examples, SourceInfo("two_facts", split, _cloze.CLASSES))
