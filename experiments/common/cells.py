"""Which runs of a table are missing, and running them."""

import dataclasses
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from experiments.common.origins import origin_of
from experiments.common.records import (
    SEED,
    Difference,
    Store,
    differences,
    jsonable,
    read_json,
    saved_record,
    write_json,
)
from experiments.common.runs import stop_message
from gatedjax._terminal import say


@dataclasses.dataclass(frozen=True)
class Cell:
    """The runs that one cell of a table needs.

    Attributes:
      data: the data set's name in the records.
      variant: the name of the cell.
      configs: the configuration of every seed.
    """

    data: str
    variant: str
    configs: Mapping[int, Any]


@dataclasses.dataclass(frozen=True)
class Runner:
    """How the cells of a paper are run.

    Attributes:
      store: the records.
      runs: where the work folders are.
      settings: configuration of a run -> what its record has as "config".
      run: makes the run of a configuration; returns its record.
      substitute: reads the data of a run; returns what differs from the paper's data.
      rerun: run again what has a record or a work folder.
      known: (cell, seed, configuration) -> a record that another table has of the same run, or
        None.
    """

    store: Store
    runs: Path
    settings: Callable[[Any], dict[str, Any]]
    run: Callable[[Any], dict[str, Any]]
    substitute: Callable[[Any], str | None]
    rerun: bool = False
    known: Callable[[Cell, int, Any], dict[str, Any] | None] = lambda cell, seed, config: None

    def wanted(self, config: Any) -> Any:
        """The configuration as a record would have it."""
        return jsonable(self.settings(config))

    def other(self, cell: Cell, record: dict[str, Any], config: Any) -> list[Difference]:
        """The settings in which a record is not the run of a configuration."""
        return differences(record["config"], self.wanted(config), self.store.default(cell.data))


def check_cells(runner: Runner, cells: Iterable[Cell]) -> None:
    """Refuses runs beside records of another kind, before anything is trained or written.

    A record of other settings is only replaced where that is asked for, and the records of a cell
    must be of one configuration and of the same data when all runs are done.

    Raises:
      ValueError: naming the setting, what the record has and what was asked for.
    """
    for cell in cells:
        kept = []
        for record in runner.store.read(cell.data, cell.variant):
            seed = record["seed"]
            asked = seed in cell.configs
            if asked and runner.rerun:
                continue  # it is replaced
            config = cell.configs[seed] if asked else next(iter(cell.configs.values()))
            found = runner.other(cell, record, config)
            _refuse(cell, record, [one for one in found if asked or one.field != SEED], asked)
            kept.append(record)
        new = [config for seed, config in cell.configs.items() if not _has(kept, seed)]
        if kept and new:
            made = {"data": kept[0].get("data"), "substitute": runner.substitute(new[0])}
            old, origin = origin_of(kept[0]), origin_of(made)
            if old != origin:
                _refuse(cell, kept[0], [Difference("the origin of the data", old, origin)], False)


def _has(records: list[dict[str, Any]], seed: int) -> bool:
    return any(record["seed"] == seed for record in records)


def _refuse(cell: Cell, record: dict[str, Any], found: list[Difference], asked: bool) -> None:
    if not found:
        return
    one, more = found[0], len(found) - 1
    rest = f" (and {more} more)" if more else ""
    replace = "--rerun" if asked else "--rerun with its seed among --seeds"
    raise ValueError(
        f"{cell.data}, {cell.variant}: the record of seed {record['seed']} has {one.field} "
        f"{one.recorded}, wanted {one.wanted}{rest}; keep it and give another folder "
        f"(--results DIR), or replace it ({replace})"
    )


def missing_runs(runner: Runner, cell: Cell) -> list[tuple[int, Any]]:
    """The runs of one cell that have no record yet, seeds and configurations with work folders.

    A finished work folder of the same run, made by the command for one run or by an interrupted
    table, becomes a record. With `rerun` every run is missing, and its work folder is removed.
    """
    missing = []
    for seed, config in cell.configs.items():
        path = runner.store.path(cell.data, cell.variant, seed)
        if path.exists() and not runner.rerun:
            continue
        workdir = runner.runs / f"{cell.data}-{cell.variant}-seed{seed}"
        finished = workdir / "results.json"
        if finished.exists() and not runner.rerun:
            record = read_json(finished, *runner.store.keys)
            if not runner.other(cell, record, config):
                write_json(path, record)
                continue
        if runner.rerun and workdir.exists():
            # a finished work folder would be taken as it is
            shutil.rmtree(workdir)
        missing.append((seed, dataclasses.replace(config, workdir=str(workdir))))
    return missing


Missing = list[tuple[int, Any]]


def run_cells(
    runner: Runner,
    cells: Iterable[Cell],
    together: Callable[[Cell, Missing], Missing] = lambda cell, missing: missing,
) -> None:
    """Runs what is missing of the cells, and writes its records; exits where a signal stops a run.

    Args:
      runner: how.
      cells: what.
      together: makes some of the missing runs of a cell at once; returns the others.

    Raises:
      ValueError: as `check_cells`, before the first run.
    """
    cells = list(cells)
    check_cells(runner, cells)
    for cell in cells:
        for seed, config in together(cell, missing_runs(runner, cell)):
            path = runner.store.path(cell.data, cell.variant, seed)
            twin = None if runner.rerun else runner.known(cell, seed, config)
            if twin is not None:
                write_json(path, twin)
                continue
            say(f"{cell.data}, {cell.variant}, seed {seed}: {config.workdir}", flush=True)
            record = runner.run(config)
            if record["stopped"] != "signal":
                write_json(path, saved_record(record))
            message = stop_message(record)
            if message is not None:
                say(message, file=sys.stderr)
                sys.exit(record["exit_code"])
