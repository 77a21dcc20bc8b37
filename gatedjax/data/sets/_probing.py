"""SentEval's probing tasks (Conneau et al. 2018): a file of "split<TAB>label<TAB>sentence".

The training lines determine the set of labels. `bigram_shift` makes the lines of a task from any
text.
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from gatedjax.data.files._lines import FileRow, FileRows, LineError, read_lines
from gatedjax.data.files._paths import AnyPath, Fetch, Places, find
from gatedjax.data.files._source import Example, ReadReport, Source, SourceInfo
from gatedjax.data.sets._declaration import (
    DataSet,
    ReadPart,
    RowExamples,
    TfdsForm,
    lazily,
)

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
URL = "https://raw.githubusercontent.com/facebookresearch/SentEval/master/data/probing/"
MARKS = {"train": "tr", "validation": "va", "test": "te"}
SHIFTED, KEPT = "I", "O"


@dataclasses.dataclass(frozen=True)
class _OneFile(Places):
    """The place of the file of a probing task, which contains all parts."""

    task: str
    url: str | None = URL

    def find(self, manual_dir: Path, part: str) -> tuple[Path | None, str]:
        folders = [manual_dir / "probing", manual_dir / "data" / "probing", manual_dir]
        return find(folders, f"{self.task}.txt"), f"{self.task}.txt (or .gz)"

    def download(self, fetch: Fetch) -> Mapping[str, AnyPath]:
        return dict.fromkeys(MARKS, fetch(f"{self.url}{self.task}.txt"))

    def prepared_name(self, part: str, file: str) -> str:
        return f"{self.task}.txt"


def parse(line: str) -> tuple[int, tuple[str, str]]:
    """Parses a line (mark of the split, label, sentence); returns (0, (label, sentence))."""
    columns = line.split("\t")
    if len(columns) != 3:
        raise LineError(f"{len(columns)} columns; wanted split, label, sentence")
    mark, label, sentence = (column.strip() for column in columns)
    if mark not in MARKS.values():
        raise LineError(f"unknown split {mark[:40]!r}; splits are {', '.join(MARKS.values())}")
    if not label or not sentence:
        raise LineError("an empty label or sentence")
    return 0, (label, sentence)


def read_rows(path: AnyPath, part: str) -> FileRows:
    """Reads the lines of a part from the file with the lines of all parts."""
    parts = {f"{mark}\t".encode(): name for name, mark in MARKS.items()}
    # Lines with an unknown mark belong to "train", where they are set aside.
    return read_lines(path, parse, selects=lambda line: parts.get(line[:3], "train") == part)


def _example(row: FileRow, example_id: int, classes: Sequence[str] = ()) -> Example:
    name, sentence = row.content
    return {
        "tokens": tuple(sentence.split()),
        "label": classes.index(name) if classes else -1,
        "example_id": example_id,
        "text": sentence,
    }


def classes_of(rows: Iterable[FileRow]) -> tuple[str, ...]:
    """Returns the distinct labels of rows with the contents (label, sentence), sorted."""
    names = {row.content[0] for row in rows}
    return tuple(sorted(names, key=lambda n: (0, int(n), n) if n.isdigit() else (1, 0, n)))


def source(
    examples: RowExamples, info: SourceInfo, report: ReadReport, read_part: ReadPart
) -> Source:
    """Returns a source in which classes are numbered by the labels of the training part."""
    classes = classes_of(read_part("train").rows)
    for row in examples.rows.rows:
        label, example_id = row.content[0], examples.base + row.index
        # A label that the training part lacks cannot be learned, and counting it as wrong would
        # hide a wrong file.
        if label not in classes:
            raise ValueError(
                f"label of example {example_id} of {info.name}, {info.split} must be one of "
                f"{', '.join(map(repr, classes))}, the labels of the training part, got {label!r}"
            )
    make = functools.partial(_example, classes=classes)
    info = dataclasses.replace(info, class_names=classes)
    return Source(RowExamples(examples.rows, examples.base, make), info, report)


def _declare(task: str) -> DataSet:
    return DataSet(
        name=f"senteval_{task}",
        family=("senteval_probing", "task", task),
        config=task,
        official={"train": 100_000, "validation": 10_000, "test": 10_000},
        where=f"{URL}{task}.txt",
        files=_OneFile(task),
        read_rows=read_rows,
        examples=lazily(_example),
        classes=(),  # set in `source`
        source=source,
        tfds=TfdsForm(
            description="SentEval's probing tasks, one configuration each: sentences with a label.",
            # The training part determines the numbers of the labels in all parts.
            features={"label": str, "text": str},
        ),
    )


DECLARED = tuple(_declare(task) for task in TASKS)


def bigram_shift(
    sentences: Iterable[Sequence[str]],
    *,
    seed: int = 0,
    name: str = "bigram_shift",
    split: str = "train",
    base: int = 0,
) -> Source:
    """Swaps two neighbouring words in half of the sentences, like the BShift probe.

    The choice of sentences and positions is a function of the seed and the number of the sentence.
    The first word, tokens without a letter or digit, and pairs of equal words are not swapped. A
    sentence without a suitable pair stays unchanged.

        >>> source = bigram_shift([["the", "cat", "sat", "down"]] * 4)
        >>> sorted({" ".join(example["tokens"]) for example in source})
        ['the cat sat down', 'the sat cat down']

    Args:
      sentences: the words of each sentence.
      seed: seed of the draws.
      name, split: name and split of the source.
      base: first example id.

    Returns:
      A source of examples. The class "I" is inverted: "position" is the position of the first of
      the two swapped words. The class "O" is original: "position" is -1.

    Reference: Conneau et al. 2018, "What you can cram into a single vector".
    """
    examples = []
    for number, words in enumerate(sentences):
        words = list(words)
        # Each sentence has its generator, so that its draw does not depend on the other sentences.
        draw = np.random.default_rng(np.random.SeedSequence([seed, number]))
        places = [i for i in range(1, len(words) - 1) if _swappable(words[i], words[i + 1])]
        position = -1
        if draw.random() < 0.5 and places:
            position = places[int(draw.integers(len(places)))]
            words[position], words[position + 1] = words[position + 1], words[position]
        examples.append(
            {
                "tokens": tuple(words),
                "label": int(position < 0),
                "example_id": base + number,
                "position": position,
            }
        )
    return Source(examples, SourceInfo(name, split, (SHIFTED, KEPT)))


def _swappable(first: str, second: str) -> bool:
    words = all(any(c.isalnum() for c in word) for word in (first, second))
    return words and first.lower() != second.lower()
