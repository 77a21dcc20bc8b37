"""Batches of images as sequences of rows."""

import functools

import numpy as np

from gatedjax._filler import FILLER_ID
from gatedjax.data.batches._steps import Batch, StepBatches
from gatedjax.data.sets._images import ImageSource


class ImageBatches(StepBatches):
    """Random access to the batches of endless training, or (`ImageBatches.eval`) of one pass.

    An image is a sequence: its rows from top to bottom. Each epoch permutes the images; the last
    batch is filled up with rows of weight 0 (black, length 0, label 0, example id -1). A batch is
    a pure function of (seed, step).

    A batch is a dict: rows f32 [B, R, C], the pixels over `source.scale` and so in [0, 1] (no mean
    is subtracted); lengths (R), label, example_id int32 [B]; weight f32 [B]. R and C are 28 (8 for
    scikit-learn's digits).

    Args:
      source: the images.
      batch_size: images of a batch.
      seed: of the order.
      shuffle: False keeps the order of the source, in every epoch.

    Raises:
      ValueError: for batch_size < 1 or no images.
    """

    def __init__(
        self, source: ImageSource, *, batch_size: int, seed: int = 0, shuffle: bool = True
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if len(source) == 0:
            raise ValueError("source: there are no images")
        self.source = source
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self.steps_per_epoch = -(-len(source) // batch_size)
        self.padding_fraction = 1.0 - len(source) / (self.steps_per_epoch * batch_size)
        """Share of the images of an epoch that are filler."""
        self._order = functools.lru_cache(maxsize=2)(self._make_order)

    @classmethod
    def eval(cls, source: ImageSource, *, batch_size: int) -> "ImageBatches":
        """Makes one ordered pass: `len` steps, every image exactly once."""
        batches = cls(source, batch_size=batch_size, shuffle=False)
        batches.one_pass = True
        return batches

    def _make_order(self, epoch: int) -> np.ndarray:
        if not self.shuffle:
            return np.arange(len(self.source))
        generator = np.random.default_rng(np.random.SeedSequence([self.seed, epoch]))
        return generator.permutation(len(self.source))

    def rows(self, step: int) -> np.ndarray:
        """Returns which images (positions in `source`) a batch holds, without filler.

        Raises:
          IndexError: if the step is negative, or beyond the end of one pass.
        """
        epoch, within = self._position(step)
        order = self._order(epoch if self.shuffle else 0)
        return order[within * self.batch_size : (within + 1) * self.batch_size]

    def __getitem__(self, step: int) -> Batch:
        chosen = self.rows(step)
        size = self.source.images.shape[1:]
        rows = np.zeros((self.batch_size, *size), np.float32)
        rows[: len(chosen)] = self.source.images[chosen] / np.float32(self.source.scale)

        def column(values: np.ndarray, filler: int) -> np.ndarray:
            full = np.full(self.batch_size, filler, np.int32)
            full[: len(chosen)] = values
            return full

        return {
            "rows": rows,
            "lengths": column(np.full(len(chosen), size[0]), 0),
            "label": column(self.source.labels[chosen], 0),
            "example_id": column(self.source.example_ids[chosen], FILLER_ID),
            "weight": (np.arange(self.batch_size) < len(chosen)).astype(np.float32),
        }
