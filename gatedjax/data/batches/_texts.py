"""Batches of texts, pairs of texts and texts with labels, and batches with their step."""

import copy
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gatedjax.data.batches._encode import Encoded
from gatedjax.data.batches._plan import Batch, PlannedBatches, check_sizes, checked_edges, pad_rows


class SequenceBatches(PlannedBatches):
    """Batches of examples that have one or several sequences of ids, padded to few lengths.

    `batches[step]` is the batch of a training step, for any step from 0 on, and `eval` returns a
    single pass in order. Examples are grouped by their longest sequence, and all their sequences
    are padded to the edge of the group. A batch has `batch_size` examples, or as many as fit into
    `max_tokens` cells; the number of rows then differs between groups, at about the same cost per
    batch. Order and contents are a pure function of (seed, step).

    A batch of B examples, padded to T ids, is a dict of arrays: each sequence by its name, int32
    [B, T], 0 beyond its end; its length int32 [B] by its name in `lengths`; the `columns` and
    example_id int32 [B]; weight f32 [B]. The last batch of a group is filled up with rows of weight
    0, lengths 0 and example id -1.

        >>> texts = {"tokens": [np.array([5, 6, 7]), np.array([8])]}
        >>> lengths = {"lengths": "tokens"}
        >>> columns, plan = {"label": np.array([0, 1])}, {"bucket_edges": [3], "shuffle": False}
        >>> batches = SequenceBatches(
        ...     texts, np.arange(2), lengths=lengths, columns=columns, batch_size=2, **plan
        ... )
        >>> print(batches[0]["tokens"], batches[0]["lengths"], batches[0]["label"])
        [[5 6 7]
         [8 0 0]] [3 1] [0 1]

    Args:
      sequences: name -> an array of ids per example.
      example_ids: int [n], the number of each example, which stays with it in all batches.
      lengths: name of a length in the batch -> name of its sequence.
      columns: name -> a number per example, [n]; None means no columns.
      batch_size: examples per batch; None if max_tokens is given.
      max_tokens: cells per batch [B, T]; None if batch_size is given. A batch has at least one
        example; from 8 rows on their number is a multiple of 8, so that they divide over devices.
      bucket_edges: padded lengths, ascending; None plans them.
      max_buckets: the largest number of planned edges, each of which costs a compilation.
      seed: seed of the order in which the examples are shuffled.
      shuffle: False keeps the order of the examples within each group.
      one_pass: True ends the batches after an epoch.

    Raises:
      ValueError: if there are no examples, the columns differ in length, both or none of
        batch_size and max_tokens are given, or an edge is too small.

    Attributes:
      edges: the padded lengths, ascending.
      steps_per_epoch: the number of batches of an epoch.
      padding_fraction: share of padding among the cells of an epoch, filler rows included.
    """

    def __init__(
        self,
        sequences: Mapping[str, Sequence[np.ndarray]],
        example_ids: np.ndarray,
        *,
        lengths: Mapping[str, str],
        columns: Mapping[str, np.ndarray] | None = None,
        batch_size: int | None = None,
        max_tokens: int | None = None,
        bucket_edges: Sequence[int] | None = None,
        max_buckets: int = 6,
        seed: int = 0,
        shuffle: bool = True,
        one_pass: bool = False,
    ) -> None:
        options = {"batch_size": batch_size, "max_tokens": max_tokens}
        sizes = {name: size for name, size in options.items() if size is not None}
        if len(sizes) != 1:
            raise ValueError(
                "batch_size or max_tokens must be given, and not both, got "
                f"{batch_size} and {max_tokens}"
            )
        check_sizes(**sizes)
        self.sequences = dict(sequences)
        self.columns = {**(columns or {}), "example_id": np.asarray(example_ids)}
        counts = {name: len(x) for name, x in (self.sequences | self.columns).items()}
        if len(set(counts.values())) != 1 or not len(example_ids):
            raise ValueError(f"columns must have one entry per example, got {counts}")
        if unknown := sorted(set(lengths.values()) - set(self.sequences)):
            raise ValueError(
                f"lengths must name sequences of {sorted(self.sequences)}, got {unknown}"
            )
        every = {name: np.array([len(x) for x in rows]) for name, rows in self.sequences.items()}
        self._lengths = {name: every[sequence] for name, sequence in lengths.items()}
        # An edge must be at least 1, also if all sequences of an example are empty.
        longest = np.maximum(np.max(list(every.values()), axis=0), 1)
        self.edges = checked_edges(bucket_edges, longest, max_buckets)
        super().__init__(
            np.searchsorted(np.array(self.edges), longest),
            [batch_size or _rows(max_tokens or 1, edge) for edge in self.edges],
            seed=seed,
            shuffle=shuffle,
            one_pass=one_pass,
        )
        real = sum(int(sizes.sum()) for sizes in every.values())
        self.padding_fraction = self._padding(real, [edge * len(every) for edge in self.edges])

    def eval(self) -> "SequenceBatches":
        """Returns an ordered pass of these batches: `len` batches, each example exactly once.

        Raises:
          ValueError: if the batches are shuffled.
        """
        if self.shuffle:
            raise ValueError("shuffle must be False for an ordered pass, got True")
        # The copy shares the sequences, which may be large.
        ordered = copy.copy(self)
        ordered.one_pass = True
        return ordered

    def __getitem__(self, step: int) -> Batch:
        rows = self.rows(step)
        bucket = self._bucket[rows[0]]
        shape = self.rows_of[bucket], self.edges[bucket]
        batch = {
            name: pad_rows([texts[row] for row in rows], shape)
            for name, texts in self.sequences.items()
        }
        return batch | self._columns(rows, {**self._lengths, **self.columns})


def _rows(max_tokens: int, edge: int) -> int:
    rows = max(max_tokens // edge, 1)
    # Below 8 rows the multiple of 8 would be 0.
    return rows // 8 * 8 if rows >= 8 else rows


def one_pass(ids: Sequence[np.ndarray], size: int) -> Iterator[tuple[Batch, list[tuple[int, int]]]]:
    """Yields (batch, [(row, index of its sequence), ...]) for at most `size` sequences of ids."""
    batches = SequenceBatches(
        {"tokens": ids},
        np.arange(len(ids)),
        lengths={"lengths": "tokens"},
        # A batch has at most as many rows as there are texts, because filler rows cost as much.
        batch_size=min(size, len(ids)),
        max_buckets=4,
        shuffle=False,
    )
    for batch in batches.eval():
        yield batch, real_rows(batch)


def real_rows(batch: Batch) -> list[tuple[int, int]]:
    """Returns (index of the row, example id) for each row of the batch that is not filler."""
    rows = np.flatnonzero(batch["weight"] > 0)
    return [(int(row), int(batch["example_id"][row])) for row in rows]


class Batches(SequenceBatches):
    """The batches of endless training, or (`Batches.eval`) of an ordered pass, by their step.

    `batches[step]` is the batch of a step, from 0, in any order of access.

    Texts are grouped by length: each is padded to the smallest edge that is long enough, so there
    are at most `len(edges)` shapes. Each epoch permutes the texts, fills the batches of each bucket
    in that order and permutes the batches. The sequence of shapes does not depend on the seed. The
    last batch of a bucket is filled up with rows of weight 0 (no tokens, length 0, label 0, example
    id -1).

    A batch is a dict: tokens int32 [B, T] (ids, 0 is padding), lengths, label, example_id int32
    [B], weight f32 [B]; B is `batch_size` and T the padded length of the bucket.

    Args:
      encoded: the texts as ids with their labels, an `Encoded` that `encode` returns.
      batch_size: B, rows per batch.
      bucket_edges: padded lengths, ascending; None plans them for these texts.
      max_buckets: the largest number of planned edges.
      seed: seed of the order.
      shuffle: False keeps the order of the texts within a bucket, in all epochs.
      one_pass: True ends the batches after an epoch.

    Raises:
      ValueError: for batch_size < 1, no texts, edges that do not ascend, or a text that is longer
        than the last edge.

    Attributes:
      edges: the padded lengths, ascending.
      steps_per_epoch: the number of batches of an epoch.
      padding_fraction: share of padding among the cells of an epoch, filler rows included.
    """

    def __init__(
        self,
        encoded: Encoded,
        *,
        batch_size: int,
        bucket_edges: Sequence[int] | None = None,
        max_buckets: int = 4,
        seed: int = 0,
        shuffle: bool = True,
        one_pass: bool = False,
    ) -> None:
        check_sizes(batch_size=batch_size)
        if len(encoded) == 0:
            raise ValueError("encoded must not be empty, got no texts")
        self.encoded, self.batch_size = encoded, batch_size
        super().__init__(
            {"tokens": encoded.ids},
            encoded.example_ids,
            lengths={"lengths": "tokens"},
            columns={"label": encoded.labels},
            batch_size=batch_size,
            # Planned here, because a text of an `Encoded` has at least one token.
            bucket_edges=checked_edges(bucket_edges, encoded.lengths, max_buckets),
            seed=seed,
            shuffle=shuffle,
            one_pass=one_pass,
        )

    @classmethod
    def eval(  # type: ignore[override]  # a pass of texts, and not of batches
        cls, encoded: Encoded, *, batch_size: int, **options: Any
    ) -> "Batches":
        """Returns an ordered pass: `len` batches, each text exactly once, bucket by bucket.

        Args:
          encoded: the texts as ids, an `Encoded` that `encode` returns.
          batch_size: texts per batch.
          **options: bucket_edges and max_buckets, as of `Batches`.

        Returns:
          The batches, which are not shuffled.
        """
        return cls(encoded, batch_size=batch_size, **options, shuffle=False, one_pass=True)


class WithStep:
    """Training batches with the number of their step, from 0, as "step" [B]."""

    def __init__(self, batches: Any) -> None:
        self.batches = batches

    @property
    def one_pass(self) -> bool:
        """True if the batches end after an epoch, like the batches of a list."""
        return isinstance(self.batches, list | tuple) or getattr(self.batches, "one_pass", False)

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, step: int) -> Batch:
        return self._with(self.batches[step], step)

    def iterate(self, start: int = 0, stop: int | None = None) -> Iterator[Batch]:
        """Yields the batches of the steps from `start` to `stop` - 1, each with its step."""
        if hasattr(self.batches, "iterate"):
            for step, batch in enumerate(self.batches.iterate(start, stop), start):
                yield self._with(batch, step)
            return
        if stop is None and self.one_pass:
            stop = len(self)
        steps: Iterable[int] = itertools.count(start) if stop is None else range(start, stop)
        for step in steps:
            yield self[step]

    @staticmethod
    def _with(batch: Batch, step: int) -> Batch:
        return {**batch, "step": np.full(len(batch["weight"]), step, np.int32)}


def for_schedule(batches: Any, model: Any) -> Any:
    """Adds the step to the batches if the temperature of the model has a schedule.

        >>> from types import SimpleNamespace
        >>> batches = [{"weight": np.ones(2, np.float32)}]
        >>> model = SimpleNamespace(gates=SimpleNamespace(final_temperature=0.1))
        >>> sorted(for_schedule(batches, model)[0]), for_schedule(batches, None) is batches
        (['step', 'weight'], True)

    Args:
      batches: training data for `fit`, whose batches have "weight" [B].
      model: a configuration. Its temperature has a schedule if `final_temperature` of its `gates`
        is not None.

    Returns:
      `batches`, or with a schedule `WithStep(batches)`.
    """
    gates = getattr(model, "gates", None)
    changes = getattr(gates, "final_temperature", None) is not None
    return WithStep(batches) if changes else batches
