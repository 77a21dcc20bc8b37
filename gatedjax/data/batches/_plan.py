"""The plan of batches: padded lengths, and the examples of each step by (seed, step)."""

import abc
import contextlib
import functools
import itertools
import operator
import sys
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from gatedjax._utils.types import FILLER_ID

# Name -> array with a row for each example; "weight" [B] is 0 at the filler rows of B rows.
Batch = dict[str, np.ndarray]


class StepBatches(abc.ABC):
    """A sequence of batches by step: endless training, or a pass of `steps_per_epoch` steps."""

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
        batches = grain.MapDataset.range(start, stop).map(self.__getitem__)
        iterator = iter(batches.to_iter_dataset(options))
        try:
            yield from iterator
        finally:
            with contextlib.suppress(AttributeError):  # Grain before 0.2.16 has no close
                iterator.close()


class PlannedBatches(StepBatches):
    """Batches with examples of a single bucket each, a base class of batches by step. A bucket has
    the examples that are padded to the same shape, so that it costs a single compilation. The last
    batch of a bucket may have fewer examples than rows.
    """

    def __init__(
        self,
        bucket: np.ndarray,  # int [n], the bucket of each example
        rows_of: Sequence[int],  # rows per batch in each bucket
        *,
        seed: int,
        shuffle: bool,  # False keeps the order of the examples within a bucket, in all epochs
        one_pass: bool,
        mixed: bool = True,  # False keeps the order in which the batches are filled
    ) -> None:
        self.seed, self.shuffle, self.one_pass, self._mixed = seed, shuffle, one_pass, mixed
        self._bucket = bucket
        self.rows_of = tuple(rows_of)
        counts = np.bincount(bucket, minlength=len(self.rows_of))
        self._per_bucket = -(-counts // np.array(self.rows_of))
        self.steps_per_epoch = int(self._per_bucket.sum())
        # Two epochs are cached, because prefetching threads reach the next epoch before the last
        # batches of this one are taken.
        self._plan = functools.lru_cache(maxsize=2)(self._make_plan)

    def _make_plan(self, epoch: int) -> list[np.ndarray]:
        """Returns the batches of an epoch in order, each an int array of positions of examples."""
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
        padded = int((self._per_bucket * np.array(self.rows_of) * np.array(cells)).sum())
        return 1.0 - real / padded

    def _columns(self, rows: np.ndarray, columns: Mapping[str, np.ndarray]) -> Batch:
        size = self.rows_of[self._bucket[rows[0]]]
        batch: Batch = {}
        for name, values in columns.items():
            batch[name] = np.full(size, FILLER_ID if name == "example_id" else 0, np.int32)
            batch[name][: len(rows)] = np.asarray(values)[rows]
        return batch | {"weight": (np.arange(size) < len(rows)).astype(np.float32)}


def check_sizes(**sizes: int | None) -> None:
    """Raises ValueError unless each keyword argument, a size by name, is at least 1."""
    for name, size in sizes.items():
        if size is None or size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def plan_buckets(lengths: ArrayLike, max_buckets: int) -> tuple[int, ...]:
    """Chooses padded lengths that minimise the total of padded tokens.

    Each text is padded to the smallest edge that is long enough; each edge costs a compilation. The
    result is optimal: with the distinct lengths l_1 < ... < l_U and n_i texts up to l_i, the least
    total for the first j lengths with k edges is

        best(k, j) = min over i < j of best(k - 1, i) + (n_j - n_i) l_j,

    which takes O(max_buckets U^2).

        >>> plan_buckets([3, 3, 4, 9], max_buckets=2)
        (4, 9)

    Args:
      lengths: int [n], each at least 1.
      max_buckets: the largest number of edges.

    Returns:
      Ascending edges, which are lengths of texts; the last is the longest. There are fewer than
      max_buckets if more would not reduce the padding.

    Raises:
      ValueError: if there are no lengths, a length is below 1, or max_buckets < 1.
    """
    lengths = np.asarray(lengths)
    if max_buckets < 1:
        raise ValueError(f"max_buckets must be at least 1, got {max_buckets}")
    if lengths.size == 0 or lengths.min() < 1:
        raise ValueError(
            f"lengths must not be empty, and each length must be at least 1, got {lengths!r:.80}"
        )
    sizes, counts = np.unique(lengths, return_counts=True)
    covered = np.concatenate([[0], np.cumsum(counts)])  # texts up to the first j lengths
    distinct = len(sizes)
    best = np.full(distinct + 1, np.inf)
    best[0] = 0.0
    choices = []
    for _ in range(min(max_buckets, distinct)):
        previous, best = best, np.full(distinct + 1, np.inf)
        # The cost of no lengths is 0 with any number of edges, so that a plan may have fewer edges.
        best[0] = 0.0
        choice = np.zeros(distinct + 1, int)
        for j in range(1, distinct + 1):
            totals = previous[:j] + (covered[j] - covered[:j]) * float(sizes[j - 1])
            choice[j] = int(np.argmin(totals))
            best[j] = totals[choice[j]]
        choices.append(choice)
    edges, j = [], distinct
    for choice in reversed(choices):
        # The best plan may need fewer edges than are allowed.
        if j == 0:
            break
        edges.append(int(sizes[j - 1]))
        j = choice[j]
    return tuple(reversed(edges))


def checked_edges(
    edges: Sequence[int] | None, lengths: np.ndarray, max_buckets: int
) -> tuple[int, ...]:
    """Returns `edges`, checked, or at most `max_buckets` padded lengths for texts of `lengths`."""
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
    """Returns an int32 array of zeros of `shape` with an array of ids at the start of each row."""
    full = np.zeros(shape, np.int32)
    # There may be fewer texts than rows; the other rows are filler.
    for line, row in zip(full, rows, strict=False):
        line[: len(row)] = row
    return full
