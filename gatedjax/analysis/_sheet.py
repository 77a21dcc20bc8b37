"""Figures in inches: texts that are measured and broken into lines, shaded cells, a legend."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gatedjax._utils.terminal import clean
from gatedjax._utils.types import Keywords
from gatedjax.analysis._figure import PALETTE, largest_of, new_figure

if TYPE_CHECKING:
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

MARGIN = 0.15
"""The margin of a sheet, in inches."""
Ruler = Callable[[str, float], float]


class Sheet:
    """A figure in inches from its upper left corner. The texts are measured before its size is
    known: first `place_heading`, then `open`, and then draw on `axes`.
    """

    axes: Any

    def __init__(self) -> None:
        self.figure = new_figure(1, 1)
        self.measure, self.measure_bold = make_ruler(self.figure), make_ruler(self.figure, "bold")
        self._heading: list[str] = []

    def place_heading(self, title: str | None, width: float) -> float:
        """Breaks a bold heading into lines; returns the y at which the figure goes on below it."""
        text = clean(title or "")
        self._heading = break_lines(text, width - 2 * MARGIN, self.measure_bold, 11.0)
        return MARGIN + (0.22 * len(self._heading) + 0.08 if self._heading else 0.0)

    def open(self, width: float, height: float) -> None:
        """Sets the size of the figure, creates its axes and draws the heading."""
        self.size = width, height
        self.figure.set_size_inches(width, height)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        # The y axis points down, because the lines of a sheet follow each other from the top.
        self.axes.set(xlim=(0, width), ylim=(height, 0))
        self.axes.axis("off")
        for i, text in enumerate(self._heading):
            self.write(MARGIN, MARGIN + 0.22 * i + 0.1, text, 11, weight="bold")

    def write(self, x: float, y: float, text: str, size: float, **look: Any) -> None:
        """Draws a text; its middle is at y, and its left end at x unless `ha` says otherwise."""
        self.axes.text(x, y, text, fontsize=size, **{"va": "center"} | look)

    def outline(self, x: float, y: float, width: float, height: float, **look: Any) -> None:
        """Draws an orange frame, which readers with any colour blindness distinguish from blue. The
        two colours also differ in lightness in a grey print.
        """
        from matplotlib.patches import Rectangle

        options: Keywords = {"fill": False, "edgecolor": PALETTE[1]} | look
        self.axes.add_patch(Rectangle((x, y), width, height, **options))

    def draw_cells(
        self,
        x: float,
        y: float,
        cell: tuple[float, float],  # width and height
        values: np.ndarray,  # [rows, columns]
        shades: "ScalarMappable",
        **look: Any,
    ) -> None:
        """Draws shaded cells without gaps, the corner of the first at (x, y)."""
        rows, columns = (np.arange(size + 1) for size in values.shape)
        options: Keywords = {"edgecolor": "#d9d9d9", "linewidth": 0.4, "zorder": 2} | look
        edges = x + cell[0] * columns, y + cell[1] * rows
        self.axes.pcolormesh(*edges, values, norm=shades.norm, cmap=shades.cmap, **options)

    def draw_shade_bar(
        self, x: float, y: float, width: float, shades: "ScalarMappable", label: str, size: float
    ) -> None:
        """Draws the legend of the shades, a horizontal colour bar with its lower end at y."""
        from matplotlib.ticker import MaxNLocator

        wide, high = self.size
        place = x / wide, 1 - y / high, width / wide, 0.12 / high
        bar = self.figure.colorbar(
            shades, cax=self.figure.add_axes(place), orientation="horizontal"
        )
        bar.set_label(label, fontsize=size, labelpad=1)
        bar.ax.tick_params(labelsize=8, length=2)
        bar.locator = MaxNLocator(4, steps=[1, 2, 2.5, 5, 10])
        bar.outline.set_linewidth(0.5)
        bar.update_ticks()


def shades_of(*weights: np.ndarray, highest: float | None = None) -> "ScalarMappable":
    """Returns the blues from 0 to the largest of the weights, or to `highest`."""
    from matplotlib import cm, colors

    top = largest_of(*weights) if highest is None else highest
    return cm.ScalarMappable(colors.Normalize(0, top), "Blues")


def make_ruler(figure: "Figure", weight: str = "normal") -> Ruler:
    """Returns a function (text, font size in points) -> width of the text in inches."""
    from matplotlib.font_manager import FontProperties

    canvas: Any = figure.canvas
    # Only the renderer knows the width of a text, because it depends on the font.
    renderer = canvas.get_renderer()

    def measure(text: str, size: float) -> float:
        fonts = FontProperties(size=size, weight=weight)
        return renderer.get_text_width_height_descent(text, fonts, False)[0] / figure.dpi

    return measure


def wrap(sizes: Sequence[float], room: float) -> list[tuple[int, int]]:
    lines, first, used = [], 0, 0.0
    for i, size in enumerate(sizes):
        if i > first and used + size > room:
            lines.append((first, i))
            first, used = i, 0.0
        used += size
    return [*lines, (first, len(sizes))]


def break_lines(text: str, room: float, measure: Ruler, size: float) -> list[str]:
    """Breaks text at spaces into lines of at most `room` inches, and cuts longer words."""
    lines: list[str] = []
    for word in text.split():
        joined = f"{lines[-1]} {word}" if lines else word
        if lines and measure(joined, size) <= room:
            lines[-1] = joined
        else:
            lines.append(shorten(word, room, measure, size))
    return lines or ([""] if text else [])


def shorten(word: str, room: float, measure: Ruler, size: float = 10.0) -> str:
    """Returns the word, or its beginning with an ellipsis if the word is wider than `room`."""
    if measure(word, size) <= room:
        return word
    length = len(word)
    # The next length is estimated from the mean width of a character, which takes fewer
    # measurements than a search character by character.
    while length > 1 and measure(word[:length] + "…", size) > room:
        length = min(length - 1, int(length * room / measure(word[:length] + "…", size)) + 1)
    return word[:length] + "…"
