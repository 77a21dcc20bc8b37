"""A chart of a paper's differences and numbers against ours, with our 95 % intervals."""

import dataclasses
import io
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.core.claims import OTHER_DATA, Finding, Number
from experiments.core.records import COLLAPSED
from experiments.core.summary import chart_title
from experiments.core.verdict import MARKS, Word
from gatedjax._utils.terminal import say
from gatedjax._utils.write import write_atomic
from gatedjax.analysis._figure import DPI, INK, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 5.5
ROW = 0.215
"""Height of a row, in inches."""
AXIS = 0.62
"""Height of an axis with its label, in inches."""
GREY = "#6b7078"
COLOURS: dict[Word | None, str] = {
    "reproduced": "#0b6e3d",
    "smaller": "#6a3d9a",
    "ruled out": "#b03030",
    "undecided": "#8a5a00",
    "not run": GREY,
    None: "#0072b2",
}
"""The colours of the results, dark enough for text on white; None is a number without a result."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mark:
    """A row of the chart: our difference and the paper's, between the texts `label` and `end`.
    `last` is the difference and interval at the last step, if its result is another. `single` is
    the interval of differences of single runs, around ours; None without a verdict."""

    label: str
    ours: float | None = None
    interval: tuple[float, float] | None = None
    paper: float | None = None
    word: Word | None = None
    end: str = ""
    last: tuple[float, float, float] | None = None
    single: tuple[float, float] | None = None

    @property
    def positions(self) -> list[float]:
        """All positions on the axis that the row needs."""
        ends = [*(self.interval or ()), *(self.last or ()), *(self.single or ())]
        points = [self.ours, self.paper, *ends]
        return [point for point in points if point is not None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Panel:
    """A part of the chart with an axis: its label, and the rows under each heading."""

    axis: str
    groups: dict[str, list[Mark]]

    @property
    def height(self) -> int:
        """The number of rows, with the headings."""
        return sum(1 + len(rows) for rows in self.groups.values())

    def limits(self) -> tuple[float, float]:
        """Returns both ends of the axis. A single row that is more than three times as wide as the
        next is cut, so that the other rows stay readable."""
        rows = [row.positions for rows in self.groups.values() for row in rows if row.positions]
        rows.sort(key=lambda positions: max(map(abs, positions)))
        if len(rows) > 1 and max(map(abs, rows[-1])) > 3 * max(map(abs, rows[-2])) > 0:
            # `_draw_row` shows the position of this row by an arrow and a number.
            rows.pop()
        points = [0.0, *(point for positions in rows for point in positions)]
        low, high = min(points), max(points)
        margin = 0.08 * (high - low) or 1.0
        return low - margin, high + margin


def mark_of(finding: Finding) -> Mark:
    """Returns the row of a finding."""
    case = finding.case
    label = case.label.replace(OTHER_DATA, "*")
    # Rows with another metric share a panel in points with accuracies, so their label has the
    # metric.
    unit = case.unit.partition(" ")[0]
    if unit in ("F1", "BLEU"):
        label += f", {unit}"
    end = f"{MARKS[finding.word]} {finding.word}"
    if case.is_lost:
        label += f", {COLLAPSED}"
    if not case.seeds or case.is_lost:
        return Mark(label=label, paper=case.paper, word=finding.word, end=end)
    if not case.has_verdict:
        end += f" (n={case.seeds})"
    test, last, best = case.test, case.last, finding.chosen
    half = None if best is None or case.paper is None else best.size.smallest
    return Mark(
        label=label,
        ours=case.difference,
        interval=None if test is None else (test.low, test.high),
        paper=case.paper,
        word=finding.word,
        end=end,
        last=(last.difference, last.low, last.high)
        if finding.is_reversed and last is not None
        else None,
        single=None if half is None else (case.difference - half, case.difference + half),
    )


def panels_of(findings: Sequence[Finding], numbers: Sequence[Number]) -> list[Panel]:
    """Returns the panels: differences by unit, and our numbers minus the paper's by unit."""
    panels: dict[str, dict[str, list[Mark]]] = {}
    for finding in findings:
        is_nats = finding.case.unit.startswith("nats")
        axis = "difference in nats per token" if is_nats else "difference in points"
        groups = panels.setdefault(f"{axis}; right of 0 favours the claim", {})
        groups.setdefault(finding.case.claim, []).append(mark_of(finding))
    for number in numbers:
        is_points = number.unit == "points"
        unit = "points" if is_points else f"{number.unit}, less is better"
        groups = panels.setdefault(f"our number minus the paper's, in {unit}", {})
        gap, ends = number.ours - number.paper, number.interval
        groups.setdefault(number.system, []).append(
            Mark(
                label=number.label,
                ours=gap,
                interval=None if ends is None else (ends[0] - number.paper, ends[1] - number.paper),
                paper=0.0,
                end=f"{number.ours:.1f}, paper {number.paper:.1f}",
            )
        )
    return [Panel(axis=axis, groups=groups) for axis, groups in panels.items()]


def _draw_row(axes: "Axes", row: Mark, y: float, low: float, high: float) -> None:
    """Draws a row between both ends of the axis: our dot and interval, and the paper's diamond."""
    colour = COLOURS[row.word]
    if row.last is not None:
        middle, *ends = row.last
        axes.plot(ends, [y + 0.3, y + 0.3], color=GREY, linewidth=0.9, alpha=0.7)
        axes.plot([middle], [y + 0.3], "o", color=GREY, markersize=2.6, alpha=0.7)
    if row.single is not None:
        axes.plot(list(row.single), [y, y], color=colour, linewidth=0.7, alpha=0.6)
    if row.interval is not None:
        axes.plot(list(row.interval), [y, y], color=colour, linewidth=1.8, solid_capstyle="butt")
    if row.paper is not None and low <= row.paper <= high:
        axes.plot([row.paper], [y], "D", markersize=5, color="white", markeredgecolor=INK)
    if row.ours is not None and low <= row.ours <= high:
        # A dot without an interval is hollow, so that nobody takes one seed for a certain result.
        fill = colour if row.interval is not None else "white"
        axes.plot([row.ours], [y], "o", markersize=4.6, color=fill, markeredgecolor=colour)
    elif row.ours is not None:
        is_above = row.ours > high
        end, inner, side = (high, low, "right") if is_above else (low, high, "left")
        axes.plot([end + 0.02 * (inner - end)], [y], ">" if is_above else "<", color=colour, ms=5)
        text: Any = {"ha": side, "va": "center", "fontsize": 8, "color": colour}
        axes.text(end + 0.05 * (inner - end), y, f"{row.ours:+.3g}", **text)


def _draw_panel(axes: "Axes", panel: Panel) -> None:
    """Draws the rows of a panel below each other."""
    (low, high), y = panel.limits(), 0
    axes.set_xlim(low, high)
    # The axis points down, so that the first row is at the top.
    axes.set_ylim(panel.height - 0.4, -0.6)
    axes.axvline(0, color=INK, linewidth=0.8)
    for heading, rows in panel.groups.items():
        axes.annotate(
            heading,
            (0, y),
            xycoords=("figure fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.6,
            fontweight="bold",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )
        for row in rows:
            y += 1
            axes.axhline(y, color="#ededed", linewidth=0.6, zorder=0)
            _draw_row(axes, row, y, low, high)
            outside: Any = {"transform": axes.get_yaxis_transform(), "va": "center"}
            axes.text(-0.02, y, row.label, ha="right", fontsize=8.6, **outside)
            axes.text(1.02, y, row.end, fontsize=8.6, color=COLOURS[row.word], **outside)
        y += 1
    axes.set_yticks([])
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel(panel.axis, fontsize=8.6)


def draw_chart(
    title: str, findings: Sequence[Finding], numbers: Sequence[Number], stem: Path
) -> None:
    """Writes the chart as STEM.png and STEM.svg."""
    panels = panels_of(findings, numbers)
    marks = [row for panel in panels for rows in panel.groups.values() for row in rows]
    notes = [
        "dot and line: ours with its 95 % interval; hollow dot: one seed",
        "diamond: the paper; thin line: 95 % of the differences of single runs",
    ]
    if any(row.last for row in marks):
        notes.append("grey: the last step, where the result there is another")
    if any(row.label.endswith("*") or "*," in row.label for row in marks):
        notes.append("* other data than the paper's")
    heading = textwrap.wrap(chart_title(title, findings), 54)
    with style():
        import matplotlib

        heights = [ROW * panel.height + AXIS for panel in panels]
        top = 0.2 * len(heading) + 0.25
        total = top + sum(heights) + 0.15 * len(notes) + 0.06
        figure = new_figure(WIDTH, total)
        left = 6 / 72 / WIDTH
        figure.text(left, 1 - 0.08 / total, "\n".join(heading), va="top", fontsize=11)
        for panel, height in zip(panels, heights, strict=True):
            bottom = 1 - (top + ROW * panel.height) / total
            axes = figure.add_axes((0.35, bottom, 0.38, ROW * panel.height / total))
            _draw_panel(axes, panel)
            top += height
        figure.text(left, 0.06 / total, "\n".join(notes), va="bottom", fontsize=8, color=GREY)
        # Text stays text, so that it can be searched and a test can compare it with the records.
        with matplotlib.rc_context({"svg.fonttype": "none"}):
            for kind in ("png", "svg"):
                buffer = io.BytesIO()
                # Without a date and a version, the same records give the same files.
                undated: Any = {"Software": None} if kind == "png" else {"Date": None}
                figure.savefig(buffer, format=kind, dpi=DPI, metadata=undated)
                path = stem.with_name(f"{stem.name}.{kind}")
                write_atomic(path, buffer.getvalue())
                say(f"wrote {path}")
