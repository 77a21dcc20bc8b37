"""Large Movie Review set (Maas et al. 2011): one review a file, aclImdb/{train,test}/{neg,pos}."""

import dataclasses
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from gatedjax.data.files import _tar
from gatedjax.data.files._lines import LineError, Row, Rows, decode
from gatedjax.data.files._paths import BOM
from gatedjax.data.files._places import Places
from gatedjax.data.files._source import Quarantined
from gatedjax.data.sets._declaration import DataSet, lazily, numbered
from gatedjax.data.sets._text import text_example

CLASSES = ("neg", "pos")
ARCHIVE = "aclImdb_v1.tar.gz"

_MEMBER = re.compile(r"(?:^|/)(train|test)/(neg|pos)/[^/]+$")


@dataclasses.dataclass(frozen=True)
class _Folders(Places):
    """The archive or the unpacked folder, which hold both parts."""

    url: str | None = "https://ai.stanford.edu"

    def find(self, manual_dir: Path, part: str) -> tuple[Path | None, str]:
        """Returns the archive or the unpacked folder below manual_dir."""
        looked_for = f"{ARCHIVE} or a folder aclImdb"
        for folder in (manual_dir / "imdb", manual_dir / "imdb_reviews", manual_dir):
            for path in (folder / "aclImdb", folder):
                if any((path / part / "pos").is_dir() for part in ("train", "test")):
                    return path, looked_for
            if (folder / ARCHIVE).is_file():
                return folder / ARCHIVE, looked_for
        return None, looked_for


def _is_listed(name: str) -> bool:
    return _MEMBER.search(name) is not None


def _folder_files(path: Path) -> Iterator[tuple[str, bytes | None]]:
    for part in ("train", "test"):
        folders = [path / part / label for label in CLASSES]
        missing = [folder for folder in folders if not folder.is_dir()]
        if len(missing) == 1:  # none at all: only the other part is here
            raise ValueError(f"{missing[0]}: this folder is missing, the other class is there")
        for folder in folders if not missing else ():
            for file in folder.iterdir():
                name = f"{part}/{folder.name}/{file.name}"
                yield name, file.read_bytes() if file.is_file() else None


@functools.lru_cache(maxsize=1)
def _read_all(path: Path, _stamp: tuple[int, int]) -> dict[str, Rows]:
    """Reads both parts in one pass; an archive is unpacked once for all splits."""
    found: dict[str, list[tuple[str, str, bytes | None]]] = {"train": [], "test": []}
    for name, data in _tar.members(path, _is_listed) if path.is_file() else _folder_files(path):
        match = _MEMBER.search(name)
        if match:
            found[match.group(1)].append((name, match.group(2), data))
    return {part: _parse(path, files) for part, files in found.items()}


def _parse(path: Path, files: list[tuple[str, str, bytes | None]]) -> Rows:
    """Decodes the reviews of a part; whatever else lies beside them is set aside."""
    rows, quarantine = [], []
    # by name, so that ids do not depend on the order of the archive or the file system
    files.sort(key=lambda file: file[:2])
    reviews = [file for file in files if _is_review(file[0])]
    for index, (name, label, data) in enumerate(reviews):
        try:
            if data is None:
                raise LineError("not a regular file")
            text = decode(data.removeprefix(BOM)).strip()
            rows.append(Row(index, CLASSES.index(label), text, name))
        except LineError as error:
            quarantine.append(Quarantined(f"{path}/{name}", 0, str(error)))
    for name, _, _ in files:
        if not _is_review(name):
            quarantine.append(Quarantined(f"{path}/{name}", 0, "not a review: no .txt file"))
    return Rows(tuple(rows), tuple(quarantine), counted=len(files))


def _is_review(name: str) -> bool:
    # hidden files are none: .DS_Store, and the ._ copies that macOS puts into archives
    return name.endswith(".txt") and not name.rpartition("/")[2].startswith(".")


def read(path: Path, part: str) -> Rows:
    """Reads the archive or folder; a row is a review, numbered in the order of the file names."""
    stat = path.stat()
    return _read_all(path.resolve(), (stat.st_mtime_ns, stat.st_size))[part]


DECLARED = (
    DataSet(
        name="imdb_reviews",
        aliases={"imdb": {}},
        official={"train": 25_000, "test": 25_000},
        unit="reviews",
        where=f"https://ai.stanford.edu/~amaas/data/sentiment/{ARCHIVE}",
        files=_Folders(),
        read=read,
        examples=lazily(text_example, once=True),
        classes=CLASSES,
        tfds_rows=lambda records, part: numbered(
            records, lambda r: r["text"].decode(), "imdb_reviews"
        ),
    ),
)
