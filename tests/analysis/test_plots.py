"""Figures: what is drawn, what is written, and that the caller's matplotlib is left alone."""

import builtins
import json

import numpy as np
import pytest

from gatedjax import analysis
from gatedjax.gates import MeanField
from gatedjax.gates._report import Measure, Measured, ModeRow, Study
from tests.analysis._places import check_bar, lightness

mpl = pytest.importorskip("matplotlib")

WORDS = ["Occasionally", "melodramatic", ",", "it", "'s", "also", "extremely", "effective", "."]
GATES = np.array([0, 1, 0, 0, 0, 0, 1, 1, 0.0])
WEIGHTS = GATES * [0, 0.1, 0, 0, 0, 0, 0.3, 0.6, 0]
SOFT = np.full(9, 1 / 9)


def rows():
    return [("GA-Net", WORDS, WEIGHTS, GATES), ("soft", WORDS, SOFT, None)]


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def boxes(figure):
    return [patch for patch in figure.axes[0].patches if isinstance(patch, mpl.patches.Rectangle)]


def test_heatmap_shades_small_weights_as_it_shades_large_ones():
    def shades(unit):
        figure = analysis.plot_heatmap([("gradient", WORDS, WEIGHTS * unit, None)])
        return [cell.get_facecolor() for cell in boxes(figure)[:9]]

    np.testing.assert_allclose(shades(1e-9), shades(1.0), atol=1e-2)
    assert len(set(shades(1e-9))) > 3


def test_heatmap_marks_open_and_closed_gates():
    figure = analysis.plot_heatmap(rows())
    cells = boxes(figure)[:18]
    for cell, gate in zip(cells[:9], GATES, strict=True):
        assert (cell.get_linewidth() > 1) == (gate > 0)
        assert bool(cell.get_hatch()) == (gate == 0)
    assert not any(cell.get_hatch() for cell in cells[9:])
    dots = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert len(dots) == GATES.sum() + 1  # and the one of the legend
    assert {"open gate", "closed gate"} <= set(texts(figure))
    assert figure.axes[1].get_xlabel() == "attention weight"
    check_bar(figure)


def test_heatmap_is_darker_where_the_weight_is_larger():
    # the row with the largest weights is the last
    figure = analysis.plot_heatmap(rows()[::-1])
    light = lightness([cell.get_facecolor() for cell in boxes(figure)[9:18]])
    assert "open gate" in texts(figure)
    order = np.argsort(WEIGHTS[[0, 1, 6, 7]])
    assert np.all(np.diff(light[[0, 1, 6, 7]][order]) < 0)


def test_heatmap_of_a_text_of_several_lines_has_each_weight_at_its_word():
    words, weights = [f"word{number}" for number in range(30)], np.linspace(0.01, 1, 30)
    figure = analysis.plot_heatmap([("rising", words, weights, None)])
    shown = {text.get_text(): text for text in figure.axes[0].texts}
    assert (shown["0.01"].get_color(), shown["1.00"].get_color()) == ("black", "white")
    cells = boxes(figure)[:30]
    centres = [cell.get_x() + cell.get_width() / 2 for cell in cells]
    np.testing.assert_allclose([shown[word].get_position()[0] for word in words], centres)
    assert len({cell.get_y() for cell in cells}) > 1
    assert np.all(np.diff(lightness([cell.get_facecolor() for cell in cells])) < 0)


def test_heatmap_shows_every_word_and_number_once_per_place():
    shown = texts(analysis.plot_heatmap(rows(), title="label: positive"))
    assert [text for text in shown if text in WORDS] == WORDS  # one line of words for both rows
    assert {"GA-Net", "soft", "label: positive", "0.60", "0.30", "0.10"} <= set(shown)
    assert shown.count("0.11") == 9
    assert "0.00" not in shown


def test_heatmap_without_gates_has_no_gate_legend():
    shown = texts(analysis.plot_heatmap([("soft", WORDS, SOFT, None)]))
    assert "open gate" not in shown


def test_heatmap_of_different_words_repeats_the_line_of_words():
    figure = analysis.plot_heatmap([("a", ["x", "y"], [1, 0], None), ("b", ["x"], [1], None)])
    shown = texts(figure)
    assert shown.count("x") == 2
    assert shown.count("y") == 1


def test_heatmap_ignores_padding_after_the_words():
    padded = np.pad(WEIGHTS, (0, 5), constant_values=1.0)
    shown = texts(analysis.plot_heatmap([("m", WORDS, padded, np.pad(GATES, (0, 3)))]))
    assert "1.00" not in shown
    assert "0.60" in shown


def test_words_are_not_markup():
    words = ["$x^2$", "$", "<b>", "\\frac", "&", "a\x00b", "tab\tbed"]
    figure = analysis.plot_heatmap([("$m$", words, np.ones(7) / 7, None)], title="$5 or $6")
    shown = texts(figure)
    assert {"$x^2$", "$", "<b>", "\\frac", "&", "a\ufffdb", "tab bed", "$5 or $6"} <= set(shown)
    figure.canvas.draw()  # fails if any of it is parsed


def test_callers_settings_and_pyplot_are_left_alone():
    import matplotlib.pyplot as plt

    before, open_figures = dict(mpl.rcParams), plt.get_fignums()
    analysis.plot_heatmap(rows())
    analysis.plot_lines({"accuracy": {"trec": [(1, 0.5, 0.1)]}})
    assert dict(mpl.rcParams) == before
    assert plt.get_fignums() == open_figures


@pytest.mark.parametrize(("least", "is_far"), [(-90.0, True), (0.45, False)])
def test_a_loss_far_below_the_others_is_cut_off_with_its_number(least, is_far):
    losses = {"sample": 0.52, "exact": 0.5, "threshold": 0.6, "best": least}
    figure = analysis.plot_studies([study("a study", losses)])
    marks = [line for line in figure.axes[0].lines if line.get_marker() == "<"]
    assert (len(marks), texts(figure)[:1]) == ((1, ["-90"]) if is_far else (0, ["exact"]))
    assert figure.axes[0].get_xlim()[0] > 0.4


def study(title, losses):
    """Gate modes with these losses, and estimators: shown as biased, not shown, and exact."""
    modes = tuple(ModeRow(n, n, loss, 0.01, 0.0, 0.75, 0.0, 0.5) for n, loss in losses.items())
    columns = (2.0, 0.5, 9.0, 4.0), (0.2, 0.25, 1.0, 9.0), (0.0,) * 4  # bias, error, z, variance
    rows = [Measure(MeanField(), 1.0, *values, 1.0, 1.0, 1.0) for values in columns]
    return Study(title, modes, Measured(tuple(rows), 1, 1, 0.125), {})


def test_studies_show_the_figures_of_each_mode_and_estimator(tmp_path):
    losses = [{"sample": 0.6, "exact": 0.5}, {"exact": 0.25, "expected": 0.75}]
    studies = [study(f"study {n}", of) for n, of in enumerate(losses)]
    figure = analysis.plot_studies(studies, tmp_path / "a", "all studies")
    assert [axes.get_title(loc="left") for axes in figure.axes[::2]] == ["study 0", "study 1"]
    for modes, estimators, of in zip(figure.axes[::2], figure.axes[1::2], losses, strict=True):
        assert list(modes.lines[0].get_xdata()) == [of["exact"]] * 2
        bars = [c.lines[0].get_xydata().ravel().tolist() for c in modes.containers]
        assert bars == [[loss, place] for place, loss in enumerate(of.values())]
        assert np.ptp(modes.containers[0].lines[2][0].get_segments()[0][:, 0]) > 0.019
        assert [t.get_text() for t in modes.get_yticklabels()] == [f"{n}  75.0%" for n in of]
        assert modes.yaxis_inverted()
        assert estimators.yaxis_inverted()
        points = [(line.get_marker(), *line.get_xydata().ravel(), line.get_markerfacecolor())
                  for line in estimators.lines if line.get_marker() in ("o", "s")]  # fmt: skip
        (one, bias, _, red), (_, error, _, hollow) = (p for p in points[:4] if p[0] == "o")
        assert (one, bias, error, red == hollow, hollow) == ("o", 2.0, 0.25, False, "white")
        assert [p[1:3] for p in points[:4] if p[0] == "s"] == [(2.0, 0.0), (3.0, 1.0)]
        assert [0.125, 0.125] in [list(line.get_xdata()) for line in estimators.lines]
    assert figure._suptitle.get_text() == "all studies"
    assert (tmp_path / "a.png").exists()


def test_notebooks_can_show_the_figure():
    assert analysis.plot_heatmap(rows())._repr_png_().startswith(b"\x89PNG")


@pytest.mark.slow
def test_lines_have_error_bars_where_there_is_a_deviation():
    series = {
        "accuracy": {"trec": [(40, 0.8, 0.0), (20, 0.9, 0.1)], "sst1": [(20, 0.4, 0.02)]},
        "open\nwords": {"sst1": [], "trec": [(20, 0.4, 0.0)]},  # in another order
    }
    figure = analysis.plot_lines(series, xlabel="wid\x07th", title="t")
    left, right = figure.axes
    assert (left.get_xlabel(), left.get_ylabel(), right.get_ylabel()) == (
        "wid\ufffdth", "accuracy", "open words",
    )  # fmt: skip
    first, second = left.containers
    np.testing.assert_array_equal(first.lines[0].get_xdata().astype(float), [20, 40])
    np.testing.assert_allclose(first.lines[0].get_ydata().astype(float), [0.9, 0.8])
    bars = first.lines[2][0].get_segments()
    np.testing.assert_allclose(bars[0][:, 1], [0.8, 1.0])
    assert [len(bar) for bar in bars[1:]] == [0]  # nothing at the point without a deviation
    assert first.lines[0].get_color() != second.lines[0].get_color()
    assert first.lines[0].get_marker() != second.lines[0].get_marker()
    assert right.containers[0].lines[0].get_color() == first.lines[0].get_color()


def test_a_long_heading_of_lines_breaks_and_is_not_cut():
    short, long = (
        analysis.plot_lines({"accuracy": {"trec": [(1, 0.5, 0)]}}, title=title)
        for title in ("a title", "a title " * 12)
    )
    box = long._suptitle.get_window_extent(long.canvas.get_renderer())
    assert 0 <= box.x0 < box.x1 <= long.get_figwidth() * long.dpi
    assert long._suptitle.get_text().count("\n") >= 1
    assert long.get_figheight() > short.get_figheight()


def test_lines_without_points_are_left_out_and_one_run_is_marked():
    figure = analysis.plot_lines({"accuracy": {"imdb": [], "trec": [(1, 0.5, 0)]}})
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["trec"]
    assert not figure.texts
    assert "not run" in texts(analysis.plot_lines({"accuracy": {"imdb": []}}))
    figure = analysis.plot_lines({"accuracy": {"trec": [(2, 0.5, None), (1, 0.6, 0.1)]}})
    (hollow,) = [line for line in figure.axes[0].lines if line.get_markerfacecolor() == "white"]
    np.testing.assert_array_equal(hollow.get_xdata(), [2])
    assert [text.get_text() for text in figure.texts] == ["hollow: one seed"]


def test_more_names_than_colours_are_still_drawn():
    series = {"accuracy": {f"name {i}": [(1, i, 0.1), (2, i, 0.1)] for i in range(12)}}
    figure = analysis.plot_lines(series)
    looks = {
        (c.lines[0].get_color(), c.lines[0].get_marker(), str(c.lines[0].get_linestyle()))
        for c in figure.axes[0].containers
    }
    assert len(looks) >= 7
    assert len(figure.legends[0].get_texts()) == 12


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 45])
def test_legends_stay_inside_their_figure(length):
    series = {of: {f"{i}" * length: [(1, i, 0.1)] for i in range(6)} for of in ("loss", "accuracy")}
    figure = analysis.plot_lines(series)
    figure.draw_without_rendering()
    legend, whole = figure.legends[0].get_window_extent(), figure.bbox
    assert whole.x0 <= legend.x0
    assert legend.x1 <= whole.x1
    assert figure.axes[0].get_tightbbox().y0 > legend.y1


RECORDS = [
    {"split": "train", "step": 1, "loss": 2.0, "accuracy": 0.3},
    {"split": "train", "step": 2, "loss": None, "accuracy": 0.4},
    {"split": "eval", "step": 2, "loss": 1.5, "accuracy": 0.5},
    {"split": "skipped", "step": 2, "example_id": [3]},
    {"split": "train", "step": 3, "loss": 1.0},
    {"split": "train", "loss": 4.0},
    {"split": "test", "step": 3, "loss": 9.0},
]


@pytest.mark.slow
def test_learning_curves_draw_what_was_recorded(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = [json.dumps(record) for record in RECORDS]
    # a number is no record, and the last line ends within a character
    path.write_bytes("\n".join([*lines, "3", '{"split": "é']).encode()[:-1])
    records = analysis.read_metrics(path)
    assert records == RECORDS
    runs = {"soft": iter(records), "hard": records}
    figure = analysis.plot_learning_curves(runs, tmp_path / "curves", title="two runs")
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "accuracy"]
    train, evaluated, *others = drawn = figure.axes[0].lines
    np.testing.assert_array_equal(train.get_xydata(), [[1, 2], [3, 1]])
    np.testing.assert_array_equal(evaluated.get_xydata(), [[2, 1.5]])
    assert [line.get_marker() for line in drawn] == ["None", "o", "None", "s"]
    assert train.get_color() == evaluated.get_color() != others[0].get_color()
    assert others[0].get_color() == others[1].get_color()
    title, caption = (text.get_text() for text in figure.texts)
    assert (title, caption[:14]) == ("two runs", "thin: training")
    assert (tmp_path / "curves.svg").exists()


def test_analysis_imports_without_matplotlib_and_says_what_is_missing(monkeypatch):
    load = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.split(".")[0] == "matplotlib":
            raise ImportError(name)
        return load(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        analysis.plot_heatmap(rows())


def test_lines_label_their_places_only_where_the_labels_do_not_meet():
    def ticks(*xs):
        figure = analysis.plot_lines({"loss": {"a": [(x, 0.5, 0) for x in xs]}})
        return list(figure.axes[0].get_xticks())

    assert ticks(50, 100, 200) == [50, 100, 200]
    assert 314 not in ticks(50, 100, 200, 300, 314)
    assert ticks(20, 40, 60, 80, 100) == [20, 40, 60, 80, 100]
    assert 2324 not in ticks(*range(2324, 16269, 2324))
    assert ticks(7) == [7]
    assert ticks(*range(8)) == [*range(8)] != ticks(*range(9))[:8]
