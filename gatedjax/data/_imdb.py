"""Large Movie Review set (Maas et al. 2011): one review a file, aclImdb/{train,test}/{neg,pos}."""

import functools
import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from gatedjax.data._files import BOM, LineError, Row, Rows, decode
from gatedjax.data._source import Quarantined

CLASSES = ("neg", "pos")
OFFICIAL = {"train": 25_000, "test": 25_000}
ARCHIVE = "aclImdb_v1.tar.gz"
URL = f"https://ai.stanford.edu/~amaas/data/sentiment/{ARCHIVE}"

_MEMBER = re.compile(r"(?:^|/)(train|test)/(neg|pos)/[^/]+\.txt$")


def find(manual_dir: Path) -> Path | None:
    """Returns the archive or the unpacked folder below manual_dir."""
    for folder in (manual_dir / "imdb", manual_dir / "imdb_reviews", manual_dir):
        for path in (folder / "aclImdb", folder):
            if any((path / part / "pos").is_dir() for part in ("train", "test")):
                return path
        if (folder / ARCHIVE).is_file():
            return folder / ARCHIVE
    return None


def _archive_files(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        with tarfile.open(path, "r|gz") as archive:
            for member in archive:
                if _MEMBER.search(member.name) and member.isfile():
                    file = archive.extractfile(member)
                    yield member.name, file.read() if file else b""
    except (EOFError, zlib.error, tarfile.TarError, OSError) as error:
        raise ValueError(f"{path}: truncated or damaged archive: {error}") from error


def _folder_files(path: Path) -> Iterator[tuple[str, bytes]]:
    for part in ("train", "test"):
        for label in CLASSES:
            for file in (path / part / label).glob("*.txt"):
                yield f"{part}/{label}/{file.name}", file.read_bytes()


@functools.lru_cache(maxsize=1)
def _read_all(path: Path, _stamp: tuple[int, int]) -> dict[str, Rows]:
    """Reads both parts in one pass; an archive is unpacked once for all splits."""
    found: dict[str, list[tuple[str, str, bytes]]] = {"train": [], "test": []}
    for name, data in _archive_files(path) if path.is_file() else _folder_files(path):
        match = _MEMBER.search(name)
        if match:
            found[match.group(1)].append((name, match.group(2), data))
    parts = {}
    for part, files in found.items():
        rows, quarantine = [], []
        # by name, so that ids do not depend on the order of the archive or the file system
        for index, (name, label, data) in enumerate(sorted(files)):
            try:
                text = decode(data.removeprefix(BOM), "utf-8").strip()
                rows.append(Row(index, CLASSES.index(label), text))
            except LineError as error:
                quarantine.append(Quarantined(f"{path}/{name}", 0, str(error)))
        parts[part] = Rows(tuple(rows), tuple(quarantine))
    return parts


def read(path: Path, part: str) -> Rows:
    """Reads the archive or folder; a row is a review, numbered in the order of the file names."""
    stat = path.stat()
    return _read_all(path.resolve(), (stat.st_mtime_ns, stat.st_size))[part]
