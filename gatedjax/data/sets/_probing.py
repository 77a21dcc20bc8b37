"""SentEval's probing tasks (Conneau et al. 2018): "split<TAB>label<TAB>sentence" in one file.

The label set is that of the training lines. `bigram_shift` makes the lines of one task from any
text.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gatedjax.data.files import _lines as files
from gatedjax.data.files._lines import AnyPath, LineError, Row, Rows, read_lines
from gatedjax.data.files._part import PartPath
from gatedjax.data.files._source import Example, ReadReport, Source, SourceInfo

TASKS = (
    "bigram_shift",
    "coordination_inversion",
    "obj_number",
    "odd_man_out",
    "past_present",
    "sentence_length",
    "subj_number",
    "top_constituents",
    "tree_depth",
    "word_content",
)
NAME = "senteval_probing"
PREFIX = "senteval_"
FILES = dict.fromkeys(("train", "validation", "test"), "{}.txt")
OFFICIAL = {"train": 100_000, "validation": 10_000, "test": 10_000}
URL = "https://raw.githubusercontent.com/facebookresearch/SentEval/master/data/probing/"
MARKS = {"train": "tr", "validation": "va", "test": "te"}
SHIFTED, KEPT = "I", "O"


def part_path(path: Path, part: str) -> PartPath:
    """The lines of a part; a line of no part is one of "train", where it is set aside."""
    others = tuple(f"{mark}\t".encode() for name, mark in MARKS.items() if name != "train")
    own = f"{MARKS[part]}\t".encode()
    if part == "train":
        return PartPath(path, part, lambda line: not line.startswith(others))
    return PartPath(path, part, lambda line: line.startswith(own))


def set_name(task: str | None) -> str:
    """The name of the set of a task, which may have that name already.

    Raises:
      ValueError: for an unknown task.
    """
    if task not in TASKS:
        raise ValueError(f"task of {NAME!r} must be one of {', '.join(TASKS)}, got {task!r}")
    return f"{PREFIX}{task}"


def find(task: str, manual_dir: Path, part: str) -> PartPath | None:
    """Returns a part of the file of a task below manual_dir."""
    folders = [manual_dir / "probing", manual_dir / "data" / "probing", manual_dir]
    path = files.find(folders, FILES[part].format(task))
    return None if path is None else part_path(path, part)


def parse(line: str) -> tuple[int, tuple[str, str]]:
    """Parses one line: (0, (label, sentence)); classes are numbered when all labels are known.

    Raises:
      LineError: for a line that is not three columns, an unknown part, or an empty column.
    """
    columns = line.split("\t")
    if len(columns) != 3:
        raise LineError(f"{len(columns)} columns; wanted split, label, sentence")
    mark, label, sentence = (column.strip() for column in columns)
    if mark not in MARKS.values():
        raise LineError(f"unknown split {mark[:40]!r}; splits are {', '.join(MARKS.values())}")
    if not label or not sentence:
        raise LineError("an empty label or sentence")
    return 0, (label, sentence)


def read(path: AnyPath) -> Rows:
    """Reads the lines of a part."""
    return read_lines(path, parse, "utf-8")


class _Sentences(Sequence[Example]):
    """Examples whose "label" is -1 until the classes are known."""

    def __init__(self, rows: Rows, base: int, classes: dict[str, int] | None = None) -> None:
        self._rows, self._base, self._classes = rows, base, classes

    def __len__(self) -> int:
        return len(self._rows.rows)

    def __getitem__(self, index):
        row = self._rows.rows[index]
        name, sentence = row.content
        return {
            "tokens": tuple(sentence.split()),
            "label": -1 if self._classes is None else self._classes[name],
            "example_id": self._base + row.index,
            "text": sentence,
        }

    def labels(self) -> list[tuple[str, int]]:
        """(label, example id) of every line."""
        return [(row.content[0], self._base + row.index) for row in self._rows.rows]

    def numbered(self, classes: Sequence[str]) -> "_Sentences":
        """The same with class numbers."""
        return _Sentences(self._rows, self._base, {name: i for i, name in enumerate(classes)})


def examples(rows: Rows, *, base: int) -> _Sentences:
    """Makes examples of lines; `base` is the first example id."""
    return _Sentences(rows, base)


def classes_of(rows: Iterable[Row]) -> tuple[str, ...]:
    """The labels of lines, numbers by size and others by the alphabet."""
    names = {row.content[0] for row in rows}
    return tuple(sorted(names, key=lambda n: (0, int(n), n) if n.isdigit() else (1, 0, n)))


def source(
    made: Any, info: SourceInfo, report: ReadReport, read_part: Callable[[str], Rows]
) -> Source:
    """Numbers the classes by the labels of the training part.

    Raises:
      ValueError: for a label that no training line has.
    """
    classes = classes_of(read_part("train").rows)
    for label, example_id in made.labels():
        if label not in classes:
            raise ValueError(
                f"label {label!r} of example {example_id} of {info.name}, {info.split}: the "
                f"training part has {', '.join(classes)}"
            )
    return Source(made.numbered(classes), dataclasses.replace(info, class_names=classes), report)


def bigram_shift(
    sentences: Iterable[Sequence[str]],
    *,
    seed: int = 0,
    name: str = "bigram_shift",
    split: str = "train",
    base: int = 0,
) -> Source:
    """Inverts two neighbouring words of every second sentence, as the BShift probe does.

    Which sentence, and where, is a function of the seed and the sentence's number. Never moved: the
    first word, anything without a letter or digit, and two equal words. A sentence without such a
    pair stays as it is.

    Args:
      sentences: the words of every sentence.
      seed: of the draws.
      name, split: of the source.
      base: first example id.

    Returns:
      Examples of class "I" (inverted, with "position" of the first of the two) or "O" (original,
      position -1).

    Reference: Conneau et al. 2018, "What you can cram into a single vector".
    """
    made = []
    for number, words in enumerate(sentences):
        words = list(words)
        draw = np.random.default_rng(np.random.SeedSequence([seed, number]))
        places = [i for i in range(1, len(words) - 1) if _swappable(words[i], words[i + 1])]
        position = -1
        if draw.random() < 0.5 and places:
            position = places[int(draw.integers(len(places)))]
            words[position], words[position + 1] = words[position + 1], words[position]
        made.append(
            {
                "tokens": tuple(words),
                "label": int(position < 0),
                "example_id": base + number,
                "position": position,
            }
        )
    return Source(made, SourceInfo(name, split, (SHIFTED, KEPT)))


def _swappable(left: str, right: str) -> bool:
    words = all(any(c.isalnum() for c in word) for word in (left, right))
    return words and left.lower() != right.lower()
