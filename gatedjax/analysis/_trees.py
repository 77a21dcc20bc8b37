"""Constituency trees as spans: from attention, from brackets, and the branching baselines."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from gatedjax._utils.choices import check_choice
from gatedjax.analysis._checks import check_numbers

Norm = Literal["rows", "area", "none"]
"""The divisor of the attention inside a span, see `from_attention`."""
Single = Literal["mass", "one"]
Span = tuple[int, int]

_TIE = 1e-9
"""Splits with log scores that differ by at most this count as equal, because sums are rounded."""


@dataclasses.dataclass(frozen=True)
class SpanTree:
    """A constituency tree over words, as the spans of its nodes.

        >>> tree = SpanTree(4, ((0, 4), (0, 2), (2, 4)))
        >>> tree.bracketed(["the", "film", "is", "good"])
        '((the film) (is good))'

    Attributes:
      size: number of words.
      spans: (first word, word after the last) of each node with at least two words, from the top
        down and from the left to the right, without repetitions. Nodes of a single word are not
        listed.

    Raises:
      ValueError: if a span is outside the words, has fewer than two words, occurs twice, crosses
        another span, or comes before a span that contains it.
    """

    size: int
    spans: tuple[Span, ...]

    def __post_init__(self) -> None:
        """Raises ValueError if the spans are not a tree, for example if two of them cross."""
        above: list[Span] = [(0, self.size)]
        previous = None
        for first, past in self.spans:
            if not 0 <= first < past - 1 < self.size:
                raise ValueError(
                    f"spans must be (first, past) with at least two of the {self.size} words, got "
                    f"{(first, past)}"
                )
            if previous is not None and (first, -past) <= (previous[0], -previous[1]):
                raise ValueError(
                    "spans must be in order, outer spans first, without repetitions, got "
                    f"{previous} before {(first, past)}: SpanTree.of sorts them"
                )
            previous = (first, past)
            # `above` has the nodes around the present word. Nodes that end before it cannot contain
            # it.
            while first >= above[-1][1]:
                above.pop()
            if past > above[-1][1]:
                raise ValueError(f"spans must not cross, got {above[-1]} and {(first, past)}")
            above.append((first, past))

    @classmethod
    def of(cls, size: int, spans: Iterable[Span]) -> "SpanTree":
        """Creates a tree from spans in any order; repetitions and single words are dropped.

        Args:
          size: number of words.
          spans: (first word, word after the last) of each node.

        Returns:
          The tree.

        Raises:
          ValueError: if a span is outside the words, or spans cross.
        """
        wider = {(int(a), int(b)) for a, b in spans if b - a > 1}
        return cls(size, tuple(sorted(wider, key=lambda span: (span[0], -span[1]))))

    def children(self) -> dict[Span, tuple[Span, ...]]:
        """Returns the children of each node; the children of a node may be single words.

        A span is (first word, word after the last). Nodes have two words or more, and the whole
        sentence is a node here even if it is not in `spans`.

        Returns:
          {span of a node: spans of its children from the left to the right}, parents first.
        """
        root = (0, self.size)
        nodes = list(self.spans)
        # The spans are in order, so the whole sentence can only be the first.
        if self.size > 1 and root not in nodes[:1]:
            nodes.insert(0, root)
        # The largest part so far that begins at each word.
        largest = {i: (i, i + 1) for i in range(self.size)}
        parts: dict[Span, tuple[Span, ...]] = {}
        for node in reversed(nodes):  # Inner nodes come before the nodes that contain them.
            place, inner = node[0], []
            while place < node[1]:
                inner.append(largest[place])
                place = largest[place][1]
            parts[node] = tuple(inner)
            largest[node[0]] = node
        return dict(reversed(parts.items()))

    def bracketed(self, words: Sequence[str]) -> str:
        """Renders the tree as text without labels, such as "((the film) (is good))".

        Args:
          words: the words of the sentence.

        Returns:
          The words with brackets.
        """
        if len(words) != self.size:
            raise ValueError(f"words must have length {self.size}, got {len(words)}")
        num_open, num_closed = np.zeros(self.size + 1, int), np.zeros(self.size + 1, int)
        for first, past in self.spans:
            num_open[first] += 1
            num_closed[past - 1] += 1
        parts = [f"{'(' * num_open[i]}{word}{')' * num_closed[i]}" for i, word in enumerate(words)]
        return " ".join(parts)

    def without(self, drop: ArrayLike) -> "SpanTree":
        """Removes words, and nodes of which fewer than two words remain.

        Args:
          drop: bool [size], True at words that are removed, for example punctuation.

        Returns:
          The tree over the remaining words.
        """
        drop = np.asarray(drop, bool)
        if drop.shape != (self.size,):
            raise ValueError(f"drop must have shape {(self.size,)}, got {drop.shape}")
        # The number of remaining words before a position is its new position.
        at = np.concatenate([[0], np.cumsum(~drop)])
        return SpanTree.of(int(at[-1]), ((at[a], at[b]) for a, b in self.spans))


def from_attention(
    weights: ArrayLike, *, norm: Norm = "rows", single: Single = "mass", floor: float = 1e-12
) -> SpanTree:
    """Builds a binary tree whose spans have much attention inside, split from the top down.

        mass(i, j) = sum of W_qk over queries q and keys k in i..j
        rows: s = mass / (j - i + 1);  area: s = mass / (j - i + 1)^2;  none: s = mass
        a span i..j is split into (i, k) and (k+1, j) at the k that maximises s(i, k) s(k+1, j)

    With "rows" the score is the mean attention of the words to words inside the span. All masses
    come from a table of prefix sums, which takes O(N^2) operations; all splits take at most O(N^2)
    operations. Products of scores are computed as sums of logarithms. Among equal splits the
    smallest k wins; log scores count as equal within 1e-9.

        >>> weights = [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
        >>> from_attention(weights).bracketed(["the", "film", "ran"])
        '((the film) ran)'

    Args:
      weights: W [N, N], a row per query. Rows need not sum to 1; the row of a query without a
        selected key is 0.
      norm: the divisor of the mass, "rows", "area" or "none".
      single: score of a single word: its weight W_ii ("mass"), or 1 ("one").
      floor: smaller scores count as this, so that logarithms are finite.

    Returns:
      The tree, with N - 1 spans (no spans for fewer than two words).

    Reference: Geng et al. 2020 (SSAN), section 5.2, after Marecek and Rosa 2018.
    Deviation: the paper does not specify the divisor, and prints k for both parts.
    """
    weights = np.asarray(weights, np.float64)
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1]:
        raise ValueError(f"weights must have shape [N, N], got {weights.shape}")
    check_numbers("weights", weights, 0)
    check_choice(Norm, norm=norm)
    check_choice(Single, single=single)
    if not floor > 0:
        raise ValueError(f"floor must be positive, got {floor}")
    size = len(weights)
    # table[i, j] is the sum over the queries before i and the keys before j, so that four entries
    # give the mass of any span.
    table = np.pad(weights.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    power = {"none": 0, "rows": 1, "area": 2}[norm]

    def log_score(first: np.ndarray, past: np.ndarray) -> np.ndarray:
        """Computes the logarithms [M] of the scores of the M spans from `first` to `past` - 1."""
        crossed = table[first, past] + table[past, first]
        mass = table[past, past] - crossed + table[first, first]
        length = past - first
        # The prefix sums may differ from a diagonal weight of 0 by a rounding error.
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
    """Builds the left-branching tree (((a b) c) d), which splits off the last word first.

        >>> left_branching(4).bracketed("abcd")
        '(((a b) c) d)'

    Args:
      size: number of words.

    Returns:
      The tree.
    """
    return _top_down(size, lambda first, past: past - 1)


def right_branching(size: int) -> SpanTree:
    """Builds the right-branching tree (a (b (c d))), which splits off the first word first.

        >>> right_branching(4).bracketed("abcd")
        '(a (b (c d)))'

    Args:
      size: number of words.

    Returns:
      The tree.
    """
    return _top_down(size, lambda first, past: first + 1)


def balanced(size: int) -> SpanTree:
    """Builds the balanced tree, which splits each span into halves.

    The left half of an odd number of words has a word more than the right half.

        >>> balanced(4).bracketed("abcd")
        '((a b) (c d))'

    Args:
      size: number of words.

    Returns:
      The tree.
    """
    return _top_down(size, lambda first, past: first + (past - first + 1) // 2)


def random_binary(size: int, generator: np.random.Generator) -> SpanTree:
    """Builds a random binary tree, which splits each span at a position that is drawn uniformly.

        >>> len(random_binary(4, np.random.default_rng(0)).spans)
        3

    Args:
      size: number of words.
      generator: NumPy's random generator for the draws.

    Returns:
      The tree.
    """
    return _top_down(size, lambda first, past: int(generator.integers(first + 1, past)))


def _top_down(size: int, split: Callable[[int, int], int]) -> SpanTree:
    """Builds a binary tree over `size` words by splitting spans from the top down."""
    if size < 0:
        raise ValueError(f"size must be at least 0, got {size}")
    spans: list[Span] = []
    waiting: list[Span] = [(0, size)]
    while waiting:  # Recursion would fail, because a branching tree is as deep as the sentence.
        first, past = waiting.pop()
        if past - first < 2:
            continue
        spans.append((first, past))
        middle = split(first, past)
        # The left part is popped next, so that the spans have the order that `SpanTree` requires.
        waiting += [(middle, past), (first, middle)]
    return SpanTree(size, tuple(spans))


def from_brackets(text: str) -> tuple[tuple[str, ...], SpanTree]:
    """Parses a bracketed tree with a label at each node, such as "(S (NP the film) ran)".

        >>> words, tree = from_brackets("(S (NP the film) ran)")
        >>> tree.bracketed(words)
        '((the film) ran)'

    Args:
      text: the tree; words and nodes may follow each other in any order inside a node.

    Returns:
      The words, and the tree without labels.

    Raises:
      ValueError: for brackets that do not match, a node without words, or words outside a node.
    """
    words: list[str] = []
    spans: list[Span] = []
    open_starts: list[int] = []
    expects_label = False
    for piece in text.replace("(", " ( ").replace(")", " ) ").split():
        if piece == "(":
            if expects_label or (not open_starts and spans):
                raise ValueError(
                    "text must be a single tree with a label after each opening bracket, got "
                    f"{text[:60]!r}"
                )
            open_starts.append(len(words))
            expects_label = True
        elif piece == ")":
            if not open_starts or open_starts[-1] == len(words):
                raise ValueError(
                    f"text must have a word before each closing bracket, got {text[:60]!r}"
                )
            spans.append((open_starts.pop(), len(words)))
        elif expects_label:
            expects_label = False
        elif not open_starts:
            raise ValueError(
                f"text must be a single tree in brackets, got {piece!r} outside of the brackets"
            )
        else:
            words.append(piece)
    if open_starts or not spans:
        raise ValueError(
            f"text must be a tree with all brackets closed, got {text[:60]!r} with "
            f"{len(open_starts)} open brackets"
        )
    return tuple(words), SpanTree.of(len(words), spans)
