"""Stanford Sentiment Treebank: bracketed trees with a class 0-4 at each node.

Reference: Socher et al. 2013. SST-1 has the five classes; SST-2 merges 0 with 1 and 3 with 4 and
leaves the neutral class out. Models are trained on all labelled spans of the training trees; the
common releases contain each (text, label) once.
"""

import re

from gatedjax.data.files._lines import FileRows, LineError
from gatedjax.data.files._paths import Files
from gatedjax.data.files._source import Example
from gatedjax.data.sets._declaration import DataSet, SetOptions, TfdsForm, by_lines
from gatedjax.data.text._tokenize import BRACKETS

FINE = ("very negative", "negative", "neutral", "positive", "very positive")
BINARY = ("negative", "positive")
NEUTRAL = 2
FILES = {"train": "train.txt", "validation": "dev.txt", "test": "test.txt"}
ARCHIVE = "trainDevTestTrees_PTB.zip"
URL = f"https://nlp.stanford.edu/sentiment/{ARCHIVE}"

# Not \s, because a few words contain a no-break space ("9 1/2").
_PIECE = re.compile(r"[()]|[^ \t()]+")
_MAX_NODES = 4096
"""Phrase ids are line * _MAX_NODES + node."""

LEVELS = ("sentence", "phrase", "train_phrase")
_DISTINCT = "distinct"
"""The level of the training part for "train_phrase"; the other parts have "sentence"."""

Node = tuple[int, int, int, int, int]
"""(label, first word, word after the last, first character, character after the last).

The label is the digit that follows the opening bracket.
"""
# The line, its words, and its nodes in the order of their opening brackets.
Tree = tuple[str, tuple[str, ...], tuple[Node, ...]]


def word(raw: str) -> str:
    r"""Returns a word without the escapes of the treebank: -LRB- is "(", "\/" is "/"."""
    return BRACKETS.get(raw) or raw.replace("\\/", "/").replace("\\*", "*")


def parse(line: str) -> tuple[int, Tree]:
    """Parses a line such as "(3 (2 the) (3 film))"; returns (label of the root, tree)."""
    line = line.strip()
    words: list[str] = []
    nodes: list[list[int]] = []
    open_nodes: list[int] = []
    state = "start"  # the last piece: start, open, label, word, close
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
            if not text.strip():  # white space other than the separators
                raise LineError("a node without words")
            words.append(word(text))
            state = "word"
        else:
            raise LineError("a node has more than a word or children")
    if open_nodes:
        raise LineError(f"unbalanced brackets: {len(open_nodes)} not closed")
    # More nodes would get the example ids of the next line.
    if len(nodes) > _MAX_NODES:
        raise LineError(f"{len(nodes)} nodes; at most {_MAX_NODES} are supported")
    frozen = tuple((a, b, c, d, e) for a, b, c, d, e in nodes)
    return frozen[0][0], (line, tuple(words), frozen)


def of_part(part: str, options: SetOptions) -> SetOptions:
    """Returns the options of a part, with the level "distinct" or "sentence" for "train_phrase"."""
    if options["level"] != "train_phrase":
        return options
    return {**options, "level": _DISTINCT if part == "train" else "sentence"}


def ids_per_line(level: str) -> int:
    """Returns the number of example ids per line of a file."""
    return 1 if level == "sentence" else _MAX_NODES


def count_skipped(rows: FileRows, options: SetOptions) -> dict[str, int]:
    """Counts the trees without a polar node, which the binary form leaves out: {"neutral": n}."""
    if options["granularity"] != "binary":
        return {}
    last = 1 if options["level"] == "sentence" else None
    trees = (row.content[2][:last] for row in rows.rows)
    return {"neutral": sum(all(node[0] == NEUTRAL for node in tree) for tree in trees)}


def examples(rows: FileRows, *, base: int, granularity: str, level: str) -> list[Example]:
    """Returns the examples of trees: "tokens", "label", "example_id" and "tree", its brackets."""
    examples = []
    seen: set[tuple[tuple[str, ...], int]] = set()
    for row in rows.rows:
        line, words, nodes = row.content
        for node, (label, first, last, start, end) in enumerate(
            nodes[:1] if level == "sentence" else nodes
        ):
            if granularity == "binary":
                if label == NEUTRAL:
                    continue
                label = int(label > NEUTRAL)
            if level == _DISTINCT:
                # The common releases contain a phrase with two labels twice, so the label is a part
                # of the key.
                key = words[first:last], label
                if key in seen:
                    continue
                seen.add(key)
            example = {
                "tokens": words[first:last],
                "label": label,
                "example_id": base + row.index * ids_per_line(level) + node,
                "tree": line[start:end],
            }
            examples.append(example)
    return examples


DECLARED = (
    DataSet(
        name="sst",
        aliases={
            "sst1": {"granularity": "fine"},
            "sst2": {"granularity": "binary"},
            "sst1_phrases": {"granularity": "fine", "level": "train_phrase"},
            "sst2_phrases": {"granularity": "binary", "level": "train_phrase"},
        },
        official={"train": 8544, "validation": 1101, "test": 2210},
        where=f"{URL} (as it is, or unpacked)",
        files=Files(
            FILES,
            tops=("sst", ""),
            inner=("trees", ""),
            url=URL.removesuffix(ARCHIVE),
            archives=dict.fromkeys(FILES, ARCHIVE),
            inside="trees/",
        ),
        read_rows=by_lines(parse),
        examples=lambda rows, base, options: examples(rows, base=base, **options),
        classes=lambda options: BINARY if options["granularity"] == "binary" else FINE,
        options={"granularity": ("fine", "binary"), "level": LEVELS},
        of_part=of_part,
        ids_per_row=lambda options: ids_per_line(options["level"]),
        skipped=count_skipped,
        tfds=TfdsForm(
            description="Stanford Sentiment Treebank: bracketed trees; classes and phrases are "
            "read off the tree.",
            features={"text": str, "tree": str, "label": FINE},
            record=lambda row: {
                "text": " ".join(row.content[1]),
                "tree": row.content[0],
                "label": row.label,
            },
            row=lambda record: parse(record["tree"].decode()),
        ),
    ),
)
