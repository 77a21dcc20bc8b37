"""A lexicon whose gates see the neighbours of a word, and the measurement of its leak."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gatedjax.lexicon._features import number_words
from gatedjax.lexicon._lexicon import Lexicon, Readings, Shares, check_different, note_priors

_LARGEST_GATE = 1e37


class Neighbours(NamedTuple):
    """The words of texts with their left and right neighbours, as rows of a table of words."""

    words: np.ndarray  # int64 [T]
    left_words: np.ndarray  # int64 [T]; before the first word of a text the row of the edge
    right_words: np.ndarray  # int64 [T]; after the last word of a text the row of the edge


def find_neighbours(words: np.ndarray, rows: np.ndarray, edge: int) -> Neighbours:
    """Returns the words of texts with their neighbours; `edge` is the row for the edge of a text.

    >>> print(*find_neighbours(np.array([5, 6, 7]), np.array([0, 0, 1]), 9))
    [5 6 7] [9 5 9] [6 9 9]
    """
    starts = np.diff(rows, prepend=-1) != 0
    ends = np.diff(rows, append=-1) != 0
    left_words = np.where(starts, edge, np.roll(words, 1))
    return Neighbours(words, left_words, np.where(ends, edge, np.roll(words, -1)))


def add_logits(gates: np.ndarray, neighbours: Neighbours) -> np.ndarray:
    """Computes z_t = a[x_t] + l[x_{t-1}] + r[x_{t+1}] for each word: [T]. The columns of `gates`,
    [G, 3], are a, l and r.
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

    A text of which no known word is open is not read, as in a `Lexicon`.

    Attributes:
      words: the V words that have gates of their own.
      gates: float32 [V + 2, 3], the numbers a, l and r of each word, of unknown words, and of the
        edge of a text (a is unused).
      cut: the number c.
      reader: the lexicon that reads the open words. Its words are those of the training texts, and
        all are open.
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

    def select(self, texts: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """Returns the gates of each text, a bool [T], True at open words.

        `texts` has the words of each of n texts.
        """
        return [scores > 0 for scores in self.score(texts)]

    def read(self, texts: Sequence[Sequence[str]]) -> Readings:
        """Predicts the classes of texts.

        Args:
          texts: the words of each text, split by the same rule as the training texts.

        Returns:
          A `Readings`: for n texts and C classes the probabilities and the logits [n, C], for each
          text the words that are read and those that are known, bool [T], and flags and notes for
          the texts whose prediction is the prior.
        """
        gates = self.select(texts)
        readings = self.reader.read(list(_select_words(texts, gates)))
        is_open = [
            mask & (not prior)
            for mask, prior in zip(gates, readings.is_prior.tolist(), strict=True)
        ]
        is_known = self.reader.find_known(texts)
        notes = note_priors(readings.is_prior, is_known)
        return readings._replace(is_open=is_open, is_known=is_known, notes=notes)

    def share(self, words: Sequence[str]) -> Shares:
        """Computes the part of each open word and pair in the logits of a text.

        A feature that occurs c times gives 1 / c of its part to each of its occurrences.

        Args:
          words: the words of the text.

        Returns:
          The parts, which sum to the logits; closed words have the part 0.
        """
        (gates,) = self.read([words]).is_open
        places = np.flatnonzero(gates)
        shares = self.reader.share([words[i] for i in places.tolist()])
        parts = np.zeros((len(words), self.num_classes))
        parts[places] = shares.words
        return shares._replace(words=parts, places=places[shares.places])


def _select_words(
    texts: Iterable[Sequence[str]], is_open: Iterable[np.ndarray]
) -> Iterator[list[str]]:
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
      lexicon: a fitted model, whose gates depend on the words nearby.
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
