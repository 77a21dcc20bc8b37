"""Figures of layers: what is drawn, and what is written."""

import numpy as np
import pytest

from gatedjax import analysis
from gatedjax.analysis import _phrase_statistics, phrases
from tests.analysis._places import check_bar, check_names, lightness

mpl = pytest.importorskip("matplotlib")

from matplotlib.patches import Rectangle, StepPatch  # noqa: E402

WORDS = ["not", "so", "much", "a", "movie", "$big$"]
R = np.array(
    [
        [1.0, 0.0, 0.0, 0.1, 0.2, 0.0],
        [1.0, 0.97, 0.99, 0.95, 1.0, 0.3],
        [0.0, 0.2, 0.0, 0.0, 0.0, 1.0],
    ]
)
WEIGHTS = _phrase_statistics.LayerHistogram(
    np.array([[8, 0, 2], [1, 0, 9], [0, 0, 0]]), np.linspace(0, 1, 4)
)
# runs of 1 to 3 words, of which the last bin also has longer ones
LENGTHS = _phrase_statistics.LayerHistogram(
    np.array([[1, 0, 0], [1, 0, 1], [1, 0, 0]]), np.arange(4) + 0.5, open_end=True
)


def texts(axes):
    return [text.get_text() for text in axes.texts]


def outlines(figure):
    return [
        patch
        for patch in figure.axes[0].patches
        if isinstance(patch, Rectangle) and not patch.get_fill()
    ]


def test_every_layer_is_drawn_at_its_place_with_shares_on_one_scale():
    figure = analysis.plot_layer_histograms({"r": WEIGHTS})
    (axes,) = figure.axes
    assert [t.get_text() for t in axes.get_yticklabels()] == ["L1", "L2", "L3"]
    assert axes.yaxis_inverted()  # the first layer on top
    first, second = (p.get_data() for p in axes.patches if isinstance(p, StepPatch))
    heights = [first.baseline - first.values, second.baseline - second.values]
    np.testing.assert_allclose(heights[0] / heights[0][0], [1, 0, 0.25])
    np.testing.assert_allclose(heights[1], heights[0][0] * np.array([0.125, 0, 1.125]))
    assert (first.baseline, second.baseline) == (0, 1)
    assert heights[0].max() < 1  # a row never reaches into the one above
    assert axes.get_xlabel().startswith("r\n(highest: 90%")
    assert texts(axes) == ["none"]  # the third layer has no count
    dots = [line.get_xydata()[0] for line in axes.lines if line.get_marker() == "o"]
    np.testing.assert_allclose(dots, [[1 / 3 - 1 / 30, 0], [5 / 6 - 0.1, 1]], atol=0.04)
    np.testing.assert_allclose(np.array(dots)[:, 0], WEIGHTS.mean[:2])


def test_lengths_are_separate_bars_and_an_open_end_is_marked():
    figure = analysis.plot_layer_histograms({"r": WEIGHTS, "length": LENGTHS}, layers="abc")
    left, right = figure.axes
    assert [t.get_text() for t in left.get_yticklabels()] == ["a", "b", "c"]
    assert {t.get_text() for t in right.get_yticklabels()} == {""}
    bars = [(round(b.get_x() + b.get_width() / 2), b.get_y()) for b in right.patches]
    assert bars == [(1, 0), (1, 1), (3, 1), (1, 2)]  # none for a length that does not occur
    heights = [-b.get_height() for b in right.patches]
    np.testing.assert_allclose(heights, heights[0] * np.array([1, 0.5, 0.5, 1]))
    assert [t.get_text() for t in right.get_xticklabels()] == ["1", "2", "3+"]
    closed = analysis.plot_layer_histograms({"n": phrases.phrase_length_histogram(R[None] > 0.95)})
    assert [t.get_text() for t in closed.axes[0].get_xticklabels()] == ["1", "2", "3"]


def test_words_against_layers_outline_runs_of_selected_words():
    padded = np.pad(R, ((0, 0), (0, 3)), constant_values=np.nan)
    figure = analysis.plot_word_layers(WORDS, padded, title="example")
    axes = figure.axes[0]
    shown = texts(axes)
    assert [text for text in shown if text in WORDS] == WORDS
    assert {"L1", "L2", "L3", "example", "selected (> 0.95)"} <= set(shown)
    (cells,) = axes.collections
    np.testing.assert_array_equal(cells.get_array(), R.T)
    light = lightness(cells.to_rgba(R.ravel()))
    order = np.argsort(R.ravel(), kind="stable")
    assert np.all(np.diff(light[order]) <= 1e-9)  # the larger the darker
    check_names(axes, cells, WORDS, ("L1", "L2", "L3"))
    corner, opposite = cells.get_coordinates()[[0, 1], [0, 1]]
    boxes = [(*box.get_xy() - corner, box.get_height()) for box in outlines(figure)]
    found = (np.array(boxes) / (opposite - corner)[[0, 1, 1]]).round().astype(int).tolist()
    assert found == [[0, 0, 1], [1, 0, 3], [1, 4, 1], [2, 5, 1]]  # layer, first word, words
    (sample,) = [patch for patch in axes.patches if patch.get_fill()]
    assert sample.get_facecolor() == tuple(cells.to_rgba(1.0))
    assert figure.axes[1].get_xlabel() == "rescaled attention"
    check_bar(figure)
