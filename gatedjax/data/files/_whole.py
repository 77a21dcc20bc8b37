"""Sets of one text a file: every file of a folder or an archive is a row or is set aside."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from gatedjax.data.files._lines import LineError, Row, Rows
from gatedjax.data.files._source import Quarantined

File = tuple[str, bytes | None]
"""Name and content; None for what is no regular file."""


def files_of(folder: Path, prefix: str = "") -> Iterator[File]:
    """Reads all that lies in a folder."""
    for file in folder.iterdir():
        yield f"{prefix}{file.name}", file.read_bytes() if file.is_file() else None


def read_files(
    path: Path,
    files: Iterable[File],
    parse: Callable[[str, bytes], tuple[int, Any]],
    *,
    noun: str,
    ends: tuple[str, ...],
) -> Rows:
    """Parses every file that ends like a text of the set; what lies beside them is set aside.

    Args:
      path: of the folder or archive, for messages.
      files: of a part.
      parse: (name, content) -> (label, content of the row); raises LineError for a malformed one.
      noun: the noun for a text, for messages.
      ends: of the names of texts.
    """
    rows, quarantine = [], []
    # by name, so that ids do not depend on the order of the archive or the file system
    ordered = sorted(files, key=lambda file: file[0])

    def is_text(name: str) -> bool:
        # hidden files are none: .DS_Store, and the ._ copies that macOS puts into archives
        return name.endswith(ends) and not name.rpartition("/")[2].startswith(".")

    for index, (name, data) in enumerate(file for file in ordered if is_text(file[0])):
        try:
            if data is None:
                raise LineError("not a regular file")
            rows.append(Row(index, *parse(name, data), file=name))
        except LineError as error:
            quarantine.append(Quarantined(f"{path}/{name}", error.line, str(error)))
    for name, _ in ordered:
        if not is_text(name):
            reason = f"not a {noun}: no {ends[0]} file"
            quarantine.append(Quarantined(f"{path}/{name}", 0, reason))
    return Rows(tuple(rows), tuple(quarantine), counted=len(ordered))


def stamp(path: Path) -> tuple[int, int]:
    """Changes when a file does: what was read of it may be kept as long as this is equal."""
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size
