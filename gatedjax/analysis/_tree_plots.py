"""Figures of constituency trees."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gatedjax._utils.terminal import clean
from gatedjax._utils.types import Options
from gatedjax.analysis._figure import PALETTE, new_figure, save, style
from gatedjax.analysis._heatmap import Ruler, _cut, _fold, _ruler, _sheet
from gatedjax.analysis._trees import Span, SpanTree

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# inches
_MARGIN, _SPACE, _LEVEL, _TALLEST, _LINE, _NAME, _PANEL_GAP = 0.2, 0.14, 0.26, 2.8, 0.24, 0.26, 0.2
_WORD_SIZE, _LEAST_WIDTH = 10.0, 4.2
_PLAIN = "#7a7a7a"


def plot_trees(
    words: Sequence[str],
    trees: Mapping[str, SpanTree],
    path_stem: str | Path | None = None,
    title: str | None = None,
    *,
    gold: SpanTree | None = None,
) -> "Figure":
    """Draws trees over the same sentence below each other.

    Args:
      words: of the sentence.
      trees: {name: tree}.
      gold: nodes that this tree has, too, are blue with a dot; the others are grey. None draws all
        in one colour.

    Reference: Geng et al. 2020 (SSAN), figure 6.
    """
    shown = [clean(word) for word in words]
    if not shown:
        raise ValueError("words must have at least one word")
    if not trees:
        raise ValueError("trees must have at least one tree")
    for name, tree in [*trees.items(), *([("gold", gold)] if gold is not None else [])]:
        if tree.size != len(shown):
            raise ValueError(f"tree {name!r} must have {len(shown)} words, got {tree.size}")
    with style():
        figure = _draw(shown, {clean(n): t for n, t in trees.items()}, clean(title or ""), gold)
        save(figure, path_stem)
    return figure


def _draw(
    words: list[str], trees: dict[str, SpanTree], title: str, gold: SpanTree | None
) -> "Figure":
    figure = new_figure(1, 1)
    measure = _ruler(figure)
    words = [_cut(word, 2.0, measure, _WORD_SIZE) for word in words]
    places, width = _places(words, measure)
    names = {name: _fold(name, width - 2 * _MARGIN, measure, _WORD_SIZE) for name in trees}
    heading = _fold(title, width - 2 * _MARGIN, _ruler(figure, "bold"), 11.0)
    shapes = {name: _heights(tree) for name, tree in trees.items()}
    level = {
        name: min(_LEVEL, _TALLEST / max(max(heights.values(), default=1), 1))
        for name, heights in shapes.items()
    }
    y = _MARGIN + (0.22 * len(heading) + 0.06 if heading else 0.0)
    tops = {}
    for name in trees:
        tops[name] = y
        deepest = max(shapes[name].values(), default=0)
        y += _NAME * len(names[name]) + level[name] * deepest + _LINE + _PANEL_GAP
    height = y + (0.3 if gold is not None else 0.0)
    axes = _sheet(figure, (width, height), _MARGIN, heading)
    for name, tree in trees.items():
        top = tops[name]
        for i, text in enumerate(names[name]):
            axes.text(_MARGIN, top + 0.1 + 0.17 * i, text, fontsize=_WORD_SIZE, va="center",
                      style="italic")  # fmt: skip
        deepest = max(shapes[name].values(), default=0)
        ground = top + _NAME * len(names[name]) + level[name] * deepest
        for x, word in zip(places, words, strict=True):
            axes.text(x, ground + _LINE / 2 + 0.03, word, fontsize=_WORD_SIZE, ha="center",
                      va="center")  # fmt: skip
        _branches(axes, tree, shapes[name], places, ground, level[name], gold)
    if gold is not None:
        axes.plot(_MARGIN + 0.06, y + 0.08, "o", color=PALETTE[0], markersize=4.5)
        axes.text(_MARGIN + 0.18, y + 0.08, "also a node of the gold tree", fontsize=8.5,
                  va="center")  # fmt: skip
    return figure


def _places(words: list[str], measure: Ruler) -> tuple[list[float], float]:
    """The middle of every word, and the width of the figure."""
    sizes = [measure(word, _WORD_SIZE) + _SPACE for word in words]
    width = max(sum(sizes) + 2 * _MARGIN, _LEAST_WIDTH)
    places, x = [], (width - sum(sizes)) / 2
    for size in sizes:
        places.append(x + size / 2)
        x += size
    return places, width


def _heights(tree: SpanTree) -> dict[Span, int]:
    """How far every node of two words or more is above the words."""
    heights: dict[Span, int] = {}
    parts = tree.children()
    for node in reversed(list(parts)):  # from the last to the first: children before their parent
        heights[node] = 1 + max(heights.get(part, 0) for part in parts[node])
    return heights


def _branches(
    axes: "Axes",
    tree: SpanTree,
    heights: dict[Span, int],
    places: list[float],
    ground: float,
    level: float,
    gold: SpanTree | None,
) -> None:
    parts = tree.children()
    at: dict[Span, float] = {(i, i + 1): x for i, x in enumerate(places)}
    for node in reversed(list(parts)):
        at[node] = (at[parts[node][0]] + at[parts[node][-1]]) / 2
    gold_spans = set() if gold is None else {*gold.spans, (0, gold.size)}
    for node, children in parts.items():
        y = ground - level * heights[node]
        color = PALETTE[0] if gold is None or node in gold_spans else _PLAIN
        # a bar over all parts and a line down to each: lines from one point to many parts cross
        # those of deeper nodes
        look: Options = {"color": color, "linewidth": 1.2, "solid_capstyle": "round", "zorder": 2}
        axes.plot([at[children[0]], at[children[-1]]], [y, y], **look)
        for child in children:
            axes.plot([at[child]] * 2, [y, ground - level * heights.get(child, 0)], **look)
        if gold is not None and node in gold_spans:
            axes.plot(at[node], y, "o", color=PALETTE[0], markersize=4.5, zorder=3)
