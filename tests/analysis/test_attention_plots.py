"""Figures of self-attention and of trees: what is drawn, and what is written."""

import numpy as np
import pytest

from gatedjax import analysis
from gatedjax.analysis import trees
from gatedjax.analysis._figure import PALETTE
from tests.analysis._places import check_bar, check_names

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
    check_bar(figure)
    maps = [c for c in figure.axes[0].collections if isinstance(c, QuadMesh)]
    check_names(figure.axes[0], maps[0], WORDS, ())
    check_names(figure.axes[0], maps[1], (), WORDS, rotation=90.0)  # of the last panel
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
    check_bar(figure)  # which a single panel leaves less room
    assert len(outlines(figure)) == 4


def test_distance_curves_are_percentages_up_to_the_largest_distance():
    counts = {"SAN": analysis.distance_counts(SAN[None], [4])}
    nothing = analysis.distance_counts(SAN[None], [0])
    np.testing.assert_array_equal(nothing.shares(), np.zeros(4))
    figure = analysis.plot_distances({**counts, "none": nothing}, max_distance=2)
    (axes,) = figure.axes
    assert len(axes.containers) == 1
    drawn = axes.lines[0].get_xydata()
    np.testing.assert_allclose(drawn[:, 0], [0, 1, 2])
    np.testing.assert_allclose(drawn[:, 1], 100 * counts["SAN"].shares()[:3])
    assert axes.get_ylabel() == "share of attention (%)"


def test_a_tree_has_a_bar_over_its_parts_and_gold_nodes_a_dot():
    gold = trees.SpanTree.of(4, [(1, 4)])  # and the whole sentence
    figure = analysis.plot_trees(
        WORDS, {"right": trees.right_branching(4), "left": trees.left_branching(4)}, gold=gold
    )
    axes = figure.axes[0]
    assert [t for t in texts(figure) if t in WORDS] == WORDS * 2
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert len(dots) == 3 + 1  # both roots, the last three words, and the legend
    # three nodes of two parts each, in two trees: a bar and two lines down
    assert len(axes.lines) - len(dots) == 2 * 3 * 3
    lines = [line for line in axes.lines if line not in dots]
    x = [text.get_position()[0] for text in axes.texts if text.get_text() in WORDS][:4]
    x += [(x[2] + x[3]) / 2]
    x += [(x[1] + x[4]) / 2]  # of the nodes (2, 4) and (1, 4)
    bars, downs = lines[:9:3], [(lines[i + 1], lines[i + 2]) for i in (0, 3, 6)]
    ends = [bar.get_xdata() for bar in bars]
    np.testing.assert_allclose(ends, [[x[0], x[5]], [x[1], x[4]], x[2:4]])
    heights = [*(bar.get_ydata()[0] for bar in bars), lines[7].get_ydata()[1]]
    np.testing.assert_allclose(np.diff(heights, 2), 0, atol=1e-9)  # a level for each node
    assert heights == sorted(heights)  # the axis points down
    for height, below, pair, end in zip(heights, [*heights[1:3], None], downs, ends, strict=False):
        for line, place, bottom in zip(pair, end, (heights[3], below or heights[3]), strict=True):
            np.testing.assert_allclose(line.get_xydata(), [[place, height], [place, bottom]])
    assert {bar.get_color() for bar in bars[:2]} == {PALETTE[0]} != {bars[2].get_color()}
