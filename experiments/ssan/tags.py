"""Attention by the part of speech of the key, for table 7."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from gatedjax.analysis._attention_mass import check_weights
from gatedjax.analysis._checks import check_numbers
from gatedjax.analysis.trees import PUNCTUATION

CONTENT = ("Noun", "Verb", "Adj")
CONTENT_FREE = ("Prep", "Dete", "Punc", "Others")
TAG_CLASSES = CONTENT + CONTENT_FREE
"""The rows of the paper's table 7."""

_EXACT = {
    **dict.fromkeys(("IN", "TO"), "Prep"),
    **dict.fromkeys(("DT", "PDT", "WDT"), "Dete"),
    **dict.fromkeys((*PUNCTUATION, "-LRB-", "-RRB-", "(", ")", '"', "HYPH", "NFP"), "Punc"),
}
_PREFIX = {"NN": "Noun", "VB": "Verb", "JJ": "Adj"}


def tag_class(tag: str) -> str:
    """Returns the row of the paper's table 7 for a Penn tag; MD belongs to "Others"."""
    if tag in _EXACT:
        return _EXACT[tag]
    return _PREFIX.get(tag[:2], "Others")


@dataclasses.dataclass(frozen=True)
class TagCounts:
    """Attention by the class of the key's tag; counts of parts of a data set can be added."""

    mass: Mapping[str, float]

    def __add__(self, other: "TagCounts") -> "TagCounts":
        return TagCounts({name: self.mass[name] + other.mass[name] for name in TAG_CLASSES})

    def shares(self) -> dict[str, float]:
        """Returns each class's share of all attention, and the sums "Content" and "Content-free".
        All shares are 0 if there is no attention."""
        total = sum(self.mass.values())
        shares = {name: self.mass[name] / total if total else 0.0 for name in TAG_CLASSES}
        shares["Content"] = sum(shares[name] for name in CONTENT)
        shares["Content-free"] = sum(shares[name] for name in CONTENT_FREE)
        return shares


def tag_counts(weights: ArrayLike, tags: Sequence[str]) -> TagCounts:
    """Sums the attention within a sentence by the tag of the key. Reference: Geng et al. 2020
    (SSAN), table 7. Rows and columns of W [N', N'] after the last word are padding."""
    weights, _ = check_weights(np.asarray(weights)[None], [len(tags)])
    real_weights = weights[0, : len(tags), : len(tags)]
    check_numbers("weights", real_weights, 0, where=" at real words")
    mass = dict.fromkeys(TAG_CLASSES, 0.0)
    for tag, received in zip(tags, real_weights.sum(axis=0), strict=True):
        mass[tag_class(tag)] += float(received)
    return TagCounts(mass)
