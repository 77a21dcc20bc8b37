"""`fit`: the one training loop. Order of every round: evaluate, save, then take the next batch."""

import contextlib
import dataclasses
import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gatedjax.training._agreement import agree, given
from gatedjax.training._checks import (
    check_batch,
    check_config,
    check_optimizer,
    check_outputs,
    check_task,
    first_batch,
    first_evaluation_batch,
)
from gatedjax.training._record import Record
from gatedjax.training._restore import restore_or_begin
from gatedjax.training._signals import Signals
from gatedjax.training._transforms import train_all_but
from gatedjax.training._verify import killer, write_digests
from gatedjax.training.checkpoint import CheckpointNotSaved, CheckpointStore
from gatedjax.training.config import TrainConfig, eval_params, make_optimizer
from gatedjax.training.distributed import any_process, broadcast_json, is_main
from gatedjax.training.evaluation import run_evaluation
from gatedjax.training.identity import identity, program_of
from gatedjax.training.lock import WorkdirLock
from gatedjax.training.log import MetricsLog
from gatedjax.training.metrics import Metrics, from_json, to_floats, to_json
from gatedjax.training.parallel import Parallel, make_parallel
from gatedjax.training.progress import ProgressView, summary
from gatedjax.training.step import init_state, refuse_mean_loss
from gatedjax.training.task import AnyTask, Batch, frozen_parameters

# Steps that are queued on the device. Two keep it busy; with more, a signal waits for all of them.
IN_FLIGHT = 2
PROFILE_FROM = 10
# Arrays of tokens that batches may have, with their lengths: what padding and tokens/s are of.
_TEXTS = (("lengths", "tokens"), ("document_lengths", "document"), ("query_lengths", "query"))


class NonFiniteError(RuntimeError):
    """Too many updates in a row had a loss, gradient or parameters that are not finite."""


@dataclasses.dataclass(frozen=True)
class FitResult:
    """What `fit` returns; arrays are NumPy, one copy.

    Attributes:
      state: the last train state.
      best_params: parameters of the best evaluation (the last ones without evaluation data).
      best_step: the step of that evaluation.
      best_metrics: its metrics.
      history: every evaluation: its metrics with "step".
      stopped: "done" (all steps), "early" (no improvement), or "signal".
      steps: updates made in all.
      compilations: step functions compiled by this call.
      signal: the signal number behind "signal".
    """

    state: Any
    best_params: Any
    best_step: int
    best_metrics: dict[str, float]
    history: list[dict[str, float]]
    stopped: Literal["done", "early", "signal"]
    steps: int
    compilations: int
    signal: int | None = None

    @property
    def exit_code(self) -> int:
        """0, also after SIGTERM (the run is saved and can continue); 130 after Ctrl-C."""
        return 130 if self.signal == signal.SIGINT else 0


class StoppedBySignal(SystemExit):
    """A signal stopped `fit(..., raise_on_signal=True)`; the run is saved and can continue.

    A `SystemExit`: a script that does not catch it ends, with the status 128 + the signal's number.

    Attributes:
      results: of `fit` (one) or `fit_lanes`.
    """

    def __init__(self, results: list[FitResult]) -> None:
        self.results = results
        super().__init__(128 + int(results[0].signal or 0))


def _tensorboard(workdir: Path) -> Any:
    """A writer of TensorBoard events, or None where none is installed."""
    for module in ("tensorboardX", "torch.utils.tensorboard"):
        try:
            writer = __import__(module, fromlist=["SummaryWriter"]).SummaryWriter
        except ImportError:
            continue
        return writer(str(workdir / "tensorboard"))
    return None


class _Loop:
    """The state of one call of `fit`."""

    def __init__(
        self,
        task: AnyTask,
        train_data: Any,
        eval_data: Any,
        config: TrainConfig,
        workdir: str | Path,
        metadata: dict[str, Any] | None,
        on_event: Callable[[str, int], None] | None,
        on_log: Callable[[dict[str, Any]], None] | None,
        parallel: Parallel | None,
        optimizer: optax.GradientTransformation | None,
    ) -> None:
        self.task, self.config = task, config
        self.train_data, self.eval_data = train_data, eval_data
        self.metadata = metadata or {}
        self.event = killer(on_event)
        self.on_log = on_log
        self.workdir = Path(workdir)
        self.parallel = parallel or make_parallel(config.parallel, accumulate=config.accumulate)
        if self.parallel.accumulate != config.accumulate:
            raise ValueError(
                f"parallel was made with accumulate {self.parallel.accumulate}, the configuration "
                f"wants {config.accumulate}"
            )
        self.several = self.parallel.several_processes
        self.main = is_main() or not self.several
        self.traces_before = self.parallel.traces
        self.optimizer = optimizer
        frozen = frozen_parameters(task)
        self.tx = make_optimizer(config.optimizer, config.num_steps, frozen=frozen)
        if optimizer is not None:
            self.tx = train_all_but(optimizer, frozen) if frozen else optimizer
        self.seed_key = jax.random.key(config.seed)
        self.train_step = self.parallel.train_step(task, self.tx, check_loss=True)
        self.shapes: set[tuple] = set()
        self.record = Record()
        self.recent: list[tuple[int, Any, Any]] = []
        self.profiling = False
        self.view = ProgressView(config.num_steps, 0, False)
        self._add = jax.jit(lambda a, b: jax.tree.map(jnp.add, a, b))
        self.store = CheckpointStore(self.workdir / "checkpoints", config.keep_checkpoints)
        self.lock: WorkdirLock | None = None
        self.log: MetricsLog | None = None

    # -- start ---------------------------------------------------------------------------------

    def start(self) -> bool:
        """Restores or initialises; returns whether there is anything left to do."""
        first = first_batch(self.train_data, self.config.num_steps)
        evaluation = first_evaluation_batch(self.eval_data)
        self.rows = len(first["weight"])
        make = lambda key: init_state(self.task, self.tx, key, first)  # noqa: E731
        like = jax.eval_shape(make, self.seed_key)
        check_outputs(self.task, like.params, first, evaluation, self.config.best_metric)
        program = None if self.optimizer is None else program_of(self.tx, like.params)
        self.identity = identity(self.metadata, self.config, program)
        if self.several:
            agree(given(self.identity, self.config, first, like.params, evaluation is not None))
        if self.several and self.rows < jax.process_count():
            raise ValueError(
                f"a batch has {self.rows} examples for {jax.process_count()} processes: every "
                "process needs at least one"
            )
        self.resumed, state = self._restore_everywhere(like)
        if self.resumed is None:
            state = jax.device_get(jax.jit(make)(self.seed_key))
            self.best = state.params
        self.state = self.parallel.place(state)
        self.step = self.record.step
        self.pending: Metrics = from_json(self.record.pending)
        ended = self.record.finished
        return not (ended == "early" or (ended == "done" and self.step >= self.config.num_steps))

    def _restore_everywhere(self, like: Any) -> tuple[int | None, Any]:
        """Process 0 reads the checkpoint and sends it to the others, which need no shared disk."""
        if not self.several:
            return self._open(like)
        from jax.experimental import multihost_utils

        resumed, state, error = None, None, None
        if self.main:
            try:
                resumed, state = self._open(like)
            except Exception as caught:  # the others wait for an answer
                error = caught
        answer = {
            "error": None if error is None else f"{type(error).__name__}: {error}",
            "resumed": resumed,
            "record": dataclasses.asdict(self.record),
        }
        answer = json.loads(broadcast_json(json.dumps(answer)))
        if error is not None:
            raise error
        if answer["error"] is not None:
            raise RuntimeError(f"process 0 cannot start: {answer['error']}")
        if answer["resumed"] is None:
            return None, None
        if not self.main:
            self.record = Record(**answer["record"])
            empty = lambda tree: jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), tree)  # noqa: E731
            state, self.best = empty(like), empty(like.params)
        state, self.best = jax.device_get(multihost_utils.broadcast_one_to_all((state, self.best)))
        return answer["resumed"], state

    def _open(self, like: Any) -> tuple[int | None, Any]:
        """Takes the workdir, reads its newest checkpoint, and opens what is written into it."""
        self.workdir.mkdir(parents=True, exist_ok=True)
        self.lock = WorkdirLock(self.workdir)
        self.log = MetricsLog(self.workdir / "metrics.jsonl")
        found = restore_or_begin(
            self.store, self.identity, self.metadata, self.config, self.workdir, like
        )
        resumed, state = None, None
        if found is not None:
            run, state, self.best = found
            self.record = Record(**run)
            resumed = self.record.step
        self.log.begin(resumed)
        return resumed, state

    # -- one round -----------------------------------------------------------------------------

    def run(self, signals: Signals) -> tuple[Literal["done", "early", "signal"], int | None]:
        """Trains until the end, no improvement, or a signal."""
        config, main = self.config, self.main
        self.view = ProgressView(config.num_steps, self.step, config.progress and main)
        self.board = _tensorboard(self.workdir) if config.tensorboard and main else None
        if config.tensorboard and main and self.board is None:
            self.view.message("no TensorBoard events: tensorboardX is not installed")
        if self.resumed is not None:
            self.view.message(f"resuming {self.workdir} from step {self.step}")
        self.view.phase("train")
        self.record.finished = None
        try:
            stopped, number = self._rounds(signals)
            if self.main:
                self.store.wait()
                self._check_workdir()
                self._tell_saved()
            # a signal that came with the last step is not lost on who starts the next run
            return stopped, number if number is not None else signals.received
        finally:
            self._stop_profile()
            self.view.close()
            if self.board is not None:
                self.board.close()

    def stopping(self) -> None:
        """Says that a signal was heard, in whatever the run is just now."""
        when = "at the next log line" if self.several else "after this step"
        self.view.notice(f"stopping {when}; again to stop now")

    def _check_workdir(self) -> None:
        if self.lock is not None:
            self.lock.check()

    def _rounds(self, signals: Signals) -> tuple[Literal["done", "early", "signal"], int | None]:
        config, start = self.config, self.step
        batches = self._batches(start)
        self._reset_clock()
        while True:
            self._tell_saved()
            stop = False
            if self.step > start or (self.resumed is None and self.step >= config.num_steps):
                if self.step % config.log_every == 0 or self.step >= config.num_steps:
                    self._log_train()
                at_end = self.step >= config.num_steps
                if self.eval_data is not None and (self.step % config.eval_every == 0 or at_end):
                    self._evaluate()
                self.record.finished = self.record.ended(self.step, config)
                # asked once a round, and before the save, so that what stops is always saved
                stop = self._asked_to_stop(signals)
                due = self.step % config.checkpoint_every == 0
                if due or self.record.finished or stop:
                    self._save()
            if self.record.finished is not None:
                return self.record.finished, None
            if stop:
                return "signal", signals.received
            self._profile(self.step - start)
            self._train(next(batches))

    def _asked_to_stop(self, signals: Signals) -> bool:
        """Whether a signal came; several processes agree on it wherever they log."""
        if not self.several:
            return signals.received is not None
        return self.step % self.config.log_every == 0 and any_process(signals.received is not None)

    # The first steps of a run compile; a trace of them would show little else.
    def _profile(self, done: int) -> None:
        if not self.config.profile_steps:
            return
        if done == PROFILE_FROM:
            jax.profiler.start_trace(str(self.workdir / "profile"))
            self.profiling = True
        elif done == PROFILE_FROM + self.config.profile_steps:
            self._stop_profile()

    def _stop_profile(self) -> None:
        if self.profiling:
            jax.block_until_ready(self.state)
            jax.profiler.stop_trace()
            self.profiling = False
            self.view.message(f"profile: {self.workdir / 'profile'}")

    def _batches(self, start: int) -> Iterator[Batch]:
        if hasattr(self.train_data, "iterate"):
            return iter(self.train_data.iterate(start, self.config.num_steps))
        return (self.train_data[step] for step in range(start, self.config.num_steps))

    def _train(self, batch: Batch) -> None:
        check_batch(batch, f"the batch of step {self.step}")
        shape = tuple(np.shape(batch["weight"])) + tuple(
            sorted((name, np.shape(value)) for name, value in batch.items())
        )
        new = shape not in self.shapes
        began = time.perf_counter()
        if new:
            self.shapes.add(shape)
            self.view.phase("compile")
        device_batch = self.parallel.shard(batch)
        self.state, metrics = self.train_step(self.state, device_batch, self.seed_key)
        if new:
            jax.block_until_ready(metrics)
            self.compiling += time.perf_counter() - began
            self.view.once(time.perf_counter() - began, steps=1)
            self.view.phase("train")
        metrics = refuse_mean_loss(self.parallel.local(metrics), fresh=self.step == 0)
        self.pending = self._add(self.pending, metrics) if self.pending else metrics
        self.recent.append((self.step, metrics["skipped"].total, batch.get("example_id")))
        if len(self.recent) > IN_FLIGHT:
            jax.block_until_ready(self.recent[-1 - IN_FLIGHT][1])
        self.step += 1
        self._count(batch)
        self.event("step", self.step)
        self.view.step(self.step)

    # -- numbers -------------------------------------------------------------------------------

    def _reset_clock(self) -> None:
        self.clock, self.compiling = time.perf_counter(), 0.0
        self.tokens = self.cells = 0
        self.interval_steps = 0

    def _count(self, batch: Batch) -> None:
        self.interval_steps += 1
        for lengths, cells in _TEXTS:
            if lengths in batch and cells in batch:
                self.tokens += int(np.sum(batch[lengths]))
                self.cells += int(np.prod(np.shape(batch[cells])))

    def _check_skipped(self) -> None:
        """Reports updates that were skipped, and stops a run that only skips."""
        flags = jax.device_get([skipped for _, skipped, _ in self.recent])
        for (step, _, example_id), skipped in zip(self.recent, flags, strict=True):
            if not skipped:
                self.record.skipped_in_a_row = 0
                continue
            self.record.skipped_in_a_row += 1
            ids = [] if example_id is None else [int(i) for i in example_id if i >= 0]
            self._write({"split": "skipped", "step": step + 1, "example_id": ids})
            self.view.message(
                f"step {step + 1}: loss, gradient or updated parameters are not finite, update "
                f"skipped; examples {ids}"
            )
            if self.record.skipped_in_a_row > self.config.max_skipped:
                raise NonFiniteError(
                    f"{self.record.skipped_in_a_row} updates in a row had a loss, gradient or "
                    f"updated parameters that are not finite (limit {self.config.max_skipped}), "
                    f"the last at step {step + 1} with examples {ids}. The checkpoints in "
                    f"{self.workdir} are from before, or of steps that changed nothing. Look for "
                    "non-finite inputs, or lower the learning rate in another workdir."
                )
        self.recent = []

    def _log_train(self) -> None:
        self._check_skipped()
        metrics = to_floats(self.pending)
        seconds = max(time.perf_counter() - self.clock - self.compiling, 1e-9)
        line: dict[str, Any] = {"split": "train", "step": self.step, **metrics}
        line["steps_per_s"] = round(self.interval_steps / seconds, 3)
        line["compile_s"] = round(self.compiling, 3)
        if self.cells:
            line["tokens_per_s"] = round(self.tokens / seconds, 1)
            line["padding"] = round(1 - self.tokens / self.cells, 4)
        self._write(line)
        self.view.log(self.step, line)
        self.pending = {}
        self._reset_clock()

    def _write(self, line: dict[str, Any]) -> None:
        if self.log is None:
            return
        line["time"] = round(time.time(), 3)
        self.log.write(line)
        if self.on_log is not None:
            self.on_log(dict(line))
        if self.board is not None:
            for name, value in line.items():
                if isinstance(value, float) and name != "time":
                    self.board.add_scalar(f"{line['split']}/{name}", value, line["step"])

    def _evaluate(self) -> None:
        self.view.phase("evaluate")
        self.event("evaluate", self.step)
        began, traces = time.perf_counter(), self.parallel.traces
        params = eval_params(self.state.params, self.state.opt_state)
        totals, _ = run_evaluation(self.task, params, self.eval_data, self.parallel)
        metrics = to_floats(totals)
        self._write({"split": "eval", "step": self.step, **metrics})
        self.view.message(f"step {self.step}: evaluation: {summary(metrics)}")
        if self.record.evaluated(self.step, metrics, self.config):
            self.best = self.parallel.host(params)
        self.clock += time.perf_counter() - began
        if self.parallel.traces > traces:
            self.view.once(time.perf_counter() - began)
        self.view.phase("train")

    def _save(self) -> None:
        self._check_skipped()
        # all processes take part in fetching what is carried; the rest is for the one that writes
        carry = self.parallel.fetch_carry(self.state.carry, self.rows)
        if not self.main:
            self.record.step = self.step
            return
        self.view.phase("save")
        self.event("save", self.step)
        self._check_workdir()
        if self.log is not None:
            self.log.sync()
        self.record.step = self.step
        self.record.pending = to_json(self.pending)
        state = self.parallel.fetch(self.state, carry)
        best = self.best
        if not self.record.best_metrics:
            best = eval_params(state.params, state.opt_state)
        self.store.save(
            self.step,
            state,
            best,
            {"run": dataclasses.asdict(self.record), "metadata": self.identity},
        )
        self.view.phase("train")

    def _tell_saved(self) -> None:
        """Reports the checkpoints that are on disk and proven by now; raises if one failed."""
        for step in self.store.poll() if self.main else ():
            self.event("saved", step)


@contextlib.contextmanager
def closing(loop: Any) -> Iterator[None]:
    """Waits for the saves of a loop and gives its workdir free, whatever happens.

    Raises:
      WorkdirLost: in place of the error of a save that failed because the workdir is gone.
    """
    try:
        try:
            yield
        finally:
            loop.store.close()
    except CheckpointNotSaved:
        if loop.lock is not None:
            loop.lock.check()
        raise
    finally:
        if loop.log is not None:
            loop.log.close()
        if loop.lock is not None:
            loop.lock.release()


def fit(
    task: AnyTask,
    train_data: Any,
    eval_data: Any,
    config: TrainConfig,
    workdir: str | Path,
    *,
    metadata: dict[str, Any] | None = None,
    on_event: Callable[[str, int], None] | None = None,
    on_log: Callable[[dict[str, Any]], None] | None = None,
    parallel: Parallel | None = None,
    optimizer: optax.GradientTransformation | None = None,
    raise_on_signal: bool = False,
) -> FitResult:
    """Trains a task; continues where the checkpoints in workdir end, with the same bits.

    Args:
      task: what is trained.
      train_data: `train_data[step]` is the batch of a step, a pure function of the step number;
        `train_data.iterate(start, stop)`, where it exists, yields the same batches ahead of use.
      eval_data: batches of one evaluation pass, iterated again for each; None evaluates nothing.
      config: how to train.
      workdir: gets metrics.jsonl, config.json, environment.json and checkpoints/.
      metadata: JSON values that a checkpoint must share with this run to be continued, such as
        the configuration and the digest of the vocabulary. The training options join them.
      parallel: the devices, made with the `accumulate` of config (default: as config says); give
        the same one to `evaluate` to share its compiled steps.
      on_event: called with ("step" | "evaluate" | "save" | "saved", step); "saved" comes when
        the checkpoint is whole on disk, some steps after "save".
      on_log: called with every line of metrics.jsonl as a dict, for other trackers.
      optimizer: takes the place of `config.optimizer`, which must be the default then. A
        checkpoint knows it by a digest of its compiled program for these parameters, so that
        another learning rate is refused; or by `metadata["optimizer"]` alone, if that is given.
      raise_on_signal: raise `StoppedBySignal` in place of returning, so that the program does not
        go on after Ctrl-C or SIGTERM as if the run had ended.

    Returns:
      The result. After SIGTERM or Ctrl-C the run is saved and `stopped` is "signal": a program
      that goes on must look at it, or ask for raise_on_signal.

    Raises:
      TypeError, ValueError: before anything is written, for a task, data or configuration that
        cannot work: a missing method, metrics that are no `Ratio`, no metric "loss", a
        `best_metric` that evaluate does not give, too few batches, batches without rows, or an
        iterator as evaluation data. After the first step, for a loss that is a mean, not a sum.
      StoppedBySignal: with raise_on_signal, after the run was saved.
      ProcessMismatch: on every process of several, if they were not given the same settings, first
        batch and parameters.
      WorkdirLost: if workdir was removed or replaced during the run.
      CheckpointMismatch: if workdir belongs to another run.
      CheckpointNotSaved: soon after a checkpoint could not be written, as on a full disk.
      WorkdirBusy: if another run is writing into workdir.
      RuntimeError: if none of its checkpoints can be read. A damaged one is moved to
        checkpoints-bad/ with a RuntimeWarning, and the newest good one is used.
      NonFiniteError: after more than `config.max_skipped` skipped updates in a row.
    """
    check_config(config)
    check_optimizer(optimizer, config)
    check_task(task, eval_data is not None)
    if config.seeds > 1 or config.sweep:
        raise ValueError("fit trains one seed; fit_lanes trains several seeds or a sweep")
    loop = _Loop(
        task,
        train_data,
        eval_data,
        config,
        workdir,
        metadata,
        on_event,
        on_log,
        parallel,
        optimizer,
    )
    with closing(loop), Signals(loop.stopping) as signals:
        stopped: Literal["done", "early", "signal"] = "done"
        number = None
        if loop.start():
            stopped, number = loop.run(signals)
        elif loop.record.finished is not None:
            stopped = loop.record.finished
        carry = loop.parallel.fetch_carry(loop.state.carry, loop.rows)
        host = loop.parallel.fetch(loop.state, carry)
    best = loop.best if loop.record.best_metrics else eval_params(host.params, host.opt_state)
    if loop.main and stopped != "signal":
        write_digests(host, best, dataclasses.asdict(loop.record), train_data, loop.workdir)
    result = FitResult(
        state=host,
        best_params=best,
        best_step=loop.record.best_step if loop.record.best_metrics else loop.step,
        best_metrics=loop.record.best_metrics,
        history=loop.record.history,
        stopped=stopped,
        steps=loop.step,
        compilations=loop.parallel.traces - loop.traces_before,
        signal=number,
    )
    if raise_on_signal and number is not None:
        raise StoppedBySignal([result])
    return result
