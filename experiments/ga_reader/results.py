"""Records of this paper's runs; see `experiments.core.records`."""

import dataclasses
from pathlib import Path
from typing import Any

from experiments.core import records
from experiments.core.records import RESULTS, jsonable
from experiments.core.records import best as best
from experiments.ga_reader.config import Config

DEFAULT = RESULTS / "ga_reader"
RECORD = ("config", "seed", "data", "validation", "test", "test_n", "correct")
"""What every record has."""
MORE = ("epochs", "halve_after", "patience_epochs")
"""What makes a run what it is, beside its data, model and train."""


def public_config(config: Config) -> dict[str, Any]:
    """The configuration without what belongs to one machine (folders)."""
    return records.public_config(config, *MORE)


@dataclasses.dataclass(frozen=True)
class Store(records.Store):
    """The run records of this paper."""

    folder: Path = DEFAULT
    keys: tuple[str, ...] = RECORD

    def default(self, data: str) -> dict[str, Any]:
        """See `records.Store`."""
        del data
        return jsonable(public_config(Config()))
