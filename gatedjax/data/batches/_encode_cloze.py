"""Encoding of cloze questions as columns: ids, placeholder, occurrences of the candidates."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from gatedjax.data.files._source import Example, Source, SourceInfo
from gatedjax.data.sets._cloze import PLACEHOLDER
from gatedjax.data.text._vocabulary import Vocabulary

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
        return dataclasses.replace(
            self,
            documents=[self.documents[i] for i in rows],
            queries=[self.queries[i] for i in rows],
            cloze=self.cloze[rows],
            candidates=self.candidates[rows],
            occurrences=[self.occurrences[i] for i in rows],
            labels=self.labels[rows],
            example_ids=self.example_ids[rows],
            rows=self.rows[rows],
        )

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
    return EncodedCloze(
        documents,
        queries,
        cloze,
        candidates,
        places,
        labels,
        example_ids,
        cut,
        np.arange(n),
        source,
    )
