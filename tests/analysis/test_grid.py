"""Heat maps of rows against words: what is drawn is what was given."""

import numpy as np
import pytest

mpl = pytest.importorskip("matplotlib")

from gatedjax import analysis  # noqa: E402
from gatedjax.analysis._figure import PALETTE  # noqa: E402
from tests.analysis._places import check_bar, check_names, lightness  # noqa: E402

ROWS = ["Ann · 3", "Ann · 17", "Bob · 5"]
QUERY = ["@begin", "who", "@placeholder", "@end"]
HOPS = [
    analysis.GridPanel("hop 1", np.full((3, 4), 0.25)),
    analysis.GridPanel("hop 2", np.arange(12).reshape(3, 4) / 24),
]
LAST = [0.7, 0.004, 0.25]


def draw(stem=None, **more):
    return analysis.plot_attention_grid(ROWS, QUERY, HOPS, LAST, stem, "title $1", **more)


def test_every_weight_has_a_cell_whose_shade_grows_with_it():
    figure = draw()
    check_bar(figure)
    axes = figure.axes[0]
    shown = [text.get_text() for text in axes.texts]
    assert [text for text in shown if text in ROWS] == ROWS
    assert [text for text in shown if text in QUERY] == QUERY * 2
    assert {"hop 1", "hop 2", "answer", "title $1", "0.70", "0.25"} <= set(shown)
    assert "0.00" not in shown
    shades = []
    for cells, panel in zip(axes.collections, HOPS, strict=True):
        np.testing.assert_array_equal(cells.get_array(), panel.weights)
        shades.append(cells.to_rgba(panel.weights.ravel()))
    dark = -lightness(np.concatenate(shades))
    weights = np.ravel([panel.weights for panel in HOPS])
    assert np.all(np.diff(dark[np.argsort(weights, kind="stable")]) >= -1e-9)
    assert len(np.unique(dark)) == len(np.unique(weights))
    check_names(axes, cells, ROWS, QUERY, rotation=90.0)
    lengths = [p.get_width() for p in axes.patches]
    np.testing.assert_allclose(np.array(lengths) / lengths[0], np.array(LAST) / LAST[0])


def test_groups_are_parted_and_marked_rows_stand_out():
    plain, parted = draw(), draw(groups=[0, 0, 1], marked=[False, False, True], final_name="p")
    shown = {t.get_text(): t for t in parted.axes[0].texts}
    (y,) = {line.get_ydata()[0] for line in parted.axes[0].lines} - {
        line.get_ydata()[0] for line in plain.axes[0].lines
    }
    assert y == pytest.approx(np.mean([shown[row].get_position()[1] for row in ROWS[1:]]))
    assert shown["Bob · 5"].get_weight() == shown["p"].get_weight() == "bold"
    assert shown["Ann · 3"].get_weight() == "normal"
    first, *_, last = parted.axes[0].patches
    assert (first.get_facecolor(), last.get_facecolor()) == tuple(
        mpl.colors.to_rgba(colour) for colour in (PALETTE[0], shown["Bob · 5"].get_color())
    )
    centres = [bar.get_y() + bar.get_height() / 2 for bar in parted.axes[0].patches]
    np.testing.assert_allclose(centres, [shown[row].get_position()[1] for row in ROWS])


def test_without_hops_only_the_bars_are_drawn():
    figure = analysis.plot_attention_grid(ROWS, [], [], np.zeros(3))
    assert len(figure.axes) == 1
    assert len(figure.axes[0].patches) == 3
