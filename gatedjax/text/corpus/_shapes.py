"""A vocabulary that distinguishes out-of-vocabulary words by their shape."""

import collections
from collections.abc import Iterable

import numpy as np

from gatedjax.data.text._vocabulary import SPECIALS, UNK, Vocabulary

_MARK = "\0"
"""The first character of a shape, which no word of a file has."""
_LEAST = 3
"""Number of different words with a shape that puts the shape into the vocabulary."""


def shapes(word: str) -> tuple[str, ...]:
    """Returns the shapes of a word, the most specific first: its kind and its last three, two or no
    letters. The kind is "0" with a digit, "." without letters, "A" in capitals, "Aa" with a capital
    first, else "a", and ends with "-" if the word has a hyphen.
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
    """Returns the shapes that at least three of the words have, sorted."""
    counts = collections.Counter(shape for word in words for shape in shapes(word))
    return sorted(shape for shape, count in counts.items() if count >= _LEAST)


def is_unknown(vocabulary: Vocabulary) -> np.ndarray:
    """Returns bool [V]: True for the ids of `vocabulary` that stand for unknown words or shapes."""
    return np.array([w == SPECIALS[UNK] or w.startswith(_MARK) for w in vocabulary.words])


class ShapedVocabulary(Vocabulary):
    """A vocabulary that gives an out-of-vocabulary word the id of its shape."""

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Returns an id for each token: its id, else the id of its shape, else 1."""
        # The tokens are read twice, and an iterator only once.
        tokens = list(tokens)
        ids = super().encode(tokens)
        for place in (place for place, i in enumerate(ids) if i == UNK):
            word = tokens[place].lower() if self.lowercase else tokens[place]
            ids[place] = next(filter(None, map(self._ids.get, shapes(word))), UNK)
        return ids
