"""The character n-grams of a token."""

from gatedjax.data.text._units import RUN

# Only this many characters of a token have n-grams, because longer tokens are not words.
_SPELLED = 30
# The sizes of n-grams in characters.
_SIZES = (1, 2, 3, 4, 5)
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
    # No character of these scripts is ASCII, and this test is faster.
    is_word = token.isascii() or not is_spaceless(token)
    letters = f" {token[:_SPELLED]} " if is_word else token[:_SPELLED]
    ngrams = [letters[i : i + n] for n in _SIZES for i in range(len(letters) - n + 1)]
    # The spaces at the ends of a word are the first and the last n-gram of one character.
    return [*ngrams[1 : len(letters) - 1], *ngrams[len(letters) :]] if is_word else ngrams


def spell_across(left: str, right: str) -> list[str]:
    """Returns the n-grams of up to 4 characters across the border of two neighbours. They are those
    of a word of both, so that they do not depend on the place of the border.
    """
    return [
        left[-before:] + right[:after]
        for before in range(1, min(len(left), _SIDE) + 1)
        for after in range(1, min(len(right), _ACROSS - before) + 1)
    ]
