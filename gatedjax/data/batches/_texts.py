"""Batches of texts by step, and batches with the number of their step for schedules."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from gatedjax.data.batches._encode import Encoded
from gatedjax.data.batches._plan import Batch, check_sizes, checked_edges
from gatedjax.data.batches._sequences import SequenceBatches


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
