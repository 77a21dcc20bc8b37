"""Predictions of a trained tagger, and its evaluation on tagged sentences."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from gatedjax._utils.limits import MOST_LENGTH
from gatedjax._utils.types import Json
from gatedjax.text.answers._prediction import Failure, chunks
from gatedjax.text.corpus._tagged import Scorer
from gatedjax.text.corpus._tokens import split_words
from gatedjax.text.models._network import TrainedModel
from gatedjax.text.sources._conll import SentenceTable, TaggedRecord
from gatedjax.text.sources._labels import Classes, Label, compose
from gatedjax.text.sources._table import Asides

# Sentences that are read at a time; this bounds the memory.
_CHUNK = 1024


@dataclasses.dataclass(frozen=True, slots=True)
class Tagging:
    """The predicted tags of a sentence.

        >>> tagging = Tagging(("in", "Paris"), ("O", "B-LOC"), (0.75, 0.5))
        >>> tagging.tags
        ('O', 'B-LOC')
        >>> tagging.to_json()
        {'words': ['in', 'Paris'], 'tags': ['O', 'B-LOC'], 'probabilities': [0.75, 0.5]}

    Attributes:
      words: the words of the sentence.
      tags: the most probable tag of each word, as it was written in the training data.
      probabilities: the probability of each of these tags.
    """

    words: tuple[str, ...]
    tags: tuple[Label, ...]
    probabilities: tuple[float, ...]

    def to_json(self) -> Json:
        """Returns the line of `gatedjax predict` as a dict: "words", "tags", "probabilities"."""
        return {
            "words": list(self.words),
            "tags": list(self.tags),
            "probabilities": [round(p, 6) for p in self.probabilities],
        }


def tag_sentences(
    model: TrainedModel, sentences: Iterable[str | Sequence[str]]
) -> Iterator[Tagging | Failure]:
    """Predicts the tags of sentences, a chunk at a time. A sentence beyond `model.max_len` is read
    in windows that overlap by half; each word gets its tag from the window in which it has the most
    words around it.
    """
    for part in chunks(sentences, _CHUNK):
        checked = [_words(sentence) for sentence in part]
        usable = [words for words in checked if not isinstance(words, Failure)]
        # Sentences of similar length share a batch.
        results = iter(word_probabilities(model, usable))
        for words in checked:
            if isinstance(words, Failure):
                yield words
                continue
            probabilities = next(results)
            tags = tuple(model.classes[i] for i in probabilities.argmax(axis=1).tolist())
            yield Tagging(words, tags, tuple(probabilities.max(axis=1).tolist()))


def _words(sentence: str | Sequence[str]) -> tuple[str, ...] | Failure:
    # A word beyond the limit is split off, so that a longer sentence is refused.
    words = split_words(sentence, MOST_LENGTH + 1) if isinstance(sentence, str) else tuple(sentence)
    if not all(isinstance(word, str) for word in words):
        return Failure(f"a sentence must be a text or a list of words, got {sentence!r:.40}")
    if len(words) > MOST_LENGTH:
        return Failure(f"a sentence must have at most {MOST_LENGTH:,} words, got more")
    return words or Failure("the sentence has no word")


def word_probabilities(
    model: TrainedModel, sentences: Sequence[tuple[str, ...]]
) -> list[np.ndarray]:
    """Returns the probabilities of the tags, [n, C], for each sentence of n words."""
    places = [windows(len(words), model.max_len) for words in sentences]
    pieces = [
        # Words are converted to form NFC, because the words in training are.
        (tuple(map(compose, words[begin:end])),)
        for words, spans in zip(sentences, places, strict=True)
        for begin, end, _, _ in spans
    ]
    outputs = iter(model.read_tokens(pieces))
    return [
        np.concatenate(
            [next(outputs).probabilities[a - begin : b - begin] for begin, _, a, b in spans]
        )
        for spans in places
    ]


def windows(length: int, size: int) -> list[tuple[int, int, int, int]]:
    """Splits a sentence into windows that overlap by half: for each (begin, end, first, last), with
    the words [begin, end), from which the tags of the words [first, last) are taken.

        >>> windows(6, 4)
        [(0, 4, 0, 3), (2, 6, 3, 6)]
    """
    last = max(length - size, 0)
    begins = [*range(0, last, max(size // 2, 1)), last]
    # Each cut is in the middle of the words that two windows share.
    middles = [(start + size + after) // 2 for start, after in itertools.pairwise(begins)]
    cuts = itertools.pairwise([0, *middles, length])
    return [
        (begin, min(begin + size, length), *cut) for begin, cut in zip(begins, cuts, strict=True)
    ]


def evaluate_tags(model: TrainedModel, table: SentenceTable, *, max_aside: float = 1.0) -> Json:
    """Evaluates a tagger on tagged sentences."""
    classes = Classes("tag", model.classes)
    scorer = Scorer(model.classes)
    asides = Asides(table.name, "sentences")
    for chunk in chunks(table, _CHUNK):
        records: list[TaggedRecord] = list(asides.sift(chunk))
        gold = [
            [classes.place(tag, sentence.where, sentence.line) for tag in sentence.tags]
            for sentence in records
        ]
        results = word_probabilities(model, [record.words for record in records])
        for record, places, probabilities in zip(records, gold, results, strict=True):
            unknown = np.array([word not in model.vocabulary for word in record.words])
            scorer.add(np.array(places), probabilities, unknown)
    asides.check(scorer.sentences, max_aside)
    return {**scorer.metrics(), "aside": asides.count}
