"""The character n-grams of a token."""

from gatedjax.data.text._units import RUN

# Only so many characters of a token have n-grams, because longer tokens are no words.
_SPELLED = 30


def is_spaceless(token: str) -> bool:
    """Returns True if a token is a unit of a script without spaces, such as Chinese or Thai."""
    return RUN.match(token) is not None


def spell(token: str) -> list[str]:
    """Returns the character n-grams of a token, with repetitions.

    A word has n-grams of 2 to 4 characters, with a space at both ends. A unit of a script without
    spaces has n-grams of 1 to 3 characters, without its ends, because it may be inside a word.

        >>> spell("at")
        [' a', 'at', 't ', ' at', 'at ', ' at ']

    Args:
      token: the token; only its first 30 characters are used.
    """
    # No character of these scripts is ASCII, and this test is faster.
    if not token.isascii() and is_spaceless(token):
        letters, sizes = token[:_SPELLED], (1, 2, 3)
    else:
        letters, sizes = f" {token[:_SPELLED]} ", (2, 3, 4)
    return [letters[i : i + n] for n in sizes for i in range(len(letters) - n + 1)]
