"""The common parts of all figures: the palette, fonts, and saving as PNG and SVG."""

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gatedjax._utils.missing import missing
from gatedjax._utils.write import write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The palette of Okabe and Ito 2008, which readers with any common colour blindness can distinguish.
# Its yellow is missing because it is too faint for lines on white; black is the last colour.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
# There are more markers than colours, so that lines with the same colour have different markers.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 1.5, 1, 1.5)))
INK = "#262626"
DPI = 200

_STYLE: dict[Any, Any] = {
    "text.usetex": False,
    # Words and names are plain text even if they contain a dollar sign.
    "text.parse_math": False,
    "font.size": 10.0,
    "axes.titlesize": 11.0,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
    "savefig.facecolor": "white",
    "figure.facecolor": "white",
    # A fixed salt gives equal figures equal bytes, because results are under version control.
    "svg.hashsalt": "gatedjax",
    "svg.fonttype": "path",
}
# These fonts are used where they are installed, because the default font lacks their characters.
_FALLBACK_FONTS = ("Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans JP", "Arial Unicode MS")


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Applies the settings of this library to Matplotlib within a `with` block."""
    try:
        import matplotlib
        from matplotlib import font_manager
    except ImportError as error:
        raise ImportError(missing("plots need", "matplotlib")) from error
    installed = set(font_manager.get_font_names())
    family = ["DejaVu Sans", *(name for name in _FALLBACK_FONTS if name in installed)]
    with matplotlib.rc_context({**_STYLE, "font.family": family}):
        yield


def new_figure(width: float, height: float) -> "Figure":
    """Creates a figure without pyplot, so that no window is opened and no figure must be closed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        """A figure that a notebook displays as PNG."""

        def _repr_png_(self) -> bytes:
            return _render(self, "png", 110)

    figure = ShownFigure(figsize=(width, height), dpi=DPI)
    # The constructor attaches the canvas to the figure, and text is measured on it before drawing.
    FigureCanvasAgg(figure)
    return figure


def draw_and_save(path_stem: str | Path | None, draw: Callable[[], "Figure"]) -> "Figure":
    """Returns the figure that `draw` creates in the style of this library, saved to its files."""
    with style():
        figure = draw()
        save(figure, path_stem)
    return figure


def save(figure: "Figure", path_stem: str | Path | None) -> None:
    """Writes a figure to PATH_STEM.png and PATH_STEM.svg, each atomically; None writes no files.

    The endings are appended to the stem, which may contain dots.
    """
    if path_stem is None:
        return
    stem = Path(path_stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    for kind in ("png", "svg"):
        # `with_suffix` would cut a stem at its last dot.
        write_atomic(stem.with_name(f"{stem.name}.{kind}"), _render(figure, kind, DPI))


def _render(figure: "Figure", kind: str, dpi: int) -> bytes:
    buffer = io.BytesIO()
    # A date or a version in a file would change its bytes when the figure does not change.
    undated: Any = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    with style():
        figure.savefig(buffer, format=kind, dpi=dpi, metadata=undated)
    return buffer.getvalue()


def largest_of(*arrays: np.ndarray) -> float:
    """Returns the upper end of a scale: the largest number of the arrays; 1 if none is above 0."""
    return max((float(array.max(initial=0)) for array in arrays), default=0.0) or 1.0
