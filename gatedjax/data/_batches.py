"""Batches by step: order, buckets and contents are a pure function of (seed, step)."""

import functools
from collections.abc import Sequence

import numpy as np

from gatedjax._filler import FILLER_ID
from gatedjax.data._buckets import plan_buckets
from gatedjax.data._encode import Encoded
from gatedjax.data._steps import Batch, StepBatches


class Batches(StepBatches):
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
        epoch, within = self._position(step)
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
