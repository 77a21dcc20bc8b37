"""A linear text classifier that reads all words: TF-IDF of words and letters."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gatedjax.lexicon._features import Numbers, find_pairs, flatten, match_pairs
from gatedjax.lexicon._fit import _MOST_WEIGHTS, _check_arguments, drop_unweighted
from gatedjax.lexicon._heads import Head, find_temperatures
from gatedjax.lexicon._lexicon import Lexicon, Parts
from gatedjax.lexicon._solve import fit_weights
from gatedjax.lexicon._spelling import is_spaceless

# The characters of the longest n-gram.
_LONGEST = 4
# A pair of neighbours or an n-gram is a feature if this many texts have it; a word always is.
_LEAST_TEXTS = 2


class _Counts(NamedTuple):
    """The features of n texts with T words, which have numbers, -1 for unknown words."""

    ids: np.ndarray  # int64 [T]
    rows: np.ndarray  # int64 [T], the text of each word
    pairs: np.ndarray  # the sorted keys of the pairs with a column, see `Columns`
    features: Any  # csr [n, F], how often each text has each feature: words, pairs, n-grams


class _Prepared(NamedTuple):
    is_read: np.ndarray
    is_known: np.ndarray
    is_prior: np.ndarray
    values: Any  # csr [n, F]


@dataclasses.dataclass(frozen=True, eq=False)
class LinearText(Lexicon):
    """A `Lexicon` that reads all words of a text: a linear model of TF-IDF features.

        logits = (b + W (u, v) / sqrt 2) / T,   u = a / |a|,   v = c / |c|

    a has the words and the pairs of neighbours of the text, and c its n-grams, both with the values
    (1 + log count) idf. The n-grams have 1 to 4 characters of a word with a space at both ends.
    Neighbours in scripts without spaces are spelled together. The prediction for a text without a
    known feature is the prior.
    """

    @functools.cached_property
    def _rows(self) -> np.ndarray:
        return self.weights.astype(np.float64)

    def _count(self, texts: Sequence[Sequence[str]]) -> _Counts:
        number_of, column_of = self._number_of, self._column_of
        first = len(self.counts) + len(self.pairs)
        return _count(
            texts,
            lambda word: number_of.get(word, -1),
            lambda ngram: column_of.get(ngram, first - 1) - first,
            (len(self.words), self._pair_keys, len(self.ngrams)),
        )

    def _weigh_counts(self, counts: _Counts) -> Any:
        return _weigh(counts.features, self._scale, len(self.counts) + len(self.pairs))

    def _prepare(self, texts: Sequence[Sequence[str]]) -> Any:
        counts = self._count(texts)
        is_prior = np.diff(counts.features.indptr) == 0
        is_read = np.ones(len(counts.ids), bool)
        return _Prepared(is_read, counts.ids >= 0, is_prior, self._weigh_counts(counts))

    def _score(self, prepared: Any) -> np.ndarray:
        # The product adds the cells of a row in their order, so that a text has the same bits in
        # each batch.
        return np.asarray(prepared.values @ self._rows)

    def parts(self, words: Sequence[str]) -> Parts:
        """Computes the parts, whose sum is equal to the logits, see `Lexicon.parts`. The part of an
        n-gram in several units of a script without spaces is divided among them in proportion to
        their characters.
        """
        counts = self._count([words])
        values = self._weigh_counts(counts)
        columns, head = counts.features.indices, self.head
        part_of = np.zeros((len(self.scale), head.num_logits))
        parts = self._rows[columns] * (values.data / counts.features.data)[:, None]
        heat = find_temperatures(self.temperatures, [np.ones(len(words), bool)])[0]
        part_of[columns] = head.expand(parts) / heat
        of_words = np.zeros((len(words), head.num_logits))
        is_known = counts.ids >= 0
        of_words[is_known] = part_of[counts.ids[is_known]]
        end = 0
        for run in _split_runs(words):
            start, end = end, end + len(run)
            owners = np.repeat(np.arange(start, end), list(map(len, run)))
            # The spaces at the ends belong to the first and the last word.
            owners = np.concatenate([[start], owners, [end - 1]])
            for place, ngram in _list_ngrams("".join(run)):
                if (column := self._column_of.get(ngram)) is not None:
                    share = part_of[column] / len(ngram)
                    np.add.at(of_words, owners[place : place + len(ngram)], share)
        first, found = match_pairs(counts.ids, counts.rows, self._pair_keys, self._width)
        bias = self._find_bias(not len(columns), heat)
        places = np.stack([first, first + 1], 1)
        return Parts(bias, of_words, part_of[found + len(self.counts)], places)

    def word_parts(self) -> np.ndarray:
        """Returns the part of each word in a text of only this word, centred over the classes."""
        counts = self._count([[word] for word in self.words])
        return np.asarray(self._weigh_counts(counts) @ self.head.centre(self._rows))


def fit_linear(
    texts: Sequence[Sequence[str]],
    labels: np.ndarray,
    head: Head,
    *,
    sample_weight: np.ndarray | None = None,
) -> LinearText:
    """Fits a linear model to the targets of texts, for classes logistic regression and for numbers
    ridge regression. The features are all words, and the pairs of neighbours and the character
    n-grams that at least two texts have.
    """
    labels = np.asarray(labels)
    if sample_weight is not None:
        texts, labels, sample_weight = drop_unweighted(texts, labels, sample_weight)
    _check_arguments(texts, labels, head, [1.0])
    words, ngrams = Numbers(), Numbers()
    counts = _count(texts, words.__getitem__, ngrams.__getitem__)
    num_texts = np.bincount(counts.features.indices, minlength=counts.features.shape[1])
    is_feature = num_texts >= _LEAST_TEXTS
    is_feature[: len(words)] = True
    used = np.flatnonzero(is_feature)
    if len(used) * head.num_groups > _MOST_WEIGHTS:
        raise ValueError(
            f"texts must have at most {_MOST_WEIGHTS:,} weights for a linear model, got "
            f"{len(used):,} features for each of {head.num_groups:,} {head.kind}: min_class leaves "
            "out rare labels"
        )
    features = counts.features[:, used]
    features.sort_indices()
    first_ngram = int(is_feature[: -len(ngrams)].sum())
    pairs = counts.pairs[is_feature[len(words) : -len(ngrams)]]
    # A lexicon stores 32 bits, and the fit uses the same numbers.
    idf = (np.log((1 + len(texts)) / (1 + num_texts[used])) + 1).astype(np.float32)
    values = _weigh(features, idf.astype(np.float64), first_ngram).astype(np.float32)
    weights, bias = fit_weights(
        *(values, labels, head.num_groups, head.inverse_penalty),
        sample_weight=sample_weight,
        head=head,
    )
    return LinearText(
        num_classes=head.num_probabilities,
        words=tuple(words),
        is_read=np.ones(len(words), bool),
        counts=np.bincount(counts.ids).astype(np.int32),
        pairs=np.stack(np.divmod(pairs, len(words)), 1).astype(np.int32),
        ngrams=tuple(itertools.compress(ngrams, is_feature[-len(ngrams) :].tolist())),
        scale=idf,
        weights=weights.astype(np.float32),
        bias=bias.astype(np.float32),
        prior=head.compute_prior(labels, sample_weight),
        threshold=-1.0,
        share=1.0,
        head=head,
    )


def spell_run(run: str) -> list[str]:
    """Returns the n-grams of 1 to 4 characters of a word with a space at both ends."""
    return [ngram for _, ngram in _list_ngrams(run)]


def _list_ngrams(run: str) -> list[tuple[int, str]]:
    """Returns the n-grams of `spell_run` with their places in the word with a space at its ends."""
    letters = f" {run} "
    # A single space would only count the words.
    return [
        (i, letters[i : i + n])
        for n in range(1, _LONGEST + 1)
        for i in range(n == 1, len(letters) - max(n, 2) + 1)
    ]


def _split_runs(words: Sequence[str]) -> list[Sequence[str]]:
    """Splits a text into runs: neighbours in scripts without spaces, or any other word."""
    runs: list[Sequence[str]] = []
    for is_run, group in itertools.groupby(words, lambda w: not w.isascii() and is_spaceless(w)):
        neighbours = list(group)
        runs += [neighbours] if is_run else [[word] for word in neighbours]
    return runs


def _count(
    texts: Sequence[Sequence[str]],
    find_word: Callable[[str], int],
    find_ngram: Callable[[str], int],
    sizes: tuple[int, np.ndarray, int] | None = None,
) -> _Counts:
    """Counts the features of texts. The functions return the numbers of words and n-grams, -1 if
    unknown. `sizes` has the number of words, the keys of pairs and the number of n-grams; with None
    all features of the texts are taken.
    """
    from scipy.sparse import hstack

    ids, lengths = flatten(map(find_word, words) for words in texts)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    runs = Numbers()
    of_run, run_rows, num_texts = runs.number(["".join(r) for r in _split_runs(t)] for t in texts)
    ngrams, sizes_of_runs = flatten(map(find_ngram, spell_run(run)) for run in runs)
    run_of_ngram = np.repeat(np.arange(len(runs)), sizes_of_runs)
    if sizes is None:
        width = int(ids.max()) + 1
        sizes = width, np.unique(find_pairs(ids, rows, width)[0]), int(ngrams.max()) + 1
    num_words, pairs, num_ngrams = sizes
    first, places = match_pairs(ids, rows, pairs, max(num_words, 1))
    of_words = _make_matrix(rows, ids, (num_texts, num_words))
    of_pairs = _make_matrix(rows[first], places, (num_texts, len(pairs)))
    # A run is spelled only once, however many texts have it.
    spelled = _make_matrix(run_of_ngram, ngrams, (len(runs), num_ngrams))
    of_ngrams = _make_matrix(run_rows, of_run, (num_texts, len(runs))) @ spelled
    features = hstack([of_words, of_pairs, of_ngrams], "csr")
    features.sort_indices()
    return _Counts(ids, rows, pairs, features)


def _make_matrix(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> Any:
    """Returns a csr matrix of the numbers of equal cells, without the column -1."""
    from scipy.sparse import csr_matrix

    is_column = columns >= 0
    ones = np.ones(int(is_column.sum()))
    return csr_matrix((ones, (rows[is_column], columns[is_column])), shape)


def _weigh(counts: Any, scale: np.ndarray, first_ngram: int) -> Any:
    """Returns the values (1 + log count) idf of counts, csr [n, F]. The words and pairs of a text
    have the same length as its n-grams, and a row with both has the length 1.
    """
    values = counts.copy()
    values.data = (1 + np.log(counts.data)) * scale[counts.indices]
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    # Sums are taken in the order of the cells, so that a row has the same bits in each batch.
    group = 2 * rows + (counts.indices >= first_ngram)
    squares = np.bincount(group, values.data**2, 2 * counts.shape[0])
    values.data /= np.sqrt(2 * squares)[group]
    return values
