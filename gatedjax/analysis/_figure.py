"""What all figures share: the palette, fonts, and saving to PNG and SVG."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gatedjax._utils.missing import missing
from gatedjax._utils.write import write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito 2008: told apart with every common colour blindness. The yellow is left out (too
# faint for lines on white), the black last.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
# more than colours: lines that share a colour, from the eighth on, do not share a marker
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 1.5, 1, 1.5)))
INK = "#262626"
DPI = 200

_STYLE: dict[Any, Any] = {
    "text.usetex": False,
    # words and names are text, also those with a dollar sign
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
    # the same figure gives the same bytes, so that results under version control keep still
    "svg.hashsalt": "gatedjax",
    "svg.fonttype": "path",
}
# Used only where they are installed, for words that the default font cannot write.
_FALLBACK_FONTS = ("Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans JP", "Arial Unicode MS")


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Draws with our settings and leaves those of the caller alone."""
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
    """A figure of its own, unknown to pyplot: nothing to close, no backend to choose.

    A notebook shows it as it would one of pyplot.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        def _repr_png_(self) -> bytes:
            return _rendered(self, "png", 110)

    figure = ShownFigure(figsize=(width, height), dpi=DPI)
    FigureCanvasAgg(figure)
    return figure


def save(figure: "Figure", path_stem: str | Path | None) -> None:
    """Writes path_stem.png and path_stem.svg, each replaced as a whole; None writes nothing."""
    if path_stem is None:
        return
    stem = Path(path_stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    for kind in ("png", "svg"):
        # not with_suffix: a stem may have a dot in it
        write_atomic(stem.with_name(f"{stem.name}.{kind}"), _rendered(figure, kind, DPI))


def _rendered(figure: "Figure", kind: str, dpi: int) -> bytes:
    buffer = io.BytesIO()
    undated: Any = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    with style():
        figure.savefig(buffer, format=kind, dpi=dpi, metadata=undated)
    return buffer.getvalue()


def largest_of(*arrays: np.ndarray) -> float:
    """Returns the largest number of the arrays, or 1 where none is above 0: the end of a scale."""
    return max((float(array.max(initial=0)) for array in arrays), default=0.0) or 1.0
