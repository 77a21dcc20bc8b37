"""Units of a text: words, marks, addresses, and pieces of scripts that have no spaces."""

import collections
import functools
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping

# Scripts without spaces: kana, Han, Thai, Lao, Burmese and Khmer.
_SPACELESS = (
    "\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
)
_RUN = re.compile(f"[{_SPACELESS}]+")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_ADDRESS = re.compile(r"(https?://[^/\s]+)\S*")
# Longest piece of a script without spaces, and how often a piece must occur in the training texts.
_LONGEST, _LEAST = 4, 3
# Only so many characters of a word have n-grams, because longer words are no words.
_SPELLED = 30
# Scores are integers, because sums of integers do not depend on their order. A piece therefore
# stays whole if it is read without its neighbours.
_SCALE = 1 << 16


def _compile(marks: str) -> re.Pattern[str]:
    letter = rf"(?:(?![{_SPACELESS}])[\w{marks}])"
    return re.compile(
        rf"https?://[^\s/]+|[@#][\w{marks}]+|[{_SPACELESS}]+"
        rf"|(?:(?![{_SPACELESS}])\w){letter}*(?:'\w[\w{marks}]*)?|[^\w\s]"
    )


_TOKEN = _compile("")


@functools.cache
def _token_with_marks() -> re.Pattern[str]:
    # A vowel sign of Hindi is a mark, which `\w` does not match, although it is a part of a word.
    marks = (c for c in map(chr, range(0x300, 0x20000)) if unicodedata.category(c)[0] == "M")
    return _compile("".join(mark for mark in marks if not _RUN.match(mark)))


def is_spaceless(unit: str) -> bool:
    """Returns True if a unit is a piece of a script without spaces, such as Chinese or Thai."""
    return _RUN.match(unit) is not None


def spell(unit: str) -> list[str]:
    """Returns the character n-grams of a unit, with repetitions.

    A word has n-grams of 2 to 4 characters, with a space at both ends. A piece of a script without
    spaces has n-grams of 1 to 3 characters.

        >>> spell("at")
        [' a', 'at', 't ', ' at', 'at ', ' at ']

    Args:
      unit: the unit; only its first 30 characters are used.
    """
    if is_spaceless(unit):
        letters, sizes = unit[:_SPELLED], (1, 2, 3)
    else:
        letters, sizes = f" {unit[:_SPELLED]} ", (2, 3, 4)
    return [letters[i : i + n] for n in sizes for i in range(len(letters) - n + 1)]


class Units:
    """Splits texts into units.

    A unit is an address (scheme and host), @user, #tag, a word with its apostrophe, a mark of
    punctuation, or a piece of a run of characters in a script without spaces. Such a run is cut
    into the pieces u with the largest sum of log p(u), a unigram model (Viterbi). The units of a
    text are also the units of each of them: `split(" ".join(units))` returns `units` again, also
    if some of them are left out.

        >>> Units().split("It's fine, see https://a.org/b?c @bob")
        ["it's", 'fine', ',', 'see', 'https://a.org', '@bob']

    Args:
      scores: round(65536 log p) of each piece; `learn_units` counts them.
      lowercase: True ignores case.
    """

    def __init__(self, scores: Mapping[str, int] | None = None, *, lowercase: bool = True) -> None:
        self.scores, self.lowercase = dict(scores or {}), lowercase
        lowest = min(self.scores.values(), default=0)
        # A character that is no piece costs more than each piece.
        self._unknown = lowest - _SCALE

    def split(self, text: str) -> list[str]:
        """Returns the units of a text, in their order."""
        if self.lowercase:
            text = text.lower()
        token = _TOKEN
        if not text.isascii():
            text, token = unicodedata.normalize("NFC", text), _token_with_marks()
        if "<" in text:
            text = _BREAK.sub(" ", text)
        if "://" in text:
            text = _ADDRESS.sub(r"\1 ", text)
        tokens = token.findall(text)
        if text.isascii() or _RUN.search(text) is None:
            return tokens
        return [unit for t in tokens for unit in (self.cut(t) if _RUN.fullmatch(t) else (t,))]

    def cut(self, run: str) -> list[str]:
        """Cuts a run of characters of a script without spaces into its most probable pieces."""
        best, back = [0], [0]
        for end in range(1, len(run) + 1):
            top, size = best[end - 1] + self.scores.get(run[end - 1], self._unknown), 1
            for length in range(2, min(_LONGEST, end) + 1):
                score = self.scores.get(run[end - length : end])
                # The shorter piece wins among equals, also if the run has more characters.
                if score is not None and best[end - length] + score > top:
                    top, size = best[end - length] + score, length
            best.append(top)
            back.append(size)
        pieces, end = [], len(run)
        while end:
            pieces.append(run[end - back[end] : end])
            end -= back[end]
        return pieces[::-1]


def learn_units(texts: Iterable[str], *, lowercase: bool = True) -> Units:
    """Learns the pieces of scripts without spaces from texts.

    The pieces are first all substrings of up to 4 characters that occur at least 3 times. The texts
    are then cut with them, and their frequencies are counted again in the result.

        >>> learn_units(["今天天气好", "天气好", "天气", "今天"] * 2).split("今天天气")
        ['今天', '天气']

    Args:
      texts: the training texts.
      lowercase: True ignores case.

    Returns:
      The splitter.
    """
    runs: collections.Counter[str] = collections.Counter()
    for text in texts:
        if not text.isascii():
            runs.update(_RUN.findall(unicodedata.normalize("NFC", text)))
    counts: collections.Counter[str] = collections.Counter()
    for run, times in runs.items():
        for size in range(1, _LONGEST + 1):
            for start in range(len(run) - size + 1):
                counts[run[start : start + size]] += times
    total = sum(len(run) * times for run, times in runs.items())
    units = Units(
        _scores({u: c for u, c in counts.items() if c >= _LEAST}, total), lowercase=lowercase
    )
    counts = collections.Counter()
    for run, times in runs.items():
        for piece in units.cut(run):
            counts[piece] += times
    total = sum(counts.values())
    return Units(_scores({u: c for u, c in counts.items() if c > 1}, total), lowercase=lowercase)


def _scores(counts: Mapping[str, int], total: int) -> dict[str, int]:
    return {unit: round(_SCALE * math.log(count / total)) for unit, count in counts.items()}
