"""Word reordering detection (Yang et al. 2019): the moved word of a sentence and its old position.

A token of a sentence was removed and inserted elsewhere. The labels are positions in the new
sentence: "insert" is the position of the moved token, "original" that of its former successor.
Published files: sentences in NAME.x, "insert original" in line i of NAME.y.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from gatedjax.data.files._lines import FileRow, FileRows, LineError, parse_lines, read_pairs
from gatedjax.data.files._paths import PairPath, Pairs
from gatedjax.data.files._source import Example, Source, SourceInfo
from gatedjax.data.sets._declaration import DataSet, Record, TfdsForm, lazily

CLASSES = ("reordered",)
MARKS = {"train": "tr", "validation": "va", "test": "te"}
SHORTEST, LONGEST = 6, 49
"""Tokens of the sentences of the published generator."""


def parse_labels(line: str) -> tuple[int, int]:
    """Parses a line of NAME.y; returns (insert, original)."""
    numbers = line.split()
    # `int` would also accept signs and underscores, which a position does not have.
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        raise LineError(f"{line.strip()[:40]!r} is not two positions")
    return int(numbers[0]), int(numbers[1])


def _join(words: list[str], labels: tuple[int, int]) -> tuple[tuple[str, ...], int, int]:
    """Returns (tokens, insert, original) after a check of the positions, both from 0."""
    insert, original = labels
    for name, value in {"insert": insert, "original": original}.items():
        if not 0 <= value < len(words):
            raise LineError(f"{name} position {value} of a sentence of {len(words)} tokens")
    # A token that is directly followed by its old successor was not moved.
    if original in (insert, insert + 1):
        raise LineError(f"insert {insert} and original {original}: nothing was moved")
    return tuple(words), insert, original


def read_rows(path: PairPath, part: str = "") -> FileRows:
    """Reads a file of sentences and a file of labels; a pair that does not fit is set aside."""
    sides = parse_lines(path.source, str.split), parse_lines(path.target, parse_labels)
    return read_pairs(path, sides, "sentences and labels", _join)


def _example(row: FileRow, example_id: int) -> Example:
    tokens, insert, original = row.content
    return {
        "tokens": tokens,
        "label": row.label,
        "example_id": example_id,
        "insert": insert,
        "original": original,
    }


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
                index = number * copies + copy
                yield _example(FileRow(index, 0, move_word(tokens, out, into)), base + index)

    return Source(list(moves()), SourceInfo(name, split, CLASSES))


DECLARED = (
    DataSet(
        name="word_reordering",
        official={"train": None, "validation": 10_000, "test": 10_000},
        where="https://github.com/baosongyang/WRD (TrainData)",
        files=Pairs(
            ("x", "y"),
            {part: (f"word_order.txt.{mark}.{{}}",) for part, mark in MARKS.items()},
            folders=("wrd", "TrainData"),
        ),
        read_rows=read_rows,
        examples=lazily(_example, once=True),
        classes=CLASSES,
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
