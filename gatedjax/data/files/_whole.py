"""Data sets with a file per text: each file of a folder or archive is a row or is set aside."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from gatedjax.data.files._lines import FileRow, FileRows, LineError
from gatedjax.data.files._source import Quarantined

File = tuple[str, bytes | None]
"""Name and content of a file; the content is None if it is not a regular file."""


def files_of(folder: Path, prefix: str = "") -> Iterator[File]:
    """Yields (name, content) of each entry of a folder."""
    for file in folder.iterdir():
        yield f"{prefix}{file.name}", file.read_bytes() if file.is_file() else None


def read_files(
    path: Path,
    files: Iterable[File],
    parse: Callable[[str, bytes], tuple[int, Any]],
    *,
    noun: str,
    ends: tuple[str, ...],
) -> FileRows:
    """Parses the files of a part; files with other endings are set aside."""
    rows, quarantine = [], []
    # Sorted by name, so that ids do not depend on the order of the archive or the file system.
    ordered = sorted(files, key=lambda file: file[0])

    def is_text(name: str) -> bool:
        # Hidden files are not texts: .DS_Store, and the ._ copies that macOS puts into archives.
        return name.endswith(ends) and not name.rpartition("/")[2].startswith(".")

    for index, (name, data) in enumerate(file for file in ordered if is_text(file[0])):
        try:
            if data is None:
                raise LineError("not a regular file")
            rows.append(FileRow(index, *parse(name, data), file=name))
        except LineError as error:
            quarantine.append(Quarantined(f"{path}/{name}", error.line, str(error)))
    for name, _ in ordered:
        if not is_text(name):
            reason = f"not a {noun}: no {ends[0]} file"
            quarantine.append(Quarantined(f"{path}/{name}", 0, reason))
    # Files with other endings are counted too, because each of them is set aside.
    return FileRows(tuple(rows), tuple(quarantine), counted=len(ordered))


def stamp(path: Path) -> tuple[int, int]:
    """Returns (time of change in ns, size in bytes) of a file, a key for its cached content."""
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size
