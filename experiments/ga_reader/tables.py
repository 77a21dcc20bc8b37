"""Reproduces the paper's tables and figures: `python -m experiments.ga_reader.tables table2`."""

import dataclasses
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import tyro

from experiments.core import cells
from experiments.core.cells import Cell
from experiments.core.cli import TABLE_OPTIONS, fail, parse_many, refusals
from experiments.ga_reader import paper
from experiments.ga_reader.config import PRESETS, Config, PresetName
from experiments.ga_reader.results import DEFAULT, Store, public_config
from experiments.ga_reader.variants import VARIANTS, apply, of_table, with_fraction
from gatedjax._terminal import say

What = Literal[
    "table1",
    "table2",
    "table3",
    "table4",
    "figure2",
    "figure3",
    "statistics",
    "cbt",
    "toy",
    "render",
]
DATA: dict[str, tuple[PresetName, ...]] = {
    "table1": paper.WDW,
    "table2": ("wdw",),
    "table3": paper.CLOZE,
    "table4": ("wdw",),
    "figure2": paper.FIGURE2,
    "figure3": ("wdw",),
    "statistics": (*paper.CLOZE, *paper.WDW),
    "cbt": ("cbt_ne",),
    "toy": ("toy",),
}
"""The data sets of the paper's tables and figures."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TablesConfig:
    """What to reproduce, on which data, and with how many seeds."""

    what: tyro.conf.Positional[What]
    """table1: WDW with fixed or trained word vectors, with and without the feature; table2: gating
    functions and hops; table3: the same readers as table1 on CNN, Daily Mail and CBT; table4:
    ablations; figure2: with and without gating on shares of the training questions; figure3: heat
    maps of attention on validation questions; statistics: counts of the data sets that are here;
    cbt: the readers of tables 2 and 4 at one budget on CBT; toy: two hops and one on the two facts;
    render: only rewrite RESULTS.md from the finished runs. statistics trains nothing; figure3 only
    if there is no run."""
    data: tuple[PresetName, ...] = ()
    """Data sets, by preset (default: those of the paper's table or figure)."""
    variants: tuple[str, ...] = ()
    """Train only these readers of the table, by the names of their records."""
    seeds: int = 3
    """Runs per cell, with seeds 0, 1, ..."""
    data_dir: str | None = None
    """Where prepared TFDS data sets are."""
    manual_dir: str | None = None
    """Folder with the raw files, to work without a network."""
    embeddings: str | None = None
    """GloVe file (default: the preset's); "none" draws all vectors."""
    corpus_vectors: str | None = None
    """Text file in GloVe's form of vectors that were trained on the training documents; without it
    the readers that start from such vectors are not run."""
    num_steps: int | None = None
    """At most so many steps per run (default: the preset's epochs)."""
    hidden: int | None = None
    """Another width of the GRUs, for all readers."""
    batch_size: int | None = None
    """Another batch size, for all readers."""
    fraction: float | None = None
    """Train on this share of the questions; not for figure2, which has its own."""
    max_doc_len: int | None = None
    """Cut documents to so many tokens."""
    learning_rate: float | None = None
    """Another learning rate, for all readers."""
    eval_every: int | None = None
    """Steps between evaluations, and between checkpoints."""
    results: Path = DEFAULT
    """Where records, figures and RESULTS.md are written."""
    runs: Path = Path("runs/ga_reader/tables")
    """Work folders of the runs; an interrupted run continues from here."""
    rerun: bool = False
    """Run again, from the start, what has a record or a work folder."""
    cpu_devices: int | None = None
    """CPU devices to split a batch over (default: one per core)."""


def run_config(
    options: TablesConfig, data: str, variant: str, seed: int, share: int = 100
) -> Config:
    """The configuration of one run: the preset with the table's reader, seed and budget."""
    preset = PRESETS[data]
    names = ["data_dir", "manual_dir", "batch_size", "max_doc_len", "fraction"]
    if data != "toy":
        names.append("embeddings")
    given: dict[str, Any] = {n: v for n in names if (v := getattr(options, n)) is not None}
    if VARIANTS[variant].corpus:
        given["embeddings"] = options.corpus_vectors
    if options.what == "figure2":
        given["fraction"] = share / 100
    train, optimizer = preset.train, preset.train.optimizer
    if options.learning_rate is not None:
        optimizer = dataclasses.replace(optimizer, learning_rate=options.learning_rate)
    budget: dict[str, Any] = {"seed": seed, "optimizer": optimizer}
    if options.num_steps is not None:
        budget["num_steps"] = options.num_steps
    if options.eval_every is not None:
        budget["eval_every"] = budget["checkpoint_every"] = options.eval_every
        budget["log_every"] = min(train.log_every, options.eval_every)
    config = apply(preset, variant)
    model = config.model
    if options.hidden is not None:
        model = dataclasses.replace(model, hidden=options.hidden)
    return dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, **given),
        model=model,
        train=dataclasses.replace(train, **budget),
        cpu_devices=options.cpu_devices,
    )


def cell_of(options: TablesConfig, data: str, variant: str, share: int = 100) -> Cell:
    """One cell of a table: every seed of a reader on a data set."""
    configs = {
        seed: run_config(options, data, variant, seed, share) for seed in range(options.seeds)
    }
    return Cell(data, with_fraction(variant, share), configs)


def run_cells(options: TablesConfig, wanted: Iterable[Cell]) -> None:
    """Runs every seed of the cells that has no record yet; refuses records of other settings."""
    from experiments.ga_reader.data import prepare
    from experiments.ga_reader.run import run, substitute

    runner = cells.Runner(
        Store(options.results),
        options.runs,
        public_config,
        run,
        lambda config: substitute(config, prepare(config.data, config.model.embedding_dim)),
        rerun=options.rerun,
    )
    cells.run_cells(runner, wanted)


def chosen(options: TablesConfig, data: str) -> tuple[str, ...]:
    """The readers of a table on a data set that were asked for."""
    known = of_table(options.what, data)
    for name in options.variants:
        if name not in known:
            fail(f"{options.what} on {data} has no reader {name!r}; it has {', '.join(known)}")
    return options.variants or known


def cells_of(options: TablesConfig) -> Iterator[Cell]:
    """The cells that a table or figure needs."""
    what, store = options.what, Store(options.results)
    if what in ("render", "statistics"):
        return
    for data in options.data or DATA[what]:
        if what == "figure3":
            from experiments.ga_reader.figures import workdir_of

            if options.rerun or workdir_of(options, store, data) is None:
                yield cell_of(options, data, of_table("cbt", data)[0])
            continue
        for variant in chosen(options, data):
            for share in paper.FRACTIONS if what == "figure2" else (100,):
                if VARIANTS[variant].corpus and options.corpus_vectors is None:
                    name = with_fraction(variant, share)
                    say(f"{data}, {name}: left out, it needs --corpus-vectors", flush=True)
                else:
                    yield cell_of(options, data, variant, share)


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = parse_many(TablesConfig, args, "python -m experiments.ga_reader.tables")
    if options.variants and (options.what not in DATA or options.what in ("figure3", "statistics")):
        fail(f"--variants is not an option of {options.what}")
    if options.fraction is not None and options.what == "figure2":
        fail("--fraction is not an option of figure2, which trains on its own shares")

    from experiments.core.hardware import prepare_cpu
    from experiments.ga_reader import figures, render, statistics

    prepare_cpu(options.cpu_devices)
    store = Store(options.results)
    with refusals(TABLE_OPTIONS):
        run_cells(options, cells_of(options))
        if options.what == "statistics":
            statistics.count(options, options.data or DATA["statistics"])
        if options.what == "figure2":
            figures.bars(options, options.data or DATA["figure2"])
        if options.what == "figure3":
            for data in options.data or DATA["figure3"]:
                figures.heat_maps(options, data)
        render.write(store)
    return 0


if __name__ == "__main__":
    sys.exit(main())
