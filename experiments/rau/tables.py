"""Reproduces the paper's tables and figures: `python -m experiments.rau.tables table1`."""

import dataclasses
import functools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import tyro

from experiments.core import cells
from experiments.core.cells import Cell
from experiments.core.cli import TABLE_OPTIONS, fail, parse_many, refusals
from experiments.core.records import differences, jsonable, read_json
from experiments.rau import paper
from experiments.rau.config import PRESETS, CellName, Config, PresetName
from experiments.rau.results import DEFAULT, Store, public_config
from gatedjax._terminal import say
from gatedjax.functional import RAUAttention

What = Literal[
    "table1",
    "table2",
    "table3",
    "table4",
    "figure3",
    "figure4",
    "figure5",
    "figure6",
    "figure7",
    "learning_rates",
    "variants",
    "matched",
    "render",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TablesConfig:
    """What to reproduce, on which data, and with how many seeds."""

    what: tyro.conf.Positional[What]
    """table1: test accuracy or perplexity of every cell; table2: settings and parameter counts;
    table3: MNIST error beside quoted rows; table4: settings of PTB; figure3 and
    figure4: sample images of MNIST and Fashion-MNIST; figure5: validation curves of
    Fashion-MNIST; figure6: of PTB; figure7: training curves of IMDB; learning_rates: those that
    the paper tried on IMDB; variants: forms of the attention on MNIST; matched: RAU and LSTM as
    small as the GRU; render: only rewrite RESULTS.md from the finished runs. table2 and table4
    train nothing."""
    data: tuple[PresetName, ...] = ()
    """Data sets, by preset (default: those of the paper's table or figure)."""
    cells: tuple[CellName, ...] = ("rau", "gru", "lstm")
    """Cells to train."""
    forms: tuple[RAUAttention, ...] = tuple(f for f in paper.FORMS if f not in paper.HEAVY_FORMS)
    """Forms of the attention that variants trains; the default leaves out matrix, whose weights
    are a matrix [H, D + H] per example and step."""
    hidden: int | None = None
    """table1: another width of the state, such as 28 (the paper's Table 2), in rows of its own."""
    learning_rate: float | None = None
    """table1: another learning rate, in rows of its own; figure7: the runs to draw (default: 1e-5,
    as in the paper)."""
    seeds: int = 3
    """Runs per cell, with seeds 0, 1, ..."""
    data_dir: str | None = None
    """Where prepared TFDS data sets are."""
    manual_dir: str | None = None
    """Folder with the raw files, to work without a network."""
    num_steps: int | None = None
    """Steps per run (default: the preset's)."""
    results: Path = DEFAULT
    """Where records, figures and RESULTS.md are written."""
    runs: Path = Path("runs/rau/tables")
    """Work folders of the runs; an interrupted run continues from here."""
    rerun: bool = False
    """Run again, from the start, what has a record or a work folder."""
    cpu_devices: int | None = None
    """CPU devices to split a batch over (default: one per core)."""


def run_config(
    options: TablesConfig, data: str, seed: int, learning_rate: float | None = None, **model: Any
) -> Config:
    """The configuration of one run: the preset with the table's cell and seed."""
    preset = PRESETS[data]
    paths = {k: v for k in ("data_dir", "manual_dir") if (v := getattr(options, k)) is not None}
    train = dataclasses.replace(preset.train, seed=seed)
    if options.num_steps is not None:
        train = dataclasses.replace(train, num_steps=options.num_steps)
    if learning_rate is not None:
        optimizer = dataclasses.replace(train.optimizer, learning_rate=learning_rate)
        train = dataclasses.replace(train, optimizer=optimizer)
    return dataclasses.replace(
        preset,
        data=dataclasses.replace(preset.data, **paths),
        model=dataclasses.replace(preset.model, **model),
        train=train,
        cpu_devices=options.cpu_devices,
    )


def cell_of(
    options: TablesConfig,
    data: str,
    variant: str,
    learning_rate: float | None = None,
    **model: Any,
) -> Cell:
    """One cell of a table: every seed of a network on a data set."""
    configs = {
        seed: run_config(options, data, seed, learning_rate, **model)
        for seed in range(options.seeds)
    }
    return Cell(data, variant, configs)


def run_cells(options: TablesConfig, wanted: Iterable[Cell]) -> None:
    """Runs every seed of the cells that has no record yet; refuses records of other settings."""
    from experiments.rau.data import substitute
    from experiments.rau.run import run

    store = Store(options.results)
    runner = cells.Runner(
        store,
        options.runs,
        public_config,
        run,
        substitute,
        rerun=options.rerun,
        known=functools.partial(_twin, store),
    )
    cells.run_cells(runner, wanted)


def _twin(store: Store, cell: Cell, seed: int, config: Config) -> Any:
    """The record of the same run under the name of another table, or None."""
    wanted = jsonable(public_config(config))
    for other in store.variants(cell.data):
        path = store.path(cell.data, other, seed)
        if other != cell.variant and path.exists():
            record = read_json(path, *store.keys)
            if not differences(record["config"], wanted, store.default(cell.data)):
                return record
    return None


def chosen(options: TablesConfig, *names: PresetName) -> list[str]:
    """The data sets to run: as given, or these."""
    return list(options.data or names)


def classifiers(options: TablesConfig, *names: PresetName) -> list[str]:
    """As `chosen`, without language models."""
    for name in options.data:
        if name in paper.LANGUAGE:
            fail(f"{options.what} is for classifiers, not for --data {name}")
    return chosen(options, *names)


def cells_of(options: TablesConfig) -> Iterator[Cell]:
    """The cells that a table or figure needs."""
    what = options.what
    if what == "table1":
        for data in chosen(options, *paper.CLASSIFICATION, *paper.LANGUAGE):
            for cell in options.cells:
                if options.hidden is not None:
                    name = f"{cell}_hidden{options.hidden}"
                    yield cell_of(options, data, name, cell=cell, hidden=options.hidden)
                elif options.learning_rate is not None:
                    rate = options.learning_rate
                    yield cell_of(options, data, paper.rate_variant(cell, rate), rate, cell=cell)
                else:
                    yield cell_of(options, data, cell, cell=cell)
    elif what in ("table3", "figure5", "figure6"):
        own: dict[str, PresetName] = {
            "table3": "mnist",
            "figure5": "fashion_mnist",
            "figure6": "ptb_medium",
        }
        for data in chosen(options, own[what]):
            for cell in options.cells:
                yield cell_of(options, data, cell, cell=cell)
    elif what in ("learning_rates", "figure7"):
        rates = tuple(paper.LEARNING_RATES.values())
        if what == "figure7":
            rates = (options.learning_rate or paper.FIGURE7_RATE,)
        for data in classifiers(options, "imdb"):
            for rate in rates:
                for cell in options.cells:
                    yield cell_of(options, data, paper.rate_variant(cell, rate), rate, cell=cell)
    elif what == "variants":
        heavy = [form for form in paper.HEAVY_FORMS if form not in options.forms]
        for form in heavy:
            say(f"{form}: left out, it is heavy on memory; --forms {form} runs it", flush=True)
        for data in classifiers(options, "mnist"):
            for form in options.forms:
                for variant, model in paper.variants_of(form).items():
                    yield cell_of(options, data, variant, cell="rau", **model)
    elif what == "matched":
        from experiments.rau.parameters import matched_width

        for data in classifiers(options, "mnist", "fashion_mnist"):
            for cell in options.cells:
                variant = cell if cell == "gru" else f"{cell}_matched"
                yield cell_of(options, data, variant, cell=cell, hidden=matched_width(data, cell))


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = parse_many(TablesConfig, args, "python -m experiments.rau.tables")
    for name, owners in (("hidden", ("table1",)), ("learning_rate", ("table1", "figure7"))):
        if getattr(options, name) is not None and options.what not in owners:
            owner = " and ".join(owners)
            fail(f"--{name.replace('_', '-')} is an option of {owner}, not of {options.what}")
    if options.hidden is not None and options.learning_rate is not None:
        fail("--hidden and --learning-rate make rows of their own each: give one of them")

    from experiments.core.hardware import prepare_cpu
    from experiments.rau import figures, render, settings

    prepare_cpu(options.cpu_devices)
    store = Store(options.results)
    with refusals(TABLE_OPTIONS):
        run_cells(options, cells_of(options))
        if options.what in ("figure3", "figure4"):
            figures.samples(options)
        if options.what in ("figure5", "figure6", "figure7"):
            figures.draw(options)
        render.write(store)
        if options.what in ("table2", "table4"):
            say(getattr(settings, options.what)())
    return 0


if __name__ == "__main__":
    sys.exit(main())
