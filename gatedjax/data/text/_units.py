"""Units of scripts without spaces between words: a unigram model of short substrings."""

import collections
import functools
import itertools
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

# Han, kana, Thai, Lao, Burmese and Khmer: letters, marks and digits, but not the punctuation marks
# of their blocks, which end a run like any other mark.
SPACELESS = (
    "\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af"
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e50-\u0e59\u0e81-\u0eff"
    "\u1000-\u1049\u1050-\u109f\ua9e0-\ua9fe\uaa60-\uaa7f"
    "\u1780-\u17d3\u17d7\u17dc-\u17e9"
)
"""Ranges of characters, for use inside the brackets of a regular expression."""
RUN = re.compile(f"[{SPACELESS}]+")
_PARTS = re.compile(f"[{SPACELESS}]+|[^{SPACELESS}]+")
LONGEST = 4
"""The most characters of a unit; a combining mark belongs to the character before it."""
_HAN = re.compile("[\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]+")
_LONGEST_HAN = 2
"""The most characters of a learned unit of Han characters only. Most Chinese words have one or two
characters, and longer units are so rare that they hide the words inside them."""
_LEAST = 3
"""Number of times that a substring of several characters must occur to be a possible unit."""
_MOST = 2_000_000
"""The most characters from which units are learned, because their substrings fill the memory."""
_REMEMBERED = 1 << 16
_SCALE = 1 << 16
"""Scores are integers, because sums of integers do not depend on their order."""


class Units:
    """A unigram model (Kudo 2018, learned in a single round) that cuts runs of characters of
    scripts without spaces into the units u_1 ... u_m of the highest probability prod_i p(u_i).

        p(u) = count(u) / total,  0.5 / total for a single character that is not a unit

        >>> units = Units({"\u96fb\u5f71": 6, "\u597d": 4, "\u770b": 3}, 20)
        >>> units.cut("\u96fb\u5f71\u597d\u770b") == ("\u96fb\u5f71", "\u597d", "\u770b")
        True
    """

    def __init__(self, counts: Mapping[str, int], total: int) -> None:
        numbers = (total, *counts.values())
        if not all(type(n) is int and n > 0 for n in numbers) or not all(
            isinstance(unit, str) and unit for unit in counts
        ):
            raise ValueError(
                "units must be texts with counts above 0, and total must be an integer above 0, "
                f"got {counts!r:.80} and {total!r}"
            )
        self.counts, self.total = dict(counts), total
        self._logs = {
            unit: round(_SCALE * math.log(count / total)) for unit, count in counts.items()
        }
        self._unknown = round(_SCALE * math.log(0.5 / total))
        # No string of more characters than the longest unit is looked up.
        self._longest = max((len(split_characters(unit)) for unit in counts), default=1)
        self._longest_han = max((len(unit) for unit in counts if _HAN.fullmatch(unit)), default=1)
        self._cut = functools.lru_cache(_REMEMBERED)(self._viterbi)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Units) and (self.counts, self.total) == (other.counts, other.total)

    def __hash__(self) -> int:
        return hash((len(self.counts), self.total))

    def __reduce__(self) -> tuple[object, ...]:
        # The cache of a method cannot be pickled.
        return type(self), (self.counts, self.total)

    def __repr__(self) -> str:
        return f"Units({len(self.counts):,} units)"

    @classmethod
    def learn(cls, texts: Iterable[str]) -> "Units | None":
        """Learns units in a single round: the runs are cut by all characters and by the substrings
        that occur three times, and the units that then occur twice stay. None if no text has a run
        of two characters.
        """
        runs = _select_runs(texts)
        atoms = {run: split_characters(run) for run in runs}
        if not any(len(characters) > 1 for characters in atoms.values()):
            return None
        total = sum(times * len(atoms[run]) for run, times in runs.items())
        counts = _count_substrings(runs, atoms)
        first = cls({unit: count for unit, count in counts.items() if count >= _LEAST}, total)
        second: collections.Counter[str] = collections.Counter()
        for run, times in runs.items():
            for unit in first.cut(run):
                second[unit] += times
        # Sorted, because the order of a file of units should not depend on the order of the texts.
        frequent = {unit: second[unit] for unit in sorted(second) if second[unit] > 1}
        return cls(frequent, second.total())

    def cut(self, run: str) -> tuple[str, ...]:
        """Cuts a run of characters of scripts without spaces into units, in order."""
        return self._cut(run)

    def split(self, tokens: Iterable[str]) -> list[str]:
        """Cuts runs of characters of scripts without spaces inside tokens into units."""
        out: list[str] = []
        for token in tokens:
            if token.isascii() or token[0] in "#@" or not RUN.search(token):
                out.append(token)
                continue
            for part in _PARTS.findall(token):
                out.extend(self.cut(part) if RUN.match(part) else (part,))
        return out

    def _viterbi(self, run: str) -> tuple[str, ...]:
        """Returns the most probable units of a run, a text without spaces, in order."""
        # Logarithms are rounded to integers, so that a unit stays whole if it is cut again.
        if self._longest_han <= _LONGEST_HAN and _HAN.fullmatch(run):
            return self._cut_pairs(run)
        characters = split_characters(run)
        # Character i of the run is run[places[i] : places[i + 1]].
        places = [0, *itertools.accumulate(map(len, characters))]
        best, back = [0], [0]
        find, unknown, longest = self._logs.get, self._unknown, min(LONGEST, self._longest)
        for end in range(1, len(places)):
            stop = places[end]
            highest, length = find(run[places[end - 1] : stop], unknown) + best[-1], 1
            for size in range(2, min(longest, end) + 1):
                log = find(run[places[end - size] : stop])
                # The comparison is strict, so that the shorter of two equally probable units is
                # used.
                if log is not None and log + best[end - size] > highest:
                    highest, length = log + best[end - size], size
            best.append(highest)
            back.append(length)
        units, end = [], len(back) - 1
        while end:
            units.append(run[places[end - back[end]] : places[end]])
            end -= back[end]
        return tuple(reversed(units))

    def _cut_pairs(self, run: str) -> tuple[str, ...]:
        """Returns `_viterbi` of a run of Han characters, units of one or two, in half the time."""
        find, unknown = self._logs.get, self._unknown
        before = best = 0
        last, is_pair = "", []
        for character in run:
            single, pair = find(character, unknown) + best, find(last + character)
            last = character
            # At the first character the pair is the character, which is not better than itself.
            if pair is not None and pair + before > single:
                before, best = best, pair + before
                is_pair.append(True)
            else:
                before, best = best, single
                is_pair.append(False)
        units, end = [], len(run)
        while end:
            start = end - 1 - is_pair[end - 1]
            units.append(run[start:end])
            end = start
        return tuple(reversed(units))


def split_characters(run: str) -> Sequence[str]:
    """Splits a text into its characters, each with the combining marks after it.

    >>> len(split_characters("ka\u0301n"))
    3
    """
    if not any(map(is_mark, run)):
        return run
    characters: list[str] = []
    for char in run:
        if characters and is_mark(char):
            characters[-1] += char
        else:
            characters.append(char)
    return characters


@functools.cache  # Texts have few different characters.
def is_mark(character: str) -> bool:
    """Returns True for a combining mark."""
    return unicodedata.category(character)[0] == "M"


def _count_substrings(
    runs: Mapping[str, int], atoms: Mapping[str, Sequence[str]]
) -> collections.Counter[str]:
    """Returns substring -> count, for the substrings of runs that may be units."""
    counts: collections.Counter[str] = collections.Counter()
    for run, times in runs.items():
        characters = atoms[run]
        places = [0, *itertools.accumulate(map(len, characters))]
        # No longer substring of a run of Han characters is a unit.
        longest = _LONGEST_HAN if _HAN.fullmatch(run) else LONGEST
        for size in range(1, longest + 1):
            strings = [run[i:j] for i, j in zip(places, places[size:], strict=False)]
            if times == 1:
                counts.update(strings)  # Most runs occur once, and this is faster than a loop.
                continue
            for string in strings:
                counts[string] += times
    if any(not _HAN.fullmatch(run) for run in runs):
        for unit in [u for u in counts if len(u) > _LONGEST_HAN and _HAN.fullmatch(u)]:
            del counts[unit]
    return counts


def _select_runs(texts: Iterable[str]) -> collections.Counter[str]:
    """Returns run -> count for each k-th text; k doubles when the runs exceed `_MOST`."""
    chosen: list[tuple[list[str], int]] = []
    size, step = 0, 1
    with_runs = (runs for text in texts if not text.isascii() and (runs := RUN.findall(text)))
    for number, runs in enumerate(with_runs):
        if number % step:
            continue
        chosen.append((runs, sum(map(len, runs))))
        size += chosen[-1][1]
        while size > _MOST and len(chosen) > 1:
            chosen, step = chosen[::2], 2 * step
            size = sum(length for _, length in chosen)
    joined = itertools.chain.from_iterable(runs for runs, _ in chosen)
    return collections.Counter(unicodedata.normalize("NFC", run) for run in joined)
