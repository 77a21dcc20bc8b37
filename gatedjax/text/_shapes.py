"""A vocabulary that tells words it does not have by their shape."""

import collections
from collections.abc import Iterable

import numpy as np

from gatedjax.data.text._vocabulary import SPECIALS, UNK, Vocabulary

_MARK = "\0"
"""Before a shape: no word of a file has it."""
_LEAST = 3
"""Words that a shape needs to be learned."""


def shapes(word: str) -> tuple[str, ...]:
    """The shapes of a word, the most telling one first: its kind with three, two, no last letters.

    The kind is digits, capitals, a capital, small letters or marks, and whether there is a hyphen.
    """
    if any(c.isdigit() for c in word):
        kind = "0"
    elif not any(c.isalpha() for c in word):
        kind = "."
    elif not word[:1].isupper():
        kind = "a"
    else:
        kind = "A" if word.isupper() and len(word) > 1 else "Aa"
    kind = f"{_MARK}{kind}{'-' * ('-' in word[1:-1])}:"
    end = word[-3:].lower()
    return tuple(dict.fromkeys((kind + end, kind + end[-2:], kind)))


def common_shapes(words: Iterable[str]) -> list[str]:
    """The shapes that several of the words have, sorted."""
    counts = collections.Counter(shape for word in words for shape in shapes(word))
    return sorted(shape for shape, count in counts.items() if count >= _LEAST)


def strange(vocabulary: Vocabulary) -> np.ndarray:
    """Of every id, whether it stands for words that the vocabulary does not have."""
    return np.array([w == SPECIALS[UNK] or w.startswith(_MARK) for w in vocabulary.words])


class ShapedVocabulary(Vocabulary):
    """Gives a word that it does not have the id of its shape, as far as it has that."""

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Returns the id of every token, or of its shape; 1 where there is neither."""
        tokens = list(tokens)
        return [
            self._shape(token) if i == UNK else i
            for i, token in zip(super().encode(tokens), tokens, strict=True)
        ]

    def _shape(self, token: str) -> int:
        folded = token.lower() if self.lowercase else token
        return next((self._ids[one] for one in shapes(folded) if one in self._ids), UNK)
