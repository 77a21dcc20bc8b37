"""The base class of the views, a view for each kind of model, and the parts that answers share.

A view fills a page with marked words, bars and grids. The answer to a state of the page is

    {"title", "share", "head", "classes", "probabilities", "details", "lines"}

"lines" are texts with a number for each word, "values" [T]; if "of" has Q words, "values" is
[Q, T], with a list for each of them. Numbers for pairs of words are grids from `View.layers`. A
network that classifies single texts has another answer, see `NetworkView`.

Views of models that classify single texts into the same classes can stand side by side.
"""

import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.explore._state import State
from gatedjax.text.corpus._tokens import Tokenizer

LONGEST = 1000
"""Largest number of words of a text that are shown; a model may read fewer."""
MOST_CLASSES = 10
"""Largest number of classes in a table of probabilities."""
PAIRED = 40
"""Largest number of words in a grid of pairs."""
KEPT = 16
"""Number of texts whose results stay in memory, for the grids and effects that follow an answer."""
NO_WORD = "No word yet: type a sentence."
"""The note for an empty text."""

# The thresholds of the curve: with these shares of words read, and these numbers.
SHARES = tuple(n / 20 for n in range(1, 20))
ROUND = tuple(n / 10 for n in range(1, 10))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Results:
    """The results of a model for N texts with each of S thresholds of the open probability."""

    probabilities: np.ndarray  # [N, C], with the threshold 0.5 or without gates
    predicted: np.ndarray  # int [S, N]
    num_read: np.ndarray  # [S, N], words that are read
    words: int  # of all texts
    masks: Sequence[np.ndarray] | None  # bool [T] of each text at the threshold 0.5; or no gates
    thresholds: np.ndarray  # [S], descending; at -1 all gates are open
    leaks: Sequence[float] = ()  # of the first texts

    def curve(self, labels: Sequence[int]) -> Json:
        """Returns "share", "accuracy", "threshold": lists, an entry per distinct threshold."""
        # Equal thresholds become a single point, because they are keys of a dict.
        points = {
            threshold: (
                float(num_read.sum() / self.words),
                float(np.mean(predicted == np.array(labels))),
            )
            for threshold, num_read, predicted in zip(
                self.thresholds.tolist(), self.num_read, self.predicted, strict=True
            )
        }
        return {
            "share": [share for share, _ in points.values()],
            "accuracy": [accuracy for _, accuracy in points.values()],
            "threshold": [max(threshold, 0.0) for threshold in points],
        }


Found = tuple[list[str], Json | None]
"""Notes for the user, and the answer, or None if there is no answer."""


class View:
    """A model on the page, which answers its requests; several threads may call it."""

    network: str
    # "name" in `State`, "label", "empty"
    fields: tuple[dict[str, str], ...] = (
        {"name": "text", "label": "Sentence", "empty": "Type a sentence"},
    )
    title = "Which words does the prediction rest on?"
    panel = "lines"  # the form of the answers; "words" for a network that classifies single texts
    gated = False  # the user can force gates
    layered = True  # `layers` returns grids
    weighed = False  # `effects` returns the effects of words
    pairs = False  # words are read in pairs
    labelled = False  # a class for a single text: `results` and `probabilities` can be called
    switched = False  # the user can switch words off
    max_len = LONGEST  # words that the model reads
    classes: Sequence[str] = ()
    tokenizer = Tokenizer()

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()  # Several threads call a view, and a single thread computes.

    def about(self) -> Json:
        """Returns the constants of the model for the page, for JSON."""
        flags = ("gated", "layered", "weighed", "pairs", "switched")
        return {
            name: getattr(self, name) for name in ("name", "network", "panel", *flags, "classes")
        }

    def example(self) -> dict[str, str]:
        """Returns the texts with which the page opens."""
        return {}

    def describe_example(self) -> Json:
        """Returns {"note", "label"}: the origin of `example` as a sentence, its label or None."""
        note = "An example: the most frequent words of the vocabulary. Type your own text."
        return {"note": note, "label": None}

    def split(self, text: str) -> Sequence[str]:
        """Splits a text into words, also words that are not shown."""
        return self.tokenizer.split(text)

    def answer(self, state: State) -> Found:
        """Returns (notes, answer), see the module. An answer may also have "order" and "best",
        positions of classes; "exclusive", False if probabilities do not sum to 1; "choice", a
        question for the entry of "of" that is "chosen"; "signs", the meaning of + and -; and
        "before", the title and share without the words that the user has switched off.
        """
        raise NotImplementedError

    def layers(self, state: State) -> list[Json] | None:
        """Returns the attention in the layers for a state, a `grid` per head, or None."""
        return None

    def effects(self, state: State) -> Json | None:
        """Returns the effects of the words on the predicted class, or None."""
        return None

    def results(self, texts: Sequence[str], check: Callable[[], None], leaks: int) -> Results:
        """Reads labelled texts, with gate leaks for the first `leaks`; `check` may end the work."""
        raise NotImplementedError

    def probabilities(self, texts: Sequence[Sequence[str]]) -> np.ndarray:
        """Computes the probabilities [N, C] of C classes for the words of N labelled texts."""
        raise NotImplementedError

    def warm_up(self, closed: Callable[[], bool]) -> None:
        """Compiles the programs for short texts."""

    def close(self, seconds: float) -> bool:
        """Acquires the lock for good, so that no computation starts again; True if it got it."""
        return self._lock.acquire(timeout=seconds)


def example_words(words: Iterable[str]) -> list[str]:
    """Returns the first 8 words that consist of letters, for the text with which a page opens."""
    # Special words and punctuation come first in a vocabulary and say little in an example.
    return list(itertools.islice((word for word in words if word.isalpha()), 8))


def floats(values: np.ndarray | None) -> list[float] | None:
    """Converts the array `values` [n] to a list of Python floats for JSON; None stays None."""
    return None if values is None else [float(value) for value in values]


def bools(values: np.ndarray) -> list[bool]:
    """Converts the array `values` [n] to a list of Python bools for JSON."""
    return [bool(value) for value in values]


def grids(name: str, selection: Any, rows: Sequence[str], note: str = "") -> list[Json]:
    """Makes a grid for each head of an attention layer, without padding."""
    weights, gates = selection.weights, selection.gates
    if weights is None:
        return []
    heads = range(weights.shape[1])
    # If all heads share their gates, the axis of heads has size 1.
    selected = [None if gates is None else gates[0, n % gates.shape[1]] > 0.5 for n in heads]
    return [
        grid(f"{name}, head {n + 1}", weights[0, n], rows, rows, selected[n], note=note)
        for n in heads
    ]


def grid(
    name: str,
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    is_selected: np.ndarray | None = None,
    *,
    note: str = "",
) -> Json:
    """Makes a grid of numbers for pairs of words, for the first `PAIRED` words of both axes."""
    # A browser becomes slow with too many cells.
    high, wide = min(len(rows), PAIRED), min(len(columns), PAIRED)
    return {
        "name": name,
        "note": note,
        "rows": list(rows[:high]),
        "columns": list(columns[:wide]),
        "cut": len(rows) > high or len(columns) > wide,
        "uniform": 1 / len(columns),
        # Four digits are enough for a colour, and keep the answer small.
        "pairs": [floats(row) for row in values[:high, :wide].round(4)],
        "selected": None
        if is_selected is None
        else [bools(row) for row in is_selected[:high, :wide]],
    }


def describe_cut(
    text: str, count: int, most: int, how: str = "are read", unit: str = "words"
) -> list[str]:
    """Returns the note about a text of which only the first `most` words are read, if any."""
    return [f"{text} has {count:,} {unit}; the first {most:,} {how}."] if count > most else []


def make_answer(title: str, lines: Sequence[Json], **entries: Any) -> Json:
    """Makes the answer of a view, see the module."""
    empty: Json = {"classes": [], "probabilities": [], "note": ""}
    nothing = dict.fromkeys(("share", "head", "details"))
    return {"title": title, "lines": list(lines), **nothing, **empty, **entries}


def line(name: str, tokens: Sequence[str], is_known: Sequence[bool], **entries: Any) -> Json:
    """Makes a line of an answer: a text with a number for each word. "read" [T] says which words
    are read, "off" [T] which of them are switched off, "marked" [T] frames words, and "uniform" is
    the number if all were equal; `make_part_lines` has the entries of parts.
    """
    empty = dict.fromkeys(("values", "of", "read", "off", "marked", "uniform"))
    texts = {"name": name, "tokens": list(tokens), "known": list(is_known), "note": ""}
    return {**texts, **empty, **entries}


def thresholds_of(values: np.ndarray, shares: Sequence[float]) -> np.ndarray:
    """Computes thresholds with given shares of the values above them. Each is halfway between two
    values, because at a value rounding would decide, which depends on the batch and the processor;
    equal values stay on one side.

        >>> print(thresholds_of(np.array([0.0, 0.25, 0.5, 1.0]), [0.5]))
        [0.375]
    """
    ordered = np.sort(values.astype(np.float64))
    is_distinct = np.diff(ordered) > 1e-6  # more than by rounding in another batch
    between = ((ordered[1:] + ordered[:-1]) / 2)[is_distinct]
    below = np.quantile(ordered, 1 - np.array(shares), method="lower")
    if not len(between):
        return below
    return between[np.searchsorted(between, below).clip(max=len(between) - 1)]
