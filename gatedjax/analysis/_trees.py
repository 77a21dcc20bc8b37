"""Constituency trees: as spans, out of attention, and the branching baselines."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

Norm = Literal["rows", "area", "none"]
"""What the attention inside a span is divided by, see `from_attention`."""
Single = Literal["mass", "one"]
Span = tuple[int, int]

_TIE = 1e-9
"""Splits whose log scores differ by no more are equal: prefix sums round."""


@dataclasses.dataclass(frozen=True)
class SpanTree:
    """A constituency tree over words, as the spans of its nodes.

    Attributes:
      size: number of words.
      spans: (first word, word after the last) of every node with at least two words, from the top
        down and from the left to the right; each once. Nodes of one word are not listed.

    Raises:
      ValueError: if a span is outside the words, has fewer than two, occurs twice, crosses another
        one, or stands before the one that contains it.
    """

    size: int
    spans: tuple[Span, ...]

    def __post_init__(self) -> None:
        """Refuses what is not a tree."""
        above: list[Span] = [(0, self.size)]
        previous = None
        for first, past in self.spans:
            if not 0 <= first < past - 1 < self.size:
                raise ValueError(
                    f"spans must have two words or more of {self.size}, got {(first, past)}"
                )
            if previous is not None and (first, -past) <= (previous[0], -previous[1]):
                raise ValueError(f"spans must be in order, got {previous} before {(first, past)}")
            previous = (first, past)
            while first >= above[-1][1]:
                above.pop()
            if past > above[-1][1]:
                raise ValueError(f"spans must not cross, got {above[-1]} and {(first, past)}")
            above.append((first, past))

    @classmethod
    def of(cls, size: int, spans: Iterable[Span]) -> "SpanTree":
        """Makes a tree of spans in any order; repeated ones and single words are left out."""
        wider = {(int(a), int(b)) for a, b in spans if b - a > 1}
        return cls(size, tuple(sorted(wider, key=lambda span: (span[0], -span[1]))))

    def children(self) -> dict[Span, tuple[Span, ...]]:
        """The parts of every node of two words or more, single words included.

        The whole is a node here even if it is not one of the spans.
        """
        whole = (0, self.size)
        nodes = list(self.spans)
        if self.size > 1 and whole not in nodes[:1]:
            nodes.insert(0, whole)
        inner: dict[Span, list[Span]] = {node: [] for node in nodes}
        above: list[Span] = []
        for node in nodes:
            while above and node[0] >= above[-1][1]:
                above.pop()
            if above:
                inner[above[-1]].append(node)
            above.append(node)
        return {node: _with_words(node, parts) for node, parts in inner.items()}

    def bracketed(self, words: Sequence[str]) -> str:
        """The tree as text, "((the film) (is good))", without labels."""
        if len(words) != self.size:
            raise ValueError(f"words must have length {self.size}, got {len(words)}")
        opened, closed = np.zeros(self.size + 1, int), np.zeros(self.size + 1, int)
        for first, past in self.spans:
            opened[first] += 1
            closed[past - 1] += 1
        parts = [f"{'(' * opened[i]}{word}{')' * closed[i]}" for i, word in enumerate(words)]
        return " ".join(parts)

    def without(self, drop: ArrayLike) -> "SpanTree":
        """The tree over the words that are left; nodes of fewer than two of them are gone.

        Args:
          drop: bool [size], True at words to leave out, as punctuation.
        """
        drop = np.asarray(drop, bool)
        if drop.shape != (self.size,):
            raise ValueError(f"drop must have shape {(self.size,)}, got {drop.shape}")
        at = np.concatenate([[0], np.cumsum(~drop)])
        return SpanTree.of(int(at[-1]), ((at[a], at[b]) for a, b in self.spans))


def _with_words(node: Span, parts: list[Span]) -> tuple[Span, ...]:
    children: list[Span] = []
    place = node[0]
    for first, past in [*parts, (node[1], node[1])]:
        children += [(i, i + 1) for i in range(place, first)]
        if past > first:
            children.append((first, past))
        place = past
    return tuple(children)


def from_attention(
    weights: ArrayLike, *, norm: Norm = "rows", single: Single = "mass", floor: float = 1e-12
) -> SpanTree:
    """The binary tree whose spans keep their attention to themselves, split from the top down.

        mass(i, j) = sum of W_qk over queries q and keys k in i..j
        rows: s = mass / (j - i + 1);  area: s = mass / (j - i + 1)^2;  none: s = mass
        a span i..j is split in (i, k) and (k+1, j) at the k that maximises s(i, k) s(k+1, j)

    "rows" is the mean share of its attention that a word keeps inside. Every mass is read off one
    table of prefix sums: O(N^2) for the table, and O(N^2) at most for all splits. Products are
    sums of logarithms of scores that are at least the floor. Of equal splits that with the smallest
    k is taken; log scores count as equal within 1e-9.

    Args:
      weights: W [N, N], queries are rows; rows need not sum to 1 (a query without a selected key
        has 0).
      norm: what the mass of a span is divided by.
      single: score of a single word: its own weight W_ii ("mass"), or 1 ("one").
      floor: least score.

    Returns:
      The tree, with N - 1 spans (none for one word or none).

    Reference: Geng et al. 2020 (SSAN), section 5.2, after Marecek and Rosa 2018.
    Deviation: the paper does not say what it divides by, and prints k for both parts.
    """
    weights = np.asarray(weights, np.float64)
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1]:
        raise ValueError(f"weights must be [N, N], got {weights.shape}")
    if not np.all(np.isfinite(weights)) or np.any(weights < 0):
        raise ValueError("weights must be finite and at least 0")
    if norm not in get_args(Norm):
        raise ValueError(f"norm must be one of {get_args(Norm)}, got {norm!r}")
    if single not in get_args(Single):
        raise ValueError(f"single must be one of {get_args(Single)}, got {single!r}")
    if not floor > 0:
        raise ValueError(f"floor must be positive, got {floor}")
    size = len(weights)
    table = np.zeros((size + 1, size + 1))
    table[1:, 1:] = weights.cumsum(0).cumsum(1)
    power = {"none": 0, "rows": 1, "area": 2}[norm]

    def log_score(first: np.ndarray, past: np.ndarray) -> np.ndarray:
        crossed = table[first, past] + table[past, first]
        mass = table[past, past] - crossed + table[first, first]
        length = past - first
        # prefix sums may leave a rounding error where a word has no weight of its own
        mass = np.where(length == 1, weights[first, first], mass)
        score = mass / length.astype(np.float64) ** power
        if single == "one":
            score = np.where(length == 1, 1.0, score)
        return np.log(np.maximum(score, floor))

    def split(first: int, past: int) -> int:
        middle = np.arange(first + 1, past)
        starts, ends = np.full(len(middle), first), np.full(len(middle), past)
        score = log_score(starts, middle) + log_score(middle, ends)
        return int(middle[np.argmax(score >= score.max() - _TIE)])

    return _top_down(size, split)


def left_branching(size: int) -> SpanTree:
    """(((a b) c) d): the last word is split off first."""
    return _top_down(size, lambda first, past: past - 1)


def right_branching(size: int) -> SpanTree:
    """(a (b (c d))): the first word is split off first."""
    return _top_down(size, lambda first, past: first + 1)


def balanced(size: int) -> SpanTree:
    """Every span is split in halves; of an odd number of words the left half has one more."""
    return _top_down(size, lambda first, past: first + (past - first + 1) // 2)


def random_binary(size: int, generator: np.random.Generator) -> SpanTree:
    """Every span is split at a place that is drawn uniformly."""
    return _top_down(size, lambda first, past: int(generator.integers(first + 1, past)))


def _top_down(size: int, split: Callable[[int, int], int]) -> SpanTree:
    if size < 0:
        raise ValueError(f"size must be at least 0, got {size}")
    spans: list[Span] = []
    waiting: list[Span] = [(0, size)]
    while waiting:  # no recursion: a branching tree is as deep as the sentence is long
        first, past = waiting.pop()
        if past - first < 2:
            continue
        spans.append((first, past))
        middle = split(first, past)
        waiting += [(middle, past), (first, middle)]
    return SpanTree(size, tuple(spans))


def from_brackets(text: str) -> tuple[tuple[str, ...], SpanTree]:
    """Reads a bracketed tree whose every node begins with its label, as "(S (NP the film) ran)".

    Args:
      text: the tree; words stand wherever they like inside a node.

    Returns:
      (words, the tree without labels).

    Raises:
      ValueError: for brackets that do not match, a node without words, or words outside a node.
    """
    words: list[str] = []
    spans: list[Span] = []
    opened: list[int] = []
    label = False
    for piece in text.replace("(", " ( ").replace(")", " ) ").split():
        if piece == "(":
            if label or (not opened and spans):
                raise ValueError(f"not a tree: a node without a label in {text[:60]!r}")
            opened.append(len(words))
            label = True
        elif piece == ")":
            if not opened or opened[-1] == len(words):
                raise ValueError(f"not a tree: a bracket closes too early in {text[:60]!r}")
            spans.append((opened.pop(), len(words)))
        elif label:
            label = False
        elif not opened:
            raise ValueError(f"not a tree: {piece!r} is outside of it")
        else:
            words.append(piece)
    if opened or not spans:
        raise ValueError(f"not a tree: {len(opened)} brackets are not closed in {text[:60]!r}")
    return tuple(words), SpanTree.of(len(words), spans)
