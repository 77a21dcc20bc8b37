"""The picture of the demo: a sentence under several networks, and the effect of closed words."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gatedjax._utils.terminal import clean
from gatedjax.analysis._figure import new_figure, save, style
from gatedjax.analysis._sheet import Ruler, break_lines, make_ruler, wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Lengths are in inches.
_WIDTH, _MARGIN, _CELL, _PAD, _SPACE, _GAP = 8.0, 0.2, 0.30, 0.16, 0.05, 0.26
_LINE = 0.21
_HEADING, _TITLE, _TEXT = 12.5, 11.0, 9.5  # Points
_FAINTEST = 0.12
"""The opacity of an open word with weight 0, so that it differs from a closed word."""


@dataclasses.dataclass(frozen=True)
class Theme:
    """The colours of a picture: `shade` is a word with the largest weight, `muted` a closed word.
    `same` and `other` mark an answer that stays, or not, without the closed words."""

    ground: str
    ink: str
    muted: str
    shade: str
    on_shade: str
    same: str
    other: str


LIGHT = Theme("#ffffff", "#1f2328", "#6e7781", "#0b5cad", "#ffffff", "#1a7f37", "#c2410c")
DARK = Theme("#14181e", "#e6edf3", "#8b949e", "#58a6ff", "#0d1117", "#4ac26b", "#f59e5b")


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """A network of the picture.

    Attributes:
      title: the network, and whether closed words can change its answer.
      finding: the measurement behind the title, a sentence.
      words: the T words of the sentence.
      weights: [T], the attention weight of each word.
      is_open: bool [T], True at the words that are left if the closed words are removed.
      answers: the class that is predicted from all words, and from the open words alone.
      closes: False if the network has no gates, so that its faint words are no closed words.
    """

    title: str
    finding: str
    words: Sequence[str]
    weights: np.ndarray
    is_open: np.ndarray
    answers: tuple[str, str]
    closes: bool


def draw_picture(
    rows: Sequence[Row], heading: str, path_stem: Path | None = None, theme: Theme = LIGHT
) -> "Figure":
    """Draws the sentence under each network, with the title and the finding above its words. The
    shade of a word is its attention weight, relative to the largest weight of the network. A closed
    word has no shade and is struck through. The answers are below the words. Returns the Matplotlib
    figure; without a path no file is written."""
    with style():
        figure = _draw(rows, heading, theme)
        save(figure, path_stem)
    return figure


def _draw(rows: Sequence[Row], heading: str, theme: Theme) -> "Figure":
    from matplotlib.patches import Rectangle

    figure = new_figure(_WIDTH, 1)
    axes = figure.add_axes((0, 0, 1, 1))
    room = _WIDTH - 2 * _MARGIN
    measure, measure_bold = make_ruler(figure), make_ruler(figure, "bold")
    y = _MARGIN
    for line in break_lines(clean(heading), room, measure_bold, _HEADING):
        _write(axes, _MARGIN, y, line, _HEADING, theme.ink, bold=True)
        y += _LINE + 0.04
    for row in rows:
        y += _GAP - 0.08
        for line in break_lines(row.title, room, measure_bold, _TITLE):
            _write(axes, _MARGIN, y, line, _TITLE, theme.ink, bold=True)
            y += _LINE
        for line in break_lines(row.finding, room, measure, _TEXT):
            _write(axes, _MARGIN, y, line, _TEXT, theme.ink)
            y += _LINE
        y += 0.03
        words = [clean(word) for word in row.words]
        sizes = [measure(word, _TITLE) + _PAD + _SPACE for word in words]
        for first, past in wrap(sizes, room):
            x = _MARGIN
            for i in range(first, past):
                _draw_word(axes, (x, y, sizes[i] - _SPACE), row, i, words[i], theme)
                x += sizes[i]
            y += _CELL + 0.05
        y += 0.02
        _draw_answers(axes, y, row, measure, theme)
        y += _LINE
    y += _GAP - 0.1
    _draw_legend(axes, y, measure, theme)
    height = y + _CELL + _MARGIN
    figure.set_size_inches(_WIDTH, height)
    axes.set(xlim=(0, _WIDTH), ylim=(height, 0))
    axes.axis("off")
    # `save` writes figures on white, so the ground is a part of the picture.
    axes.add_patch(Rectangle((0, 0), _WIDTH, height, color=theme.ground, zorder=-1))
    return figure


def _write(
    axes: "Axes", x: float, y: float, text: str, size: float, colour: str, *, bold: bool = False
) -> None:
    weight = "bold" if bold else "normal"
    axes.text(x, y + 0.09, text, fontsize=size, color=colour, weight=weight, va="center")


def _draw_word(
    axes: "Axes", place: tuple[float, float, float], row: Row, i: int, word: str, theme: Theme
) -> None:
    """Draws word i of a row. `place` is the x, the y and the width of its cell in inches."""
    if row.closes and not row.is_open[i]:
        _draw_cell(axes, place, word, None, theme)
        return
    share = float(row.weights[i]) / max(float(row.weights.max()), 1e-12)
    # Without gates a word of weight 0 has no shade, because it is neither open nor closed.
    least = _FAINTEST if row.closes else 0.0
    _draw_cell(axes, place, word, least + (1 - least) * share, theme)


def _draw_cell(
    axes: "Axes",
    place: tuple[float, float, float],
    word: str,
    shade: float | None,
    theme: Theme,
) -> None:
    """Draws a word. `shade` is the opacity of its cell; None strikes the word through."""
    from matplotlib.patches import FancyBboxPatch

    x, y, width = place
    middle = x + width / 2, y + _CELL / 2
    if shade is None:
        axes.text(*middle, word, fontsize=_TITLE, color=theme.muted, ha="center", va="center")
        axes.plot([x + 0.03, x + width - 0.03], [middle[1]] * 2, color=theme.muted, linewidth=0.9)
        return
    box = FancyBboxPatch(
        (x + 0.02, y + 0.02),
        width - 0.04,
        _CELL - 0.04,
        boxstyle="round,pad=0.02",
        facecolor=theme.shade,
        edgecolor="none",
        alpha=shade,
    )
    axes.add_patch(box)
    ink = theme.on_shade if shade > 0.55 else theme.ink
    axes.text(*middle, word, fontsize=_TITLE, color=ink, ha="center", va="center")


def _draw_answers(axes: "Axes", y: float, row: Row, measure: Ruler, theme: Theme) -> None:
    before, after = row.answers
    label = "open words alone" if row.closes else "without the faintest words"
    text = f"all words: {before}     {label}: {after}"
    _write(axes, _MARGIN, y, text, _TEXT, theme.ink)
    mark, colour = (
        ("same answer", theme.same) if before == after else ("another answer", theme.other)
    )
    _write(axes, _MARGIN + measure(text, _TEXT) + 0.15, y, mark, _TEXT, colour, bold=True)


def _draw_legend(axes: "Axes", y: float, measure: Ruler, theme: Theme) -> None:
    """Draws the meaning of the shades and of the struck words, y inches below the upper edge."""
    x = _MARGIN
    for shade in (0.15, 0.4, 0.7, 1.0):
        _draw_cell(axes, (x, y, 0.3), "", shade, theme)
        x += 0.3
    x += 0.08
    text = "more shade: more attention"
    _write(axes, x, y + 0.06, text, _TEXT, theme.ink)
    x += measure(text, _TEXT) + 0.4
    _draw_cell(axes, (x, y, 0.6), "word", None, theme)
    _write(axes, x + 0.68, y + 0.06, "closed: the gate of this word is 0", _TEXT, theme.ink)
