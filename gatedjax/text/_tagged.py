"""Tagged sentences: their numbers, the baseline rule, and the metrics of predictions."""

import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.analysis._chunks import chunks
from gatedjax.text import _corpus
from gatedjax.text._asides import Asides
from gatedjax.text._corpus import Corpus, Numbers, Spool
from gatedjax.text._labels import Classes
from gatedjax.text._metrics import metrics_of
from gatedjax.text._read import Aside, Label

RULE = "the most frequent tag of each word"


def read_tagged(
    table: Any,
    folder: Path,
    part: str,
    numbers: Numbers,
    *,
    longest: int,
    classes: Sequence[Label] | None = None,
    max_aside: float = 1.0,
) -> Corpus:
    """Reads tagged sentences in one pass, and writes their numbers to two files. A sentence with
    more than `longest` words is split into several.
    """
    words, tags = (Spool(folder / f"{part}-{kind}.ids") for kind in ("words", "tags"))
    table_of_classes = Classes("tag", classes)
    lines = array.array("q")
    sentences = 0
    asides = Asides(table.name, "sentences")
    with words, tags:
        for record in table:
            if isinstance(record, Aside):
                asides.add(record)
                continue
            sentences += 1
            ids = numbers.of(record.words)
            places = [table_of_classes.place(tag, record.where, record.line) for tag in record.tags]
            # Checked early, so that a column of words is not stored as a million tags.
            _check_tags(
                table.name, len(table_of_classes.places), len(tags) + len(places), least=2000
            )
            # A long sentence is split and not cut, so that the network learns from all of its
            # words.
            for begin in range(0, len(ids), longest):
                words.add(ids[begin : begin + longest])
                tags.add(places[begin : begin + longest])
                lines.append(record.line)
    if not lines:
        raise asides.make_empty_error("a tagged sentence")
    asides.check(sentences, max_aside)
    if classes is None:
        _check_tags(table.name, len(table_of_classes.places), len(tags))
    names, order = _corpus.order_classes(table_of_classes.places, classes)
    return Corpus(
        table.name,
        (words.rows(),),
        tags.rows(order),
        np.frombuffer(lines, np.int64),
        names,
        asides.count,
        tuple(asides.first),
    )


def _check_tags(name: str, distinct: int, words: int, *, least: int = 0) -> None:
    if distinct > least and distinct > words / 2:
        raise ValueError(
            f"{name}: tags must occur more than once, got {distinct:,} different tags of "
            f"{words:,} words: name the columns of the words and of the tags (--word N --tag N, "
            "from 0)"
        )


class Sentences(NamedTuple):
    """Sentences as rows of ids, and rows of tags with the same lengths."""

    words: Sequence[np.ndarray]  # for each sentence int [n], ids of its words
    tags: Sequence[np.ndarray]  # for each sentence int [n], positions of its tags


class TagRule:
    """A baseline that gives each word its most frequent tag in the training sentences, and an
    unseen word the most frequent tag of all words.

        >>> sentences = Sentences([np.array([2, 3])], [np.array([1, 0])])
        >>> print(TagRule(sentences, words=4, tags=2).probabilities(np.array([2, 3])))
        [[0. 1.]
         [1. 0.]]
    """

    def __init__(self, sentences: Sentences, words: int, tags: int) -> None:
        ids = np.concatenate(list(sentences.words)).astype(np.int64)
        places = np.concatenate(list(sentences.tags))
        pairs, counts = np.unique(ids * tags + places, return_counts=True)
        # For each word the most frequent pair comes first; among equal counts the first tag.
        pairs = pairs[np.lexsort((pairs, -counts, pairs // tags))]
        seen, first = np.unique(pairs // tags, return_index=True)
        # Words that the training sentences lack get the most frequent tag.
        self._best = np.full(words, np.bincount(places).argmax(), np.int64)
        self._best[seen] = pairs[first] % tags
        self._sure = np.eye(tags)

    def probabilities(self, ids: np.ndarray) -> np.ndarray:
        """Returns float64 [n, C] for n words and C tags: 1 at the tag of each word, else 0."""
        return self._sure[self._best[ids]]


def is_bio(tags: Iterable[Label]) -> bool:
    """Returns True if the tags mark spans, that is, if all of them are O, B-X or I-X."""
    names = set(map(str, tags)) - {"O"}
    return bool(names) and all(name[:2] in ("B-", "I-") and len(name) > 2 for name in names)


class Scorer:
    """An accumulator of metrics, sentence by sentence, with a few numbers per word in memory."""

    def __init__(self, tags: Sequence[Label]) -> None:
        self._tags = tuple(tags)
        self._spans = np.zeros(3, np.int64) if is_bio(tags) else None
        # Arrays take 4 bytes for a number, and lists of Python numbers several times as much.
        self._columns = [array.array(kind) for kind in ("i", "i", "f", "f", "f", "b")]
        self.sentences = 0

    def add(self, gold: np.ndarray, probabilities: np.ndarray, unknown: np.ndarray) -> None:
        """Adds a sentence of n words, with C possible tags."""
        best = probabilities.argmax(axis=1)
        values = (
            gold,
            best,
            probabilities[np.arange(len(gold)), gold],
            probabilities.max(axis=1),
            np.square(probabilities).sum(axis=1),
            unknown,
        )
        for column, value in zip(self._columns, values, strict=True):
            column.extend(value.tolist())
        self.sentences += 1
        if self._spans is not None:
            true, ours = (
                {*chunks([str(self._tags[i]) for i in places])} for places in (gold, best)
            )
            # Spans are counted per sentence, because only then their positions are unique.
            self._spans += (len(true & ours), len(ours), len(true))

    def metrics(self) -> Json:
        """Returns the metrics of all sentences: `classification_metrics` of words, "sentences",
        "unknown" (of unknown words), and "spans", which count if both ends are right; None if the
        tags mark no spans. An I-X that does not continue a span X begins a span, as in conlleval.
        """
        gold, best, truth, top, squares, is_unknown = map(np.array, self._columns)
        metrics = metrics_of(gold, best, truth, top, squares, self._tags)
        right = (gold == best)[is_unknown > 0]
        unknown = {"n": len(right), "accuracy": float(right.mean()) if len(right) else None}
        return {**metrics, "sentences": self.sentences, "unknown": unknown, "spans": self._f1()}

    def _f1(self) -> Json | None:
        if self._spans is None:
            return None
        matched, ours, true = self._spans.tolist()
        scores = [2 * matched / max(ours + true, 1), matched / max(ours, 1), matched / max(true, 1)]
        return dict(zip(("f1", "precision", "recall", "n"), (*scores, true), strict=True))


def render_score(metrics: Json) -> str:
    """Formats the word accuracy, and the F1 of spans if the tags mark spans, such as "0.9512 (span
    F1 0.8040)".
    """
    spans = metrics["spans"]
    return f"{metrics['accuracy']:.4f}" + (f" (span F1 {spans['f1']:.4f})" if spans else "")


def rule_metrics(rule: TagRule, sentences: Sentences, tags: Sequence[Label]) -> Json:
    """Computes `Scorer.metrics` of a tag rule on sentences."""
    scorer = Scorer(tags)
    for ids, gold in zip(*sentences, strict=True):
        scorer.add(gold, rule.probabilities(ids), np.zeros(len(ids), bool))
    return scorer.metrics()


def model_metrics(
    outputs: Iterable[tuple[int, np.ndarray]],
    sentences: Sentences,
    tags: Sequence[Label],
    unknown: np.ndarray,
) -> Json:
    """Computes `Scorer.metrics` of a tagger from pairs (number of a sentence, probabilities [n,
    C]). `unknown` is True at the ids of the vocabulary that stand for unknown words.
    """
    scorer = Scorer(tags)
    for number, probabilities in outputs:
        ids = sentences.words[number]
        scorer.add(sentences.tags[number], probabilities[: len(ids)], unknown[ids])
    return scorer.metrics()
