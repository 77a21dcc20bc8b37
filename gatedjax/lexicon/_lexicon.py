"""A gated lexicon: words that are open or closed by their spelling, and the weights of the open."""

import collections
import dataclasses
import functools
import itertools
import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gatedjax.lexicon._features import (
    PART,
    Cells,
    Columns,
    Numbers,
    Spelling,
    count_features,
    drop_columns,
    find_keys,
    find_pairs,
    select_spelling,
    spell_words,
    split_rows,
    weigh_cells,
)
from gatedjax.lexicon._heads import ClassHead, Head
from gatedjax.lexicon._spelling import NgramKeys


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
    """Texts as numbers: T words of V types, and their gates.

    Attributes:
      ids: int64 [T], the type of each word, in 0 .. V - 1.
      rows: int64 [T], the index of the text of each word, sorted.
      is_open: bool [T], True at the open words.
      chosen: bool [n], True for the texts in which a closed word was opened because no word was
        open.
      types: the V types.
    """

    ids: np.ndarray
    rows: np.ndarray
    is_open: np.ndarray
    chosen: np.ndarray
    types: "_Types"


class _Types(NamedTuple):
    """V different words that a lexicon has read.

    Attributes:
      numbers: int64 [V], the number of each in `Lexicon.words`, or -1.
      is_open: bool [V], their gates.
      spelling: the columns of the n-grams of each.
    """

    numbers: np.ndarray
    is_open: np.ndarray
    spelling: Spelling


class _Seen:
    """The words that a lexicon has read so far, so that each word is looked up once.

    Attributes:
      numbers: word -> its number, in the order of the first occurrences.
      types: the words with these numbers.
      lock: is held while words are added, because a server reads texts in several threads.
    """

    def __init__(self) -> None:
        self.numbers = Numbers()
        self.lock = threading.Lock()
        # There is room for more words behind the ends, so that few additions copy the arrays.
        self._word_numbers, self._is_open = np.empty(64, np.int64), np.empty(64, bool)
        self._columns, self._starts = np.empty(1024, np.int64), np.zeros(65, np.int64)
        self._count = 0

    def __reduce__(self) -> tuple[object, ...]:
        # A lock cannot be pickled. The copy looks its words up again.
        return type(self), ()

    @property
    def types(self) -> _Types:
        n = self._count
        starts = self._starts[: n + 1]
        return _Types(
            self._word_numbers[:n], self._is_open[:n], Spelling(self._columns[: starts[n]], starts)
        )

    def add(self, new: _Types) -> None:
        """Adds words behind those that are there."""
        n, size = self._count, int(self._starts[self._count])
        self._word_numbers = _write(self._word_numbers, n, new.numbers)
        self._is_open = _write(self._is_open, n, new.is_open)
        self._columns = _write(self._columns, size, new.spelling.columns)
        self._starts = _write(self._starts, n + 1, size + new.spelling.starts[1:])
        self._count = n + len(new.numbers)


def _write(array: np.ndarray, start: int, values: np.ndarray) -> np.ndarray:
    """Returns `array` with `values` from the position `start`, copied to twice the size if full."""
    end = start + len(values)
    if end > len(array):
        larger = np.zeros(2 * end, array.dtype)
        larger[:start] = array[:start]
        array = larger
    array[start:end] = values
    return array


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
        check_different("words", self.words)
        check_different("ngrams", self.ngrams)
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
    def _ngram_keys(self) -> tuple[NgramKeys, np.ndarray]:
        """The keys of the n-grams, and the column of each key in the matrix of features."""
        keys = NgramKeys(list(self._column_of))
        return keys, np.fromiter(self._column_of.values(), np.int64)[keys.order]

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
    def _seen(self) -> _Seen:
        """The words of the texts so far, emptied when they are more than 200,000."""
        return _Seen()

    def read(self, texts: Sequence[Sequence[str]]) -> Readings:
        """Predicts the classes of texts.

        Args:
          texts: the words of each text, split by the same rule as the training texts.

        Returns:
          A `Readings`: for n texts and C classes the probabilities and the logits [n, C], the gates
          of each text, bool [T], True at open words, and flags for texts without an open word.

        Raises:
          ValueError: if a logit is not finite, because the numbers of the lexicon are too large.
        """
        prepared = self._prepare(texts)
        bias = self.bias.astype(np.float64)
        logits = self.head.add_bias(self._score(prepared), bias) / self.temperature
        if not np.isfinite(logits).all():
            raise ValueError(
                "the logits of a lexicon must be finite, got NaN or infinity for a text, because "
                f"scale, weights, bias or 1 / temperature (temperature {self.temperature:.3g}) are "
                "too large: train the model again, or take an older copy"
            )
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
        numbers, _, spelling = prepared.types
        cells, values = self._weigh(
            prepared.ids[prepared.is_open], prepared.rows[prepared.is_open], 1, prepared.types
        )
        columns = cells.columns
        part_of = np.zeros((len(self.scale), self.head.num_logits))
        parts = self._weights[:, columns].T * values[:, None] / cells.counts[:, None]
        part_of[columns] = self.head.expand(parts) / self.temperature
        of_words = np.zeros((len(words), self.head.num_logits))
        places = np.flatnonzero(prepared.is_open)
        for place in places:
            kind = prepared.ids[place]
            number = numbers[kind]
            if 0 <= number < len(self.counts):
                of_words[place] += part_of[number]
            start, end = spelling.starts[kind : kind + 2]
            of_words[place] += part_of[spelling.columns[start:end]].sum(0)
        numbers = numbers[prepared.ids[places]]
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
        return self.weigh(self.words[: len(self.counts)])[0]

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
        numbers, _, spelling = self._look_up(words)
        has_weight = np.flatnonzero((numbers >= 0) & (numbers < len(self.counts)))
        # The column of a word is its number, and comes before those of its n-grams.
        columns = np.insert(spelling.columns, spelling.starts[has_weight], numbers[has_weight])
        sizes = np.diff(spelling.starts)
        sizes[has_weight] += 1
        spelling = Spelling(columns, np.concatenate([[0], np.cumsum(sizes)]))
        rows = np.repeat(np.arange(len(sizes)), sizes)
        squares = np.bincount(rows, self._scale[spelling.columns] ** 2, len(sizes))
        return sum_spellings(spelling, self._spelling_weights), squares

    def _look_up(self, words: Sequence[str]) -> _Types:
        """Returns the gates and the n-grams of different words."""
        spelling = self._spell(words)
        find = self._number_of.get
        numbers = np.fromiter((find(word, -1) for word in words), np.int64, len(words))
        is_open = np.zeros(len(words), bool)
        is_stored = numbers >= 0
        is_open[is_stored] = self.is_open[numbers[is_stored]]
        # The words are measured together, which is faster. The bits of a sum do not change.
        unknown = np.flatnonzero(~is_stored)
        strengths = measure_strengths(select_spelling(spelling, unknown), self._spelling_weights)
        is_open[unknown] = strengths > self.threshold
        return _Types(numbers, is_open, spelling)

    def _spell(self, words: Sequence[str]) -> Spelling:
        """Returns the columns of the n-grams of words, without n-grams that have no column."""
        if len(words) < _MANY:
            return spell_words(words, self._column_of)
        ngrams, columns = self._ngram_keys
        if not ngrams.is_exact:
            return spell_words(words, self._column_of)
        keys, sizes = ngrams.spell(words)
        places = find_keys(ngrams.keys, keys)
        # The column for the place -1 is not used.
        return drop_columns(np.where(places >= 0, np.append(columns, -1)[places], -1), sizes)

    def _number(self, texts: Sequence[Sequence[str]]) -> tuple[np.ndarray, np.ndarray, _Types]:
        """Returns the numbers of the words of texts, the text of each word, and the types.

        Args:
          texts: the words of each text.

        Returns:
          int64 [T], the types of all words, as positions in the types so far; int64 [T], the index
          of the text of each word; and all types so far.
        """
        seen = self._seen
        # A server reads texts without end, so that the memory of words must not grow with them.
        # Another thread may still use the old memory, so that it is replaced and not cleared.
        if len(seen.numbers) > _MOST_SEEN:
            seen = self.__dict__["_seen"] = _Seen()
        with seen.lock:
            before = len(seen.numbers)
            try:
                ids, rows, _ = seen.numbers.number(texts)
                if new := len(seen.numbers) - before:
                    words = list(itertools.islice(reversed(seen.numbers), new))
                    seen.add(self._look_up(words[::-1]))
            except BaseException:
                # Otherwise words that have a number would never be looked up.
                self.__dict__.pop("_seen", None)
                raise
            return ids, rows, seen.types

    def _prepare(self, texts: Sequence[Sequence[str]]) -> _Prepared:
        """Returns texts as numbers, for `_score`: words, gates, features of open words.

        `texts` has the words of each text. In a text without an open word the closed word with the
        largest weight is opened.
        """
        ids, rows, types = self._number(texts)
        is_open = types.is_open[ids]
        chosen = np.zeros(len(texts), bool)
        count = np.bincount(rows, is_open, len(texts))
        ends = np.searchsorted(rows, np.arange(len(texts) + 1))
        for row in np.flatnonzero(count == 0):
            part = ids[ends[row] : ends[row + 1]]
            strengths = self._word_strengths[types.numbers[part]]
            # The first of equals is chosen, and all its occurrences are opened.
            best = int(np.argmax(strengths)) if len(part) else 0
            if len(part) and strengths[best] > 0:
                is_open[ends[row] : ends[row + 1]] = part == part[best]
                chosen[row] = True
        return _Prepared(ids, rows, is_open, chosen, types)

    def _weigh(
        self, ids: np.ndarray, rows: np.ndarray, num_texts: int, types: _Types
    ) -> tuple[Cells, np.ndarray]:
        """Returns the features of the open words of texts, and the value of each, float64 [N].

        Args:
          ids: int64 [T], the types of the open words.
          rows: int64 [T], the text of each, sorted.
          num_texts: the number of texts.
          types: the types.
        """
        cells = count_features(
            ids, rows, self._columns, types.numbers, types.spelling, len(self.scale)
        )
        return cells, weigh_cells(cells, self._scale, num_texts)[0]

    def _score(self, prepared: _Prepared) -> np.ndarray:
        """Computes the scores W f / |f| of the n texts of `prepared`, float64 [n, K].

        W are the coefficients of the features, and f the features of a text. K is the number of
        classes, but 1 for two classes.
        """
        scores = np.zeros((len(prepared.chosen), len(self._weights)))
        ids, rows = prepared.ids[prepared.is_open], prepared.rows[prepared.is_open]
        for begin, end in itertools.pairwise(split_rows(rows, PART)):
            if begin == end:
                continue
            first, stop = int(rows[begin]), int(rows[end - 1]) + 1
            part = slice(begin, end)
            cells, values = self._weigh(ids[part], rows[part] - first, stop - first, prepared.types)
            for number, row in enumerate(self._weights):
                # `bincount` adds in the order of the cells, so that a text has the same bits in
                # each batch.
                products = values * row[cells.columns]
                scores[first:stop, number] = np.bincount(cells.rows, products, stop - first)
        return scores


def check_different(name: str, strings: Sequence[str]) -> None:
    """Raises ValueError if a string occurs twice in the field `name`."""
    if len(set(strings)) < len(strings):
        ((twice, _),) = collections.Counter(strings).most_common(1)
        raise ValueError(f"{name} must be different, got {twice!r} more than once")


_MOST_SEEN = 200_000
"""Words whose numbers and n-grams are in memory."""
_MANY = 200
"""From so many words on their n-grams are found together, which is slow to prepare."""


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
