"""The shapes of batches of texts, of training, prediction and the explorer: widths and sizes.

A text is padded to one of a few widths and a batch to one of a few sizes, because every shape costs
a compilation. Training plans its widths by the lengths of its texts. Prediction does not know its
texts and takes `FINE`; the explorer, where somebody waits for the compiler, takes `COARSE`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from gatedjax.data import plan_buckets
from gatedjax.data.batches._plan import pad_rows

NAMES = ("tokens", "hypothesis")
"""Of the texts of an example in a batch."""
LENGTHS = ("lengths", "hypothesis_lengths")
FINE = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
COARSE = (16, 64, 256, 1024)
CELLS = 8192
"""Words of a batch of prediction, padding included."""
EVALUATED = 128
"""Texts of a batch that is evaluated while a network is trained."""
Shape = tuple[int, int]
"""Rows and width of a batch."""


def width_of(length: int, longest: int, widths: Sequence[int] = FINE) -> int:
    """Returns the padded length of a text: a width, or the last one doubled until it fits.

    Args:
      length: words of the text, at most `longest`.
      longest: words that the model reads at most.
      widths: those that there are.
    """
    width = next((width for width in widths if length <= width), widths[-1])
    while width < length:
        width *= 2
    return min(width, max(longest, widths[0]))


def rows_of(width: int) -> int:
    """Returns how many texts of a width are a full batch."""
    return max(8, min(256, CELLS // width // 8 * 8))


def sizes_of(width: int) -> tuple[int, ...]:
    """Returns the sizes of batches of a width: one text, a few, a full batch."""
    return tuple(sorted({1, 8, rows_of(width)}))


def shape_of(length: int, longest: int, widths: Sequence[int] = FINE) -> Shape:
    """Returns the shape of a full batch of texts of this length; see `width_of`."""
    width = width_of(length, longest, widths)
    return rows_of(width), width


def training_widths(lengths: np.ndarray, longest: int) -> tuple[int, ...]:
    """Returns the widths that pad the training texts least: two, or four for many texts.

    Args:
      lengths: words of the training texts.
      longest: words of the longest of all texts, which the last width holds.
    """
    widths = plan_buckets(lengths, 2 if len(lengths) <= 5000 else 4)
    return (*widths[:-1], max(longest, widths[-1]))


def training_size(texts: int) -> int:
    """Returns the texts of a step."""
    return 32 if texts <= 10_000 else 64


def grouped(
    lengths: Iterable[int], shape: Callable[[int], Shape]
) -> Iterator[tuple[list[int], Shape]]:
    """Yields the numbers of the texts of every batch, and its shape, the narrowest first.

    Args:
      lengths: words of the texts.
      shape: from the words of a text to the shape of a full batch of such texts.
    """
    groups: dict[Shape, list[int]] = {}
    for number, length in enumerate(lengths):
        groups.setdefault(shape(length), []).append(number)
    for (rows, width), numbers in sorted(groups.items(), key=lambda group: group[0][::-1]):
        for begin in range(0, len(numbers), rows):
            yield numbers[begin : begin + rows], (rows, width)


def padded(texts: Sequence[Sequence[np.ndarray]], shape: Shape) -> dict[str, np.ndarray]:
    """Returns the batch of examples, the ids of one text or of two; filler rows have one word."""
    batch: dict[str, np.ndarray] = {}
    for name, lengths, ids in zip(NAMES, LENGTHS, zip(*texts, strict=True), strict=False):
        batch[name] = pad_rows(ids, shape)
        batch[lengths] = np.ones(shape[0], np.int32)
        batch[lengths][: len(ids)] = [len(row) for row in ids]
    return batch
