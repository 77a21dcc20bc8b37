"""Self-attention: by the distance of query and key, and as heat maps."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from gatedjax._utils.terminal import clean
from gatedjax.analysis._checks import check_lengths, check_numbers
from gatedjax.analysis._curves import plot_lines
from gatedjax.analysis._figure import INK, draw_and_save
from gatedjax.analysis._sheet import MARGIN, Sheet, break_lines, shades_of, shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Lengths are in inches.
_CELL, _GAP, _LONGEST_WORD, _FOOT = 0.25, 0.3, 1.3, 0.62
_WORD_SIZE, _NAME_SIZE = 9.0, 10.0  # Points


@dataclasses.dataclass(frozen=True, eq=False)
class DistanceCounts:
    """Attention by the distance of query and key; counts of parts of a data set can be added.

    The distances of positions are r = 0, ..., R - 1, and W_ij is the attention weight of query i on
    key j.

    Attributes:
      mass: float64 [R], sum of W_ij with |i - j| = r over all sentences.
      pairs: int [R], number of pairs (i, j) with |i - j| = r.
      queries: number of queries.
      empty: number of queries without any weight (no key was selected); their shares are 0.
    """

    mass: np.ndarray
    pairs: np.ndarray
    queries: int
    empty: int

    def __add__(self, other: "DistanceCounts") -> "DistanceCounts":
        # Parts of a data set have different longest sentences, and therefore different largest
        # distances.
        size = max(len(self.mass), len(other.mass))
        grow = lambda a: np.pad(a, (0, size - len(a)))  # noqa: E731
        return DistanceCounts(
            grow(self.mass) + grow(other.mass),
            grow(self.pairs) + grow(other.pairs),
            self.queries + other.queries,
            self.empty + other.empty,
        )

    def shares(self) -> np.ndarray:
        """Returns float [R]: for each distance r the mean over the queries of their weight at r.

        There are R distances, from 0. The weights of the two keys at distance r, left and right of
        a query, are summed.
        """
        # Without queries all masses are 0, and the shares are then 0 and not NaN.
        return self.mass / max(self.queries, 1)

    def per_neighbour(self) -> np.ndarray:
        """Returns float [R]: for each distance r the mean weight of a pair of query and key at r.

        There are R distances, from 0. Unlike a share it is not lower because queries near the ends
        have fewer neighbours.
        """
        return self.mass / np.maximum(self.pairs, 1)

    @property
    def empty_rate(self) -> float:
        """The share of the queries without any weight; NaN without queries."""
        return self.empty / self.queries if self.queries else float("nan")


def distance_counts(weights: ArrayLike, lengths: ArrayLike) -> DistanceCounts:
    """Sums the attention weights of self-attention by the distance of query and key.

        share(r) = mean over queries i of the sum over j with |i - j| = r of W_ij

        >>> weights = [[[0.5, 0.5], [0.0, 1.0]]]
        >>> print(distance_counts(weights, [2]).shares())
        [0.75 0.25]

    Args:
      weights: W [B, N, N] for B sentences of at most N words, the axis of queries before that of
        keys; values at padding are ignored.
      lengths: int [B], the number of words of each sentence.

    Returns:
      The counts, from distance 0 (the word itself) to N - 1.

    Reference: Geng et al. 2020 (SSAN), figures 2 and 4.
    """
    weights = np.asarray(weights, np.float64)
    if weights.ndim != 3 or weights.shape[1] != weights.shape[2]:
        raise ValueError(f"weights must have shape [B, N, N], got {weights.shape}")
    real = check_lengths(lengths, weights.shape, "weights")[1]
    n = weights.shape[-1]
    both = real[:, :, None] & real[:, None, :]
    # Padding is replaced and not multiplied by 0, because it may be NaN.
    real_weights = np.where(both, weights, 0.0)
    check_numbers("weights", real_weights, 0, where=" at real words")
    distances = np.abs(np.arange(n)[:, None] - np.arange(n)[None, :]).ravel()
    mass = np.bincount(distances, real_weights.sum(axis=0).ravel(), minlength=n)
    pairs = np.bincount(distances, both.sum(axis=0).ravel(), minlength=n).astype(np.int64)
    rows = real_weights.sum(axis=-1)[real]
    return DistanceCounts(mass[:n], pairs[:n], int(real.sum()), int(np.sum(rows == 0)))


def plot_attention(
    tokens: Sequence[str],
    panels: Mapping[str, ArrayLike],
    path_stem: str | Path | None = None,
    title: str | None = None,
    *,
    marked: Sequence[int] = (),
) -> "Figure":
    """Draws self-attention as heat maps side by side: a row per query, a column per key.

    The shade is the weight, on the same scale for all panels; a box surrounds the largest weight of
    each query. The row of a query without any weight (no key was selected) has a dash and no box.

        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> panels = {"head 1": [[0.5, 0.5], [0.0, 1.0]]}
        >>> figure = plot_attention(["a", "b"], panels, folder / "weights")
        >>> sorted(path.name for path in folder.iterdir())
        ['weights.png', 'weights.svg']

    Args:
      tokens: the N words of a sentence.
      panels: {name: attention weights [N', N']} with N' >= N, a row per query; positions from N on
        are padding and are ignored.
      path_stem: path of the .png and .svg file without the suffix; None writes no file.
      title: a heading above the figure; None draws no heading.
      marked: positions of words that are printed in bold, for example words that were moved.

    Returns:
      The Matplotlib figure.

    Reference: Geng et al. 2020 (SSAN), figures 3 and 5.
    """
    words = [clean(token) for token in tokens]
    if not words:
        raise ValueError(f"tokens must have at least one word, got {tokens!r}")
    if not panels:
        raise ValueError(f"panels must have at least one map, got {panels!r}")
    if outside := [place for place in marked if not 0 <= place < len(words)]:
        raise ValueError(f"marked must be in [0, {len(words)}), got {outside}")
    maps = {
        clean(name): _check_square(name, weights, len(words)) for name, weights in panels.items()
    }
    return draw_and_save(path_stem, lambda: _draw_maps(words, maps, title, set(marked)))


def plot_distances(
    counts: Mapping[str, DistanceCounts],
    path_stem: str | Path | None = None,
    *,
    max_distance: int = 20,
    title: str | None = None,
) -> "Figure":
    """Draws the share of attention, in percent, over the distance of query and key.

        >>> from gatedjax.analysis import distance_counts
        >>> counts = distance_counts([[[0.5, 0.5], [0.0, 1.0]]], [2])
        >>> figure = plot_distances({"head 1": counts})
        >>> figure.axes[0].get_xlabel()
        'distance of query and key'

    Args:
      counts: {name: result of `distance_counts`}; an entry without queries has no line, and a panel
        without any line is labelled "not run".
      path_stem: path of the .png and .svg file without the suffix; None writes no file.
      max_distance: the largest distance that is drawn.
      title: a heading above the figure; None draws no heading.

    Returns:
      The Matplotlib figure.

    Reference: Geng et al. 2020 (SSAN), figures 2 and 4.
    """
    lines = {}
    for name, entry in counts.items():
        # Without queries all shares are 0, and a line at 0 would look like a result.
        shares = entry.shares()[: max_distance + 1 if entry.queries else 0]
        lines[name] = [(float(r), 100 * float(share), 0.0) for r, share in enumerate(shares)]
    panel = {"share of attention (%)": lines}
    return plot_lines(panel, path_stem, xlabel="distance of query and key", title=title)


def _check_square(name: str, weights: ArrayLike, size: int) -> np.ndarray:
    """Checks the weights of a panel and returns the part without padding, float64 [size, size]."""
    values = np.asarray(weights).astype(np.float64)
    if values.ndim != 2 or min(values.shape) < size:
        raise ValueError(
            f"panels[{name!r}] must have shape [N', N'] with N' at least {size}, the number of "
            f"tokens, got {values.shape}"
        )
    values = values[:size, :size]
    check_numbers(f"panels[{name!r}]", values, 0)
    return values


def _draw_maps(
    words: list[str], maps: dict[str, np.ndarray], title: str | None, marked: set[int]
) -> "Figure":
    """Draws the panels side by side, with a legend below them."""
    sheet = Sheet()
    measure = sheet.measure
    labels = [shorten(word, _LONGEST_WORD, measure, _WORD_SIZE) for word in words]
    longest = max(measure(word, _WORD_SIZE) for word in labels) + 0.08
    side = max(_CELL * len(words), 0.5)
    x_left = MARGIN + longest
    # The words of the keys stand above each panel, the words of the queries only at the left.
    width = x_left + len(maps) * side + (len(maps) - 1) * _GAP + MARGIN
    # The legend below the panels needs this width.
    width = max(width, 4.2)
    above = sheet.place_heading(title, width)
    names = {name: break_lines(name, side, measure, _NAME_SIZE) for name in maps}
    name_rows = max(len(lines) for lines in names.values())
    top = above + 0.17 * name_rows + 0.06 + longest
    height = top + side + _FOOT
    sheet.open(width, height)
    # All panels have a common scale, because a reader compares their shades.
    shades = shades_of(*maps.values())
    cell = side / len(words)
    weights = ["bold" if i in marked else "normal" for i in range(len(labels))]
    for i, word in enumerate(labels):
        y = top + (i + 0.5) * cell
        sheet.write(x_left - 0.06, y, word, _WORD_SIZE, ha="right", weight=weights[i])
    for number, (name, values) in enumerate(maps.items()):
        x = x_left + number * (side + _GAP)
        lines = "\n".join(names[name])
        sheet.write(x + side / 2, above + 0.085 * name_rows, lines, _NAME_SIZE, ha="center")
        for i, word in enumerate(labels):
            sheet.write(x + (i + 0.5) * cell, top - 0.06, word, _WORD_SIZE, rotation=90,
                        ha="center", va="bottom", weight=weights[i])  # fmt: skip
        sheet.draw_cells(x, top, (cell, cell), values, shades)
        _mark_largest(sheet, x, top, cell, values)
    wide = min(2.4, width - 2.2)
    x = width - MARGIN - 0.1 - wide
    sheet.draw_shade_bar(x, height - 0.42, wide, shades, "attention weight", 8.5)
    y = height - 0.45
    sheet.outline(MARGIN, y - 0.07, 0.2, 0.16, linewidth=1.5)
    sheet.write(MARGIN + 0.28, y, "largest of a query", 8.5, color=INK)
    sheet.write(MARGIN, y + 0.24, "rows: queries, columns: keys", 8)
    return sheet.figure


def _mark_largest(sheet: Sheet, x: float, top: float, cell: float, values: np.ndarray) -> None:
    """Draws a box around the largest weight of each query, and a dash for a query without any."""
    n = len(values)
    for i, row in enumerate(values):
        if row.max() <= 0:
            middle = top + (i + 0.5) * cell
            ends = [x + 0.2 * cell, x + (n - 0.2) * cell]
            sheet.axes.plot(ends, [middle, middle], color="#9a9a9a", linewidth=0.8, zorder=3)
            continue
        # The box is smaller than its cell, so that the boxes of neighbouring cells do not overlap.
        place = x + int(np.argmax(row)) * cell + 0.012, top + i * cell + 0.012
        sheet.outline(*place, cell - 0.024, cell - 0.024, linewidth=1.5, zorder=4)
