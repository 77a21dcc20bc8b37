"""The words that a lexicon or a linear model reads, by class, with counts, weights and extracts."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gatedjax._utils.terminal import clean, measure_width, wrap
from gatedjax._utils.types import Json
from gatedjax.analysis._text import render_table
from gatedjax.lexicon._spelling import is_spaceless
from gatedjax.text.sources._labels import Label

# Largest number of words of a class in a terminal, of words with extracts in a model's folder, of
# tokens on each side of a word in an extract, and of characters of an extract.
_SHOWN = 20
_MOST_WITH_EXAMPLES = 1000
_NEIGHBOURS, _LONGEST_EXTRACT = 5, 120


class WordWeight(NamedTuple):
    """A word that a lexicon reads, with its weight in the class for which it counts most.

    `model.words_` of a `TextClassifier` is a list of them, which `pandas.DataFrame` takes:

        >>> WordWeight("dull", "bad", 0.5, 12)._asdict()
        {'word': 'dull', 'label': 'bad', 'weight': 0.5, 'count': 12}

    Attributes:
      word: the word.
      label: the class or label in which the weight of the word is largest; for a number or a grade
        "lower" or "higher".
      weight: the weight of the word with its character n-grams in the score of this class. A word
        that speaks against each of several labels has a negative weight.
      count: how often the word occurs in the training texts.
    """

    word: str
    label: Label
    weight: float
    count: int  # type: ignore[assignment]


def weigh_words(model: Any) -> tuple[tuple[Label, ...], list[WordWeight]]:
    """Returns the classes, and the words that a lexicon reads, by weight and root of count."""
    lexicon = model.lexicon
    labels, weights = model.target.group_words(lexicon.word_parts())
    counts, largest = lexicon.counts, weights.max(1, initial=0.0)
    order = np.argsort(-largest * np.sqrt(counts), kind="stable")
    groups = weights.argmax(1).tolist()
    return labels, [
        WordWeight(
            lexicon.words[i], labels[groups[i]], float(weights[i, groups[i]]), int(counts[i])
        )
        for i in order.tolist()
        if lexicon.is_read[i]
    ]


def list_words_read(model: Any) -> Json:
    """Lists the words read by the class for which they count most, by weight and root of count."""
    labels, words = weigh_words(model)
    listed: dict[Label, list[WordWeight]] = {label: [] for label in labels}
    for word in words:
        # The weights of a label or a number are not centred, and a word may count for no label.
        if word.weight > 0 or model.kind == "text":
            listed[word.label].append(word)
    classes = [
        {
            "label": label,
            "read": len(group),
            "words": [
                {
                    "word": word.word,
                    "count": word.count,
                    "weight": round(word.weight, 4),
                    "examples": list(model.examples.get(word.word, ())),
                }
                for word in group[:_SHOWN]
            ],
        }
        for label, group in listed.items()
    ]
    return {"share": model.lexicon.share, "read": len(words), "classes": classes}


def find_examples(
    listing: Json, texts: Sequence[Sequence[str]], groups: Sequence[frozenset[Label]]
) -> dict[str, list[str]]:
    """Finds extracts with each listed word, from the two shortest such texts of its class."""
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
        # The places are reversed, so that the first place of a word replaces the later places.
        for word, place in {words[i]: i for i in reversed(range(len(words)))}.items():
            extracts = examples.get(word)
            if extracts is None or len(extracts) == 2 or class_of[word] not in groups[row]:
                continue
            extract = _extract(words, place)
            if extract != word and extract not in extracts:
                extracts.append(extract)
    return {word: extracts for word, extracts in examples.items() if extracts}


def _extract(words: Sequence[str], place: int) -> str:
    part = words[max(place - _NEIGHBOURS, 0) : place + _NEIGHBOURS + 1]
    extract = part[0]
    for before, word in itertools.pairwise(part):
        extract += word if is_spaceless(before) and is_spaceless(word) else f" {word}"
    return extract[:_LONGEST_EXTRACT]


def render_words_read(listing: Json, *, reads_all: bool = False) -> str:
    """Formats the dict of `list_words_read` for a terminal. A linear model reads all words."""
    most, count = measure_width(), f"{listing['read']:,}"
    lines = [
        f"{count} words are read, which are {listing['share']:.0%} of the words of the training "
        "texts. A text without one of them is not read, and gets the frequencies of the training "
        "texts."
    ]
    if reads_all:
        lines = [f"All words are read; {count} are in the training texts. Letters count, too."]
    for entry in listing["classes"]:
        rows: Sequence[Sequence[object]] = [
            (
                clean(word["word"]),
                word["count"],
                f"{word['weight']:+.3f}",
                clean(" / ".join(word["examples"])),
            )
            for word in entry["words"]
        ]
        lines += ["", f"{clean(str(entry['label']))}: {entry['read']:,} words read"]
        table = render_table(("word", "count", "weight", "examples"), rows, width=most)
        lines.append(table.rstrip())
    return wrap("\n".join(lines))
