"""Sums of metrics, speeds and skipped updates between two lines of metrics.jsonl."""

import dataclasses
import math
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gatedjax.training._record import Record
from gatedjax.training._workdir import Line, Workdir
from gatedjax.training.metrics import Metrics, to_floats
from gatedjax.training.task import Batch

# The limit of steps in the queue of the device. Two keep the device busy. With more steps a signal
# would take effect later, because the run waits for all of them.
IN_FLIGHT = 2
# Arrays of tokens that batches may have, with their lengths. Padding and tokens/s count these.
_TEXTS = (("lengths", "tokens"), ("document_lengths", "document"), ("query_lengths", "query"))


class NonFiniteError(RuntimeError):
    """Raised after too many updates in a row whose loss, gradient or parameters are not finite.

    Attributes:
      step: the step, from 1, of the last of these updates.
    """

    def __init__(self, message: str, step: int) -> None:
        super().__init__(message)
        self.step = step


@jax.jit
def _sum(a: Metrics, b: Metrics) -> Metrics:
    return jax.tree.map(jnp.add, a, b)


class Update(NamedTuple):
    """An update that the device may have skipped."""

    step: int  # the number of steps before the update
    skipped: jax.Array  # 1.0 if skipped, with an axis over several runs
    running: list[int]
    example_ids: list[Any]  # per run an array [B], -1 for filler rows, or None


def _first_ids(ids: list[int], most: int = 8) -> str:
    suffix = f", and {len(ids) - most} more in metrics.jsonl" if len(ids) > most else ""
    return f"{', '.join(map(str, ids[:most]))}{suffix}"


def floats_of(metrics: Metrics) -> list[dict[str, float]]:
    """Returns a list with a dict for each run, from the name of a metric to its mean as a float."""
    host = jax.tree.map(np.atleast_1d, jax.device_get(metrics))
    count = max((len(ratio.total) for ratio in host.values()), default=1)
    return [to_floats(jax.tree.map(lambda x, i=i: x[i], host)) for i in range(count)]


@dataclasses.dataclass
class Interval:
    """Times and counts of the steps since the last line of metrics.jsonl."""

    began: float = dataclasses.field(default_factory=time.perf_counter)
    compiling: float = 0.0
    steps: int = 0
    tokens: int = 0
    cells: int = 0  # tokens and padding

    def count(self, batch: Batch) -> None:
        """Adds a step: the number of real tokens, and of tokens and padding, in its batch."""
        self.steps += 1
        for lengths, cells in _TEXTS:
            if lengths in batch and cells in batch:
                self.tokens += int(np.sum(batch[lengths]))
                self.cells += math.prod(np.shape(batch[cells]))

    def speeds(self) -> dict[str, float]:
        """Returns speeds, without the time of compilation, and the share of padding, by name."""
        # An interval may be shorter than the resolution of the clock, so the divisor has a lower
        # limit.
        seconds = max(time.perf_counter() - self.began - self.compiling, 1e-9)
        speeds = {
            "steps_per_s": round(self.steps / seconds, 3),
            "compile_s": round(self.compiling, 3),
        }
        if self.cells:
            speeds["tokens_per_s"] = round(self.tokens / seconds, 1)
            speeds["padding"] = round(1 - self.tokens / self.cells, 4)
        return speeds


class Meter:
    """The metrics of a run, or of several runs side by side, since their last lines."""

    def __init__(
        self, work: Workdir, records: list[Record], names: list[dict[str, float]], pending: Metrics
    ) -> None:
        self.records, self.names, self.pending = records, names, pending
        # Only several runs have names for their lines, such as {"seed": 1}.
        self.alone = not names[0]
        self.interval = Interval()
        self._work = work
        self._updates: list[Update] = []

    def running(self) -> list[int]:
        """Returns the numbers, from 0, of the runs that have not ended."""
        return [number for number, record in enumerate(self.records) if record.finished is None]

    def add(self, step: int, metrics: Metrics, batches: list[Batch]) -> None:
        """Adds the metrics of an update to the sums, and waits for the update two steps earlier."""
        self.pending = _sum(self.pending, metrics) if self.pending else metrics
        example_ids = [batch.get("example_id") for batch in batches]
        skipped = metrics["skipped"].total
        self._updates.append(Update(step, skipped, self.running(), example_ids))
        if len(self._updates) > IN_FLIGHT:
            jax.block_until_ready(self._updates[-1 - IN_FLIGHT].skipped)
        if self.alone:
            self.interval.count(batches[0])

    def title(self, number: int) -> str:
        """Returns the part of a message that names a run, such as ", seed 1"."""
        if self.alone:
            return ": evaluation"
        values = {k: v if isinstance(v, int) else f"{v:g}" for k, v in self.names[number].items()}
        return "".join(f", {name} {value}" for name, value in values.items())

    def write(self, number: int, line: Line) -> None:
        """Writes a line of metrics.jsonl for run `number`."""
        alone = {"time": round(time.time(), 3)} if self.alone else {}
        self._work.write(line | self.names[number] | alone)

    def log(self, step: int, rates: dict[str, np.ndarray]) -> dict[str, float]:
        """Writes the mean metrics of each unfinished run to metrics.jsonl, and empties the sums."""
        self.check_skipped()
        values = floats_of(self.pending)
        speeds = self.interval.speeds() if self.alone else {}
        rows = {name: np.broadcast_to(rate, len(values)) for name, rate in rates.items()}
        lines = {
            number: values[number]
            | {name: float(row[number]) for name, row in rows.items()}
            | speeds
            for number in self.running()
        }
        for number, line in lines.items():
            self.write(number, {"split": "train", "step": step, **line})
        names = next(iter(lines.values()))
        means = {k: float(np.mean([line[k] for line in lines.values()])) for k in names}
        self._work.view.log(step, means)
        # The sums are reset after the lines are written, so that each line has the mean of a single
        # interval.
        self.pending, self.interval = {}, Interval()
        return means

    def check_skipped(self) -> None:
        """Writes a line for each skipped update; raises NonFiniteError after too many in a row."""
        updates, self._updates = self._updates, []
        # All flags are fetched in a single transfer, because each transfer waits for the device.
        flags = jax.device_get([update.skipped for update in updates])
        for update, skipped in zip(updates, map(np.atleast_1d, flags), strict=True):
            for number, record in enumerate(self.records):
                if number in update.running and skipped[number]:
                    record.skipped_in_a_row += 1
                    self._report_skipped(number, record, update)
                else:
                    record.skipped_in_a_row = 0

    def _report_skipped(self, number: int, record: Record, update: Update) -> None:
        """Writes a line of metrics.jsonl about a skipped update, or raises NonFiniteError."""
        step, limit = update.step + 1, self._work.config.max_skipped
        example_ids = update.example_ids[number]
        # Filler rows have the id -1 and belong to no example.
        ids = [] if example_ids is None else [int(i) for i in example_ids if i >= 0]
        self.write(number, {"split": "skipped", "step": step, "example_id": ids})
        shown_ids = _first_ids(ids)
        if self.alone:
            self._work.view.message(
                f"step {step}: loss, gradient or updated parameters are not finite, update "
                f"skipped; examples {shown_ids}"
            )
        if record.skipped_in_a_row <= limit:
            return
        message = (
            f"{record.skipped_in_a_row} updates in a row had a loss, gradient or updated "
            f"parameters that are not finite (limit {limit}), the last at step {step} with "
            f"examples {shown_ids}"
        )
        if not self.alone:
            raise NonFiniteError(f"seed {self.names[number]['seed']}: {message}", step)
        raise NonFiniteError(
            f"{message}. {self._saved_before()}Look for non-finite inputs, or lower the learning "
            "rate in another workdir.",
            step,
        )

    def _saved_before(self) -> str:
        if self._work.path is None:
            return ""
        return (
            f"The checkpoints in {self._work.path} were saved before these steps, or after steps "
            "that changed no parameter. "
        )
