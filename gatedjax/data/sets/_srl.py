"""Semantic roles in CoNLL-2012 columns: an example per predicate.

A word per line, white space between columns, an empty line after each sentence; lines that begin
with "#" separate documents. Columns: document, part, word number, word, part of speech, parse bit,
predicate lemma, frameset, sense, speaker, named entity, a bracketed column for each predicate
("(ARG0*", "*", "*)", "(V*)"), coreference.

Reference: Pradhan et al. 2012 and 2013.
"""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gatedjax.data.files._lines import FileRow, FileRows, LineError, decode
from gatedjax.data.files._paths import AnyPath, Places, find, read_bytes
from gatedjax.data.files._source import Example, Quarantined
from gatedjax.data.sets._declaration import DataSet, SetOptions, TfdsForm

FILES = {
    "train": ("conll2012.train.conll", "ewt.train.conll"),
    "validation": ("conll2012.dev.conll", "ewt.dev.conll"),
    "test": ("conll2012.test.conll", "ewt.test.conll"),
}
FOLDERS = {"train": "train", "validation": "development", "test": "test"}
WHERE = (
    "https://conll.cemantix.org/2012/data.html (licensed; a folder of *_gold_conll files for each "
    "of train, development and test, or one file conll2012.{train,dev,test}.conll)"
)
EWT = "English Web Treebank PropBank"

# The numbers of columns before and after those of the predicates.
_BEFORE, _AFTER = 11, 1
IDS_PER_SENTENCE = 1024
"""Example ids are sentence * IDS_PER_SENTENCE + predicate."""
_BIT = re.compile(r"(?:\(([^()*\s]+))?\*(\))?")


class Predicate(NamedTuple):
    """A predicate of a sentence. Positions of words are from 0."""

    first: int
    lemma: str
    spans: tuple[tuple[int, int, str], ...]  # (first, past the last, role), with its own "V"


@dataclasses.dataclass(frozen=True)
class Sentence:
    """The columns of a sentence in CoNLL format."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    parse: tuple[str, ...]  # the piece of the bracketed tree at each word
    predicates: tuple[Predicate, ...]
    text: str  # the lines


def spans_of(column: list[str]) -> tuple[tuple[int, int, str], ...]:
    """Reads the spans of a column of brackets, such as ["(V*)", "(A1*", "*)"]."""
    spans, role, first = [], None, 0
    for place, bit in enumerate(column):
        match = _BIT.fullmatch(bit)
        if match is None:
            raise LineError(f"{bit[:40]!r} is not a bracket of an argument")
        if match[1] is not None:
            if role is not None:
                raise LineError(f"the argument {match[1]} begins inside {role}")
            role, first = match[1], place
        if match[2] is not None:
            if role is None:
                raise LineError("an argument ends that did not begin")
            spans.append((first, place + 1, role))
            role = None
    if role is not None:
        raise LineError(f"the argument {role} does not end")
    return tuple(spans)


def bio(spans: tuple[tuple[int, int, str], ...], size: int) -> tuple[str, ...]:
    """Returns the BIO labels of a sentence of `size` words."""
    labels = ["O"] * size
    for first, past, role in spans:
        labels[first:past] = [f"B-{role}"] + [f"I-{role}"] * (past - first - 1)
    return tuple(labels)


def parse(lines: list[str]) -> Sentence:
    """Parses the lines of a sentence; the `line` of a LineError is the index of a line, from 0."""
    table = [line.split() for line in lines]
    width = len(table[0])
    for number, columns in enumerate(table):
        if len(columns) < _BEFORE + _AFTER:
            reason = f"{len(columns)} columns; wanted at least {_BEFORE + _AFTER}"
            raise LineError(reason, number)
        if len(columns) != width:
            raise LineError(f"{len(columns)} columns; the sentence began with {width}", number)
        # The numbers of the words are checked, because a lost line would shift the spans.
        if columns[2] != str(number):
            raise LineError(f"word number {columns[2][:20]!r}; wanted {number}", number)
    predicates = []
    for column in range(_BEFORE, width - _AFTER):
        spans = spans_of([columns[column] for columns in table])
        places = [first for first, _, role in spans if role == "V"]
        if len(places) != 1:
            which = "no predicate" if not places else f"{len(places)} predicates"
            raise LineError(f"{which} (V) in column {column + 1}")
        predicates.append(Predicate(places[0], table[places[0]][6], spans))
    # The frameset column and the bracketed columns mark the predicates independently, so a
    # difference means a damaged sentence.
    marked = sum(columns[6] != "-" and columns[7] != "-" for columns in table)
    if marked != len(predicates):
        raise LineError(f"{marked} predicates with a frameset, {len(predicates)} columns for them")
    # More predicates would get the example ids of the next sentence.
    if len(predicates) >= IDS_PER_SENTENCE:
        raise LineError(
            f"{len(predicates)} predicates; at most {IDS_PER_SENTENCE - 1} are supported"
        )
    return Sentence(
        words=tuple(columns[3] for columns in table),
        tags=tuple(columns[4] for columns in table),
        parse=tuple(columns[5] for columns in table),
        predicates=tuple(predicates),
        text="\n".join(lines),
    )


def _blocks(data: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Yields (number of the first line, from 1; lines) of each sentence."""
    block: list[bytes] = []
    first = 1
    # The additional empty line ends the last sentence.
    for number, line in enumerate([*data.split(b"\n"), b""], start=1):
        if line.startswith((b"#begin", b"#end")) or not line.strip():
            if block:
                yield first, block
            block = []
            continue
        if not block:
            first = number
        block.append(line)


def _texts(path: AnyPath) -> Iterator[tuple[str, bytes]]:
    if isinstance(path, Path) and path.is_dir():
        # The order of a file system differs between machines, and example ids follow this order.
        for file in sorted(path.rglob("*gold_conll*")):
            yield str(file), read_bytes(file)
    else:
        yield str(path), read_bytes(path)


def read_rows(path: AnyPath, part: str = "") -> FileRows:
    """Reads a file or a folder of files; the content of a row is a `Sentence`."""
    rows: list[FileRow] = []
    quarantine = []
    index = 0
    for name, data in _texts(path):
        for first, block in _blocks(data):
            try:
                lines = [decode(line.removesuffix(b"\r")) for line in block]
                rows.append(FileRow(index, 0, parse(lines), file=f"{name}:{first}"))
            except LineError as error:
                quarantine.append(Quarantined(name, first + error.line, str(error)))
            # Sentences that were set aside are counted too, so that the ids of the remaining
            # sentences do not depend on them.
            index += 1
    note = EWT if Path(str(path)).name.startswith("ewt.") else None
    return FileRows(tuple(rows), tuple(quarantine), note=note)


@dataclasses.dataclass(frozen=True)
class _Places(Places):
    """The places of the parts: a file for each part, or a folder of files for each part."""

    url: str | None = None

    def find(self, manual_dir: Path, part: str) -> tuple[Path | None, str]:
        looked_for = f"{' or '.join(FILES[part])} (plain or .gz), or {FOLDERS[part]}/*_gold_conll"
        tops = [manual_dir / name for name in ("conll_srl", "conll2012", "srl", "")]
        for name in FILES[part]:
            path = find(tops, name)
            if path is not None:
                return path, looked_for
            for folder in (top / FOLDERS[part] for top in tops):
                if folder.is_dir() and any(folder.rglob("*gold_conll*")):
                    return folder, looked_for
        return None, looked_for


def count_skipped(rows: FileRows, options: SetOptions) -> dict[str, int]:
    """Counts the sentences without a predicate, which give no example: reason -> count."""
    without = sum(not row.content.predicates for row in rows.rows)
    return {"no predicate": without} if without else {}


def examples(rows: FileRows, base: int, options: SetOptions) -> list[Example]:
    """Returns an example for each predicate of each sentence."""
    examples = []
    for row in rows.rows:
        sentence: Sentence = row.content
        size = len(sentence.words)
        for number, predicate in enumerate(sentence.predicates):
            verb = bio(tuple(s for s in predicate.spans if s[2] == "V"), size)
            example = {
                "tokens": sentence.words,
                "label": 0,
                "example_id": base + row.index * IDS_PER_SENTENCE + number,
                "labels": bio(predicate.spans, size),
                "predicate": predicate.first,
                "is_predicate": tuple(int(label != "O") for label in verb),
                "lemma": predicate.lemma,
                "spans": predicate.spans,
                "tags": sentence.tags,
            }
            examples.append(example)
    return examples


DECLARED = (
    DataSet(
        name="conll_srl",
        official={"train": 75_187, "validation": 9_603, "test": 9_479},
        where=WHERE,
        files=_Places(),
        read_rows=read_rows,
        examples=examples,
        # Predicates have no classes, so all examples have label 0.
        classes=("predicate",),
        skipped=count_skipped,
        ids_per_row=lambda options: IDS_PER_SENTENCE,
        unit="sentences",
        tfds=TfdsForm(
            description="Semantic roles in CoNLL-2012 columns, sentence by sentence.",
            features={"sentence": str},
            record=lambda row: {"sentence": row.content.text},
            row=lambda record: (0, parse(record["sentence"].decode().split("\n"))),
        ),
    ),
)
