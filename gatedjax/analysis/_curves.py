"""Lines with error bars, and learning curves."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gatedjax._utils.terminal import clean
from gatedjax._utils.types import Options
from gatedjax.analysis._figure import DASHES, MARKERS, PALETTE, new_figure, save, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# inches
_LEGEND_ROW, _CAPTION = 0.2, 0.17
_SIZE = 9
"""Points of the type of a legend."""
_HANDLE, _BETWEEN = 2.8, 1.6
"""Length of the line beside a name and room between columns, in that size."""

Points = Sequence[tuple[float, float, float | None]]


def plot_lines(
    series: Mapping[str, Mapping[str, Points]],
    path_stem: str | Path | None = None,
    *,
    xlabel: str = "",
    title: str | None = None,
) -> "Figure":
    """Draws one panel per measure, with one line per name, and error bars.

    Args:
      series: {measure: {name: points}}; a point is (x, mean, standard deviation), a deviation of
        0 draws no bar, and None is that of one run: its marker is hollow, which is said below. A
        name keeps its colour, marker and dashes in all panels; one without points is left out.
      xlabel: below every panel.

    Reference: Xue et al. 2020 (GA-Net), figure 5.
    """
    if not series:
        raise ValueError("series must have at least one measure")
    for measure, lines in series.items():
        for name, points in lines.items():
            for point in points:
                if len(point) != 3 or not (point[2] is None or point[2] >= 0):
                    raise ValueError(
                        f"points of {measure}, {name} must be (x, mean, deviation >= 0 or None), "
                        f"got {point}"
                    )
    drawn = [(name, points) for lines in series.values() for name, points in lines.items()]
    names = list(dict.fromkeys(name for name, points in drawn if points))
    alone = any(point[2] is None for _, points in drawn for point in points)
    with style():
        caption = "hollow: one seed" if alone else ""
        figure, panels = _panels(list(series), title, names, caption)
        for axes, (measure, lines) in zip(panels, series.items(), strict=True):
            axes.set(xlabel=clean(xlabel), ylabel=clean(measure))
            xs = sorted({point[0] for points in lines.values() for point in points})
            if not xs:
                axes.text(0.5, 0.5, "not run", ha="center", transform=axes.transAxes)
            elif len(xs) <= 8 and _apart(xs):
                axes.set_xticks(xs)
            for name, points in lines.items():
                if points:
                    by_place = sorted(points, key=lambda point: point[0])
                    _line_with_bars(axes, names.index(name), by_place)
            axes.margins(x=0.06, y=0.12)
        save(figure, path_stem)
    return figure


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """Reads a metrics.jsonl; an unreadable line (the torn last one of a killed run) is left out."""
    records = []
    for line in Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def plot_learning_curves(
    runs: Mapping[str, Iterable[Mapping[str, Any]]],
    path_stem: str | Path | None = None,
    *,
    metrics: Sequence[str] = ("loss", "accuracy", "density"),
    title: str | None = None,
) -> "Figure":
    """Draws training (thin) and evaluation (with markers) over the steps, one panel per metric.

    Args:
      runs: {name: records} as of `read_metrics`: each with "split", "step" and numbers. None and
        missing numbers leave a gap; splits other than "train" and "eval" are not drawn.
      metrics: the panels; one that no record has is left out.

    Raises:
      ValueError: also if no record has any of the metrics.
    """
    records_of = {name: [dict(record) for record in records] for name, records in runs.items()}
    curves: dict[str, dict[tuple[str, str], list[tuple[float, float]]]] = {}
    for metric in metrics:
        for name, records in records_of.items():
            for split in ("train", "eval"):
                points = [
                    (float(r["step"]), float(r[metric]))
                    for r in records
                    if r.get("split") == split and r.get(metric) is not None and "step" in r
                ]
                if points:
                    curves.setdefault(metric, {})[name, split] = points
    if not curves:
        raise ValueError(f"runs must have at least one of the metrics {list(metrics)}")
    names = list(records_of)
    with style():
        caption = "thin: training, per logged step; with markers: evaluation"
        figure, panels = _panels(list(curves), title, names, caption)
        for axes, (metric, lines) in zip(panels, curves.items(), strict=True):
            axes.set(xlabel="step", ylabel=clean(metric))
            for (name, split), points in lines.items():
                i = names.index(name)
                look: Options = {"color": PALETTE[i % len(PALETTE)]}
                if split == "train":
                    look |= {"linewidth": 0.9, "alpha": 0.55}
                else:
                    look = _look(i)
                axes.plot(*zip(*points, strict=True), **look)
            axes.margins(x=0.02, y=0.06)
        save(figure, path_stem)
    return figure


def _line_with_bars(axes: "Axes", i: int, points: Points) -> None:
    xs, means, deviations = zip(*points, strict=True)
    bars = [d or float("nan") for d in deviations]
    look = _look(i)
    axes.errorbar(xs, means, yerr=bars, capsize=3, elinewidth=1.0, capthick=1.0, **look)
    single = [(x, mean) for x, mean, deviation in points if deviation is None]
    if single:
        hollow = {"linestyle": "none", "markerfacecolor": "white", "markeredgewidth": 1.1}
        hollow["markeredgecolor"] = look["color"]
        axes.plot(*zip(*single, strict=True), **look | hollow, zorder=3)


def _look(i: int) -> Options:
    return {
        "color": PALETTE[i % len(PALETTE)],
        "marker": MARKERS[i % len(MARKERS)],
        "linestyle": DASHES[i % len(DASHES)],
        "markersize": 4.5,
        "linewidth": 1.6,
        "markeredgecolor": "white",
        "markeredgewidth": 0.4,
    }


def _panels(
    measures: Sequence[str], title: str | None, names: Sequence[str], caption: str
) -> tuple["Figure", list["Axes"]]:
    """Panels side by side above the legend of the names and its caption."""
    count = len(measures)
    width = max(3.4 * count, 4.2)
    columns = _columns(names, width)
    rows = -(-len(names) // columns)
    below = _LEGEND_ROW * rows + 0.08 + (_CAPTION if caption else 0.0)
    figure = new_figure(width, 2.9 + below + (0.3 if title else 0.0))
    height = figure.get_figheight()
    figure.set_layout_engine("constrained", rect=(0, below / height, 1, 1 - below / height))
    if title:
        figure.suptitle(clean(title), fontsize=11, weight="bold")
    if names:
        _legend_below(figure, names, columns, caption)
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def _columns(names: Sequence[str], width: float) -> int:
    """Columns of a legend, at most four, that so many inches hold."""
    from matplotlib.textpath import TextPath

    def entry(name: str) -> float:
        text = TextPath((0, 0), clean(name), size=_SIZE).get_extents().width
        return max(0.0, text) + _SIZE * (_HANDLE + 0.8)  # -inf for a name of blanks

    entries = [entry(name) for name in names]
    for count in range(min(len(names), 4), 1, -1):
        widest = [max(column) for column in np.array_split(entries, count)]
        if sum(widest) + _SIZE * (_BETWEEN * (count - 1) + 1) <= 72 * width:
            return count
    return 1


def _legend_below(figure: "Figure", names: Sequence[str], columns: int, caption: str) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], label=clean(name), **_look(i)) for i, name in enumerate(names)]
    figure.legend(
        handles=handles, loc="lower center", fontsize=_SIZE, ncols=columns,
        bbox_to_anchor=(0.5, (_CAPTION if caption else 0.0) / figure.get_figheight()),
        columnspacing=_BETWEEN, handlelength=_HANDLE, borderpad=0.2, borderaxespad=0.2,
    )  # fmt: skip
    if caption:
        figure.text(0.5, 0.05 / figure.get_figheight(), caption, ha="center", fontsize=8.5)


def _apart(xs: list[float]) -> bool:
    """Whether labels at all of these sorted places leave room for each other."""
    gaps = [b - a for a, b in itertools.pairwise(xs)]
    # an axis has room for some 30 characters
    room = max(1 / 12, (max(len(f"{x:g}") for x in xs) + 1) / 30)
    return not gaps or min(gaps) >= (xs[-1] - xs[0]) * room
