"""Records of this paper's runs; see `experiments.common.records`."""

import dataclasses
from pathlib import Path
from typing import Any

from experiments.common import records
from experiments.common.records import RESULTS, jsonable
from experiments.common.records import public_config as public_config
from experiments.ga_net.config import Config

DEFAULT = RESULTS / "ga_net"


@dataclasses.dataclass(frozen=True)
class Store(records.Store):
    """The run records of this paper."""

    folder: Path = DEFAULT

    def default(self, data: str) -> dict[str, Any]:
        """See `records.Store`."""
        del data
        return jsonable(public_config(Config()))
