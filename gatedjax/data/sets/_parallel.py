"""Parallel text: a file per language, line i of one is the translation of line i of the other."""

import dataclasses
import html
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from gatedjax.data.files import _lines as files
from gatedjax.data.files._lines import LineError, Row, Rows, count_lines, decode, read_bytes
from gatedjax.data.files._pair import PairPath
from gatedjax.data.files._source import Example, Quarantined, ReadReport, Source, SourceInfo
from gatedjax.data.files._tar import TarPath

CLASSES = ("sentence",)
"""Pairs have no classes; as examples of a `Source` all have label 0."""

_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>")


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Where the files of a parallel corpus are; "{}" in a name stands for the language.

    Attributes:
      languages: of the source and of the target.
      files: part -> names, the first that is there is taken.
      folders: below manual_dir, where the files may be; manual_dir itself is one of them.
      official: lines of every part; None where no number is published.
      where: the address, for messages.
      archive: file as downloaded that holds them, and the folder inside.
      url: of the files: an address to which a file's name is added, or that of the archive; None
        if there is none to download from.
    """

    languages: tuple[str, str]
    files: Mapping[str, tuple[str, ...]]
    folders: tuple[str, ...]
    official: dict[str, int | None]
    where: str
    archive: tuple[str, str] | None = None
    url: str | None = None


CORPORA = {
    "multi30k": Corpus(
        languages=("en", "de"),
        files={
            "train": ("train.{}",),
            "validation": ("val.{}",),
            "test": ("test_2016_flickr.{}",),
        },
        folders=("multi30k", "multi30k/data/task1/raw", "data/task1/raw"),
        official={"train": 29_000, "validation": 1_014, "test": 1_000},
        where="github.com/multi30k/dataset, data/task1/raw",
        url="https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/",
    ),
    "kftt": Corpus(
        languages=("en", "ja"),
        files={
            "train": ("kyoto-train.{}",),
            "validation": ("kyoto-dev.{}",),
            "test": ("kyoto-test.{}",),
        },
        folders=("kftt", "kftt/kftt-data-1.0/data/tok", "kftt-data-1.0/data/tok"),
        official={"train": 440_288, "validation": 1_166, "test": 1_160},
        where="http://www.phontron.com/kftt (kftt-data-1.0.tar.gz, as it is, or unpacked)",
        archive=("kftt-data-1.0.tar.gz", "kftt-data-1.0/data/tok"),
        url="http://www.phontron.com/kftt/download/kftt-data-1.0.tar.gz",
    ),
    # the organisers' files, or those that somebody made of them
    "iwslt14_en_ro": Corpus(
        languages=("en", "ro"),
        files={
            "train": ("train.{}", "train.tags.en-ro.{}"),
            "validation": ("valid.{}", "dev.{}", "IWSLT14.TED.dev2010.en-ro.{}.xml"),
            "test": ("test.{}", "IWSLT14.TED.tst2010.en-ro.{}.xml"),
        },
        folders=("iwslt14_en_ro", "iwslt14_en_ro/en-ro", "en-ro"),
        official={"train": None, "validation": None, "test": None},
        where="https://wit3.fbk.eu (2014-01, en-ro)",
    ),
    "wmt14_en_de": Corpus(
        languages=("en", "de"),
        files={
            "train": ("train.{}",),
            "validation": ("newstest2013.{}",),
            "test": ("newstest2014.{}",),
        },
        folders=("wmt14_en_de",),
        official={"train": None, "validation": 3_000, "test": 3_003},
        where="http://www.statmt.org/wmt14/translation-task.html (train.en and train.de are "
        "Europarl v7, Common Crawl and News Commentary v9, one after the other)",
    ),
}


def find(corpus: Corpus, manual_dir: Path, part: str) -> PairPath | None:
    """Returns the files of a part below manual_dir, unpacked or in the archive as downloaded.

    Raises:
      FileNotFoundError: if only one of the two languages is there.
    """
    folders = [*(manual_dir / folder for folder in corpus.folders), manual_dir]
    for name in corpus.files[part]:
        found = [files.find(folders, name.format(language)) for language in corpus.languages]
        source, target = found
        if source is not None and target is not None:
            return PairPath(source, target)
        if source is not None or target is not None:
            missing = name.format(corpus.languages[0 if source is None else 1])
            raise FileNotFoundError(f"{source or target} is there, {missing} is not")
    if corpus.archive is not None:
        places = [folder / corpus.archive[0] for folder in folders]
        archive = next((place for place in places if place.is_file()), None)
        if archive is not None:
            return in_archive(corpus, archive, part)
    return None


def in_archive(corpus: Corpus, archive: Path, part: str) -> PairPath:
    """The files of a part inside the archive."""
    assert corpus.archive is not None
    name = corpus.files[part][0]
    source, target = (
        TarPath(archive, f"{corpus.archive[1]}/{name.format(language)}")
        for language in corpus.languages
    )
    return PairPath(source, target)


def _lines(path: Path | TarPath, kind: str) -> Iterator[tuple[int, str | LineError]]:
    """(number of the line, text or why it is not one) of every line that holds a sentence.

    Files of the IWSLT organisers also hold lines of tags, which are no sentences.
    """
    lines = read_bytes(path).split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    for number, line in enumerate(lines, start=1):
        if kind == "tags" and line.startswith(b"<"):
            continue
        if kind == "xml" and not line.lstrip().startswith(b"<seg"):
            continue
        try:
            text = decode(line.removesuffix(b"\r"), "utf-8")
            if kind == "xml":
                match = _SEGMENT.search(text)
                if match is None:
                    raise LineError("a segment without its end")
                text = html.unescape(match[1])
            if not text.strip():
                raise LineError("empty line")
            if "\r" in text:
                raise LineError("carriage return inside the line")
        except LineError as error:
            yield number, error
            continue
        yield number, text.strip()


def _kind(path: Path | TarPath) -> str:
    name = PurePosixPath(str(path)).name.removesuffix(".gz")
    return "xml" if name.endswith(".xml") else "tags" if ".tags." in name else "plain"


def read(path: PairPath) -> Rows:
    """Reads two files side by side; a pair of which one side cannot be used is set aside.

    Raises:
      ValueError: if the files do not have the same number of lines.
    """
    sides = [list(_lines(side, _kind(side))) for side in (path.source, path.target)]
    if len(sides[0]) != len(sides[1]):
        raise ValueError(
            f"source and target must have the same number of lines, got {len(sides[0]):,} in "
            f"{path.source} and {len(sides[1]):,} in {path.target}"
        )
    rows, quarantine = [], []
    for index, (source, target) in enumerate(zip(*sides, strict=True)):
        texts = []
        for side, (number, text) in ((path.source, source), (path.target, target)):
            if isinstance(text, LineError):
                quarantine.append(Quarantined(str(side), number, str(text)))
                break  # a pair is set aside once
            texts.append(text)
        else:
            # elsewhere the line is the index
            place = "" if _kind(path.source) == "plain" else f"{path.source}:{source[0]}"
            rows.append(Row(index, 0, tuple(texts), file=place))
    return Rows(tuple(rows), tuple(quarantine), counted=len(sides[0]))


def count(path: PairPath) -> int:
    """Counts the pairs in another way than `read`: by the lines of the source."""
    lines = read_bytes(path.source).splitlines(keepends=False)
    kind = _kind(path.source)
    if kind == "xml":
        return sum(line.lstrip().startswith(b"<seg") for line in lines)
    if kind == "tags":
        return sum(not line.startswith(b"<") for line in lines)
    return count_lines(path.source)


class _Pairs(Sequence[Example]):
    """Pairs that become examples when they are asked for: a corpus may have millions."""

    def __init__(self, rows: Rows, base: int, swap: bool) -> None:
        self._rows, self._base, self._swap = rows.rows, base, swap

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index):
        row = self._rows[index]
        source, target = row.content[::-1] if self._swap else row.content
        return {
            "tokens": tuple(source.split()),
            "label": 0,
            "example_id": self._base + row.index,
            "text": source,
            "target": target,
        }


def examples(corpus: Corpus, rows: Rows, *, base: int, source: str) -> Sequence[Example]:
    """Makes examples of pairs: "text" and "target", and the words of the text as "tokens"."""
    return _Pairs(rows, base, swap=source == corpus.languages[1])


def load_parallel(source: str | Path, target: str | Path, *, base: int = 0) -> Source:
    """Reads any two files of which line i is the translation of line i, plain or .gz.

    Args:
      source: what is translated.
      target: its translation.
      base: first example id.

    Returns:
      The source, as `load` returns it for a parallel corpus.

    Raises:
      ValueError: if the files do not have the same number of lines, or no pair can be used.
      FileNotFoundError: if there is no such file.
    """
    path = PairPath(Path(source), Path(target))
    rows = read(path)
    if not rows.rows:
        first = f", first {rows.quarantine[0]}" if rows.quarantine else ""
        raise ValueError(f"{source}, {target}: no usable line{first}")
    info = SourceInfo(Path(source).name, "test", CLASSES)
    report = ReadReport(lines=rows.lines, used=len(rows.rows), quarantine=rows.quarantine)
    return Source(_Pairs(rows, base, swap=False), info, report)
