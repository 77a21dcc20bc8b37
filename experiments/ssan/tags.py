"""Table 7: attention by the part of speech of the key."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from gatedjax.analysis._attention_mass import check_not_negative, check_weights
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
    """The row of the paper's table 7 that a Penn tag belongs to; MD is among "Others"."""
    if tag in _EXACT:
        return _EXACT[tag]
    return _PREFIX.get(tag[:2], "Others")


@dataclasses.dataclass(frozen=True)
class TagCounts:
    """Attention by the class of the key's tag; counts of parts of a data set can be added.

    Attributes:
      mass: class -> sum of the weights on keys of that class.
    """

    mass: Mapping[str, float]

    def __add__(self, other: "TagCounts") -> "TagCounts":
        return TagCounts({name: self.mass[name] + other.mass[name] for name in TAG_CLASSES})

    def shares(self) -> dict[str, float]:
        """The share of all mass that each class has, and "Content" and "Content-free" in all.

        0 everywhere if there is no mass.
        """
        total = sum(self.mass.values())
        shares = {name: self.mass[name] / total if total else 0.0 for name in TAG_CLASSES}
        shares["Content"] = sum(shares[name] for name in CONTENT)
        shares["Content-free"] = sum(shares[name] for name in CONTENT_FREE)
        return shares


def tag_counts(weights: ArrayLike, tags: Sequence[str]) -> TagCounts:
    """Sums the attention of a sentence by the tag of the key.

    Args:
      weights: W [N', N'] of one sentence; what follows the last word is padding and ignored.
      tags: Penn tags of its words.

    Reference: Geng et al. 2020 (SSAN), table 7.
    """
    weights, _ = check_weights(np.asarray(weights)[None], [len(tags)])
    real_weights = weights[0, : len(tags), : len(tags)]
    check_not_negative(real_weights)
    mass = dict.fromkeys(TAG_CLASSES, 0.0)
    for tag, received in zip(tags, real_weights.sum(axis=0), strict=True):
        mass[tag_class(tag)] += float(received)
    return TagCounts(mass)
