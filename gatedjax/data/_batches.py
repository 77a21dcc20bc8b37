"""Batches by step: order, buckets and contents are a pure function of (seed, step)."""

import contextlib
import functools
import operator
import sys
from collections.abc import Iterator, Sequence

import numpy as np

from gatedjax._filler import FILLER_ID
from gatedjax.data._buckets import plan_buckets
from gatedjax.data._encode import Encoded

Batch = dict[str, np.ndarray]


class Batches:
    """Random access to the batches of endless training, or (`Batches.eval`) of one ordered pass.

    Texts are grouped by length: each is padded to the smallest edge that holds it, so there are at
    most `len(edges)` shapes. Each epoch permutes the texts, fills the batches of every bucket in
    that order and permutes the batches; the sequence of shapes is the same for every seed. The last
    batch of a bucket is filled up with rows of weight 0 (no tokens, length 0, label 0, example
    id -1).

    A batch is a dict: tokens int32 [B, T], lengths, label, example_id int32 [B], weight f32 [B].

    Args:
      encoded: the texts.
      batch_size: rows of a batch.
      bucket_edges: padded lengths, ascending; None plans the best ones for these texts.
      max_buckets: how many edges to plan.
      seed: of the order.
      shuffle: False keeps the order of the texts within a bucket, in every epoch.

    Raises:
      ValueError: for batch_size < 1, no texts, or edges that do not ascend or hold every text.
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
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if len(encoded) == 0:
            raise ValueError("encoded: there are no texts")
        self.encoded = encoded
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self.one_pass = False
        lengths = encoded.lengths
        if bucket_edges is None:
            self.edges = plan_buckets(lengths, max_buckets)
        else:
            self.edges = tuple(int(edge) for edge in bucket_edges)
            ascending = all(a < b for a, b in zip(self.edges, self.edges[1:], strict=False))
            if not self.edges or not ascending or self.edges[0] < 1:
                raise ValueError(f"bucket_edges must ascend from at least 1, got {self.edges}")
            if self.edges[-1] < lengths.max():
                raise ValueError(
                    f"bucket_edges: the last is {self.edges[-1]}, the longest text {lengths.max()}"
                )
        self._bucket = np.searchsorted(np.array(self.edges), lengths)
        sizes = np.bincount(self._bucket, minlength=len(self.edges))
        per_bucket = -(-sizes // batch_size)
        self.steps_per_epoch = int(per_bucket.sum())
        padded = int((per_bucket * batch_size * np.array(self.edges)).sum())
        self.padding_fraction = 1.0 - int(lengths.sum()) / padded
        """Share of the cells of an epoch that hold no word, filler rows included."""
        self._plan = functools.lru_cache(maxsize=2)(self._make_plan)

    @classmethod
    def eval(
        cls,
        encoded: Encoded,
        *,
        batch_size: int,
        bucket_edges: Sequence[int] | None = None,
        max_buckets: int = 4,
    ) -> "Batches":
        """Makes one ordered pass: `len` steps, every text exactly once, bucket by bucket."""
        batches = cls(
            encoded,
            batch_size=batch_size,
            bucket_edges=bucket_edges,
            max_buckets=max_buckets,
            shuffle=False,
        )
        batches.one_pass = True
        return batches

    def __len__(self) -> int:
        return self.steps_per_epoch

    def epoch(self, step: int) -> int:
        """Returns how many passes were complete before a step."""
        return step // self.steps_per_epoch

    def _make_plan(self, epoch: int) -> list[np.ndarray]:
        """The row numbers of every batch of an epoch."""
        order = np.arange(len(self.encoded))
        generator = np.random.default_rng(np.random.SeedSequence([self.seed, epoch]))
        if self.shuffle:
            order = generator.permutation(order)
        plan = []
        for bucket in range(len(self.edges)):
            rows = order[self._bucket[order] == bucket]
            plan += [rows[i : i + self.batch_size] for i in range(0, len(rows), self.batch_size)]
        if self.shuffle:
            # The seed chooses the texts of every batch, not which bucket comes when: runs with
            # other seeds have batches of one shape, and can be trained side by side.
            shapes = np.random.default_rng(np.random.SeedSequence([epoch]))
            plan = [plan[i] for i in shapes.permutation(len(plan))]
        return plan

    def rows(self, step: int) -> np.ndarray:
        """Returns which texts (positions in `encoded`) a batch holds, without filler rows.

        Raises:
          IndexError: if the step is negative, or beyond the end of one pass.
        """
        step = operator.index(step)
        if step < 0 or (self.one_pass and step >= self.steps_per_epoch):
            end = f" and below {self.steps_per_epoch}" if self.one_pass else ""
            raise IndexError(f"step must be at least 0{end}, got {step}")
        epoch, within = divmod(step, self.steps_per_epoch)
        return self._plan(epoch if self.shuffle else 0)[within]

    def __getitem__(self, step: int) -> Batch:
        rows = self.rows(step)
        size = self.edges[self._bucket[rows[0]]]
        tokens = np.zeros((self.batch_size, size), np.int32)
        for line, row in zip(tokens, rows, strict=False):
            ids = self.encoded.ids[row]
            line[: len(ids)] = ids

        def column(values: np.ndarray, filler: int) -> np.ndarray:
            full = np.full(self.batch_size, filler, np.int32)
            full[: len(rows)] = values[rows]
            return full

        return {
            "tokens": tokens,
            "lengths": column(self.encoded.lengths, 0),
            "label": column(self.encoded.labels, 0),
            "example_id": column(self.encoded.example_ids, FILLER_ID),
            "weight": (np.arange(self.batch_size) < len(rows)).astype(np.float32),
        }

    def __iter__(self) -> Iterator[Batch]:
        """Yields the batches of one epoch (the first)."""
        return (self[step] for step in range(self.steps_per_epoch))

    def iterate(
        self, start_step: int = 0, stop_step: int | None = None, *, num_threads: int = 2
    ) -> Iterator[Batch]:
        """Yields the batches from a step on, made ahead of use by Grain; equal to indexing.

        Args:
          start_step: the first.
          stop_step: one after the last; None is the end of one pass, or never in training.
          num_threads: threads that make batches ahead; 0 makes each when it is asked for.

        Raises:
          ValueError: if a step is negative or, in one pass, beyond its end.
        """
        end = self.steps_per_epoch if self.one_pass else sys.maxsize
        stop = end if stop_step is None else stop_step
        if start_step < 0 or stop < 0 or stop > end:
            raise ValueError(f"steps {start_step} to {stop} are not in 0 to {end}")
        return self._iterate(start_step, stop, num_threads)

    def _iterate(self, start: int, stop: int, num_threads: int) -> Iterator[Batch]:
        import grain

        if start >= stop:
            return
        options = grain.ReadOptions(
            num_threads=num_threads, prefetch_buffer_size=4 * num_threads if num_threads else 0
        )
        steps = grain.MapDataset.source(_Steps(self, start, stop))
        iterator = iter(steps.to_iter_dataset(options))
        try:
            yield from iterator
        finally:
            with contextlib.suppress(AttributeError):  # Grain before 0.2.16 has no close
                iterator.close()


class _Steps:
    """The steps of a range as Grain's random-access source."""

    def __init__(self, batches: Batches, start: int, stop: int) -> None:
        self._batches, self._start, self._count = batches, start, stop - start

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Batch:
        return self._batches[self._start + int(index)]

    def __repr__(self) -> str:
        return f"Batches from step {self._start}"
