"""Penn Treebank as a language-modelling text (Mikolov's preprocessed `ptb.{train,valid,test}.txt`).

Lines of words between spaces, lower-cased, with `<unk>` for rare words and `N` for numbers. The
end of a line is a token, `<eos>`; with it the training part has 10,000 distinct tokens.
"""

import re
from collections.abc import Sequence

from gatedjax.data.files._lines import FileRow, FileRows, LineError, read_lines
from gatedjax.data.files._paths import AnyPath, Files, read_bytes
from gatedjax.data.files._source import Example, ReadReport, Source, SourceInfo
from gatedjax.data.sets._declaration import DataSet, ReadPart, TfdsForm, eagerly
from gatedjax.data.text._stream import EOS, ClosedVocabulary, TokenStream

FILES = {"train": "ptb.train.txt", "validation": "ptb.valid.txt", "test": "ptb.test.txt"}
ARCHIVE = "simple-examples.tgz"
URL = f"http://www.fit.vutbr.cz/~imikolov/rnnlm/{ARCHIVE}"
VOCABULARY_SIZE = 10_000

_FOLDER = "simple-examples/data"
# Not str.split, because a no-break space does not separate words.
_SPACE = re.compile("[ \t]+")


def parse(line: str) -> tuple[int, tuple[str, ...]]:
    """Parses a line of words between spaces; returns (0, its words and `<eos>`, a tuple)."""
    words = tuple(word for word in _SPACE.split(line) if word)
    # A written <eos> could not be distinguished from the end of a line.
    if EOS in words:
        raise LineError(f"the line has {EOS} as a word; the end of a line stands for it")
    return 0, (*words, EOS)


def read_rows(path: AnyPath, part: str = "") -> FileRows:
    """Reads a file of sentences; the content of a row is its tuple of words and `<eos>`."""
    rows = read_lines(path, parse)
    if not rows.lines and not read_bytes(path):
        raise ValueError(f"{path}: the file is empty; it must have a sentence in each line")
    return rows


def _example(row: FileRow, example_id: int) -> Example:
    return {"tokens": row.content, "label": 0, "example_id": example_id}


def stream(
    examples: Sequence[Example], info: SourceInfo, report: ReadReport, read_part: ReadPart
) -> Source:
    """Returns the tokens of a split as a `TokenStream` with the vocabulary of the training part."""
    train = [_example(row, row.index) for row in read_part("train").rows]
    vocabulary = ClosedVocabulary.build([Source(train, info)])
    # Perplexities are comparable only with the published vocabulary, so other versions of the text
    # are refused.
    if len(vocabulary) != VOCABULARY_SIZE:
        raise ValueError(
            f"data set 'ptb': the training part must have {VOCABULARY_SIZE:,} distinct tokens "
            f"({EOS} included), got {len(vocabulary):,}: use Mikolov's preprocessed files ({URL}), "
            "in which rare words are <unk>"
        )
    return TokenStream(examples, info, report, vocabulary=vocabulary)


DECLARED = (
    DataSet(
        name="ptb",
        official={"train": 42_068, "validation": 3_370, "test": 3_761},
        where=f"{URL} (as it is, or unpacked)",
        files=Files(
            FILES,
            tops=("ptb", ""),
            inner=("", "data", _FOLDER),
            url=URL.removesuffix(ARCHIVE),
            archives=dict.fromkeys(FILES, ARCHIVE),
            inside=f"{_FOLDER}/",
        ),
        read_rows=read_rows,
        examples=eagerly(_example),
        # Sentences have no classes, so all examples have label 0.
        classes=("sentence",),
        source=stream,
        tfds=TfdsForm(
            description="Penn Treebank for language modelling: the lines of Mikolov's files, "
            "without `<eos>`.",
            features={"text": str},
            record=lambda row: {"text": " ".join(row.content[:-1])},
            row=lambda record: parse(record["text"].decode()),
        ),
    ),
)
