"""Figures 3 and 4, sample images; figures 5 to 7, drawn from the records of the runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.core.curves import MAX_POINTS as MAX_POINTS
from experiments.core.curves import Point
from experiments.core.curves import points as points
from experiments.rau import paper
from experiments.rau.cells import NAMES
from experiments.rau.results import Store
from gatedjax import analysis
from gatedjax._terminal import say

if TYPE_CHECKING:
    from experiments.rau.tables import TablesConfig


def curves(
    store: Store, data: str, variants: dict[str, str], key: str, columns: dict[str, int]
) -> dict[str, dict[str, list[Point]]]:
    """One panel per column, one line per variant that has records."""
    return {
        measure: {
            name: points(store.all(data, variant), key, column)
            for variant, name in variants.items()
        }
        for measure, column in columns.items()
    }


def samples(options: TablesConfig) -> Path:
    """Draws the first test images of every class; returns the PNG.

    They belong to the data set, so the figure stays with the runs, outside the results.
    """
    from gatedjax import data as gdata

    name = {"figure3": "mnist", "figure4": "fashion_mnist"}[options.what]
    folders: dict[str, Any] = {"data_dir": options.data_dir, "manual_dir": options.manual_dir}
    source: Any = gdata.load(name, "test", **folders)
    stem = options.runs / options.what
    analysis.plot_images(
        source.images,
        source.labels,
        source.info.class_names,
        stem,
        title=f"{NAMES[name]}: first test images",
    )
    say(f"wrote {stem}.png and .svg", flush=True)
    return stem.with_suffix(".png")


def draw(options: TablesConfig) -> Path:
    """Draws the figure that a command asked for; returns the PNG."""
    store = Store(options.results)
    what = options.what
    variants = dict(paper.CELLS)
    if what == "figure7":
        data = options.data[0] if options.data else "imdb"
        rate = options.learning_rate or paper.FIGURE7_RATE
        variants = {paper.rate_variant(cell, rate): name for cell, name in paper.CELLS.items()}
        columns = {"training loss": 1, "training accuracy": 2}
        series = curves(store, data, variants, "train_curve", columns)
        title = f"{NAMES[data]}, learning rate {paper.rate_name(rate)}"
    elif what == "figure6":
        data = options.data[0] if options.data else "ptb_medium"
        series = curves(store, data, variants, "curve", {"validation loss": 1})
        series["validation perplexity"] = {
            name: [(x, math.exp(y), math.exp(y) * sd) for x, y, sd in line]
            for name, line in series["validation loss"].items()
        }
        title = NAMES[data]
    else:
        data = options.data[0] if options.data else "fashion_mnist"
        series = curves(store, data, variants, "curve", {"validation accuracy": 2})
        title = NAMES[data]
    stem = options.results / what
    stem.parent.mkdir(parents=True, exist_ok=True)
    analysis.plot_lines(series, stem, xlabel="step", title=title)
    say(f"wrote {stem}.png and .svg", flush=True)
    return stem.with_suffix(".png")
