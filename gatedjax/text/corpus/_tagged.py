"""Tagged sentences: their numbers, the baseline rule, and the metrics of predictions."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.analysis._scores import chunks
from gatedjax.text.corpus._corpus import Corpus, Numbers, Rows, check_classes, order_classes
from gatedjax.text.sources._labels import Classes, Label
from gatedjax.text.sources._table import Asides
from gatedjax.text.targets._class import measure_predicted

RULE = "the most frequent tag of each word"


def read_tagged(
    table: Any,
    numbers: Numbers,
    *,
    longest: int,
    places: Classes | None = None,
    max_aside: float = 1.0,
) -> Corpus:
    """Reads tagged sentences as numbers, split after `longest` words."""
    rows: list[tuple[np.ndarray, np.ndarray]] = []
    lines: list[int] = []
    tags = Classes("tag") if places is None else places
    asides = Asides(table.name, "sentences")
    sentences = total = 0
    for record in asides.sift(table):
        sentences += 1
        total += len(record.words)
        ids = numbers.of(record.words)
        row = np.array([tags.place(tag, record.where, record.line) for tag in record.tags])
        # Checked early, so that a column of words is not stored as a million tags.
        check_classes(table.name, tags.places, total, most=2000, noun="tags")
        # A long sentence is split and not cut, so that the network learns from all of its words.
        for begin in range(0, len(ids), longest):
            rows.append((ids[begin : begin + longest], row[begin : begin + longest]))
            lines.append(record.line)
    asides.check(sentences, max_aside)
    if tags.is_new:
        check_classes(table.name, tags.places, total, most=0, noun="tags")
    names, order = order_classes(tags.places, is_sorted=tags.is_new)
    words, labels = map(Rows.join, zip(*rows, strict=True))
    return Corpus(table.name, (words,), labels.renumber(order), np.array(lines), names, asides)


def find_usual_tags(words: Rows, tags: Rows, num_words: int, num_tags: int) -> np.ndarray:
    """Returns the most frequent tag of each word, int [num_words], which is a baseline; a word
    that does not occur has the most frequent of all tags.
    """
    pairs, counts = np.unique(
        words.flat.astype(np.int64) * num_tags + tags.flat, return_counts=True
    )
    usual = np.full(num_words, np.bincount(tags.flat).argmax())
    # For each word the most frequent pair comes last; among equal counts the first tag.
    pairs = pairs[np.lexsort((-pairs, counts))]
    usual[pairs // num_tags] = pairs % num_tags
    return usual


def is_bio(tags: Iterable[Label]) -> bool:
    """Returns True if the tags mark spans, that is, if all of them are O, B-X or I-X."""
    names = set(map(str, tags)) - {"O"}
    return bool(names) and all(name[:2] in ("B-", "I-") and len(name) > 2 for name in names)


class Scorer:
    """An accumulator of metrics, sentence by sentence, with a few numbers per word in memory."""

    def __init__(self, tags: Sequence[Label]) -> None:
        self._tags = tuple(tags)
        self._spans = np.zeros(3, np.int64) if is_bio(tags) else None
        self._rows: list[np.ndarray] = []

    @property
    def sentences(self) -> int:
        """The number of sentences so far."""
        return len(self._rows)

    def add(self, gold: np.ndarray, probabilities: np.ndarray, unknown: np.ndarray) -> None:
        """Adds a sentence of n words, with C possible tags."""
        best = probabilities.argmax(axis=1)
        truth = probabilities[np.arange(len(gold)), gold]
        squares = np.square(probabilities).sum(axis=1)
        values = (gold, best, truth, probabilities.max(axis=1), squares, unknown)
        self._rows.append(np.stack(values).astype(np.float32))
        if self._spans is not None:
            true, ours = ({*chunks([str(self._tags[i]) for i in row])} for row in (gold, best))
            # Spans are counted per sentence, because only then their positions are unique.
            self._spans += (len(true & ours), len(ours), len(true))

    def metrics(self) -> Json:
        """Returns the metrics of all sentences: `measure_predicted` of words, "sentences",
        "unknown" (of unknown words), and "spans", which count if both ends are right; None if the
        tags mark no spans. An I-X that does not continue a span X begins a span, as in conlleval.
        """
        gold, best, truth, top, squares, unknown = np.concatenate(self._rows, axis=1)
        gold, best = gold.astype(np.int32), best.astype(np.int32)
        right = (gold == best)[unknown > 0]
        spans = None
        if self._spans is not None:
            matched, ours, true = self._spans.tolist()
            spans = {
                "f1": 2 * matched / max(ours + true, 1),
                "precision": matched / max(ours, 1),
                "recall": matched / max(true, 1),
                "n": true,
            }
        return {
            **measure_predicted(gold, best, truth, top, squares, self._tags),
            "sentences": self.sentences,
            "unknown": {"n": len(right), "accuracy": float(right.mean()) if len(right) else None},
            "spans": spans,
        }


def render_score(metrics: Json) -> str:
    """Formats the word accuracy and, if the tags mark spans, their F1: "0.95 (span F1 0.80)"."""
    spans = metrics["spans"]
    return f"{metrics['accuracy']:.4f}" + (f" (span F1 {spans['f1']:.4f})" if spans else "")
