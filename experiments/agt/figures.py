"""Figures 2 to 4 and the validation curves of the optimisers, drawn from the records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.agt import paper
from experiments.agt.cells import NAMES
from experiments.agt.layer_sections import chosen
from experiments.agt.layers import in_unit, of_lengths, without_words
from experiments.agt.results import Store
from experiments.core.curves import points
from gatedjax import analysis
from gatedjax._terminal import say

if TYPE_CHECKING:
    from experiments.agt.tables import TablesConfig

LONGEST = 20
"""Runs that are longer share the last bar."""


def stem_of(folder: Path, what: str, data: str) -> Path:
    """Where a figure is, without its suffix; the paper's data set goes without saying."""
    return folder / (what if data == paper.DATA else f"{what}_{data}")


def draw(options: TablesConfig, data: str) -> list[Path]:
    """Draws the figure that a command asked for; returns the PNGs.

    Raises:
      ValueError: if the record does not have what the figure shows.
    """
    store = Store(options.results)
    stem = stem_of(options.results, options.what, data)
    stem.parent.mkdir(parents=True, exist_ok=True)
    if options.what == "optimizers":
        stems = _optimizers(store, data, stem)
    else:
        record = _record(store, data)
        title = f"AGT on {NAMES[data]}, seed {record['seed']}"
        drawn = {"figure2": _figure2, "figure3": _figure3, "figure4": _figure4}
        stems = drawn[options.what](record, stem, title)
    for one in stems:
        say(f"wrote {one}.png and .svg", flush=True)
    return [one.with_name(f"{one.name}.png") for one in stems]


def _record(store: Store, data: str) -> dict[str, Any]:
    record = chosen(store, data)
    if record is None or not record.get("layers"):
        raise ValueError(f"{store.folder} has no record of AGT on {data} with its layers")
    return record


def _examples(record: dict[str, Any], data: str) -> list[dict[str, Any]]:
    if not record.get("examples"):
        raise ValueError(f"the test set of {data} has none of the paper's three sentences")
    return record["examples"]


def _figure2(record: dict[str, Any], stem: Path, title: str) -> list[Path]:
    layers = record["layers"]
    runs = of_lengths(layers["runs"], LONGEST)
    analysis.plot_layer_histograms(
        {
            "rescaled attention r of a word": in_unit(layers["attention"]),
            "words side by side with r > 0.95": runs,
            "the same, two or more": without_words(runs),
        },
        stem,
        title=f"{title}: test sentences",
    )
    return [stem]


def _figure3(record: dict[str, Any], stem: Path, title: str) -> list[Path]:
    gates = in_unit(record["layers"]["gates"])
    panels = {"gate, all test sentences": gates}
    if record.get("examples"):
        first = record["examples"][0]
        panels[f"gate, example sentence {first['number']}"] = in_unit(first["gates"])
    names = [f"L{i + 2}" for i in range(len(gates.counts))]
    analysis.plot_layer_histograms(panels, stem, title=title, layers=names)
    return [stem]


def _figure4(record: dict[str, Any], stem: Path, title: str) -> list[Path]:
    stems = []
    for example in _examples(record, record["data"]):
        one = stem.with_name(f"{stem.name}_{example['number']}")
        analysis.plot_word_layers(
            example["tokens"],
            np.asarray(example["attention"]),
            one,
            title=f"{title}: label {example['label']}, predicted {example['predicted']}",
        )
        stems.append(one)
    return stems


def _optimizers(store: Store, data: str, stem: Path) -> list[Path]:
    from experiments.agt.config import OPTIMIZERS
    from experiments.agt.variants import optimizer_variant

    panels = {"validation accuracy": 2, "validation loss": 1}
    series = {
        measure: {
            name: points(store.all(data, optimizer_variant(data, name)), "curve", column)
            for name in OPTIMIZERS
        }
        for measure, column in panels.items()
    }
    analysis.plot_lines(series, stem, xlabel="step", title=f"AGT on {NAMES[data]}")
    return [stem]


def page(options: TablesConfig, data: str) -> Path:
    """Writes the example sentences with the words of the paper's layer marked, as HTML.

    The texts belong to the data set: the page stays beside the runs, outside the results.
    """
    record = _record(Store(options.results), data)
    examples = []
    for example in _examples(record, data):
        attention = np.asarray(example["attention"])
        layer = min(paper.SELECTION_LAYER, len(attention))
        r = attention[layer - 1]
        caption = (
            f"sentence {example['number']}, layer {layer}: label {example['label']}, predicted "
            f"{example['predicted']}"
        )
        marked = (r > paper.THRESHOLD).astype(np.float64)
        examples.append((caption, example["tokens"], r, marked))
    path = stem_of(options.runs, "selected", data).with_suffix(".html")
    path.parent.mkdir(parents=True, exist_ok=True)
    title = f"Words that AGT selects: {NAMES[data]} test sentences"
    analysis.write_html(path, analysis.highlight_html(examples, title))
    say(f"wrote {path}", flush=True)
    return path
