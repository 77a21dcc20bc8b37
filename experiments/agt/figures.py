"""Figures 2 to 4 and the validation curves of the optimisers, drawn from the records."""

from pathlib import Path

import numpy as np

from experiments.agt import layer_tables, reported
from experiments.agt.layers import above_first, in_unit, of_lengths
from experiments.agt.reported import NAMES
from experiments.core.columns import figure_links
from experiments.core.curves import panels
from experiments.core.kinds import Records
from experiments.core.paper import Job
from experiments.core.records import Record, Store
from gatedjax import analysis
from gatedjax._utils.terminal import say

NO_PHRASES = 0.02
"""The share of runs of several words below which lengths of runs are not drawn, because nearly all
runs have a single word."""
LONGEST = 20
"""The length of the last bar, which also counts longer runs."""
TITLES = {
    "figure2": "Figure 2: attention and lengths of phrases per layer",
    "figure3": "Figure 3: gates per layer",
    "figure4_1": "Figure 4, sentence 1",
    "figure4_2": "Figure 4, sentence 2",
    "figure4_3": "Figure 4, sentence 3",
    "optimizers": "Validation curves of the optimisers",
}


def stem_of(folder: Path, figure: str, data: str) -> Path:
    """Returns the path of a figure without its suffix."""
    return folder / (figure if data == reported.DATA else f"{figure}_{data}")


def list_figures(store: Store) -> str:
    """Returns a list of the figures that exist, in Markdown."""
    titles = {}
    for data, label in NAMES.items():
        for figure, title in TITLES.items():
            kind, underscore, number = figure.partition("_")
            stem = stem_of(store.folder, kind, data).name + underscore + number
            if data == reported.DATA:
                titles[stem] = title
            elif (store.folder / f"{stem}.png").exists():
                titles[stem] = f"{title} ({label})"
    return figure_links(store, titles)


def draw(job: Job) -> None:
    """Draws the figure of a command, for each data set. Raises ValueError if a record lacks the
    values of the figure."""
    figure = job.options.what
    for data in job.data:
        stem = stem_of(job.options.results, figure, data)
        if figure == "optimizers":
            stems = _optimizers(job, data, stem)
        else:
            record = _record(job.store, data)
            title = f"AGT on {NAMES[data]}, seed {record['seed']}"
            stems = {"figure2": _figure2, "figure3": _figure3, "figure4": _figure4}[figure](
                record, stem, title
            )
        for path in stems:
            say(f"wrote {path}.png and .svg")


def _record(store: Store, data: str) -> Record:
    """Returns the record of the best seed of AGT; raises ValueError if it has no layers."""
    record = layer_tables.best_run(store, data)
    if record is None or not record.get("layers"):
        raise ValueError(
            f"{store.folder} must have a record of AGT on {data} with its layers, got none: train "
            "it with python -m experiments.agt.tables table1"
        )
    return record


def _examples(record: Record, data: str) -> Records:
    """Returns the example sentences of a record; raises ValueError if it has none."""
    if not record.get("examples"):
        raise ValueError(
            f"the test set of {data} must have a sentence of the paper's figures, got none"
        )
    return record["examples"]


def _figure2(record: Record, stem: Path, title: str) -> list[Path]:
    """Draws attention and lengths of runs per layer of a record."""
    layers = record["layers"]
    attention, runs = in_unit(layers["attention"]), of_lengths(layers["runs"], LONGEST)
    longer = above_first(runs)
    # An untrained network may select no word at all.
    phrases = longer.counts.sum() / max(runs.counts.sum(), 1)
    above = f"r > {attention.edges[1]:g}"
    lengths = {"words side by side with r > 0.95": runs, "the same, two or more": longer}
    if phrases < NO_PHRASES:
        above += f"; runs above 0.95: {1 - phrases:.1%} one word"
        lengths = {}
    panels = {"rescaled attention r of a word": attention, above: above_first(attention), **lengths}
    analysis.plot_layer_histograms(
        panels, stem, title=f"How much attention each layer gives a word ({title})"
    )
    return [stem]


def _figure3(record: Record, stem: Path, title: str) -> list[Path]:
    """Draws the gates per layer of a record."""
    gates = in_unit(record["layers"]["gates"])
    panels = {"gate, all test sentences": gates}
    if record.get("examples"):
        first = record["examples"][0]
        panels[f"gate, example sentence {first['number']}"] = in_unit(first["gates"])
    # The first layer has no gate, because no layer is below it.
    names = [f"L{i + 2}" for i in range(len(gates.counts))]
    heading = f"How open gates are ({title})"
    analysis.plot_layer_histograms(panels, stem, title=heading, layers=names)
    return [stem]


def _figure4(record: Record, stem: Path, title: str) -> list[Path]:
    """Draws the attention in each example sentence of a record; `stem` begins the paths."""
    stems = []
    for example in _examples(record, record["data"]):
        stems.append(stem.with_name(f"{stem.name}_{example['number']}"))
        analysis.plot_word_layers(
            example["tokens"],
            np.asarray(example["attention"]),
            stems[-1],
            title=f"Selected words: {example['label']}, predicted {example['predicted']}",
        )
    return stems


def _optimizers(job: Job, data: str, stem: Path) -> list[Path]:
    """Draws the validation curves of the optimiser presets; returns the paths without suffix."""
    records = {
        job.paper.variants[name].title: job.store.all(data, job.paper.record_name(data, name))
        for name in job.paper.tables["optimizers"].variants
    }
    lines = panels(records, "curve", {"validation accuracy": 2, "validation loss": 1})
    analysis.plot_lines(
        lines, stem, xlabel="step", title=f"AGT learns by optimizer ({NAMES[data]})"
    )
    return [stem]


def show_selected(job: Job) -> None:
    """Prints the words of the paper's layer, and writes a page that marks them in the sentences.
    The page is written to the work folders and not to the results, because its texts belong to the
    data set."""
    for data in job.data:
        examples, record = [], _record(job.store, data)
        for example in _examples(record, data):
            attention = np.asarray(example["attention"])
            # A network may have fewer layers than the paper's.
            layer = min(reported.SELECTION_LAYER, len(attention))
            r = attention[layer - 1]
            caption = (
                f"sentence {example['number']}, layer {layer}: label {example['label']}, predicted "
                f"{example['predicted']}"
            )
            marked = (r > reported.THRESHOLD).astype(np.float64)
            examples.append((caption, example["tokens"], r, marked))
        path = stem_of(job.options.runs, "selected", data).with_suffix(".html")
        title = f"Words that AGT selects: {NAMES[data]} test sentences"
        analysis.write_html(path, analysis.highlight_html(examples, title))
        say(f"wrote {path}")
        for text in (layer_tables.selected_words, layer_tables.trace):
            say(text(record, data))


def first_words(job: Job) -> None:
    """Prints the most frequent words of the first layer."""
    for data in job.data:
        say(layer_tables.body(layer_tables.first_words, data, job.store))
