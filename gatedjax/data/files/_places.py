"""Where the files of a data set are: below a folder, inside an archive, at an address."""

import abc
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

from gatedjax.data.files._archives import TarPath, ZipPath
from gatedjax.data.files._paths import AnyPath, find

Fetch = Callable[[str], Path]
"""Address -> the file, downloaded."""


class Places(abc.ABC):
    """Finds the raw files of a set, part by part."""

    url: str | None
    """The address that must answer before anything is downloaded; None if there is no download."""

    @abc.abstractmethod
    def find(self, manual_dir: Path, part: str) -> tuple[AnyPath | None, str]:
        """Returns the file of a part below manual_dir or None, and what was looked for."""

    def download(self, fetch: Fetch) -> Mapping[str, AnyPath]:
        """Downloads the files of all parts."""
        raise FileNotFoundError("it has no download")

    def prepared_name(self, part: str, file: str) -> str:
        """How a prepared set names the file of a part that something was set aside from."""
        return Path(file).name


@dataclasses.dataclass(frozen=True)
class Files(Places):
    """One file for each part, plain or .gz, maybe in an archive as it was downloaded.

    Attributes:
      names: part -> name.
      tops: folders below manual_dir that may have the set; "" is manual_dir itself.
      inner: folders below those that may have the files.
      url: address to which a name (of an archive, if there are any) is added.
      archives: part -> archive that holds its file.
      inside: what stands before the name in the archive.
      missing_format: how messages call a file that is not there.
    """

    names: Mapping[str, str]
    tops: tuple[str, ...]
    inner: tuple[str, ...] = ("",)
    url: str | None = None
    archives: Mapping[str, str] = dataclasses.field(default_factory=dict)
    inside: str = ""
    missing_format: str = "{0} (or {0}.gz)"

    def find(self, manual_dir: Path, part: str) -> tuple[AnyPath | None, str]:
        """Returns the file of a part: unpacked, else in the archive."""
        name = self.names[part]
        tops = [manual_dir / top for top in self.tops]
        path: AnyPath | None = find([top / folder for top in tops for folder in self.inner], name)
        if path is None and part in self.archives:
            archives = (top / self.archives[part] for top in tops)
            archive = next((archive for archive in archives if archive.is_file()), None)
            path = None if archive is None else self._member(archive, part)
        return path, self.missing_format.format(name)

    def download(self, fetch: Fetch) -> Mapping[str, AnyPath]:
        """Downloads every archive, or every file."""
        names = self.archives or self.names
        paths = {name: fetch(f"{self.url}{name}") for name in dict.fromkeys(names.values())}
        if not self.archives:
            return {part: paths[name] for part, name in names.items()}
        # not unpacked by TFDS: it does that with TensorFlow
        return {part: self._member(paths[name], part) for part, name in names.items()}

    def prepared_name(self, part: str, file: str) -> str:
        """The official name."""
        return self.names[part]

    def _member(self, archive: Path, part: str) -> AnyPath:
        member = f"{self.inside}{self.names[part]}"
        # a download may be called anything
        kind = ZipPath if self.archives[part].endswith(".zip") else TarPath
        return kind(archive, member)
