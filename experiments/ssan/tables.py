"""Reproduces the paper's tables: `python -m experiments.ssan.tables table2`."""

import dataclasses
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import tyro

from experiments.core import cells as common
from experiments.core.cells import Cell
from experiments.core.cli import TABLE_OPTIONS, fail, parse_many, preset_named, refusals
from experiments.ssan import variants
from experiments.ssan.config import RunConfig, with_budget
from experiments.ssan.presets import PRESETS
from experiments.ssan.results import DEFAULT, Store, public_config
from experiments.ssan.variants import BASE, FULL, VARIANTS
from gatedjax._terminal import say

What = Literal[
    "table1",
    "table2",
    "table3",
    "table4",
    "table5",
    "table6",
    "table7",
    "figure2",
    "figure3",
    "figure4",
    "figure5",
    "figure6",
    "modes",
    "sharing",
    "temperature",
    "selection_rate",
    "neighbours",
    "render",
]
Mode = Literal["st", "soft", "expect", "reinforce"]


@dataclasses.dataclass(frozen=True)
class Table:
    """What a table needs: data sets, and networks of each."""

    presets: tuple[str, ...]
    variants: tuple[str, ...]


_LAYERS = (BASE, *(f"ssan_layer{n}" for n in variants.LAYERS))
TABLES: dict[str, Table] = {
    "table1": Table(("nli_sick", "srl", "mt_multi30k"), (BASE, FULL)),
    "table2": Table(("bshift",), _LAYERS),
    "table3": Table(("wrd_small", "wrd_published"), _LAYERS),
    "table4": Table(("tree_depth",), (BASE, FULL)),
    "table5": Table(("top_const",), (BASE, FULL)),
    "modes": Table(("bshift",), tuple(variants.MODES)),
    "sharing": Table(("bshift",), tuple(variants.SHARING)),
    "temperature": Table(("bshift",), (BASE, *variants.temperatures())),
    "selection_rate": Table((), ()),
    "render": Table((), ()),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TablesConfig:
    """What to reproduce, on which data, and with how many seeds."""

    what: tyro.conf.Positional[What]
    """table1: inference, semantic roles and translation; table2: BShift without a selector and with
    one in layer 1 to 6; table3: word reordering detection, the same; table4: TreeDepth by depth;
    table5: TopConst by groups of classes; modes: how selections are drawn; sharing: one selection
    for all heads; temperature: of the relaxation. From finished runs and their work folders:
    table6: brackets of trees from attention; table7: attention by part of speech; figure2, figure4:
    attention over the distance; figure3, figure5: attention of a sentence; figure6: its trees;
    selection_rate: what the finished runs select; render: only rewrite RESULTS.md. Without runs:
    neighbours: what a linear classifier of pairs of neighbouring words makes of the probes."""
    data: tuple[str, ...] = ()
    """Data sets, by preset (default: those of the table)."""
    layers: tuple[int, ...] = variants.LAYERS
    """table2, table3: layers that get a selector, one at a time."""
    modes: tuple[Mode, ...] = ("st", "soft", "expect", "reinforce")
    """modes: which."""
    layer: int = 1
    """table6, table7, figures: layer of the encoder whose attention is shown."""
    head: int | None = None
    """table6, table7, figures: its head, from 0 (default: the mean over heads)."""
    sentence: int = 0
    """figure3, figure5, figure6: which of the sentences of 8 to 14 words."""
    seeds: int = 1
    """Runs per cell, with seeds 0, 1, ..."""
    num_steps: int | None = None
    """Steps per run (default: the preset's); warm-up and evaluations become as many fewer."""
    data_dir: str | None = None
    """Where prepared TFDS data sets are."""
    manual_dir: str | None = None
    """Folder with the raw files, to work without a network."""
    embeddings: str | None = None
    """table1: GloVe file for inference and semantic roles (default: random vectors)."""
    note: str | None = None
    """What the files are, if not the published ones; tables name it."""
    results: Path = DEFAULT
    """Where records, figures and RESULTS.md are written."""
    runs: Path = Path("runs/ssan/tables")
    """Work folders of the runs; an interrupted run continues from here."""
    rerun: bool = False
    """Run again, from the start, what has a record or a work folder."""
    cpu_devices: int | None = None
    """CPU devices to split a batch over (default: one per core)."""


def run_config(options: TablesConfig, data: str, seed: int, **model: Any) -> RunConfig:
    """The configuration of one run: the preset with the table's seed, budget and changes."""
    preset = PRESETS[data]
    given = {
        name: value
        for name in ("data_dir", "manual_dir", "note")
        if (value := getattr(options, name)) is not None
    }
    if options.embeddings is not None and hasattr(preset.data, "embeddings"):
        given["embeddings"] = options.embeddings
        model = width_of_file(options, preset) | model
    train = dataclasses.replace(preset.train, seed=seed)
    if options.num_steps is not None:
        train = with_budget(train, options.num_steps)
    return dataclasses.replace(
        preset,
        data=dataclasses.replace(preset.data, **given),
        model=dataclasses.replace(preset.model, **model),
        train=train,
        cpu_devices=options.cpu_devices,
    )


def width_of_file(options: TablesConfig, preset: RunConfig) -> dict[str, int]:
    """The width of word vectors, where it is not that of the preset."""
    from experiments.core.text import find_embeddings, width_of

    path = find_embeddings(options.embeddings or "none", options.manual_dir)
    width = width_of(path) if path is not None and path.is_file() else None
    if width in (None, preset.model.embedding_dim):
        return {}
    assert width is not None
    own = {"embedding_dim": width}
    return own if preset.preset.startswith("nli") else {**own, "hidden": 2 * width}


def cell_of(options: TablesConfig, data: str, variant: str) -> Cell:
    """One cell of a table: every seed of a network on a data set."""
    changes = VARIANTS[variant][1]
    configs = {seed: run_config(options, data, seed, **changes) for seed in range(options.seeds)}
    return Cell(data, variant, configs)


def run_cells(options: TablesConfig, wanted: Iterable[Cell]) -> None:
    """Runs every seed of the cells that has no record yet; refuses records of other settings."""
    from experiments.ssan.families import build
    from experiments.ssan.run import run

    runner = common.Runner(
        Store(options.results),
        options.runs,
        public_config,
        run,
        lambda config: build(config).substitute,
        rerun=options.rerun,
    )
    common.run_cells(runner, wanted)


def cells(options: TablesConfig) -> list[tuple[str, str]]:
    """(data set, variant) of every cell of the table, as far as the options ask for it."""
    table = TABLES.get(options.what)
    if table is None:
        return []
    layers = {f"ssan_layer{n}" for n in options.layers}
    drawn = {BASE, *(FULL if mode == "st" else f"ssan_{mode}" for mode in options.modes)}
    chosen = [
        variant
        for variant in table.variants
        if not (options.what in ("table2", "table3") and variant != BASE and variant not in layers)
        and not (options.what == "modes" and variant not in drawn)
    ]
    return [(data, variant) for data in options.data or table.presets for variant in chosen]


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = parse_many(TablesConfig, args, "python -m experiments.ssan.tables")
    for name in options.data:
        preset_named(name, PRESETS)
    if unknown := sorted(set(options.layers) - set(variants.LAYERS)):
        fail(f"--layers must be among {variants.LAYERS}, got {unknown}")

    from experiments.core.hardware import prepare_cpu
    from experiments.ssan import analyses, render

    prepare_cpu(options.cpu_devices)
    store = Store(options.results)
    with refusals(TABLE_OPTIONS):
        run_cells(options, [cell_of(options, *cell) for cell in cells(options)])
        if options.what in analyses.ANALYSES:
            analyses.analyse(options, store)
        if options.what in render.SECTIONS:
            say(render.SECTIONS[options.what].body(store))
        render.write(store)
    return 0


if __name__ == "__main__":
    sys.exit(main())
