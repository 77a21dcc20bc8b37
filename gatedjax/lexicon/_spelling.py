"""The character n-grams of a token."""

from collections.abc import Sequence

import numpy as np

from gatedjax.data.text._units import RUN

# Only so many characters of a token have n-grams, because longer tokens are no words.
_SPELLED = 30


def is_spaceless(token: str) -> bool:
    """Returns True if a token is a unit of a script without spaces, such as Chinese or Thai."""
    return RUN.match(token) is not None


def spell(token: str) -> list[str]:
    """Splits a token into character n-grams.

    A word has n-grams of 2 to 4 characters, with a space at both ends. A unit of a script without
    spaces has n-grams of 1 to 3 characters, without its ends, because it may be inside a word.

        >>> spell("at")
        [' a', 'at', 't ', ' at', 'at ', ' at ']

    Args:
      token: a word, or a unit of a script without spaces. Characters after the first 30 are
        ignored.

    Returns:
      The n-grams by size, with repetitions.
    """
    letters, size = _frame(token)
    return [
        letters[i : i + n] for n in (size, size + 1, size + 2) for i in range(len(letters) - n + 1)
    ]


class NgramKeys:
    """Integers for n-grams of up to four characters, which are computed for many words at once. A
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
        lengths = np.fromiter((len(text) for text, _ in letters), np.int64, len(letters))
        smallest = np.fromiter((size for _, size in letters), np.int64, len(letters))
        sizes = smallest[:, None] + np.arange(3)
        counts = np.maximum(lengths[:, None] - sizes + 1, 0)
        flat = counts.ravel()
        # The n-grams of a size start at consecutive letters of their word.
        starts = np.repeat(np.cumsum(lengths) - lengths, 3) - (np.cumsum(flat) - flat)
        places = np.repeat(starts, flat) + np.arange(flat.sum())
        keys = self._compute([text for text, _ in letters], places, np.repeat(sizes, flat))
        return keys, counts.sum(1)

    def _compute(self, texts: Sequence[str], places: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Returns the keys of n-grams that begin at `places` in the joined texts, with `sizes`
        letters.
        """
        codes = _encode(texts)
        digits = np.searchsorted(self._alphabet, codes)
        is_known = digits < len(self._alphabet)
        is_known[is_known] = self._alphabet[digits[is_known]] == codes[is_known]
        digits = np.where(is_known, digits, len(self._alphabet)) + 1
        keys, windows = np.zeros(len(places), np.int64), digits
        for size in range(1, _LARGEST + 1):
            indices = np.flatnonzero(sizes == size)
            keys[indices] = windows[places[indices]]
            windows = windows[:-1] * self._base + digits[size:]
        return keys


# The characters of the longest n-gram.
_LARGEST = 4


def _encode(texts: Sequence[str]) -> np.ndarray:
    # A file may have half of a surrogate pair, which has a code point, too.
    return np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)


def _frame(token: str) -> tuple[str, int]:
    # No character of these scripts is ASCII, and this test is faster.
    if not token.isascii() and is_spaceless(token):
        return token[:_SPELLED], 1
    return f" {token[:_SPELLED]} ", 2
