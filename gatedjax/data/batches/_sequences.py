"""Batches of examples with several sequences each: pairs of texts, texts with labels."""

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from gatedjax._filler import FILLER_ID
from gatedjax.data.batches._buckets import plan_buckets
from gatedjax.data.batches._steps import Batch, StepBatches


class SequenceBatches(StepBatches):
    """Random access to the batches of endless training, or (`eval`) of one ordered pass.

    Examples are grouped by their longest sequence, and all their sequences are padded to the edge
    of the group. A batch holds `batch_size` examples, or as many as fill `max_tokens` cells of its
    group: every group then has batches of its own number of rows, and about the same work. Order
    and contents are a pure function of (seed, step), made as `Batches` makes them.

    A batch is a dict: every sequence by its name int32 [B, T], 0 beyond its end; its length int32
    [B] by the name that `lengths` gives it; the `columns` and example_id int32 [B]; weight f32 [B].
    The last batch of a group is filled up with rows of weight 0, lengths 0 and example id -1.

    Args:
      sequences: name -> one array of ids per example.
      example_ids: int [n].
      lengths: name in the batch -> the sequence whose length it is.
      columns: name -> one number per example.
      batch_size: examples of a batch; or
      max_tokens: cells of a batch [B, T] (at least one example, and rows in multiples of 8 where
        that many fit, so that they divide over devices).
      bucket_edges: padded lengths, ascending; None plans the best ones.
      max_buckets: how many to plan at most: each is compiled once.
      seed: of the order.
      shuffle: False keeps the order of the examples within every group.

    Raises:
      ValueError: if there are no examples, the columns differ in length, not exactly one of
        batch_size and max_tokens is given, or an edge is too small.
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
    ) -> None:
        if (batch_size is None) == (max_tokens is None):
            raise ValueError(
                f"give one of batch_size and max_tokens, got {batch_size} and {max_tokens}"
            )
        for name, value in {"batch_size": batch_size, "max_tokens": max_tokens}.items():
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self.sequences = dict(sequences)
        self.columns = {**(columns or {}), "example_id": np.asarray(example_ids)}
        sizes = {name: len(texts) for name, texts in self.sequences.items()}
        sizes |= {name: len(values) for name, values in self.columns.items()}
        if len(set(sizes.values())) != 1 or not len(example_ids):
            raise ValueError(f"columns must have one entry per example, got {sizes}")
        if unknown := sorted(set(lengths.values()) - set(self.sequences)):
            raise ValueError(f"lengths must name sequences, got {unknown}")
        self.seed, self.shuffle = seed, shuffle
        every = {name: np.array([len(x) for x in rows]) for name, rows in self.sequences.items()}
        self._lengths = {name: every[sequence] for name, sequence in lengths.items()}
        longest = np.maximum(np.max(list(every.values()), axis=0), 1)
        self.edges = (
            plan_buckets(longest, max_buckets) if bucket_edges is None else tuple(bucket_edges)
        )
        ascending = all(a < b for a, b in zip(self.edges, self.edges[1:], strict=False))
        if not self.edges or not ascending or self.edges[0] < 1:
            raise ValueError(f"bucket_edges must ascend from at least 1, got {self.edges}")
        if self.edges[-1] < longest.max():
            raise ValueError(
                f"bucket_edges: the last is {self.edges[-1]}, the longest text {longest.max()}"
            )
        self._bucket = np.searchsorted(np.array(self.edges), longest)
        self.rows_of = tuple(batch_size or _rows(max_tokens or 1, edge) for edge in self.edges)
        """Examples of a batch of every group."""
        counts = np.bincount(self._bucket, minlength=len(self.edges))
        per_bucket = -(-counts // np.array(self.rows_of))
        self.steps_per_epoch = int(per_bucket.sum())
        cells = (per_bucket * np.array(self.rows_of) * np.array(self.edges)).sum()
        real = sum(int(own.sum()) for own in every.values())
        self.padding_fraction = 1.0 - real / (int(cells) * len(every))
        """Share of the cells of an epoch that hold no id, filler rows included."""
        self._plan = functools.lru_cache(maxsize=2)(self._make_plan)

    def eval(self) -> "SequenceBatches":
        """Makes this one ordered pass: `len` steps, every example exactly once."""
        if self.shuffle:
            raise ValueError("shuffle must be False for one ordered pass")
        self.one_pass = True
        return self

    def _make_plan(self, epoch: int) -> list[np.ndarray]:
        order = np.arange(len(self._bucket))
        if self.shuffle:
            generator = np.random.default_rng(np.random.SeedSequence([self.seed, epoch]))
            order = generator.permutation(order)
        plan = []
        for bucket, size in enumerate(self.rows_of):
            rows = order[self._bucket[order] == bucket]
            plan += [rows[i : i + size] for i in range(0, len(rows), size)]
        if self.shuffle:
            # which group comes when does not depend on the seed (see `Batches`)
            shapes = np.random.default_rng(np.random.SeedSequence([epoch]))
            plan = [plan[i] for i in shapes.permutation(len(plan))]
        return plan

    def rows(self, step: int) -> np.ndarray:
        """Returns which examples (positions) a batch holds, without filler rows.

        Raises:
          IndexError: if the step is negative, or beyond the end of one pass.
        """
        epoch, within = self._position(step)
        return self._plan(epoch if self.shuffle else 0)[within]

    def __getitem__(self, step: int) -> Batch:
        rows = self.rows(step)
        bucket = self._bucket[rows[0]]
        size, edge = self.rows_of[bucket], self.edges[bucket]
        batch: Batch = {}
        for name, texts in self.sequences.items():
            cells = np.zeros((size, edge), np.int32)
            for line, row in zip(cells, rows, strict=False):
                line[: len(texts[row])] = texts[row]
            batch[name] = cells
        for name, values in {**self._lengths, **self.columns}.items():
            full = np.full(size, FILLER_ID if name == "example_id" else 0, np.int32)
            full[: len(rows)] = np.asarray(values)[rows]
            batch[name] = full
        batch["weight"] = (np.arange(size) < len(rows)).astype(np.float32)
        return batch


def _rows(max_tokens: int, edge: int) -> int:
    rows = max(max_tokens // edge, 1)
    return rows // 8 * 8 if rows >= 8 else rows
