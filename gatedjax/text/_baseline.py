"""The baseline for text classifiers: a log-linear model of words and pairs of adjacent words."""

import functools
import itertools
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import scipy
from scipy.sparse import csr_matrix

from gatedjax._utils.threads import limit_to_one_thread
from gatedjax.lexicon import spell

# Inverse strength of the penalty, like scikit-learn's C. On a fifth of the training sets of TREC,
# MR, CR, Subj and IMDB the accuracy with 10 is within a point of the better of 3 and 30, and the
# likelihood is near the best (3 loses two points on TREC, 30 is overconfident on MR).
_C = 10.0
# The solver stops when no slope is larger than the tolerance, because a point nearer to the optimum
# does not change the accuracy (0.8980 on TREC with each solver that was tried). The history is
# short, because a step of it needs as much memory as two sets of coefficients.
_STEPS, _TOLERANCE, _HISTORY = 1000, 1e-5, 5
# Texts are left out if there are more words, or if words times columns of coefficients are more,
# because memory and time grow with both.
_MOST_WORDS = 10_000_000
_MOST_CELLS = 80_000_000
# After so many different words, new words count as unknown, because the table is in memory.
_MOST_KINDS = 1_000_000
# A pair of adjacent words is a feature if it occurs this often; a word always is.
_LEAST_PAIRS = 2
# Words that are encoded at a time; this bounds the memory for intermediate results.
_CHUNK = 200_000


class LinearBaseline:
    """A log-linear classifier of bags of words and of pairs of adjacent words.

    A feature is a word, or a pair that occurs twice, and is present in a text or absent. Its weight
    is the mean of two numbers of equal scale: the inverse document frequency, and the largest
    log-ratio of its frequencies inside and outside a class. The rows of the feature matrix have
    length 1, and logistic regression with an L2 penalty is fitted to them.

    Reference: Wang and Manning 2012 (the log-ratios).
    Deviation: in the paper the log-ratios are signed, there is a set of them for each pair of
    classes, and there is no document frequency.
    """

    kind = f"scipy {scipy.__version__}"
    texts_used: int  # number in training, evenly spread if there are too many words

    def __init__(self, *, pairs: bool = True) -> None:
        self._has_pairs = pairs

    def fit(
        self,
        texts: Iterable[Sequence[str]],
        labels: np.ndarray,
        num_classes: int,
        sample_weight: np.ndarray | None = None,
    ) -> "LinearBaseline":
        """Trains on the words of texts, read once, and on their classes; a class may lack texts."""
        labels = np.asarray(labels)
        if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
            raise TypeError(
                f"labels must be a list of integers, got {labels.dtype}{list(labels.shape)}"
            )
        if labels.size and not 0 <= labels.min() <= labels.max() < num_classes:
            raise ValueError(
                f"labels must be in [0, {num_classes}), got {labels.min()} to {labels.max()}"
            )
        columns = 1 if num_classes == 2 else num_classes
        # Two classes need one column of coefficients, because the first class has the score 0.
        corpus, numbers, self._words = _number_words(
            texts, min(_MOST_WORDS, _MOST_CELLS // columns)
        )
        self.texts_used = len(numbers)
        if not len(labels) or corpus.seen != len(labels):
            raise ValueError(
                "texts and labels must have the same length of at least 1, got "
                f"{corpus.seen} and {len(labels)}"
            )
        # Classes without a text have no coefficients, because their log-ratios are undefined.
        self._num_classes = num_classes
        self._classes, classes = np.unique(labels[numbers], return_inverse=True)
        keys = _pair_keys(corpus.ids, corpus.ends, len(self._words))
        pairs, counts = np.unique(keys[keys >= 0], return_counts=True)
        self._pairs = pairs[counts >= _LEAST_PAIRS] if self._has_pairs else pairs[:0]
        rows = self._rows(corpus.ids, corpus.ends)
        self._weights = _feature_weights(rows, classes)
        rows = _weight_rows(rows, self._weights)
        weights = np.ones(len(labels)) if sample_weight is None else sample_weight
        weights = weights[numbers]
        if len(self._classes) == 1 or not rows.nnz:
            self._coefficients = np.zeros((rows.shape[1], len(self._classes)))
            masses = np.bincount(classes, weights)
            self._bias = np.log(masses / masses.sum())
        else:
            self._coefficients, self._bias = _solve(rows, classes, weights)
        return self

    def probabilities(self, texts: Iterable[Sequence[str]]) -> np.ndarray:
        """Computes the class probabilities [n, C]; a class without a training text has 0."""
        parts = []
        for ids, ends in _chunks(texts, self._words):
            rows = _weight_rows(self._rows(ids, ends), self._weights)
            scores = rows @ self._coefficients + self._bias
            part = np.zeros((len(ends), self._num_classes))
            # With a single class there are no scores to compare: its probability is 1.
            is_single = len(self._classes) == 1
            part[:, self._classes] = 1.0 if is_single else np.exp(_log_softmax(scores))
            parts.append(part)
        return np.concatenate(parts) if parts else np.zeros((0, self._num_classes))

    def _rows(self, ids: np.ndarray, ends: np.ndarray) -> csr_matrix:
        """Returns the sparse feature matrix of 0 and 1: all words, then the frequent pairs."""
        width = len(self._words) + len(self._pairs)
        features, sizes = [], []
        for first, last in _spans(ends):
            begin = ends[first - 1] if first else 0
            span_ids, stops = ids[begin : ends[last - 1]], ends[first:last] - begin
            text = np.repeat(np.arange(last - first), np.diff(stops, prepend=0))
            is_known = span_ids >= 0
            cells = [text[is_known] * width + span_ids[is_known]]
            if len(self._pairs):
                keys = _pair_keys(span_ids, stops, len(self._words))
                place = np.minimum(np.searchsorted(self._pairs, keys), len(self._pairs) - 1)
                matches = np.flatnonzero(self._pairs[place] == keys)
                cells.append(text[matches] * width + len(self._words) + place[matches])
            # Each pair (text, feature) is one number, so that a sort removes repetitions. It is
            # faster than `np.unique`.
            code = np.sort(np.concatenate(cells))
            code = code[np.diff(code, prepend=-1) > 0]
            features.append((code % max(width, 1)).astype(np.int32))
            sizes.append(np.bincount(code // max(width, 1), minlength=last - first))
        starts = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
        joined = np.concatenate(features)
        return csr_matrix((np.ones(len(joined)), joined, starts), shape=(len(ends), width))


def character_ngrams(words: Sequence[str]) -> list[str]:
    """Returns the different n-grams of 1 to 4 characters of the words of a text, in a fixed order.
    A space is added to both ends of a word, but not to a piece of a script without spaces.

        >>> character_ngrams(["at", "a"])
        ['a', 't', ' a', 'at', 't ', ' at', 'at ', ' at ', 'a ', ' a ']
    """
    return list(dict.fromkeys(itertools.chain.from_iterable(map(_list_pieces, words))))


@functools.lru_cache(1 << 16)
def _list_pieces(word: str) -> tuple[str, ...]:
    return (*word, *spell(word))


class _Corpus(NamedTuple):
    ids: np.ndarray  # ids of all words, -1 for an unknown word
    ends: np.ndarray  # the position after the last word of each text
    seen: int  # number of texts, including texts that were left out


class _WordIds(dict[str, int]):
    """Word -> its id; a new word gets the next id, or -1 if there are too many words."""

    def __missing__(self, word: str) -> int:
        if len(self) >= _MOST_KINDS:
            return -1
        number = self[word] = len(self)
        return number


def _number_words(
    texts: Iterable[Sequence[str]], most: int
) -> tuple[_Corpus, np.ndarray, dict[str, int]]:
    """Numbers the words in lower case, and halves the texts while there are over `most` words."""
    words = _WordIds()
    ids, ends, numbers = array("i"), array("q"), array("q")
    halvings, seen = 0, 0
    for number, text in enumerate(texts):
        seen += 1
        if not _is_kept(number, halvings):
            continue
        ids.extend(map(words.__getitem__, _lower_words(text)))
        ends.append(len(ids))
        numbers.append(number)
        while len(ids) > most and len(numbers) > 1:
            halvings += 1
            keep = [_is_kept(n, halvings) for n in numbers]  # The first text stays.
            lengths = np.diff(np.asarray(ends), prepend=0)
            ids = array("i", np.asarray(ids)[np.repeat(keep, lengths)].tobytes())
            ends = array("q", np.cumsum(lengths[keep]).tobytes())
            numbers = array("q", np.asarray(numbers)[keep].tobytes())
    return _Corpus(np.asarray(ids), np.asarray(ends), seen), np.asarray(numbers), words


def _is_kept(number: int, halvings: int) -> bool:
    # The hash of the number spreads the remaining texts evenly, in whatever order they come.
    return (number * 2654435769) % (1 << 32) >> (32 - halvings) == 0


def _lower_words(text: Sequence[str]) -> Iterator[str]:
    if isinstance(text, str):
        raise TypeError(f"texts must be sequences of words, got the string {text[:40]!r}")
    return map(str.lower, text)


def _chunks(
    texts: Iterable[Sequence[str]], words: dict[str, int]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the ids of the words of texts, in pieces of whole texts with about 200,000 words."""
    ids, ends = array("i"), array("q")
    for text in texts:
        ids.extend([words.get(word, -1) for word in _lower_words(text)])
        ends.append(len(ids))
        if len(ids) >= _CHUNK or len(ends) >= _CHUNK:
            yield np.asarray(ids), np.asarray(ends)
            ids, ends = array("i"), array("q")
    if ends:
        yield np.asarray(ids), np.asarray(ends)


def _spans(ends: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yields ranges (first, end) of whole texts with about `_CHUNK` words each."""
    bounds = np.unique(
        np.searchsorted(ends, np.arange(0, ends[-1] if len(ends) else 0, _CHUNK), "right")
    )
    return itertools.pairwise(sorted({0, *bounds.tolist(), len(ends)}))


def _pair_keys(ids: np.ndarray, ends: np.ndarray, width: int) -> np.ndarray:
    """Returns int64 [words]: id * width + id of the next word, or -1 without a known pair."""
    # The square of a million words does not fit into 32 bits.
    keys = np.full(len(ids), -1, np.int64)
    keys[:-1] = ids[:-1].astype(np.int64) * width + ids[1:]
    gone = ids < 0
    keys[gone] = -1
    keys[:-1][gone[1:]] = -1
    # Empty texts at the start end at 0, where no word precedes.
    keys[ends[ends > 0] - 1] = -1
    return keys


def _feature_weights(rows: csr_matrix, classes: np.ndarray) -> np.ndarray:
    """Returns document rarity plus the largest log-ratio of a class, each scaled to mean 1."""
    width = rows.shape[1]
    count = np.bincount(rows.indices, minlength=width).astype(float)
    rarity = np.log((1 + len(classes)) / (1 + count)) + 1
    of_row = np.repeat(classes, np.diff(rows.indptr))
    ratio = np.zeros(width)
    for label in range(classes.max() + 1):
        # Both counts start at 1, so that their logarithms are finite.
        inside = np.bincount(rows.indices[of_row == label], minlength=width) + 1.0
        outside = count - inside + 2.0
        odds = np.log(inside / inside.sum()) - np.log(outside / outside.sum())
        ratio = np.maximum(ratio, np.abs(odds))
    total = sum(part / max(part.mean(), 1e-12) for part in (rarity, ratio)) if width else rarity
    return np.asarray(total)


def _weight_rows(rows: csr_matrix, weights: np.ndarray) -> csr_matrix:
    values = weights[rows.indices]
    squares = csr_matrix((np.square(values), rows.indices, rows.indptr), shape=rows.shape)
    scale = 1 / np.sqrt(np.maximum(squares.sum(1).A1, 1e-24))
    values = values * np.repeat(scale, np.diff(rows.indptr))
    return csr_matrix((values, rows.indices, rows.indptr), shape=rows.shape)


def _solve(
    rows: csr_matrix, classes: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the coefficients w and the biases that minimise mean(-log p(class)) + |w|^2 / 2Cn."""
    # Imported here, because commands that only predict should not wait for it.
    from scipy.optimize import minimize

    truth = np.eye(classes.max() + 1)[classes]
    first = 1 if truth.shape[1] == 2 else 0
    shape = rows.shape[1] + 1, truth.shape[1] - first
    ridge = 1 / (_C * len(classes))
    columns = rows.T.tocsr()
    weights = (weights * (len(weights) / weights.sum()))[:, None]

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        point = flat.reshape(shape)
        logs = _log_softmax(rows @ point[:-1] + point[-1])
        wrong = (weights * (np.exp(logs) - truth) / len(truth))[:, first:]
        slope = np.vstack([columns @ wrong + ridge * point[:-1], wrong.sum(0)])
        loss = (
            -(weights * logs * truth).sum() / len(truth) + ridge * np.square(point[:-1]).sum() / 2
        )
        return float(loss), slope.ravel()

    options = {
        "maxiter": _STEPS,
        "maxcor": _HISTORY,
        "gtol": _TOLERANCE,
        "ftol": 1e-14,
        "maxls": 50,
    }
    start = np.zeros(shape[0] * shape[1])
    with limit_to_one_thread():
        point = minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x
    return point.reshape(shape)[:-1], point.reshape(shape)[-1]


def _log_softmax(scores: np.ndarray) -> np.ndarray:
    # A single column has the scores of the second of two classes.
    if scores.shape[1] == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    # The largest score is subtracted, because the exponential of a large score would be infinite.
    scores = scores - scores.max(1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(1, keepdims=True))
