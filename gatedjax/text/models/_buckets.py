"""The batches of networks in prediction and the explorer: few shapes, because each costs a
compilation, and windows of long documents. Training plans its widths by the lengths of its texts.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.data.batches._plan import pad_rows


def split_words(words: tuple[str, ...], longest: int) -> list[tuple[str, ...]]:
    """Returns the windows of a document, of at most `longest` words: as few as possible, and of
    about the same length.

        >>> split_words(("a", "b", "c", "d", "e"), 2)
        [('a',), ('b', 'c'), ('d', 'e')]
    """
    starts, _ = split_starts(np.array([0, len(words)]), longest)
    return [words[begin:end] for begin, end in itertools.pairwise(starts.tolist())]


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

    This is the mean of the logits, weighted by the numbers of words n_w. The cross-entropy is
    convex in the logits, so that the loss of the document is at most the weighted mean of the
    losses of its windows, on which a network is trained. A single window keeps its bits.

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


# The names, in a batch, of the texts of an example, and of their numbers of words.
NAMES, LENGTHS = ("tokens", "hypothesis"), ("lengths", "hypothesis_lengths")
FINE = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Padded lengths of texts, in words, for prediction."""
COARSE = (16, 64, 256, 1024)
"""Padded lengths for the explorer, whose user waits for the compiler."""
CELLS = 8192
"""Number of words in a full batch of prediction, including padding."""
EVALUATED = 128
"""Number of texts in a batch that is evaluated during training."""
Shape = tuple[int, int]
"""Number of rows and width of a batch."""
Words = Any  # tuple[tuple[str, ...], ...]
"""An example that is split: the words of a text, or of both texts of a pair."""
Ids = tuple[np.ndarray, ...]
"""The ids of the words of a text, or of both texts of a pair."""
Run = Callable[[dict[str, np.ndarray]], Json]
"""Runs a network on a batch, and returns a `Reading`."""


def width_of(length: int, longest: int, widths: Sequence[int] = FINE) -> int:
    """Returns the padded length of a text: the first of `widths` that is at least its length. The
    last width is doubled until a longer text fits, but not beyond `longest`.

        >>> width_of(20, longest=400), width_of(300, longest=400)
        (24, 400)
    """
    width = next((width for width in widths if length <= width), widths[-1])
    while width < length:
        width *= 2
    return min(width, max(longest, widths[0]))


def shape_of(length: int, longest: int, widths: Sequence[int] = FINE) -> Shape:
    """Returns the shape (rows, width) of a full batch of texts with `length` words."""
    width = width_of(length, longest, widths)
    return sizes_of(width)[-1], width


def sizes_of(width: int) -> tuple[int, ...]:
    """Returns the possible numbers of texts in a batch of a width: 1, 8 and a full batch."""
    return tuple(sorted({1, 8, max(8, min(256, CELLS // width // 8 * 8))}))


def group_texts(
    lengths: Iterable[int], shape: Callable[[int], Shape]
) -> Iterator[tuple[list[int], Shape]]:
    """Yields (positions of texts, shape) for each batch, the narrowest batches first."""
    groups: dict[Shape, list[int]] = {}
    for number, length in enumerate(lengths):
        groups.setdefault(shape(length), []).append(number)
    for (rows, width), numbers in sorted(groups.items(), key=lambda group: group[0][::-1]):
        for begin in range(0, len(numbers), rows):
            yield numbers[begin : begin + rows], (rows, width)


@dataclasses.dataclass(frozen=True, slots=True)
class TextOutput:
    """The output of the network for a text or a pair of texts, without padding."""

    tokens: Words  # or their ids
    probabilities: np.ndarray  # float32 [C], of a tagger [T, C]
    masks: tuple[np.ndarray, ...]  # for each text bool [T], True at words that attention can see
    share: float  # the share of these words
    attention: np.ndarray | None  # [T], of the first text; None without attention
    gates: np.ndarray | None  # [T], open probabilities in the first text; None without gates
    windows: tuple[int, ...] = ()  # words in each window of a long text, else ()
    note: str = ""  # a remark: a text was cut, or the answer is the prior


Batches = Iterable[tuple[list[int], dict[str, np.ndarray]]]
"""The positions of texts, and their padded batch; filler rows follow the texts."""


def stream_batches(run: Run, texts: Any, batches: Batches) -> Iterator[tuple[int, TextOutput]]:
    """Runs a network on batches, and yields the position and the output of each text; `texts` has
    the text of each position. Only the outputs of a batch are in memory.
    """
    for numbers, batch in batches:
        out = run(batch)
        for row, number in enumerate(numbers):
            yield number, take_row(texts[number], out, row)


def run_batches(run: Run, texts: Sequence[Any], batches: Batches) -> list[TextOutput]:
    """Runs a network on batches of texts, and returns the outputs in the order of the texts."""
    outputs = dict(stream_batches(run, texts, batches))
    return [outputs[number] for number in range(len(texts))]


def take_row(tokens: Words, out: Json, row: int) -> TextOutput:
    """Returns the output for a row of a batch, without padding."""
    size = len(tokens[0])
    attention, gates = out.get("attention"), out.get("gates")
    return TextOutput(
        tokens,
        out["probabilities"][row],
        tuple(mask[row, : len(words)] for mask, words in zip(out["read"], tokens, strict=True)),
        float(out["share"][row]),
        None if attention is None else attention[row, :size],
        None if gates is None else gates[row, :size],
    )


def make_batches(texts: Any, sizes: Iterable[int], shape: Callable[[int], Shape]) -> Batches:
    """Yields the batches of texts, which has the ids of each position; `sizes` groups the texts."""
    for numbers, shape_of_batch in group_texts(sizes, shape):
        yield numbers, pad_texts([texts[i] for i in numbers], shape_of_batch)


def pad_texts(texts: Sequence[Sequence[np.ndarray]], shape: Shape) -> dict[str, np.ndarray]:
    """Returns a batch with the padded ids "tokens" and the "lengths", for pairs of both texts."""
    batch: dict[str, np.ndarray] = {}
    # The loop ends after the first names if the examples are single texts.
    for name, lengths, ids in zip(NAMES, LENGTHS, zip(*texts, strict=True), strict=False):
        batch[name] = pad_rows(ids, shape)
        # Filler rows have a word, so that their attention weights have a position to add up to 1.
        batch[lengths] = np.ones(shape[0], np.int32)
        batch[lengths][: len(ids)] = [len(row) for row in ids]
    return batch
