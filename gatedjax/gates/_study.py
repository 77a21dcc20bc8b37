"""Gate modes and estimators side by side: as Markdown, as JSON, as a figure."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gatedjax._utils.types import Json
from gatedjax.analysis import _figure, render_table
from gatedjax.gates._measure import Measured
from gatedjax.gates._modes import ModeRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """One loss, or the texts of a data set.

    Attributes:
      title: what was studied.
      modes: one row for each kind of gate.
      measured: the estimators.
      facts: what else is known, for JSON.
      notes: sentences for people, below the tables.
    """

    title: str
    modes: tuple[ModeRow, ...]
    measured: Measured
    facts: Json
    notes: tuple[str, ...] = ()

    def markdown(self) -> str:
        """Title, both tables, notes."""
        parts = [f"## {self.title}\n", _modes_table(self.modes), _estimator_table(self.measured)]
        return "\n".join([*parts, *(f"{note}\n" for note in self.notes)])

    def record(self) -> Json:
        """As JSON can hold it; null where a number is not finite."""
        return {
            "title": self.title,
            **self.facts,
            "modes": [_finite(row._asdict()) for row in self.modes],
            "texts": self.measured.texts,
            "draws": self.measured.draws,
            "gradient_norm": self.measured.gradient,
            "estimators": [_finite(row.record()) for row in self.measured.rows],
            "notes": list(self.notes),
        }


def _finite(record: Json) -> Json:
    bad = lambda x: isinstance(x, float) and not math.isfinite(x)  # noqa: E731
    return {name: None if bad(value) else value for name, value in record.items()}


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _modes_table(rows: Sequence[ModeRow]) -> str:
    classes = any(row.accuracy is not None for row in rows)
    heads = ["gates", "loss", "+-", "less exact"]
    heads += ["accuracy", "+-", "open"] if classes else []
    cells = []
    for row in rows:
        own = "-" if row.mode == "exact" else f"{row.gap:+.5f}"
        line = [row.title, f"{row.loss:.5f}", _number(row.loss_error, ".5f"), own]
        if classes:
            numbers = ((row.accuracy, ".4f"), (row.accuracy_error, ".4f"), (row.density, ".3f"))
            line += [_number(value, form) for value, form in numbers]
        cells.append(line)
    return render_table(heads, cells)


def _estimator_table(measured: Measured) -> str:
    heads = [
        "estimator", "unbiased", "bias", "+-", "z", "shown biased", "variance", "MSE", "cosine",
        "evaluations", "MSE x evaluations",
    ]  # fmt: skip
    cells = []
    for row in measured.rows:
        numbers = (row.bias, row.error, row.z)
        more = (row.variance, row.mse, row.cosine, row.evaluations, row.mse_per_evaluation)
        cells.append([
            _name(row.estimator),
            "yes" if row.estimator.unbiased else "no",
            *(f"{x:.3g}" for x in numbers),
            "yes" if row.shown_biased else "no",
            *(f"{x:.3g}" for x in more),
        ])  # fmt: skip
    return render_table(heads, cells)


def _name(estimator: Any) -> str:
    """The estimator with its temperature or number of draws."""
    options = [
        f"{field.name}={value:.3g}" if isinstance(value, float) else f"{field.name}={value}"
        for field in dataclasses.fields(estimator)
        if (value := getattr(estimator, field.name)) != field.default or field.name in ("tau", "k")
    ]
    return type(estimator).__name__ + (f"({', '.join(options)})" if options else "")


def plot_studies(
    studies: Sequence[Study], path_stem: str | Path | None = None, title: str | None = None
) -> "Figure":
    """Draws a row of two panels for each study.

    Left: the loss under every kind of gate, with standard errors, beside the exact expectation.
    Right: bias (hollow where it is not shown, at its standard error) and standard deviation of
    every estimator, and the norm of the exact gradient.

    Args:
      studies: one or more.
      path_stem: writes path_stem.png and path_stem.svg; None writes nothing.
      title: above the figure.
    """
    if not studies:
        raise ValueError("studies must not be empty")
    with _figure.style():
        count = max(len(study.measured.rows) for study in studies)
        height = len(studies) * (0.19 * count + 0.9) + 0.7
        figure = _figure.new_figure(11, height)
        axes = figure.subplots(len(studies), 2, squeeze=False, width_ratios=(1, 1.15))
        for (left, right), study in zip(axes, studies, strict=True):
            _draw_modes(left, study)
            _draw_estimators(right, study.measured)
        if title is not None:
            figure.suptitle(title, x=0.01, ha="left", fontsize=12)
        figure.tight_layout(rect=(0, 0, 1, 1 - 0.35 / height))
        handles, labels = axes[0, 1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper right", ncols=4, fontsize=9, handletextpad=0.3)
    _figure.save(figure, path_stem)
    return figure


def _draw_modes(axes: Any, study: Study) -> None:
    exact = next(row.loss for row in study.modes if row.mode == "exact")
    axes.axvline(exact, color=_figure.INK, linewidth=0.9, linestyle=_figure.DASHES[1])
    others = [row.loss for row in study.modes if row.mode != "best"]
    span = max(others) - min(others)
    for place, row in enumerate(study.modes):
        if row.mode == "best" and row.loss < min(others) - 3 * span:
            # far off: it would leave the others one point
            edge = min(others) - 0.15 * span
            axes.plot(edge, place, marker="<", color=_figure.PALETTE[0])
            axes.annotate(
                f"{row.loss:.4g}", (edge, place), (8, 0), textcoords="offset points", va="center"
            )
            continue
        color = _figure.PALETTE[1 if row.mode == "exact" else 0]
        axes.errorbar(row.loss, place, xerr=row.loss_error, fmt="o", color=color, capsize=3)
    axes.set_yticks(range(len(study.modes)), [_labelled(row) for row in study.modes])
    axes.set_ylim(len(study.modes) - 0.5, -0.5)
    axes.locator_params(axis="x", nbins=5)
    axes.margins(x=0.08)
    axes.set_xlabel("loss (dashed: exact expectation)")
    axes.set_title(study.title, loc="left", fontsize=10)


def _labelled(row: ModeRow) -> str:
    title = row.title.split(", mean of")[0].split(" (knows")[0]
    return title if row.accuracy is None else f"{title}  {row.accuracy:.1%}"


def _draw_estimators(axes: Any, measured: Measured) -> None:
    from matplotlib.ticker import NullLocator

    blue, red, green = _figure.PALETTE[:3]
    shown = [
        (row.bias if row.shown_biased else row.error, row.variance**0.5) for row in measured.rows
    ]
    positive = [x for pair in shown for x in (*pair, measured.gradient) if x > 0] or [1.0]
    for place, (row, (bias, deviation)) in enumerate(zip(measured.rows, shown, strict=True)):
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
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(min(positive) / 2, max(positive) * 2)
    names = [_name(row.estimator) for row in measured.rows]
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
