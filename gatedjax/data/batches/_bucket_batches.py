"""What batches in buckets share: which examples a step has, a pure function of (seed, step)."""

import functools

import numpy as np

from gatedjax.data.batches._steps import StepBatches


class BucketBatches(StepBatches):
    """Batches whose examples come from one bucket each, so that a bucket has one shape.

    Each epoch permutes the examples, fills the batches of every bucket in that order and permutes
    the batches; the sequence of shapes is the same for every seed. The last batch of a bucket may
    have fewer examples than rows.

    Args:
      bucket: int [n], the bucket of every example.
      buckets: how many there are; some may be empty.
      batch_size: rows of a batch.
      seed: of the order.
      shuffle: False keeps the order of the examples within a bucket, in every epoch.

    Raises:
      ValueError: for batch_size < 1 or no examples.
    """

    def __init__(
        self,
        bucket: np.ndarray,
        buckets: int,
        *,
        batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if len(bucket) == 0:
            raise ValueError("encoded: there are no texts")
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self._bucket = bucket
        self._per_bucket = -(-np.bincount(bucket, minlength=buckets) // batch_size)
        self.steps_per_epoch = int(self._per_bucket.sum())
        self._plan = functools.lru_cache(maxsize=2)(self._make_plan)

    def _make_plan(self, epoch: int) -> list[np.ndarray]:
        """The row numbers of every batch of an epoch."""
        order = np.arange(len(self._bucket))
        generator = np.random.default_rng(np.random.SeedSequence([self.seed, epoch]))
        if self.shuffle:
            order = generator.permutation(order)
        plan = []
        for bucket in range(len(self._per_bucket)):
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

    def _column(self, values: np.ndarray, rows: np.ndarray, filler: int = 0) -> np.ndarray:
        """One int32 per row: the values of some examples, then filler."""
        full = np.full(self.batch_size, filler, np.int32)
        full[: len(rows)] = values[rows]
        return full

    def _weight(self, rows: np.ndarray) -> np.ndarray:
        """1 for rows with an example, 0 for filler."""
        return (np.arange(self.batch_size) < len(rows)).astype(np.float32)


def pad_rows(rows: list[np.ndarray], shape: tuple[int, ...], filler: int = 0) -> np.ndarray:
    """Puts int32 arrays of any length into the rows of one array; what is left over is filler."""
    full = np.full(shape, filler, np.int32)
    for line, row in zip(full, rows, strict=False):
        line[: len(row)] = row
    return full
