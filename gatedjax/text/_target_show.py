"""Explanations of predictions that are no class: as JSON, for a terminal, and as an HTML page."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from gatedjax._utils.page import render_page
from gatedjax._utils.terminal import clean, printable
from gatedjax._utils.types import Json
from gatedjax.analysis._text import render_table
from gatedjax.text._prediction import LabelsPrediction, Prediction, ValuePrediction
from gatedjax.text._show import (
    _STYLE,
    UNKNOWN,
    UNKNOWN_LEGEND,
    Reasons,
    _escape,
    _reading,
    _word,
    _words,
    describe_open_words,
)

# Largest number of columns in the table of shares.
_MOST_SHARES = 4
# The table of a text with more words is collapsed on a page.
_MOST_WORDS = 60


@dataclass(frozen=True, kw_only=True)
class TargetExplanation:
    """A prediction of labels, a number or a grade, and its explanation by the words of the text.

    Attributes:
      text: the text.
      tokens: the words of the text.
      prediction: the predicted labels, number or grade.
      headline: the prediction as a line of text.
      rule: the sentence by which the prediction follows from the sums of the shares.
      kept: for each word True if its gate is open; the lexicon reads these words only.
      unknown: for each word True if it is in no training text.
      columns: the positions in `reasons.classes` of the columns that are shown, in their order.
      ranked: for each open word or pair its text and its shares in the C logits, the largest
        effects first.
      reasons: the shares of the words and pairs in the logits, the bias, and the names of the C
        logits, `reasons.classes`.
    """

    text: str
    tokens: tuple[str, ...]
    prediction: Prediction | LabelsPrediction | ValuePrediction
    headline: str
    rule: str
    kept: tuple[bool, ...]
    unknown: tuple[bool, ...]
    columns: tuple[int, ...]
    ranked: tuple[tuple[str, tuple[float, ...]], ...]
    reasons: Reasons

    attention: ClassVar[None] = None
    gates: ClassVar[None] = None
    cut: ClassVar[int] = 0
    windows: ClassVar[tuple[int, ...]] = ()

    @property
    def density(self) -> float:
        """The share of the words that are read."""
        return self.prediction.density

    def to_json(self) -> Json:
        """Returns a dict of the prediction, the words, the gates and the reasons for JSON.

        It has "text", the fields of the prediction such as "labels" or "value", "tokens", a bool
        for each token in "kept" (True if it is read) and in "unknown" (True if it is in no training
        text), "density" and "reasons".
        """
        return {
            "text": self.text,
            **self.prediction.to_json(),
            "tokens": list(self.tokens),
            "kept": [bool(is_open) for is_open in self.kept],
            "unknown": list(self.unknown),
            "density": float(self.density),
            "reasons": self.reasons.to_json(),
        }

    def render(self) -> str:
        """Formats the explanation as `print` shows it: a few sentences, and a table of the words.

        Control characters are replaced.
        """
        names, rows = self._list_rows()
        headers = ["open word or pair", *(f"for {clean(name)}" for name in names)]
        table = render_table(headers, [[clean(cell) for cell in row] for row in rows])
        lines = [clean(self.headline), _reading(self)]  # type: ignore[arg-type]
        lines += describe_open_words(self.reasons, "prediction")
        return "\n".join([*lines, "", f"{table}\n{clean(self.rule)}\n"])

    __str__ = render

    def html(self) -> str:
        """Returns the explanation as an HTML page; `target_page` makes a page of several texts."""
        return target_page([self], clean(self.headline))

    def _list_rows(self) -> tuple[list[str], list[list[str]]]:
        """Returns the names of the columns and the rows of the table of shares."""
        # A text may have hundreds of labels, and a terminal has room for a few columns.
        shown = self.columns[:_MOST_SHARES]
        # The name of a pair has a space, and is no unknown word.
        unknown = set(itertools.compress(self.tokens, self.unknown))
        items = [
            *((_word(name) + UNKNOWN * (name in unknown), parts) for name, parts in self.ranked),
            ("(no word)", self.reasons.bias),
        ]
        totals = [sum(parts[place] for _, parts in items) for place in shown]
        decimals = count_decimals([parts[place] for _, parts in self.ranked for place in shown])
        rows = [
            [name, *(f"{parts[place]:+.{decimals}f}" for place in shown)] for name, parts in items
        ]
        rows.append(["sum", *(f"{total:+.{decimals}f}" for total in totals)])
        return [str(self.reasons.classes[place]) for place in shown], rows


def count_decimals(parts: Sequence[float]) -> int:
    """Returns the number of decimals of a table of shares, which have the unit of the target: 3,
    unless the largest share then has less than three digits, or is larger than 1,000.

        >>> count_decimals([0.5, -2.0]), count_decimals([2e-6]), count_decimals([40_000.0])
        (3, 9, 0)
    """
    largest = max(map(abs, parts), default=0.0)
    if largest == 0 or 0.05 <= largest < 1000:
        return 3
    return min(max(3 - math.floor(math.log10(largest)), 0), 20)


def target_page(explanations: Sequence[TargetExplanation], title: str) -> str:
    """Makes an HTML page without scripts, in light and dark style. Open words are underlined,
    closed words are struck through, and texts are escaped.
    """
    articles = "\n".join(_article(e, number) for number, e in enumerate(explanations, 1))
    unknown = f"{UNKNOWN_LEGEND} " * any(any(e.unknown) for e in explanations)
    page_title = printable(clean(title))
    body = f"""<main>
<h1>{_escape(page_title)}</h1>
<p class="legend"><span class="w">Underlined</span>: read. <del class="closed">Struck through</del>:
not read. {unknown}The tables have the parts of the open words.</p>
{articles}
</main>"""
    return render_page(page_title, body, _STYLE)


def _article(e: TargetExplanation, number: int) -> str:
    """Returns the HTML of an explanation: its text with marked words, and the table of shares."""
    names, rows = e._list_rows()
    columns = "".join(f'<th scope="col">For {_escape(name)}</th>' for name in names)
    cells = []
    for name, *numbers in rows:
        row = "".join(f'<td class="n">{cell}</td>' for cell in numbers)
        cells.append(f'<tr><th scope="row"><bdi>{_escape(name)}</bdi></th>{row}</tr>')
    sentences = [_reading(e)]  # type: ignore[arg-type]
    sentences += [*describe_open_words(e.reasons, "prediction"), e.rule]
    is_open = " open" if len(e.tokens) <= _MOST_WORDS else ""
    return "\n".join(
        [
            f'<article aria-labelledby="e{number}">',
            f'<h2 id="e{number}"><bdi>{_escape(e.headline)}</bdi></h2>',
            f'<p class="text" lang="" dir="auto">{" ".join(_words(e))}</p>',  # type: ignore[arg-type]
            f"<p>{' '.join(map(_escape, sentences))}</p>",
            f"<details{is_open}>",
            f"<summary>Word by word ({len(e.tokens)})</summary>",
            f'<div class="scroll" role="region" tabindex="0" aria-label="Words of text {number}">',
            f'<table><thead><tr><th scope="col">Open word or pair</th>{columns}</tr></thead>',
            *("<tbody>", *cells, "</tbody></table>", "</div>", "</details>", "</article>"),
        ]
    )
