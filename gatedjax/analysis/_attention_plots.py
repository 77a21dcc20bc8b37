"""Figures of self-attention: heat maps of queries and keys, and curves over their distance."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from gatedjax._utils.terminal import clean
from gatedjax.analysis._attention_mass import DistanceCounts
from gatedjax.analysis._checks import check_numbers
from gatedjax.analysis._curves import plot_lines
from gatedjax.analysis._figure import INK, draw_and_save
from gatedjax.analysis._sheet import MARGIN, Sheet, break_lines, shades_of, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Lengths are in inches.
_CELL, _GAP, _LONGEST_WORD, _FOOT = 0.25, 0.3, 1.3, 0.62
_WORD_SIZE, _NAME_SIZE = 9.0, 10.0  # Points


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
    return draw_and_save(
        path_stem, lambda: _draw_maps(words, maps, clean(title or ""), set(marked))
    )


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
    words: list[str], maps: dict[str, np.ndarray], title: str, marked: set[int]
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
    heading = sheet.place_heading(title, width)
    names = {name: break_lines(name, side, measure, _NAME_SIZE) for name in maps}
    name_rows = max(len(lines) for lines in names.values())
    above = MARGIN + (heading + 0.06 if heading else 0.0)
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
        _draw_cells(sheet.axes, x, top, cell, shades.to_rgba(values.ravel()))
        _mark_largest(sheet, x, top, cell, values)
    wide = min(2.4, width - 2.2)
    x = width - MARGIN - 0.1 - wide
    sheet.draw_shade_bar(x, height - 0.42, wide, shades, "attention weight", 8.5)
    y = height - 0.45
    sheet.outline(MARGIN, y - 0.07, 0.2, 0.16, linewidth=1.5)
    sheet.write(MARGIN + 0.28, y, "largest of a query", 8.5, color=INK)
    sheet.write(MARGIN, y + 0.24, "rows: queries, columns: keys", 8)
    return sheet.figure


def _draw_cells(axes: "Axes", x: float, top: float, cell: float, colours: np.ndarray) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    # A collection, because long sentences have thousands of cells.
    n = math.isqrt(len(colours))
    boxes = [Rectangle((x + j * cell, top + i * cell), cell, cell) for i, j in np.ndindex(n, n)]
    axes.add_collection(
        PatchCollection(boxes, facecolor=colours, edgecolor="#d9d9d9", linewidth=0.4, zorder=2)
    )


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
