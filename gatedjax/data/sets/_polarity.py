r"""`polarity`: an embedded sentiment corpus with known deciding words.

Grammar (| alternatives, [] optional, + and - the two classes, X either of them):

    S      -> [ASIDE ,] CORE(X) [TAIL] .
    CORE(X) -> CLAUSE(X)
            |  CLAUSE(-X) but CLAUSE(X)              "but" hands the verdict to what follows
            |  although CLAUSE(-X) , CLAUSE(X)       "although" does the same
            |  CLAUSE(X) and CLAUSE(X)               both decide
    CLAUSE(X) -> NP is [DEGREE] ADJ(X)
              |  NP is NEG [DEGREE] ADJ(-X)          negation flips: "not good" is negative
    NP     -> the [PLAIN] NOUN [PP]
    ASIDE  -> after a ADJ(any) NOUN | unlike the ADJ(any) NOUN PP | PP
    TAIL   -> and we left PP | PP

Polar adjectives in an ASIDE are distractors, and the adjectives of a clause that "but" or
"although" concedes are misleading, so counting words does not solve the task: about 40% of clauses
are negated and about half of the sentences have a contrast. Classes are exactly balanced in each
pair of examples. A hash of the text determines the split, so no text is in two splits.

Each example also has "decides" (bool per token: the polar adjectives that carry the verdict and
the words that negate them) and "tree" (bracketed; its leaves are the tokens in order).
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from gatedjax.data.files._source import Example
from gatedjax.data.sets._declaration import ID_BASE, generate_set

CLASSES = ("negative", "positive")
SIZES = {"train": 4000, "validation": 500, "test": 1000}
_STREAM = {"train": 0, "validation": 1, "test": 2}
_ROOT_SEED = 7_411


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_POLAR = {
    0: _words(
        "bad awful dull boring weak terrible horrible bland poor tedious clumsy lifeless shallow "
        "dreadful tiresome silly painful hollow messy annoying sloppy stale dreary pointless"
    ),
    1: _words(
        "good great superb lovely strong wonderful brilliant charming rich gripping graceful "
        "lively moving delightful clever funny splendid touching elegant pleasant fresh smart "
        "tender stunning"
    ),
}
_NOUN = _words(
    "film story plot script cast acting dialogue ending music camerawork pace direction humour "
    "romance costume scenery opening sequel drama comedy finale hero villain chorus"
)
_PLAIN = _words("second main french short whole first quiet modern last original local new")
_DEGREE = _words("very really quite truly so rather remarkably fairly")
_NEGATION = (("not",), ("never",), ("hardly",), ("far", "from"), ("by", "no", "means"))
_PLACE = (
    "in the second half|at the old cinema|with my sister|on a rainy evening|for two hours|"
    "near the end|from the first scene|in the capital|after a long day|by the same studio|"
    "about a family in the north|of the book|at the festival|in our town"
)
_PHRASE = tuple(tuple(p.split()) for p in _PLACE.split("|"))

Leaf = tuple[str, bool]
"""A word, and True if it decides the class."""
Tree = tuple[str, list]
"""A symbol and its children: trees or leaves."""


class _Draw:
    """Random choices of words and constructions for a sentence."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def chance(self, probability: float) -> bool:
        return bool(self._generator.random() < probability)

    def choose(self, options: Sequence) -> object:
        return options[int(self._generator.integers(len(options)))]

    def word(self, options: Sequence[str], symbol: str, decides: bool = False) -> Tree:
        return (symbol, [(self.choose(options), decides)])


def _make_node(symbol: str, *words: str, decides: bool = False) -> Tree:
    return (symbol, [(word, decides) for word in words])


def _place(draw: _Draw) -> Tree:
    return _make_node("PP", *draw.choose(_PHRASE))  # type: ignore[misc]


def _noun_phrase(draw: _Draw) -> Tree:
    parts = [_make_node("DET", "the")]
    if draw.chance(0.3):
        parts.append(draw.word(_PLAIN, "PLAIN"))
    parts.append(draw.word(_NOUN, "NOUN"))
    if draw.chance(0.3):
        parts.append(_place(draw))
    return ("NP", parts)


def _clause(draw: _Draw, label: int, decides: bool) -> Tree:
    """Returns a random clause with the verdict `label`, 0 (negative) or 1 (positive)."""
    negated = draw.chance(0.4)
    verdict = [_make_node("COP", "is")]
    if negated:
        verdict.append(_make_node("NEG", *draw.choose(_NEGATION), decides=decides))  # type: ignore[misc]
    if draw.chance(0.35):
        verdict.append(draw.word(_DEGREE, "DEGREE"))
    # A negated clause has an adjective of the other class, so that its verdict stays `label`.
    verdict.append(draw.word(_POLAR[label ^ negated], "ADJ", decides))
    return ("CLAUSE", [_noun_phrase(draw), ("VP", verdict)])


def _aside(draw: _Draw) -> Tree:
    kind = draw.choose(("after", "unlike", "place"))
    comma = _make_node("PUNCT", ",")
    if kind == "place":
        return ("ASIDE", [_place(draw), comma])
    polar = draw.word(_POLAR[int(draw.chance(0.5))], "ADJ")
    noun = draw.word(_NOUN, "NOUN")
    if kind == "after":
        return ("ASIDE", [_make_node("P", "after", "a"), polar, noun, comma])
    return ("ASIDE", [_make_node("P", "unlike", "the"), polar, noun, _place(draw), comma])


def _core(draw: _Draw, label: int) -> Tree:
    """Returns the random clauses of a sentence of class `label`, 0 or 1, as a tree."""
    # A kind is repeated because each entry is drawn with the same probability.
    kind = draw.choose(("plain", "plain", "but", "although", "although", "but", "and"))
    if kind == "plain":
        return ("CORE", [_clause(draw, label, True)])
    if kind == "and":
        both = [_clause(draw, label, True) for _ in range(2)]
        return ("CORE", [both[0], _make_node("CONJ", "and"), both[1]])
    other, verdict = _clause(draw, 1 - label, False), _clause(draw, label, True)
    if kind == "but":
        return ("CORE", [other, _make_node("CONJ", "but"), verdict])
    return ("CORE", [_make_node("CONJ", "although"), other, _make_node("PUNCT", ","), verdict])


def _sentence(draw: _Draw, label: int) -> Tree:
    parts = [_aside(draw)] if draw.chance(0.4) else []
    parts.append(_core(draw, label))
    if draw.chance(0.3):
        lead = [_make_node("VP", "and", "we", "left")] if draw.chance(0.4) else []
        parts.append(("TAIL", [*lead, _place(draw)]))
    return ("S", [*parts, _make_node("PUNCT", ".")])


def _leaves(tree: Tree) -> list[Leaf]:
    leaves: list[Leaf] = []
    for child in tree[1]:
        leaves += _leaves(child) if isinstance(child[1], list) else [child]
    return leaves


def _render_tree(tree: Tree) -> str:
    inside = [_render_tree(c) if isinstance(c[1], list) else c[0] for c in tree[1]]
    return f"({tree[0]} {' '.join(inside)})"


def _home(words: Sequence[str]) -> str:
    # The hash of the text and not the index decides, because different indices may give the same
    # text.
    slot = hashlib.sha256(" ".join(words).encode()).digest()[0] % 8
    return {0: "validation", 1: "test"}.get(slot, "train")


def make(split: str, index: int) -> Example:
    """Makes example `index` of a split, as a pure function of both."""
    stream = _STREAM[split]
    # Two examples share a draw of the class and get it and its opposite, so that the classes are
    # exactly balanced.
    pair = np.random.default_rng(np.random.SeedSequence([_ROOT_SEED, stream, 0, index // 2]))
    label = int(pair.integers(2)) ^ (index % 2)
    draw = _Draw(np.random.default_rng(np.random.SeedSequence([_ROOT_SEED, stream, 1, index])))
    # A sentence that is too long or belongs to another split is drawn again.
    while True:
        tree = _sentence(draw, label)
        words, decides = zip(*_leaves(tree), strict=True)
        if len(words) <= 30 and _home(words) == split:
            break
    return {
        "tokens": words,
        "label": label,
        "example_id": ID_BASE[split] + index,
        "decides": decides,
        "tree": _render_tree(tree),
    }


DECLARED = (generate_set("polarity", SIZES, CLASSES, make),)
