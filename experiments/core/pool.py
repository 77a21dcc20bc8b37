"""Several runs at once, each in a process of its own, within a time."""

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from experiments.core.plan import OPTIONS, Task, last_step
from experiments.core.records import read_json
from gatedjax._utils.terminal import printable

GRACE = 120.0
"""Seconds that a run has to save itself after SIGTERM; a step or a compilation may be under way."""
POLL = 0.2
"""Seconds between two looks at the processes."""
WANTED = ("results", "runs", "seeds", "data_dir", "manual_dir", "embeddings", "cpu_devices")
"""Options of a run that `reproduce` itself decides."""


def module_of(task: Task) -> str:
    """The module that has the `PAPER` of a task."""
    return f"experiments.{task.job.paper.name}.paper"


def arguments(task: Task) -> list[str]:
    """The command line of the paper's tables that makes one run."""
    options = task.job.options
    found = [options.what, "--cell", f"{task.cell.data}/{task.cell.variant}/{task.seed}"]
    # the plan takes OPTIONS from the records of a table: a worker without them makes another run
    for name in dict.fromkeys((*WANTED, *OPTIONS)):
        value = getattr(options, name, None)
        if value is not None:
            found += [f"--{name.replace('_', '-')}", str(value)]
    return [*found, "--data", task.cell.data]


def measured_rate(task: Task, steps: int, limit: float | None = None) -> float | None:
    """Seconds per step of a short run in a folder that is removed, without compilation.

    None if it failed (the run itself will say why) or took more than `limit` seconds.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = {"results": Path(folder) / "results", "runs": Path(folder) / "runs"}
        options = dataclasses.replace(task.job.options, num_steps=steps, **place)
        short = dataclasses.replace(task, job=dataclasses.replace(task.job, options=options))
        cores = sorted(os.sched_getaffinity(0)) if options.cpu_devices == 1 else [None]
        with _pinned(cores[0]), contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command_of(short), capture_output=True, check=False, timeout=limit)
        record = read_json(short.record) if short.record.exists() else {}
    rate = record.get("seconds_per_step")
    return None if rate is None else float(rate)


def command_of(task: Task) -> list[str]:
    """What makes a run in a process of its own."""
    command = [sys.executable, "-m", "experiments.core.worker", str(os.getpid())]
    return [*command, module_of(task), *arguments(task)]


@dataclasses.dataclass
class Worker:
    """A run at work."""

    task: Task
    process: "subprocess.Popen[bytes]"
    log: Path
    core: int | None
    started: float
    told: float | None = None
    """When it was asked to stop."""

    @property
    def step(self) -> int:
        """The last one that it logged."""
        return last_step(self.task.workdir) or self.task.done

    def stop(self, now: float) -> None:
        """SIGTERM, once: a second one would end it unsaved. After `GRACE` it is killed."""
        if self.told is None:
            self.told = now
            self.process.send_signal(signal.SIGTERM)
        elif now - self.told > GRACE:
            self.process.kill()

    def last_line(self) -> str:
        """The last words of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")
        return printable(next((line for line in reversed(lines) if line.strip()), ""))


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a run ended: "done", "stopped" (saved, the same command continues) or "failed"."""

    task: Task
    how: str
    seconds: float
    why: str = ""


@dataclasses.dataclass
class Pool:
    """Trains tasks in their order until all are done or the time is up.

    A run is begun if its estimate fits into the time that is left. One that has a checkpoint is
    continued in any case, and one of unknown cost is begun: what they reach is saved when the time
    is up, and the same command continues it.

    Attributes:
      tasks: still to do; those that are begun are taken out.
      workers: how many at once.
      seconds: the time.
      pinned: whether every worker gets a core of its own.
      on_event: called with ("begun" | "ended", Worker or Ended), and ("tick", Pool) between.
    """

    tasks: list[Task]
    workers: int
    seconds: float
    pinned: bool
    on_event: Callable[[str, Any], None]
    running: list[Worker] = dataclasses.field(default_factory=list)
    ended: list[Ended] = dataclasses.field(default_factory=list)
    too_long: list[Task] = dataclasses.field(default_factory=list)
    signal: int | None = None
    began: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds of the time."""
        return self.began + self.seconds - time.monotonic()

    def run(self) -> None:
        """Returns when no process is left; the signal that ended it early is in `signal`."""
        with self._signals():
            try:
                while self.running or (self.tasks and not self._over()):
                    self._reap()
                    if self._over():
                        for worker in self.running:
                            worker.stop(time.monotonic())
                    else:
                        self._fill()
                    self.on_event("tick", self)
                    if self.running:
                        time.sleep(POLL)
            finally:
                for worker in self.running:  # an error here must leave nobody at work
                    worker.stop(time.monotonic())
                for worker in self.running:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        worker.process.wait(GRACE)
                    worker.process.kill()
        self.too_long += self.tasks

    def fits(self, task: Task) -> bool:
        """Whether a run may begin now; see the class."""
        return task.done > 0 or task.left is None or task.left <= self.left

    def _over(self) -> bool:
        return self.signal is not None or self.left <= 0

    def _fill(self) -> None:
        while self.tasks and len(self.running) < self.workers:
            task = self.tasks.pop(0)
            if self.fits(task):
                self._begin(task)
            else:
                self.too_long.append(task)

    def _begin(self, task: Task) -> None:
        log = task.workdir.parent / "logs" / f"{task.workdir.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        allowed = sorted(os.sched_getaffinity(0)) if self.pinned else []
        busy = {worker.core for worker in self.running}
        core = next((one for one in allowed if one not in busy), None)
        # several processes may share an accelerator; none may take all of its memory
        environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ}
        with log.open("ab") as file, _pinned(core):
            process = subprocess.Popen(
                command_of(task),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                # Ctrl-C reaches the parent alone, which sends each worker one signal
                start_new_session=True,
            )
        self.running.append(Worker(task, process, log, core, time.monotonic()))
        self.on_event("begun", self.running[-1])

    def _reap(self) -> None:
        for worker in list(self.running):
            status = worker.process.poll()
            if status is None:
                continue
            self.running.remove(worker)
            how, why = "done", ""
            if not worker.task.is_over:
                # a run that saved itself after SIGTERM ends with 0, and leaves no record
                asked = worker.told is not None or status in (0, 130, -2, -15)
                how = "stopped" if asked else "failed"
                why = f"at step {worker.step}" if asked else worker.last_line()
            ended = Ended(worker.task, how, time.monotonic() - worker.started, why)
            self.ended.append(ended)
            self.on_event("ended", ended)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        def note(number: int, frame: FrameType | None) -> None:
            self.signal = number

        before = {n: signal.signal(n, note) for n in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextlib.contextmanager
def _pinned(core: int | None) -> Iterator[None]:
    """A process that is started inside has one core, which XLA counts before it makes threads."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
