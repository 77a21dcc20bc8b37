"""The base class of the views of a model, and the parts of an answer that several views share.

A view answers the state of a page (see `Explorer.answer`) in a form that a single panel shows:

    {"title", "share", "head", "classes", "probabilities", "details", "lines"}

"lines" are texts with a number for each word, "values" [T]; if "of" has Q words, "values" is
[Q, T], with a list for each of them. Numbers for pairs of words are grids from `View.layers`.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.explore._example import FREQUENT_WORDS
from gatedjax.explore._state import State
from gatedjax.text._tokens import split_words

LONGEST = 1000
"""Largest number of words of a text that are shown; a model may read fewer."""
MOST_CLASSES = 10
"""Largest number of classes in a table of probabilities."""
PAIRED = 40
"""Largest number of words in a grid of pairs."""
KEPT = 16
"""Number of texts whose results stay in memory, for the grids and effects that follow an answer."""

Field = dict[str, Any]
Found = tuple[list[str], Json | None]
"""Notes for the user, and the answer, or None if there is no answer."""


class View:
    """The base class of the views of a model, which compute the content of the page."""

    network: str
    # "name" in `State`, "label", "empty"; with "options" the page sends the position of the choice.
    fields: tuple[Field, ...]
    title = "Which words does the prediction rest on?"
    """The title of the page, which states its purpose."""
    layered = True
    """True if `layers` returns grids."""
    weighed = False
    """True if `effects` returns the effects of words."""
    max_len = LONGEST
    """Largest number of words that the model reads."""
    classes: Sequence[str] = ()

    def __init__(self) -> None:
        self._lock = threading.Lock()  # Several threads call a view, and one of them computes.

    def about(self, name: str) -> Json:
        """Returns the constants of the model for the page, for JSON."""
        return {
            "name": name,
            "network": self.network,
            "gated": False,
            "layers": self.layered,
            "weighed": self.weighed,
            "pairs": False,
            "classes": list(self.classes),
            "max_len": self.max_len,
        }

    def example(self) -> dict[str, str]:
        """Returns the texts with which the page opens."""
        return {}

    def describe_example(self) -> Json:
        """Returns {"note", "label"}: the origin of `example` as a sentence, its label or None."""
        return {"note": FREQUENT_WORDS, "label": None}

    def answer(self, state: State) -> Found:
        """Returns (notes, answer), see the module. An answer may also have "order" and "best",
        positions of classes; "exclusive", False if probabilities do not sum to 1; "choice", a
        question for the entry of "of" that is "chosen"; and "signs", the meaning of + and -.
        """
        raise NotImplementedError

    def count_words(self, state: State) -> int:
        """Returns the number of words of the text of a state, also of words that are not shown."""
        return len(split_words(state.text))

    def layers(self, state: State) -> list[Json] | None:
        """Returns the attention in the layers for a state, a `grid` per head, for JSON."""
        raise NotImplementedError

    def effects(self, state: State) -> Json | None:
        """Returns {"class", "lines"}, the effects of the words of each line on it, or None."""
        return None

    def warm_up(self, closed: Callable[[], bool]) -> None:
        """Compiles the programs for short texts."""

    def close(self, seconds: float) -> bool:
        """Acquires the lock for good, so that no computation starts again; True if it got it."""
        return self._lock.acquire(timeout=seconds)


def floats(values: np.ndarray | None) -> list[float] | None:
    """Converts the array `values` [n] to a list of Python floats for JSON; None stays None."""
    return None if values is None else [float(value) for value in values]


def grids(name: str, selection: Any, rows: Sequence[str], note: str = "") -> list[Json]:
    """Makes a grid for each head of an attention layer, without padding."""
    weights, gates = selection.weights, selection.gates
    results = []
    for head in range(0 if weights is None else weights.shape[1]):
        # If all heads share their gates, the axis of heads has size 1.
        is_selected = None if gates is None else gates[0, head % gates.shape[1]] > 0.5
        results.append(
            grid(f"{name}, head {head + 1}", weights[0, head], rows, rows, is_selected, note=note)
        )
    return results


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
    # The number of cells grows with the square of the words, and a browser becomes slow with too
    # many.
    high, wide = min(len(rows), PAIRED), min(len(columns), PAIRED)
    # Four digits are enough for a colour, and keep the answer small.
    cut = values[:high, :wide].round(4)
    return {
        "name": name,
        "note": note,
        "rows": list(rows[:high]),
        "columns": list(columns[:wide]),
        "cut": len(rows) > high or len(columns) > wide,
        "uniform": 1 / len(columns),
        "pairs": [floats(row) for row in cut],
        "selected": None
        if is_selected is None
        else [[bool(value) for value in row] for row in is_selected[:high, :wide]],
    }


def line(name: str, tokens: Sequence[str], is_known: Sequence[bool], **entries: Any) -> Json:
    """Makes a line of an answer: a text with a number for each word. "kept" [T] emphasises words,
    "uniform" is the number if all were equal; `make_share_lines` has the entries of shares.
    """
    empty: Json = {"values": None, "of": None, "kept": None, "uniform": None, "note": ""}
    return {"name": name, "tokens": list(tokens), "known": list(is_known), **empty, **entries}
