"""Figures with lines: means with error bars, and learning curves."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gatedjax._utils.terminal import clean
from gatedjax._utils.types import Keywords
from gatedjax.analysis._figure import DASHES, MARKERS, PALETTE, new_figure, save, style
from gatedjax.analysis._sheet import Ruler, break_lines, make_ruler

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Lengths are in inches.
_LEGEND_ROW, _CAPTION, _HEADING_LINE = 0.2, 0.17, 0.18
_SIZE = 9
"""The font size of a legend, in points."""
_HANDLE, _BETWEEN = 2.8, 1.6
"""Length of the line before a name, and space between columns, as multiples of the font size."""

Points = Sequence[tuple[float, float, float | None]]


def plot_lines(
    series: Mapping[str, Mapping[str, Points]],
    path_stem: str | Path | None = None,
    *,
    xlabel: str = "",
    title: str | None = None,
) -> "Figure":
    """Draws a panel per measure, with a line and error bars per name.

        >>> lines = {"baseline": [(1, 0.5, 0.1), (2, 0.6, 0.1)]}
        >>> figure = plot_lines({"accuracy": lines}, xlabel="layers")
        >>> figure.axes[0].get_ylabel()
        'accuracy'

    Args:
      series: {measure: {name: points}}. A point is (x, mean, standard deviation). A deviation of 0
        draws no bar. None as a deviation marks the result of a single run, which is drawn with a
        hollow marker and explained in a caption. A name has the same colour, marker and dashes in
        all panels; names without points are omitted.
      path_stem: path of the .png and .svg file without the suffix; None writes no file.
      xlabel: label of the x axis of all panels.
      title: a heading above the figure; None draws no heading.

    Returns:
      The Matplotlib figure.

    Reference: Xue et al. 2020 (GA-Net), figure 5.
    """
    if not series:
        raise ValueError(f"series must have at least one measure, got {series!r}")
    for measure, lines in series.items():
        for name, points in lines.items():
            for point in points:
                if len(point) != 3 or not (point[2] is None or point[2] >= 0):
                    raise ValueError(
                        f"series[{measure!r}][{name!r}] must be points (x, mean, deviation >= 0 "
                        f"or None), got {point!r}"
                    )
    named_points = [(name, points) for lines in series.values() for name, points in lines.items()]
    # The position of a name in this list determines its colour in all panels.
    names = list(dict.fromkeys(name for name, points in named_points if points))
    has_single_runs = any(point[2] is None for _, points in named_points for point in points)
    with style():
        caption = "hollow: one seed" if has_single_runs else ""
        figure, panels = _make_panels(list(series), title, names, caption)
        for axes, (measure, lines) in zip(panels, series.items(), strict=True):
            axes.set(xlabel=clean(xlabel), ylabel=clean(measure))
            xs = sorted({point[0] for points in lines.values() for point in points})
            if not xs:
                axes.text(0.5, 0.5, "not run", ha="center", transform=axes.transAxes)
            # Ticks at the measured places are easier to read off than round numbers between them.
            elif len(xs) <= 8 and _labels_fit(xs):
                axes.set_xticks(xs)
            for name, points in lines.items():
                if points:
                    # The line connects the points in their order, so unsorted points would give a
                    # zigzag.
                    by_place = sorted(points, key=lambda point: point[0])
                    _draw_line_with_bars(axes, names.index(name), by_place)
            axes.margins(x=0.06, y=0.12)
        save(figure, path_stem)
    return figure


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """Reads the records of a metrics.jsonl file.

    Lines that are no JSON objects are skipped, because a run that was killed can leave an
    incomplete last line.

        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "metrics.jsonl")
        >>> _ = path.write_text('{"split": "train", "step": 1, "loss": 0.5}')
        >>> read_metrics(path)
        [{'split': 'train', 'step': 1, 'loss': 0.5}]

    Args:
      path: the file that training writes in its work folder.

    Returns:
      A dict per line, in the order of the file, such as "split", "step" and the numbers of a step.

    Raises:
      FileNotFoundError: if the file does not exist.
    """
    records = []
    # A run that was killed can leave a part of a character, which must not raise an error.
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
    """Draws a panel per metric, over the steps: training as thin lines, evaluation with markers.

        >>> records = [{"split": "eval", "step": step, "loss": 1 / step} for step in (1, 2)]
        >>> figure = plot_learning_curves({"run 1": records})
        >>> len(figure.axes)
        1

    Args:
      runs: {name: records}, for example from `read_metrics`. A record has "split", "step" and
        numbers. Numbers that are missing or None are skipped; splits other than "train" and
        "eval" are not drawn.
      path_stem: path of the .png and .svg file without the suffix; None writes no file.
      metrics: the metrics, a panel for each; metrics that no record has are omitted.
      title: a heading above the figure; None draws no heading.

    Returns:
      The Matplotlib figure.

    Raises:
      ValueError: if no record has any of the metrics.
    """
    # Records may come from a generator, which can be read only once.
    records_of = {name: [dict(record) for record in records] for name, records in runs.items()}
    curves: dict[str, dict[tuple[str, str], list[tuple[float, float]]]] = {}
    for metric, name, split in itertools.product(metrics, records_of, ("train", "eval")):
        points = [
            (float(r["step"]), float(r[metric]))
            for r in records_of[name]
            if r.get("split") == split and r.get(metric) is not None and "step" in r
        ]
        if points:
            curves.setdefault(metric, {})[name, split] = points
    if not curves:
        fields = sorted({name for records in records_of.values() for r in records for name in r})
        raise ValueError(
            f"metrics must name at least one number in the records of runs, got {list(metrics)}: "
            f"the records have the fields {fields}"
        )
    names = list(records_of)
    with style():
        caption = "thin: training, per logged step; with markers: evaluation"
        figure, panels = _make_panels(list(curves), title, names, caption)
        for axes, (metric, lines) in zip(panels, curves.items(), strict=True):
            axes.set(xlabel="step", ylabel=clean(metric))
            for (name, split), points in lines.items():
                i = names.index(name)
                look: Keywords = {"color": PALETTE[i % len(PALETTE)]}
                # The training loss is noisy. Thin lines keep it from hiding the evaluation.
                if split == "train":
                    look |= {"linewidth": 0.9, "alpha": 0.55}
                else:
                    look = _line_style(i)
                axes.plot(*zip(*points, strict=True), **look)
            axes.margins(x=0.02, y=0.06)
        save(figure, path_stem)
    return figure


def _draw_line_with_bars(axes: "Axes", i: int, points: Points) -> None:
    """Draws a line with error bars, in the colour and style of the line with index `i`, from 0."""
    xs, means, deviations = zip(*points, strict=True)
    # Matplotlib draws no bar for NaN.
    bars = [d or float("nan") for d in deviations]
    look = _line_style(i)
    axes.errorbar(xs, means, yerr=bars, capsize=3, elinewidth=1.0, capthick=1.0, **look)
    single = [(x, mean) for x, mean, deviation in points if deviation is None]
    if single:
        hollow = {"linestyle": "none", "markerfacecolor": "white", "markeredgewidth": 1.1}
        hollow["markeredgecolor"] = look["color"]
        axes.plot(*zip(*single, strict=True), **look | hollow, zorder=3)


def _line_style(i: int) -> Keywords:
    """Returns the style of the line with index i, from 0, as a dict of options of `Axes.plot`."""
    return {
        "color": PALETTE[i % len(PALETTE)],
        "marker": MARKERS[i % len(MARKERS)],
        "linestyle": DASHES[i % len(DASHES)],
        "markersize": 4.5,
        "linewidth": 1.6,
        "markeredgecolor": "white",
        "markeredgewidth": 0.4,
    }


def _make_panels(
    measures: Sequence[str], title: str | None, names: Sequence[str], caption: str
) -> tuple["Figure", list["Axes"]]:
    """Creates a figure with a panel per measure, side by side."""
    count = len(measures)
    width = max(3.4 * count, 4.2)
    figure = new_figure(width, 1)
    columns = _count_columns(names, width, make_ruler(figure))
    rows = -(-len(names) // columns)
    below = _LEGEND_ROW * rows + 0.08 + (_CAPTION if caption else 0.0)
    # A heading that is wider than the figure would be cut at both sides.
    heading = break_lines(clean(title or ""), width - 0.2, make_ruler(figure, "bold"), 11.0)
    height = 2.9 + below + (0.12 + _HEADING_LINE * len(heading) if heading else 0.0)
    figure.set_figheight(height)
    figure.set_layout_engine("constrained", rect=(0, below / height, 1, 1 - below / height))
    if heading:
        figure.suptitle("\n".join(heading), fontsize=11, weight="bold")
    if names:
        _draw_legend_below(figure, names, columns, caption)
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def _count_columns(names: Sequence[str], width: float, measure: Ruler) -> int:
    """Returns the number of columns, at most four, of a legend of the names of lines."""
    entries = [measure(clean(name), _SIZE) + _SIZE / 72 * (_HANDLE + 0.8) for name in names]
    # The widest legend that fits is used, because each row of the legend makes the panels smaller.
    for count in range(min(len(names), 4), 1, -1):
        widest = [max(column) for column in np.array_split(entries, count)]
        if sum(widest) + _SIZE / 72 * (_BETWEEN * (count - 1) + 1) <= width:
            return count
    return 1


def _draw_legend_below(figure: "Figure", names: Sequence[str], columns: int, caption: str) -> None:
    """Draws the legend of the lines and the caption at the bottom of a figure."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], label=clean(name), **_line_style(i)) for i, name in enumerate(names)]
    figure.legend(
        handles=handles, loc="lower center", fontsize=_SIZE, ncols=columns,
        bbox_to_anchor=(0.5, (_CAPTION if caption else 0.0) / figure.get_figheight()),
        columnspacing=_BETWEEN, handlelength=_HANDLE, borderpad=0.2, borderaxespad=0.2,
    )  # fmt: skip
    if caption:
        figure.text(0.5, 0.05 / figure.get_figheight(), caption, ha="center", fontsize=8.5)


def _labels_fit(xs: list[float]) -> bool:
    gaps = [b - a for a, b in itertools.pairwise(xs)]
    # An axis has room for about 30 characters.
    room = max(1 / 12, (max(len(f"{x:g}") for x in xs) + 1) / 30)
    return not gaps or min(gaps) >= (xs[-1] - xs[0]) * room
