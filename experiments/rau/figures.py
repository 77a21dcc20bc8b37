"""Figures 3 and 4 (sample images) and 5 to 7 (curves of records); tables 2 and 4 (settings)."""

import dataclasses
import functools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import jax
import numpy as np

from experiments.core.columns import figure_links
from experiments.core.curves import panels
from experiments.core.kinds import Json
from experiments.core.paper import Job, Variant
from experiments.core.records import Store
from experiments.core.summary import join
from experiments.core.text import load_splits
from experiments.rau import reported
from experiments.rau.config import PRESETS, PTB_ROW, TRAIN_EXAMPLES, CellName, RAURunConfig
from experiments.rau.experiment import count_parameters
from gatedjax import analysis
from gatedjax._utils.terminal import say
from gatedjax.analysis._figure import draw_and_save, new_figure
from gatedjax.data import ImageSource
from gatedjax.models import RAUClassifier, RAUConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PER_CLASS = 8
"""The number of images of a class in figures 3 and 4."""

CURVES = {
    "figure5": ("curve", {"validation accuracy": 2}),
    "figure6": ("curve", {"validation loss": 1}),
    "figure7": ("train_curve", {"training loss": 1, "training accuracy": 2}),
}
"""The curve in a record, and the panels of a figure with the positions of their values."""
TITLES = {
    "figure5": ("Figure 5: validation while training, {}", "fashion_mnist"),
    "figure6": ("Figure 6: validation while training, {}", "ptb_small"),
    "figure7": ("Figure 7: training on {}", "imdb"),
}
"""The title of a figure, and the data set of the file without a data set in its name."""
IMAGES = (
    "- Figures 3 and 4: `tables figure3` and `tables figure4` draw images of MNIST and "
    "Fashion-MNIST beside the runs; they belong to the data sets and are not kept here"
)


def samples(job: Job, name: str) -> None:
    """Draws the first test images of each class. The figure is written to the work folders and not
    to the results, because the images belong to the data set."""
    source = load_splits(name, job.options, ["test"])["test"]
    stem = job.options.runs / job.options.what
    title = f"{reported.NAMES[name]}: first test images"
    draw_and_save(stem, lambda: draw_images(source, title))
    say(f"wrote {stem}.png and .svg")


def draw_images(source: ImageSource, title: str) -> "Figure":
    """Draws a row per class with its first `PER_CLASS` images, each from its 0 to its maximum,
    black on white. A class with fewer images has a shorter row."""
    names, labels = source.info.class_names, np.asarray(source.labels)
    figure = new_figure(0.55 * PER_CLASS + 1.3, 0.55 * len(names) + 0.5)
    panels = figure.subplots(len(names), PER_CLASS, squeeze=False)
    look: Any = {"ha": "right", "va": "center", "clip_on": False}
    for number, (name, line) in enumerate(zip(names, panels, strict=True)):
        of_class = np.flatnonzero(labels == number)[:PER_CLASS]
        for axes in line:
            axes.set_axis_off()
        for axes, index in zip(line, of_class, strict=False):
            axes.imshow(source.images[index], cmap="gray_r", vmin=0, interpolation="nearest")
        line[0].text(-0.15, 0.5, name, transform=line[0].transAxes, **look)
    figure.suptitle(title)
    figure.subplots_adjust(0.24, 0.01, 0.99, 0.93, 0.06, 0.06)
    return figure


def at(cell: str, name: str, path: str, value: float) -> Variant:
    """Returns a cell with another value of a setting than the preset's."""
    return Variant(f"{cell}_{name}", reported.CELLS[cell], {"model.cell": cell, path: value})


def at_rate(cell: str, rate: float) -> Variant:
    """Returns a cell at another learning rate."""
    return at(cell, f"lr{reported.rate_name(rate)}", "train.optimizer.learning_rate", rate)


def long_name(cell: str) -> str:
    """Returns the name of the records of a cell after the paper's 100,000 steps."""
    return f"{cell}_long"


def rate_of(job: Job) -> float:
    """Returns the learning rate of the runs in figure 7."""
    return job.options.learning_rate or reported.FIGURE7_RATE


def stem_of(figure: str, data: str) -> str:
    """Returns the file name of a figure on a data set, without suffix."""
    return figure if data == TITLES[figure][1] else f"{figure}_{data}"


def curves(job: Job) -> None:
    """Draws figure 5, 6 or 7, with a line per cell."""
    figure, data = job.options.what, job.data[0]
    key, columns = CURVES[figure]
    title = f"{join(tuple(reported.CELLS.values()))} learn {reported.NAMES[data]}"
    names = {cell: cell for cell in reported.CELLS}
    if figure == "figure5":
        names = {cell: long_name(cell) for cell in reported.CELLS}
    if figure == "figure7":
        title += f", learning rate {reported.rate_name(rate_of(job))}"
        names = {cell: at_rate(cell, rate_of(job)).name for cell in reported.CELLS}
    records = {reported.CELLS[cell]: job.store.all(data, name) for cell, name in names.items()}
    lines = panels(records, key, columns)
    if figure == "figure6":
        lines["validation perplexity"] = {
            # The deviation of exp(y) is exp(y) times that of y to first order. A single seed has no
            # deviation, and `sd` stays None.
            cell: [(x, math.exp(y), sd and math.exp(y) * sd) for x, y, sd in line]
            for cell, line in lines["validation loss"].items()
        }
    stem: Path = job.options.results / stem_of(figure, data)
    analysis.plot_lines(lines, stem, xlabel="step", title=title)
    say(f"wrote {stem}.png and .svg")


def list_figures(store: Store) -> str:
    """Returns a list of the figures that were drawn, and a note on the figures of images."""
    titles = {}
    for figure, (title, main) in TITLES.items():
        other_sets = [data for data in reported.NAMES if data != main]
        extra = [d for d in other_sets if (store.folder / f"{stem_of(figure, d)}.png").exists()]
        for data in (main, *extra):
            titles[stem_of(figure, data)] = title.format(reported.NAMES[data])
        if figure == "figure6" and "ptb_medium" not in extra:
            titles[figure] += " (the paper: PTB medium, not run)"
    return f"{figure_links(store, titles)}\n{IMAGES}"


ROW_WIDTH = {"digits": 8, "mnist": 28, "fashion_mnist": 28}
"""The columns of an image by data set."""
CLASSES = {"digits": 10, "mnist": 10, "fashion_mnist": 10, "imdb": 2}


@functools.lru_cache(maxsize=512)
def network(config: RAUConfig, name: str) -> tuple[int, int]:
    """Counts the parameters of a classifier. Returns the numbers of parameters without word vectors
    and of the recurrent layer."""
    # The shapes of parameters do not depend on the length of a text, so one step suffices.
    batch: Json = {"lengths": np.ones(1, np.int32)}
    if name in ROW_WIDTH:
        batch["rows"] = np.ones((1, 1, ROW_WIDTH[name]), np.float32)
    else:
        batch["tokens"] = np.ones((1, 1), np.int32)
    # The word vectors are not counted, so any size of the vocabulary will do.
    words = 2 if "tokens" in batch else None
    model = RAUClassifier(config, num_classes=CLASSES[name], vocab_size=words)
    # `eval_shape` allocates nothing. The search for a width counts several networks, and each count
    # takes milliseconds.
    params = jax.eval_shape(lambda key: model.init(key, batch), jax.random.key(0))["params"]
    params = {part: params[part] for part in ("recurrent", "classifier")}
    counts = count_parameters(params)
    return counts["parameters"], counts["recurrent_parameters"]


def matched_width(preset: str, cell: CellName) -> int:
    """Returns the width at which a cell has nearly as many parameters as the preset's GRU. Word
    vectors, which are the same for all cells, are not counted."""
    config = PRESETS[preset]

    def count(cell: CellName, hidden: int) -> int:
        model = dataclasses.replace(config.model, cell=cell, hidden=hidden)
        return network(model, config.data.name)[0]

    target = count("gru", config.model.hidden)
    # A search by halves suffices, because the number of parameters grows with the width.
    low, high = 1, config.model.hidden
    while low < high:  # the smallest width with at least as many
        middle = (low + high) // 2
        low, high = (low, middle) if count(cell, middle) >= target else (middle + 1, high)
    # The nearest count may also be just below the target.
    widths = [width for width in (low - 1, low) if width >= 1]
    return min(widths, key=lambda width: abs(count(cell, width) - target))


def _cells(*values: object) -> list[str]:
    return [value if isinstance(value, str) else f"{value:g}" for value in values]


def table2() -> str:
    """Returns our settings of classifiers and the paper's, with numbers of parameters."""
    headings = ["preset", "", "width", "batch", "epochs", "dropout", "optimiser", "learning rate"]
    rows = []
    for name, quoted in reported.SETTINGS.items():
        rows.append([name, "paper", *quoted, *("-" for _ in reported.CELLS)])
        rows += [_classifier(config) for config in PRESETS.values() if config.data.name == name]
    return analysis.render_table([*headings, *reported.CELLS.values()], rows)


def _classifier(config: RAURunConfig) -> list[str]:
    """Returns the cells of the row of a preset for a classifier in Table 2."""
    name, model, optimizer = config.data.name, config.model, config.train.optimizer
    epochs = config.train.num_steps * config.data.batch_size / TRAIN_EXAMPLES[name]
    rate = f"{optimizer.learning_rate:g}, {optimizer.schedule}, clip {optimizer.clip_norm:g}"
    cells = (dataclasses.replace(model, cell=cell) for cell in get_args(CellName))
    return _cells(
        *(config.preset, "ours", model.hidden, config.data.batch_size, round(epochs)),
        *(model.dropouts.state_dropout, optimizer.name.capitalize(), rate),
        *(f"{network(cell, name)[1]:,}" for cell in cells),
    )


def table4() -> str:
    """Returns our settings of language models and the paper's."""
    rows = []
    for preset, quoted in reported.PTB_SETTINGS.items():
        rows.append([preset, "paper", *quoted])
        rows.append([preset, "ours", *_language(PRESETS[preset])])
    return analysis.render_table(["preset", "", *reported.PTB_COLUMNS], rows)


def _language(config: RAURunConfig) -> list[str]:
    model, train, data = config.model, config.train, config.data
    epoch = -(-PTB_ROW // data.window)
    decay = f"{train.optimizer.decay_rate:.4g} after epoch {train.optimizer.decay_begin // epoch}"
    return _cells(
        *(model.init_scale, model.num_layers, model.hidden, data.batch_size),
        *(train.optimizer.learning_rate, decay, train.num_steps // epoch),
        *(model.dropouts.layer_dropout, data.window),
    )
