"""Parallel text: two files in which lines of the same number are translations of each other."""

import dataclasses
import functools
import html
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from gatedjax.data.files._lines import FileRow, FileRows, LineError, check_text, decode
from gatedjax.data.files._paths import (
    AnyPath,
    Fetch,
    PairPath,
    Places,
    count_lines,
    find_pair,
    read_bytes,
    split_lines,
)
from gatedjax.data.files._source import Example, Quarantined
from gatedjax.data.files._unpack import ArchivePath
from gatedjax.data.sets._declaration import DataSet, Examples, RowExamples, SetOptions, TfdsForm

CLASSES = ("sentence",)
"""Pairs have no classes, so all examples have label 0."""

_SEGMENT, _END = re.compile(r"<seg\b[^<>]*>"), "</seg>"


@dataclasses.dataclass(frozen=True)
class Corpus(Places):
    """The locations of the files of a parallel corpus; "{}" in a name stands for the language."""

    languages: tuple[str, str]
    files: Mapping[str, tuple[str, ...]]  # part -> names, of which the first that exists is read
    folders: tuple[str, ...]  # below manual_dir
    official: dict[str, int | None]
    where: str
    description: str
    archive: tuple[str, str] | None = None  # (name of the download, folder inside it)
    url: str | None = None

    def find(self, manual_dir: Path, part: str) -> tuple[PairPath | None, str]:
        """Finds both files of a part, unpacked below `manual_dir` or in the archive."""
        pair = "{{{},{}}}".format(*self.languages)
        looked_for = " or ".join(self.files[part]).replace("{}", pair)
        folders = [*(manual_dir / folder for folder in self.folders), manual_dir]
        for name in self.files[part]:
            path = find_pair(folders, *map(name.format, self.languages))
            if path is not None:
                return path, looked_for
        archives = [folder / self.archive[0] for folder in folders if self.archive is not None]
        archive = next((archive for archive in archives if archive.is_file()), None)
        return None if archive is None else self._inside(archive, part), looked_for

    def download(self, fetch: Fetch) -> Mapping[str, AnyPath]:
        """Downloads the archive, or a packed file for each part and language."""
        if self.archive is not None:
            archive = fetch(f"{self.url}{self.archive[0]}")
            return {part: self._inside(archive, part) for part in self.files}
        return {
            part: PairPath(*(fetch(f"{self.url}{name.format(language)}.gz")
                             for language in self.languages))
            for part, (name, *_) in self.files.items()
        }  # fmt: skip

    def prepared_name(self, part: str, file: str) -> str:
        """Returns the official name, such as "train.en", of the source file of a part."""
        return self.files[part][0].format(self.languages[0])

    def _inside(self, archive: Path, part: str) -> PairPath:
        assert self.archive is not None
        name = f"{self.archive[1]}/{self.files[part][0]}"
        return PairPath(
            *(ArchivePath(archive, name.format(language)) for language in self.languages)
        )


CORPORA = {
    "multi30k": Corpus(
        languages=("en", "de"),
        files={"train": ("train.{}",), "validation": ("val.{}",), "test": ("test_2016_flickr.{}",)},
        folders=("multi30k", "multi30k/data/task1/raw", "data/task1/raw"),
        official={"train": 29_000, "validation": 1_014, "test": 1_000},
        where="github.com/multi30k/dataset, data/task1/raw",
        description="Multi30k, task 1: descriptions of pictures in English and German.",
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
        description="Kyoto Free Translation Task: English and Japanese, tokenised.",
        url="http://www.phontron.com/kftt/download/",
    ),
    # These are the files of the organisers, or plain-text files that were made from them.
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
        description="IWSLT 2014: TED talks in English and Romanian.",
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
        description="WMT 2014: news in English and German.",
    ),
}


def _lines(path: Path | ArchivePath, kind: str) -> Iterator[tuple[int, str | LineError]]:
    """Yields (line number, text or LineError) of the lines of `path` that have a sentence."""
    for number, line in enumerate(split_lines(path), start=1):
        if kind == "tags" and line.startswith(b"<"):
            continue
        if kind == "xml" and not line.lstrip().startswith(b"<seg"):
            continue
        try:
            text = decode(line.removesuffix(b"\r"))
            if kind == "xml":
                start = _SEGMENT.search(text)
                end = -1 if start is None else text.find(_END, start.end())
                if start is None or end < 0:
                    raise LineError("a segment without its end")
                # The content of XML has entities such as &amp;, which are no text.
                text = html.unescape(text[start.end() : end])
            yield number, check_text(text).strip()
        except LineError as error:
            yield number, error


def _kind(path: Path | ArchivePath) -> str:
    name = PurePosixPath(str(path)).name.removesuffix(".gz")
    return "xml" if name.endswith(".xml") else "tags" if ".tags." in name else "plain"


def read_rows(path: PairPath, part: str = "") -> FileRows:
    """Reads a source and a target file in parallel; a pair with an unusable text is set aside."""
    sides = [list(_lines(side, _kind(side))) for side in (path.source, path.target)]
    # With different numbers of lines it is unknown where the pairs are shifted, so no pair can be
    # trusted.
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
            # In plain files the line number follows from the index.
            place = "" if _kind(path.source) == "plain" else f"{path.source}:{source[0]}"
            rows.append(FileRow(index, 0, tuple(texts), file=place))
    return FileRows(tuple(rows), tuple(quarantine), counted=len(sides[0]))


def count(path: PairPath) -> int:
    """Returns the number of pairs of sentences, counted independently of `read_rows`."""
    # The count must not share code with the reader that it checks.
    lines = read_bytes(path.source).splitlines(keepends=False)
    kind = _kind(path.source)
    if kind == "xml":
        return sum(line.lstrip().startswith(b"<seg") for line in lines)
    if kind == "tags":
        return sum(not line.startswith(b"<") for line in lines)
    return count_lines(path.source)


def _examples(rows: FileRows, base: int, *, swap: bool = False) -> RowExamples:
    return RowExamples(rows, base, functools.partial(_example, swap=swap))


def _example(row: FileRow, example_id: int, *, swap: bool) -> Example:
    source, target = row.content[::-1] if swap else row.content
    return {
        "tokens": tuple(source.split()),
        "label": 0,
        "example_id": example_id,
        "text": source,
        "target": target,
    }


def _declare(name: str, corpus: Corpus) -> DataSet:
    def examples(rows: FileRows, base: int, options: SetOptions) -> Examples:
        return _examples(rows, base, swap=options["source"] == corpus.languages[1])

    return DataSet(
        name=name,
        official=corpus.official,
        where=corpus.where,
        files=corpus,
        read_rows=read_rows,
        examples=examples,
        classes=CLASSES,
        options={"source": corpus.languages},
        count=count,
        by_line=not any(".tags." in name for name in corpus.files["train"]),
        tfds=TfdsForm(
            description=corpus.description,
            features={"source": str, "target": str},
        ),
    )


DECLARED = tuple(_declare(name, corpus) for name, corpus in CORPORA.items())
