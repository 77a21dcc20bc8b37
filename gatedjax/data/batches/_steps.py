"""What all batches share: random access by step, epochs, one pass, and making ahead of use."""

import abc
import contextlib
import operator
import sys
from collections.abc import Iterator

import numpy as np

Batch = dict[str, np.ndarray]


class StepBatches(abc.ABC):
    """Batches by step: endless training, or one pass of `steps_per_epoch` steps."""

    steps_per_epoch: int
    one_pass: bool = False

    @abc.abstractmethod
    def __getitem__(self, step: int) -> Batch:
        raise NotImplementedError

    def __len__(self) -> int:
        return self.steps_per_epoch

    def epoch(self, step: int) -> int:
        """Returns how many passes were complete before a step."""
        return step // self.steps_per_epoch

    def _position(self, step: int) -> tuple[int, int]:
        """The epoch of a step, and its place there."""
        step = operator.index(step)
        if step < 0 or (self.one_pass and step >= self.steps_per_epoch):
            end = f" and below {self.steps_per_epoch}" if self.one_pass else ""
            raise IndexError(f"step must be at least 0{end}, got {step}")
        return divmod(step, self.steps_per_epoch)

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
        steps = grain.MapDataset.source(_Range(self, start, stop))
        iterator = iter(steps.to_iter_dataset(options))
        try:
            yield from iterator
        finally:
            with contextlib.suppress(AttributeError):  # Grain before 0.2.16 has no close
                iterator.close()


class _Range:
    """The steps of a range as Grain's random-access source."""

    def __init__(self, batches: StepBatches, start: int, stop: int) -> None:
        self._batches, self._start, self._count = batches, start, stop - start

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Batch:
        return self._batches[self._start + int(index)]

    def __repr__(self) -> str:
        return f"{type(self._batches).__name__} from step {self._start}"
