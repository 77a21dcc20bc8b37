"""Word reordering detection (Yang et al. 2019): the moved word of a sentence and its old position.

A token of a sentence was removed and inserted elsewhere. The labels are positions in the new
sentence: "insert" is the position of the moved token, "original" that of its former successor.
Published files: sentences in NAME.x, "insert original" in line i of NAME.y.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from gatedjax.data.files._lines import FileRow, FileRows, LineError, read_lines
from gatedjax.data.files._paths import PairPath, Places, count_lines, find_pair
from gatedjax.data.files._source import Example, Quarantined, Source, SourceInfo
from gatedjax.data.sets._declaration import DataSet, Record, TfdsForm, eagerly

CLASSES = ("reordered",)
FILES = {
    "train": "word_order.txt.tr",
    "validation": "word_order.txt.va",
    "test": "word_order.txt.te",
}
SHORTEST, LONGEST = 6, 49
"""Tokens of the sentences of the published generator."""


@dataclasses.dataclass(frozen=True)
class _Pairs(Places):
    """The places of two files per part: NAME.x with sentences, NAME.y with labels."""

    url: str | None = None

    def find(self, manual_dir: Path, part: str) -> tuple[PairPath | None, str]:
        folders = [manual_dir / "wrd", manual_dir / "TrainData", manual_dir]
        pair = find_pair(folders, f"{FILES[part]}.x", f"{FILES[part]}.y")
        return pair, f"{FILES[part]}.{{x,y}}"

    def prepared_name(self, part: str, file: str) -> str:
        return FILES[part]


def check(tokens: Sequence[str], insert: int, original: int) -> None:
    """Checks the positions of a moved token in a sentence, both from 0."""
    size = len(tokens)
    for name, value in {"insert": insert, "original": original}.items():
        if not 0 <= value < size:
            raise LineError(f"{name} position {value} of a sentence of {size} tokens")
    # A token that is directly followed by its old successor was not moved.
    if original in (insert, insert + 1):
        raise LineError(f"insert {insert} and original {original}: nothing was moved")


def parse_labels(line: str) -> tuple[int, tuple[int, int]]:
    """Parses a line of NAME.y; returns (0, (insert, original)), with 0 for the class."""
    numbers = line.split()
    # `int` would also accept signs and underscores, which a position does not have.
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        raise LineError(f"{line.strip()[:40]!r} is not two positions")
    return 0, (int(numbers[0]), int(numbers[1]))


def read_rows(path: PairPath, part: str = "") -> FileRows:
    """Reads a file of sentences and a file of labels; a pair that does not fit is set aside."""
    sentences = read_lines(path.source, lambda line: (0, tuple(line.split())))
    labels = read_lines(path.target, parse_labels)
    # With different numbers of lines it is unknown where the pairs are shifted, so no pair can be
    # trusted.
    if sentences.lines != labels.lines:
        raise ValueError(
            f"sentences and labels must have the same number of lines, got {sentences.lines:,} in "
            f"{path.source} and {labels.lines:,} in {path.target}"
        )
    # A pair is set aside once. If both lines are faulty, the fault of the sentence is reported.
    set_aside = {q.line: q for side in (labels, sentences) for q in side.quarantine}
    positions = {row.index: row.content for row in labels.rows}
    rows = []
    for row in sentences.rows:
        if row.index + 1 in set_aside:
            continue
        try:
            check(row.content, *positions[row.index])
        except LineError as error:
            number = row.index + 1
            set_aside[number] = Quarantined(str(path.target), number, str(error))
            continue
        rows.append(FileRow(row.index, 0, (row.content, *positions[row.index])))
    quarantine = tuple(set_aside[number] for number in sorted(set_aside))
    return FileRows(tuple(rows), quarantine, counted=sentences.lines)


def _example(tokens: Sequence[str], insert: int, original: int, example_id: int) -> Example:
    return {
        "tokens": tuple(tokens),
        "label": 0,
        "example_id": example_id,
        "insert": insert,
        "original": original,
    }


def _of_row(row: FileRow, example_id: int) -> Example:
    tokens, insert, original = row.content
    return _example(tokens, insert, original, example_id)


def _parse_record(record: Record) -> tuple[int, tuple[tuple[str, ...], int, int]]:
    tokens = tuple(record["text"].decode().split())
    return 0, (tokens, int(record["insert"]), int(record["original"]))


def move_word(tokens: Sequence[str], out: int, into: int) -> tuple[tuple[str, ...], int, int]:
    """Moves a token from `out` to `into`; returns (tokens, insert, original), see the module.

    >>> move_word(["a", "b", "c", "d"], out=0, into=2)
    (('b', 'c', 'a', 'd'), 2, 0)
    """
    words = list(tokens)
    if not (0 <= out < len(words) - 1 and 0 <= into < len(words) - 1 and out != into):
        raise ValueError(
            f"out and into must be different numbers in [0, {len(words) - 2}], got {out} and {into}"
        )
    words.insert(into, words.pop(out))
    return tuple(words), into, out + 1 if out > into else out


def word_reordering(
    sentences: Iterable[Sequence[str]],
    *,
    seed: int = 0,
    copies: int = 1,
    name: str = "word_reordering",
    split: str = "train",
    base: int = 0,
) -> Source:
    """Moves a token of each sentence, like the published generator.

    The old and the new position of the token, from 0, are drawn uniformly from 0 .. n-2 for n
    tokens until they differ; the draws are a function of the seed, the number of the sentence and
    the copy. Sentences of fewer than 6 or more than 49 tokens are left out.

    Args:
      sentences: the tokens of each sentence.
      seed: seed of the draws.
      copies: the number of moves per sentence, each a separate example.
      name, split: name and split of the source.
      base: first example id; the id of a move is base + number * copies + copy.

    Returns:
      A source of examples with "tokens", "insert", the position of the moved token, and "original",
      the position of the token that followed it before the move, both from 0.

    Raises:
      ValueError: if copies is not positive.

    Reference: Yang et al. 2019, "Assessing the Ability of Self-Attention Networks to Learn Word
      Order".
    """
    if copies < 1:
        raise ValueError(f"copies must be at least 1, got {copies}")

    def moves() -> Iterator[Example]:
        for number, tokens in enumerate(sentences):
            if not SHORTEST <= len(tokens) <= LONGEST:
                continue
            for copy in range(copies):
                draw = np.random.default_rng(np.random.SeedSequence([seed, number, copy]))
                out = into = 0
                # Equal positions would leave the sentence unchanged.
                while out == into:
                    out, into = (int(x) for x in draw.integers(len(tokens) - 1, size=2))
                yield _example(*move_word(tokens, out, into), base + number * copies + copy)

    return Source(list(moves()), SourceInfo(name, split, CLASSES))


DECLARED = (
    DataSet(
        name="word_reordering",
        official={"train": None, "validation": 10_000, "test": 10_000},
        where="https://github.com/baosongyang/WRD (TrainData)",
        files=_Pairs(),
        read_rows=read_rows,
        examples=eagerly(_of_row),
        classes=CLASSES,
        count=lambda path: count_lines(path.source),
        tfds=TfdsForm(
            description="Word reordering detection: sentences of which one token was moved.",
            features={"text": str, "insert": np.int32, "original": np.int32},
            record=lambda row: {
                "text": " ".join(row.content[0]),
                "insert": row.content[1],
                "original": row.content[2],
            },
            row=_parse_record,
            complete=False,  # the training part is not published everywhere
        ),
    ),
)
