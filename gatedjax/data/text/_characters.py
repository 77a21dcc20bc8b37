"""Spelling of words as ids of characters."""

from collections.abc import Sequence

import numpy as np

from gatedjax.data.text._vocabulary import PAD, Vocabulary

MAX_CHARACTERS = 10
"""Longer words are truncated (Dhingra et al. 2017, the authors' code)."""
SPACE = 1


class Characters:
    """An alphabet: id 0 is padding, id 1 the space and all unknown characters.

        >>> ids, lengths = Characters("abc").encode(["cab", "a?"])
        >>> print(ids[:, :4], lengths)
        [[4 2 3 0]
         [2 1 0 0]] [3 2]

    Args:
      alphabet: the characters from id 2 on, each a string of length 1.

    Raises:
      ValueError: if an entry is repeated, is the space, or is not a single character.
    """

    def __init__(self, alphabet: Sequence[str]) -> None:
        self.alphabet = "".join(alphabet)
        self._ids = {character: i for i, character in enumerate(self.alphabet, SPACE + 1)}
        if len(self._ids) != len(alphabet) or len(self.alphabet) != len(alphabet):
            raise ValueError(
                f"alphabet must hold single characters, each once, got {alphabet!r:.80}"
            )
        if " " in self._ids:
            raise ValueError(
                f"alphabet must not hold the space, which is id 1, got {alphabet!r:.80}"
            )

    @classmethod
    def build(cls, vocabulary: Vocabulary) -> "Characters":
        """Collects the characters of the words of a vocabulary, sorted by their code points.

        Characters after the first ten of a word are left out.
        """
        words = vocabulary.words[PAD + 1 :]
        return cls(sorted({c for word in words for c in word[:MAX_CHARACTERS]} - {" "}))

    def __len__(self) -> int:
        return len(self.alphabet) + 2

    def encode(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Spells words; only the first 10 characters of a word are used.

        Args:
          words: n words to encode.

        Returns:
          (ids int32 [n, 10], right padded with 0; lengths int32 [n], at most 10).
        """
        ids = np.zeros((len(words), MAX_CHARACTERS), np.int32)
        lengths = np.zeros(len(words), np.int32)
        for i, word in enumerate(words):
            spelt = [self._ids.get(character, SPACE) for character in word[:MAX_CHARACTERS]]
            ids[i, : len(spelt)] = spelt
            lengths[i] = len(spelt)
        return ids, lengths

    def table(self, vocabulary: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
        """Spells the V words of a vocabulary, in the order of ids.

        Returns (character ids int32 [V, 10], number of characters int32 [V]); padding has no
        characters.
        """
        ids, lengths = self.encode(("", *vocabulary.words[PAD + 1 :]))
        return ids, lengths
