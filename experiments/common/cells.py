"""Which runs of a table are missing, and running them."""

import dataclasses
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.common.records import Store, read_json, saved_record, write_json
from experiments.common.runs import stop_message
from gatedjax._terminal import say


def missing_runs(
    store: Store,
    runs: Path,
    data: str,
    variant: str,
    configs: dict[int, Any],
    same: Callable[[Any, Any], bool],
    *,
    rerun: bool,
) -> list[tuple[int, Any]]:
    """The runs of one cell that have no record of their configuration yet.

    Args:
      store: the records. A finished work folder of the same run, made by the command for one run
        or by an interrupted table, becomes a record.
      runs: where the work folders are.
      data: the data set's name in the records.
      variant: the name of the cell.
      configs: the configuration of every seed.
      same: (configuration of a record, configuration) -> whether they are the same run.
      rerun: count every run as missing, and remove its work folder.

    Returns:
      Seeds and configurations, with their work folders.
    """
    missing = []
    for seed, config in configs.items():
        existing = store.get(data, variant, seed)
        if existing is not None and same(existing["config"], config) and not rerun:
            continue
        workdir = runs / f"{data}-{variant}-seed{seed}"
        finished = workdir / "results.json"
        if finished.exists() and not rerun:
            record = read_json(finished, *store.keys)
            if same(record["config"], config):
                write_json(store.path(data, variant, seed), record)
                continue
        if rerun and workdir.exists():
            # a finished work folder would be taken as it is
            shutil.rmtree(workdir)
        missing.append((seed, dataclasses.replace(config, workdir=str(workdir))))
    return missing


def run_missing(
    store: Store,
    runs: Path,
    data: str,
    variant: str,
    configs: dict[int, Any],
    same: Callable[[Any, Any], bool],
    run: Callable[[Any], dict[str, Any]],
    *,
    rerun: bool,
    known: Callable[[int, Any], dict[str, Any] | None] = lambda seed, config: None,
) -> None:
    """Runs what is missing of one cell, and writes its records; exits where a signal stops a run.

    Args:
      store, runs, data, variant, configs, same, rerun: see `missing_runs`.
      run: makes the run of a configuration; returns its record.
      known: (seed, configuration) -> a record that another table has of the same run, or None.
    """
    missing = missing_runs(store, runs, data, variant, configs, same, rerun=rerun)
    for seed, config in missing:
        path = store.path(data, variant, seed)
        twin = None if rerun else known(seed, config)
        if twin is not None:
            write_json(path, twin)
            continue
        say(f"{data}, {variant}, seed {seed}: {config.workdir}", flush=True)
        record = run(config)
        if record["stopped"] != "signal":
            write_json(path, saved_record(record))
        message = stop_message(record)
        if message is not None:
            say(message, file=sys.stderr)
            sys.exit(record["exit_code"])
