"""Figures of layers: a distribution per layer, and the weights of words in each layer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from gatedjax._utils.terminal import clean
from gatedjax._utils.types import Keywords
from gatedjax.analysis._checks import check_numbers
from gatedjax.analysis._figure import INK, PALETTE, draw_and_save, new_figure
from gatedjax.analysis._phrase_statistics import LayerHistogram, _are_lengths
from gatedjax.analysis._phrases import THRESHOLD, runs
from gatedjax.analysis._sheet import MARGIN, Sheet, shades_of, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Lengths are in inches.
_PANEL, _RIDGE, _CELL_WIDTH, _CELL_HEIGHT = 3.2, 0.33, 0.27, 0.215
# The highest bar takes this share of its row, because spikes of rows that overlap would look like
# a single bar.
_HIGHEST = 0.86
_WORD_SIZE = 9.0  # Points
_FILL = "#a6cde6"


def plot_layer_histograms(
    panels: Mapping[str, LayerHistogram],
    path_stem: str | Path | None = None,
    title: str | None = None,
    *,
    layers: Sequence[str] | None = None,
) -> "Figure":
    """Draws the distributions of the layers below each other, a panel per quantity.

    Heights are shares, on the same scale within a panel; the label below a panel states its largest
    share. A dot marks the mean of the layer. Histograms of lengths (with bins around whole numbers)
    have separate bars.

        >>> from gatedjax.analysis import phrases
        >>> histogram = phrases.weight_histogram([[[0.0, 1.0], [0.5, 0.25]]])  # [B, L, N]
        >>> figure = plot_layer_histograms({"weight": histogram})
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['L1', 'L2']

    Args:
      panels: {label of the x axis: histogram}, from `phrases.weight_histogram`,
        `phrases.phrase_length_histogram` or `phrases.gate_histogram(...).pooled`.
      path_stem: path of the .png and .svg file without the suffix; None writes no file.
      title: a heading above the figure; None draws no heading.
      layers: names of the layers, the same for all panels; None names them L1, L2, ...

    Returns:
      The Matplotlib figure.

    Reference: Guo 2017 (AGT), figures 2 and 3.
    """
    if not panels:
        raise ValueError(f"panels must have at least one histogram, got {panels!r}")
    first = next(iter(panels.values()))
    names = _name_layers(layers, len(first.counts))
    for label, histogram in panels.items():
        if len(histogram.counts) != len(names):
            raise ValueError(
                f"panels[{label!r}] must have {len(names)} layers, got {len(histogram.counts)}"
            )
    return draw_and_save(path_stem, lambda: _draw_panels(panels, names, title))


def _draw_panels(
    panels: Mapping[str, LayerHistogram], names: list[str], title: str | None
) -> "Figure":
    height = _RIDGE * (len(names) + 0.5) + 0.75 + (0.3 if title else 0.0)
    figure = new_figure(_PANEL * len(panels) + 0.4, height)
    figure.set_layout_engine("constrained", w_pad=0.08)
    if title:
        figure.suptitle(clean(title), fontsize=11, weight="bold")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for i, (label, histogram) in enumerate(panels.items()):
        _draw_ridges(axes[i], histogram, clean(label))
        # All panels have the same layers, so only the first has their names.
        axes[i].set_yticks(range(len(names)), names if i == 0 else [""] * len(names))
    return figure


def _draw_ridges(axes: "Axes", histogram: LayerHistogram, label: str) -> None:
    """Draws the histograms of a panel, a ridge (a filled curve) per layer, the first at the top."""
    shares, edges = histogram.probability, histogram.edges
    highest = float(shares.max(initial=0.0))
    scale = _HIGHEST / highest if highest > 0 else 0.0
    separate = _are_lengths(histogram.edges)
    count = len(shares)
    for i, (row, mean) in enumerate(zip(shares, histogram.mean, strict=True)):
        axes.axhline(i, color="#9a9a9a", linewidth=0.6, zorder=2)
        if not row.any():
            axes.text(
                edges.mean(), i - 0.12, "none", fontsize=8, ha="center", va="bottom", color=INK
            )
            continue
        if separate:
            some = row > 0
            axes.bar(
                histogram.centres[some], -row[some] * scale, 0.76, bottom=i, color=_FILL,
                edgecolor=PALETTE[0], linewidth=0.8, zorder=3,
            )  # fmt: skip
        else:
            axes.stairs(
                i - row * scale, edges, baseline=i, fill=True, facecolor=_FILL,
                edgecolor=PALETTE[0], linewidth=1.0, zorder=3,
            )  # fmt: skip
        axes.plot(mean, i, "o", color=PALETTE[1], markersize=4.2, markeredgecolor="white",
                  markeredgewidth=0.6, zorder=4, clip_on=False)  # fmt: skip
    # The axis points down, so that the first layer is at the top.
    axes.set(ylim=(count - 0.7, -1.0), xlim=(edges[0], edges[-1]))
    axes.set_xlabel(f"{label}\n(highest: {100 * highest:.0f}%; dot: mean)", fontsize=9)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    if separate:
        from matplotlib.ticker import MaxNLocator

        longest = len(edges) - 1
        ticks = [t for t in MaxNLocator(8, integer=True).tick_values(1, longest) if t <= longest]
        ticks = sorted({1, *(int(t) for t in ticks if t >= 1)})
        if histogram.open_end:
            # A tick near the last tick is dropped because its label would touch "12+".
            ticks = [t for t in ticks if t < longest - longest / 12] + [longest]
        plus = "+" if histogram.open_end else ""
        axes.set_xticks(ticks, [f"{t}{plus if t == longest else ''}" for t in ticks])
        axes.grid(axis="x", visible=False)


def plot_word_layers(
    tokens: Sequence[str],
    r: ArrayLike,
    path_stem: str | Path | None = None,
    title: str | None = None,
) -> "Figure":
    """Draws the rescaled attention of a sentence: a line per word, a column per layer.

    The shade is r. A run of words with r above `phrases.THRESHOLD`, 0.95, has a common outline, so
    that a phrase is a box of several words. `plot_heatmap` compares the attention of several models
    instead.

        >>> figure = plot_word_layers(["not", "good"], [[1.0, 0.0], [1.0, 1.0]])
        >>> [text.get_text() for text in figure.axes[0].texts[:3]]
        ['not', 'good', 'L1']

    Args:
      tokens: the words of the sentence.
      r: rescaled attention [L, N] in [0, 1] from `phrases.normalise`, for L layers and N at least
        the number of words; positions after the last word are padding and are ignored.
      path_stem: path of the .png and .svg file without the suffix; None writes no file.
      title: a heading above the figure; None draws no heading.

    Returns:
      The Matplotlib figure.

    Reference: Guo 2017 (AGT), figure 4.
    """
    words = [clean(token) for token in tokens]
    weights = np.asarray(r).astype(np.float64)
    if not words:
        raise ValueError(f"tokens must have at least one word, got {tokens!r}")
    if weights.ndim != 2 or weights.shape[1] < len(words):
        raise ValueError(f"r must have shape [L, N] with N >= {len(words)}, got {weights.shape}")
    weights = weights[:, : len(words)]
    check_numbers("r", weights, 0, 1, " (rescale it with phrases.normalise)")
    return draw_and_save(path_stem, lambda: _draw_word_layers(words, weights, title))


def _draw_word_layers(words: list[str], weights: np.ndarray, title: str | None) -> "Figure":
    """Draws the cells, the outlines of the runs and the legend below them."""
    names = _name_layers(None, len(weights))
    sheet = Sheet()
    measure = sheet.measure
    words = [shorten(word, 2.2, measure, _WORD_SIZE) for word in words]
    x_left = MARGIN + max(measure(word, _WORD_SIZE) for word in words) + 0.1
    cell = max(_CELL_WIDTH, *(measure(name, 8.0) + 0.07 for name in names))
    width = max(x_left + cell * len(names) + MARGIN, 3.6)
    top = sheet.place_heading(title, width) + 0.2
    bottom = top + _CELL_HEIGHT * len(words)
    sheet.open(width, bottom + 0.68)
    shades = shades_of(highest=1.0)
    for n, word in enumerate(words):
        sheet.write(x_left - 0.08, top + (n + 0.5) * _CELL_HEIGHT, word, _WORD_SIZE, ha="right")
    for i, name in enumerate(names):
        sheet.write(x_left + (i + 0.5) * cell, top - 0.1, name, 8, ha="center")
    sheet.draw_cells(x_left, top, (cell, _CELL_HEIGHT), weights.T, shades)
    for (i,), start, length in zip(*runs(weights > THRESHOLD), strict=True):
        place = x_left + i * cell + 0.012, top + start * _CELL_HEIGHT + 0.012
        size = cell - 0.024, length * _CELL_HEIGHT - 0.024
        sheet.outline(*place, *size, linewidth=1.3, zorder=3)
    full: Keywords = {"fill": True, "facecolor": shades.to_rgba(np.array(1.0)), "linewidth": 1.3}
    sheet.outline(MARGIN, bottom + 0.17, _CELL_WIDTH, 0.17, **full)
    text = f"selected (> {THRESHOLD:g})"
    sheet.write(MARGIN + _CELL_WIDTH + 0.07, bottom + 0.255, text, 8.5)
    wide = min(1.9, width - 2.1)
    x = width - MARGIN - 0.1 - wide
    sheet.draw_shade_bar(x, bottom + 0.29, wide, shades, "rescaled attention", 8.5)
    return sheet.figure


def _name_layers(layers: Sequence[str] | None, count: int) -> list[str]:
    names = [f"L{i + 1}" for i in range(count)] if layers is None else [clean(n) for n in layers]
    if not names:
        raise ValueError(
            f"layers must have a name for at least one layer, got {layers!r} for {count} layers"
        )
    if len(names) != count:
        raise ValueError(f"layers must have {count} names, got {len(names)}")
    return names
