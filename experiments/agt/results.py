"""Records of this paper's runs; see `experiments.core.records`."""

import dataclasses
from pathlib import Path
from typing import Any

from experiments.agt.config import Config
from experiments.core import records
from experiments.core.records import RESULTS, jsonable
from experiments.core.records import best as best
from experiments.core.records import public_config as public_config

DEFAULT = RESULTS / "agt"
RECORD = ("config", "seed", "system", "validation", "test", "test_n", "correct")
"""What every record has."""


@dataclasses.dataclass(frozen=True)
class Store(records.Store):
    """The run records of this paper."""

    folder: Path = DEFAULT
    keys: tuple[str, ...] = RECORD

    def default(self, data: str) -> dict[str, Any]:
        """See `records.Store`."""
        del data
        return jsonable(public_config(Config()))
