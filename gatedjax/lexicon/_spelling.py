"""The character n-grams of a token."""

from collections.abc import Sequence

import numpy as np

from gatedjax.data.text._units import RUN

# Only this many characters of a token have n-grams, because longer tokens are not words.
_SPELLED = 30
# The sizes of n-grams in characters.
_SIZES = (1, 2, 3, 4, 5)
_LARGEST = _SIZES[-1]
# The most characters of an n-gram across a border, in all and on a side of the border.
_ACROSS, _SIDE = 4, 3


def is_spaceless(token: str) -> bool:
    """Returns True if a token is a unit of a script without spaces, such as Chinese or Thai."""
    return RUN.match(token) is not None


def spell(token: str) -> list[str]:
    """Splits a token into character n-grams.

    A word has n-grams of 1 to 5 characters, with a space at both ends; a single space is none. A
    unit of a script without spaces has no spaces at its ends, because it may be inside a word.

        >>> spell("at")
        ['a', 't', ' a', 'at', 't ', ' at', 'at ', ' at ']

    Args:
      token: a word, or a unit of a script without spaces. Characters after the first 30 are
        ignored.

    Returns:
      The n-grams by size, with repetitions.
    """
    letters = _frame(token)
    ngrams = [letters[i : i + n] for n in _SIZES for i in range(len(letters) - n + 1)]
    # The spaces at the ends of a word are the first and the last n-gram of one character.
    return (
        ngrams if letters[:1] != " " else [*ngrams[1 : len(letters) - 1], *ngrams[len(letters) :]]
    )


def spell_across(left: str, right: str) -> list[str]:
    """Returns the n-grams of up to 4 characters across the border of two neighbours. They are those
    of a word of both, so that they do not depend on the place of the border.
    """
    return [
        left[-before:] + right[:after]
        for before in range(1, min(len(left), _SIDE) + 1)
        for after in range(1, min(len(right), _ACROSS - before) + 1)
    ]


class NgramKeys:
    """Integers for n-grams of up to five characters, which are computed for many words at once. A
    key has a digit for each character: its position among the characters of the given n-grams, from
    1, and a further digit for all other characters. No digit is 0, so that n-grams of different
    sizes differ.
    """

    def __init__(self, ngrams: Sequence[str]) -> None:
        places = [i for i, ngram in enumerate(ngrams) if 0 < len(ngram) <= _LARGEST]
        short = [ngrams[i] for i in places]
        self._alphabet = np.unique(_encode(short))
        self._base = len(self._alphabet) + 2
        # With more characters the keys would not fit into 64 bits.
        self.is_exact = self._base**_LARGEST < 2**63
        sizes = np.fromiter(map(len, short), np.int64, len(short))
        keys = self._compute(short, np.cumsum(sizes) - sizes, sizes)
        order = np.argsort(keys)
        # `order` has the positions in `ngrams` of the sorted keys.
        self.keys, self.order = keys[order], np.array(places, np.int64)[order]

    def spell(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the keys of the n-grams of V words, in the order of `spell`, and the number of
        n-grams of each word, int64 [V].
        """
        letters = [_frame(word) for word in words]
        lengths = np.fromiter(map(len, letters), np.int64, len(letters))
        counts = np.maximum(lengths[:, None] - np.array(_SIZES) + 1, 0)
        flat = counts.ravel()
        # The n-grams of a size start at consecutive letters of their word.
        starts = np.repeat(np.cumsum(lengths) - lengths, len(_SIZES)) - (np.cumsum(flat) - flat)
        places = np.repeat(starts, flat) + np.arange(flat.sum())
        sizes = np.repeat(np.tile(_SIZES, len(letters)), flat)
        # The space at the end of a word has a key, too, which is that of no n-gram.
        return self._compute(letters, places, sizes), counts.sum(1)

    def _compute(self, texts: Sequence[str], places: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Returns the keys of n-grams at `places` of the joined texts, of `sizes` letters."""
        codes = _encode(texts)
        digits = np.searchsorted(self._alphabet, codes)
        is_known = digits < len(self._alphabet)
        is_known[is_known] = self._alphabet[digits[is_known]] == codes[is_known]
        digits = np.where(is_known, digits, len(self._alphabet)) + 1
        keys, windows = np.zeros(len(places), np.int64), digits
        for size in _SIZES:
            indices = np.flatnonzero(sizes == size)
            keys[indices] = windows[places[indices]]
            windows = windows[:-1] * self._base + digits[size:]
        return keys


def _encode(texts: Sequence[str]) -> np.ndarray:
    # A file may have half of a surrogate pair, which has a code point, too.
    return np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)


def _frame(token: str) -> str:
    # No character of these scripts is ASCII, and this test is faster.
    if not token.isascii() and is_spaceless(token):
        return token[:_SPELLED]
    return f" {token[:_SPELLED]} "
