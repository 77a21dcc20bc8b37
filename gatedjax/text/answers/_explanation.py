"""Explanations of predictions, word by word: as JSON, for a terminal, and as an HTML page."""

import dataclasses
import itertools
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gatedjax._utils.types import Json
from gatedjax.text.answers import _page
from gatedjax.text.answers._prediction import LabelsPrediction, Prediction, ValuePrediction
from gatedjax.text.sources._labels import Label

MOST_COLUMNS = 4
"""Largest number of classes, labels or scores in a table of parts: a terminal has no more room."""
# Largest number of classes in the first line of an explanation.
_MOST_CLASSES = 10
# Largest length of a text in the title of a page.
_TITLE = 60
# A word that is not read has an effect if the probability changes by more than the noise of
# float32, because a shorter text runs in a batch of another shape.
_LEAST_CHANGE = 1e-5
# A part is shown in grey below this share of the sum of the absolute parts of the text.
_FAINT = 0.01
_UNKNOWN = " (unknown)"
_UNKNOWN_LEGEND = (
    '<span class="unknown">Dotted</span>: unknown, in no training text; if it is read, then by its '
    "letters only."
)
_PAIR_LEGEND = "Words with the same small number are a pair: the words between them are not read."
_SHADE_LEGEND = (
    'Shade: attention, from <span class="w" style="--a:0.1">little</span> to '
    '<span class="w" style="--a:1">the most of the text</span>.'
)


@dataclass(frozen=True, kw_only=True)
class Change:
    """The prediction after a gate is flipped or a word is removed.

        >>> Change(label="bad", probability=0.25)
        Change(label='bad', probability=0.25)

    Attributes:
      label: the class that is predicted after the change.
      probability: the probability, after the change, of the class that was predicted before.
    """

    label: Label
    probability: float

    def to_json(self) -> Json:
        """Returns a dict of the fields for `json.dumps`."""
        return {"label": self.label, "probability": self.probability}


@dataclass(frozen=True, kw_only=True)
class Reasons:
    """The parts of the logits of a prediction, which is a sum over words and pairs of words.

        logit of class c = prior_c + sum_t words_tc + sum_p pairs_pc

    Attributes:
      classes: the names of the C logits, in the order of the numbers: classes, labels, or a score.
      prior: the C numbers that do not depend on the words: the constants of the model, and for a
        text of which no word is read the logarithms of the frequencies of the classes.
      words: for each word of the text its C numbers; 0 for a word that is not read.
      pairs: for each pair of words that are read, with only unread words between them, a tuple: the
        positions of the two words in the text, from 0, and the C numbers of the pair.
      is_same: True if dropping the unread words leaves the prediction the same, bit for bit.
      note: a remark about the text, or "".
      rule: the sentence by which the prediction follows from the sums.
      reads_all: True for a linear model, which reads all words of each text.
      leak: a sentence about the words that are not read and that the prediction depends on through
        the vectors of an encoder, or "".
    """

    classes: tuple[Label, ...]
    prior: tuple[float, ...]
    words: tuple[tuple[float, ...], ...]
    pairs: tuple[tuple[int, int, tuple[float, ...]], ...]
    is_same: bool
    note: str = ""
    rule: str = "The class with the largest sum is predicted; the parts are exact."
    reads_all: bool = False
    leak: str = ""

    def to_json(self) -> Json:
        """Returns a dict of the fields but `rule` and `reads_all` for `json.dumps`.

        An entry of "pairs" is a dict with "first", "second" and "parts"; "leak" is left out if it
        is empty.
        """
        return {
            "classes": list(self.classes),
            "prior": list(self.prior),
            "words": [list(parts) for parts in self.words],
            "pairs": [
                {"first": first, "second": second, "parts": list(parts)}
                for first, second, parts in self.pairs
            ],
            "is_same": self.is_same,
            "note": self.note,
        } | ({"leak": self.leak} if self.leak else {})


class RankedPart(NamedTuple):
    """The parts in the C logits of a word, or of a pair of words, that is read.

        >>> RankedPart("not ... bad", (0.5, -0.5), (3, 5)).has_gap
        True

    Attributes:
      name: the word, or the two words of a pair, with "..." between them if they are no neighbours.
      parts: its C numbers.
      places: the positions in the text of the word, or of the two words of a pair, from 0.
    """

    name: str
    parts: tuple[float, ...]
    places: tuple[int, ...]

    @property
    def has_gap(self) -> bool:
        """True for a pair of words with unread words between them."""
        return self.places[-1] - self.places[0] > 1


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A prediction and its explanation by the words of the text, for every kind of model.

        >>> explanation = Explanation(
        ...     text="dull film", tokens=("dull", "film"), read=(True, False),
        ...     prediction=Prediction("bad", 0.75, ["dull"], 0.5),
        ...     probabilities={"bad": 0.75, "good": 0.25}, gates=(0.75, 0.25),
        ...     removed=(Change(label="good", probability=0.5),) * 2,
        ... )
        >>> for line in explanation.render().splitlines()[:2]:
        ...     print(line)
        bad 0.750 (of bad 0.750, good 0.250)
        1 of 2 words are read by attention (50%).

    Attributes:
      text: the text.
      tokens: the words of the text. Each of read, attention, gates, flips and removed has an entry
        for each word.
      prediction: the prediction: a `Prediction`, `LabelsPrediction` or `ValuePrediction`.
      read: True if the word is read. A lexicon reads these words and no other. The encoder of a
        network may read all words, so that removing another word may change the prediction too; the
        explanation then says "read by attention".
      probabilities: the probability of each class; empty for labels, a number or a grade.
      headline: the prediction in a line of text; "" makes it from the probabilities.
      unknown: for a lexicon True at each word that is in no training text; else (). Such a word is
        read by its letters only.
      reasons: the part of each word in the logits, for a lexicon or a model of states; for a
        network None, unless the answer is the prior.
      columns: the positions in `reasons.classes` of the logits, the predicted first.
      ranked: the words and pairs that are read, the largest effects first.
      attention: the attention to each word, with the sum 1 (for local attention at most 1); None if
        the model has no attention.
      gates: the probability that each gate is open; None if the model has no gates.
      flips: the prediction if only this gate is flipped, with None for the last open gate of a
        network that would open the likeliest gate again; None if the network has no gates.
      removed: the prediction for the text without the word; None for labels, a number or a grade.
      cut: number of words at the end of the text that the network does not read because of
        `max_len`.
      windows: the number of the window of each word, from 1, if a network reads a long text in
        several windows; else ().
    """

    text: str
    tokens: tuple[str, ...]
    prediction: Prediction | LabelsPrediction | ValuePrediction
    read: tuple[bool, ...]
    probabilities: Mapping[Label, float] = dataclasses.field(default_factory=dict)
    headline: str = ""
    unknown: tuple[bool, ...] = ()
    reasons: Reasons | None = None
    columns: tuple[int, ...] = ()
    ranked: tuple[RankedPart, ...] = ()
    attention: tuple[float, ...] | None = None
    gates: tuple[float, ...] | None = None
    flips: tuple[Change | None, ...] | None = None
    removed: tuple[Change, ...] | None = None
    cut: int = 0
    windows: tuple[int, ...] = ()

    @property
    def label(self) -> Label:
        """The predicted class or grade."""
        return self.prediction.label  # type: ignore[union-attr]

    @property
    def probability(self) -> float:
        """The probability of the predicted class or grade."""
        return self.prediction.probability  # type: ignore[union-attr]

    @property
    def share(self) -> float:
        """The share of the words that are read."""
        return self.prediction.share

    def to_json(self) -> Json:
        """Returns a dict for `json.dumps`.

        It has `text`, the fields of the prediction, `tokens` and `read`; for a class also
        `probabilities`, `attention`, `gates`, `flips`, `removed` and `cut`; and, if there are any,
        `windows`, `unknown` and `reasons`. `probabilities` is a list of dicts with "label" and
        "probability", because a class may be a number.
        """
        fields: Json = {
            "text": self.text,
            **self.prediction.to_json(),
            "tokens": list(self.tokens),
            "read": list(self.read),
            "share": self.share,
        }
        if self.removed is not None:
            fields.pop("note", None)  # `reasons` has it
            fields |= {
                "probability": self.probability,
                "probabilities": [
                    {"label": label, "probability": share} for label, share in self._rank_classes()
                ],
                "attention": None if self.attention is None else list(self.attention),
                "gates": None if self.gates is None else list(self.gates),
                "flips": self.flips and [change and change.to_json() for change in self.flips],
                "removed": [change.to_json() for change in self.removed],
                "cut": self.cut,
            }
        if self.windows:
            fields["windows"] = list(self.windows)
        if self.unknown:
            fields["unknown"] = list(self.unknown)
        if self.reasons is not None:
            fields["reasons"] = self.reasons.to_json()
        return fields

    def render(self) -> str:
        """Formats the explanation as `print` shows it: a few sentences, and a table of the words.

        No line is wider than the terminal, and control characters are replaced.
        """
        return _page.render_view(self._view())

    __str__ = render

    def __rich__(self) -> Any:
        """Formats the explanation like `render` for a console of rich, with the small parts dim."""
        return _page.style_view(self._view())

    def html(self) -> str:
        """Returns the explanation as an HTML page."""
        text = " ".join(self.text.split())
        cut = text if len(text) <= _TITLE else f"{text[: _TITLE - 1]}…"
        return html_page([self], f"{self._view().title}: {cut}")

    def _rank_classes(self) -> list[tuple[Label, float]]:
        return sorted(self.probabilities.items(), key=lambda item: -item[1])

    def _view(self) -> _page.View:
        ranked = self._rank_classes()
        headline, title, percent = self.headline, self.headline, ""
        if ranked:
            shown = ", ".join(f"{label} {p:.3f}" for label, p in ranked[:_MOST_CLASSES])
            # A probability below 1 is never shown as 100 %, because no prediction is certain.
            share = self.probability if self.probability >= 1 else min(self.probability, 0.999)
            title, percent = str(self.label), f"{share:.1%}"
            headline = f"{title} {self.probability:.3f} (of {shown})"
        top = max(self.attention or (0.0,))
        shades = [a / top for a in self.attention or ()] if top > 0 else []
        faint = _find_faint(self)
        marks = _number_pairs(self, faint)
        words = itertools.zip_longest(self.tokens, self.read, self.unknown, shades, fillvalue=0)
        sentences = [count_words_read(self)]
        if self.reasons is None:
            sentences += _describe_changes(self)
        else:
            noun = "probabilities" if ranked else "prediction"
            sentences += describe_words_read(self.reasons, noun)
        headers, rows = _list_changes(self) if self.reasons is None else _list_parts(self, marks)
        return _page.View(
            title=title,
            headline=headline,
            percent=percent,
            words=[
                _page.Word(str(w), bool(r), bool(u), float(shade), _join_marks(self, marks, place))
                for place, (w, r, u, shade) in enumerate(words)
            ],
            sentences=sentences,
            headers=headers,
            rows=rows,
            faint=faint,
            rule="" if self.reasons is None else self.reasons.rule,
            classes=ranked,
            has_gates=self.gates is not None,
            name_place=bool(self.windows),
        )


def html_page(explanations: Sequence[Explanation], title: str) -> str:
    """Makes an HTML page, with the words that are read underlined and the others struck through."""
    has_gates = any(e.gates is not None for e in explanations)
    legend = []
    if has_gates or not all(flag for e in explanations for flag in e.read):
        # The name is "read" only if it is that of all texts.
        name = max(map(_name_words_read, explanations), default="read")
        legend.append(f'<span class="w">Underlined</span>: {name}.')
        legend.append(f'<del class="closed">Struck through</del>: not {name}.')
    if any(flag for e in explanations for flag in e.unknown):
        legend.append(_UNKNOWN_LEGEND)
    if any(_number_pairs(e, _find_faint(e)) for e in explanations):
        legend.append(_PAIR_LEGEND)
    if any(e.attention is not None for e in explanations):
        legend.append(_SHADE_LEGEND)
    if any(e.reasons is not None for e in explanations):
        faint = " Grey: less than 1 % of their absolute sum." * any(map(_find_faint, explanations))
        legend.append(
            f"The tables have the parts of the words read; their sum is the score.{faint}"
        )
    if any(e.reasons is None for e in explanations):
        legend.append(
            "The tables have the probability of the predicted class, and its change, "
            + ("if the gate of a word alone were the other way, and " if has_gates else "")
            + "if the word were not in the text."
        )
    return _page.make_page([e._view() for e in explanations], title, legend)


def name_places(words: Sequence[str], places: Sequence[int]) -> str:
    """Returns the word at a place of a text, or the words of a pair, with "..." between words that
    are no neighbours.

        >>> name_places(["alle", "reden", "über"], (0, 2))
        'alle ... über'
    """
    joint = " ... " if places[-1] - places[0] > 1 else " "
    return joint.join(words[place] for place in places)


# Sentences ----------------------------------------------------------------------------------------


def count_words_read(e: Explanation) -> str:
    """Returns the sentence about the number of words of an explained text that are read."""
    cut = f" The text goes on for {e.cut:,} words that are not used." if e.cut else ""
    if e.windows:
        cut += (
            f" They are in {e.windows[-1]} windows, which the network reads one by one; the scores "
            "are the mean of those of the windows, weighted by their numbers of words."
        )
    if not e.tokens:
        return "The text has no word."
    if e.gates is None and all(e.read) and not any(e.unknown):
        return f"{len(e.tokens)} words, all of them read.{cut}"
    count = sum(e.read)
    share = f"{count} of {len(e.tokens)} words are"
    # In SSAN each word selects other words, so that the share is the share of pairs.
    if abs(count / len(e.tokens) - e.share) > 1e-3:
        pairs = f"{e.share:.0%} of all pairs are"
        return f"{share} selected by more than half of the words; {pairs}.{cut}"
    unknown = sum(map(operator.and_, e.read, e.unknown))
    return f"{share} {_name_words_read(e)} ({e.share:.0%}){describe_unknown(unknown)}.{cut}"


def describe_unknown(count: int) -> str:
    """Returns the end of a sentence about `count` words that are read and in no training text."""
    return f", {count} of them unknown: by their letters only" if count else ""


def describe_words_read(reasons: Reasons, noun: str = "probabilities") -> Iterator[str]:
    """Yields the note of a text, and a sentence on its output without the unread words."""
    if reasons.note:
        yield f"{reasons.note[0].upper()}{reasons.note[1:]}."
    if reasons.leak:
        yield f"{reasons.leak[0].upper()}{reasons.leak[1:]}."
    elif reasons.reads_all:
        yield "A linear model reads all words of a text."
    elif reasons.is_same:
        yield f"The words read alone give the same {noun}, bit for bit."
    else:
        yield (
            f"THE WORDS READ ALONE DO NOT GIVE THE SAME {noun.upper()}: this is an error of the "
            "program."
        )


def _find_leak(e: Explanation) -> tuple[float, str]:
    """Returns the largest change without an unread word, and its word; float32 noise is 0."""
    changes = e.removed or () if e.reasons is None else ()
    leaks = [
        (abs(change.probability - e.probability), token)
        for token, is_read, change in zip(e.tokens, e.read, changes, strict=False)
        if not is_read
    ]
    largest = max(leaks, key=lambda leak: leak[0], default=(0.0, ""))
    return largest if largest[0] > _LEAST_CHANGE else (0.0, "")


def _name_words_read(e: Explanation) -> str:
    """Returns "read", or "read by attention" if another word has an effect too."""
    return "read by attention" if _find_leak(e)[0] else "read"


def _describe_changes(e: Explanation) -> Iterator[str]:
    """Yields sentences about the words with the largest effects on the prediction of a network."""
    leak, word = _find_leak(e)
    if leak:
        yield (
            "Removing a word that is not read changes the probability too, by up to "
            f'{leak:.3f} ("{_page.show_word(word)}").'
        )
    for entries, deed in ((e.flips or (), "Flipping the gate of"), (e.removed or (), "Removing")):
        # A missing change belongs to a gate that the network does not let close.
        changes = {i: change for i, change in enumerate(entries) if change is not None}
        if len(changes) < len(entries):
            yield "The last open gate cannot be closed: the network opens the likeliest again."
        if not changes:
            continue
        other = [_page.show_word(e.tokens[i]) for i, c in changes.items() if c.label != e.label]
        if other:
            more_words = f" and {len(other) - 5} more" if len(other) > 5 else ""
            names = ", ".join(f'"{word}"' for word in other[:5])
            yield f"{deed} one of these changes the prediction: {names}{more_words}."
        else:
            i = max(changes, key=lambda i: abs(changes[i].probability - e.probability))
            yield (
                f"{deed} no single word changes the prediction; "
                f'"{_page.show_word(e.tokens[i])}" does most ({_show_change(e, changes[i]).text}).'
            )


# Tables -------------------------------------------------------------------------------------------


def _list_changes(e: Explanation) -> tuple[list[str], list[list[_page.Cell]]]:
    """Returns the headers and the rows of the table of a network: its words and their effects."""
    top = max(e.attention or (0.0,))
    columns: dict[str, list[_page.Cell]] = {}
    if e.windows:
        columns["window"] = [_page.Cell(str(number)) for number in e.windows]
    columns["word"] = [
        _page.Cell(_page.show_word(token), is_marked=not is_read)
        for token, is_read in zip(e.tokens, e.read, strict=True)
    ]
    columns["read"] = [_page.Cell("yes" if is_read else "no") for is_read in e.read]
    if e.gates is not None:
        columns["gate"] = [_page.Cell(f"{gate:.2f}") for gate in e.gates]
    if e.attention is not None:
        columns["attention"] = [
            _page.Cell(f"{a:.3f}", bar=a / top if top > 0 else 0.0) for a in e.attention
        ]
    if e.flips is not None:
        columns["if flipped"] = [_show_change(e, change) for change in e.flips]
    columns["if removed"] = [_show_change(e, change) for change in e.removed or ()]
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


def _show_change(e: Explanation, change: Change | None) -> _page.Cell:
    if change is None:
        return _page.Cell("-")
    # Another class is named, because the probability is still that of the class predicted before.
    moved = f"{change.probability:.3f} ({change.probability - e.probability:+.3f})"
    if change.label == e.label:
        return _page.Cell(moved)
    return _page.Cell(f"{moved}, {_page.show_word(str(change.label))}", is_marked=True)


def _find_faint(e: Explanation) -> frozenset[int]:
    """Returns the places in `ranked` of parts below 1 % of the sum of the absolute parts shown."""
    sizes = [sum(abs(item.parts[c]) for c in e.columns[:MOST_COLUMNS]) for item in e.ranked]
    return frozenset(place for place, size in enumerate(sizes) if size < _FAINT * sum(sizes))


def _number_pairs(e: Explanation, faint: frozenset[int]) -> dict[int, int]:
    """Returns the number of each pair with a gap in `ranked`, from 1; small parts have none."""
    places = [i for i, item in enumerate(e.ranked) if item.has_gap and i not in faint]
    return {place: number for number, place in enumerate(places, 1)}


def _join_marks(e: Explanation, marks: Mapping[int, int], place: int) -> str:
    """Returns the numbers of the pairs with a gap that the word at a position belongs to."""
    return ",".join(str(mark) for i, mark in marks.items() if place in e.ranked[i].places)


def _list_parts(
    e: Explanation, marks: Mapping[int, int]
) -> tuple[list[str], list[list[_page.Cell]]]:
    """Returns the headers and the rows of the table of the parts of words and pairs."""
    assert e.reasons is not None
    shown = e.columns[:MOST_COLUMNS]
    unknown = {(place,) for place, is_unknown in enumerate(e.unknown) if is_unknown}
    names = [_page.show_word(name) + _UNKNOWN * (places in unknown) for name, _, places in e.ranked]
    parts = [*(item.parts for item in e.ranked), e.reasons.prior]
    decimals = count_decimals([item.parts[place] for item in e.ranked for place in shown])
    named = zip(
        (*names, "the prior", "sum"),
        (*parts, [sum(column) for column in zip(*parts, strict=True)]),
        strict=True,
    )
    rows = [
        [
            _page.Cell(name, mark=str(marks.get(i, ""))),
            *(_page.Cell(f"{row[c]:+.{decimals}f}") for c in shown),
        ]
        for i, (name, row) in enumerate(named)
    ]
    return ["word or pair read", *(f"for {e.reasons.classes[place]}" for place in shown)], rows


def count_decimals(parts: Sequence[float]) -> int:
    """Returns the number of decimals of a table of parts, which have the unit of the target: 3,
    unless the largest part then has less than three digits, or is larger than 1,000.

        >>> count_decimals([0.5, -2.0]), count_decimals([2e-6]), count_decimals([40_000.0])
        (3, 9, 0)
    """
    largest = max(map(abs, parts), default=0.0)
    if largest == 0 or 0.05 <= largest < 1000:
        return 3
    return min(max(3 - math.floor(math.log10(largest)), 0), 20)
