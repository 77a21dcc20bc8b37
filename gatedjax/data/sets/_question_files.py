"""Cloze questions with a file per question: CNN, Daily Mail, and Who-did-What in the same form.

The files of CNN and Daily Mail (Hermann et al. 2015, anonymised) are

    line 1      the address of the story
    line 3      the document
    line 5      the query, with @placeholder for the answer
    line 7      the answer
    line 9 ...  a candidate per line: token(s):original text

with empty lines between, tokens separated by spaces. Who-did-What (Onishi et al. 2016) is
distributed as XML that has to be joined with licensed newswire. It is read here in the same form, a
file per question, like in the code of Dhingra et al. 2017: document and candidates are tokenised,
and a candidate has one or more tokens ("barack obama:Barack Obama").

Locations below manual_dir: cnn/questions, dailymail/questions, wdw (strict) or wdw_relaxed,
each with the folders training, validation and test of .question files, plain or .gz. An archive
cnn.tgz or dailymail.tgz of such a folder is read without unpacking.
"""

import dataclasses
import io
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from gatedjax.data.files._lines import (
    File,
    FileRows,
    LineError,
    decode,
    files_of,
    read_files,
)
from gatedjax.data.files._paths import BOM, AnyPath, Fetch, Places
from gatedjax.data.files._unpack import Damaged, limit, members, unpack
from gatedjax.data.sets import _cloze
from gatedjax.data.sets._declaration import DataSet

OFFICIAL = {
    "cnn_cloze": {"train": 380_298, "validation": 3_924, "test": 3_198},
    "daily_mail_cloze": {"train": 879_450, "validation": 64_835, "test": 53_182},
    "wdw_strict": {"train": 127_786, "validation": 10_000, "test": 10_000},
    "wdw_relaxed": {"train": 185_978, "validation": 10_000, "test": 10_000},
}
PARTS = {"train": "training", "validation": "validation", "test": "test"}


@dataclasses.dataclass(frozen=True)
class _Folders(Places):
    """The places of the folders of a data set, a folder per part, or of an archive of them."""

    name: str
    url: str | None
    tops: tuple[str, ...]
    archive: str | None = None

    def find(self, manual_dir: Path, part: str) -> tuple[Path | None, str]:
        looked_for = f"folder {self.tops[0]}/{PARTS[part]}"
        for top in self.tops:
            for folder in (manual_dir / top, manual_dir / PurePosixPath(top).name):
                if (folder / PARTS[part]).is_dir():
                    return folder / PARTS[part], looked_for
        # `manual_dir` may also be the folder of the set itself.
        if manual_dir.name in self.tops and (manual_dir / PARTS[part]).is_dir():
            return manual_dir / PARTS[part], looked_for
        if self.archive is not None:
            looked_for += f" or archive {self.archive}"
            for folder in (manual_dir, manual_dir / PurePosixPath(self.tops[-1])):
                if (folder / self.archive).is_file():
                    return folder / self.archive, looked_for
        return None, looked_for

    def download(self, fetch: Fetch) -> Mapping[str, AnyPath]:
        # The files require forms and licences.
        raise FileNotFoundError(f"{self.name} cannot be downloaded by a program; see {self.url}")


def parse(data: bytes) -> _cloze.Question:
    """Parses the content of a file: document, query, answer and candidates of a question."""
    # Not splitlines, because a text may contain other line separators.
    text = decode(data.removeprefix(BOM)).replace("\r\n", "\n")
    lines = text.removesuffix("\n").split("\n")
    fields = {"document": 3, "query": 5, "answer": 7, "candidate": 9}
    for field, number in fields.items():
        if len(lines) < number:
            raise LineError(f"no {field}: the file has {len(lines)} lines", number)
    document, query, answer = (lines[i - 1] for i in (3, 5, 7))
    options = []
    for number, line in enumerate(lines[8:], 9):
        if not line.strip():
            continue
        # The text after the first colon is the original name, which an anonymised document does not
        # have.
        option, colon, _ = line.partition(":")
        if not colon:
            raise LineError(f"not a candidate: no colon in {line[:40]!r}", number)
        options.append(option)
    return _cloze.question(document, query, answer, options, lines=(3, 5, 7, 9))


def _content(name: str, data: bytes) -> bytes:
    if not name.endswith(".gz"):
        return data
    try:
        with unpack(io.BytesIO(data), ".gz", name, limit()) as file:
            return file.read()
    except Damaged as error:
        raise LineError(error.reason) from error


def _archive_files(path: Path, part: str) -> Iterator[File]:
    # Only the folder of a member decides, because an archive may have further folders above it.
    inside = members(path, lambda name: PurePosixPath(name).parent.name == PARTS[part])
    for name, data in inside:
        yield PurePosixPath(name).name, data


def read_rows(path: Path, part: str) -> FileRows:
    """Reads a part into memory, about 4 GiB for Daily Mail's training part; a row is a file."""

    def row(name: str, data: bytes) -> tuple[int, _cloze.Question]:
        question = parse(_content(f"{path}/{name}", data))
        return question.status, question

    files = files_of(path) if path.is_dir() else _archive_files(path, part)
    return read_files(path, files, row, noun="question", ends=(".question", ".question.gz"))


def _declare(family: tuple[str, str, str], files: _Folders, description: str) -> DataSet:
    return _cloze.cloze_set(
        name=files.name,
        family=family,
        official=OFFICIAL[files.name],
        where=f"{files.url} (folders of .question files)",
        files=files,
        read_rows=read_rows,
        description=description,
    )


_DMQA = "https://cs.nyu.edu/~kcho/DMQA/"
_WDW = "https://tticnlp.github.io/who_did_what/"
DECLARED = (
    _declare(
        ("cnn_dm_cloze", "paper", "cnn"),
        _Folders("cnn_cloze", _DMQA, ("cnn/questions", "cnn"), "cnn.tgz"),
        "Questions on anonymised CNN stories.",
    ),
    _declare(
        ("cnn_dm_cloze", "paper", "daily_mail"),
        _Folders("daily_mail_cloze", _DMQA, ("dailymail/questions", "dailymail"), "dailymail.tgz"),
        "Questions on anonymised Daily Mail stories.",
    ),
    _declare(
        ("wdw", "kind", "strict"),
        _Folders("wdw_strict", _WDW, ("wdw", "wdw_strict")),
        "Who-did-What, strict setting, as one question file each: wdw/{training,validation,test}.",
    ),
    _declare(
        ("wdw", "kind", "relaxed"),
        _Folders("wdw_relaxed", _WDW, ("wdw_relaxed",)),
        "Who-did-What, relaxed setting, as `WdwStrict` in the folder wdw_relaxed.",
    ),
)
