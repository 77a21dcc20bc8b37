"""The output of a run: lock, metrics.jsonl, TensorBoard events, checkpoints and progress."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from gatedjax.training._run_files import check_workdir
from gatedjax.training._verify import add_kill
from gatedjax.training.checkpoint import CheckpointNotSaved, CheckpointStore
from gatedjax.training.config import TrainConfig
from gatedjax.training.distributed import is_main
from gatedjax.training.lock import WorkdirLock
from gatedjax.training.log import MetricsLog
from gatedjax.training.progress import ProgressView
from gatedjax.training.step import TrainState

# The first steps of a run compile, and a trace of them would show little else.
PROFILE_FROM = 10

Params = Any
"""A tree of parameters."""
Line = dict[str, Any]
"""A line of metrics.jsonl, or another JSON object."""
OnEvent = Callable[[str, int], None] | None
OnLog = Callable[[Line], None] | None


def _tensorboard(workdir: Path) -> Any:
    for module in ("tensorboardX", "torch.utils.tensorboard"):
        try:
            writer = __import__(module, fromlist=["SummaryWriter"]).SummaryWriter
        except ImportError:
            continue
        return writer(str(workdir / "tensorboard"))
    return None


def _refuse_files(config: TrainConfig) -> None:
    for name in ("tensorboard", "profile_steps"):
        if getattr(config, name):
            raise ValueError(
                f"workdir must be a folder, because {name}={getattr(config, name)!r} writes into "
                "it, got None: give fit a workdir"
            )


class Workdir:
    """The work folder of a run, with its log, its checkpoints and its progress display; at the end
    of its block all saves are complete. No file is written before `take`, so that all checks come
    first. With several processes only process 0 writes.
    """

    def __init__(
        self,
        path: str | Path | None,
        config: TrainConfig,
        on_event: OnEvent,
        on_log: OnLog,
        several: bool,
    ) -> None:
        if path == "":
            # `Path("")` is the current folder, which an empty string is unlikely to mean.
            raise ValueError("workdir must be the path of a folder, got '': give None for no files")
        self.path = None if path is None else Path(path)
        self.config, self.several = config, several
        self.reports = is_main() or not several
        self.event = add_kill(on_event)
        self.store: CheckpointStore | None = None
        if self.path is None:
            _refuse_files(config)
        elif self.reports:
            self.store = CheckpointStore(
                self.path / "checkpoints", config.keep_checkpoints, every=config.checkpoint_every
            )
        self._is_open = False
        self.view = ProgressView(config.num_steps, 0, False)
        self._on_log = on_log
        self._lock: WorkdirLock | None = None
        self._log: MetricsLog | None = None
        self._board: Any = None

    def __enter__(self) -> "Workdir":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            try:
                # A failure of the display must not keep a save in progress from ending, so
                # `finally` closes the store.
                self.view.close()
                if self._board is not None:
                    self._board.close()
            finally:
                if self.store is not None:
                    self.store.close()
            if isinstance(error, CheckpointNotSaved):
                self.check()
        except CheckpointNotSaved:
            # If the save failed because the folder is gone, WorkdirLost is the clearer error.
            self.check()
            raise
        finally:
            try:
                if self._log is not None:
                    self._log.close()
            finally:
                # The lock is released after the log is closed, because the next run may write as
                # soon as it is free, and also if the log cannot be closed, as on a full disk.
                if self._lock is not None:
                    self._lock.release()

    def take(self) -> MetricsLog:
        """Creates and locks the folder; `begin` of the returned log comes before its first line."""
        assert self.path is not None, "a run without a folder has no log"
        self._is_open = True
        self.path.mkdir(parents=True, exist_ok=True)
        # The lock file marks a folder as that of a run, so foreign files are looked for before it
        # is created.
        check_workdir(self.path)
        self._lock = WorkdirLock(self.path)
        self._log = MetricsLog(self.path / "metrics.jsonl")
        return self._log

    def begin_without_files(self) -> None:
        """Begins a run without a folder: from now on `write` passes lines to `on_log`."""
        self._is_open = True

    def show(self, step: int, resumed: bool) -> None:
        """Starts the progress display, and TensorBoard events if they are configured."""
        config = self.config
        self.view = ProgressView(config.num_steps, step, config.progress and self.reports)
        if config.tensorboard and self.reports and self.path is not None:
            self._board = _tensorboard(self.path)
            if self._board is None:
                self.view.message("no TensorBoard events: tensorboardX is not installed")
        if resumed:
            self.view.message(f"resuming {self.path} from step {step}")
        self.view.phase("train")

    def announce_stop(self) -> None:
        """Prints that the run is going to stop because of a signal."""
        when = "at the next log line" if self.several else "after this step"
        self.view.notice(f"stopping {when}; again to stop now")

    def write(self, line: Line) -> None:
        """Appends a line with "step" and "split" to metrics.jsonl, `on_log` and TensorBoard."""
        if not self._is_open:
            return
        if self._log is not None:
            self._log.write(line)
        if self._on_log is not None:
            # The callback gets a copy, because TensorBoard reads the line after it.
            self._on_log(dict(line))
        if self._board is not None:
            for name, value in line.items():
                if isinstance(value, float) and name != "time":
                    self._board.add_scalar(f"{line['split']}/{name}", value, line["step"])

    def save(self, step: int, state: TrainState, best: Params, record: Line) -> None:
        """Saves a checkpoint in the background, after syncing the log to disk."""
        assert self.store is not None, "a run without a folder saves no checkpoint"
        self.check()
        if self._log is not None:
            # A checkpoint that survives a power cut must find the lines up to its step in the log.
            self._log.sync()
        self.store.save(step, state, best, record)

    def report_saved(self) -> None:
        """Calls `on_event("saved", step)` for each checkpoint that has become complete."""
        for step in () if self.store is None else self.store.poll():
            self.event("saved", step)

    def settle(self) -> None:
        """Waits until all checkpoints are on disk, and calls `on_event("saved", step)` for each."""
        if self.store is not None:
            self.store.wait()
            self.check()
            self.report_saved()

    def check(self) -> None:
        """Raises WorkdirLost if the path no longer leads to the folder that was locked."""
        if self._lock is not None:
            self._lock.check()


class Profile:
    """A profiler trace in WORKDIR/profile, if the training option `profile_steps` is above 0."""

    def __init__(self, work: Workdir) -> None:
        self._work, self._folder = work, Path(work.path or "") / "profile"
        self._running = False

    def before_step(self, done: int, state: TrainState) -> None:
        """Starts or stops the trace before a step."""
        steps = self._work.config.profile_steps
        if steps and done == PROFILE_FROM:
            jax.profiler.start_trace(str(self._folder))
            self._running = True
        elif done == PROFILE_FROM + steps:
            self.stop(state)

    def stop(self, state: TrainState) -> None:
        """Waits for the state and writes the trace, if a trace is running."""
        if self._running:
            jax.block_until_ready(state)
            jax.profiler.stop_trace()
            self._running = False
            self._work.view.message(f"profile: {self._folder}")
