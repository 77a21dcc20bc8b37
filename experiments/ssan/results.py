"""Records of this paper's runs; see `experiments.core.records`."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.core import records
from experiments.core.records import RESULTS, jsonable
from experiments.core.records import public_config as public_config
from experiments.ssan.config import RunConfig
from experiments.ssan.presets import PRESETS

DEFAULT = RESULTS / "ssan"
RECORD = ("config", "seed", "system", "validation", "test", "test_n")
"""What every record has."""


@dataclasses.dataclass(frozen=True)
class Store(records.Store):
    """The run records of this paper."""

    folder: Path = DEFAULT
    keys: tuple[str, ...] = RECORD

    def default(self, data: str) -> dict[str, Any]:
        """See `records.Store`."""
        if data not in PRESETS:
            return {}
        make: Callable[[], RunConfig] = type(PRESETS[data])  # of its kind, with defaults for all
        return jsonable(public_config(make()))
