"""Two files of which line i of the one belongs to line i of the other, found as one."""

import dataclasses
from pathlib import Path

from gatedjax.data.files._tar import TarPath


@dataclasses.dataclass(frozen=True)
class PairPath:
    """Source and target of a parallel text; where one file is asked for it is the source."""

    source: Path | TarPath
    target: Path | TarPath

    @property
    def suffix(self) -> str:
        """Of the source."""
        return self.source.suffix

    def is_dir(self) -> bool:
        """Only files are read."""
        return False

    def read_bytes(self) -> bytes:
        """Reads the source."""
        return self.source.read_bytes()

    def __str__(self) -> str:
        return str(self.source)
