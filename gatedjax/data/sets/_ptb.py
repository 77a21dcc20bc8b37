"""Penn Treebank as a language-modelling text (Mikolov's preprocessed `ptb.{train,valid,test}.txt`).

Lines of words between spaces, lower-cased, with `<unk>` for rare words and `N` for numbers. The
end of a line is a token, `<eos>`; with it the training part has 10,000 distinct tokens.
"""

import re
from collections.abc import Sequence

import numpy as np

from gatedjax.data.files._lines import FileRow, FileRows, LineError, read_lines
from gatedjax.data.files._paths import AnyPath, Files, read_bytes
from gatedjax.data.files._source import Example, ReadReport, Source, SourceInfo
from gatedjax.data.sets._declaration import DataSet, ReadPart, TfdsForm, lazily
from gatedjax.data.text._vocabulary import ClosedVocabulary

FILES = {"train": "ptb.train.txt", "validation": "ptb.valid.txt", "test": "ptb.test.txt"}
ARCHIVE = "simple-examples.tgz"
URL = f"http://www.fit.vutbr.cz/~imikolov/rnnlm/{ARCHIVE}"
VOCABULARY_SIZE = 10_000

EOS = "<eos>"
_FOLDER = "simple-examples/data"
# Not str.split, because a no-break space does not separate words.
_SPACE = re.compile("[ \t]+")


class TokenStream(Source):
    """The sentences of a split, with all their tokens as an array.

    Each sentence ends with an end-of-sentence token, which is predicted like a word. As a `Source`
    a stream is the sequence of its sentences.

        >>> sentences = [{"tokens": ["a", "b", "<eos>"], "example_id": 0}]
        >>> vocabulary = ClosedVocabulary(["<eos>", "a", "b"])
        >>> info = SourceInfo("letters", "train", class_names=())
        >>> stream = TokenStream(sentences, info, vocabulary=vocabulary)
        >>> print(stream.ids, stream.end_id)
        [1 2 0] 0

    Args:
      sentences: examples with "tokens" (`end` the last of each) and "example_id", in order.
      info: a `SourceInfo` with the name and the split.
      report: a `ReadReport`, the counts of used and unused lines; None means that all were used.
      vocabulary: maps tokens to ids.
      end: the end-of-sentence token; the model reads it before the first word of the stream.

    Attributes:
      info, report, vocabulary: the arguments of these names.
      ids: int32 [n], the ids of all n tokens.
      end_id: the id of `end`.
      unknown: the number of tokens outside the vocabulary; `<unk>` in the text does not count.
      first_id: the example id of the first sentence. `LanguageModelBatches` adds the position of a
        window of tokens to it.

    Raises:
      ValueError: if there are no sentences, a sentence does not end with `end`, or `end` is not in
        the vocabulary.
    """

    def __init__(
        self,
        sentences: Sequence[Example],
        info: SourceInfo,
        report: ReadReport | None = None,
        *,
        vocabulary: ClosedVocabulary,
        end: str = EOS,
    ) -> None:
        super().__init__(sentences, info, report)
        where = f"{info.name}, {info.split}"
        if end not in vocabulary:
            raise ValueError(f"{where}: end must be in the vocabulary, got {end!r}")
        if not len(sentences):
            raise ValueError(f"{where}: sentences must not be empty, got no sentence")
        tokens: list[str] = []
        for sentence in sentences:
            if tuple(sentence["tokens"][-1:]) != (end,):
                raise ValueError(
                    f"{where}: sentence {sentence['example_id']} must end with {end!r}, got "
                    f"{sentence['tokens'][-1:]!r}"
                )
            tokens += sentence["tokens"]
        self.vocabulary = vocabulary
        self.ids = np.array(vocabulary.encode(tokens), np.int32)
        # The batches of all epochs read this array, so a write must fail.
        self.ids.setflags(write=False)
        self.end_id = vocabulary.encode([end])[0]
        self.unknown = sum(token not in vocabulary for token in tokens)
        self.first_id = int(sentences[0]["example_id"])

    @property
    def num_tokens(self) -> int:
        """The number of tokens of the stream, end-of-sentence tokens included."""
        return len(self.ids)

    def __repr__(self) -> str:
        return f"TokenStream({self.info.name!r}, {self.info.split!r}, {self.num_tokens} tokens)"


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
        examples=lazily(_example, once=True),
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
