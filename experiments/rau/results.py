"""Records of this paper's runs; see `experiments.common.records`."""

import dataclasses
from pathlib import Path
from typing import Any

from experiments.common import records
from experiments.common.records import RESULTS, jsonable
from experiments.common.records import public_config as public_config
from experiments.rau.config import Config, DataConfig
from gatedjax.models import RAUConfig

DEFAULT = RESULTS / "rau"
RECORD = ("config", "seed", "cell", "validation", "test", "test_n")
"""What every record has; a classifier's also "correct", a language model's "test_nll"."""
PASSING = ("exit_code", "signal")
"""What only the command that ran it needs to know."""


def same(saved: Any, config: Config) -> bool:
    """Whether a record's configuration is this one."""
    default = public_config(Config(data=DataConfig(), model=RAUConfig()))
    wanted = jsonable(public_config(config))
    return records.same_config(saved, wanted, data=default["data"], model=default["model"])


def saved_record(record: dict[str, Any]) -> dict[str, Any]:
    """The record as it is written to a file."""
    return {key: value for key, value in record.items() if key not in PASSING}


@dataclasses.dataclass(frozen=True)
class Store(records.Store):
    """The run records of this paper."""

    folder: Path = DEFAULT
    keys: tuple[str, ...] = RECORD
