"""Tagged sentences in CoNLL files or in memory."""

import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from gatedjax.data.files._unpack import inner_name
from gatedjax.text.sources._labels import compose
from gatedjax.text.sources._lines import TextFile
from gatedjax.text.sources._table import Aside

ENDS = (".conll", ".conllu", ".iob", ".bio")
LONGEST = 100_000
"""Largest number of words in a sentence, because a file may lack the empty lines."""
# Unicode's other spaces are characters of words.
_SPACES = re.compile(r"[ \v\f]+")


@dataclasses.dataclass(frozen=True, slots=True)
class TaggedRecord:
    """A sentence with a tag for each word."""

    line: int  # the line of its first word, from 1
    words: tuple[str, ...]
    tags: tuple[str, ...]  # of each word; empty if only words were read
    where: str  # the name of the file, for messages


@dataclasses.dataclass(frozen=True)
class SentenceTable:
    """An iterable of `TaggedRecord` and `Aside`, which reads its source again in each pass."""

    name: str  # of the source, for messages
    sentences: Callable[[], Iterator[TaggedRecord | Aside]]

    def __iter__(self) -> Iterator[TaggedRecord | Aside]:
        return self.sentences()


def open_sentences(
    data: object,
    *,
    word: int | None = None,
    tag: int | None = None,
    encoding: str = "utf-8",
    tagged: bool = True,
) -> SentenceTable:
    """Opens sentences in a file with a word in each line, or a list [(words, tags), ...]. Columns
    count from 0, or negative from the end; the defaults are the first and the last, in .conllu the
    second and the fourth. `tagged` is False if only words are read.
    """
    if not isinstance(data, str | os.PathLike):
        if not isinstance(data, Sequence):
            raise TypeError(
                f"data must be a path or a list of (words, tags), got {type(data).__name__}"
            )
        return SentenceTable("the data", lambda: _in_memory("the data", data))
    file = TextFile(Path(data), encoding)
    file.check()
    universal = inner_name(file.path).lower().endswith(".conllu")
    places = ((word, 1 if universal else 0), (tag, 3 if universal else -1))[: 1 + tagged]
    columns = [default if place is None else place for place, default in places]
    return SentenceTable(str(file.path), lambda: _in_file(file, columns, universal=universal))


def _in_file(
    file: TextFile, columns: Sequence[int], *, universal: bool
) -> Iterator[TaggedRecord | Aside]:
    """Yields the sentences of a file; `columns` are that of the words and perhaps of the tags."""
    cells: list[list[str]] = [[], []]
    first = width = 0
    aside: Aside | None = None
    # An empty line ends the last sentence, too.
    for number, line, problem in itertools.chain(file.lines(), [(0, "", None)]):
        text = line.rstrip("\r\n")
        if not text.strip():
            if first:
                words, tags = map(tuple, cells)
                yield aside or TaggedRecord(first, words, tags, str(file.path))
            cells, first, aside = [[], []], 0, None
            continue
        has_tabs = "\t" in text
        fields = text.split("\t") if has_tabs else _SPACES.split(text.strip(" \v\f"))
        if universal:
            # "3-4" is a token of two words, "3.1" a word that is not in the text, and "#" begins a
            # comment.
            is_word = fields[0].isdigit()
        else:
            is_word = bool(first or has_tabs or not text.startswith("# "))
        if not is_word or text.startswith("-DOCSTART-"):
            continue
        if not first:
            first, width = number, len(fields)
        # A sentence with a fault is still read to its end, because only the empty line shows where
        # the next sentence begins.
        problem = problem or _fault(fields, width, columns)
        if problem is None and len(cells[0]) == LONGEST:
            problem = f"more than {LONGEST:,} words without an empty line"
        if problem is not None:
            aside = aside or Aside(str(file.path), number, problem)
        if aside is None:
            for column, place in zip(cells, columns, strict=False):
                column.append(compose(fields[place]))


def _fault(fields: list[str], width: int, columns: Sequence[int]) -> str | None:
    """Returns the reason why a line cannot be used, or None."""
    # All lines of a sentence must have as many columns, because a column of the tags that is
    # counted from the end would otherwise move.
    if len(fields) != width:
        return f"{len(fields)} columns where the first word of the sentence has {width}"
    needed = {column if column >= 0 else width + column for column in columns}
    if len(needed) < len(columns) or not 0 <= min(needed) <= max(needed) < width:
        tag = f" and a tag (column {columns[1]})" if len(columns) > 1 else ""
        return f"{width} column{'s' * (width != 1)}, not a word (column {columns[0]}){tag}"
    return None if all(fields[i].strip() for i in needed) else "an empty word or tag"


def _in_memory(
    name: str, rows: Sequence[Iterable[Sequence[str]]]
) -> Iterator[TaggedRecord | Aside]:
    for number, row in enumerate(rows, start=1):
        # A string is a sequence, too. Without this test the letters of a word would become words.
        pair = [tuple(part) for part in row if not isinstance(part, str)]
        if len(pair) != 2 or not all(isinstance(w, str) and w for part in pair for w in part):
            raise TypeError(
                f"sentence {number} must be a list of words and a list of tags, got {row!r:.40}"
            )
        words, tags = pair
        if len(words) != len(tags):
            yield Aside(name, number, f"{len(words)} words and {len(tags)} tags")
        elif not words:
            yield Aside(name, number, "no word")
        elif not all(map(str.strip, (*words, *tags))):
            yield Aside(name, number, "an empty word or tag")
        else:
            yield TaggedRecord(number, tuple(map(compose, words)), tuple(map(compose, tags)), name)
