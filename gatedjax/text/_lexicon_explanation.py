"""Explanations of a lexicon: the parts of the words of a text, and its open words by class."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np

from gatedjax._utils.terminal import clean
from gatedjax._utils.types import Json
from gatedjax.analysis._text import render_table
from gatedjax.lexicon import Readings, Shares
from gatedjax.lexicon._spelling import is_spaceless
from gatedjax.text._lexicon import AnyPrediction, LexiconModel
from gatedjax.text._prediction import TARGETS, Failure
from gatedjax.text._show import Explanation, Reasons, explain_open_words
from gatedjax.text._table import Label
from gatedjax.text._target_show import TargetExplanation

# Words of a class in a list for the terminal; words with extracts, in the folder of the model;
# tokens on each side of a word in an extract, and its characters.
_SHOWN = 20
_MOST_COLUMNS = 4
_MOST_WITH_EXAMPLES = 1000
_NEIGHBOURS, _LONGEST_EXTRACT = 5, 120


def explain_with_lexicon(model: LexiconModel, text: str) -> Explanation | TargetExplanation:
    """Explains the prediction of a lexicon for a text."""
    words = model.split(text)
    reading, shares, columns, reasons = read_with_reasons(model, words)
    probabilities, is_open = reading.probabilities[0], reading.is_open[0]
    unknown = tuple(map(bool, ~reading.is_known[0]))
    if model.kind in TARGETS:
        return TargetExplanation(
            text=text,
            tokens=tuple(words),
            prediction=model.predict_read(words, reading),
            headline=model.target.render_prediction(reading, 0),
            rule=reasons.rule,
            kept=tuple(map(bool, is_open)),
            unknown=unknown,
            columns=columns,
            ranked=tuple(_rank_reasons(model, words, reading, shares)),
            reasons=reasons,
        )
    best = columns[0]
    removed = model.lexicon.read([[*words[:i], *words[i + 1 :]] for i in range(len(words))])
    places = map(int, model.target.decide(removed))
    return explain_open_words(
        *(text, words, model.classes, probabilities, is_open, best),
        zip(places, removed.probabilities, strict=True),
        reasons,
        unknown,
    )


class ReasonedReading(NamedTuple):
    """The output of a lexicon for a text, with the parts of its words."""

    reading: Readings  # of this text only
    shares: Shares  # the parts of the words and pairs in the C logits
    columns: tuple[int, ...]  # positions of the logits in the order of `Target.rank_columns`
    reasons: Reasons


def read_with_reasons(model: LexiconModel, words: Sequence[str]) -> ReasonedReading:
    """Computes the prediction of a lexicon for a text, and the parts of its words."""
    lexicon = model.lexicon
    reading, shares = lexicon.read([words]), lexicon.share(words)
    # The open words are split again, because a reader checks the claim by typing them as a text.
    remaining = model.splitter.split_again(compress(words, reading.is_open[0].tolist()))
    again = lexicon.read([remaining])
    reasons = Reasons(
        classes=model.target.columns,
        bias=tuple(map(float, shares.bias)),
        words=tuple(tuple(map(float, row)) for row in shares.words),
        pairs=tuple(
            (int(first), int(second), tuple(map(float, row)))
            for (first, second), row in zip(shares.places, shares.pairs, strict=True)
        ),
        is_same=bool(
            (reading.probabilities[0] == again.probabilities[0]).all()
            and (reading.logits == again.logits).all()
        ),
        note=reading.notes[0],
        rule=(
            lexicon.head.prior_rule
            if reading.is_prior[0]
            else model.target.render_rule(lexicon.bias.astype(np.float64) / lexicon.temperature)
        ),
    )
    columns = tuple(model.target.rank_columns(reading, 0))
    return ReasonedReading(reading, shares, columns, reasons)


def _rank_reasons(
    model: LexiconModel, words: Sequence[str], reading: Readings, shares: Shares
) -> list[tuple[str, tuple[float, ...]]]:
    """Returns (words, parts) of the open words and pairs of a text, the largest effects first."""
    places = np.flatnonzero(reading.is_open[0]).tolist()
    items = [(words[place], shares.words[place]) for place in places]
    items += [
        (f"{words[first]} {words[second]}", parts)
        for (first, second), parts in zip(shares.places.tolist(), shares.pairs, strict=True)
    ]
    columns = model.target.rank_columns(reading, 0)[:_MOST_COLUMNS]
    items.sort(key=lambda item: -model.target.measure_effect(item[1], columns))
    return [(name, tuple(map(float, parts))) for name, parts in items]


@dataclasses.dataclass(frozen=True, slots=True)
class ReasonedPrediction:
    """A prediction of a lexicon with the parts of its open words and pairs."""

    prediction: AnyPrediction
    classes: tuple[Label, ...]  # in the order of the parts
    reasons: tuple[tuple[str, tuple[float, ...]], ...]  # (words, parts), the largest effects first
    bias: tuple[float, ...]  # with the parts these numbers sum to the logits

    def to_json(self) -> Json:
        """Returns the line of `gatedjax predict --reasons`: a dict for `json.dumps`."""
        reasons = [
            {"words": words, "parts": [round(part, 6) for part in parts]}
            for words, parts in self.reasons
        ]
        return {
            **self.prediction.to_json(),
            "classes": list(self.classes),
            "bias": [round(number, 6) for number in self.bias],
            "reasons": reasons,
        }


def predict_with_reasons(
    model: LexiconModel, examples: Iterable[Sequence[str]]
) -> Iterator[ReasonedPrediction | Failure]:
    """Yields the prediction for each example with its reasons, or a `Failure`."""
    for output in model.read_texts(examples):
        if isinstance(output, Failure):
            yield output
            continue
        words, reading = output
        shares = model.lexicon.share(words)
        reasons = tuple(_rank_reasons(model, words, reading, shares))
        prediction = model.predict_read(words, reading)
        bias = tuple(map(float, shares.bias))
        yield ReasonedPrediction(prediction, model.target.columns, reasons, bias)


def list_open_words(model: LexiconModel, most: int = _SHOWN) -> Json:
    """Lists the open words by the class for which they count most, by weight and root of count."""
    lexicon = model.lexicon
    labels, weights = model.target.group_words(lexicon.word_shares())
    is_open = lexicon.is_open[: len(lexicon.counts)]
    # The weights of a label or a number are not centred, and a word may count for no label.
    counts_for = (weights.argmax(1)[:, None] == np.arange(len(labels))) & (
        (weights > 0) | (model.kind == "text")
    )
    order = np.argsort(-weights.max(1, initial=0.0) * np.sqrt(lexicon.counts), kind="stable")
    classes = []
    for number, label in enumerate(labels):
        places = [i for i in order.tolist() if is_open[i] and counts_for[i, number]]
        words = [
            {
                "word": lexicon.words[i],
                "count": int(lexicon.counts[i]),
                "weight": round(float(weights[i, number]), 4),
                "examples": list(model.examples.get(lexicon.words[i], ())),
            }
            for i in places[:most]
        ]
        classes.append({"label": label, "open": len(places), "words": words})
    return {"density": lexicon.density, "open": int(is_open.sum()), "classes": classes}


def find_examples(
    listing: Json, texts: Sequence[Sequence[str]], labels: Sequence[Label | frozenset[Label]]
) -> dict[str, list[str]]:
    """Finds extracts from the two shortest texts of the class of each listed word that have it."""
    most = max(_MOST_WITH_EXAMPLES // max(len(listing["classes"]), 1), 1)
    class_of = {
        word["word"]: entry["label"]
        for entry in listing["classes"]
        for word in entry["words"][:most]
    }
    examples: dict[str, list[str]] = {word: [] for word in class_of}
    # The shortest texts come first. Equals stay in the order of the file.
    for row in sorted(range(len(texts)), key=lambda row: len(texts[row])):
        words = texts[row]
        # The first place of a word is inserted last.
        for word, place in {words[i]: i for i in reversed(range(len(words)))}.items():
            extracts = examples.get(word)
            if extracts is None or len(extracts) == 2 or not _has(labels[row], class_of[word]):
                continue
            extract = _extract(words, place)
            if extract != word and extract not in extracts:
                extracts.append(extract)
    return {word: extracts for word, extracts in examples.items() if extracts}


def _has(labels: Label | frozenset[Label], label: Label) -> bool:
    return label in labels if isinstance(labels, frozenset) else label == labels


def _extract(words: Sequence[str], place: int) -> str:
    part = words[max(place - _NEIGHBOURS, 0) : place + _NEIGHBOURS + 1]
    extract = part[0]
    for before, word in itertools.pairwise(part):
        extract += word if is_spaceless(before) and is_spaceless(word) else f" {word}"
    return extract[:_LONGEST_EXTRACT]


def render_open_words(listing: Json) -> str:
    """Formats the dict of `list_open_words` for a terminal, as a text of several lines."""
    lines = [
        f"{listing['open']:,} words are open, which are {listing['density']:.0%} of the words of "
        "the training texts. A text without one of them is not read, and gets the frequencies of "
        "the training texts."
    ]
    for entry in listing["classes"]:
        rows: Sequence[Sequence[object]] = [
            (
                clean(word["word"]),
                word["count"],
                f"{word['weight']:+.3f}",
                clean(" / ".join(word["examples"])).replace("|", "\\|"),
            )
            for word in entry["words"]
        ]
        lines += ["", f"{clean(str(entry['label']))}: {entry['open']:,} words"]
        lines.append(render_table(("word", "count", "weight", "examples"), rows).rstrip())
    return "\n".join(lines)
