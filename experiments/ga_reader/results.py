"""Records of this paper's runs; see `experiments.common.records`."""

import dataclasses
from pathlib import Path
from typing import Any

from experiments.common import records
from experiments.common.records import RESULTS
from experiments.common.records import best as best
from experiments.ga_reader.config import Config

DEFAULT = RESULTS / "ga_reader"
RECORD = ("config", "seed", "data", "validation", "test", "test_n", "correct")
"""What every record has."""
MORE = ("epochs", "halve_after", "patience_epochs")
"""What makes a run what it is, beside its data, model and train."""


def public_config(config: Config) -> dict[str, Any]:
    """The configuration without what belongs to one machine (folders)."""
    return records.public_config(config, *MORE)


def same(saved: Any, config: Config) -> bool:
    """Whether a record's configuration is this one."""
    return records.same_run(saved, config, Config(), *MORE)


@dataclasses.dataclass(frozen=True)
class Store(records.Store):
    """The run records of this paper."""

    folder: Path = DEFAULT
    keys: tuple[str, ...] = RECORD
