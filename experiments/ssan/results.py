"""Records of this paper's runs; see `experiments.common.records`."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.common import records
from experiments.common.records import RESULTS
from experiments.common.records import public_config as public_config
from experiments.ssan.config import RunConfig

DEFAULT = RESULTS / "ssan"
RECORD = ("config", "seed", "system", "validation", "test", "test_n")
"""What every record has."""


def same(saved: Any, config: RunConfig) -> bool:
    """Whether a record's configuration is this one."""
    make: Callable[[], RunConfig] = type(config)  # of a data set, with defaults for all
    return records.same_run(saved, config, make())


@dataclasses.dataclass(frozen=True)
class Store(records.Store):
    """The run records of this paper."""

    folder: Path = DEFAULT
    keys: tuple[str, ...] = RECORD
