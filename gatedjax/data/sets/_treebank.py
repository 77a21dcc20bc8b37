r"""Constituency trees in Penn brackets, a tree per line: `(TOP (S (NP (NN film)) (. .)))`.

The English Web Treebank with its gold trees, as `ewt.{train,dev,test}.trees`. Each word is the
only child of a node, whose label is its part of speech.
"""

import re
from typing import NamedTuple

from gatedjax.data.files._lines import FileRow, LineError
from gatedjax.data.files._paths import Files
from gatedjax.data.files._source import Example
from gatedjax.data.sets._declaration import DataSet, TfdsForm, by_lines, lazily
from gatedjax.data.text._tokenize import BRACKETS

_PIECE = re.compile(r"[()]|[^ \t()]+")


class Tree(NamedTuple):
    """A parsed tree. Positions of words are from 0."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    constituents: tuple[tuple[int, int, str], ...]  # (first, past the last, label), pre-order
    text: str  # the line


def parse(line: str) -> tuple[int, Tree]:
    """Parses a line with a bracketed tree; returns (0, the tree)."""
    line = line.strip()
    words: list[str] = []
    tags: list[str] = []
    nodes: list[list] = []
    open_nodes: list[int] = []
    is_complete = False
    pieces = _PIECE.findall(line)
    place = 0
    while place < len(pieces):
        piece = pieces[place]
        if is_complete:
            raise LineError("text after the end of the tree")
        if piece == "(":
            label = ""
            if place + 1 < len(pieces) and pieces[place + 1] not in "()":
                place += 1
                label = pieces[place]
            # A word is the only child of its node, so a label, a word and a closing bracket are
            # recognised together.
            following = pieces[place + 1 : place + 3]
            if len(following) == 2 and following[0] not in "()" and following[1] == ")":
                if not label:
                    raise LineError("a word without a part of speech")
                if not open_nodes:
                    raise LineError("a word without a tree")
                words.append(BRACKETS.get(following[0], following[0]))
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
            is_complete = not open_nodes
        else:
            raise LineError(f"{piece[:40]!r} is not in a node of its own")
        place += 1
    if open_nodes:
        raise LineError(f"unbalanced brackets: {len(open_nodes)} not closed")
    spans = tuple((first, past, label) for first, past, label in nodes)
    return 0, Tree(tuple(words), tuple(tags), spans, line)


def _example(row: FileRow, example_id: int) -> Example:
    tree: Tree = row.content
    return {
        "tokens": tree.words,
        "label": 0,
        "example_id": example_id,
        "tags": tree.tags,
        "constituents": tree.constituents,
        "tree": tree.text,
    }


DECLARED = (
    DataSet(
        name="ewt_trees",
        official={"train": 12_504, "validation": 1_962, "test": 2_051},
        where="the English Web Treebank (LDC2012T13), one bracketed tree a line",
        files=Files(
            {"train": "ewt.train.trees", "validation": "ewt.dev.trees", "test": "ewt.test.trees"},
            tops=("treebank", "ewt", ""),
            missing_format="{}",
        ),
        read_rows=by_lines(parse),
        examples=lazily(_example, once=True),
        # Trees have no classes, so all examples have label 0.
        classes=("sentence",),
        tfds=TfdsForm(
            description="English Web Treebank: bracketed constituency trees.",
            features={"tree": str},
            record=lambda row: {"tree": row.content.text},
            row=lambda record: parse(record["tree"].decode()),
        ),
    ),
)
