"""Records of this paper's runs; see `experiments.common.records`."""

import dataclasses
from pathlib import Path
from typing import Any

from experiments.common import records
from experiments.common.records import RESULTS, jsonable
from experiments.ga_reader.config import Config, DataConfig
from gatedjax.models import GAReaderConfig

DEFAULT = RESULTS / "ga_reader"
RECORD = ("config", "seed", "data", "validation", "test", "test_n", "correct")
"""What every record has."""
PASSING = ("exit_code", "signal")
"""What only the command that ran it needs to know."""


def public_config(config: Config) -> dict[str, Any]:
    """The configuration without what belongs to one machine (folders)."""
    recorded = dataclasses.asdict(config)
    data = recorded["data"]
    data.pop("data_dir")
    data.pop("manual_dir")
    data["embeddings"] = Path(data["embeddings"]).name.removesuffix(".gz")
    kept = ("epochs", "halve_after", "patience_epochs", "data", "model", "train")
    return {name: recorded[name] for name in kept}


def same(saved: Any, config: Config) -> bool:
    """Whether a record's configuration is this one."""
    default = public_config(Config(data=DataConfig(), model=GAReaderConfig()))
    wanted = jsonable(public_config(config))
    return records.same_config(saved, wanted, data=default["data"], model=default["model"])


def saved_record(record: dict[str, Any]) -> dict[str, Any]:
    """The record as it is written to a file."""
    return {key: value for key, value in record.items() if key not in PASSING}


def best(found: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The record of the seed that is best in validation; the smallest seed of equals."""
    return max(found, key=lambda record: record["validation"]["accuracy"]) if found else None


@dataclasses.dataclass(frozen=True)
class Store(records.Store):
    """The run records of this paper."""

    folder: Path = DEFAULT
    keys: tuple[str, ...] = RECORD
