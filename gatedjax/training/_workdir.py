"""What a run leaves and tells: its lock, metrics.jsonl, TensorBoard, checkpoints, events."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from gatedjax.training._run_files import check_workdir
from gatedjax.training._verify import killer
from gatedjax.training.checkpoint import CheckpointNotSaved, CheckpointStore
from gatedjax.training.config import TrainConfig
from gatedjax.training.distributed import is_main
from gatedjax.training.lock import WorkdirLock
from gatedjax.training.log import MetricsLog
from gatedjax.training.progress import ProgressView
from gatedjax.training.step import TrainState

# The first steps of a run compile; a trace of them would show little else.
PROFILE_FROM = 10

Params = Any
"""A tree of parameters."""
Line = dict[str, Any]
"""A line of metrics.jsonl, or another JSON object."""
OnEvent = Callable[[str, int], None] | None
OnLog = Callable[[Line], None] | None


def _tensorboard(workdir: Path) -> Any:
    """A writer of TensorBoard events, or None where none is installed."""
    for module in ("tensorboardX", "torch.utils.tensorboard"):
        try:
            writer = __import__(module, fromlist=["SummaryWriter"]).SummaryWriter
        except ImportError:
            continue
        return writer(str(workdir / "tensorboard"))
    return None


class Workdir:
    """The folder of a run, and whoever hears of it; when it closes, no save is under way.

    Nothing is written before `take`, so that what cannot work is refused first; of several
    processes the first one takes it. The arguments are those of `fit`.
    """

    def __init__(
        self, path: str | Path, config: TrainConfig, on_event: OnEvent, on_log: OnLog, several: bool
    ) -> None:
        self.path, self.config, self.several = Path(path), config, several
        self.writes = is_main() or not several
        self.event = killer(on_event)
        self.store = CheckpointStore(
            self.path / "checkpoints", config.keep_checkpoints, every=config.checkpoint_every
        )
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
                self.view.close()
                if self._board is not None:
                    self._board.close()
            finally:
                self.store.close()
            if isinstance(error, CheckpointNotSaved):
                self.check()
        except CheckpointNotSaved:
            # a save that failed because the folder is gone is told as that
            self.check()
            raise
        finally:
            if self._log is not None:
                self._log.close()
            if self._lock is not None:
                self._lock.release()

    def take(self) -> MetricsLog:
        """Locks the folder, and reads its metrics.jsonl, which its reader is to begin."""
        self.path.mkdir(parents=True, exist_ok=True)
        check_workdir(self.path)
        self._lock = WorkdirLock(self.path)
        self._log = MetricsLog(self.path / "metrics.jsonl")
        return self._log

    def show(self, step: int, resumed: bool) -> None:
        """Begins to show a person, and TensorBoard, where the run is."""
        config = self.config
        self.view = ProgressView(config.num_steps, step, config.progress and self.writes)
        if config.tensorboard and self.writes:
            self._board = _tensorboard(self.path)
            if self._board is None:
                self.view.message("no TensorBoard events: tensorboardX is not installed")
        if resumed:
            self.view.message(f"resuming {self.path} from step {step}")
        self.view.phase("train")

    def stopping(self) -> None:
        """Says that a signal was heard, in whatever the run is just now."""
        when = "at the next log line" if self.several else "after this step"
        self.view.notice(f"stopping {when}; again to stop now")

    def write(self, line: Line) -> None:
        """Appends a line to metrics.jsonl, and hands it on."""
        if self._log is None:
            return
        self._log.write(line)
        if self._on_log is not None:
            self._on_log(dict(line))
        if self._board is not None:
            for name, value in line.items():
                if isinstance(value, float) and name != "time":
                    self._board.add_scalar(f"{line['split']}/{name}", value, line["step"])

    def save(self, step: int, state: TrainState, best: Params, record: Line) -> None:
        """Saves host arrays in the background, with the log lines that they count on."""
        self.check()
        if self._log is not None:
            self._log.sync()
        self.store.save(step, state, best, record)

    def tell_saved(self) -> None:
        """Reports the checkpoints that are on disk and proven by now; raises if one failed."""
        for step in self.store.poll() if self.writes else ():
            self.event("saved", step)

    def settle(self) -> None:
        """Returns when every checkpoint is on disk, in the folder that was taken."""
        if self.writes:
            self.store.wait()
            self.check()
            self.tell_saved()

    def check(self) -> None:
        """Raises WorkdirLost if the folder is no longer the one that was taken."""
        if self._lock is not None:
            self._lock.check()


class Profile:
    """A trace of some steps into WORKDIR/profile, if the configuration asks for one."""

    def __init__(self, work: Workdir) -> None:
        self._work, self._folder = work, work.path / "profile"
        self._running = False

    def before_step(self, done: int, state: TrainState) -> None:
        """Begins or ends before the step after so many."""
        steps = self._work.config.profile_steps
        if steps and done == PROFILE_FROM:
            jax.profiler.start_trace(str(self._folder))
            self._running = True
        elif done == PROFILE_FROM + steps:
            self.stop(state)

    def stop(self, state: TrainState) -> None:
        """Writes the trace, where there is one, once the state is computed."""
        if self._running:
            jax.block_until_ready(state)
            jax.profiler.stop_trace()
            self._running = False
            self._work.view.message(f"profile: {self._folder}")
