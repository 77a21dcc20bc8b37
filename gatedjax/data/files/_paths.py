"""Paths of raw files: in a folder, in an archive, a pair of files, or a part of a file."""

import dataclasses
import io
from collections.abc import Callable, Sequence
from pathlib import Path

from gatedjax.data.files._archives import ArchivePath
from gatedjax.data.files._unpack import open_gzip

BOM = b"\xef\xbb\xbf"


@dataclasses.dataclass(frozen=True)
class PairPath:
    """A pair of files in which line i of the target belongs to line i of the source."""

    source: Path | ArchivePath
    target: Path | ArchivePath

    @property
    def suffix(self) -> str:
        """The ending of the name of the source file with its dot, such as ".gz"."""
        return self.source.suffix

    def read_bytes(self) -> bytes:
        """Returns the content of the source file."""
        return self.source.read_bytes()

    def __str__(self) -> str:
        return str(self.source)


@dataclasses.dataclass(frozen=True)
class PartPath:
    """The lines of a part in a file that has the lines of all parts."""

    path: Path
    part: str
    # Functions are compared by identity, so two equal parts of a file would differ by it.
    belongs: Callable[[bytes], bool] = dataclasses.field(compare=False, repr=False)

    @property
    def suffix(self) -> str:
        """The empty string, because `read_bytes` returns unpacked lines."""
        return ""

    def read_bytes(self) -> bytes:
        """Returns the lines of the part, each with "\\n" at its end."""
        return b"".join(line + b"\n" for line in split_lines(self.path) if self.belongs(line))

    def __str__(self) -> str:
        return f"{self.path}[{self.part}]"


AnyPath = Path | ArchivePath | PairPath | PartPath


def find(folders: Sequence[Path], name: str) -> Path | None:
    """Returns the path of the file `name`, plain or with the ending .gz; None if there is none."""
    for folder in folders:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    return None


def find_pair(folders: Sequence[Path], source: str, target: str) -> PairPath | None:
    """Returns the pair of files, each plain or .gz; raises an error if only one of them exists."""
    first, second = find(folders, source), find(folders, target)
    if first is not None and second is not None:
        return PairPath(first, second)
    if first is not None or second is not None:
        missing = source if first is None else target
        raise FileNotFoundError(f"{first or second}: there is no {missing} next to it")
    return None


def read_bytes(path: AnyPath) -> bytes:
    """Returns the content of a file, unpacked if it is .gz, without a byte-order mark."""
    if path.suffix != ".gz":
        data = path.read_bytes()
    else:
        with (
            path.open("rb") if isinstance(path, Path) else io.BytesIO(path.read_bytes()) as packed,
            open_gzip(packed, path) as file,
        ):
            data = file.read()
    # Programs on Windows write a byte-order mark, which would be a part of the first word.
    return data.removeprefix(BOM)


def split_lines(path: AnyPath) -> list[bytes]:
    r"""Returns the lines of a file without "\n"; text after the last "\n" is a line too."""
    lines = read_bytes(path).split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return lines


def count_lines(path: AnyPath) -> int:
    """Returns the number of lines, counted in another way than by `split_lines`, as a check."""
    return sum(1 for _ in io.BytesIO(read_bytes(path)))
