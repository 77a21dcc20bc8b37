"""Paths of raw files in a folder or an archive, and the places where a data set has them."""

import abc
import dataclasses
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gatedjax.data.files._unpack import ArchivePath, limit, unpack

BOM = b"\xef\xbb\xbf"
AnyPath = Path | ArchivePath


@dataclasses.dataclass(frozen=True)
class PairPath:
    """A pair of files in which line i of the target belongs to line i of the source."""

    source: AnyPath
    target: AnyPath

    def __str__(self) -> str:
        return str(self.source)


Found = AnyPath | PairPath


def find(folders: Sequence[Path], name: str) -> Path | None:
    """Returns the path of the file `name`, plain or with the ending .gz; None if there is none."""
    for folder in folders:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    return None


def read_bytes(path: AnyPath) -> bytes:
    """Returns the content of a file, unpacked if it is .gz, without a byte-order mark."""
    if path.suffix != ".gz":
        data = path.read_bytes()
    else:
        with (
            path.open("rb") if isinstance(path, Path) else io.BytesIO(path.read_bytes()) as packed,
            unpack(packed, ".gz", path, limit()) as file,
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


Fetch = Callable[[str], Path]
"""A function that downloads the file at an address and returns its path."""


class Places(abc.ABC):
    """The places of the raw files of a data set, and the base class of the ways to find them."""

    url: str | None

    @abc.abstractmethod
    def find(self, manual_dir: Path, part: str) -> tuple[Found | None, str]:
        """Returns (the file of a part below `manual_dir` or None, the wanted name for messages)."""

    def download(self, fetch: Fetch) -> Mapping[str, Found]:
        """Downloads the files of all parts; `fetch` downloads a URL and returns the local path."""
        raise FileNotFoundError("it has no download")

    def prepared_name(self, part: str, file: str) -> str:
        """Returns the name of a raw file, such as "train.csv", for reports on prepared sets."""
        return Path(file).name


@dataclasses.dataclass(frozen=True)
class Files(Places):
    """A file for each part, plain or .gz, which may be in a downloaded archive."""

    names: Mapping[str, str]  # part -> name of its file
    tops: tuple[str, ...]  # folders below manual_dir that may have the set, "" for itself
    inner: tuple[str, ...] = ("",)  # folders below `tops` that may have the files
    url: str | None = None  # the address before the name of a file or archive
    archives: Mapping[str, str] = dataclasses.field(default_factory=dict)  # part -> its archive
    inside: str = ""  # the prefix of the names in the archive
    missing_format: str = "{0} (or {0}.gz)"

    def find(self, manual_dir: Path, part: str) -> tuple[AnyPath | None, str]:
        """Finds the file of a part below `manual_dir`: unpacked, else in the archive."""
        name = self.names[part]
        tops = [manual_dir / top for top in self.tops]
        path: AnyPath | None = find([top / folder for top in tops for folder in self.inner], name)
        if path is None and part in self.archives:
            archives = (top / self.archives[part] for top in tops)
            archive = next((archive for archive in archives if archive.is_file()), None)
            path = None if archive is None else self._member(archive, part)
        return path, self.missing_format.format(name)

    def download(self, fetch: Fetch) -> Mapping[str, AnyPath]:
        """Downloads all archives, or all files if there are no archives."""
        names = self.archives or self.names
        paths = {name: fetch(f"{self.url}{name}") for name in dict.fromkeys(names.values())}
        if not self.archives:
            return {part: paths[name] for part, name in names.items()}
        # Archives are not unpacked by TFDS, because it needs TensorFlow for this.
        return {part: self._member(paths[name], part) for part, name in names.items()}

    def prepared_name(self, part: str, file: str) -> str:
        """Returns the name in `names`, such as "train.csv", of the file of an official part."""
        return self.names[part]

    def _member(self, archive: Path, part: str) -> AnyPath:
        return ArchivePath(archive, f"{self.inside}{self.names[part]}")


@dataclasses.dataclass(frozen=True)
class Pairs(Places):
    """Two files for each part, plain or .gz, which may be in a downloaded archive."""

    ends: tuple[str, str]  # stand for "{}" in a name: of the source, of the target
    names: Mapping[str, tuple[str, ...]]  # part -> names, of which the first that exists is read
    folders: tuple[str, ...]  # below manual_dir, which may have the files itself
    url: str | None = None  # the address before the name of a file or archive
    archive: tuple[str, str] | None = None  # (name of the download, folder inside it)

    def find(self, manual_dir: Path, part: str) -> tuple[PairPath | None, str]:
        """Finds both files of a part, unpacked below `manual_dir` or in the archive."""
        looked_for = " or ".join(self.names[part]).replace("{}", "{{{},{}}}".format(*self.ends))
        folders = [*(manual_dir / folder for folder in self.folders), manual_dir]
        for name in self.names[part]:
            names = [name.format(end) for end in self.ends]
            source, target = (find(folders, name) for name in names)
            if source is not None and target is not None:
                return PairPath(source, target), looked_for
            if source is not None or target is not None:
                missing = names[0] if source is None else names[1]
                raise FileNotFoundError(f"{source or target}: there is no {missing} next to it")
        archives = [folder / self.archive[0] for folder in folders if self.archive is not None]
        archive = next((archive for archive in archives if archive.is_file()), None)
        return None if archive is None else self._inside(archive, part), looked_for

    def download(self, fetch: Fetch) -> Mapping[str, PairPath]:
        """Downloads the archive, or a packed file for each part and end."""
        if self.archive is not None:
            archive = fetch(f"{self.url}{self.archive[0]}")
            return {part: self._inside(archive, part) for part in self.names}
        return {
            part: PairPath(*(fetch(f"{self.url}{name.format(end)}.gz") for end in self.ends))
            for part, (name, *_) in self.names.items()
        }

    def prepared_name(self, part: str, file: str) -> str:
        """Returns the name of a raw file, or that of the source if a download has another name."""
        names = [name.format(end) for name in self.names[part] for end in self.ends]
        own = Path(file).name.removesuffix(".gz")
        return own if own in names else names[0]

    def _inside(self, archive: Path, part: str) -> PairPath:
        assert self.archive is not None
        name = f"{self.archive[1]}/{self.names[part][0]}"
        return PairPath(*(ArchivePath(archive, name.format(end)) for end in self.ends))
