"""`two_facts`: generated cloze questions whose answers need two facts.

A document states in random order where three things are; a sentence is a thing and its place. In
validation and test each thing needs two facts, and no sentence has both the thing and its place:

    key box .      (the key is in the box)
    box hall .     (the box is in the hall)
    key @placeholder  -> hall

The candidates are the three places. Only following the chain distinguishes them: each place occurs
once and each holder twice, the order of the sentences is random, things and places are drawn anew
for each question, and the holders are the same three words in all questions. A reader that looks
for the neighbours of the query's words finds a holder, which is no candidate.

In training half of the things need a single fact: key hall . Such questions teach a reader to find
the thing of the query; they do not help with the second fact.
"""

import numpy as np

from gatedjax.data.files._source import Example
from gatedjax.data.sets import _cloze
from gatedjax.data.sets._declaration import ID_BASE, generate_set

SIZES = {"train": 40_000, "validation": 500, "test": 1_000}
CHAINS = 3
DIRECT = 0.5
"""The probability that a thing of a training document needs a single fact."""
_STREAM = {"train": 0, "validation": 1, "test": 2}
_ROOT_SEED = 17_606

HOLDERS = ("box", "bag", "jar")
THINGS: tuple[str, ...] = ("apple", "ball", "bell", "book", "brush", "button", "candle", "coin")
THINGS += ("comb", "cork", "feather", "flute", "hat", "key", "knife", "lamp")
THINGS += ("letter", "map", "nail", "pen", "ring", "rope", "shoe", "spoon")
PLACES: tuple[str, ...] = ("attic", "barn", "cellar", "garden", "hall", "kitchen")
PLACES += ("library", "office", "pantry", "stable", "tower", "workshop")


def make(split: str, index: int) -> Example:
    """Makes question `index` of a split, as a pure function of both."""
    stream = _STREAM[split]
    draw = np.random.default_rng(np.random.SeedSequence([_ROOT_SEED, stream, index]))
    things, holders, places = (
        [words[i] for i in draw.permutation(len(words))[:CHAINS]]
        for words in (THINGS, HOLDERS, PLACES)
    )
    direct = draw.random(CHAINS) < (DIRECT if split == "train" else 0.0)
    facts = []
    for thing, holder, place, is_direct in zip(things, holders, places, direct, strict=True):
        facts += [(thing, place)] if is_direct else [(thing, holder), (holder, place)]
    sentences = [f"{facts[i][0]} {facts[i][1]} ." for i in draw.permutation(len(facts))]
    number = int(draw.integers(CHAINS))
    query = f"{things[number]} {_cloze.PLACEHOLDER}"
    question = _cloze.question(" ".join(sentences), query, places[number], sorted(places))
    return _cloze.example(question, ID_BASE[split] + index)


DECLARED = (generate_set("two_facts", SIZES, _cloze.CLASSES, make, unit="questions"),)
