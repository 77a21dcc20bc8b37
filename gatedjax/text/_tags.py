"""Words with a tag each, in the columns of CoNLL's files."""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from gatedjax.text._lines import TextFile
from gatedjax.text._table import Aside

ENDS = (".conll", ".conllu", ".iob", ".bio")
LONGEST = 100_000
"""Words of a sentence: a file without an empty line is none."""


@dataclasses.dataclass(frozen=True, slots=True)
class TaggedRecord:
    """A sentence."""

    line: int
    """Of its first word, from 1."""
    words: tuple[str, ...]
    tags: tuple[str, ...]
    where: str


class SentenceTable(Protocol):
    """Sentences that can be read again and again, one at a time."""

    @property
    def name(self) -> str:
        """For messages."""

    def __iter__(self) -> Iterator[TaggedRecord | Aside]: ...


@dataclasses.dataclass(frozen=True)
class Tags:
    """Sentences of a file; every pass reads it again and holds one sentence at a time."""

    file: TextFile
    word: int
    tag: int | None
    """None: sentences have no tags."""
    universal: bool

    @property
    def name(self) -> str:
        """The path."""
        return self.file.name

    def __iter__(self) -> Iterator[TaggedRecord | Aside]:
        words: list[str] = []
        tags: list[str] = []
        first = width = 0
        aside: Aside | None = None
        for number, line in self.file.lines():
            text = line.rstrip("\r\n")
            if not text.strip():
                if first:
                    yield aside or TaggedRecord(first, tuple(words), tuple(tags), self.name)
                words, tags, first, aside = [], [], 0, None
                continue
            if self._is_comment(text, first) or text.startswith("-DOCSTART-"):
                continue
            fields = text.split("\t") if "\t" in text else text.split()
            if self.universal and not fields[0].isdigit():
                continue  # "3-4" is a form that words make together, "3.1" one that is not there
            if not first:
                first, width = number, len(fields)
            problem = self.file.fault(line) or self._fault(fields, width)
            if problem is None and len(words) == LONGEST:
                problem = f"more than {LONGEST:,} words without an empty line"
            if problem is not None:
                aside = aside or Aside(self.name, number, problem)
            if aside is None:
                words.append(fields[self.word].strip())
                if self.tag is not None:
                    tags.append(fields[self.tag].strip())
        if first:
            yield aside or TaggedRecord(first, tuple(words), tuple(tags), self.name)

    def _is_comment(self, text: str, first: int) -> bool:
        """Whether a line is a comment: "#" may also be a word, and "#film" is one."""
        if self.universal:
            return text.startswith("#")
        return not first and "\t" not in text and (text + " ").startswith("# ")

    def _fault(self, fields: list[str], width: int) -> str | None:
        if len(fields) != width:
            return f"{len(fields)} columns where the first word of the sentence has {width}"
        wanted = [self.word] if self.tag is None else [self.word, self.tag]
        needed = {column if column >= 0 else width + column for column in wanted}
        if len(needed) < len(wanted) or not 0 <= min(needed) <= max(needed) < width:
            columns = f"{width} column{'s' * (width != 1)}"
            tag = "" if self.tag is None else f" and a tag (column {self.tag})"
            return f"{columns}, not a word (column {self.word}){tag}"
        return None if all(fields[i].strip() for i in needed) else "an empty word or tag"


def open_tags(
    path: str | Path,
    *,
    word: int | None = None,
    tag: int | None = None,
    encoding: str = "utf-8",
    tagged: bool = True,
) -> Tags:
    """Opens a file of words with tags: one word a line, an empty line after every sentence.

    Columns stand between tabs, or between spaces where a line has no tab. "-DOCSTART-" and comments
    are skipped: a line before a sentence that begins with "# ", in .conllu every line with "#".

    Args:
      path: of the file, plain or .gz.
      word: column of the words, from 0; by default the first, in .conllu the second.
      tag: column of the tags, negative from the end; by default the last, in .conllu the fourth.
      encoding: of the file.
      tagged: False reads the words alone.

    Returns:
      Sentences, or `Aside` for one that has a line that cannot be used.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if it is no text file.
    """
    file = TextFile(Path(path), encoding)
    file.check()
    universal = file.path.name.lower().removesuffix(".gz").endswith(".conllu")
    word_default, tag_default = (1, 3) if universal else (0, -1)
    column = tag_default if tag is None else tag
    return Tags(file, word_default if word is None else word, column if tagged else None, universal)


@dataclasses.dataclass(frozen=True)
class TagRows:
    """Sentences in memory: pairs of words and tags."""

    rows: Sequence[Iterable[Sequence[str]]]
    name: str = "the data"

    def __iter__(self) -> Iterator[TaggedRecord | Aside]:
        for number, row in enumerate(self.rows, start=1):
            pair = [tuple(one) for one in row if not isinstance(one, str)]
            if len(pair) != 2 or not all(isinstance(w, str) and w for one in pair for w in one):
                raise TypeError(f"sentence {number} must be a list of words and a list of tags")
            words, tags = pair
            if len(words) != len(tags):
                reason = f"{len(words)} words and {len(tags)} tags"
                yield Aside(self.name, number, reason)
            elif not words:
                yield Aside(self.name, number, "no word")
            else:
                yield TaggedRecord(number, words, tags, self.name)


def open_sentences(
    data: object, *, word: int | None = None, tag: int | None = None, encoding: str = "utf-8"
) -> SentenceTable:
    """Opens tagged sentences: a path (see `open_tags`), or [(words, tags), ...].

    Raises:
      FileNotFoundError, ValueError: see `open_tags`.
      TypeError: if data is neither.
    """
    if isinstance(data, str | os.PathLike):
        return open_tags(os.fspath(data), word=word, tag=tag, encoding=encoding)
    if not isinstance(data, Sequence):
        raise TypeError(
            f"data must be a path or a list of (words, tags), got {type(data).__name__}"
        )
    return TagRows(data)
