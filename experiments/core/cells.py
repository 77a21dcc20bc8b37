"""Which runs of a table are missing, and running them."""

import dataclasses
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from experiments.core.curves import stop_message
from experiments.core.experiment import Place, Run, lanes_that_fit, run, run_lanes
from experiments.core.origins import origin_of
from experiments.core.paper import Cell, Config, Job, Paper
from experiments.core.records import (
    SEED,
    Difference,
    Record,
    Records,
    differences,
    read_json,
    saved_record,
    write_json,
)
from gatedjax._terminal import say

Missing = list[tuple[int, Config]]
"""Seeds and configurations with work folders."""


def _other(job: Job, cell: Cell, record: Record, config: Config) -> list[Difference]:
    """The settings in which a record is not the run of a configuration."""
    return differences(record["config"], job.paper.recorded(config), job.store.default(cell.data))


def check_cells(job: Job, cells: Iterable[Cell]) -> None:
    """Refuses runs beside records of another kind, before anything is trained or written.

    A record of other settings is only replaced where that is asked for, and the records of a cell
    must be of one configuration and of the same data when all runs are done.

    Raises:
      ValueError: naming the setting, what the record has and what was asked for.
    """
    for cell in cells:
        staying: Records = []
        for record in job.store.read(cell.data, cell.variant):
            seed = record["seed"]
            asked = seed in cell.configs
            if asked and job.options.rerun:
                continue  # it is replaced
            config = cell.configs[seed] if asked else next(iter(cell.configs.values()))
            other = _other(job, cell, record, config)
            _refuse(cell, record, [one for one in other if asked or one.field != SEED], asked)
            staying.append(record)
        new = [
            config
            for seed, config in cell.configs.items()
            if all(record["seed"] != seed for record in staying)
        ]
        if staying and new:
            substitute = job.paper.experiment(new[0]).substitute
            planned = {"data": staying[0].get("data"), "substitute": substitute}
            old, origin = origin_of(staying[0]), origin_of(planned)
            if old != origin:
                difference = Difference("the origin of the data", old, origin)
                _refuse(cell, staying[0], [difference], False)


def _refuse(cell: Cell, record: Record, other: list[Difference], asked: bool) -> None:
    if not other:
        return
    one, more = other[0], len(other) - 1
    rest = f" (and {more} more)" if more else ""
    replace = "--rerun" if asked else "--rerun with its seed among --seeds"
    raise ValueError(
        f"{cell.data}, {cell.variant}: the record of seed {record['seed']} has {one.field} "
        f"{one.recorded}, wanted {one.wanted}{rest}; keep it and give another folder "
        f"(--results DIR), or replace it ({replace})"
    )


def missing_runs(job: Job, cell: Cell) -> Missing:
    """The runs of one cell that have no record yet.

    A finished work folder of the same run, made by the command for one run or by an interrupted
    table, becomes a record. With --rerun every run is missing, and its work folder is removed.
    """
    missing, rerun = [], job.options.rerun
    for seed, config in cell.configs.items():
        path = job.store.path(cell.data, cell.variant, seed)
        if path.exists() and not rerun:
            continue
        workdir = job.options.runs / f"{cell.data}-{cell.variant}-seed{seed}"
        finished = workdir / "results.json"
        if finished.exists() and not rerun:
            record = read_json(finished, *job.store.keys)
            if not _other(job, cell, record, config):
                write_json(path, record)
                continue
        if rerun and workdir.exists():
            # a finished work folder would be taken as it is
            shutil.rmtree(workdir)
        missing.append((seed, dataclasses.replace(config, workdir=str(workdir))))
    return missing


def _without_twins(job: Job, cell: Cell, missing: Missing) -> Missing:
    """Takes the records of runs that another table made under its name; returns the other runs."""
    if job.options.rerun:
        return missing
    left = []
    for seed, config in missing:
        twin = _twin(job, cell, seed, config)
        if twin is None:
            left.append((seed, config))
        else:
            write_json(job.store.path(cell.data, cell.variant, seed), twin)
    return left


def _twin(job: Job, cell: Cell, seed: int, config: Config) -> Record | None:
    """The record of the same run under the name of another table, or None."""
    for other in job.store.variants(cell.data):
        record = job.store.get(cell.data, other, seed) if other != cell.variant else None
        if record is not None and not _other(job, cell, record, config):
            return record
    return None


def run_of(paper: Paper, config: Config, *, test: bool = True) -> Run:
    """Makes the run of a configuration, or takes it from its finished work folder."""
    place = Place(paper.workdir_of(config), paper.recorded(config))
    return run(paper.experiment, config, place, test=test)


def _ended(record: Record) -> None:
    """Exits where a signal ended the run."""
    message = stop_message(record)
    if message is not None:
        say(message, file=sys.stderr)
        sys.exit(record["exit_code"])


def run_cells(job: Job, cells: Iterable[Cell]) -> None:
    """Runs what is missing of the cells, and writes its records; exits where a signal stops a run.

    Raises:
      ValueError: as `check_cells`, before the first run.
    """
    cells = list(cells)
    check_cells(job, cells)
    for cell in cells:
        # before seeds are put side by side: what is there already needs no lane
        missing = _without_twins(job, cell, missing_runs(job, cell))
        for seed, config in _run_together(job, cell, missing):
            path = job.store.path(cell.data, cell.variant, seed)
            say(f"{cell.data}, {cell.variant}, seed {seed}: {config.workdir}", flush=True)
            record = run_of(job.paper, config).record
            if record["stopped"] != "signal":
                write_json(path, saved_record(record))
            _ended(record)


def _run_together(job: Job, cell: Cell, missing: Missing) -> Missing:
    """Trains neighbouring seeds side by side; returns those that must run alone."""
    alone = [one for one in missing if Path(str(one[1].workdir)).exists()]
    fresh = [one for one in missing if one not in alone]
    while fresh:
        first, config = fresh[0]
        count = 1
        while count < min(job.options.lanes, len(fresh)) and fresh[count][0] == first + count:
            count += 1
        if count > 1 and not job.paper.together(config):
            count = 1
        if count > 1:
            count = min(count, lanes_that_fit(job.paper.experiment(config), config.train))
        if count == 1:
            alone.append(fresh.pop(0))
            continue
        name = f"{cell.data}, {cell.variant}, seeds {first} to {first + count - 1}"
        workdir = job.options.runs / f"{cell.data}-{cell.variant}-seeds{first}to{first + count - 1}"
        say(f"{name}: {workdir}", flush=True)
        if job.options.rerun and workdir.exists():
            shutil.rmtree(workdir)
        place = Place(workdir, job.paper.recorded(config))
        runs = run_lanes(job.paper.experiment, config, place, job.paper.recorded, seeds=count)
        for record in (one.record for one in runs):
            if record["stopped"] != "signal":
                path = job.store.path(cell.data, cell.variant, record["seed"])
                write_json(path, saved_record(record))
        _ended(runs[-1].record)
        fresh = fresh[count:]
    return sorted(alone, key=lambda one: one[0])
