"""Lines of a page with the shares of open words, for models whose logits are sums of shares."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.explore._views import LONGEST, floats, line
from gatedjax.lexicon import Shares
from gatedjax.text._prediction import LABELS, ORDINAL, REGRESSION
from gatedjax.text._show import describe_unknown
from gatedjax.text._target_show import count_decimals

PAIRS = "Two open words with only closed words between them also have a share as a pair."
"""The note of the line of pairs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wording:
    """The words of a page about a kind of target."""

    head: str | None  # the title of the table of probabilities, None for a number
    number: str  # the sentence about the number of a word
    choice: str | None = None  # the question for the class whose shares are shown
    signs: tuple[str, str] | None = None  # the meaning of + and -; None: for and against a class


WORDINGS = {
    "text": Wording(
        head="Class",
        number="The number is the share of the word in the logit of the class.",
        choice="Shares for the class: ",
    ),
    LABELS: Wording(
        head="Label",
        number="The number is the share of the word in the logit of the label.",
        choice="Shares for the label: ",
    ),
    REGRESSION: Wording(
        head=None,
        number="The number is the share of the word in the prediction, in the unit of the target.",
        signs=("raises the prediction", "lowers it"),
    ),
    ORDINAL: Wording(
        head="Grade",
        number="The number is the share of the word in the score that gives the grade.",
        signs=("raises the grade", "lowers it"),
    ),
}
"""The words of the page by the kind of the model."""


def make_share_lines(
    words: Sequence[str],
    is_known: Sequence[bool],
    is_open: np.ndarray,
    shares: Shares,
    names: Sequence[str] | None,  # of the logits; None for a single logit
    note: str,
    rule: str,
    noun: str = "word",
) -> list[Json]:
    """Makes the line of the words with their gates and shares, and that of the pairs, if any."""
    # The colour of a word is strongest at the largest share of the text.
    largest = max(np.abs(shares.words).max(initial=0.0), np.abs(shares.pairs).max(initial=0.0))
    decimals = count_decimals([*shares.words.ravel().tolist(), *shares.pairs.ravel().tolist()])
    entries: Json = {
        "of": None if names is None else list(names),
        "effects": True,
        "noun": "share",
        "strong": max(float(largest), 10.0**-20),
        "decimals": decimals,
    }

    def list_values(parts: np.ndarray) -> Any:
        rows = [floats(row) for row in parts.T]
        return rows[0] if names is None else rows

    def render(value: float) -> str:
        # The page has this minus sign at the words too.
        return f"{value:+.{decimals}f}".replace("-", "\u2212")

    sums = shares.bias + shares.words.sum(0) + shares.pairs.sum(0)
    parts = f"all {noun}s and pairs" if len(shares.places) else f"all {noun}s"
    totals = [
        f"The shares of {parts} and the constant {render(bias)} sum to {render(total)}"
        + (f" for {names[i]}." if names is not None else ".")
        for i, (bias, total) in enumerate(zip(shares.bias, sums, strict=True))
    ]
    results = [
        line(
            f"{noun.capitalize()}s",
            words[:LONGEST],
            is_known[:LONGEST],
            values=list_values(shares.words[:LONGEST]),
            gates=[bool(gate) for gate in is_open[:LONGEST]],
            note=note,
            totals=totals,
            rule=rule,
            **entries,
        )
    ]
    if len(shares.places):
        pairs = [f"{words[first]} {words[second]}" for first, second in shares.places]
        values = list_values(shares.pairs)
        results.append(
            line("Pairs", pairs, [True] * len(pairs), values=values, note=PAIRS, **entries)
        )
    return results


def count_open(is_open: np.ndarray, is_known: np.ndarray) -> str:
    """Returns a sentence with the number of words that are read, and of the unknown among them.

    `is_open` and `is_known` are a bool [T], True at the words or tokens that are read, and at those
    that occur in the training texts.
    """
    count, unknown = int(is_open.sum()), describe_unknown(int((is_open & ~is_known).sum()))
    density = count / max(len(is_open), 1)
    return f"{count} of {len(is_open)} gates are open (density {density:.3f}){unknown}."
