"""Long documents for networks: windows of words, whose scores are averaged."""

import itertools
from collections.abc import Sequence

import numpy as np


class Windows(Sequence[np.ndarray]):
    """Windows, parts of rows that follow each other, as a sequence of int arrays. `starts` has the
    start of each window among the numbers of all rows, and the last end; `owners` has its row.

        >>> windows = Windows([np.array([5, 6, 7])], np.array([0, 1, 3]), np.array([0, 0]))
        >>> [window.tolist() for window in windows]
        [[5], [6, 7]]
    """

    def __init__(self, rows: Sequence[np.ndarray], starts: np.ndarray, owners: np.ndarray) -> None:
        self._rows, self._owners = rows, owners
        is_first = np.diff(owners, prepend=-1) != 0
        self._begins = starts[:-1] - starts[:-1][is_first][np.cumsum(is_first) - 1]
        self._ends = self._begins + np.diff(starts)

    def __len__(self) -> int:
        """Returns the number W of windows."""
        return len(self._owners)

    def __getitem__(self, index):
        """Returns the int array of the window at a position from 0, or a list for a slice."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row = self._rows[int(self._owners[index])]
        return row[int(self._begins[index]) : int(self._ends[index])]


def split_lengths(length: int, longest: int) -> list[int]:
    """Returns the numbers of words of the windows of a document, as few windows as possible, which
    differ by one word at most.

        >>> split_lengths(5, 2), split_lengths(3, 400)
        ([1, 2, 2], [3])
    """
    count = max(-(-length // longest), 1)
    ends = length * np.arange(count + 1) // count
    return np.diff(ends).tolist()


def split_words(words: tuple[str, ...], longest: int) -> list[tuple[str, ...]]:
    """Returns the windows of a document, tuples of words of at most `longest` words."""
    ends = np.cumsum([0, *split_lengths(len(words), longest)]).tolist()
    return [words[begin:end] for begin, end in itertools.pairwise(ends)]


def split_starts(starts: np.ndarray, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Splits documents that begin at `starts`, [n + 1] with the last end, into windows: returns the
    start of each window and the last end, int64 [W + 1], and its document, int64 [W].

        >>> print(*split_starts(np.array([0, 2, 7]), 3))
        [0 2 4 7] [0 1 1]
    """
    lengths = np.diff(starts)
    counts = np.maximum(-(-lengths // longest), 1)
    owners = np.repeat(np.arange(len(lengths)), counts)
    first = np.cumsum(counts) - counts
    number = np.arange(len(owners)) - first[owners]
    begins = starts[owners] + lengths[owners] * number // counts[owners]
    return np.append(begins, starts[-1]), owners


def pool_windows(
    probabilities: np.ndarray, owners: np.ndarray, lengths: np.ndarray, num_documents: int
) -> np.ndarray:
    """Computes the probabilities of documents from the probabilities [..., W, C] of their windows.

        p = softmax(sum_w (n_w / n) log p_w)

    The sum is the mean of the logits of the windows, weighted by their numbers of words n_w, up to
    a number that all classes have and that has no effect. The cross-entropy is a convex function of
    the logits, so that the loss of the document is at most the weighted mean of the losses of its
    windows with the label of the document, on which a network is trained. A document with a single
    window has the bits of this window.

        >>> windows = np.array([[0.9, 0.1], [0.5, 0.5]])
        >>> pool_windows(windows, np.array([0, 0]), np.array([2, 2]), 1)
        array([[0.75, 0.25]])
    """
    counts = np.bincount(owners, minlength=num_documents)
    first = np.cumsum(counts) - counts
    if (counts == 1).all():
        return probabilities
    # A window without words has a single unknown word.
    sizes = np.maximum(lengths, 1).astype(np.float64)
    weights = sizes / np.bincount(owners, sizes, num_documents)[owners]
    logs = np.log(np.maximum(probabilities.astype(np.float64), 1e-300))
    sums = np.add.reduceat(weights[:, None] * logs, first, axis=-2)
    odds = np.exp(sums - sums.max(-1, keepdims=True))
    pooled = odds / odds.sum(-1, keepdims=True)
    single = (counts == 1)[:, None]
    combined = np.where(single, probabilities[..., first, :], pooled)
    return np.asarray(combined, probabilities.dtype)


def number_windows(lengths: Sequence[int]) -> list[int]:
    """Returns the number of the window of each word, from 1.

    >>> number_windows([2, 1])
    [1, 1, 2]
    """
    return np.repeat(np.arange(1, len(lengths) + 1), lengths).tolist()
