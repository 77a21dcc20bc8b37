"""Figure of attention over the words of a sentence, with several models below each other."""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from gatedjax._utils.terminal import clean
from gatedjax._utils.types import Keywords
from gatedjax.analysis._figure import INK, draw_and_save
from gatedjax.analysis._sheet import MARGIN, Sheet, break_lines, shades_of, shorten, wrap
from gatedjax.analysis._text import check_word_values

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Lengths are in inches.
_WIDTH, _ROW, _LINE, _GAP, _WORD_PAD, _LEAST_CELL = 8.0, 0.30, 0.20, 0.18, 0.13, 0.38
_WORD_SIZE, _NAME_SIZE, _NUMBER_SIZE = 10.0, 9.5, 7.5  # Points
_OPEN_EDGE, _CLOSED_EDGE, _CELL_EDGE = "#000000", "#9a9a9a", "#c9c9c9"


@dataclasses.dataclass(frozen=True)
class _Row:
    """A row of the figure: a model's weights and gates for the T words of a sentence."""

    name: str
    words: tuple[str, ...]
    weights: np.ndarray  # [T]
    gates: np.ndarray | None  # [T]


def plot_heatmap(
    rows: Sequence[tuple[str, Sequence[str], ArrayLike, ArrayLike | None]],
    path_stem: str | Path | None = None,
    title: str | None = None,
) -> "Figure":
    """Draws the attention of several models over the words of a sentence.

    Each model has a cell for each word. The shade of the cell is the weight, on the same scale for
    all models; its number is the weight (no number below 0.005). An open gate has a bold outline
    and a dot, a closed gate is hatched. Long sentences continue on further lines. Consecutive rows
    with the same words have a common line of words.

        >>> row = ("GA-Net", ["a", "good", "film"], [0.0, 1.0, 0.0], [0, 1, 0])
        >>> figure = plot_heatmap([row])
        >>> [text.get_text() for text in figure.axes[0].texts[:3]]
        ['a', 'good', 'film']

    Args:
      rows: (name, tokens, weights, gates or None) for each model, with a weight and a gate for each
        token; gates above 0 are open. Further weights and gates are padding and are ignored.
      path_stem: path of the .png and .svg file without the suffix; None writes no file.
      title: a heading above the figure; None draws no heading.

    Returns:
      The Matplotlib figure.

    Reference: Xue et al. 2020 (GA-Net), figures 1 and 4.
    """
    models = _check_rows(rows)
    return draw_and_save(path_stem, lambda: _draw(models, title))


def _check_rows(
    rows: Sequence[tuple[str, Sequence[str], ArrayLike, ArrayLike | None]],
) -> list[_Row]:
    """Checks the rows of a heat map and removes their padding."""
    models = []
    for i, (name, tokens, weights, gates) in enumerate(rows):
        words = tuple(clean(token) for token in tokens)
        if not words:
            raise ValueError(f"rows[{i}] must have at least one word, got {tokens!r}")
        weights = check_word_values(f"weights of rows[{i}]", weights, len(words), least=0)
        if gates is not None:
            gates = check_word_values(f"gates of rows[{i}]", gates, len(words))
        models.append(_Row(clean(name), words, weights, gates))
    if not models:
        raise ValueError(f"rows must have at least one model, got {rows!r}")
    return models


def _draw(rows: list[_Row], title: str | None) -> "Figure":
    """Draws the lines of words with the cells of the models, and the legend below them."""
    sheet = Sheet()
    measure = sheet.measure
    # Long names are broken into lines, so that most of the width remains for the words.
    names = {row.name: break_lines(row.name, 0.27 * _WIDTH, measure, _NAME_SIZE) for row in rows}
    name_width = max(measure(line, _NAME_SIZE) for name in names.values() for line in name)
    x_left = MARGIN + name_width + 0.12
    room = _WIDTH - x_left - MARGIN
    height_of_row = max(_ROW, 0.15 * max(len(name) for name in names.values()) + 0.06)

    # A line is (rows with the same words, first word, word after the last, words, their widths).
    lines = []
    for _, same_words in itertools.groupby(rows, lambda row: row.words):
        group = list(same_words)
        words = [shorten(word, room / 2, measure) for word in group[0].words]
        sizes = [max(measure(word, _WORD_SIZE) + _WORD_PAD, _LEAST_CELL) for word in words]
        for first, past in wrap(sizes, room):
            lines.append((group, first, past, words, sizes))

    top = sheet.place_heading(title, _WIDTH)
    height = top + sum(_LINE + 0.03 + height_of_row * len(group) + _GAP for group, *_ in lines)
    footer = height + 0.02
    sheet.open(_WIDTH, footer + 0.62)

    shades = shades_of(*(row.weights for row in rows))
    y = top
    for group, first, past, words, sizes in lines:
        edges = x_left + np.concatenate([[0.0], np.cumsum(sizes[first:past])])
        for i, word in enumerate(words[first:past]):
            sheet.write((edges[i] + edges[i + 1]) / 2, y + _LINE / 2, word, _WORD_SIZE, ha="center")
        y += _LINE + 0.03
        for row in group:
            name = "\n".join(names[row.name])
            sheet.write(x_left - 0.12, y + height_of_row / 2, name, _NAME_SIZE, ha="right",
                        linespacing=1.05)  # fmt: skip
            for i in range(first, past):
                box = edges[i - first], y, sizes[i], height_of_row
                _draw_cell(sheet, box, row, i, shades)
            y += height_of_row
        y += _GAP
    if any(row.gates is not None for row in rows):
        _draw_gate_legend(sheet, footer)
    sheet.draw_shade_bar(_WIDTH - MARGIN - 2.6, footer + 0.17, 2.4, shades, "attention weight", 9)
    return sheet.figure


def _draw_cell(
    sheet: Sheet, box: tuple[float, float, float, float], row: _Row, i: int, shades: Any
) -> None:
    """Draws the cell of word i of a model, with its weight and the dot of an open gate."""
    x, y, width, height = box
    weight = float(row.weights[i])
    shade = shades.to_rgba(weight)
    # The relative luminance of the shade decides between black and white text.
    ink = "white" if np.dot(shade[:3], (0.2126, 0.7152, 0.0722)) < 0.45 else "black"
    is_open = row.gates is not None and row.gates[i] > 0
    _draw_box(sheet, box, shade, None if row.gates is None else is_open)
    if is_open:
        _draw_dot(sheet, x + width, y, ink)
    # A smaller weight would be printed as 0.00, which looks like a result.
    if weight >= 0.005:
        text = f"{weight:.2f}"
        # The number of an open cell is lower, because the dot is in the upper corner.
        middle = y + height * (0.58 if is_open else 0.5)
        sheet.write(x + width / 2, middle, text, _NUMBER_SIZE, color=ink, ha="center", zorder=4)


def _draw_dot(sheet: Sheet, right: float, top: float, ink: str) -> None:
    sheet.axes.plot(right - 0.065, top + 0.07, "o", markersize=2.8, color=ink, zorder=4)


def _draw_box(
    sheet: Sheet, box: tuple[float, float, float, float], shade: Any, is_open: bool | None
) -> None:
    """Draws the outline and the shade, a colour, of a cell."""
    from matplotlib.patches import Rectangle

    x, y, width, height = box
    # The outline is inside the cell, so that the bold outlines of neighbours do not merge.
    x, width = x + 0.015, width - 0.03
    y, height = y + 0.02, height - 0.04
    if is_open is None:
        look: Keywords = {"edgecolor": _CELL_EDGE, "linewidth": 0.6, "zorder": 2}
    elif is_open:
        look = {"edgecolor": _OPEN_EDGE, "linewidth": 1.5, "zorder": 3}
    else:
        look = {"edgecolor": _CLOSED_EDGE, "linewidth": 0.5, "hatch": "/////", "zorder": 2}
    sheet.axes.add_patch(Rectangle((x, y), width, height, facecolor=shade, **look))


def _draw_gate_legend(sheet: Sheet, y: float) -> None:
    x = MARGIN
    for is_open, label in ((True, "open gate"), (False, "closed gate")):
        _draw_box(sheet, (x, y, 0.36, 0.26), "white", is_open)
        if is_open:
            _draw_dot(sheet, x + 0.36, y, INK)
        sheet.write(x + 0.42, y + 0.13, label, 9)
        x += 1.4
