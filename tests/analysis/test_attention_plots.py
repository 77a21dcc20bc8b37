"""Figures of self-attention and of trees: what is drawn, and what is written."""

import numpy as np
import pytest

from gatedjax import analysis
from gatedjax.analysis import trees

mpl = pytest.importorskip("matplotlib")

from matplotlib.collections import QuadMesh  # noqa: E402
from matplotlib.patches import Rectangle  # noqa: E402

WORDS = ["he", "ran", "$home$", "."]
SAN = np.array([[0.1, 0.7, 0.1, 0.1], [0.25] * 4, [0.0, 0.2, 0.2, 0.6], [0.1, 0.1, 0.1, 0.7]])
SSAN = SAN * [[1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]]


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def outlines(figure):
    boxes = [p for p in figure.axes[0].patches if isinstance(p, Rectangle) and not p.get_fill()]
    return boxes[:-1]  # the last one is the legend


@pytest.mark.slow
def test_every_query_has_a_box_at_its_largest_weight_and_an_empty_one_has_a_dash():
    figure = analysis.plot_attention(WORDS, {"SAN": SAN, "SSAN": SSAN}, title="one sentence")
    shown = texts(figure)
    assert shown.count("$home$") == 3  # the queries once, the keys above each panel
    assert {"SAN", "SSAN", "one sentence", "largest of a query"} <= set(shown)
    maps = [c for c in figure.axes[0].collections if isinstance(c, QuadMesh)]
    boxes = outlines(figure)
    assert len(boxes) == 4 + 3
    cell = boxes[0].get_height()
    corner, following = maps[0].get_coordinates()[0, :2]
    size = following[0] - corner[0]
    at = [((b.get_x() - corner[0]) // size, (b.get_y() - corner[1]) // size) for b in boxes[:4]]
    assert at == [(1, 0), (0, 1), (3, 2), (3, 3)]
    assert len(figure.axes[0].lines) == 1
    assert cell < size
    # one scale: equal weights have equal shades in both panels
    one, other = (m.to_rgba(m.get_array())[3, 3] for m in maps)
    np.testing.assert_array_equal(one, other)
    # which ends at the largest weight of all panels
    figure = analysis.plot_attention(WORDS, {"half": SAN / 2, "SSAN": SSAN})
    maps = [c for c in figure.axes[0].collections if isinstance(c, QuadMesh)]
    assert len({tuple(m.to_rgba(m.get_array())[3, 3]) for m in maps}) == 2


def test_marked_words_are_bold_and_padding_is_not_drawn():
    padded = np.pad(SAN, (0, 2), constant_values=np.nan)
    figure = analysis.plot_attention(WORDS, {"SAN": padded}, marked=[1])
    bold = [t.get_text() for t in figure.axes[0].texts if t.get_weight() == "bold"]
    assert bold == ["ran", "ran"]
    assert len(outlines(figure)) == 4


def test_distance_curves_are_percentages_up_to_the_largest_distance():
    counts = {"SAN": analysis.distance_counts(SAN[None], [4])}
    figure = analysis.plot_distances(counts, max_distance=2)
    (axes,) = figure.axes
    drawn = axes.lines[0].get_xydata()
    np.testing.assert_allclose(drawn[:, 0], [0, 1, 2])
    np.testing.assert_allclose(drawn[:, 1], 100 * counts["SAN"].shares()[:3])
    assert axes.get_ylabel() == "share of attention (%)"


def test_a_tree_has_a_bar_over_its_parts_and_gold_nodes_a_dot():
    gold = trees.SpanTree.of(4, [(0, 4), (1, 3)])
    figure = analysis.plot_trees(
        WORDS, {"right": trees.right_branching(4), "left": trees.left_branching(4)}, gold=gold
    )
    axes = figure.axes[0]
    assert [t for t in texts(figure) if t in WORDS] == WORDS * 2
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert len(dots) == 2 + 1  # the root of each, and the legend
    # three nodes of two parts each, in two trees: a bar and two lines down
    assert len(axes.lines) - len(dots) == 2 * 3 * 3
    right = [line.get_xydata() for line in axes.lines[:3]]
    (bar, down, _) = right
    assert bar[0, 1] == bar[1, 1]
    assert down[0, 0] == down[1, 0] == bar[0, 0]
    assert down[1, 1] > down[0, 1]  # the axis points down
