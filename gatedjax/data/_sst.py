"""Stanford Sentiment Treebank: bracketed trees with a class 0-4 at every node.

Reference: Socher et al. 2013. SST-1 is the five classes; SST-2 merges 0 with 1 and 3 with 4 and
leaves the neutral class out.
"""

import re
from pathlib import Path

from gatedjax.data import _files as files
from gatedjax.data._files import AnyPath, LineError, Rows, read_lines
from gatedjax.data._source import Example

FINE = ("very negative", "negative", "neutral", "positive", "very positive")
BINARY = ("negative", "positive")
NEUTRAL = 2
OFFICIAL = {"train": 8544, "validation": 1101, "test": 2210}
FILES = {"train": "train.txt", "validation": "dev.txt", "test": "test.txt"}
ARCHIVE = "trainDevTestTrees_PTB.zip"
URL = f"https://nlp.stanford.edu/sentiment/{ARCHIVE}"

# a few words hold a no-break space ("9 1/2"), so not \s
_PIECE = re.compile(r"[()]|[^ \t()]+")
_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LCB-": "{", "-RCB-": "}", "-LSB-": "[", "-RSB-": "]"}
_MAX_NODES = 4096
"""Phrase ids are line * _MAX_NODES + node."""

Node = tuple[int, int, int, int, int]
"""(label, first word, word after the last, first character, character after the last)."""
Tree = tuple[str, tuple[str, ...], tuple[Node, ...]]


def word(raw: str) -> str:
    r"""Undoes the escapes of the treebank: -LRB- is "(", "\/" is "/"."""
    return _BRACKETS.get(raw) or raw.replace("\\/", "/").replace("\\*", "*")


def parse(line: str) -> tuple[int, Tree]:
    """Parses one bracketed tree.

    Returns:
      (label of the root, (the tree as text, words, nodes in order of their opening bracket)).

    Raises:
      LineError: for unbalanced brackets, an unknown label, or anything that is not a tree.
    """
    line = line.strip()
    words: list[str] = []
    nodes: list[list[int]] = []
    open_nodes: list[int] = []
    state = "start"  # what came last: start, open, label, word, close
    for piece in _PIECE.finditer(line):
        text = piece.group()
        if text == "(":
            if state == "word":
                raise LineError("a node has both a word and a child")
            if state == "open":
                raise LineError("a node has no label")
            if not open_nodes and nodes:
                raise LineError("text after the end of the tree")
            open_nodes.append(len(nodes))
            nodes.append([-1, len(words), 0, piece.start(), 0])
            state = "open"
        elif text == ")":
            if not open_nodes:
                raise LineError("unbalanced brackets: one closes that was not opened")
            if state in ("open", "label"):
                raise LineError("a node without words")
            node = nodes[open_nodes.pop()]
            node[2], node[4] = len(words), piece.end()
            state = "close"
        elif not open_nodes:
            raise LineError("text outside the brackets")
        elif state == "open":
            if text not in ("0", "1", "2", "3", "4"):
                raise LineError(f"unknown label {text!r}; labels are 0 to 4")
            nodes[open_nodes[-1]][0] = int(text)
            state = "label"
        elif state == "label":
            words.append(word(text))
            state = "word"
        else:
            raise LineError("a node has more than a word or children")
    if open_nodes:
        raise LineError(f"unbalanced brackets: {len(open_nodes)} not closed")
    if len(nodes) > _MAX_NODES:
        raise LineError(f"{len(nodes)} nodes; at most {_MAX_NODES} are supported")
    frozen = tuple((a, b, c, d, e) for a, b, c, d, e in nodes)
    return frozen[0][0], (line, tuple(words), frozen)


def folders(manual_dir: Path) -> list[Path]:
    """Where the files may be below manual_dir."""
    return [manual_dir / "sst" / "trees", manual_dir / "sst", manual_dir / "trees", manual_dir]


def find(manual_dir: Path, part: str) -> AnyPath | None:
    """Returns the file of a part below manual_dir, unpacked or in the archive as downloaded."""
    name = FILES[part]
    path = files.find(folders(manual_dir), name)
    archive = files.find([manual_dir / "sst", manual_dir], ARCHIVE)
    return files.in_zip(archive, f"trees/{name}") if path is None and archive else path


def read(path: AnyPath) -> Rows:
    """Reads a file of trees."""
    return read_lines(path, parse, "utf-8")


def neutral(rows: Rows, level: str) -> int:
    """Returns how many trees the binary form leaves out: no node of theirs has a polarity."""

    def left_out(row: files.Row) -> bool:
        nodes = row.content[2] if level == "phrase" else row.content[2][:1]
        return all(node[0] == NEUTRAL for node in nodes)

    return sum(map(left_out, rows.rows))


def examples(rows: Rows, *, base: int, granularity: str, level: str) -> list[Example]:
    """Makes examples of trees.

    Args:
      rows: parsed trees.
      base: first example id of this part.
      granularity: "fine" or "binary"; neutral texts are left out of the latter.
      level: "sentence" (roots) or "phrase" (every node, repeated phrases included).
    """
    made = []
    for row in rows.rows:
        line, words, nodes = row.content
        for node, (label, first, last, start, end) in enumerate(
            nodes if level == "phrase" else nodes[:1]
        ):
            if granularity == "binary":
                if label == NEUTRAL:
                    continue
                label = int(label > NEUTRAL)
            index = row.index * _MAX_NODES + node if level == "phrase" else row.index
            example = {
                "tokens": words[first:last],
                "label": label,
                "example_id": base + index,
                "tree": line[start:end],
            }
            made.append(example)
    return made
