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
    """The base class of the views of a model, which compute the content of the page.

    Several threads may call a view; a lock lets one of them compute at a time.

    Attributes:
      network: a description of the network.
      fields: the input fields, each a dict of texts: "name", its field of `State`; "label"; and
        "empty", the text that is shown in an empty field. With "options", a list of names, the
        user chooses among them, and the field of the state has the position in the list, from 0.
      layered: True if `layers` returns grids, dicts with a number for each pair of words.
      weighed: True if `effects` returns the effects of words.
      max_len: the largest number of words that the model reads.
      classes: the names of the classes of a classifier; () for other models.
    """

    network: str
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
        self._lock = threading.Lock()

    def about(self, name: str) -> Json:
        """Returns the constants of the model for the page, for JSON.

        Keys: "name", the given name of the model; "network", a description; "gated", False;
        "layers", True if `layers` returns grids; "weighed", True if `effects` returns the
        effects of words; "pairs", False; "classes", the names of the classes; and "max_len", the
        largest number of words.
        """
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
        """Returns the texts with which the page opens.

        They are a dict from names of fields of `State`, such as "text" and "hypothesis", to texts.
        """
        return {}

    def describe_example(self) -> Json:
        """Describes the texts of `example` for the page, for JSON.

        Returns {"note", "label"}: a sentence about their origin, and the label of the text or None.
        """
        return {"note": FREQUENT_WORDS, "label": None}

    def answer(self, state: State) -> Found:
        """Computes the answer to a state of the page.

        Returns (notes, answer). The notes are a list of sentences for the user. The answer is None
        if there is no answer, else a dict for JSON: "title", the predicted class, candidate or
        translation; "share", its probability or None; "head", the title of the table of classes;
        "classes" and "probabilities", lists for this table; "details", a text for each class, or
        None; "note", a remark; and "lines", a list of dicts that `line` makes, each with the words
        of a text ("tokens") and perhaps numbers for them ("values").

        An answer may also have "order", the positions of the classes in the order of the table
        (default: by falling probability), of which the first 10 (`MOST_CLASSES`) are shown; "best",
        the positions of the predicted classes (default: the first of the order); "details_head",
        the title of the details; "exclusive", False if the probabilities do not sum to 1; "choice",
        the question for the entry of "of" whose numbers are shown; "chosen", the entry at first;
        and "signs", the meaning of positive and negative numbers, a list of two texts (default: a
        word speaks for or against a class).
        """
        raise NotImplementedError

    def count_words(self, state: State) -> int:
        """Returns the number of words of the text of a state, also of words that are not shown.

        The text is the first input field of the page, such as a sentence or a document.
        """
        return len(split_words(state.text))

    def layers(self, state: State) -> list[Json] | None:
        """Returns the attention in the layers for a state, a `grid` per head, for JSON.

        A grid is a dict with the words of its rows and columns ("rows", "columns"), and a number
        for each pair of them ("pairs"). The result is None if the model has no layers or there is
        no answer.
        """
        raise NotImplementedError

    def effects(self, state: State) -> Json | None:
        """Computes the effect of each word of a state: the change without the word.

        Returns {"class", "lines"}: the position of the predicted class, and for each line of the
        answer a list with the effect of each word on the probability p of this class, p(with the
        word) - p(without it). The result is None if there are no effects.
        """
        return None

    def warm_up(self, closed: Callable[[], bool]) -> None:
        """Compiles the programs for short texts.

        `closed` returns True when the explorer has been closed; no further program is then
        compiled.
        """

    def close(self, seconds: float) -> bool:
        """Waits for a running computation to end, and lets none start again.

        It acquires the lock and never releases it. `seconds` is the largest time to wait, -1 for no
        limit. Returns True if the lock was acquired.
        """
        return self._lock.acquire(timeout=seconds)


def floats(values: np.ndarray | None) -> list[float] | None:
    """Converts the array `values` [n] to a list of Python floats for JSON; None stays None."""
    return None if values is None else [float(value) for value in values]


def grids(name: str, selection: Any, rows: Sequence[str], note: str = "") -> list[Json]:
    """Makes a grid for each head of an attention layer, without padding.

    Args:
      name: name of the layer.
      selection: the output of the layer for a text padded to T' words, with the fields `weights`
        [1, heads, T', T'], the attention, and `gates`, of the same shape or with a head dimension
        of 1, True at selected pairs; a field may be None.
      rows: the T words of the text.
      note: a note below the grid.

    Returns:
      The list of the grids, dicts for JSON that `grid` makes, with "pairs" [T, T]; [] if the
      layer has no weights.
    """
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
    """Makes a grid of numbers for pairs of words, for the first 40 (`PAIRED`) words of both axes.

    Args:
      name: title of the grid.
      values: [R, C], the numbers.
      rows: the R words of the rows.
      columns: the C words of the columns.
      is_selected: bool [R, C], True at selected pairs, or None.
      note: a note below the grid.

    Returns:
      A dict for JSON: "name", the title; "note"; "rows" and "columns", the words of each axis;
      "cut", True if words are left out; "uniform", the weight 1 / C of each column if all were
      equal; "pairs", a list of numbers per row; and "selected", a list of bools per row, or None.
    """
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
    """Makes a line of an answer: a text with a number for each word.

    Args:
      name: title of the line.
      tokens: the T words.
      is_known: for each word True if the vocabulary has it.
      **entries: further entries: "values" [T] or [Q, T], the numbers; "of", the Q words that the
        rows of [Q, T] belong to; "kept" [T], True at words that are emphasised; "uniform", the
        number of each word if all were equal; "note", a text. Missing entries are None, and "" for
        "note". For signed shares also "effects", True; "noun", "share"; "strong", the number with
        the strongest colour; "decimals", the number of decimals (default 3); "totals", a sentence
        for each of the Q words, or a single one; "rule", a sentence that follows it; and "gates"
        [T], True at open gates.

    Returns:
      A dict for JSON: "name", "tokens", "known" and the entries.
    """
    empty: Json = {"values": None, "of": None, "kept": None, "uniform": None, "note": ""}
    return {"name": name, "tokens": list(tokens), "known": list(is_known), **empty, **entries}
