"""The shapes of batches in training, prediction and the explorer: widths and sizes.

A text is padded to one of a few widths and a batch to one of a few sizes, because each shape costs
a compilation. Training plans its widths by the lengths of its texts. Prediction does not know its
texts in advance and uses `FINE`. The explorer uses `COARSE`, because its user waits for the
compiler.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from gatedjax.data import plan_buckets
from gatedjax.data.batches._plan import pad_rows

NAMES = ("tokens", "hypothesis")
"""Names, in a batch, of the first and the second text of an example."""
LENGTHS = ("lengths", "hypothesis_lengths")
"""Names, in a batch, of the numbers of words of these texts."""
FINE = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Padded lengths of texts, in words, for prediction."""
COARSE = (16, 64, 256, 1024)
"""Padded lengths of texts, in words, for the explorer."""
CELLS = 8192
"""Number of words in a full batch of prediction, including padding."""
EVALUATED = 128
"""Number of texts in a batch that is evaluated during training."""
Shape = tuple[int, int]
"""Number of rows and width of a batch."""


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


def rows_of(width: int) -> int:
    """Returns the number of texts in a full batch with `width` words per text, padding included."""
    return max(8, min(256, CELLS // width // 8 * 8))


def sizes_of(width: int) -> tuple[int, ...]:
    """Returns the possible numbers of texts in a batch of a width: 1, 8 and a full batch."""
    return tuple(sorted({1, 8, rows_of(width)}))


def shape_of(length: int, longest: int, widths: Sequence[int] = FINE) -> Shape:
    """Returns the shape (rows, width) of a full batch of texts with `length` words."""
    width = width_of(length, longest, widths)
    return rows_of(width), width


def training_widths(lengths: np.ndarray, longest: int) -> tuple[int, ...]:
    """Returns the two widths, or four for more than 5,000 texts, that need the least padding."""
    # Each width costs a compilation, for which a short training saves too little padding.
    widths = plan_buckets(lengths, 2 if len(lengths) <= 5000 else 4)
    return (*widths[:-1], max(longest, widths[-1]))


def training_size(texts: int) -> int:
    """Returns the number of texts in a training step: 32, or 64 for more than 10,000 texts."""
    return 32 if texts <= 10_000 else 64


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
