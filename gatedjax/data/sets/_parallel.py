"""Parallel text: two files in which lines of the same number are translations of each other."""

import functools
import html
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from gatedjax.data.files._lines import FileRow, FileRows, LineError, check_text, decode, read_pairs
from gatedjax.data.files._paths import PairPath, Pairs, split_lines
from gatedjax.data.files._source import Example
from gatedjax.data.files._unpack import ArchivePath
from gatedjax.data.sets._declaration import DataSet, Examples, RowExamples, SetOptions, TfdsForm

CLASSES = ("sentence",)
"""Pairs have no classes, so all examples have label 0."""

_SEGMENT, _END = re.compile(r"<seg\b[^<>]*>"), "</seg>"


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
    sides = _lines(path.source, _kind(path.source)), _lines(path.target, _kind(path.target))
    return read_pairs(path, sides, "source and target")


def _example(row: FileRow, example_id: int, *, swap: bool) -> Example:
    source, target = row.content[::-1] if swap else row.content
    return {
        "tokens": tuple(source.split()),
        "label": row.label,
        "example_id": example_id,
        "text": source,
        "target": target,
    }


def _declare(
    name: str,
    official: Mapping[str, int | None],
    description: str,
    files: Pairs,
    where: str,
) -> DataSet:
    def examples(rows: FileRows, base: int, options: SetOptions) -> Examples:
        make = functools.partial(_example, swap=options["source"] == files.ends[1])
        return RowExamples(rows, base, make)

    return DataSet(
        name=name,
        official=official,
        where=where,
        files=files,
        read_rows=read_rows,
        examples=examples,
        classes=CLASSES,
        options={"source": files.ends},
        tfds=TfdsForm(description=description, features={"source": str, "target": str}),
    )


DECLARED = (
    _declare(
        "multi30k",
        {"train": 29_000, "validation": 1_014, "test": 1_000},
        "Multi30k, task 1: descriptions of pictures in English and German.",
        Pairs(
            ("en", "de"),
            {"train": ("train.{}",), "validation": ("val.{}",), "test": ("test_2016_flickr.{}",)},
            folders=("multi30k", "multi30k/data/task1/raw", "data/task1/raw"),
            url="https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/",
        ),
        where="github.com/multi30k/dataset, data/task1/raw",
    ),
    _declare(
        "kftt",
        {"train": 440_288, "validation": 1_166, "test": 1_160},
        "Kyoto Free Translation Task: English and Japanese, tokenised.",
        Pairs(
            ("en", "ja"),
            {
                "train": ("kyoto-train.{}",),
                "validation": ("kyoto-dev.{}",),
                "test": ("kyoto-test.{}",),
            },
            folders=("kftt", "kftt/kftt-data-1.0/data/tok", "kftt-data-1.0/data/tok"),
            url="http://www.phontron.com/kftt/download/",
            archive=("kftt-data-1.0.tar.gz", "kftt-data-1.0/data/tok"),
        ),
        where="http://www.phontron.com/kftt (kftt-data-1.0.tar.gz, as it is, or unpacked)",
    ),
    _declare(
        "iwslt14_en_ro",
        {"train": None, "validation": None, "test": None},
        "IWSLT 2014: TED talks in English and Romanian.",
        # These are the files of the organisers, or plain-text files that were made from them.
        Pairs(
            ("en", "ro"),
            {
                "train": ("train.{}", "train.tags.en-ro.{}"),
                "validation": ("valid.{}", "dev.{}", "IWSLT14.TED.dev2010.en-ro.{}.xml"),
                "test": ("test.{}", "IWSLT14.TED.tst2010.en-ro.{}.xml"),
            },
            folders=("iwslt14_en_ro", "iwslt14_en_ro/en-ro", "en-ro"),
        ),
        where="https://wit3.fbk.eu (2014-01, en-ro)",
    ),
    _declare(
        "wmt14_en_de",
        {"train": None, "validation": 3_000, "test": 3_003},
        "WMT 2014: news in English and German.",
        Pairs(
            ("en", "de"),
            {
                "train": ("train.{}",),
                "validation": ("newstest2013.{}",),
                "test": ("newstest2014.{}",),
            },
            folders=("wmt14_en_de",),
        ),
        where="http://www.statmt.org/wmt14/translation-task.html (train.en and train.de are "
        "Europarl v7, Common Crawl and News Commentary v9, one after the other)",
    ),
)
