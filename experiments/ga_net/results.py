"""Records of this paper's runs; see `experiments.common.records`."""

import dataclasses
from pathlib import Path
from typing import Any

from experiments.common import records
from experiments.common.records import RESULTS
from experiments.ga_net.config import Config

DEFAULT = RESULTS / "ga_net"


def public_config(config: Config) -> dict[str, Any]:
    """The configuration without what belongs to one machine (folders)."""
    recorded = dataclasses.asdict(config)
    data = recorded["data"]
    data.pop("data_dir")
    data.pop("manual_dir")
    data["embeddings"] = Path(data["embeddings"]).name.removesuffix(".gz")
    return {"data": data, "model": recorded["model"], "train": recorded["train"]}


@dataclasses.dataclass(frozen=True)
class Store(records.Store):
    """The run records of this paper."""

    folder: Path = DEFAULT
