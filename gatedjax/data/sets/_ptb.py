"""Penn Treebank as a language-modelling text (Mikolov's preprocessed `ptb.{train,valid,test}.txt`).

Lines of words between spaces, lower-cased, with `<unk>` for rare words and `N` for numbers. The
end of a line is a token of its own, `<eos>`; with it the training part has 10,000 distinct tokens.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from gatedjax.data.files import _lines as files
from gatedjax.data.files._lines import AnyPath, LineError, Rows, read_bytes, read_lines
from gatedjax.data.files._source import Example, ReadReport, Source, SourceInfo
from gatedjax.data.files._tar import TarPath
from gatedjax.data.text._stream import EOS, ClosedVocabulary, TokenStream

CLASSES = ("sentence",)
"""Sentences have no classes; as examples of a `Source` all have label 0."""
OFFICIAL = {"train": 42_068, "validation": 3_370, "test": 3_761}
FILES = {"train": "ptb.train.txt", "validation": "ptb.valid.txt", "test": "ptb.test.txt"}
ARCHIVE = "simple-examples.tgz"
URL = f"http://www.fit.vutbr.cz/~imikolov/rnnlm/{ARCHIVE}"
VOCABULARY_SIZE = 10_000

_FOLDER = "simple-examples/data"
# not str.split: a no-break space is no border of words
_SPACE = re.compile("[ \t]+")


def parse(line: str) -> tuple[int, tuple[str, ...]]:
    """Parses one line: (0, its words and `<eos>`).

    Raises:
      LineError: if the line has `<eos>` as a word.
    """
    words = tuple(word for word in _SPACE.split(line) if word)
    if EOS in words:
        raise LineError(f"the line has {EOS} as a word; the end of a line stands for it")
    return 0, (*words, EOS)


def inside(part: str) -> str:
    """The name of a part's file in the archive."""
    return f"{_FOLDER}/{FILES[part]}"


def find(manual_dir: Path, part: str) -> AnyPath | None:
    """Returns the file of a part below manual_dir, unpacked or in the archive as downloaded."""
    tops = [manual_dir / "ptb", manual_dir]
    folders = [folder for top in tops for folder in (top, top / "data", top / _FOLDER)]
    path = files.find(folders, FILES[part])
    archive = next((top / ARCHIVE for top in tops if (top / ARCHIVE).is_file()), None)
    return TarPath(archive, inside(part)) if path is None and archive else path


def read(path: AnyPath) -> Rows:
    """Reads a file of sentences.

    Raises:
      ValueError: if the file is empty or damaged.
    """
    rows = read_lines(path, parse, "utf-8")
    if not rows.lines and not read_bytes(path):
        raise ValueError(f"{path}: the file is empty")
    return rows


def sentences(rows: Rows, *, base: int) -> list[Example]:
    """Makes examples of lines; "tokens" ends with `<eos>`."""
    return [
        {"tokens": row.content, "label": 0, "example_id": base + row.index} for row in rows.rows
    ]


def stream(
    examples: Sequence[Example],
    info: SourceInfo,
    report: ReadReport,
    part: Callable[[str], Rows],
) -> Source:
    """Makes a stream of a part, with the vocabulary of the training part.

    Args:
      examples: of the part.
      info: name and split.
      report: of the part.
      part: reads an official part.

    Raises:
      ValueError: if the vocabulary has not exactly 10,000 words.
    """
    train = sentences(part("train"), base=0)
    vocabulary = ClosedVocabulary.build([Source(train, info)])
    if len(vocabulary) != VOCABULARY_SIZE:
        raise ValueError(
            f"data set 'ptb': the training part has {len(vocabulary):,} distinct tokens ({EOS} "
            f"included), wanted {VOCABULARY_SIZE:,}. Wanted are Mikolov's preprocessed files "
            f"({URL}), in which rare words are <unk>."
        )
    return TokenStream(examples, info, report, vocabulary=vocabulary)
