r"""Constituency trees in Penn brackets, one tree a line: `(TOP (S (NP (NN film)) (. .)))`.

The English Web Treebank with its gold trees, as `ewt.{train,dev,test}.trees`. Every word stands
in a node of its own, whose label is its part of speech.
"""

import re
from pathlib import Path
from typing import NamedTuple

from gatedjax.data.files import _lines as files
from gatedjax.data.files._lines import AnyPath, LineError, Rows, read_lines
from gatedjax.data.files._source import Example

CLASSES = ("sentence",)
"""Trees have no classes; as examples of a `Source` all have label 0."""
OFFICIAL = {"train": 12_504, "validation": 1_962, "test": 2_051}
FILES = {"train": "ewt.train.trees", "validation": "ewt.dev.trees", "test": "ewt.test.trees"}
WHERE = "the English Web Treebank (LDC2012T13), one bracketed tree a line"

_PIECE = re.compile(r"[()]|[^ \t()]+")
_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LCB-": "{", "-RCB-": "}", "-LSB-": "[", "-RSB-": "]"}


class Tree(NamedTuple):
    """A tree taken apart.

    Attributes:
      words: the words, brackets as themselves.
      tags: their parts of speech.
      constituents: (first word, word after the last, label) of every other node, from the top down
        and from the left to the right.
      text: the line.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    constituents: tuple[tuple[int, int, str], ...]
    text: str


def parse(line: str) -> tuple[int, Tree]:
    """Parses one tree: (0, the tree); a node without a label, as around Penn's trees, has "".

    Raises:
      LineError: for unbalanced brackets or anything that is not a tree.
    """
    line = line.strip()
    words: list[str] = []
    tags: list[str] = []
    nodes: list[list] = []
    open_nodes: list[int] = []
    ended = False
    pieces = _PIECE.findall(line)
    place = 0
    while place < len(pieces):
        piece = pieces[place]
        if ended:
            raise LineError("text after the end of the tree")
        if piece == "(":
            label = ""
            if place + 1 < len(pieces) and pieces[place + 1] not in "()":
                place += 1
                label = pieces[place]
            following = pieces[place + 1 : place + 3]
            if len(following) == 2 and following[0] not in "()" and following[1] == ")":
                if not label:
                    raise LineError("a word without a part of speech")
                if not open_nodes:
                    raise LineError("a word without a tree")
                words.append(_BRACKETS.get(following[0], following[0]))
                tags.append(label)
                place += 2
            else:
                open_nodes.append(len(nodes))
                nodes.append([len(words), 0, label])
        elif piece == ")":
            if not open_nodes:
                raise LineError("unbalanced brackets: one closes that was not opened")
            node = nodes[open_nodes.pop()]
            node[1] = len(words)
            if node[0] == node[1]:
                raise LineError("a node without words")
            ended = not open_nodes
        else:
            raise LineError(f"{piece[:40]!r} is not in a node of its own")
        place += 1
    if open_nodes:
        raise LineError(f"unbalanced brackets: {len(open_nodes)} not closed")
    spans = tuple((first, past, label) for first, past, label in nodes)
    return 0, Tree(tuple(words), tuple(tags), spans, line)


def find(manual_dir: Path, part: str) -> AnyPath | None:
    """Returns the file of a part below manual_dir."""
    return files.find([manual_dir / "treebank", manual_dir / "ewt", manual_dir], FILES[part])


def read(path: AnyPath) -> Rows:
    """Reads a file of trees."""
    return read_lines(path, parse, "utf-8")


def examples(rows: Rows, *, base: int) -> list[Example]:
    """Makes examples of trees: "tags", "constituents" and "tree" (the line) beside the words."""
    return [
        {
            "tokens": row.content.words,
            "label": 0,
            "example_id": base + row.index,
            "tags": row.content.tags,
            "constituents": row.content.constituents,
            "tree": row.content.text,
        }
        for row in rows.rows
    ]
