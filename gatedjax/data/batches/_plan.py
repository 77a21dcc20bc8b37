"""The plan of batches: the examples of each step, a pure function of (seed, step)."""

import abc
import contextlib
import functools
import itertools
import operator
import sys
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from gatedjax._utils.filler import FILLER_ID
from gatedjax.data.batches._buckets import plan_buckets

Batch = dict[str, np.ndarray]


class StepBatches(abc.ABC):
    """A sequence of batches by step: endless training, or a pass of `steps_per_epoch` steps.

    A batch is a dict of arrays: name -> array with B rows, a row per example. `batches[step]` is
    the batch of a step, from 0. The class is abstract: a subclass, such as `Batches`, defines
    `__getitem__` and sets the attributes.

    Attributes:
      steps_per_epoch: the number of batches of an epoch.
      one_pass: True if the batches end after an epoch.
    """

    steps_per_epoch: int
    one_pass: bool = False

    @abc.abstractmethod
    def __getitem__(self, step: int) -> Batch:
        raise NotImplementedError

    def __len__(self) -> int:
        return self.steps_per_epoch

    def epoch(self, step: int) -> int:
        """Returns the number of complete passes before a step, which is counted from 0."""
        return step // self.steps_per_epoch

    def _position(self, step: int) -> tuple[int, int]:
        """Returns (epoch, index of the step in the epoch), both from 0.

        Raises IndexError if the step is negative or beyond the end of a pass.
        """
        # This accepts integers of NumPy and refuses floats.
        step = operator.index(step)
        if step < 0 or (self.one_pass and step >= self.steps_per_epoch):
            end = f" and below {self.steps_per_epoch}" if self.one_pass else ""
            raise IndexError(f"step must be at least 0{end}, got {step}")
        return divmod(step, self.steps_per_epoch)

    def __iter__(self) -> Iterator[Batch]:
        """Yields the batches of the first epoch."""
        return (self[step] for step in range(self.steps_per_epoch))

    def iterate(
        self, start_step: int = 0, stop_step: int | None = None, *, num_threads: int = 2
    ) -> Iterator[Batch]:
        """Yields the batches from a step on, equal to those by index.

        Grain prefetches batches if it is installed; otherwise each batch is made on request.

        Args:
          start_step: the first step, from 0.
          stop_step: the step after the last; None means the end of a pass, or no end in training.
          num_threads: threads that prefetch batches; 0 makes each batch on request.

        Yields:
          The batch of each step, a dict of arrays with a row per example.

        Raises:
          ValueError: if a step is negative or beyond the end of a pass.
        """
        end = self.steps_per_epoch if self.one_pass else sys.maxsize
        stop = end if stop_step is None else stop_step
        if start_step < 0 or stop < 0 or stop > end:
            raise ValueError(
                f"start_step and stop_step must be in [0, {end}], got {start_step} and {stop}"
            )
        # The checks are outside of the generator, so that they fail in the call and not at the
        # first batch.
        return self._iterate(start_step, stop, num_threads)

    def _iterate(self, start: int, stop: int, num_threads: int) -> Iterator[Batch]:
        if start >= stop:
            return
        try:
            import grain
        except ImportError:  # Grain only prefetches
            yield from (self[step] for step in range(start, stop))
            return
        options = grain.ReadOptions(
            num_threads=num_threads, prefetch_buffer_size=4 * num_threads if num_threads else 0
        )
        steps = grain.MapDataset.source(_Range(self, start, stop))
        iterator = iter(steps.to_iter_dataset(options))
        try:
            yield from iterator
        finally:
            with contextlib.suppress(AttributeError):  # Grain before 0.2.16 has no close
                iterator.close()


class _Range:
    """The batches of the steps from `start` to `stop` - 1 as a random-access source of Grain.

    The entry at index i is the batch of the step `start` + i.

    Args:
      batches: batches by step, a `StepBatches`.
      start: the first step.
      stop: the step after the last.
    """

    def __init__(self, batches: StepBatches, start: int, stop: int) -> None:
        self._batches, self._start, self._count = batches, start, stop - start

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Batch:
        return self._batches[self._start + int(index)]

    def __repr__(self) -> str:
        return f"{type(self._batches).__name__} from step {self._start}"


class PlannedBatches(StepBatches):
    """Batches with examples of a single bucket each, a base class of batches by step.

    A subclass defines `__getitem__`, which makes the batch of a step from the examples at the
    positions `rows(step)`. A bucket is a group of examples that are padded to the same shape, so
    that a program is compiled only once for each bucket.

    Each epoch permutes the examples, fills the batches of each bucket in that order and permutes
    the batches. The sequence of shapes does not depend on the seed. The last batch of a bucket may
    have fewer examples than rows.

    Args:
      bucket: int [n], the bucket, from 0, of each of n examples.
      rows_of: rows per batch in each bucket; a bucket may be empty.
      seed: seed of the order.
      shuffle: False keeps the order of the examples within a bucket, in all epochs.
      one_pass: True ends the batches after an epoch.
      mixed: False keeps the batches in the order in which they were filled.

    Attributes:
      rows_of: rows per batch in each bucket.
      steps_per_epoch: the number of batches of an epoch.
      seed, shuffle, one_pass: the arguments of these names.
    """

    def __init__(
        self,
        bucket: np.ndarray,
        rows_of: Sequence[int],
        *,
        seed: int,
        shuffle: bool,
        one_pass: bool,
        mixed: bool = True,
    ) -> None:
        self.seed, self.shuffle, self.one_pass, self._mixed = seed, shuffle, one_pass, mixed
        self._bucket = bucket
        self.rows_of = tuple(rows_of)
        """Rows per batch in each bucket."""
        counts = np.bincount(bucket, minlength=len(self.rows_of))
        self._per_bucket = -(-counts // np.array(self.rows_of))
        self.steps_per_epoch = int(self._per_bucket.sum())
        # Two epochs are cached, because prefetching threads reach the next epoch before the last
        # batches of this one are taken.
        self._plan = functools.lru_cache(maxsize=2)(self._make_plan)

    def _make_plan(self, epoch: int) -> list[np.ndarray]:
        """Returns the batches of an epoch in order, each an int array of positions of examples.

        `epoch` is the number of the epoch, from 0.
        """
        order = np.arange(len(self._bucket))
        if self.shuffle:
            # Seed and epoch determine the order, so that a continued run needs no state of a
            # generator.
            generator = np.random.default_rng(np.random.SeedSequence([self.seed, epoch]))
            order = generator.permutation(order)
        plan = []
        for bucket, size in enumerate(self.rows_of):
            rows = order[self._bucket[order] == bucket]
            plan += [rows[i : i + size] for i in range(0, len(rows), size)]
        if self.shuffle and self._mixed:
            # The order of the buckets does not depend on the seed, so that runs with different
            # seeds have batches of equal shapes and can be trained side by side.
            shapes = np.random.default_rng(np.random.SeedSequence([epoch]))
            plan = [plan[i] for i in shapes.permutation(len(plan))]
        return plan

    def rows(self, step: int) -> np.ndarray:
        """Returns int [at most B]: the positions of the examples in the batch of a step.

        B is the number of rows of the batch. Filler rows have no position.

        Raises:
          IndexError: if the step is negative or beyond the end of a pass.
        """
        epoch, within = self._position(step)
        # Without shuffling all epochs have the same plan, so it is computed only once.
        return self._plan(epoch if self.shuffle else 0)[within]

    def _padding(self, real: int, cells: Sequence[int]) -> float:
        """Returns the share, in [0, 1], of padded cells in an epoch.

        A cell is a position in a row. `real` is the number of cells of all examples that are not
        padding, and `cells` the padded number of cells of a row in each bucket.
        """
        padded = int((self._per_bucket * np.array(self.rows_of) * np.array(cells)).sum())
        return 1.0 - real / padded

    def _columns(self, rows: np.ndarray, columns: Mapping[str, np.ndarray]) -> Batch:
        """Returns the batch of the examples at the positions `rows`, filled up to the batch size.

        `columns` maps names to a value for each of n examples, [n], and B is the batch size. The
        batch has an int32 array [B] for each name, 0 at filler rows (-1 in "example_id"), and
        "weight", float32 [B]: 1 at real rows, 0 at filler rows.
        """
        size = self.rows_of[self._bucket[rows[0]]]
        batch: Batch = {}
        for name, values in columns.items():
            batch[name] = np.full(size, FILLER_ID if name == "example_id" else 0, np.int32)
            batch[name][: len(rows)] = np.asarray(values)[rows]
        return batch | {"weight": (np.arange(size) < len(rows)).astype(np.float32)}


def check_sizes(**sizes: int | None) -> None:
    """Raises ValueError if a keyword argument, a size by name, is below 1; None is allowed."""
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def checked_edges(
    edges: Sequence[int] | None, lengths: np.ndarray, max_buckets: int
) -> tuple[int, ...]:
    """Returns the padded lengths of the buckets, in ascending order.

    They are the given `edges`, or for None at most `max_buckets` edges that `plan_buckets` chooses
    for the `lengths` [n] of the n texts. Raises ValueError if the edges do not ascend from at least
    1 or the longest text does not fit.
    """
    if edges is None:
        return plan_buckets(lengths, max_buckets)
    edges = tuple(int(edge) for edge in edges)
    ascending = all(a < b for a, b in itertools.pairwise(edges))
    if not edges or not ascending or edges[0] < 1:
        raise ValueError(f"bucket_edges must ascend from at least 1, got {edges}")
    if edges[-1] < lengths.max():
        raise ValueError(
            f"bucket_edges must end with at least {lengths.max()}, the longest text, got {edges}"
        )
    return edges


def pad_rows(rows: Sequence[np.ndarray], shape: tuple[int, int]) -> np.ndarray:
    """Returns an int32 array of zeros of `shape` with an array of ids at the start of each row.

    There may be fewer arrays than rows; no array may be longer than a row.
    """
    full = np.zeros(shape, np.int32)
    # There may be fewer texts than rows; the other rows are filler.
    for line, row in zip(full, rows, strict=False):
        line[: len(row)] = row
    return full
