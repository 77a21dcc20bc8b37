"""Reproduces the paper's tables and figures: `python -m experiments.ga_net.tables table2`."""

import dataclasses
import functools
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import tyro

from experiments.common import cells
from experiments.common.cells import Cell
from experiments.common.cli import TABLE_OPTIONS, parse_many, refusals
from experiments.common.records import write_json
from experiments.ga_net import paper
from experiments.ga_net.config import PRESETS, Config, DataName, SystemName, given_paths
from experiments.ga_net.results import DEFAULT, Store, public_config
from gatedjax._terminal import say

What = Literal[
    "table1", "table2", "table3", "table4", "table5", "figure1", "figure4", "figure5", "render"
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TablesConfig:
    """What to reproduce, on which data, and with how many seeds."""

    what: tyro.conf.Positional[What]
    """table1: data statistics; table2: accuracy and density of the four systems; table3: attention
    operations; table4: open words of two IMDB reviews; table5: auxiliary networks; figure1 and
    figure4: heat maps of SST-2 sentences; figure5: auxiliary width; render: only rewrite RESULTS.md
    from the finished runs."""
    data: tuple[DataName, ...] = ()
    """Data sets (default: those of the paper's table or figure)."""
    systems: tuple[SystemName, ...] = tuple(paper.SYSTEMS)
    """Systems of table2 and table3."""
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
    runs: Path = Path("runs/ga_net/tables")
    """Work folders of the runs; an interrupted run continues from here."""
    rerun: bool = False
    """Run again, from the start, what has a record or a work folder."""
    lanes: int = 1
    """Seeds of a cell that are trained side by side in one program; as many of them as fit into
    memory. A cell with a run that was interrupted continues that run alone."""
    cpu_devices: int | None = None
    """CPU devices to split a batch over (default: one per core)."""


def run_config(options: TablesConfig, data: str, seed: int, **model: Any) -> Config:
    """The configuration of one run: the preset with the table's system and seed."""
    preset = PRESETS[data]
    changes = given_paths(options)
    if data == "polarity":
        changes.pop("embeddings", None)
    train = dataclasses.replace(preset.train, seed=seed)
    if options.num_steps is not None:
        train = dataclasses.replace(train, num_steps=options.num_steps)
    return dataclasses.replace(
        preset,
        data=dataclasses.replace(preset.data, **changes),
        model=dataclasses.replace(preset.model, **model),
        train=train,
    )


def cell_of(options: TablesConfig, data: str, variant: str, **model: Any) -> Cell:
    """One cell of a table: every seed of a system on a data set."""
    configs = {seed: run_config(options, data, seed, **model) for seed in range(options.seeds)}
    return Cell(data, variant, configs)


def run_cells(options: TablesConfig, wanted: Iterable[Cell]) -> None:
    """Runs every seed of the cells that has no record yet; refuses records of other settings."""
    from experiments.ga_net.run import run, substitute

    def recorded(config: Config) -> dict[str, Any]:
        result = run(config, prepared_for(config))
        ended = {"stopped": result.fit.stopped, "steps": result.record.get("steps")}
        signal = {"exit_code": result.fit.exit_code, "signal": result.fit.signal}
        return result.record | ended | signal

    runner = cells.Runner(
        Store(options.results),
        options.runs,
        public_config,
        recorded,
        lambda config: substitute(prepared_for(config)),
        rerun=options.rerun,
    )
    together = functools.partial(_run_together, options)
    cells.run_cells(runner, wanted, *([together] if options.lanes > 1 else []))


def _run_together(
    options: TablesConfig, cell: Cell, missing: list[tuple[int, Config]]
) -> list[tuple[int, Config]]:
    """Trains neighbouring seeds side by side; returns those that must run alone."""
    from experiments.ga_net.run import lanes_that_fit, run_lanes

    store, data, variant = Store(options.results), cell.data, cell.variant
    alone = [(seed, config) for seed, config in missing if Path(str(config.workdir)).exists()]
    fresh = [one for one in missing if one not in alone]
    while fresh:
        first, config = fresh[0]
        count = 1
        while count < min(options.lanes, len(fresh)) and fresh[count][0] == first + count:
            count += 1
        count = min(count, lanes_that_fit(config, prepared_for(config)))
        if count == 1:
            alone.append(fresh.pop(0))
            continue
        workdir = options.runs / f"{data}-{variant}-seeds{first}to{first + count - 1}"
        say(f"{data}, {variant}, seeds {first} to {first + count - 1}: {workdir}", flush=True)
        if options.rerun and workdir.exists():
            shutil.rmtree(workdir)
        train = dataclasses.replace(config.train, seeds=count)
        together = dataclasses.replace(config, workdir=str(workdir), train=train)
        for result in run_lanes(together, prepared_for(config)):
            if result.fit.stopped == "signal":
                say("stopped; the same command continues", file=sys.stderr)
                sys.exit(result.fit.exit_code)
            write_json(store.path(data, variant, result.record["seed"]), result.record)
        fresh = fresh[count:]
    return sorted(alone, key=lambda one: one[0])


_PREPARED: dict = {}
"""The data set in use: consecutive runs share it."""


def prepared_for(config: Config) -> Any:
    """The data of a run: that of the run before, if it is the same."""
    from experiments.ga_net import run

    key = (config.data, config.model.embedding_dim)
    if key not in _PREPARED:
        _PREPARED.clear()
        _PREPARED[key] = run.prepare(*key)
    return _PREPARED[key]


def _default(options: TablesConfig, *names: DataName) -> tuple[DataName, ...]:
    return options.data or names


def cells_of(options: TablesConfig) -> Iterator[Cell]:
    """The cells that a table or figure needs."""
    if options.what in ("table2", "table3"):
        for data in _default(options, *paper.DATA):
            for system in options.systems:
                if options.what == "table2" or system in paper.FLOPS:
                    yield cell_of(options, data, system, system=system)
    elif options.what == "table5":
        for data in _default(options, "imdb"):
            for kind in paper.AUXILIARY:
                # the paper's network is the GA-Net of table 2: the same runs
                variant = "ganet" if kind == "lstm" else f"ganet_aux_{kind}"
                yield cell_of(options, data, variant, system="ganet", aux=kind)
    elif options.what == "figure5":
        for data in _default(options, "imdb", "sst1", "trec"):
            for width in paper.AUX_WIDTHS:
                same = width == PRESETS[data].model.aux_hidden
                variant = "ganet" if same else f"ganet_width_{width}"
                yield cell_of(options, data, variant, system="ganet", aux_hidden=width)


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = parse_many(TablesConfig, args, "python -m experiments.ga_net.tables")

    from experiments.common.hardware import prepare_cpu
    from experiments.ga_net import figures, render

    prepare_cpu(options.cpu_devices)
    with refusals(TABLE_OPTIONS):
        if options.what == "table1":
            figures.table1(options, _default(options, *paper.DATA))
        run_cells(options, cells_of(options))
        if options.what == "figure5":
            figures.figure5(options, _default(options, "imdb", "sst1", "trec"))
        elif options.what in ("figure1", "figure4"):
            figures.figure4(options)
        elif options.what == "table4":
            figures.table4(options)
        render.write(Store(options.results), options.what)
    return 0


if __name__ == "__main__":
    sys.exit(main())
