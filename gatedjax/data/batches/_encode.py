"""Encoding of texts and cloze questions as columns: ids, lengths, labels, places of candidates."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from gatedjax.data.files._source import Example, Source, SourceInfo
from gatedjax.data.sets._cloze import PLACEHOLDER
from gatedjax.data.text._vocabulary import SPECIALS, UNK, Vocabulary

T = TypeVar("T")


PER_TOKEN = ("decides", "is_predicate", "labels", "tags")
"""Fields with a value per token; they cannot be told by length, so they are listed here."""


@dataclasses.dataclass(frozen=True, eq=False)
class Encoded:
    """The n texts of a source as ids, in the order of the source. Each text has at least one token.

    Attributes:
      ids: int32 ids of each text (views into a common array).
      lengths: int32 [n], the number of tokens of each text.
      labels: int32 [n], the class of each text.
      example_ids: int32 [n], the id of each example in the source.
      starts: int64 [n]: the number of tokens that were truncated on the left.
      source: the examples that were encoded.
    """

    ids: list[np.ndarray]
    lengths: np.ndarray
    labels: np.ndarray
    example_ids: np.ndarray
    starts: np.ndarray
    source: Source

    @property
    def info(self) -> SourceInfo:
        """The name, split and classes of the source."""
        return self.source.info

    def __len__(self) -> int:
        return len(self.ids)

    def _window(self, index: int, values: Sequence[T]) -> tuple[T, ...]:
        start = int(self.starts[index])
        return tuple(values[start : start + int(self.lengths[index])])

    def tokens(self, index: int) -> tuple[str, ...]:
        """Returns the original words of the text at position `index`, truncated like its ids.

        A text without words has the single word `<unk>`.
        """
        words = self.source[index]["tokens"]
        return self._window(index, words) if words else (SPECIALS[UNK],)

    def extra(self, index: int, name: str) -> Any:
        """Returns the field `name` of the example at position `index` of the source.

        The fields with a value per token, "decides", "is_predicate", "labels" and "tags", are
        truncated like the ids. Raises KeyError for a field that the example does not have.
        """
        example = self.source[index]
        if name not in example:
            raise KeyError(
                f"name must be a field of the examples of {self.info.name} ({sorted(example)}), "
                f"got {name!r}"
            )
        value = example[name]
        return self._window(index, value) if name in PER_TOKEN else value


def encode(
    source: Source,
    vocabulary: Vocabulary,
    *,
    max_len: int | None = None,
    truncate_side: str = "right",
) -> Encoded:
    """Encodes the tokens of a source as ids.

        >>> from gatedjax.data import load
        >>> source = load("polarity", "test")
        >>> encoded = encode(source, Vocabulary.build([source]), max_len=5)
        >>> len(encoded), int(encoded.lengths.max())
        (1000, 5)

    Args:
      source: examples with "tokens", "label" and "example_id".
      vocabulary: maps tokens to ids.
      max_len: keep at most this many tokens; None keeps all.
      truncate_side: the end at which longer texts are truncated, "right" or "left".

    Returns:
      The texts as ids, in the order of the source. A text without tokens becomes a single unknown
      word.

    Raises:
      ValueError: for max_len < 1, another truncate_side, or a label outside the classes.
    """
    if max_len is not None and max_len < 1:
        raise ValueError(f"max_len must be at least 1, got {max_len}")
    if truncate_side not in ("right", "left"):
        raise ValueError(f"truncate_side must be 'right' or 'left', got {truncate_side!r}")
    n, classes = len(source), len(source.info.class_names)
    labels, example_ids = np.empty(n, np.int32), np.empty(n, np.int32)
    lengths, starts = np.empty(n, np.int32), np.zeros(n, np.int64)
    pieces = []
    for i, example in enumerate(source):
        # JAX does not report an index outside an array, so that a wrong label would be trained on.
        if not 0 <= example["label"] < classes:
            raise ValueError(
                f"label of example {example['example_id']} must be in [0, {classes}), got "
                f"{example['label']}"
            )
        words = example["tokens"]
        if max_len is not None and len(words) > max_len:
            # The start is stored, so that values per token can be truncated in the same way later.
            starts[i] = len(words) - max_len if truncate_side == "left" else 0
            words = words[starts[i] : starts[i] + max_len]
        piece = vocabulary.encode(words) or [UNK]
        pieces.append(np.array(piece, np.int32))
        lengths[i], labels[i], example_ids[i] = len(piece), example["label"], example["example_id"]
    # The texts become views into a single array, which takes less memory than an array for each.
    # Its positions may exceed 32 bits.
    ends = np.cumsum(lengths, dtype=np.int64)
    flat = np.concatenate(pieces) if pieces else np.empty(0, np.int32)
    ids = [flat[end - size : end] for end, size in zip(ends, lengths, strict=True)]
    return Encoded(ids, lengths, labels, example_ids, starts, source)


BEGIN, END = "@begin", "@end"
"""Markers around a query (as in the authors' code); they are ordinary words."""


class _Words(Source):
    """Cloze questions as texts, for counts of words."""

    def __iter__(self) -> Iterator[Example]:
        for example in super().__iter__():
            yield {"tokens": (*example["tokens"], *add_markers(example))}


def add_markers(example: Example) -> tuple[str, ...]:
    """Returns the tokens of a question's query between the words "@begin" and "@end"."""
    return (BEGIN, *example["query"], END)


def cloze_vocabulary(
    sources: Sequence[Source], *, lowercase: bool = True, max_size: int | None = None
) -> Vocabulary:
    """Collects the words of documents and queries.

    The paper's vocabulary covers training, validation and test questions: at test time each word
    without a pretrained vector has its own random vector. Pass all three sources.

    Args:
      sources: sequences of cloze questions, dicts with "tokens" (the document) and "query".
      lowercase: True to lower-case words, as GloVe 6B does.
      max_size: keep at most this many ids; None keeps all words.

    Returns:
      The vocabulary, in the order of descending frequency.
    """
    views = [_Words(source, source.info) for source in sources]
    return Vocabulary.build(views, lowercase=lowercase, max_size=max_size)


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedCloze:
    """Encoded questions, in the order of their source; n is the number of questions.

    Attributes:
      documents: int32 ids of each document (views into a common array).
      queries: int32 ids of each query, markers included.
      cloze: int32 [n]: index of the placeholder in the query with markers.
      candidates: int32 [n]: the number of candidates.
      occurrences: int32 [m, 2] per question: (candidate, index in the document), sorted by
        candidate.
      labels: int32 [n]: index of the candidate that is the answer, or -1.
      example_ids: int32 [n], the id of each example in the source.
      cut: the number of documents that `encode_cloze` truncated to its `max_doc_len` tokens.
      rows: int64 [n], the position of each question in `source`.
      source: the examples that were encoded.
    """

    documents: list[np.ndarray]
    queries: list[np.ndarray]
    cloze: np.ndarray
    candidates: np.ndarray
    occurrences: list[np.ndarray]
    labels: np.ndarray
    example_ids: np.ndarray
    cut: int
    rows: np.ndarray
    source: Source

    @property
    def info(self) -> SourceInfo:
        """The name, split and classes of the source."""
        return self.source.info

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def document_lengths(self) -> np.ndarray:
        """The number of tokens of the document of each of the n questions, int32 [n].

        Of a document that `encode_cloze` truncated only the remaining tokens count.
        """
        return np.array([len(ids) for ids in self.documents], np.int32)

    @property
    def query_lengths(self) -> np.ndarray:
        """The number of tokens of the query of each of the n questions, with markers, int32 [n]."""
        return np.array([len(ids) for ids in self.queries], np.int32)

    @property
    def answerable(self) -> np.ndarray:
        """True where the answer is a candidate in the truncated document, bool [n].

        n is the number of questions.
        """
        occurs = [
            label >= 0 and bool((where[:, 0] == label).any())
            for label, where in zip(self.labels, self.occurrences, strict=True)
        ]
        return np.array(occurs, bool)

    def example(self, index: int) -> Example:
        """Returns the question at position `index`, the dict of the example in `source`.

        Its keys include "tokens" (the document), "query", "candidates", "answer" and "label".
        """
        return self.source[int(self.rows[index])]

    def take(self, rows: np.ndarray) -> "EncodedCloze":
        """Returns the questions at the positions `rows`, int [m], in this order."""
        lists = ("documents", "queries", "occurrences")
        arrays = ("cloze", "candidates", "labels", "example_ids", "rows")
        selected: dict[str, Any] = {name: [getattr(self, name)[i] for i in rows] for name in lists}
        selected |= {name: getattr(self, name)[rows] for name in arrays}
        return dataclasses.replace(self, **selected)

    def fraction(self, share: float, *, seed: int = 0) -> "EncodedCloze":
        """Returns a random share of the questions, at least a single question, in their old order.

        With the same seed the questions of a smaller share are among those of a larger share.

        Raises:
          ValueError: if `share` is not in (0, 1].
        """
        if not 0 < share <= 1:
            raise ValueError(f"share must be in (0, 1], got {share}")
        # A share is the beginning of a permutation, so that a larger share contains a smaller
        # share.
        order = np.random.default_rng(seed).permutation(len(self))
        return self.take(np.sort(order[: max(1, round(share * len(self)))]))


def occurrences(document: Sequence[str], candidates: Sequence[tuple[str, ...]]) -> np.ndarray:
    """Returns int32 [m, 2], sorted: (candidate, position) of a document's tokens in candidates."""
    of_token: dict[str, list[int]] = {}
    for i, candidate in enumerate(candidates):
        # A candidate may have a token twice, but an occurrence counts once for it.
        for token in dict.fromkeys(candidate):
            of_token.setdefault(token, []).append(i)
    places = [(i, place) for place, token in enumerate(document) for i in of_token.get(token, ())]
    return np.array(sorted(places), np.int32).reshape(-1, 2)


def whole_occurrences(document: Sequence[str], candidates: Sequence[tuple[str, ...]]) -> np.ndarray:
    """Returns the `occurrences` at which all tokens of a candidate follow each other."""
    places = set()
    for i, candidate in enumerate(candidates):
        for start in find_phrase(document, candidate):
            places |= {(i, start + offset) for offset in range(len(candidate))}
    return np.array(sorted(places), np.int32).reshape(-1, 2)


def find_phrase(document: Sequence[str], phrase: Sequence[str]) -> list[int]:
    """Finds the positions in a document, from 0, at which the tokens of a phrase follow each other.

    >>> find_phrase("the old man saw the old house".split(), ("the", "old"))
    [0, 4]
    """
    words, phrase = tuple(document), tuple(phrase)
    starts = [at for at, word in enumerate(words) if phrase and word == phrase[0]]
    return [at for at in starts if words[at : at + len(phrase)] == phrase]


def encode_cloze(
    source: Source,
    vocabulary: Vocabulary,
    *,
    max_doc_len: int | None = None,
    whole_candidates: bool = False,
) -> EncodedCloze:
    """Encodes cloze questions and finds their placeholder and candidates.

        >>> from gatedjax.data import load
        >>> questions = load("two_facts", "test")
        >>> encoded = encode_cloze(questions, cloze_vocabulary([questions]))
        >>> len(encoded), int(encoded.candidates[0])
        (1000, 3)

    Args:
      source: cloze questions, dicts with "tokens" (the document), "query", "candidates", "answer"
        and "label", as `gatedjax.data.load` returns them.
      vocabulary: maps tokens to ids, for example the result of `cloze_vocabulary`.
      max_doc_len: keep at most this many tokens from the beginning of a document; None keeps all.
        An answer that occurs only in the truncated part is lost (`EncodedCloze.answerable`).
      whole_candidates: True counts a candidate of several tokens only where all of them follow each
        other. False counts each token of the document that is equal to any token of the candidate,
        as the paper does for names, so that a surname counts for the full name.

    Returns:
      The questions as ids, in the order of the source.

    Raises:
      ValueError: for max_doc_len < 1, or a query without the placeholder.
    """
    if max_doc_len is not None and max_doc_len < 1:
        raise ValueError(f"max_doc_len must be at least 1, got {max_doc_len}")
    find = whole_occurrences if whole_candidates else occurrences
    n, cut = len(source), 0
    cloze, candidates, labels, example_ids = (np.empty(n, np.int32) for _ in range(4))
    documents, queries, places = [], [], []
    for i, example in enumerate(source):
        words, query = example["tokens"], add_markers(example)
        if max_doc_len is not None and len(words) > max_doc_len:
            words, cut = words[:max_doc_len], cut + 1
        # The readers of files set such questions aside, but a source may also be made by a caller.
        if PLACEHOLDER not in query:
            raise ValueError(
                f"the query of example {example['example_id']} must have {PLACEHOLDER!r}, got "
                f"{' '.join(example['query'])!r:.80}"
            )
        documents.append(np.array(vocabulary.encode(words), np.int32))
        queries.append(np.array(vocabulary.encode(query), np.int32))
        places.append(find(words, example["candidates"]))
        cloze[i] = query.index(PLACEHOLDER)
        candidates[i], labels[i] = len(example["candidates"]), example["label"]
        example_ids[i] = example["example_id"]
    columns = cloze, candidates, places, labels, example_ids
    return EncodedCloze(documents, queries, *columns, cut, np.arange(n), source)
