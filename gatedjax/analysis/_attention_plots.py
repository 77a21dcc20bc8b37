"""Figures of self-attention: heat maps of queries and keys, and curves over their distance."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from gatedjax._utils.terminal import clean
from gatedjax.analysis._attention_mass import DistanceCounts
from gatedjax.analysis._curves import plot_lines
from gatedjax.analysis._figure import INK, PALETTE, largest_of, new_figure, save, style
from gatedjax.analysis._heatmap import (
    _add_sheet,
    _break_lines,
    _draw_shade_bar,
    _make_ruler,
    _shorten,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

# Lengths are in inches.
_CELL, _GAP, _MARGIN, _LONGEST_WORD, _FOOT = 0.25, 0.3, 0.15, 1.3, 0.62
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
    with style():
        figure = _draw_maps(words, maps, clean(title or ""), set(marked))
        save(figure, path_stem)
    return figure


def plot_distances(
    counts: Mapping[str, DistanceCounts],
    path_stem: str | Path | None = None,
    *,
    max_distance: int = 20,
    per_neighbour: bool = False,
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
      per_neighbour: True draws the mean weight of a key at each distance instead of the share.
      title: a heading above the figure; None draws no heading.

    Returns:
      The Matplotlib figure.

    Reference: Geng et al. 2020 (SSAN), figures 2 and 4.
    """
    lines = {}
    for name, entry in counts.items():
        values = entry.per_neighbour() if per_neighbour else entry.shares()
        # Without queries all shares are 0, and a line at 0 would look like a result.
        drawn_values = values[: max_distance + 1] if entry.queries else values[:0]
        lines[name] = [(float(r), 100 * float(value), 0.0) for r, value in enumerate(drawn_values)]
    label = "mean weight of a key (%)" if per_neighbour else "share of attention (%)"
    return plot_lines({label: lines}, path_stem, xlabel="distance of query and key", title=title)


def _check_square(name: str, weights: ArrayLike, size: int) -> np.ndarray:
    """Checks the weights of a panel and returns the part without padding, float64 [size, size]."""
    values = np.asarray(weights).astype(np.float64)
    if values.ndim != 2 or min(values.shape) < size:
        raise ValueError(
            f"panels[{name!r}] must have shape [N', N'] with N' at least {size}, the number of "
            f"tokens, got {values.shape}"
        )
    values = values[:size, :size]
    if np.any(values < 0) or not np.all(np.isfinite(values)):
        bad = values[~np.isfinite(values) | (values < 0)]
        raise ValueError(f"panels[{name!r}] must be finite and at least 0, got {bad[0]}")
    return values


def _draw_maps(
    words: list[str], maps: dict[str, np.ndarray], title: str, marked: set[int]
) -> "Figure":
    """Draws the panels side by side, with a legend below them."""
    from matplotlib import cm, colors

    figure = new_figure(1, 1)
    measure = _make_ruler(figure)
    labels = [_shorten(word, _LONGEST_WORD, measure, _WORD_SIZE) for word in words]
    longest = max(measure(word, _WORD_SIZE) for word in labels) + 0.08
    side = max(_CELL * len(words), 0.5)
    x_left = _MARGIN + longest
    # The words of the keys stand above each panel, the words of the queries only at the left.
    width = x_left + len(maps) * side + (len(maps) - 1) * _GAP + _MARGIN
    # The legend below the panels needs this width.
    width = max(width, 4.2)
    heading = _break_lines(title, width - 2 * _MARGIN, _make_ruler(figure, "bold"), 11.0)
    names = {name: _break_lines(name, side, measure, _NAME_SIZE) for name in maps}
    name_rows = max(len(lines) for lines in names.values())
    above = _MARGIN + (0.22 * len(heading) + 0.06 if heading else 0.0)
    top = above + 0.17 * name_rows + 0.06 + longest
    height = top + side + _FOOT
    page = _add_sheet(figure, (width, height), _MARGIN, heading)
    # All panels have a common scale, because a reader compares their shades.
    highest = largest_of(*maps.values())
    shades = cm.ScalarMappable(colors.Normalize(0, highest), "Blues")
    cell = side / len(words)
    weight_of = lambda i: "bold" if i in marked else "normal"  # noqa: E731
    for i, word in enumerate(labels):
        page.text(x_left - 0.06, top + (i + 0.5) * cell, word, fontsize=_WORD_SIZE, ha="right",
                  va="center", weight=weight_of(i))  # fmt: skip
    for number, (name, values) in enumerate(maps.items()):
        x = x_left + number * (side + _GAP)
        page.text(x + side / 2, above + 0.085 * name_rows, "\n".join(names[name]), va="center",
                  ha="center", fontsize=_NAME_SIZE)  # fmt: skip
        for i, word in enumerate(labels):
            page.text(x + (i + 0.5) * cell, top - 0.06, word, fontsize=_WORD_SIZE, rotation=90,
                      ha="center", va="bottom", weight=weight_of(i))  # fmt: skip
        _draw_cells(page, x, top, cell, values, shades)
    wide = min(2.4, width - 2.2)
    place = ((width - _MARGIN - 0.1 - wide) / width, 0.42 / height, wide / width, 0.12 / height)
    _draw_shade_bar(figure, shades, place, "attention weight", 8.5)
    _draw_legend(page, height)
    return figure


def _draw_cells(
    page: "Axes", x: float, top: float, cell: float, values: np.ndarray, shades: "ScalarMappable"
) -> None:
    """Draws the cells of a panel with the weights `values` [N, N] of N words."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    n = len(values)
    boxes = [Rectangle((x + j * cell, top + i * cell), cell, cell) for i in range(n)
             for j in range(n)]  # fmt: skip
    page.add_collection(
        PatchCollection(boxes, facecolor=shades.to_rgba(values.ravel()), edgecolor="#d9d9d9",
                        linewidth=0.4, zorder=2)
    )  # fmt: skip
    for i, row in enumerate(values):
        if row.max() <= 0:
            middle = top + (i + 0.5) * cell
            page.plot([x + 0.2 * cell, x + (n - 0.2) * cell], [middle, middle], color="#9a9a9a",
                      linewidth=0.8, zorder=3)  # fmt: skip
            continue
        # The box is smaller than its cell, so that the boxes of neighbouring cells do not overlap.
        place = x + int(np.argmax(row)) * cell + 0.012, top + i * cell + 0.012
        page.add_patch(
            Rectangle(place, cell - 0.024, cell - 0.024, fill=False, edgecolor=PALETTE[1],
                      linewidth=1.5, zorder=4)
        )  # fmt: skip


def _draw_legend(page: "Axes", height: float) -> None:
    from matplotlib.patches import Rectangle

    y = height - 0.45
    page.add_patch(Rectangle((_MARGIN, y - 0.07), 0.2, 0.16, fill=False, edgecolor=PALETTE[1],
                             linewidth=1.5))  # fmt: skip
    page.text(_MARGIN + 0.28, y, "largest of a query", fontsize=8.5, va="center", color=INK)
    page.text(_MARGIN, y + 0.24, "rows: queries, columns: keys", fontsize=8, va="center")
