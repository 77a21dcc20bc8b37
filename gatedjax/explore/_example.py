"""The text with which the page opens when there are no labelled sentences."""

from collections.abc import Iterable
from itertools import islice

WORDS = 8
"""Number of words in an example."""
FREQUENT_WORDS = "An example: the most frequent words of the vocabulary. Type your own text."
"""The note of an example that `example_text` returns."""


def example_words(words: Iterable[str], count: int = WORDS) -> list[str]:
    """Returns the first words, at most `count`, that consist of letters.

    >>> example_words(["<pad>", "<unk>", ",", "film", "dull"], count=2)
    ['film', 'dull']
    """
    # Special words and punctuation come first in a vocabulary and say little in an example.
    return list(islice((word for word in words if word.isalpha()), count))


def example_text(words: Iterable[str]) -> str:
    """Returns an example: the most frequent words of a vocabulary, with spaces between them.

    >>> example_text(["<pad>", "<unk>", ",", "film", "dull"])
    'film dull'
    """
    return " ".join(example_words(words))
