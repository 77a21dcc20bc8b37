"""Batches of images as sequences of rows."""

import numpy as np

from gatedjax.data.batches._plan import Batch, PlannedBatches, check_sizes
from gatedjax.data.sets._images import ImageSource


class ImageBatches(PlannedBatches):
    """Random access to the batches of endless training, or (`ImageBatches.eval`) of a pass.

    An image is a sequence: its rows from top to bottom. Each epoch permutes the images; the last
    batch is filled up with rows of weight 0 (black, length 0, label 0, example id -1). A batch is
    a pure function of (seed, step).

    A batch is a dict of arrays for B images: rows f32 [B, R, C], the pixels of images of R rows and
    C columns over `source.scale` and so in [0, 1] (no mean is subtracted); lengths (R), label,
    example_id int32 [B]; weight f32 [B]. R and C are 28 (8 for scikit-learn's digits).

    Args:
      source: an `ImageSource`, such as `load("mnist", "train")`.
      batch_size: images per batch.
      seed: seed of the order.
      shuffle: False keeps the order of the source, in all epochs.
      one_pass: True ends the batches after an epoch.

    Raises:
      ValueError: for batch_size < 1 or no images.

    Attributes:
      steps_per_epoch: the number of batches of an epoch.
      padding_fraction: share of filler rows in an epoch.
    """

    def __init__(
        self,
        source: ImageSource,
        *,
        batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        one_pass: bool = False,
    ) -> None:
        check_sizes(batch_size=batch_size)
        if len(source) == 0:
            raise ValueError("source must not be empty, got no images")
        self.source, self.batch_size = source, batch_size
        super().__init__(
            np.zeros(len(source), int),
            [batch_size],
            seed=seed,
            shuffle=shuffle,
            one_pass=one_pass,
            # All batches have the same shape, so that they need not be mixed.
            mixed=False,
        )
        self.padding_fraction = self._padding(len(source), [1])

    @classmethod
    def eval(cls, source: ImageSource, *, batch_size: int) -> "ImageBatches":
        """Returns an ordered pass: `len` batches, each image exactly once, not shuffled.

        `source` are the images, and `batch_size` is the number of images per batch.
        """
        return cls(source, batch_size=batch_size, shuffle=False, one_pass=True)

    def __getitem__(self, step: int) -> Batch:
        rows, source = self.rows(step), self.source
        size = source.images.shape[1:]
        pixels = np.zeros((self.batch_size, *size), np.float32)
        # A Python number as the divisor would give float64, which needs twice the memory.
        pixels[: len(rows)] = source.images[rows] / np.float32(source.scale)
        columns = {
            "lengths": np.full(len(source), size[0]),
            "label": source.labels,
            "example_id": source.example_ids,
        }
        return {"rows": pixels} | self._columns(rows, columns)
