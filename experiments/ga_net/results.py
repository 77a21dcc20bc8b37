"""Records of this paper's runs; see `experiments.common.records`."""

import dataclasses
from pathlib import Path

from experiments.common import records
from experiments.common.records import RESULTS
from experiments.common.records import public_config as public_config

DEFAULT = RESULTS / "ga_net"


@dataclasses.dataclass(frozen=True)
class Store(records.Store):
    """The run records of this paper."""

    folder: Path = DEFAULT
