"""Figures of constituency trees."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gatedjax._utils.terminal import clean
from gatedjax._utils.types import Keywords
from gatedjax.analysis._figure import PALETTE, draw_and_save
from gatedjax.analysis._sheet import MARGIN, Ruler, Sheet, break_lines, shorten
from gatedjax.analysis._trees import Span, SpanTree

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Lengths are in inches.
_SPACE, _LEVEL, _TALLEST, _LINE, _NAME, _PANEL_GAP = 0.14, 0.26, 2.8, 0.24, 0.26, 0.2
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
    """Draws several trees of the same sentence below each other.

        >>> tree = SpanTree(3, ((0, 3), (1, 3)))
        >>> figure = plot_trees(["the", "film", "ran"], {"predicted": tree})
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['predicted', 'the', 'film', 'ran']

    Args:
      words: the words of the sentence.
      trees: {name: tree}, each tree a `SpanTree(number of words, spans)`. A span is (first word,
        word after the last) of a node.
      path_stem: path of the .png and .svg file without the suffix; None writes no file.
      title: a heading above the figure; None draws no heading.
      gold: the gold tree. Nodes that it contains are blue with a dot, all other nodes are grey.
        None draws all nodes in blue without dots.

    Returns:
      The Matplotlib figure.

    Reference: Geng et al. 2020 (SSAN), figure 6.
    """
    labels = [clean(word) for word in words]
    if not labels:
        raise ValueError(f"words must have at least one word, got {words!r}")
    if not trees:
        raise ValueError(f"trees must have at least one tree, got {trees!r}")
    for name, tree in [*trees.items(), *([("gold", gold)] if gold is not None else [])]:
        if tree.size != len(labels):
            raise ValueError(
                f"the tree {name!r} must have {len(labels)} words, like words, got {tree.size}"
            )
    named = {clean(name): tree for name, tree in trees.items()}
    return draw_and_save(path_stem, lambda: _draw(labels, named, title, gold))


def _draw(
    words: list[str], trees: dict[str, SpanTree], title: str | None, gold: SpanTree | None
) -> "Figure":
    """Draws the trees of a sentence below each other, and the legend of the gold tree."""
    sheet = Sheet()
    words = [shorten(word, 2.0, sheet.measure, _WORD_SIZE) for word in words]
    places, width = _place_words(words, sheet.measure)
    y = sheet.place_heading(title, width)
    panels = []
    for name, tree in trees.items():
        lines = break_lines(name, width - 2 * MARGIN, sheet.measure, _WORD_SIZE)
        heights = _measure_heights(tree)
        deepest = max(heights.values(), default=0)
        # A deep tree gets lower levels, so that its height stays below `_TALLEST`.
        level = min(_LEVEL, _TALLEST / max(deepest, 1))
        ground = y + _NAME * len(lines) + level * deepest
        panels.append((y, lines, tree, heights, ground, level))
        y = ground + _LINE + _PANEL_GAP
    sheet.open(width, y + (0.3 if gold is not None else 0.0))
    for top, lines, tree, heights, ground, level in panels:
        for i, text in enumerate(lines):
            sheet.write(MARGIN, top + 0.1 + 0.17 * i, text, _WORD_SIZE, style="italic")
        for x, word in zip(places, words, strict=True):
            sheet.write(x, ground + _LINE / 2 + 0.03, word, _WORD_SIZE, ha="center")
        _draw_branches(sheet.axes, tree, heights, places, ground, level, gold)
    if gold is not None:
        sheet.axes.plot(MARGIN + 0.06, y + 0.08, "o", color=PALETTE[0], markersize=4.5)
        sheet.write(MARGIN + 0.18, y + 0.08, "also a node of the gold tree", 8.5)
    return sheet.figure


def _place_words(words: list[str], measure: Ruler) -> tuple[list[float], float]:
    sizes = [measure(word, _WORD_SIZE) + _SPACE for word in words]
    width = max(sum(sizes) + 2 * MARGIN, _LEAST_WIDTH)
    places, x = [], (width - sum(sizes)) / 2
    for size in sizes:
        places.append(x + size / 2)
        x += size
    return places, width


def _measure_heights(tree: SpanTree) -> dict[Span, int]:
    heights: dict[Span, int] = {}
    parts = tree.children()
    for node in reversed(list(parts)):  # Children come before their parent.
        heights[node] = 1 + max(heights.get(part, 0) for part in parts[node])
    return heights


def _draw_branches(
    axes: "Axes",
    tree: SpanTree,
    heights: dict[Span, int],
    places: list[float],
    ground: float,  # y of the words, in inches from the top
    level: float,  # the distance of two levels, in inches
    gold: SpanTree | None,
) -> None:
    """Draws the nodes of a tree as bars above the words."""
    parts = tree.children()
    at: dict[Span, float] = {(i, i + 1): x for i, x in enumerate(places)}
    for node in reversed(list(parts)):
        at[node] = (at[parts[node][0]] + at[parts[node][-1]]) / 2
    gold_spans = set() if gold is None else {*gold.spans, (0, gold.size)}
    for node, children in parts.items():
        y = ground - level * heights[node]
        color = PALETTE[0] if gold is None or node in gold_spans else _PLAIN
        # A node is a bar over its parts with a vertical line down to each part, because lines from
        # a point to many parts would cross the lines of deeper nodes.
        look: Keywords = {"color": color, "linewidth": 1.2, "solid_capstyle": "round", "zorder": 2}
        axes.plot([at[children[0]], at[children[-1]]], [y, y], **look)
        for child in children:
            axes.plot([at[child]] * 2, [y, ground - level * heights.get(child, 0)], **look)
        if gold is not None and node in gold_spans:
            axes.plot(at[node], y, "o", color=PALETTE[0], markersize=4.5, zorder=3)
