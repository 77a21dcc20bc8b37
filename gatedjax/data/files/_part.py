"""Some lines of a file, found as a file of their own."""

import dataclasses
from collections.abc import Callable
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class PartPath:
    """The lines of a file that belong to one part, for files that hold all parts.

    Attributes:
      path: the file, plain or .gz.
      part: name of the part, for messages.
      belongs: line -> whether it is of the part.
    """

    path: Path
    part: str
    belongs: Callable[[bytes], bool] = dataclasses.field(compare=False, repr=False)

    @property
    def suffix(self) -> str:
        """None: what is read is unpacked."""
        return ""

    def is_dir(self) -> bool:
        """Only files are read."""
        return False

    def read_bytes(self) -> bytes:
        """Reads the lines."""
        from gatedjax.data.files._lines import read_bytes  # which knows of this class

        lines = read_bytes(self.path).split(b"\n")
        if lines[-1] == b"":
            lines.pop()
        return b"".join(line + b"\n" for line in lines if self.belongs(line))

    def __str__(self) -> str:
        return f"{self.path}[{self.part}]"
