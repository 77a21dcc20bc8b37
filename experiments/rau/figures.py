"""Figures 3 and 4, sample images; figures 5 to 7, drawn from the records of the runs."""

import math
from pathlib import Path

from experiments.core.curves import points
from experiments.core.origins import NOT_RUN
from experiments.core.paper import Job, Variant
from experiments.core.records import Store
from experiments.core.text import load_splits
from experiments.rau import reported
from gatedjax import analysis
from gatedjax._terminal import say

CURVES = {
    "figure5": ("curve", {"validation accuracy": 2}),
    "figure6": ("curve", {"validation loss": 1}),
    "figure7": ("train_curve", {"training loss": 1, "training accuracy": 2}),
}
"""The curve of a record, and the panels of a figure with the places of their values."""
TITLES = {
    "figure5": "Figure 5: validation while training, Fashion-MNIST",
    "figure6": "Figure 6: validation while training, PTB",
    "figure7": "Figure 7: training on IMDB",
}


def samples(job: Job) -> None:
    """Draws the first test images of every class.

    They belong to the data set, so the figure stays with the runs, outside the results.
    """
    (name,) = job.table.data
    source = load_splits(name, job.options, ["test"])["test"]
    stem = job.options.runs / job.options.what
    title = f"{reported.NAMES[name]}: first test images"
    analysis.plot_images(source.images, source.labels, source.info.class_names, stem, title=title)
    say(f"wrote {stem}.png and .svg", flush=True)


def at(cell: str, name: str, path: str, value: float) -> Variant:
    """A cell with another value of a setting than its preset's."""
    return Variant(f"{cell}_{name}", reported.CELLS[cell], {"model.cell": cell, path: value})


def at_rate(cell: str, rate: float) -> Variant:
    """A cell at another learning rate."""
    return at(cell, f"lr{reported.rate_name(rate)}", "train.optimizer.learning_rate", rate)


def rate_of(job: Job) -> float:
    """The learning rate of the runs of figure 7."""
    return job.options.learning_rate or reported.FIGURE7_RATE


def curves(job: Job) -> None:
    """Draws figure 5, 6 or 7: a line per cell."""
    what, data = job.options.what, job.data[0]
    key, columns = CURVES[what]
    title, names = reported.NAMES[data], {cell: cell for cell in reported.CELLS}
    if what == "figure7":
        title += f", learning rate {reported.rate_name(rate_of(job))}"
        names = {cell: at_rate(cell, rate_of(job)).name for cell in reported.CELLS}
    records = {reported.CELLS[cell]: job.store.all(data, name) for cell, name in names.items()}
    panels = {
        measure: {cell: points(one, key, column) for cell, one in records.items()}
        for measure, column in columns.items()
    }
    if what == "figure6":
        panels["validation perplexity"] = {
            cell: [(x, math.exp(y), math.exp(y) * sd) for x, y, sd in line]
            for cell, line in panels["validation loss"].items()
        }
    stem: Path = job.options.results / what
    stem.parent.mkdir(parents=True, exist_ok=True)
    analysis.plot_lines(panels, stem, xlabel="step", title=title)
    say(f"wrote {stem}.png and .svg", flush=True)


def listed(store: Store) -> str:
    """The figures that were drawn."""
    lines = []
    for stem, title in TITLES.items():
        drawn = (store.folder / f"{stem}.png").exists()
        lines.append(f"- {title}: " + (f"[{stem}.png]({stem}.png)" if drawn else NOT_RUN))
    return "\n".join(lines)
