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

NOTHING_KNOWN = "nothing of it was in the training texts"
"""The note of a text of which no word occurs in the training texts."""
NOTHING_READ = "none of its words from the training texts is read"
"""The note of a text that has words of the training texts, of which all are closed."""


class Readings(NamedTuple):
    """The predictions of a lexicon for n texts of C classes.

    Attributes:
      probabilities: float64 [n, C], the probability of each class, label or grade; [n, 0] for a
        real target.
      is_open: for each text a bool [T], True at the words that are read.
      is_known: for each text a bool [T], True at the words that occur in the training texts. Other
        words are read by their letters only.
      is_prior: bool [n], True for a text of which no known word is read: its prediction is the
        prior, and no word of it is read.
      notes: for each text a remark, such as the reason for the prior, or "".
      logits: float64 [n, C], the bias plus the parts of the words and the pairs (see `Shares`). For
        a real target they are [n, 1], the prediction, and for grades [n, 1], the score that is
        compared with the thresholds.
    """

    probabilities: np.ndarray
    is_open: list[np.ndarray]
    is_known: list[np.ndarray]
    is_prior: np.ndarray
    notes: list[str]
    logits: np.ndarray

    @classmethod
    def of_outputs(cls, probabilities: np.ndarray, logits: np.ndarray) -> "Readings":
        """Returns the readings of a model without gates, from its outputs for n texts.

        `probabilities` and `logits` are those of the result, which has no words.
        """
        return cls(probabilities, [], [], np.zeros(len(logits), bool), [], logits)

    def take(self, row: int) -> "Readings":
        """Returns the readings of the text `row`, from 0, with a leading axis of length 1."""
        return Readings._make(values[row : row + 1] for values in self)


def note_priors(is_prior: np.ndarray, is_known: Sequence[np.ndarray]) -> list[str]:
    """Returns for each text the reason why its prediction is the prior, or "" if it is not.

    `is_prior` and `is_known` are those of `Readings`.
    """
    return [
        "" if not prior else NOTHING_READ if known.any() else NOTHING_KNOWN
        for prior, known in zip(is_prior.tolist(), is_known, strict=True)
    ]


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
    """Texts as numbers: T words of V types, and their gates."""

    ids: np.ndarray
    rows: np.ndarray
    is_open: np.ndarray
    is_known: np.ndarray
    is_prior: np.ndarray
    types: "_Types"


class _Types(NamedTuple):
    """V different words that a lexicon has read."""

    numbers: np.ndarray
    is_open: np.ndarray
    spelling: Spelling


class _Seen:
    """The words that a lexicon has read so far, so that each word is looked up once."""

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
        n, size = self._count, int(self._starts[self._count])
        self._word_numbers = _write(self._word_numbers, n, new.numbers)
        self._is_open = _write(self._is_open, n, new.is_open)
        self._columns = _write(self._columns, size, new.spelling.columns)
        self._starts = _write(self._starts, n + 1, size + new.spelling.starts[1:])
        self._count = n + len(new.numbers)


def _write(array: np.ndarray, start: int, values: np.ndarray) -> np.ndarray:
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

    A word that does not occur in the training texts is unknown. It is open if the strength of its
    spelling, max_c |sum_i r_i W_ic| over its n-grams i, is larger than a threshold. (W is centred
    by its mean over the classes.)

    Letters alone are no evidence: a text without an open word that is known is not read, and its
    prediction is the prior, the frequencies of the classes in the training texts. The temperature
    does not change it.

    `fit_lexicon` makes a lexicon.

    Attributes:
      num_classes: the number of classes C, of labels or of grades; 0 for a real target.
      words: the words of the training texts. The first D have weights: the open words that occur
        at least twice. An open word that occurs once is read by its letters.
      is_open: bool [V], the gate of each of these words, True if it is open.
      counts: int32 [D], how often the D words with weights occur in the training texts.
      pairs: int32 [P, 2], the positions in `words` of the two words of each pair with weights,
        sorted.
      ngrams: the character n-grams with weights.
      scale: float32 [F], the weight r of each feature: words, then pairs, then n-grams.
      weights: float32 [F, K], W. K is C, but 1 for two classes, whose logits are -z/2 and z/2.
      bias: float32 [B], b; for classes B is K.
      prior: float64 [P], the weighted frequencies of the P classes, labels or grades in the
        training texts; for a real target [1], the weighted mean.
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
    prior: np.ndarray
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
            "prior": (self.head.num_probabilities or 1,),
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
        self.head.check_prior(self.prior)

    @functools.cached_property
    def _number_of(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    @functools.cached_property
    def _column_of(self) -> dict[str, int]:
        first = len(self.counts) + len(self.pairs)
        return {ngram: first + number for number, ngram in enumerate(self.ngrams)}

    @functools.cached_property
    def _ngram_keys(self) -> tuple[NgramKeys, np.ndarray]:
        keys = NgramKeys(list(self._column_of))
        return keys, np.fromiter(self._column_of.values(), np.int64)[keys.order]

    @functools.cached_property
    def _columns(self) -> Columns:
        width = max(len(self.words), 1)
        of_word = np.full(len(self.words), -1)
        of_word[: len(self.counts)] = np.arange(len(self.counts))
        pairs = self.pairs.astype(np.int64)
        return Columns(of_word, pairs[:, 0] * width + pairs[:, 1], len(self.counts), width)

    @functools.cached_property
    def _scale(self) -> np.ndarray:
        return self.scale.astype(np.float64)

    @functools.cached_property
    def _weights(self) -> np.ndarray:
        # A row for each class, because sums over features are taken class by class.
        return np.ascontiguousarray(self.weights.T.astype(np.float64))

    @functools.cached_property
    def _spelling_weights(self) -> np.ndarray:
        return self.head.centre(self._scale[:, None] * self._weights.T)

    @functools.cached_property
    def _seen(self) -> _Seen:
        return _Seen()

    def read(self, texts: Sequence[Sequence[str]]) -> Readings:
        """Predicts the classes of texts.

        Args:
          texts: the words of each text, split by the same rule as the training texts.

        Returns:
          A `Readings`: for n texts and C classes the probabilities and the logits [n, C], for each
          text the words that are read and those that are known, bool [T], and flags and notes for
          the texts whose prediction is the prior.

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
        probabilities = self.head.compute_probabilities(logits, bias / self.temperature)
        logits[prepared.is_prior] = self.head.compute_prior_logits(self.prior)
        # A real target has a prior and no probabilities.
        probabilities[prepared.is_prior] = self.prior[: self.head.num_probabilities]
        is_known = _split_texts(prepared.is_known, texts)
        return Readings(
            probabilities,
            _split_texts(prepared.is_open, texts),
            is_known,
            prepared.is_prior,
            note_priors(prepared.is_prior, is_known),
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
        if prepared.is_prior[0]:
            bias = self.head.compute_prior_logits(self.prior)
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
        words = self.words[: len(self.counts)]
        spelling = self._spell(words)
        # The column of a word is its number, and comes before those of its n-grams.
        columns = np.insert(spelling.columns, spelling.starts[:-1], np.arange(len(words)))
        starts = spelling.starts + np.arange(len(words) + 1)
        return sum_spellings(Spelling(columns, starts), self._spelling_weights)

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
        """Returns the numbers of the words, int64 [T], the text of each, and all types so far."""
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
        """Numbers texts; in a text of which no known word is open, no word is read."""
        ids, rows, types = self._number(texts)
        is_open, is_known = types.is_open[ids], (types.numbers >= 0)[ids]
        is_prior = np.bincount(rows, is_open & is_known, len(texts)) == 0
        return _Prepared(ids, rows, is_open & ~is_prior[rows], is_known, is_prior, types)

    def _weigh(
        self, ids: np.ndarray, rows: np.ndarray, num_texts: int, types: _Types
    ) -> tuple[Cells, np.ndarray]:
        cells = count_features(
            ids, rows, self._columns, types.numbers, types.spelling, len(self.scale)
        )
        return cells, weigh_cells(cells, self._scale, num_texts)[0]

    def _score(self, prepared: _Prepared) -> np.ndarray:
        """Computes the scores W f / |f| of texts, float64 [n, K]; K is 1 for two classes."""
        scores = np.zeros((len(prepared.is_prior), len(self._weights)))
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


def _split_texts(values: np.ndarray, texts: Sequence[Sequence[str]]) -> list[np.ndarray]:
    """Returns the values of the words of each text, from the values [T] of all words."""
    return np.split(values, np.cumsum([len(words) for words in texts])[:-1]) if len(texts) else []


def sum_spellings(spelling: Spelling, weights: np.ndarray) -> np.ndarray:
    """Returns the sum of the weights [F, C] of the n-grams of each word: [words, C]."""
    sizes = np.diff(spelling.starts)
    word = np.repeat(np.arange(len(sizes)), sizes)
    sums = [np.bincount(word, column[spelling.columns], len(sizes)) for column in weights.T]
    # `bincount` of no n-gram returns integers.
    return np.stack(sums, 1).astype(np.float64)


def measure_strengths(spelling: Spelling, weights: np.ndarray) -> np.ndarray:
    """Computes the strength max_c |sum_i w_ic| of each word with n-grams i: [words]. The weights w,
    [F, C], are centred over the classes.
    """
    return np.asarray(np.abs(sum_spellings(spelling, weights)).max(1))
