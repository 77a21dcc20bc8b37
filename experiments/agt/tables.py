"""Reproduces the paper's table and figures: `python -m experiments.agt.tables table1`."""

import dataclasses
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import tyro

from experiments.agt import paper, variants
from experiments.agt.config import (
    PRESETS,
    Config,
    OptimizerName,
    PresetName,
    with_optimizer,
)
from experiments.agt.results import DEFAULT, Store, public_config
from experiments.agt.variants import ablation_variant, optimizer_variant
from experiments.core import cells
from experiments.core.cells import Cell
from experiments.core.cli import TABLE_OPTIONS, fail, parse_many, refusals
from gatedjax._terminal import say
from gatedjax.models.agt import AblateMode

What = Literal[
    "table1",
    "ablation",
    "gate_bias",
    "heads",
    "optimizers",
    "figure2",
    "figure3",
    "figure4",
    "selected",
    "first_layer_words",
    "render",
]
FROM_RECORDS = ("figure2", "figure3", "figure4", "selected", "first_layer_words")
"""What needs one trained AGT: any that has a record."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TablesConfig:
    """What to reproduce, on which data, and with how many seeds."""

    what: tyro.conf.Positional[What]
    """table1: test accuracy beside the paper's and quoted rows; ablation: without the selection
    vectors of later layers, and the mean word vector; gate_bias: biases 1, 0 and -1 of the gates at
    the start; heads: one hidden layer before the class layer, or two; optimizers: validation
    curves of the optimiser presets; figure2: attention and lengths of phrases per layer; figure3:
    gates per layer; figure4: words against layers of three sentences; selected: words of one layer
    beside the paper's; first_layer_words: its most frequent ones; render: only rewrite RESULTS.md
    from the finished runs. Figures and lists show the seed that is best in validation; they train
    only if there is no record."""
    data: tuple[PresetName, ...] = ()
    """Data sets, by preset (default: sst1)."""
    optimizers: tuple[OptimizerName, ...] = ("paper", "adadelta_lr1", "adam_5e-4")
    """optimizers: which presets."""
    ablate_modes: tuple[AblateMode, ...] = ("highway",)
    """ablation: what layers without a selection vector become: plain highway layers, or the same
    layers with the last selection vector that is left, or with 0."""
    seeds: int = 3
    """Runs per cell, with seeds 0, 1, ..."""
    data_dir: str | None = None
    """Where prepared TFDS data sets are."""
    manual_dir: str | None = None
    """Folder with the raw files, to work without a network."""
    embeddings: str | None = None
    """GloVe file (default: the preset's); "none" starts from random vectors."""
    num_steps: int | None = None
    """Steps per run (default: the preset's)."""
    results: Path = DEFAULT
    """Where records, figures and RESULTS.md are written."""
    runs: Path = Path("runs/agt/tables")
    """Work folders of the runs, and pages that show texts; an interrupted run continues from
    here."""
    rerun: bool = False
    """Run again, from the start, what has a record or a work folder."""
    cpu_devices: int | None = None
    """CPU devices to split a batch over (default: one per core)."""


def run_config(
    options: TablesConfig, data: str, seed: int, optimizer: str | None = None, **model: Any
) -> Config:
    """The configuration of one run: the preset with the table's seed and changes."""
    from experiments.agt.data import resolved

    preset = PRESETS[data] if optimizer is None else with_optimizer(PRESETS[data], optimizer)
    names = ["data_dir", "manual_dir"]
    if data != "polarity":
        names.append("embeddings")  # of the other data sets: its preset starts random
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    train = dataclasses.replace(preset.train, seed=seed)
    if options.num_steps is not None:
        train = dataclasses.replace(train, num_steps=options.num_steps)
    config = dataclasses.replace(
        preset,
        data=dataclasses.replace(preset.data, **given),
        model=dataclasses.replace(preset.model, **model),
        train=train,
        cpu_devices=options.cpu_devices,
    )
    # the record has the width of the file
    return resolved(config)


def cell_of(
    options: TablesConfig, data: str, variant: str, optimizer: str | None = None, **model: Any
) -> Cell:
    """One cell of a table: every seed of a network on a data set."""
    configs = {
        seed: run_config(options, data, seed, optimizer, **model) for seed in range(options.seeds)
    }
    return Cell(data, variant, configs)


def run_cells(options: TablesConfig, wanted: Iterable[Cell]) -> None:
    """Runs every seed of the cells that has no record yet; refuses records of other settings."""
    from experiments.agt.data import prepare, substitute
    from experiments.agt.run import run

    runner = cells.Runner(
        Store(options.results),
        options.runs,
        public_config,
        run,
        lambda config: substitute(config, prepare(config.data, config.model.embedding_dim)),
        rerun=options.rerun,
    )
    cells.run_cells(runner, wanted)


def cells_of(options: TablesConfig) -> Iterator[Cell]:
    """The cells that a table or figure needs."""
    what, store = options.what, Store(options.results)
    if what == "render":
        return
    for data in options.data or (paper.DATA,):
        if what in FROM_RECORDS:
            if options.rerun or not store.all(data, variants.FULL):
                yield cell_of(options, data, variants.FULL)
            continue
        if what == "optimizers":
            for name in options.optimizers:
                variant = optimizer_variant(data, name)
                own = None if variant == variants.FULL else name
                yield cell_of(options, data, variant, own)
            continue
        # what the variants are compared with
        yield cell_of(options, data, variants.FULL)
        if what == "ablation":
            for variant, (_, model) in variants.ABLATIONS.items():
                if "ablate_above" in model:
                    for mode in options.ablate_modes:
                        named = ablation_variant(variant, mode)
                        yield cell_of(options, data, named, **model, ablate_mode=mode)
                elif model:
                    yield cell_of(options, data, variant, **model)
        elif what == "gate_bias":
            for variant, bias in variants.GATE_BIASES.items():
                if variant != variants.FULL:
                    yield cell_of(options, data, variant, gate_bias=bias)
        elif what == "heads":
            for variant, widths in variants.HEADS.items():
                if variant != variants.FULL:
                    yield cell_of(options, data, variant, head_hidden=widths)


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = parse_many(TablesConfig, args, "python -m experiments.agt.tables")
    for name, owner in (("optimizers", "optimizers"), ("ablate_modes", "ablation")):
        default = getattr(TablesConfig(what="render"), name)
        if getattr(options, name) != default and options.what != owner:
            fail(f"--{name.replace('_', '-')} is an option of {owner}, not of {options.what}")

    from experiments.agt import figures, layer_sections, render
    from experiments.core.hardware import prepare_cpu

    prepare_cpu(options.cpu_devices)
    store = Store(options.results)
    with refusals(TABLE_OPTIONS):
        run_cells(options, cells_of(options))
        data = options.data or (paper.DATA,)
        for name in data:
            if options.what in ("figure2", "figure3", "figure4", "optimizers"):
                figures.draw(options, name)
            elif options.what == "selected":
                figures.page(options, name)
                say(layer_sections.selected(store, name))
                say(layer_sections.trace(store, name))
            elif options.what == "first_layer_words":
                say(layer_sections.first_words(store, name))
        render.write(store)
    return 0


if __name__ == "__main__":
    sys.exit(main())
