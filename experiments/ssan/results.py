"""Records of this paper's runs; see `experiments.common.records`."""

import dataclasses
from pathlib import Path
from typing import Any

from experiments.common import records
from experiments.common.records import RESULTS, jsonable
from experiments.ssan.config import RunConfig

DEFAULT = RESULTS / "ssan"
RECORD = ("config", "seed", "system", "validation", "test", "test_n")
"""What every record has."""
PASSING = ("exit_code", "signal")
"""What only the command that ran it needs to know."""
FOLDERS = ("data_dir", "manual_dir")


def public_config(config: RunConfig) -> dict[str, Any]:
    """The configuration without what belongs to one machine (folders)."""
    recorded = dataclasses.asdict(config)
    data = {name: value for name, value in recorded["data"].items() if name not in FOLDERS}
    return {"data": data, "model": recorded["model"], "train": recorded["train"]}


def same(saved: Any, config: RunConfig) -> bool:
    """Whether a record's configuration is this one."""
    kind: Any = type(config)
    default = public_config(kind())
    wanted = jsonable(public_config(config))
    parts = {part: jsonable(default[part]) for part in ("data", "model")}
    return records.same_config(saved, wanted, **parts)


def saved_record(record: dict[str, Any]) -> dict[str, Any]:
    """The record as it is written to a file."""
    return {key: value for key, value in record.items() if key not in PASSING}


@dataclasses.dataclass(frozen=True)
class Store(records.Store):
    """The run records of this paper."""

    folder: Path = DEFAULT
    keys: tuple[str, ...] = RECORD
