"""Tagged sentences in CoNLL files or in memory."""

import dataclasses
import functools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from gatedjax.data.files._compressed import inner_name
from gatedjax.text._lines import TextFile
from gatedjax.text._table import Aside, compose

ENDS = (".conll", ".conllu", ".iob", ".bio")
LONGEST = 100_000
"""Largest number of words in a sentence, because a file may lack the empty lines."""
# Unicode's other spaces are characters of words.
_SPACES = re.compile(r"[ \v\f]+")
# Tags of spans are recognised by their form, even if no other line has the tag.
_SPAN = re.compile(r"O|[BIESLUM]-.+")


@dataclasses.dataclass(frozen=True, slots=True)
class TaggedRecord:
    """A sentence with a tag for each word."""

    line: int
    """The line of its first word, from 1."""
    words: tuple[str, ...]
    """The words."""
    tags: tuple[str, ...]
    """The tag of each word; empty if only words were read."""
    where: str
    """The name of the file, for messages."""


class SentenceTable(Protocol):
    """An iterable of `TaggedRecord` and `Aside`, which can be read several times."""

    @property
    def name(self) -> str:
        """The name of the source, for messages."""

    def __iter__(self) -> Iterator[TaggedRecord | Aside]: ...


@dataclasses.dataclass(frozen=True)
class Tags:
    """The sentences of a file, an iterable of `TaggedRecord` and `Aside`. Each pass reads the file
    again, with a single sentence in memory.
    """

    file: TextFile
    word: int
    """Column of the words."""
    tag: int | None
    """Column of the tags; None reads only the words."""
    universal: bool
    """True for a .conllu file, whose comments and multiword tokens are skipped."""

    @property
    def name(self) -> str:
        """The path of the file."""
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
                continue  # "3-4" is a token of two words, "3.1" a word that is not in the text.
            if not first:
                first, width = number, len(fields)
            # A sentence with a fault is still read to its end, because only the empty line shows
            # where the next sentence begins.
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
        """Returns True for a comment, False for a word, and None if "#" with a possible tag may be
        both.
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
        # Tags rarely have small letters or begin with a digit.
        return True if any(map(str.islower, last)) or last[0].isdigit() else None

    def _kind_of(self, fields: list[str]) -> tuple[int, str]:
        column = -1 if self.tag is None else self.tag
        if len(fields) == 1 or not -len(fields) <= column < len(fields):
            return len(fields), ""
        return len(fields), fields[column]

    @functools.cached_property
    def _tags_by_columns(self) -> dict[int, set[str]]:
        """A dict from a number of columns to the tags in lines with so many, without lines that may
        be comments. Only a line that begins with "# " before a sentence needs this pass over the
        file.
        """
        tags: dict[int, set[str]] = {}
        inside = False
        for _, line in self.file.lines():
            text = line.rstrip("\r\n")
            if text.startswith("-DOCSTART-"):
                continue
            doubtful = not inside and (text + " ").startswith("# ")
            if text.strip() and "\t" not in text and not doubtful:
                count, tag = self._kind_of(_fields(text))
                tags.setdefault(count, set()).add(tag)
            inside = bool(text.strip()) and (inside or not doubtful)
        return tags

    def _fault(self, fields: list[str], width: int) -> str | None:
        """Returns the reason why a line cannot be used, or None."""
        # All lines of a sentence must have as many columns, because a column of the tags that is
        # counted from the end would otherwise move.
        if len(fields) != width:
            return f"{len(fields)} columns where the first word of the sentence has {width}"
        required = [self.word] if self.tag is None else [self.word, self.tag]
        needed = {column if column >= 0 else width + column for column in required}
        if len(needed) < len(required) or not 0 <= min(needed) <= max(needed) < width:
            columns = f"{width} column{'s' * (width != 1)}"
            tag = "" if self.tag is None else f" and a tag (column {self.tag})"
            return f"{columns}, not a word (column {self.word}){tag}"
        return None if all(fields[i].strip() for i in needed) else "an empty word or tag"


def _fields(text: str) -> list[str]:
    return text.split("\t") if "\t" in text else _SPACES.split(text.strip(" \v\f"))


def open_tags(
    path: str | Path,
    *,
    word: int | None = None,
    tag: int | None = None,
    encoding: str = "utf-8",
    tagged: bool = True,
) -> Tags:
    """Opens a file with a word in each line and an empty line after each sentence. A comment is in
    .conllu files a line that begins with "#", in other files a line before a sentence that begins
    with "# ", unless "#" is a word there with a tag of other lines.
    """
    file = TextFile(Path(path), encoding)
    file.check()
    universal = inner_name(file.path).lower().endswith(".conllu")
    word_default, tag_default = (1, 3) if universal else (0, -1)
    column = tag_default if tag is None else tag
    return Tags(file, word_default if word is None else word, column if tagged else None, universal)


@dataclasses.dataclass(frozen=True)
class TagRows:
    """Tagged sentences in memory."""

    rows: Sequence[Iterable[Sequence[str]]]  # (words, tags) for each sentence
    name: str = "the data"

    def __iter__(self) -> Iterator[TaggedRecord | Aside]:
        for number, row in enumerate(self.rows, start=1):
            # A string is a sequence, too. Without this test the letters of a word would become
            # words.
            pair = [tuple(part) for part in row if not isinstance(part, str)]
            if len(pair) != 2 or not all(isinstance(w, str) and w for part in pair for w in part):
                raise TypeError(
                    f"sentence {number} must be a list of words and a list of tags, got {row!r:.40}"
                )
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
    """Opens tagged sentences in a file, or in memory as a list [(words, tags), ...]. Columns count
    from 0, or negative from the end; the defaults are the first and the last, in .conllu the second
    and the fourth.

        >>> [sentence] = open_sentences([(["in", "Paris"], ["O", "LOC"])])
        >>> sentence.tags
        ('O', 'LOC')
    """
    if isinstance(data, str | os.PathLike):
        return open_tags(os.fspath(data), word=word, tag=tag, encoding=encoding)
    if not isinstance(data, Sequence):
        raise TypeError(
            f"data must be a path or a list of (words, tags), got {type(data).__name__}"
        )
    return TagRows(data)
