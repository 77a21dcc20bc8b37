"""Features of the words that are read, and their weights."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from gatedjax.lexicon._spelling import spell_across

PART = 16_000
"""Words whose features are counted at once. The arrays of a part fit into the cache of the
processor, which halves the time."""
# The power of the weights, and the scale of n-grams against words and pairs: measured on folds of
# six training sets.
_POWER, _NGRAM_SCALE = 1.5, 0.5


class Words(NamedTuple):
    """The words of n texts, as numbers. T is the number of words of all texts, in their order."""

    types: list[str]  # the V different words
    ids: np.ndarray  # int64 [T], the position of each word in `types`
    rows: np.ndarray  # int64 [T], the text of each word, sorted
    num_texts: int  # n; a text may have no word


class Spelling(NamedTuple):
    """The character n-grams of V words, as columns of the matrix of features [texts, F]."""

    columns: np.ndarray  # int64 [N], of all words, with repetitions inside a word
    starts: np.ndarray  # int64 [V + 1]; word v has `columns[starts[v] : starts[v + 1]]`


class Junctions(NamedTuple):
    """The borders of neighbouring units of scripts without spaces, J of them in D kinds. A kind is
    a pair of units with the n-grams across their border.
    """

    first: np.ndarray  # int64 [J], the sorted positions of the left units among the words
    kinds: np.ndarray  # int64 [J], the kind of each border
    spelling: Spelling  # of the D kinds

    def select(self, begin: int, end: int) -> "tuple[np.ndarray, Spelling]":
        """Returns the left units of a part of the words, and the n-grams of their borders."""
        part = slice(*np.searchsorted(self.first, (begin, end)))
        return self.first[part] - begin, select_spelling(self.spelling, self.kinds[part])


class Columns(NamedTuple):
    """The columns of words and of pairs of neighbours in the matrix of features [texts, F]."""

    numbers: np.ndarray  # int64 [V], the number of each word of the texts, or -1: it is in no pair
    of_word: np.ndarray  # int64 [V], the column of each word, or -1
    pairs: np.ndarray  # int64 [P], the sorted keys a * width + b of pairs of numbers (a, b)
    first_pair: int  # the column of the first pair
    width: int  # above all numbers, so that a key stands for a single pair


class Cells(NamedTuple):
    """The N cells of a matrix [texts, features] that are not 0, sorted by row and column."""

    rows: np.ndarray  # int [N], the text
    columns: np.ndarray  # int [N], the feature
    counts: np.ndarray  # how often the text has the feature, at least 1


def number_words(texts: Iterable[Sequence[str]]) -> Words:
    """Returns the words of texts as numbers, in the order in which they first occur.

    >>> number_words([["a", "b"], ["b"]]).ids.tolist()
    [0, 1, 1]
    """
    numbers = Numbers()
    ids, rows, num_texts = numbers.number(texts)
    return Words(list(numbers), ids, rows, num_texts)


class Numbers(dict[str, int]):
    """Word -> its number; a new word gets the next number, 0 for the first."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number

    def number(self, texts: Iterable[Sequence[str]]) -> tuple[np.ndarray, np.ndarray, int]:
        """Returns the numbers of the words, int64 [T], the text of each, and the count of texts."""
        ids, lengths = flatten(map(self.__getitem__, words) for words in texts)
        return ids, np.repeat(np.arange(len(lengths)), lengths), len(lengths)


def flatten(lists: Iterable[Iterable[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the numbers of all lists and the length of each list, int64."""
    parts = [list(numbers) for numbers in lists]
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    return np.fromiter(itertools.chain.from_iterable(parts), np.int64, int(sizes.sum())), sizes


def split_rows(rows: np.ndarray, size: int) -> list[int]:
    """Returns positions that cut the sorted `rows`, int [T], between two texts into parts of about
    `size` words. The first is 0 and the last T.
    """
    if len(rows) <= size:
        return [0, len(rows)]
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    wanted = np.searchsorted(starts, np.arange(0, len(rows), size))
    inner = starts[wanted[wanted < len(starts)]]
    return np.unique([0, *inner.tolist(), len(rows)]).tolist()


def find_columns(spelled: Iterable[list[str]], column_of: Mapping[str, int]) -> Spelling:
    """Returns the `Spelling` of words from their n-grams, except n-grams without a column."""
    missing = itertools.repeat(-1)
    return drop_columns(*flatten(map(column_of.get, ngrams, missing) for ngrams in spelled))


def drop_columns(columns: np.ndarray, sizes: np.ndarray) -> Spelling:
    """Returns the `Spelling` of V words without the columns -1; `sizes`, [V], counts all."""
    has_column = columns >= 0
    before = np.concatenate([[0], np.cumsum(has_column)])
    return Spelling(columns[has_column], before[np.concatenate([[0], np.cumsum(sizes)])])


def select_spelling(spelling: Spelling, words: np.ndarray) -> Spelling:
    """Returns the `Spelling` of the words at the positions `words`, int [n], in this order."""
    sizes = np.diff(spelling.starts)[words]
    # The n-grams of a word are consecutive, so that the position of an n-gram is the start of its
    # word plus a running number.
    starts = np.concatenate([[0], np.cumsum(sizes)])
    places = np.repeat(spelling.starts[words] - starts[:-1], sizes) + np.arange(starts[-1])
    return Spelling(spelling.columns[places], starts)


def find_first(ids: np.ndarray, rows: np.ndarray, width: int) -> np.ndarray:
    """Returns the first place in `ids` of each word of each text; all numbers are below `width`."""
    # The order is that of the words, because a sum in the order of their numbers, which follow the
    # words that were read before, would have other bits.
    return np.sort(np.unique(rows * width + ids, return_index=True)[1])


def find_pairs(ids: np.ndarray, rows: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the keys a * width + b of neighbours (a, b) in a text, and the positions of a in
    `ids`. The number -1 is in no pair; all numbers are below `width`.
    """
    first = np.flatnonzero((rows[:-1] == rows[1:]) & (ids[:-1] >= 0) & (ids[1:] >= 0))
    return ids[first] * width + ids[first + 1], first


def match_pairs(
    ids: np.ndarray, rows: np.ndarray, pairs: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions in `ids` of the first words of the neighbours whose keys, see
    `find_pairs`, are in the sorted `pairs`, and the positions of the keys there.
    """
    keys, first = find_pairs(ids, rows, width)
    places = find_keys(pairs, keys)
    return first[places >= 0], places[places >= 0]


def find_borders(
    ids: np.ndarray, rows: np.ndarray, is_unit: np.ndarray, types: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, list[list[str]]]:
    """Returns the fields `first` and `kinds` of `Junctions` and the n-grams of each kind. The words
    `ids` are positions in `types` and in `is_unit`, True for units of scripts without spaces.
    """
    keys, first = find_pairs(np.where(is_unit[ids], ids, -1), rows, len(is_unit))
    kinds, kind = np.unique(keys, return_inverse=True)
    sides = zip(*(side.tolist() for side in np.divmod(kinds, max(len(is_unit), 1))), strict=True)
    return first, kind, [spell_across(types[left], types[right]) for left, right in sides]


def find_junctions(
    ids: np.ndarray,
    rows: np.ndarray,
    is_unit: np.ndarray,
    types: Sequence[str],
    column_of: Mapping[str, int],
) -> Junctions:
    """Returns the borders of neighbours, see `find_borders`, with the columns of their n-grams."""
    first, kinds, ngrams = find_borders(ids, rows, is_unit, types)
    return Junctions(first, kinds, find_columns(ngrams, column_of))


def find_keys(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Returns the position of each number of `wanted` in the sorted `keys`, or -1."""
    if not len(keys):
        return np.full(len(wanted), -1)
    # A number above all keys would get a position behind the last.
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, places, -1)


def count_features(
    ids: np.ndarray,
    rows: np.ndarray,
    columns: Columns,
    spelling: Spelling,
    junctions: Junctions,
    num_columns: int,
) -> Cells:
    """Counts the features of texts by the words read `ids`, [T], in the sorted texts `rows`. They
    are positions among the V words of `columns` and of `spelling`.
    """
    parts = [
        _count_part(
            *(ids[begin:end], rows[begin:end], columns, spelling),
            *(junctions.select(begin, end), max(num_columns, 1)),
        )
        for begin, end in itertools.pairwise(split_rows(rows, PART))
    ]
    return Cells(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _count_part(
    ids: np.ndarray,
    rows: np.ndarray,
    columns: Columns,
    spelling: Spelling,
    across: tuple[np.ndarray, Spelling],
    num_columns: int,
) -> Cells:
    of_word = columns.of_word[ids]
    first, places = match_pairs(columns.numbers[ids], rows, columns.pairs, columns.width)
    spelled = select_spelling(spelling, ids)
    left, borders = across
    # A code stands for a row and a column, so that a single sort counts all cells in their order.
    of_row = rows * num_columns
    codes = np.concatenate(
        [
            (of_row + of_word)[of_word >= 0],
            of_row[first] + (places + columns.first_pair),
            np.repeat(of_row, np.diff(spelled.starts)) + spelled.columns,
            np.repeat(of_row[left], np.diff(borders.starts)) + borders.columns,
        ]
    )
    codes.sort()
    starts = np.flatnonzero(np.diff(codes, prepend=-1, append=-1))
    cells = codes[starts[:-1]]
    row = cells // num_columns
    column = cells - row * num_columns
    return Cells(row.astype(np.int32), column.astype(np.int32), np.diff(starts).astype(np.int32))


def weigh_cells(cells: Cells, scale: np.ndarray, num_texts: int) -> tuple[np.ndarray, np.ndarray]:
    """Computes the values v = r (1 + log count), in rows of length 1, and the factor 1 / |v| of
    each row. Sums are taken in the order of the cells, so that a row has the same bits in each
    batch.
    """
    largest = int(cells.counts.max()) if len(cells.counts) else 0
    # The counts are few different integers, so that a table saves most of the logarithms.
    logs = 1 + np.array([0.0, *map(np.log, range(1, largest + 1))])
    values = logs[cells.counts]
    values *= scale[cells.columns]
    squares = np.bincount(cells.rows, values * values, minlength=num_texts)
    factors = 1 / np.sqrt(np.where(squares > 0, squares, 1.0))
    values *= factors[cells.rows]
    return values, factors


def compute_scale(
    cells: Cells, groups: np.ndarray, first_ngram: int, num_columns: int
) -> np.ndarray:
    """Computes the weight r of each feature from the training texts: [F].

        r_f = s ((idf_f / mean idf + nb_f / mean nb) / 2)^1.5

    idf_f = log((1 + n) / (1 + n_f)) + 1, and nb_f is the largest absolute log-ratio of the
    frequencies inside and outside of a group of texts (Wang and Manning 2012). The means are over
    the words and pairs, with s = 1, and over the character n-grams, with s = 0.5.
    """
    counts = _count_in_groups(cells, groups, num_columns)
    total = np.bincount(cells.columns, minlength=num_columns).astype(np.float64)
    idf = np.log((1 + len(groups)) / (1 + total)) + 1
    parts = [
        factor * ((idf[part] / _mean(idf[part]) + ratio / _mean(ratio)) / 2) ** _POWER
        for part, factor in ((slice(0, first_ngram), 1.0), (slice(first_ngram, None), _NGRAM_SCALE))
        for ratio in [_compare_groups(counts[:, part], total[part])]
    ]
    return np.concatenate(parts)


def _compare_groups(counts: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Computes the largest absolute log-ratio of each feature, from the counts [G, F] in groups."""
    ratio = np.zeros(len(total))
    for count in counts:
        # Without the added 1 a feature that a class lacks would have an infinite ratio.
        inside, outside = count + 1.0, total - count + 1.0
        shift = np.log(outside.sum() / inside.sum()) if len(total) else 0.0
        ratio = np.maximum(ratio, np.abs(np.log(inside / outside) + shift))
    return ratio


def _count_in_groups(cells: Cells, groups: np.ndarray, num_columns: int) -> np.ndarray:
    """Counts the texts of each group that have each feature: float64 [G, F]."""
    from scipy.sparse import csr_matrix

    num_texts = len(groups)
    starts = np.searchsorted(cells.rows, np.arange(num_texts + 1))
    has_feature = csr_matrix(
        (np.ones(len(cells.columns)), cells.columns, starts), (num_texts, num_columns)
    )
    # Sums of ones are exact, so that the order of the texts has no effect on the bits.
    return np.asarray((csr_matrix(groups.T.astype(np.float64)) @ has_feature).toarray())


def _mean(values: np.ndarray) -> float:
    # The result is a divisor.
    return max(float(values.mean()), 1e-9) if len(values) else 1.0
