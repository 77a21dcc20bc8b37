"""What every figure promises: its texts are inside and apart, its files whole and reproducible."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from gatedjax import analysis
from gatedjax.analysis import phrases, trees

pytest.importorskip("matplotlib")

WORDS = ["he", "ran", "$home$", "."]
EVEN = np.full((4, 4), 0.25)
HISTOGRAM = phrases.weight_histogram(np.linspace(0, 1, 12).reshape(1, 3, 4))
LENGTHS = phrases.phrase_length_histogram(np.ones((1, 3, 4), bool))
HOP = analysis.GridPanel("hop 1", EVEN)
ROWS = [("GA-Net", WORDS, EVEN[0], [1, 0, 0, 1]), ("soft", WORDS, EVEN[0], None)]


def heat_map():
    words = ["Occasionally", "melodramatic", ",", "it", "'s", "also"] * 12 + ["W" * 300]
    name = "a model with a rather long name: positive"
    row = (name, words, np.full(len(words), 1 / len(words)), np.arange(len(words)) % 2)
    return analysis.plot_heatmap([row], title="a title " * 30)


def word_layers(count, layers):
    words = [f"word{i}" for i in range(count - 1)] + ["W" * 200]
    r = np.linspace(0, 1, count * layers).reshape(layers, count)
    return analysis.plot_word_layers(words, r, title="a title " * 12)


def grid(rows, columns, hops):
    names = [f"candidate {'x' * (i % 40)} · {i}" for i in range(rows)]
    query = [f"{'long' * (i % 9)}word" for i in range(columns)]
    weights = np.random.default_rng(0).random((rows, columns))
    panels = [analysis.GridPanel(f"hop {k}", weights) for k in range(hops)]
    last = np.linspace(0, 1, rows)
    return analysis.plot_attention_grid(names, query, panels, last, title="a title " * 12)


def attention():
    words = ["word" * (1 + i % 3) for i in range(25)] + ["W" * 200]
    maps = np.random.default_rng(0).random((26, 26))
    return analysis.plot_attention(words, {"SAN": maps, "a long name " * 9: maps}, title="t " * 90)


def tree():
    words = ["word" * (1 + i % 3) for i in range(25)] + ["W" * 200]
    return analysis.plot_trees(words, {"a": trees.right_branching(26)}, title="title " * 40)


LAYOUTS = {
    "heat map": (heat_map, 1),
    "one word of a layer": (lambda: word_layers(1, 1), 1),
    "long sentence": (lambda: word_layers(40, 15), 1),
    "deep network": (lambda: word_layers(3, 40), 1),
    "grid of one cell": (lambda: grid(1, 1, 1), 1),
    "wide grid": (lambda: grid(14, 12, 2), 1),
    "grid without hops": (lambda: grid(3, 0, 0), 1),
    "attention": (attention, 2),
    "attention of one word": (lambda: analysis.plot_attention(["a"], {"SAN": [[1.0]]}), 2),
    "tree": (tree, 2),
    "tree of one word": (lambda: analysis.plot_trees(["a"], {"b": trees.balanced(1)}), 2),
}
"""Figures of unusual sizes, and the pixels by which their texts may overlap."""


@pytest.mark.parametrize("name", LAYOUTS)
def test_no_text_leaves_the_figure_or_covers_another(name):
    draw, pixels = LAYOUTS[name]
    figure = draw()
    renderer = figure.canvas.get_renderer()
    width, height = figure.get_size_inches() * figure.dpi
    boxes = [text.get_window_extent(renderer) for text in figure.axes[0].texts]
    boxes += [axes.get_tightbbox(renderer) for axes in figure.axes[1:]]
    for i, box in enumerate(boxes):
        assert min(box.x0, box.y0) >= 0
        assert box.x1 <= width + 1
        assert box.y1 <= height + 1
        for other in boxes[:i]:
            wide = min(box.x1, other.x1) - max(box.x0, other.x0)
            high = min(box.y1, other.y1) - max(box.y0, other.y0)
            assert min(wide, high) <= pixels


FILES = {
    "heat map": lambda stem: analysis.plot_heatmap(ROWS, stem, "title $1"),
    "lines": lambda stem: analysis.plot_lines({"loss": {"a": [(1, 0.5, 0.1)]}}, stem),
    "histograms": lambda stem: analysis.plot_layer_histograms(
        {"r": HISTOGRAM, "n": LENGTHS}, stem, "title $1"
    ),
    "word layers": lambda stem: analysis.plot_word_layers(WORDS, EVEN, stem, "title $1"),
    "grid": lambda stem: analysis.plot_attention_grid(
        WORDS, WORDS, [HOP], EVEN[0], stem, "title $1"
    ),
    "attention": lambda stem: analysis.plot_attention(WORDS, {"SSAN": EVEN}, stem, "title $1"),
    "trees": lambda stem: analysis.plot_trees(WORDS, {"a": trees.balanced(4)}, stem, "title $1"),
    "distances": lambda stem: analysis.plot_distances(
        {"SAN": analysis.distance_counts(EVEN[None], [4])}, stem
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_png_and_svg_are_written_whole_and_the_same_every_time(name, tmp_path):
    stem = tmp_path / "new" / "figure.v1"
    figure = FILES[name](stem)
    png, svg = (stem.with_name(f"figure.v1.{kind}") for kind in ("png", "svg"))
    first = png.read_bytes(), svg.read_bytes()
    assert first[0].startswith(b"\x89PNG\r\n\x1a\n")
    assert int.from_bytes(first[0][16:20], "big") >= 150 * int(figure.get_figwidth())
    assert ET.fromstring(first[1]).tag.endswith("svg")
    assert b"<image" not in first[1].split(b"axes_2")[0]  # vectors, but for the bar of the shades
    FILES[name](stem)
    assert (png.read_bytes(), svg.read_bytes()) == first
    assert sorted(stem.parent.iterdir()) == [png, svg]
