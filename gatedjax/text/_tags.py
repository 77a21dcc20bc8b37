"""Words with a tag each, in the columns of CoNLL's files."""

import dataclasses
import functools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from gatedjax.text._lines import TextFile
from gatedjax.text._table import Aside, compose

ENDS = (".conll", ".conllu", ".iob", ".bio")
LONGEST = 100_000
"""Words of a sentence: a file without an empty line is none."""
# not Unicode's other spaces, which are characters of words
_SPACES = re.compile(r"[ \v\f]+")
# tags of spans are known by their form where a file has no other line with such a tag
_SPAN = re.compile(r"O|[BIESLUM]-.+")


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
            is_comment = self._is_comment(text, first)
            if is_comment or text.startswith("-DOCSTART-"):
                continue
            fields = _fields(text)
            if self.universal and not fields[0].isdigit():
                continue  # "3-4" is a form that words make together, "3.1" one that is not there
            if not first:
                first, width = number, len(fields)
            problem = self.file.fault(line) or self._fault(fields, width)
            if is_comment is None and problem is None:
                problem = (
                    f"{text[:40]!r} is a comment, or the word '#' with a tag that no other line "
                    "has: remove the comment, or put tabs between the columns"
                )
            if problem is None and len(words) == LONGEST:
                problem = f"more than {LONGEST:,} words without an empty line"
            if problem is not None:
                aside = aside or Aside(self.name, number, problem)
            if aside is None:
                words.append(compose(fields[self.word]))
                if self.tag is not None:
                    tags.append(compose(fields[self.tag]))
        if first:
            yield aside or TaggedRecord(first, tuple(words), tuple(tags), self.name)

    def _is_comment(self, text: str, first: int) -> bool | None:
        """Whether a line is a comment: "#" may also be a word, and "#film" is one.

        Before a sentence "# O" is the word "#" with its tag, if lines of as many columns have the
        tag "O". "# newdoc" is a comment, if none has the tag "newdoc". Tags seldom have small
        letters, or a digit first: None, for "# SYM", where none has that tag, because it may be
        either.
        """
        if self.universal:
            return text.startswith("#")
        if first or "\t" in text or not (text + " ").startswith("# "):
            return False
        count, last = self._kind_of(_fields(text))
        if count not in self._tags_by_columns:
            return True
        if last in self._tags_by_columns[count] or _SPAN.fullmatch(last):
            return False
        return True if any(map(str.islower, last)) or last[0].isdigit() else None

    def _kind_of(self, fields: list[str]) -> tuple[int, str]:
        """The number of columns and the tag of a line, "" where there is a word alone."""
        column = -1 if self.tag is None else self.tag
        if len(fields) == 1 or not -len(fields) <= column < len(fields):
            return len(fields), ""
        return len(fields), fields[column]

    @functools.cached_property
    def _tags_by_columns(self) -> dict[int, set[str]]:
        """The tags of the lines that cannot be comments, by their number of columns.

        The file is read once more for them, if a line begins with "# " before a sentence.
        """
        found: dict[int, set[str]] = {}
        inside = False
        for _, line in self.file.lines():
            text = line.rstrip("\r\n")
            if text.startswith("-DOCSTART-"):
                continue
            doubtful = not inside and (text + " ").startswith("# ")
            if text.strip() and "\t" not in text and not doubtful:
                count, tag = self._kind_of(_fields(text))
                found.setdefault(count, set()).add(tag)
            inside = bool(text.strip()) and (inside or not doubtful)
        return found

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


def _fields(text: str) -> list[str]:
    """The columns of a line: between tabs, or between spaces where it has no tab."""
    return text.split("\t") if "\t" in text else _SPACES.split(text.strip(" \v\f"))


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
    are skipped: in .conllu every line with "#", else a line before a sentence that begins with
    "# ", unless it is the word "#": it has the columns of other lines, and a tag that they have.

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
            elif not all(map(str.strip, (*words, *tags))):
                yield Aside(self.name, number, "an empty word or tag")
            else:
                words, tags = tuple(map(compose, words)), tuple(map(compose, tags))
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
