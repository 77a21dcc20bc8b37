"""Tagged sentences: as numbers, what a simple rule makes of them, what predictions are worth."""

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
    """Reads tagged sentences in one pass; their numbers lie in two files of the folder.

    Args:
      table: iterable of `TaggedRecord` and `Aside`, with a name.
      folder: where the numbers are written.
      part: name of the files.
      numbers: of the words.
      longest: a sentence of more words becomes several.
      classes: the tags that there may be; None takes those of the file.
      max_aside: the largest share of the sentences that may be set aside.

    Raises:
      ValueError: if no sentence can be used, or too few, more than half of the tags are distinct,
        or one is not in `classes`.
    """
    words, tags = (Spool(folder / f"{part}-{what}.ids") for what in ("words", "tags"))
    numbered = Classes("tag", classes)
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
            places = [numbered.place(tag, record.where, record.line) for tag in record.tags]
            _check_tags(table.name, len(numbered.places), len(tags) + len(places), least=2000)
            for begin in range(0, len(ids), longest):
                words.add(ids[begin : begin + longest])
                tags.add(places[begin : begin + longest])
                lines.append(record.line)
    if not lines:
        raise asides.nothing(f"{table.name} has no tagged sentence")
    asides.check(sentences, max_aside)
    if classes is None:
        _check_tags(table.name, len(numbered.places), len(tags))
    names, order = _corpus.ordered(numbered.places, classes)
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
            f"{name}: {distinct:,} of the tags of {words:,} words are distinct, so they are no "
            "tags: name the columns of the words and of the tags (--word N --tag N, from 0)"
        )


class Sentences(NamedTuple):
    """Rows of ids, and of the places of tags, of the same lengths."""

    words: Sequence[np.ndarray]
    tags: Sequence[np.ndarray]


class TagRule:
    """The most frequent tag of each word, and for unknown words the most frequent one of all.

    Args:
      sentences: to count in.
      words: how many ids there are.
      tags: how many tags there are.
    """

    def __init__(self, sentences: Sentences, words: int, tags: int) -> None:
        ids = np.concatenate(list(sentences.words)).astype(np.int64)
        places = np.concatenate(list(sentences.tags))
        pairs, counts = np.unique(ids * tags + places, return_counts=True)
        # of each word the pair that occurs most often comes first, and of equal ones the first tag
        pairs = pairs[np.lexsort((pairs, -counts, pairs // tags))]
        seen, first = np.unique(pairs // tags, return_index=True)
        self._best = np.full(words, np.bincount(places).argmax(), np.int64)
        self._best[seen] = pairs[first] % tags
        self._sure = np.eye(tags)

    def probabilities(self, ids: np.ndarray) -> np.ndarray:
        """[n, C]: 1 at the tag of each word."""
        return self._sure[self._best[ids]]


def is_bio(tags: Iterable[Label]) -> bool:
    """Whether tags mark spans: O, B-X and I-X."""
    names = set(map(str, tags)) - {"O"}
    return bool(names) and all(name[:2] in ("B-", "I-") and len(name) > 2 for name in names)


class Scorer:
    """Collects what predictions are worth, a sentence at a time; holds a few numbers of each word.

    Args:
      tags: as they are called.
    """

    def __init__(self, tags: Sequence[Label]) -> None:
        self._tags = tuple(tags)
        self._spans = np.zeros(3, np.int64) if is_bio(tags) else None
        self._columns = [array.array(kind) for kind in ("i", "i", "f", "f", "f", "b")]
        self.sentences = 0

    def add(self, gold: np.ndarray, probabilities: np.ndarray, unknown: np.ndarray) -> None:
        """One sentence: places of its tags [n], [n, C], and which of its words are unknown [n]."""
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
            true, ours = ({*chunks([str(self._tags[i]) for i in one])} for one in (gold, best))
            self._spans += (len(true & ours), len(ours), len(true))

    def metrics(self) -> Json:
        """What `classification_metrics` says of words, and "sentences", "unknown", "spans".

        "unknown" is {n, accuracy} of the words that the vocabulary does not have. "spans" is
        {precision, recall, f1, n} of spans that are right from end to end, None if the tags are not
        O, B-X and I-X; an I-X that goes on no X begins one, as in conlleval.
        """
        gold, best, truth, top, squares, strange = map(np.array, self._columns)
        found = metrics_of(gold, best, truth, top, squares, self._tags)
        right = (gold == best)[strange > 0]
        unknown = {"n": len(right), "accuracy": float(right.mean()) if len(right) else None}
        return {**found, "sentences": self.sentences, "unknown": unknown, "spans": self._f1()}

    def _f1(self) -> Json | None:
        if self._spans is None:
            return None
        matched, ours, true = self._spans.tolist()
        scores = [2 * matched / max(ours + true, 1), matched / max(ours, 1), matched / max(true, 1)]
        return dict(zip(("f1", "precision", "recall", "n"), (*scores, true), strict=True))


def said(metrics: Json) -> str:
    """Word accuracy, and the F1 of spans where there are any."""
    spans = metrics["spans"]
    return f"{metrics['accuracy']:.4f}" + (f" (span F1 {spans['f1']:.4f})" if spans else "")


def rule_metrics(rule: TagRule, sentences: Sentences, tags: Sequence[Label]) -> Json:
    """What the rule is worth on sentences."""
    scorer = Scorer(tags)
    for ids, gold in zip(*sentences, strict=True):
        scorer.add(gold, rule.probabilities(ids), np.zeros(len(ids), bool))
    return scorer.metrics()


def model_metrics(
    read: Iterable[tuple[int, np.ndarray]],
    sentences: Sentences,
    tags: Sequence[Label],
    unknown: np.ndarray,
) -> Json:
    """What a model is worth that gave probabilities [n, C] for sentences, by their numbers.

    `unknown` says which ids stand for words that its vocabulary does not have.
    """
    scorer = Scorer(tags)
    for number, probabilities in read:
        ids = sentences.words[number]
        scorer.add(sentences.tags[number], probabilities[: len(ids)], unknown[ids])
    return scorer.metrics()
