"""Large Movie Review set (Maas et al. 2011): a review per file, aclImdb/{train,test}/{neg,pos}."""

import dataclasses
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from gatedjax.data.files._lines import File, FileRows, decode, files_of, read_files
from gatedjax.data.files._paths import BOM, Places
from gatedjax.data.files._unpack import members
from gatedjax.data.sets._declaration import DataSet, lazily, number_records, text_example

CLASSES = ("neg", "pos")
ARCHIVE = "aclImdb_v1.tar.gz"

_MEMBER = re.compile(r"(?:^|/)(train|test)/(neg|pos)/[^/]+$")


@dataclasses.dataclass(frozen=True)
class _Folders(Places):
    """The place of the reviews: the archive or the unpacked folder, which contain both parts."""

    url: str | None = "https://ai.stanford.edu"

    def find(self, manual_dir: Path, part: str) -> tuple[Path | None, str]:
        looked_for = f"{ARCHIVE} or a folder aclImdb"
        for folder in (manual_dir / "imdb", manual_dir / "imdb_reviews", manual_dir):
            # The folder may be given as it is unpacked, or be the parent of it.
            for path in (folder / "aclImdb", folder):
                if any((path / part / "pos").is_dir() for part in ("train", "test")):
                    return path, looked_for
            if (folder / ARCHIVE).is_file():
                return folder / ARCHIVE, looked_for
        return None, looked_for


def _folder_files(path: Path) -> Iterator[File]:
    """Yields (name, content) of each file below `path`, an unpacked folder of reviews."""
    for part in ("train", "test"):
        folders = [path / part / label for label in CLASSES]
        missing = [folder for folder in folders if not folder.is_dir()]
        if len(missing) == 1:  # both missing: the folder has only the other part
            raise ValueError(
                f"{missing[0]}: there is no such folder; both classes must have a folder"
            )
        for folder in folders if not missing else ():
            yield from files_of(folder, f"{part}/{folder.name}/")


# Both parts are usually loaded one after the other, so that a single cached result is enough; more
# would fill the memory.
@functools.lru_cache(maxsize=1)
def _read_all(path: Path, _stamp: tuple[int, int]) -> dict[str, FileRows]:
    """Reads both parts in a single pass, so that an archive is unpacked once."""
    parts: dict[str, list[File]] = {"train": [], "test": []}
    packed = members(path, lambda name: _MEMBER.search(name) is not None)
    for name, data in packed if path.is_file() else _folder_files(path):
        match = _MEMBER.search(name)
        if match:
            parts[match[1]].append((name, data))
    return {
        part: read_files(path, files, _parse, noun="review", ends=(".txt",))
        for part, files in parts.items()
    }


def _parse(name: str, data: bytes) -> tuple[int, str]:
    match = _MEMBER.search(name)
    assert match is not None
    return CLASSES.index(match[2]), decode(data.removeprefix(BOM)).strip()


def read_rows(path: Path, part: str) -> FileRows:
    """Reads a part from the archive or folder `path`; the content of a row is a review."""
    stat = path.stat()
    # The stamp changes when the file changes, so that the cache does not return an old content.
    return _read_all(path.resolve(), (stat.st_mtime_ns, stat.st_size))[part]


DECLARED = (
    DataSet(
        name="imdb_reviews",
        aliases={"imdb": {}},
        official={"train": 25_000, "test": 25_000},
        unit="reviews",
        where=f"https://ai.stanford.edu/~amaas/data/sentiment/{ARCHIVE}",
        files=_Folders(),
        read_rows=read_rows,
        # Each example is stored, because tokenising a text takes longer than reading it.
        examples=lazily(text_example, once=True),
        classes=CLASSES,
        tfds_rows=lambda records, part: number_records(
            records, lambda r: r["text"].decode(), "imdb_reviews"
        ),
    ),
)
