"""A gated lexicon: words that are open or closed by their spelling, and the weights of the open."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gatedjax.lexicon._features import (
    Cells,
    Columns,
    Spelling,
    count_features,
    find_keys,
    find_pairs,
    join_spellings,
    number_words,
    weigh_cells,
)
from gatedjax.lexicon._heads import ClassHead, Head
from gatedjax.lexicon._spelling import spell


class Readings(NamedTuple):
    """The predictions of a lexicon for n texts of C classes.

    Attributes:
      probabilities: float64 [n, C], the probability of each class, label or grade; [n, 0] for a
        real target.
      is_open: for each text a bool [T], True at the words with an open gate.
      chosen: bool [n], True for a text without an open word in which the lexicon opened the word
        with the largest weights.
      is_empty: bool [n], True for a text of which no word was read: its probabilities are those of
        the bias.
      logits: float64 [n, C], the bias plus the parts of the words and the pairs (see `Shares`). For
        a real target they are [n, 1], the prediction, and for grades [n, 1], the score that is
        compared with the thresholds.
    """

    probabilities: np.ndarray
    is_open: list[np.ndarray]
    chosen: np.ndarray
    is_empty: np.ndarray
    logits: np.ndarray


class Shares(NamedTuple):
    """The parts of a prediction, which sum to its logits.

        logits = bias + sum_t words_t + sum_p pairs_p

    The text has T words and P pairs of open neighbours with weights; C is the number of classes.

    Attributes:
      bias: float64 [C].
      words: float64 [T, C], the part of each word with its character n-grams; 0 for closed words.
      pairs: float64 [P, C], the part of each pair of open neighbours.
      places: int [P, 2], the positions in the text of the two words of each pair.
    """

    bias: np.ndarray
    words: np.ndarray
    pairs: np.ndarray
    places: np.ndarray


class _Prepared(NamedTuple):
    """Texts as numbers: T words of V types, their gates, and the features of the open words.

    Attributes:
      ids: int64 [T], the type of each word, in 0 .. V - 1.
      rows: int64 [T], the index of the text of each word, sorted.
      is_open: bool [T], True at the open words.
      chosen: bool [n], True for the texts in which a closed word was opened because no word was
        open.
      known: int64 [V], the number of each type in `Lexicon.words`, or -1.
      spelling: the columns of the n-grams of each type.
      cells: the N counts of the features of the open words.
      values: float64 [N], the value of each cell (see `weigh_cells`).
    """

    ids: np.ndarray
    rows: np.ndarray
    is_open: np.ndarray
    chosen: np.ndarray
    known: np.ndarray
    spelling: Spelling
    cells: Cells
    values: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Lexicon:
    """A text classifier that reads the open words of a text, and no other word.

    The gate of a word x is g(x) = [x in L], so that it depends on the spelling alone. The class is
    computed from the sequence of the open words, as if the closed words were not in the text:

        logits = (b + W f / |f|) / T,   f_i = r_i (1 + log count_i)

    for the words, the pairs of neighbours and the character n-grams i of the open words. Removing a
    closed word therefore changes no bit of the probabilities.

    A word that training has not seen, or that is not stored, is open if the strength of its
    spelling, max_c |sum_i r_i W_ic| over its n-grams i, is larger than a threshold. (W is centred
    by its mean over the classes.) In a text without an open word, the lexicon opens the closed word
    with the largest weight r W in the last stage of the fit in which it was open. If no word of the
    text has such a weight, no word is read and the probabilities are those of the bias.

    `fit_lexicon` makes a lexicon.

    Attributes:
      num_classes: the number of classes C, of labels or of grades; 0 for a real target.
      words: the words whose gates are stored. The first D have weights: the open words, then closed
        words for texts without an open word. The remaining words are exceptions from the rule for
        unknown words.
      is_open: bool [V], the gate of each stored word, True if it is open.
      counts: int32 [D], how often the D words with weights occur in the training texts.
      pairs: int32 [P, 2], the positions in `words` of the two words of each pair with weights,
        sorted.
      ngrams: the character n-grams with weights.
      scale: float32 [F], the weight r of each feature: words, then pairs, then n-grams.
      weights: float32 [F, K], W. K is C, but 1 for two classes, whose logits are -z/2 and z/2.
      bias: float32 [B], b; for classes B is K.
      threshold: the strength above which an unknown word is open.
      density: the share of the words of the training texts that the fit was asked to open.
      temperature: the number T by which the logits are divided.
      head: the step from the weighted features to the prediction, which defines K, B and the
        logits; None is `ClassHead(num_classes)`.
    """

    num_classes: int
    words: tuple[str, ...]
    is_open: np.ndarray
    counts: np.ndarray
    pairs: np.ndarray
    ngrams: tuple[str, ...]
    scale: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    threshold: float
    density: float
    temperature: float = 1.0
    head: Head = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """Sets the field `head` to `ClassHead(num_classes)` if it is None."""
        if self.head is None:
            object.__setattr__(self, "head", ClassHead(self.num_classes))

    def check(self) -> None:
        """Raises ValueError if the arrays do not belong together, as in a damaged file."""
        num_columns = len(self.counts) + len(self.pairs) + len(self.ngrams)
        shapes = {
            "is_open": (len(self.words),),
            "counts": (len(self.counts),),
            "pairs": (len(self.pairs), 2),
            "scale": (num_columns,),
            "weights": (num_columns, self.head.num_columns),
            "bias": (self.head.num_biases,),
        }
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} must have shape {shape}, got {getattr(self, name).shape}")
        # Sorted pairs without repetitions have increasing keys, which a single difference tests.
        keys = self.pairs.astype(np.int64) @ [max(len(self.words), 1), 1]
        in_range = not self.pairs.size or 0 <= self.pairs.min() <= self.pairs.max() < len(
            self.counts
        )
        if len(self.counts) > len(self.words) or not in_range or (np.diff(keys) <= 0).any():
            raise ValueError(
                "pairs must be sorted, different pairs of numbers below the length of counts, at "
                f"most the number of words, got {self.pairs[:5].tolist()} first, with "
                f"{len(self.counts)} counts and {len(self.words)} words"
            )
        if not 0 < self.temperature < np.inf:
            raise ValueError(f"temperature must be positive and finite, got {self.temperature}")
        self.head.check_bias(self.bias)

    @functools.cached_property
    def _number_of(self) -> dict[str, int]:
        """Word -> its position in the field `words`."""
        return {word: number for number, word in enumerate(self.words)}

    @functools.cached_property
    def _column_of(self) -> dict[str, int]:
        """Character n-gram -> its column in the matrix of features [texts, F]."""
        first = len(self.counts) + len(self.pairs)
        return {ngram: first + number for number, ngram in enumerate(self.ngrams)}

    @functools.cached_property
    def _columns(self) -> Columns:
        """The columns of the stored words and pairs in the matrix of features."""
        width = max(len(self.words), 1)
        of_word = np.full(len(self.words), -1)
        of_word[: len(self.counts)] = np.arange(len(self.counts))
        pairs = self.pairs.astype(np.int64)
        return Columns(of_word, pairs[:, 0] * width + pairs[:, 1], len(self.counts), width)

    @functools.cached_property
    def _scale(self) -> np.ndarray:
        """The field `scale` as float64 [F]: the weight r by which each feature is multiplied."""
        return self.scale.astype(np.float64)

    @functools.cached_property
    def _weights(self) -> np.ndarray:
        """The field `weights`, transposed, as float64 [K, F]: K coefficients of each of F features.

        K is the number of scores of a text.
        """
        # A row for each class, because sums over features are taken class by class.
        return np.ascontiguousarray(self.weights.T.astype(np.float64))

    @functools.cached_property
    def _spelling_weights(self) -> np.ndarray:
        """The products [F, C] of the weights r and the coefficients of the F features.

        A feature adds this number times 1 + log count to each of the C logits, before the division
        by |f| and the temperature. For classes their mean over the classes is subtracted.
        """
        return self.head.centre(self._scale[:, None] * self._weights.T)

    @functools.cached_property
    def _word_strengths(self) -> np.ndarray:
        """The strength of each of the V stored words, and a 0 behind them: float64 [V + 1].

        The strength of a word is the largest absolute value of its weights r W in the logits; it is
        0 for stored words without weights. The last entry, which the index -1 selects, belongs to
        the words that are not stored.
        """
        strengths = np.zeros(len(self.words) + 1)
        count = len(self.counts)
        strengths[:count] = np.abs(self._spelling_weights[:count]).max(1, initial=0.0)
        return strengths

    @functools.cached_property
    def _seen(self) -> dict[str, tuple[int, bool, list[int]]]:
        """Word -> (position in `words` or -1, True if open, columns of its n-grams).

        It has the words that were read so far, and is emptied if they are more than 200,000.
        """
        return {}

    def read(self, texts: Sequence[Sequence[str]]) -> Readings:
        """Predicts the classes of texts.

        Args:
          texts: the words of each text, split by the same rule as the training texts.

        Returns:
          A `Readings`: for n texts and C classes the probabilities and the logits [n, C], the gates
          of each text, bool [T], True at open words, and flags for texts without an open word.
        """
        prepared = self._prepare(texts)
        bias = self.bias.astype(np.float64)
        logits = self.head.add_bias(self._score(prepared, len(texts)), bias) / self.temperature
        ends = np.cumsum([len(words) for words in texts])[:-1]
        count = np.bincount(prepared.rows, prepared.is_open, len(texts))
        return Readings(
            self.head.compute_probabilities(logits, bias / self.temperature),
            np.split(prepared.is_open, ends) if len(texts) else [],
            prepared.chosen,
            count == 0,
            logits,
        )

    def share(self, words: Sequence[str]) -> Shares:
        """Computes the part of each open word and pair in the logits of a text.

        A feature that occurs c times gives 1 / c of its part to each place where it occurs.

        Args:
          words: the words of the text.

        Returns:
          The parts, whose sum is equal to the logits.
        """
        prepared = self._prepare([words])
        columns, values = prepared.cells.columns, prepared.values
        part_of = np.zeros((len(self.scale), self.head.num_logits))
        parts = self._weights[:, columns].T * values[:, None] / prepared.cells.counts[:, None]
        part_of[columns] = self.head.expand(parts) / self.temperature
        of_words = np.zeros((len(words), self.head.num_logits))
        places = np.flatnonzero(prepared.is_open)
        for place in places:
            kind = prepared.ids[place]
            number = prepared.known[kind]
            if 0 <= number < len(self.counts):
                of_words[place] += part_of[number]
            start, end = prepared.spelling.starts[kind : kind + 2]
            of_words[place] += part_of[prepared.spelling.columns[start:end]].sum(0)
        numbers = prepared.known[prepared.ids[places]]
        keys, first = find_pairs(numbers, np.zeros(len(numbers), int), self._columns.width)
        found = find_keys(self._columns.pairs, keys)
        first, found = first[found >= 0], found[found >= 0]
        no_score = np.zeros((1, self.head.num_columns))
        bias = self.head.add_bias(no_score, self.bias.astype(np.float64))[0] / self.temperature
        ends = (
            np.stack([places[first], places[first + 1]], 1) if len(first) else np.zeros((0, 2), int)
        )
        return Shares(bias, of_words, part_of[found + self._columns.first_pair], ends)

    def word_shares(self) -> np.ndarray:
        """Returns the weights of the words in the logits, float64 [D, C].

        The rows are the first D of `words`, which have weights. The weight of a word is the sum of
        r W over the word and its character n-grams: r is the field `scale`, and W are the
        coefficients for the C logits, for classes less their mean over the classes.
        """
        entries = self._look_up(self.words[: len(self.counts)])
        columns = [[number, *ngrams] for number, (_, _, ngrams) in enumerate(entries)]
        return sum_spellings(join_spellings(columns), self._spelling_weights)

    def weigh(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the weights of n words in the logits, and the squared size of their features.

        The features of a word are the word and its character n-grams, r is the field `scale`, and W
        are the coefficients for the C logits, for classes less their mean over the classes.

        Args:
          words: n different words, also unknown words.

        Returns:
          float64 [n, C], the sum of r W over the features of each word; and float64 [n], the sum of
          r^2 over the same features.
        """
        entries = self._look_up(words)
        columns = [
            [number, *ngrams] if 0 <= number < len(self.counts) else ngrams
            for number, _, ngrams in entries
        ]
        spelling = join_spellings(columns)
        sizes = np.diff(spelling.starts)
        rows = np.repeat(np.arange(len(sizes)), sizes)
        squares = np.bincount(rows, self._scale[spelling.columns] ** 2, len(sizes))
        return sum_spellings(spelling, self._spelling_weights), squares

    def _look_up(self, words: Sequence[str]) -> list[tuple[int, bool, list[int]]]:
        """Returns (number or -1, gate, columns of its n-grams) for each word.

        The number is the position in `Lexicon.words`, -1 if the word is not stored. The gate is
        True if the word is open. The columns belong to the matrix of features.
        """
        seen, column_of = self._seen, self._column_of
        new = [word for word in words if word not in seen]
        columns = [[column_of[g] for g in spell(word) if g in column_of] for word in new]
        numbers = [self._number_of.get(word, -1) for word in new]
        # The words are measured together, which is faster. The bits of a sum do not change.
        strengths = measure_strengths(join_spellings(columns), self._spelling_weights)
        for word, number, ngrams, strength in zip(new, numbers, columns, strengths, strict=True):
            is_open = self.is_open[number] if number >= 0 else strength > self.threshold
            seen[word] = number, bool(is_open), ngrams
        return [seen[word] for word in words]

    def _prepare(self, texts: Sequence[Sequence[str]]) -> _Prepared:
        """Returns texts as numbers, for `_score`: words, gates, features of open words.

        `texts` has the words of each text. In a text without an open word the closed word with the
        largest weight is opened.
        """
        words = number_words(texts)
        # A server reads texts without end, so that the memory of words must not grow with them.
        if len(self._seen) > _MOST_SEEN:
            self._seen.clear()
        entries = self._look_up(words.types)
        known = np.array([entry[0] for entry in entries], np.int64)
        open_types = np.array([entry[1] for entry in entries], bool)
        spelling = join_spellings([entry[2] for entry in entries])
        is_open = open_types[words.ids]
        chosen = np.zeros(len(texts), bool)
        count = np.bincount(words.rows, is_open, words.num_texts)
        ends = np.searchsorted(words.rows, np.arange(words.num_texts + 1))
        for row in np.flatnonzero(count == 0):
            ids = words.ids[ends[row] : ends[row + 1]]
            strengths = self._word_strengths[known[ids]]
            # The first of equals is chosen, and all its occurrences are opened.
            best = int(np.argmax(strengths)) if len(ids) else 0
            if len(ids) and strengths[best] > 0:
                is_open[ends[row] : ends[row + 1]] = ids == ids[best]
                chosen[row] = True
        cells = count_features(
            words.ids[is_open],
            words.rows[is_open],
            words.num_texts,
            self._columns,
            known,
            spelling,
            len(self.scale),
        )
        values, _ = weigh_cells(cells, self._scale, words.num_texts)
        return _Prepared(words.ids, words.rows, is_open, chosen, known, spelling, cells, values)

    def _score(self, prepared: _Prepared, num_texts: int) -> np.ndarray:
        """Computes the scores W f / |f| of the texts, without the bias: float64 [num_texts, K].

        W are the coefficients of the features, and f the features of a text. `prepared` has the
        texts as numbers. K is the number of classes, but 1 for two classes.
        """
        # `bincount` adds in the order of the cells, so that a text has the same bits in each batch.
        scores = [
            np.bincount(
                prepared.cells.rows, prepared.values * row[prepared.cells.columns], num_texts
            )
            for row in self._weights
        ]
        return np.stack(scores, 1)


_MOST_SEEN = 200_000
"""Words whose numbers and n-grams are in memory."""


def sum_spellings(spelling: Spelling, weights: np.ndarray) -> np.ndarray:
    """Returns the sum of the weights of the n-grams of each word: [words, C].

    Args:
      spelling: the columns of the n-grams of each word.
      weights: [F, C], the weights of the columns.
    """
    sizes = np.diff(spelling.starts)
    word = np.repeat(np.arange(len(sizes)), sizes)
    sums = [np.bincount(word, column[spelling.columns], len(sizes)) for column in weights.T]
    # `bincount` of no n-gram returns integers.
    return np.stack(sums, 1).astype(np.float64)


def measure_strengths(spelling: Spelling, weights: np.ndarray) -> np.ndarray:
    """Computes the strength max_c |sum_i w_ic| of each word: [words].

    The sum is over the n-grams i of the word, w are their weights, and c is a class.

    Args:
      spelling: the columns of the n-grams of each word.
      weights: [F, C], the centred weights of the columns.
    """
    return np.asarray(np.abs(sum_spellings(spelling, weights)).max(1))
