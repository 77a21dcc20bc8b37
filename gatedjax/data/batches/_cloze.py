"""Batches of cloze questions, in buckets of document and query length."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from gatedjax.data.batches._encode import EncodedCloze
from gatedjax.data.batches._plan import Batch, PlannedBatches, check_sizes, pad_rows, plan_buckets
from gatedjax.data.text._vocabulary import MAX_CHARACTERS

DENSE_CELLS = 2**22
"""With more cells [B, N, K] than this, batches list positions instead of an occurrence mask."""


@dataclasses.dataclass(frozen=True)
class ClozeShape:
    """The padded sizes of a bucket of cloze questions.

    Attributes:
      document: N, the number of tokens of a document.
      query: Q, the number of tokens of a query, markers included.
      candidates: K, the number of candidates.
      positions: P, the largest number of occurrences of a candidate in a document.
      words: W, the largest number of distinct words in a document and its query.
    """

    document: int
    query: int
    candidates: int
    positions: int
    words: int


def plan_cloze_shapes(
    parts: Sequence[EncodedCloze], *, max_shapes: int = 8, batch_size: int = 32
) -> tuple[ClozeShape, ...]:
    """Chooses few padded shapes (N, Q) for documents of N and queries of Q tokens.

    The range of document lengths is divided into d buckets, and the range of query lengths of each
    bucket into q buckets, with d q at most `max_shapes`; `plan_buckets` makes both divisions. The
    chosen d has the fewest padded cells, the sum of N + Q over the rows of all training batches (an
    incomplete last batch counts in full), because the cost of the recurrent layers is proportional
    to it.

    Args:
      parts: the parts of the data set, training first. The training lengths determine the shapes;
        the last shapes are enlarged to fit the other parts.
      max_shapes: the largest number of shapes, each of which costs a compilation.
      batch_size: rows of a training batch.

    Returns:
      A tuple of shapes in the order of document, then query length; each question fits into a
      shape.

    Raises:
      ValueError: if max_shapes < 1, or there are no questions.
    """
    check_sizes(max_shapes=max_shapes)
    if not parts or not len(parts[0]):
        raise ValueError("parts must not be empty, got no questions")
    documents, queries = parts[0].document_lengths, parts[0].query_lengths
    longest = [
        max(int(lengths.max()) for part in parts if len(lengths := getattr(part, name)))
        for name in ("document_lengths", "query_lengths")
    ]
    best: tuple[float, list[tuple[int, int]]] = (np.inf, [])
    # All divisions are tried, because the best number of document lengths depends on the data.
    for d in range(1, max_shapes + 1):
        edges = _through(plan_buckets(documents, d), longest[0])
        bucket = np.searchsorted(edges, documents)
        cells, shapes = 0, []
        for i, size in enumerate(edges):
            lengths = queries[bucket == i]
            # The longest query of all parts fits into each bucket, because in an evaluation it may
            # come with a document of any length.
            inner = _through(plan_buckets(lengths, max_shapes // d), longest[1])
            counts = np.bincount(np.searchsorted(inner, lengths), minlength=len(inner))
            # Incomplete batches count in full, because filler rows cost as much as questions.
            cells += int((-(-counts // batch_size) * (size + np.array(inner))).sum())
            shapes += [(size, width) for width in inner]
        if cells < best[0]:
            best = cells, shapes
    return _measure_shapes(parts, best[1])


def _through(edges: tuple[int, ...], longest: int) -> tuple[int, ...]:
    return (*edges[:-1], max(edges[-1], longest))


def _measure(encoded: EncodedCloze, name: str) -> np.ndarray:
    """Returns the size, int [n], that each question needs in the field `name` of a shape."""
    if name == "candidates":
        return encoded.candidates
    if name == "positions":
        counts = (np.bincount(where[:, 0], minlength=1) for where in encoded.occurrences)
        return np.array([max(1, count.max()) for count in counts])
    texts = zip(encoded.documents, encoded.queries, strict=True)
    return np.array([len(np.unique(np.concatenate(pair))) for pair in texts])


def _measure_shapes(
    parts: Sequence[EncodedCloze], shapes: list[tuple[int, int]]
) -> tuple[ClozeShape, ...]:
    """Returns shapes with room for the candidates, occurrences and words of all questions."""
    plain = [ClozeShape(size, width, 1, 1, 1) for size, width in shapes]
    sizes = np.ones((3, len(shapes)), int)
    for part in parts:
        for largest, name in zip(sizes, ("candidates", "positions", "words"), strict=True):
            np.maximum.at(largest, _buckets(part, plain), _measure(part, name))
    pairs = zip(shapes, sizes.T.tolist(), strict=True)
    return tuple(ClozeShape(*shape, *largest) for shape, largest in pairs)


def _buckets(encoded: EncodedCloze, shapes: Sequence[ClozeShape]) -> np.ndarray:
    """Returns int [n]: for each question the index of the smallest shape that fits it."""
    sizes = np.array([(shape.document, shape.query) for shape in shapes])
    edges = np.unique(sizes[:, 0])
    documents, queries = encoded.document_lengths, encoded.query_lengths
    outer = np.searchsorted(edges, documents)
    bucket = np.full(len(encoded), -1)
    for i, size in enumerate(edges):
        inside = np.flatnonzero(outer == i)
        of_size = np.flatnonzero(sizes[:, 0] == size)
        place = np.searchsorted(sizes[of_size, 1], queries[inside])
        fits = place < len(of_size)
        bucket[inside[fits]] = of_size[place[fits]]
    # -1 marks questions for which no shape is large enough.
    if (bucket < 0).any():
        i = int(np.argmax(bucket < 0))
        raise ValueError(
            "shapes must have room for each question, got none for a document of "
            f"{documents[i]} and a query of {queries[i]} tokens"
        )
    return bucket


class ClozeBatches(PlannedBatches):
    """Random access to batches of questions: a pure function of (seed, step).

    A batch is a dict with B rows, a row per question; filler rows have weight 0, example id -1 and
    length 0. N, Q, K, P and W are the sizes `document`, `query`, `candidates`, `positions` and
    `words` of the `ClozeShape` of the bucket:

    - document int32 [B, N], document_lengths [B]; query int32 [B, Q], query_lengths [B], with the
      begin and end markers; 0 is padding.
    - cloze int32 [B]: index of the placeholder in the query.
    - occurrence bool [B, N, K], True where a token of the document belongs to a candidate; or if
      B N K is above `dense_cells`, candidate_positions int32 [B, K, P], the indices of these tokens
      in the document, padded with -1.
    - candidate_mask bool [B, K], True at candidates, False at padding; label int32 [B], the index
      of the answer among the candidates, -1 if it is none.
    - weight f32 [B]; example_id int32 [B].
    - with characters: word_characters int32 [B, W, 10] and word_lengths [B, W], the distinct words
      of each row's document and query; document_words [B, N] and query_words [B, Q], indices into
      these words.

    Memory of the large arrays: B N K bytes (dense) or 4 B K P; 44 B W with characters.

    Args:
      encoded: the questions, an `EncodedCloze` that `encode_cloze` returns.
      batch_size: B, rows per batch.
      shapes: shapes of the buckets; None plans them for these questions.
      max_shapes: the number of shapes to plan.
      characters: (ids int32 [V, 10], lengths int32 [V]) of the characters of the V words of the
        vocabulary, the result of `Characters.table`; None leaves the characters out.
      dense_cells: the largest size B N K of an occurrence mask; larger batches have positions.
      seed: seed of the order.
      shuffle: False keeps the order of the questions within a bucket, in all epochs.
      one_pass: True ends the batches after an epoch.

    Raises:
      ValueError: for batch_size < 1, no questions, or a question that fits into no shape.

    Attributes:
      shapes: the padded sizes of each bucket.
      steps_per_epoch: the number of batches of an epoch.
      padding_fraction: share of padding among the cells of documents and queries in an epoch,
        filler rows included.
    """

    def __init__(
        self,
        encoded: EncodedCloze,
        *,
        batch_size: int,
        shapes: Sequence[ClozeShape] | None = None,
        max_shapes: int = 8,
        characters: tuple[np.ndarray, np.ndarray] | None = None,
        dense_cells: int = DENSE_CELLS,
        seed: int = 0,
        shuffle: bool = True,
        one_pass: bool = False,
    ) -> None:
        check_sizes(batch_size=batch_size)
        has_shapes = shapes is not None
        if shapes is None:
            shapes = plan_cloze_shapes([encoded], max_shapes=max_shapes, batch_size=batch_size)
        if not len(encoded):
            raise ValueError("encoded must not be empty, got no texts")
        self.encoded, self.batch_size = encoded, batch_size
        self.shapes = tuple(shapes)
        self.characters, self.dense_cells = characters, dense_cells
        super().__init__(
            _buckets(encoded, self.shapes),
            [batch_size] * len(self.shapes),
            seed=seed,
            shuffle=shuffle,
            one_pass=one_pass,
        )
        if has_shapes:  # planned shapes fit all questions
            self._check_shapes()
        documents, queries = encoded.document_lengths, encoded.query_lengths
        self._by_row = {
            "document_lengths": documents,
            "query_lengths": queries,
            "cloze": encoded.cloze,
            "label": encoded.labels,
            "example_id": encoded.example_ids,
        }
        cells = [shape.document + shape.query for shape in self.shapes]
        self.padding_fraction = self._padding(int(documents.sum() + queries.sum()), cells)

    @classmethod
    def eval(cls, encoded: EncodedCloze, *, batch_size: int, **options: Any) -> "ClozeBatches":
        """Returns an ordered pass: `len` batches, each question exactly once, bucket by bucket.

        Args:
          encoded: the questions, an `EncodedCloze` that `encode_cloze` returns.
          batch_size: rows per batch.
          **options: shapes, max_shapes, characters and dense_cells, as of `ClozeBatches`.

        Returns:
          The batches, which are not shuffled.
        """
        return cls(encoded, batch_size=batch_size, **options, shuffle=False, one_pass=True)

    def __getitem__(self, step: int) -> Batch:
        rows = self.rows(step)
        encoded, size = self.encoded, self.batch_size
        shape = self.shapes[self._bucket[rows[0]]]
        documents = [encoded.documents[row] for row in rows]
        queries = [encoded.queries[row] for row in rows]
        counts = np.zeros((size, 1), int)
        # Filler rows have no candidates, so their mask is False.
        counts[: len(rows), 0] = encoded.candidates[rows]
        batch = {
            "document": pad_rows(documents, (size, shape.document)),
            "query": pad_rows(queries, (size, shape.query)),
            "candidate_mask": np.arange(shape.candidates) < counts,
            **self._columns(rows, self._by_row),
            **self._occurrence(rows, shape),
        }
        return batch | self._words(documents, queries, shape)

    def _check_shapes(self) -> None:
        """Raises ValueError if a question is too large for the shape of its bucket in `shapes`."""
        for name in ("candidates", "positions", *["words"] * (self.characters is not None)):
            # A batch with an occurrence mask has no positions.
            room = [
                np.inf if name == "positions" and self._dense(shape) else getattr(shape, name)
                for shape in self.shapes
            ]
            needs = _measure(self.encoded, name)
            excess = np.flatnonzero(needs > np.array(room)[self._bucket])
            if excess.size:
                row = excess[0]
                raise ValueError(
                    f"shapes must have room for each question: {name} must be at least "
                    f"{needs[row]} for example {self.encoded.example_ids[row]}, got "
                    f"{self.shapes[self._bucket[row]]}"
                )

    def _dense(self, shape: ClozeShape) -> bool:
        return self.batch_size * shape.document * shape.candidates <= self.dense_cells

    def _occurrence(self, rows: np.ndarray, shape: ClozeShape) -> Batch:
        """Returns {"occurrence": bool [B, N, K]} or {"candidate_positions": int32 [B, K, P]}."""
        size, k = self.batch_size, shape.candidates
        # The mask is the simplest form, but its size grows with the document and the candidates.
        if self._dense(shape):
            dense = np.zeros((size, shape.document, k), bool)
            for line, row in zip(dense, rows, strict=False):
                where = self.encoded.occurrences[row]
                line[where[:, 1], where[:, 0]] = True
            return {"occurrence": dense}
        positions = np.full((size, k, shape.positions), -1, np.int32)
        for line, row in zip(positions, rows, strict=False):
            where = self.encoded.occurrences[row]
            # Occurrences are sorted by candidate; number them within each candidate.
            counts = np.bincount(where[:, 0], minlength=k)
            within = np.arange(len(where)) - np.repeat(np.cumsum(counts) - counts, counts)
            line[where[:, 0], within] = where[:, 1]
        return {"candidate_positions": positions}

    def _words(
        self, documents: list[np.ndarray], queries: list[np.ndarray], shape: ClozeShape
    ) -> Batch:
        """Returns the arrays of a batch about the characters of words, {} without characters."""
        if self.characters is None:
            return {}
        ids, lengths = self.characters
        size = self.batch_size
        has_words = np.zeros((size, shape.words, MAX_CHARACTERS), np.int32)
        spelt_lengths = np.zeros((size, shape.words), np.int32)
        places = []
        for row, (document, query) in enumerate(zip(documents, queries, strict=True)):
            # Each distinct word is spelt once, so that the network reads its characters once in a
            # row.
            words, place = np.unique(np.concatenate([document, query]), return_inverse=True)
            has_words[row, : len(words)] = ids[words]
            spelt_lengths[row, : len(words)] = lengths[words]
            places.append(np.split(place, [len(document)]))
        return {
            "word_characters": has_words,
            "word_lengths": spelt_lengths,
            "document_words": pad_rows([place[0] for place in places], (size, shape.document)),
            "query_words": pad_rows([place[1] for place in places], (size, shape.query)),
        }
