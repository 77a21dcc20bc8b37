"""A lexicon whose gates see the neighbours of a word, and the measurement of its leak."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gatedjax.lexicon._features import number_words
from gatedjax.lexicon._lexicon import Lexicon, Readings, Shares, check_different

_LARGEST_GATE = 1e37


class Neighbours(NamedTuple):
    """The words of texts with their left and right neighbours, as rows of a table of words.

    Attributes:
      words: int64 [T], the row of each of the T words of all texts.
      left_words: int64 [T], the row of the word before it. At the start of a text it is a further
        row, which stands for the edge of a text.
      right_words: int64 [T], the row of the word after it, or the row of the edge at the end of a
        text.
    """

    words: np.ndarray
    left_words: np.ndarray
    right_words: np.ndarray


def find_neighbours(words: np.ndarray, rows: np.ndarray, edge: int) -> Neighbours:
    """Returns the words of texts with their neighbours.

        >>> print(*find_neighbours(np.array([5, 6, 7]), np.array([0, 0, 1]), 9))
        [5 6 7] [9 5 9] [6 9 9]

    Args:
      words: int64 [T], the words of all texts, as rows of a table.
      rows: int64 [T], the index of the text of each word, sorted.
      edge: the row that stands for the edge of a text.
    """
    starts = np.diff(rows, prepend=-1) != 0
    ends = np.diff(rows, append=-1) != 0
    left_words = np.where(starts, edge, np.roll(words, 1))
    return Neighbours(words, left_words, np.where(ends, edge, np.roll(words, -1)))


def add_logits(gates: np.ndarray, neighbours: Neighbours) -> np.ndarray:
    """Computes z_t = a[x_t] + l[x_{t-1}] + r[x_{t+1}] for each word: [T], the logits of the gates.

    Args:
      gates: [G, 3], the numbers a, l and r of each of the G rows of the table of words: the parts
        of a word in its own logit, in that of the word after it, and in that of the word before it.
      neighbours: the T words x and their neighbours, as rows of the table.
    """
    words, left_words, right_words = neighbours
    return np.asarray(gates[words, 0] + gates[left_words, 1] + gates[right_words, 2])


@dataclasses.dataclass(frozen=True, eq=False)
class WindowLexicon:
    """A text classifier that reads open words, which it chooses by each word and its neighbours.

        z_t = a[x_t] + l[x_{t-1}] + r[x_{t+1}],   g_t = [z_t > c]
        logits = those of a `Lexicon` for the sequence of the open words

    With the same gates a closed word has no effect. If a closed word is removed, however, its
    neighbours have another neighbour, and their gates may change. `measure_window_leak` measures
    how often, and by how much the probabilities change.

    In a text without an open word the word with the largest z is opened.

    Attributes:
      words: the V words that have gates of their own.
      gates: float32 [V + 2, 3], the numbers a, l and r of each word, of unknown words, and of the
        edge of a text (a is unused).
      cut: the number c.
      reader: the lexicon that reads the open words; all its words are open.
      density: the share of the words of the training texts that the fit was asked to open.
    """

    words: tuple[str, ...]
    gates: np.ndarray
    cut: float
    reader: Lexicon
    density: float

    def check(self) -> None:
        """Raises ValueError if the arrays do not belong together, as in a damaged file."""
        self.reader.check()
        check_different("words", self.words)
        # A logit is a sum of three float32 numbers and the cut, which must not overflow.
        is_small = np.abs(self.gates).max(initial=0) < _LARGEST_GATE
        if self.gates.shape != (len(self.words) + 2, 3) or not is_small:
            raise ValueError(
                f"gates must be numbers below {_LARGEST_GATE:.0e} of shape "
                f"{(len(self.words) + 2, 3)}, got shape {self.gates.shape}"
            )

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return self.reader.num_classes

    @functools.cached_property
    def _row_of(self) -> dict[str, int]:
        """Word -> its row in `gates`."""
        return {word: row for row, word in enumerate(self.words)}

    def score(self, texts: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """Returns z - c for each word of each text, float32 [T]; positive numbers are open words.

        z is the logit of the gate of a word, from the word and its two neighbours, and c the cut.

        Args:
          texts: the words of each text.
        """
        numbered = number_words(texts)
        unknown = len(self.words)
        row_of = np.array([self._row_of.get(word, unknown) for word in numbered.types], np.int64)
        neighbours = find_neighbours(row_of[numbered.ids], numbered.rows, unknown + 1)
        # The order of the sum is fixed, so that a word has the same bits in each batch.
        scores = add_logits(self.gates, neighbours) - np.float32(self.cut)
        ends = np.cumsum([len(words) for words in texts])[:-1]
        return np.split(scores, ends) if len(texts) else []

    def select(self, texts: Sequence[Sequence[str]]) -> tuple[list[np.ndarray], np.ndarray]:
        """Returns (gates, chosen): for each text a bool [T], True at open words; and bool [n].

        `chosen` is True for the texts that had no open word, in which the word with the largest
        logit of the gate is open. `texts` has the words of each of n texts.
        """
        is_open = []
        had_none = np.zeros(len(texts), bool)
        for number, scores in enumerate(self.score(texts)):
            gates = scores > 0
            if len(gates) and not gates.any():
                gates[np.argmax(scores)] = True
                had_none[number] = True
            is_open.append(gates)
        return is_open, had_none

    def read(self, texts: Sequence[Sequence[str]]) -> Readings:
        """Predicts the classes of texts.

        Args:
          texts: the words of each text, split by the same rule as the training texts.

        Returns:
          A `Readings`: for n texts and C classes the probabilities and the logits [n, C], the gates
          of each text, bool [T], True at open words, and flags for texts without an open word.
        """
        is_open, had_none = self.select(texts)
        readings = self.reader.read(list(_select_words(texts, is_open)))
        return readings._replace(is_open=is_open, chosen=had_none)

    def share(self, words: Sequence[str]) -> Shares:
        """Computes the part of each open word and pair in the logits of a text.

        A feature that occurs c times gives 1 / c of its part to each of its occurrences.

        Args:
          words: the words of the text.

        Returns:
          The parts, which sum to the logits; closed words have the part 0.
        """
        (gates,), _ = self.select([words])
        places = np.flatnonzero(gates)
        shares = self.reader.share([words[i] for i in places.tolist()])
        parts = np.zeros((len(words), self.num_classes))
        parts[places] = shares.words
        return shares._replace(words=parts, places=places[shares.places])


def _select_words(
    texts: Iterable[Sequence[str]], is_open: Iterable[np.ndarray]
) -> Iterator[list[str]]:
    """Yields the open words of each text.

    `texts` has the words of each text, and `is_open` for each a bool [T], True at open words.
    """
    for words, gates in zip(texts, is_open, strict=True):
        yield [words[i] for i in np.flatnonzero(gates).tolist()]


class WindowLeak(NamedTuple):
    """The effect of removing words, one at a time, from texts.

    Attributes:
      texts: the number of texts.
      closed: the number of closed words that were removed.
      closed_change: the mean change of the probability of the predicted class without a closed
        word, where the gates are computed again.
      open_change: the same without an open word; 0 if there is no open word.
      changed_gates: the share of the removals of a closed word that change another gate.
    """

    texts: int
    closed: int
    closed_change: float
    open_change: float
    changed_gates: float


def measure_window_leak(
    lexicon: WindowLexicon, texts: Sequence[Sequence[str]], most: int = 32
) -> WindowLeak:
    """Removes words of texts in turn, computes the gates again, and measures the effect.

    Args:
      lexicon: the fitted model.
      texts: the words of each text.
      most: the largest number of words of a text that are removed, evenly spread.

    Returns:
      The mean change of the probability without a closed and without an open word, and the share of
      the removals of closed words that change another gate.
    """
    before = lexicon.read(texts)
    shorter, owners, places = [], [], []
    for number, words in enumerate(texts):
        # Without its only word a text would be empty, and an empty text has no gates to compare.
        count = min(len(words), most) if len(words) > 1 else 0
        for place in (np.arange(count) * len(words) // max(count, 1)).tolist():
            shorter.append([*words[:place], *words[place + 1 :]])
            owners.append(number)
            places.append(place)
    after = lexicon.read(shorter)
    changes: dict[bool, list[float]] = {False: [], True: []}
    changed_gates = 0
    for row, (number, place) in enumerate(zip(owners, places, strict=True)):
        best = int(before.probabilities[number].argmax())
        change = before.probabilities[number, best] - after.probabilities[row, best]
        gates = before.is_open[number]
        changes[bool(gates[place])].append(abs(float(change)))
        if not gates[place]:
            changed_gates += bool((np.delete(gates, place) != after.is_open[row]).any())
    closed = len(changes[False])
    return WindowLeak(
        texts=len(texts),
        closed=closed,
        closed_change=float(np.mean(changes[False])) if closed else 0.0,
        open_change=float(np.mean(changes[True])) if changes[True] else 0.0,
        changed_gates=changed_gates / max(closed, 1),
    )
