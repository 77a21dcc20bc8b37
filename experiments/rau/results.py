"""Records of this paper's runs; see `experiments.core.records`."""

import dataclasses
from pathlib import Path
from typing import Any

from experiments.core import records
from experiments.core.records import RESULTS, jsonable
from experiments.core.records import public_config as public_config
from experiments.rau.config import Config, DataConfig
from gatedjax.models import RAUConfig

DEFAULT = RESULTS / "rau"
RECORD = ("config", "seed", "cell", "validation", "test", "test_n")
"""What every record has; a classifier's also "correct", a language model's "test_nll"."""


@dataclasses.dataclass(frozen=True)
class Store(records.Store):
    """The run records of this paper."""

    folder: Path = DEFAULT
    keys: tuple[str, ...] = RECORD

    def default(self, data: str) -> dict[str, Any]:
        """See `records.Store`."""
        del data
        return jsonable(public_config(Config(data=DataConfig(), model=RAUConfig())))
