"""The places of the files of a data set: below a folder, inside an archive, at an address."""

import abc
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

from gatedjax.data.files._archives import TarPath, ZipPath
from gatedjax.data.files._paths import AnyPath, find

Fetch = Callable[[str], Path]
"""A function that downloads the file at an address and returns its path."""


class Places(abc.ABC):
    """The places of the raw files of a data set, and the base class of the ways to find them."""

    url: str | None

    @abc.abstractmethod
    def find(self, manual_dir: Path, part: str) -> tuple[AnyPath | None, str]:
        """Returns (the file of a part below `manual_dir` or None, the wanted name for messages)."""

    def download(self, fetch: Fetch) -> Mapping[str, AnyPath]:
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
        member = f"{self.inside}{self.names[part]}"
        # The name in `archives` decides, because a download may have any name.
        kind = ZipPath if self.archives[part].endswith(".zip") else TarPath
        return kind(archive, member)
