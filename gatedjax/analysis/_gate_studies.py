"""A figure of gate modes and estimators side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gatedjax.analysis import _figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_studies(
    studies: Sequence[Any], path_stem: str | Path | None = None, title: str | None = None
) -> "Figure":
    """Draws two panels side by side for each study of gates, the studies below each other.

    Left panel: the loss under each kind of gate, with standard errors, and a line at the exact
    expectation. Right panel: the bias (hollow where it is not shown, at its standard error) and the
    standard deviation of each estimator, and the norm of the exact gradient.

        >>> from gatedjax import gates
        >>> study = next(gates.toys(4, estimators=[gates.DisARM()]))
        >>> print(len(gates.plot_studies([study]).axes))
        2

    Args:
      studies: one or more `gates.Study`, the results of `gates.toys` or `text.gate_modes`, each
        with the loss of gate modes and the errors of gradient estimators.
      path_stem: path of the .png and .svg file without the suffix; None writes no file.
      title: a heading above the figure; None draws no heading.

    Returns:
      The Matplotlib figure.
    """
    if not studies:
        raise ValueError(f"studies must have at least one study, got {studies!r}")
    with _figure.style():
        count = max(len(study.measured.rows) for study in studies)
        height = len(studies) * (0.19 * count + 0.9) + 0.7
        figure = _figure.new_figure(11, height)
        axes = figure.subplots(len(studies), 2, squeeze=False, width_ratios=(1, 1.15))
        for (modes_axes, estimators_axes), study in zip(axes, studies, strict=True):
            _draw_modes(modes_axes, study)
            _draw_estimators(estimators_axes, study.measured)
        if title is not None:
            figure.suptitle(title, x=0.01, ha="left", fontsize=12)
        figure.tight_layout(rect=(0, 0, 1, 1 - 0.35 / height))
        handles, labels = axes[0, 1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper right", ncols=4, fontsize=9, handletextpad=0.3)
    _figure.save(figure, path_stem)
    return figure


def _draw_modes(axes: Any, study: Any) -> None:
    """Draws the loss of each gate mode of `study`, a `gates.Study`, as points with error bars."""
    exact = next(row.loss for row in study.modes if row.mode == "exact")
    axes.axvline(exact, color=_figure.INK, linewidth=0.9, linestyle=_figure.DASHES[1])
    losses = [row.loss for row in study.modes if row.mode != "best"]
    span = max(losses) - min(losses)
    for place, row in enumerate(study.modes):
        if row.mode == "best" and row.loss < min(losses) - 3 * span:
            # The loss is so far off that the other modes would shrink to a single point.
            edge = min(losses) - 0.15 * span
            axes.plot(edge, place, marker="<", color=_figure.PALETTE[0])
            axes.annotate(
                f"{row.loss:.4g}", (edge, place), (8, 0), textcoords="offset points", va="center"
            )
            continue
        color = _figure.PALETTE[1 if row.mode == "exact" else 0]
        axes.errorbar(row.loss, place, xerr=row.loss_error, fmt="o", color=color, capsize=3)
    axes.set_yticks(range(len(study.modes)), [_make_label(row) for row in study.modes])
    # The axis points down, so that the modes are in the order of the table of a study.
    axes.set_ylim(len(study.modes) - 0.5, -0.5)
    axes.locator_params(axis="x", nbins=5)
    axes.margins(x=0.08)
    axes.set_xlabel("loss (dashed: exact expectation)")
    axes.set_title(study.title, loc="left", fontsize=10)


def _make_label(row: Any) -> str:
    title = row.title.split(", mean of")[0].split(" (knows")[0]
    return title if row.accuracy is None else f"{title}  {row.accuracy:.1%}"


def _draw_estimators(axes: Any, measured: Any) -> None:
    """Draws bias and standard deviation of each estimator, and a line at the gradient's norm."""
    from matplotlib.ticker import NullLocator

    blue, red, green = _figure.PALETTE[:3]
    points = [
        (row.bias if row.shown_biased else row.error, row.variance**0.5) for row in measured.rows
    ]
    positive = [x for pair in points for x in (*pair, measured.gradient) if x > 0] or [1.0]
    for place, (row, (bias, deviation)) in enumerate(zip(measured.rows, points, strict=True)):
        if bias > 0 and deviation > 0:
            axes.plot([bias, deviation], [place, place], color="#bdbdbd", linewidth=1, zorder=1)
        if deviation > 0:
            axes.plot(deviation, place, marker="s", color=blue, linestyle="none")
        fill = red if row.shown_biased else "white"
        if bias > 0:
            axes.plot(bias, place, marker="o", color=red, markerfacecolor=fill, linestyle="none")
        elif deviation == 0:
            axes.annotate(
                "exact", (0, place), (4, 0), ("axes fraction", "data"), "offset points",
                va="center", fontsize=9,
            )  # fmt: skip
    if measured.gradient > 0:
        axes.axvline(measured.gradient, color=green, linewidth=1, linestyle=_figure.DASHES[1])
    # A logarithmic axis has no 0, so only positive numbers are drawn and determine its limits.
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(min(positive) / 2, max(positive) * 2)
    names = [row.title for row in measured.rows]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel("norm of the gradient, or of what is off")
    marks: list[tuple[str, Any]] = [
        ("bias", {"marker": "o", "color": red}),
        ("not shown (standard error)", {"marker": "o", "color": red, "markerfacecolor": "white"}),
        ("standard deviation", {"marker": "s", "color": blue}),
    ]
    for label, options in marks:
        axes.plot([], [], linestyle="none", label=label, **options)
    axes.plot([], [], color=green, linestyle=_figure.DASHES[1], label="exact gradient")
