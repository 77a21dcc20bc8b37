"""A file inside a tar archive, read as a path is."""

import dataclasses
import tarfile
import zlib
from pathlib import Path, PurePosixPath


@dataclasses.dataclass(frozen=True)
class TarPath:
    """A member of an archive, compressed or not; a leading "./" of its name does not matter."""

    archive: Path
    member: str

    @property
    def suffix(self) -> str:
        """Of the member."""
        return PurePosixPath(self.member).suffix

    def is_dir(self) -> bool:
        """Only files are read."""
        return False

    def read_bytes(self) -> bytes:
        """Reads the member.

        Raises:
          ValueError: if the archive is cut short or damaged, or has no such file.
        """
        try:
            with tarfile.open(self.archive, "r:*") as archive:
                for entry in archive:
                    if entry.isfile() and entry.name.removeprefix("./") == self.member:
                        file = archive.extractfile(entry)
                        return file.read() if file else b""
        except (EOFError, zlib.error, tarfile.TarError, OSError) as error:
            raise ValueError(f"{self.archive}: truncated or damaged archive: {error}") from error
        raise ValueError(f"{self.archive}: no {self.member} in it")

    def __str__(self) -> str:
        return f"{self.archive}/{self.member}"
