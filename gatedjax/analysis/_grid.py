"""Figure of the attention of many rows to the words of a query, a panel per hop."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from gatedjax._utils.terminal import clean
from gatedjax._utils.types import Keywords
from gatedjax.analysis._checks import check_numbers
from gatedjax.analysis._figure import INK, PALETTE, draw_and_save, largest_of
from gatedjax.analysis._sheet import MARGIN, Sheet, shades_of, shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Lengths are in inches.
_CELL, _LABEL, _GAP, _BAR, _NUMBER = 0.185, 1.5, 0.22, 0.9, 0.36
_SIZE, _NAME = 8.5, 9.5  # Points


@dataclasses.dataclass(frozen=True)
class GridPanel:
    """The attention weights of a hop (a reading of a text), a panel of `plot_attention_grid`.

    `name` is the heading of the panel, and `weights` are [R, C], at least 0, for R rows and C
    columns.

    >>> GridPanel("hop 1", [[0.5, 0.5], [0.25, 0.75]]).name
    'hop 1'
    """

    name: str
    """The heading of the panel."""
    weights: ArrayLike
    """[R, C], the weights of each row over the columns, at least 0."""


def plot_attention_grid(
    rows: Sequence[str],
    columns: Sequence[str],
    panels: Sequence[GridPanel],
    final: ArrayLike,
    path_stem: str | Path | None = None,
    title: str | None = None,
    *,
    groups: Sequence[int] | None = None,
    marked: Sequence[bool] | None = None,
    final_name: str = "answer",
) -> "Figure":
    """Draws the attention of rows to columns, a panel per hop, and a bar for each row at the right.

    All panels have the same rows and scale of shades. A thin line separates groups of rows.

        >>> panels = [GridPanel("hop 1", [[0.5, 0.5], [0.25, 0.75]])]
        >>> figure = plot_attention_grid(["Ann", "Bob"], ["who", "won"], panels, [0.75, 0.25])
        >>> [text.get_text() for text in figure.axes[0].texts[:2]]
        ['Ann', 'Bob']

    Args:
      rows: names of the R rows, for example the places of candidates in a document.
      columns: names of the C columns, for example the words of a query.
      panels: the hops, from left to right, each with weights [R, C] of at least 0; an empty
        sequence draws only the bars.
      final: [R] the final weight of each row, drawn as a bar with its number (no number below
        0.005).
      path_stem: path of the .png and .svg file without the suffix; None writes no file.
      title: a heading above the figure; None draws no heading.
      groups: [R] the number of the group of each row; a line separates neighbours of different
        groups. None draws no lines.
      marked: [R] bool, True for rows that are drawn in bold and orange, for example the answer;
        None marks no rows.
      final_name: the heading above the bars, such as the name of the probability.

    Returns:
      The Matplotlib figure.

    Reference: Dhingra et al. 2017 (GA Reader), figures 3 to 7.
    """
    names, words = [clean(row) for row in rows], [clean(column) for column in columns]
    if not names:
        raise ValueError(f"rows must have at least one name, got {rows!r}")
    grids = [
        _check_weights(f"weights of panels[{i}]", panel.weights, (len(names), len(words)))
        for i, panel in enumerate(panels)
    ]
    last = _check_weights("final", final, (len(names),))
    for name, values in {"groups": groups, "marked": marked}.items():
        if values is not None and len(values) != len(names):
            raise ValueError(
                f"{name} must have {len(names)} values, one for each row, got {len(values)}"
            )
    bold = [bool(mark) for mark in marked] if marked is not None else [False] * len(names)
    parts = list(groups) if groups is not None else [0] * len(names)
    heads = [*(clean(panel.name) for panel in panels), clean(final_name)]
    return draw_and_save(
        path_stem, lambda: _draw(names, words, grids, last, title, parts, bold, heads)
    )


def _check_weights(name: str, values: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    weights = np.asarray(values).astype(np.float64)
    if weights.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {weights.shape}")
    check_numbers(name, weights, 0)
    return weights


def _draw(
    names: list[str],
    words: list[str],
    grids: list[np.ndarray],  # the weights [R, C] of each panel
    last: np.ndarray,  # [R], drawn as bars
    title: str | None,
    groups: list[int],  # [R], the group of each row; lines separate the groups
    bold: list[bool],
    heads: list[str],  # of the panels, then of the bars
) -> "Figure":
    """Draws the panels, the bars at their right and the legend of the shades below them."""
    sheet = Sheet()
    measure, strong = sheet.measure, sheet.measure_bold
    # Names are measured in bold, the wider form, because any of them may be marked.
    names = [shorten(name, 2.4, strong, _SIZE) for name in names]
    words = [shorten(word, _LABEL, measure, _SIZE) for word in words]
    x_left = MARGIN + max(strong(name, _SIZE) for name in names) + 0.1
    panel = max(_CELL * len(words), 0.6)
    bars = x_left + (panel + _GAP) * len(grids)
    right = bars + max(_BAR + _NUMBER, measure(heads[-1], _NAME) + 0.05) + MARGIN
    width = max(right, 4.6)
    above = sheet.place_heading(title, width)
    top = above + 0.24
    if grids:
        top += max(measure(word, _SIZE) for word in words) + 0.08
    bottom = top + _CELL * len(names)
    sheet.open(width, bottom + (0.74 if grids else 0.15))
    for n, name in enumerate(names):
        look: Keywords = {"color": INK}
        if bold[n]:
            look = {"weight": "bold", "color": PALETTE[1]}
        sheet.write(x_left - 0.07, top + (n + 0.5) * _CELL, name, _SIZE, ha="right", **look)
    shades = shades_of(*grids)
    heading_y = above + 0.1 if grids else top - 0.14
    for number, grid in enumerate(grids):
        x = x_left + number * (panel + _GAP)
        sheet.write(x, heading_y, heads[number], _NAME, weight="bold")
        for c, word in enumerate(words):
            sheet.write(x + (c + 0.5) * _CELL, top - 0.05, word, _SIZE, rotation=90, ha="center",
                        va="bottom")  # fmt: skip
        sheet.draw_cells(x, top, (_CELL, _CELL), grid, shades, edgecolor="#dedede", linewidth=0.3)
    sheet.write(bars, heading_y, heads[-1], _NAME, weight="bold")
    _draw_bars(sheet, bars, top, last, bold)
    # The lines between groups cross all panels and the bars.
    for border in np.flatnonzero(np.diff(groups)) + 1:
        y = top + float(border) * _CELL
        sheet.axes.plot((MARGIN, right - MARGIN), (y, y), color="#8c8c8c", linewidth=0.6, zorder=3)
    if grids:
        wide = min(1.9, width - 2 * MARGIN)
        label = "attention to the words of the query"
        sheet.draw_shade_bar(x_left, bottom + 0.3, wide, shades, label, _SIZE)
    return sheet.figure


def _draw_bars(sheet: Sheet, x: float, y: float, weights: np.ndarray, bold: list[bool]) -> None:
    """Draws the final weights [R] as bars with numbers, a bar per row."""
    lengths = _BAR * weights / largest_of(weights)
    colors = [PALETTE[1] if mark else PALETTE[0] for mark in bold]
    middles = y + _CELL * (np.arange(len(weights)) + 0.5)
    sheet.axes.barh(middles, lengths, 0.7 * _CELL, left=x, color=colors, zorder=3)
    sheet.axes.plot((x, x), (y, y + _CELL * len(weights)), color=INK, linewidth=0.8, zorder=4)
    for weight, length, middle in zip(weights, lengths, middles, strict=True):
        # A smaller weight would be printed as 0.00, which looks like a result.
        if weight >= 0.005:
            sheet.write(x + length + 0.04, middle, f"{weight:.2f}", 7.5)
