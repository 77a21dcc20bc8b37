"""Records of this paper's runs; see `experiments.common.records`."""

import dataclasses
from pathlib import Path
from typing import Any

from experiments.agt.config import Config
from experiments.common import records
from experiments.common.records import RESULTS
from experiments.common.records import best as best
from experiments.common.records import public_config as public_config

DEFAULT = RESULTS / "agt"
RECORD = ("config", "seed", "system", "validation", "test", "test_n", "correct")
"""What every record has."""


def same(saved: Any, config: Config) -> bool:
    """Whether a record's configuration is this one."""
    return records.same_run(saved, config, Config())


@dataclasses.dataclass(frozen=True)
class Store(records.Store):
    """The run records of this paper."""

    folder: Path = DEFAULT
    keys: tuple[str, ...] = RECORD
