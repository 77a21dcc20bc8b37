"""Cloze questions as columns: ids, where the placeholder is, where each candidate occurs."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from gatedjax.data.files._source import Example, Source, SourceInfo
from gatedjax.data.sets._cloze import PLACEHOLDER
from gatedjax.data.text._vocabulary import Vocabulary

BEGIN, END = "@begin", "@end"
"""Markers around a query (the authors' code), words as any other."""


class _Words(Source):
    """The document and the wrapped query of every question as one text, for counting words."""

    def __iter__(self) -> Iterator[Example]:
        for example in super().__iter__():
            yield {"tokens": (*example["tokens"], *wrapped(example))}


def wrapped(example: Example) -> tuple[str, ...]:
    """The query between its markers."""
    return (BEGIN, *example["query"], END)


def cloze_vocabulary(
    sources: Sequence[Source], *, lowercase: bool = True, max_size: int | None = None
) -> Vocabulary:
    """Collects the words of documents and queries.

    The paper's vocabulary covers training, validation and test questions: at test time every word
    without a pretrained vector has a random vector of its own, so give all three.

    Args:
      sources: of cloze questions.
      lowercase: fold case, as GloVe 6B does.
      max_size: keep at most this many ids.
    """
    views = [_Words(source, source.info) for source in sources]
    return Vocabulary.build(views, lowercase=lowercase, max_size=max_size)


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedCloze:
    """Encoded questions, in the order of their source."""

    documents: list[np.ndarray]
    """int32 ids of every document (views into one array)."""
    queries: list[np.ndarray]
    """int32 ids of every query, markers included."""
    cloze: np.ndarray
    """int32 [n]: index of the placeholder in the query, the begin marker counted."""
    candidates: np.ndarray
    """int32 [n]: how many candidates."""
    occurrences: list[np.ndarray]
    """int32 [m, 2] of every question: (candidate, index in the document), by candidate."""
    labels: np.ndarray
    """int32 [n]: which candidate is the answer, -1 if none is."""
    example_ids: np.ndarray
    """int32 [n]."""
    cut: int
    """How many documents were cut to max_doc_len."""
    rows: np.ndarray
    """int64 [n]: positions in `source`."""
    source: Source

    @property
    def info(self) -> SourceInfo:
        """Name, split and classes."""
        return self.source.info

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def document_lengths(self) -> np.ndarray:
        """int32 [n]."""
        return np.array([len(ids) for ids in self.documents], np.int32)

    @property
    def query_lengths(self) -> np.ndarray:
        """int32 [n], markers included."""
        return np.array([len(ids) for ids in self.queries], np.int32)

    @property
    def answerable(self) -> np.ndarray:
        """bool [n]: whether the answer is a candidate that occurs in the (cut) document."""
        occurs = [
            label >= 0 and bool((where[:, 0] == label).any())
            for label, where in zip(self.labels, self.occurrences, strict=True)
        ]
        return np.array(occurs, bool)

    def example(self, index: int) -> Example:
        """Returns the question as its source has it."""
        return self.source[int(self.rows[index])]

    def take(self, rows: np.ndarray) -> "EncodedCloze":
        """Returns some of the questions."""
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
        """Returns a random share of the questions; a smaller share of one seed is in a larger one.

        Raises:
          ValueError: if `share` is not in (0, 1].
        """
        if not 0 < share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, got {share}")
        order = np.random.default_rng(seed).permutation(len(self))
        return self.take(np.sort(order[: max(1, round(share * len(self)))]))


def occurrences(document: Sequence[str], candidates: Sequence[tuple[str, ...]]) -> np.ndarray:
    """Finds candidates in a document: every token that equals one of theirs, letter by letter.

    Returns:
      int32 [m, 2]: (candidate, index in the document), in that order. A token that two candidates
      share is there for both.
    """
    of_token: dict[str, list[int]] = {}
    for i, candidate in enumerate(candidates):
        for token in dict.fromkeys(candidate):
            of_token.setdefault(token, []).append(i)
    places = [(i, place) for place, token in enumerate(document) for i in of_token.get(token, ())]
    return np.array(sorted(places), np.int32).reshape(-1, 2)


def encode_cloze(
    source: Source, vocabulary: Vocabulary, *, max_doc_len: int | None = None
) -> EncodedCloze:
    """Looks up the tokens of questions and finds placeholder and candidates.

    Args:
      source: examples of cloze questions; see `gatedjax.data.load`.
      vocabulary: gives the ids; see `cloze_vocabulary`.
      max_doc_len: keep at most this many tokens of a document, from its beginning; None keeps all.
        An answer that occurs only in the rest then occurs no more (`EncodedCloze.answerable`).

    Raises:
      ValueError: for max_doc_len < 1, or a query without the placeholder.
    """
    if max_doc_len is not None and max_doc_len < 1:
        raise ValueError(f"max_doc_len must be at least 1, got {max_doc_len}")
    n, cut = len(source), 0
    cloze, candidates, labels, example_ids = (np.empty(n, np.int32) for _ in range(4))
    documents, queries, places = [], [], []
    for i, example in enumerate(source):
        words, query = example["tokens"], wrapped(example)
        if max_doc_len is not None and len(words) > max_doc_len:
            words, cut = words[:max_doc_len], cut + 1
        if PLACEHOLDER not in query:
            raise ValueError(f"example {example['example_id']}: the query has no {PLACEHOLDER}")
        documents.append(np.array(vocabulary.encode(words), np.int32))
        queries.append(np.array(vocabulary.encode(query), np.int32))
        places.append(occurrences(words, example["candidates"]))
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
