"""Batches by step: order, buckets and contents are a pure function of (seed, step)."""

from collections.abc import Sequence

import numpy as np

from gatedjax._filler import FILLER_ID
from gatedjax.data.batches._bucket_batches import BucketBatches, pad_rows
from gatedjax.data.batches._buckets import plan_buckets
from gatedjax.data.batches._encode import Encoded
from gatedjax.data.batches._steps import Batch


class Batches(BucketBatches):
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
        super().__init__(
            np.searchsorted(np.array(self.edges), lengths),
            len(self.edges),
            batch_size=batch_size,
            seed=seed,
            shuffle=shuffle,
        )
        padded = int((self._per_bucket * batch_size * np.array(self.edges)).sum())
        self.padding_fraction = 1.0 - int(lengths.sum()) / padded
        """Share of the cells of an epoch that hold no word, filler rows included."""

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

    def __getitem__(self, step: int) -> Batch:
        rows = self.rows(step)
        encoded, size = self.encoded, self.edges[self._bucket[rows[0]]]
        return {
            "tokens": pad_rows([encoded.ids[row] for row in rows], (self.batch_size, size)),
            "lengths": self._column(encoded.lengths, rows),
            "label": self._column(encoded.labels, rows),
            "example_id": self._column(encoded.example_ids, rows, FILLER_ID),
            "weight": self._weight(rows),
        }
