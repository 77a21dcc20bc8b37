"""Which runs of a table are missing."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.common.records import Store, read_json, write_json


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
