"""Children's Book Test (Hill et al. 2016): 20 sentences, a query, ten candidates.

A question is 21 lines and an empty line. Lines begin with their number and a space; tokens are
separated by spaces. Line 21 is

    21 query<TAB>answer<TAB><TAB>candidate|candidate|...

and XXXXX in the query stands for the answer. `cbt_ne` asks for named entities, `cbt_cn` for common
nouns.
"""

from collections.abc import Iterator
from pathlib import Path

from gatedjax.data.files._lines import FileRow, FileRows, LineError, decode
from gatedjax.data.files._paths import AnyPath, Files, read_bytes
from gatedjax.data.files._source import Quarantined
from gatedjax.data.sets import _cloze
from gatedjax.data.sets._declaration import DataSet

OFFICIAL = {
    "NE": {"train": 108_719, "validation": 2_000, "test": 2_500},
    "CN": {"train": 120_769, "validation": 2_000, "test": 2_500},
}
ARCHIVE = "CBTest.tgz"
URL = f"http://www.thespermwhale.com/jaseweston/babi/{ARCHIVE}"
PLACEHOLDER = "XXXXX"
SENTENCES = 20

_NAMES = {"train": "train", "validation": "valid_2000ex", "test": "test_2500ex"}
FILES = {
    kind: {part: f"cbtest_{kind}_{name}.txt" for part, name in _NAMES.items()} for kind in OFFICIAL
}
_FOLDER = "CBTest/data"

MADE_OF_BOOKS = {
    "build_report.json": "rebuilt from public-domain books by the published procedure",
    "make_cloze.json": "made of books in the way of the published procedure",
}
"""Reports of rebuilt question files, in the same folder -> a description of the questions."""

Block = list[tuple[int, bytes]]
"""The numbered lines of a question."""


def _blocks(data: bytes) -> Iterator[Block]:
    """Yields the questions of a file, each as (line number from 1, line) of its lines."""
    block: Block = []
    last = f"{SENTENCES + 1} ".encode()
    for number, line in enumerate(data.split(b"\n"), 1):
        line = line.removesuffix(b"\r")
        empty = not line.strip()
        # A lost empty line would otherwise join two questions, and both would be set aside.
        lost = bool(block) and block[-1][1].startswith(last) and line.startswith(b"1 ")
        if block and (empty or lost):
            yield block
            block = []
        if not empty:
            block.append((number, line))
    if block:
        yield block


def _parse(block: Block) -> _cloze.Question:
    """Returns the question in `block`: document, query, answer and candidates."""
    texts = []
    # The numbers of the lines are checked, because a lost line would shift the query into the
    # document.
    for place, (number, line) in enumerate(block, 1):
        try:
            text = decode(line)
        except LineError as error:
            raise LineError(str(error), number) from error
        number_text, _, content = text.partition(" ")
        if place > SENTENCES + 1:
            raise LineError(f"{len(block)} lines where a question has {SENTENCES + 1}", number)
        if number_text != str(place):
            raise LineError(f"line {place} of a question begins with {number_text[:20]!r}", number)
        texts.append(content)
    number = block[-1][0]
    if len(texts) <= SENTENCES:
        raise LineError(f"{len(block)} lines where a question has {SENTENCES + 1}", number)
    fields = texts[-1].split("\t")
    if len(fields) != 4:
        raise LineError(
            f"{len(fields)} fields between tabs; wanted query, answer, nothing and candidates",
            number,
        )
    # The split of an empty text would be an empty candidate, so it is replaced by an empty list.
    query, answer, _, candidates = fields
    return _cloze.question(
        " ".join(texts[:-1]),
        query,
        answer,
        candidates.split("|") if candidates.strip() else [],
        placeholder=PLACEHOLDER,
        lines=(block[0][0], number, number, number),
    )


def read_rows(path: AnyPath, part: str = "") -> FileRows:
    """Reads a file of `Question`s; the label of a row is the status of the answer."""
    rows, quarantine = [], []
    blocks = list(_blocks(read_bytes(path)))
    for index, block in enumerate(blocks):
        try:
            question = _parse(block)
            place = f"{str(path).rpartition('/')[2]}:{block[-1][0]}"
            rows.append(FileRow(index, question.status, question, place))
        except LineError as error:
            quarantine.append(Quarantined(str(path), error.line, str(error)))
    return FileRows(
        tuple(rows), tuple(quarantine), counted=len(blocks), note=_describe_rebuilt(path)
    )


def _describe_rebuilt(path: AnyPath) -> str | None:
    if not isinstance(path, Path):
        return None  # a member of the official archive
    beside = (text for name, text in MADE_OF_BOOKS.items() if path.with_name(name).is_file())
    return next(beside, None)


def _declare(kind: str, description: str) -> DataSet:
    return _cloze.cloze_set(
        name=f"cbt_{kind.lower()}",
        family=("cbt", "kind", kind),
        official=OFFICIAL[kind],
        where=f"{URL} (as it is, or unpacked)",
        files=Files(
            FILES[kind],
            tops=("cbt", "cloze", ""),
            inner=("", "data", _FOLDER),
            url=URL.removesuffix(ARCHIVE),
            archives=dict.fromkeys(FILES[kind], ARCHIVE),
            inside=f"{_FOLDER}/",
        ),
        read_rows=read_rows,
        description=f"Children's Book Test, {description}: 20 sentences, a query, ten candidates.",
    )


DECLARED = (_declare("NE", "named entities"), _declare("CN", "common nouns"))
