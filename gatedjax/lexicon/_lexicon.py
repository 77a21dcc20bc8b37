"""A gated lexicon: words that are read or not by their spelling, and their weights."""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gatedjax.lexicon import _features, _heads
from gatedjax.lexicon._spelling import is_spaceless, spell
from gatedjax.lexicon._vectors import NO_PIECES, Pieces

NOTHING_KNOWN = "nothing of it was in the training texts"
"""The note of a text of which no word occurs in the training texts."""
NOTHING_READ = "none of its words from the training texts is read"
"""The note of a text that has words of the training texts, of which none is read."""


class Readings(NamedTuple):
    """The predictions of a lexicon for n texts of C classes.

    Attributes:
      probabilities: float64 [n, C], the probability of each class, label or grade; [n, 0] for a
        real target.
      is_read: for each text a bool [T], True at the words that are read.
      is_known: for each text a bool [T], True at the words that occur in the training texts. Other
        words are read by their letters only.
      is_prior: bool [n], True for a text of which no known word is read, and where letters suffice
        no unknown word either: its prediction is the prior, and no word of it is read.
      notes: for each text a remark, such as the reason for the prior, or "".
      logits: float64 [n, C], the bias plus the parts of the words and the pairs (see `Parts`). For
        a real target they are [n, 1], the prediction, and for grades [n, 1], the score that is
        compared with the thresholds.
    """

    probabilities: np.ndarray
    is_read: list[np.ndarray]
    is_known: list[np.ndarray]
    is_prior: np.ndarray
    notes: list[str]
    logits: np.ndarray

    @classmethod
    def of_outputs(cls, probabilities: np.ndarray, logits: np.ndarray) -> "Readings":
        """Returns the readings of a model without gates, from its outputs for n texts.

        The result has these `probabilities` and `logits`, and no words.
        """
        return cls(probabilities, [], [], np.zeros(len(logits), bool), [], logits)

    @classmethod
    def join(cls, parts: "Sequence[Readings]") -> "Readings":
        """Returns the readings of all texts of several readings, in their order."""
        if len(parts) == 1:
            return parts[0]
        return cls._make(
            list(itertools.chain.from_iterable(values))
            if isinstance(values[0], list)
            else np.concatenate(values)
            for values in zip(*parts, strict=True)
        )

    def take(self, row: int) -> "Readings":
        """Returns the readings of the text `row`, from 0, with a leading axis of length 1."""
        return Readings._make(values[row : row + 1] for values in self)


def note_priors(is_prior: np.ndarray, is_known: Sequence[np.ndarray]) -> list[str]:
    """Returns why the prediction of each text is the prior, or "" if it is not."""
    return [
        "" if not prior else NOTHING_READ if known.any() else NOTHING_KNOWN
        for prior, known in zip(is_prior.tolist(), is_known, strict=True)
    ]


class Parts(NamedTuple):
    """The parts of a prediction, which sum to its logits.

        logits = bias + sum_t words_t + sum_p pairs_p

    The text has T words and P pairs of neighbours with features; C is the number of classes.

    Attributes:
      bias: float64 [C].
      words: float64 [T, C], the part of each word with its character n-grams; 0 for words that are
        not read.
      pairs: float64 [P, C], the part of each pair of neighbours among the words read, with the
        n-grams across their border.
      places: int [P, 2], the positions in the text of the two words of each pair.
    """

    bias: np.ndarray
    words: np.ndarray
    pairs: np.ndarray
    places: np.ndarray


class _Types(NamedTuple):
    """The V different words of texts."""

    words: list[str]
    numbers: np.ndarray  # int64 [V], the position of each in the words of the lexicon, or -1
    is_read: np.ndarray
    spelling: _features.Spelling
    pieces: _features.Spelling
    is_unit: np.ndarray


class _Prepared(NamedTuple):
    """Texts as numbers: T words of V types, and their gates."""

    ids: np.ndarray
    rows: np.ndarray
    is_read: np.ndarray
    is_known: np.ndarray
    is_prior: np.ndarray
    types: _Types


@dataclasses.dataclass(frozen=True, eq=False)
class Lexicon:
    """A text classifier that reads some words of a text, and no other word.

    The gate of a word x is g(x) = [x in L], so that it depends on the spelling alone. The class is
    computed from the sequence of the words read, as if the other words were not in the text:

        logits = (b + W f / |f|) / T_k,   f_i = r_i (1 + log count_i)

    for the words, the pairs of neighbours and the character n-grams i of the words read, also
    across the border of neighbours in scripts without spaces. Removing another word therefore
    changes no bit of the probabilities.

    With pretrained vectors W f becomes W f + sum_x U v(x), over the different words read x. v(x) is
    the mean of the vectors of the pieces of x, less the mean vector of the training texts. It
    depends on the spelling only, so that the promise holds. `piece_weights` has U v of each piece.

    A word that does not occur in the training texts is unknown. It is read if the strength of its
    spelling, max_c |sum_i r_i W_ic + (U v)_c| over its n-grams i, is larger than a threshold,
    unless it is a name (`@someone`). (W and U are centred by their means over the classes.)

    Letters alone are no evidence: if no known word of a text is read, no other is, and its
    prediction is the prior, the frequencies of the classes in the training texts, unless many
    training texts have no word of another text either (`letters_suffice`). No temperature changes
    the prior. A text with k words read has the temperature T_k, because few words are less certain
    than their logits suggest.

    Use `fit_lexicon` to fit a lexicon.

    Attributes:
      num_classes: the number of classes C, of labels or of grades; 0 for a real target.
      words: the words of the training texts, of which the first D are read.
      is_read: bool [V], True for the words that are read.
      counts: int32 [D], how often the D words with weights occur in the training texts.
      pairs: int32 [P, 2], the positions in `words` of the two words of each pair with weights,
        sorted.
      ngrams: the character n-grams with weights.
      scale: float32 [F], the weight r of each feature: words, then pairs, then n-grams.
      weights: float32 [F, K], W. K is C, but 1 for two classes, whose logits are -z/2 and z/2.
      bias: float32 [B], b; for classes B is K.
      prior: float64 [P], the weighted frequencies of the P classes, labels or grades in the
        training texts; for a real target [1], the weighted mean.
      threshold: the strength above which an unknown word is read.
      share: the share of the words of the training texts that the fit was asked to read.
      temperatures: the numbers T of texts with 1, 2, 3 to 5, and more words read.
      head: the step from the weighted features to the prediction, which defines K, B and the
        logits; None is `ClassHead(num_classes)`.
      pieces: the N pieces of words that have a vector.
      piece_weights: float32 [N, K], the part of each piece in the scores; None without pieces.
      letters_suffice: True if a text is read without a known word, by its letters only.
    """

    num_classes: int
    words: tuple[str, ...]
    is_read: np.ndarray
    counts: np.ndarray
    pairs: np.ndarray
    ngrams: tuple[str, ...]
    scale: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    prior: np.ndarray
    threshold: float
    share: float
    temperatures: tuple[float, ...] = _heads.NO_TEMPERATURES
    head: _heads.Head = None  # type: ignore[assignment]
    pieces: Pieces = NO_PIECES
    piece_weights: np.ndarray = None  # type: ignore[assignment]
    letters_suffice: bool = False

    def __post_init__(self) -> None:
        """Sets the fields `head` and `piece_weights` to their values for None."""
        if self.head is None:
            object.__setattr__(self, "head", _heads.ClassHead(self.num_classes))
        if self.piece_weights is None:
            none = np.zeros((0, self.head.num_columns), np.float32)
            object.__setattr__(self, "piece_weights", none)

    def __getstate__(self) -> dict[str, object]:
        """Returns the fields by name, without the cached results."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def check(self) -> None:
        """Raises ValueError if the arrays do not belong together, as in a damaged file."""
        check_different("words", self.words)
        check_different("ngrams", self.ngrams)
        check_different("pieces", self.pieces.words)
        num_columns = len(self.counts) + len(self.pairs) + len(self.ngrams)
        shapes = {
            "is_read": (len(self.words),),
            "counts": (len(self.counts),),
            "pairs": (len(self.pairs), 2),
            "scale": (num_columns,),
            "weights": (num_columns, self.head.num_columns),
            "bias": (self.head.num_biases,),
            "prior": (self.head.num_probabilities or 1,),
            "piece_weights": (len(self.pieces), self.head.num_columns),
        }
        check_shapes(self, shapes)
        # Sorted pairs without repetitions have increasing keys, which a single difference tests.
        in_range = not self.pairs.size or 0 <= self.pairs.min() <= self.pairs.max() < len(
            self.counts
        )
        if (
            len(self.counts) > len(self.words)
            or not in_range
            or (np.diff(self._pair_keys) <= 0).any()
        ):
            raise ValueError(
                "pairs must be sorted, different pairs of numbers below the length of counts, at "
                f"most the number of words, got {self.pairs[:5].tolist()} first, with "
                f"{len(self.counts)} counts and {len(self.words)} words"
            )
        _heads.check_temperatures(self.temperatures)
        self.head.check_bias(self.bias)
        self.head.check_prior(self.prior)

    @functools.cached_property
    def _number_of(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    @functools.cached_property
    def _column_of(self) -> dict[str, int]:
        first = len(self.counts) + len(self.pairs)
        return {ngram: first + number for number, ngram in enumerate(self.ngrams)}

    @property
    def _width(self) -> int:
        return max(len(self.words), 1)

    @functools.cached_property
    def _pair_keys(self) -> np.ndarray:
        return np.asarray(self.pairs.astype(np.int64) @ [self._width, 1])

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
    def _piece_weights(self) -> np.ndarray:
        return np.ascontiguousarray(self.piece_weights.T.astype(np.float64))

    @functools.cached_property
    def _centred_piece_weights(self) -> np.ndarray:
        return self.head.centre(self.piece_weights.astype(np.float64))

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
        is_read = _split_texts(prepared.is_read, texts)
        heat = _heads.find_temperatures(self.temperatures, is_read)
        logits = self.head.add_bias(self._score(prepared), bias) / heat
        if not np.isfinite(logits).all():
            raise ValueError(
                "the logits of a lexicon must be finite, got NaN or infinity for a text, because "
                f"scale, weights, bias or 1 / temperatures {list(self.temperatures)} are "
                "too large: train the model again, or take an older copy"
            )
        probabilities = self.head.compute_probabilities(logits, bias / heat)
        logits[prepared.is_prior] = self.head.compute_prior_logits(self.prior)
        # A real target has a prior and no probabilities.
        probabilities[prepared.is_prior] = self.prior[: self.head.num_probabilities]
        is_known = _split_texts(prepared.is_known, texts)
        return Readings(
            probabilities,
            is_read,
            is_known,
            prepared.is_prior,
            note_priors(prepared.is_prior, is_known),
            logits,
        )

    def parts(self, words: Sequence[str]) -> Parts:
        """Computes the part of each word read and of each pair in the logits of a text.

        A feature that occurs c times gives 1 / c of its part to each place where it occurs.

        Args:
          words: the words of the text.

        Returns:
          The parts, which sum to the logits.
        """
        prepared = self._prepare([words])
        types = prepared.types
        ids, rows = prepared.ids[prepared.is_read], prepared.rows[prepared.is_read]
        cells, values, factors = self._weigh(ids, rows, 1, types)
        heat = _heads.find_temperatures(self.temperatures, [prepared.is_read])[0]
        columns = cells.columns
        part_of = np.zeros((len(self.scale), self.head.num_logits))
        parts = self._weights[:, columns].T * values[:, None] / cells.counts[:, None]
        part_of[columns] = self.head.expand(parts) / heat
        of_read = sum_spellings(_features.select_spelling(types.spelling, ids), part_of)
        numbers = types.numbers[ids]
        has_weight = (numbers >= 0) & (numbers < len(self.counts))
        of_read[has_weight] += part_of[numbers[has_weight]]
        of_vectors = average_pieces(
            _features.select_spelling(types.pieces, ids), self.piece_weights
        )
        # A word that occurs c times has a single vector in the sum.
        of_vectors *= factors / np.bincount(ids)[ids, None]
        of_words = np.zeros((len(words), self.head.num_logits))
        of_words[prepared.is_read] = of_read + self.head.expand(of_vectors) / heat
        # A pair is in the row of its first word.
        of_pairs = np.zeros((len(ids), self.head.num_logits))
        is_pair = np.zeros(len(ids), bool)
        first, found = _features.match_pairs(numbers, rows, self._pair_keys, self._width)
        of_pairs[first] = part_of[found + len(self.counts)]
        left, borders = self._join(ids, rows, types).select(0, len(ids))
        of_pairs[left] += sum_spellings(borders, part_of)
        is_pair[first] = is_pair[left[np.diff(borders.starts) > 0]] = True
        first, places = np.flatnonzero(is_pair), np.flatnonzero(prepared.is_read)
        ends = np.stack([places[first], places[first + 1]], 1)
        bias = self._find_bias(bool(prepared.is_prior[0]), heat)
        return Parts(bias, of_words, of_pairs[first], ends)

    def _find_bias(self, is_prior: bool, heat: np.ndarray) -> np.ndarray:
        """Returns the logits [C] of a text before the parts of its words."""
        if is_prior:
            return self.head.compute_prior_logits(self.prior)
        no_score = np.zeros((1, self.head.num_columns))
        return np.asarray(self.head.add_bias(no_score, self.bias.astype(np.float64))[0] / heat)

    def word_parts(self) -> np.ndarray:
        """Returns the weights of the words in the logits, float64 [D, C].

        The rows are the first D of `words`, which have weights. The weight of a word is the sum of
        r W over the word and its character n-grams, and of U v: r is the field `scale`, and W are
        the coefficients for the C logits, for classes less their mean over the classes.
        """
        words = self.words[: len(self.counts)]
        spelling = _features.find_columns(map(spell, words), self._column_of)
        # The column of a word is its number, and comes before the columns of its n-grams.
        columns = np.insert(spelling.columns, spelling.starts[:-1], np.arange(len(words)))
        starts = spelling.starts + np.arange(len(words) + 1)
        spelling = _features.Spelling(columns, starts)
        return sum_parts(
            *(spelling, self._spelling_weights),
            *(self.pieces.split(words), self._centred_piece_weights),
        )

    def _look_up(self, words: Sequence[str]) -> _Types:
        """Returns the gates and the n-grams of different words."""
        spelling = _features.find_columns(map(spell, words), self._column_of)
        pieces = self.pieces.split(words)
        find = self._number_of.get
        numbers = np.fromiter((find(word, -1) for word in words), np.int64, len(words))
        is_read = np.zeros(len(words), bool)
        is_stored = numbers >= 0
        is_read[is_stored] = self.is_read[numbers[is_stored]]
        # The words are measured together, which is faster. The bits of a sum do not change.
        unknown = np.flatnonzero(~is_stored)
        parts = sum_parts(
            *(_features.select_spelling(spelling, unknown), self._spelling_weights),
            *(_features.select_spelling(pieces, unknown), self._centred_piece_weights),
        )
        # The letters of an unseen name are no evidence about the person.
        is_name = np.array([words[i].startswith("@") for i in unknown.tolist()], bool)
        is_read[unknown] = (np.abs(parts).max(1) > self.threshold) & ~is_name
        is_unit = np.fromiter(map(is_spaceless, words), np.bool_, len(words))
        return _Types(list(words), numbers, is_read, spelling, pieces, is_unit)

    def _join(self, ids: np.ndarray, rows: np.ndarray, types: _Types) -> _features.Junctions:
        return _features.find_junctions(ids, rows, types.is_unit, types.words, self._column_of)

    def _prepare(self, texts: Sequence[Sequence[str]]) -> _Prepared:
        """Numbers texts; in a text whose prediction is the prior, no word is read."""
        different, ids, rows, _ = _features.number_words(texts)
        types = self._look_up(different)
        is_read, is_known = types.is_read[ids], (types.numbers >= 0)[ids]
        is_evidence = is_read & (is_known | self.letters_suffice)
        is_prior = np.bincount(rows, is_evidence, len(texts)) == 0
        return _Prepared(ids, rows, is_read & ~is_prior[rows], is_known, is_prior, types)

    def _weigh(
        self, ids: np.ndarray, rows: np.ndarray, num_texts: int, types: _Types
    ) -> tuple[_features.Cells, np.ndarray, np.ndarray]:
        first_pair = len(self.counts)
        of_word = np.where(types.numbers < first_pair, types.numbers, -1)
        columns = _features.Columns(
            types.numbers, of_word, self._pair_keys, first_pair, self._width
        )
        junctions = self._join(ids, rows, types)
        cells = _features.count_features(
            ids, rows, columns, types.spelling, junctions, len(self.scale)
        )
        return cells, *_features.weigh_cells(cells, self._scale, num_texts)

    def _score(self, prepared: _Prepared) -> np.ndarray:
        """Computes the scores (W f + sum U v) / |f| of texts, [n, K]; K is 1 for two classes."""
        scores = np.zeros((len(prepared.is_prior), len(self._weights)))
        ids, rows = prepared.ids[prepared.is_read], prepared.rows[prepared.is_read]
        for begin, end in itertools.pairwise(_features.split_rows(rows, _features.PART)):
            if begin == end:
                continue
            first, stop = int(rows[begin]), int(rows[end - 1]) + 1
            part = slice(begin, end)
            cells, values, factors = self._weigh(
                ids[part], rows[part] - first, stop - first, prepared.types
            )
            for number, row in enumerate(self._weights):
                # `bincount` adds in the order of the cells, so that a text has the same bits in
                # each batch.
                products = values * row[cells.columns]
                scores[first:stop, number] = np.bincount(cells.rows, products, stop - first)
            if len(self.piece_weights):
                places = _features.find_first(ids[part], rows[part], len(prepared.types.numbers))
                pieces = _features.select_spelling(prepared.types.pieces, ids[part][places])
                sizes = np.diff(pieces.starts)
                of_row = np.repeat(rows[part][places] - first, sizes)
                shares = factors[of_row] / np.repeat(sizes, sizes)
                for number, row in enumerate(self._piece_weights):
                    products = shares * row[pieces.columns]
                    scores[first:stop, number] += np.bincount(of_row, products, stop - first)
        return scores


def check_shapes(model: object, shapes: dict[str, tuple[int, ...]]) -> None:
    """Raises ValueError if an array of a model, given by its name, has another shape."""
    for name, shape in shapes.items():
        if getattr(model, name).shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {getattr(model, name).shape}")


def check_different(name: str, strings: Sequence[str]) -> None:
    """Raises ValueError if a string occurs twice in the field `name`."""
    if len(set(strings)) < len(strings):
        ((twice, _),) = collections.Counter(strings).most_common(1)
        raise ValueError(f"{name} must be different, got {twice!r} more than once")


def _split_texts(values: np.ndarray, texts: Sequence[Sequence[str]]) -> list[np.ndarray]:
    """Returns the values of the words of each text, from the values [T] of all words."""
    return np.split(values, np.cumsum([len(words) for words in texts])[:-1]) if len(texts) else []


def sum_spellings(spelling: _features.Spelling, weights: np.ndarray) -> np.ndarray:
    """Returns the sum of the weights [F, C] of the n-grams of each word: [words, C]."""
    sizes = np.diff(spelling.starts)
    word = np.repeat(np.arange(len(sizes)), sizes)
    sums = [np.bincount(word, column[spelling.columns], len(sizes)) for column in weights.T]
    # `bincount` of no n-gram returns integers.
    return np.stack(sums, 1).astype(np.float64)


def average_pieces(pieces: _features.Spelling, weights: np.ndarray) -> np.ndarray:
    """Returns the mean of the weights [N, C] of the pieces of each word, 0 for none: [words, C]."""
    sizes = np.diff(pieces.starts)
    return np.asarray(sum_spellings(pieces, weights) / np.maximum(sizes, 1)[:, None])


def sum_parts(
    spelling: _features.Spelling,
    weights: np.ndarray,
    pieces: _features.Spelling,
    piece_weights: np.ndarray,
) -> np.ndarray:
    """Returns the sum of the weights of the n-grams of each word and the mean of its pieces'."""
    return np.asarray(sum_spellings(spelling, weights) + average_pieces(pieces, piece_weights))
