"""The training loop in `train`, for a run or for several runs side by side, and its result."""

import dataclasses
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol

import jax
import numpy as np

from gatedjax.training._agreement import Seen
from gatedjax.training._checks import check_batch
from gatedjax.training._meter import Interval, Meter
from gatedjax.training._reach import Reach
from gatedjax.training._record import Record
from gatedjax.training._restore import Shared
from gatedjax.training._signals import Signals
from gatedjax.training._workdir import Line, Params, Profile, Workdir
from gatedjax.training.config import TO_ZERO
from gatedjax.training.distributed import max_over_processes
from gatedjax.training.metrics import Metrics
from gatedjax.training.progress import format_metrics
from gatedjax.training.step import TrainState, refuse_mean_loss, split_best
from gatedjax.training.task import Batch, Carry


@dataclasses.dataclass(frozen=True)
class FitResult:
    """The result of `fit`. All arrays are NumPy arrays, not replicated over devices.

        >>> result = FitResult(None, {}, 0, {}, [], "signal", 10, 1, signal.SIGINT)
        >>> result.stopped, result.exit_code
        ('signal', 130)

    Attributes:
      state: the last train state.
      best_params: the parameters of the best evaluation; without evaluation data the last ones.
      best_step: the step of the best evaluation; without evaluation data the last step.
      best_metrics: the metrics of the best evaluation by name; {} without evaluation data.
      history: the metrics of all evaluations by name, oldest first, each with its "step".
      stopped: "done" after all steps, at the end of the data or by `stop_when`, "early" after early
        stopping, "signal" after a signal.
      steps: the number of updates, including those before the run was continued.
      compilations: the number of step functions that this call traced, and compiled if no earlier
        run of the process had the same program.
      signal: the number of the signal that stopped the run; None without a signal.
      best_model_state: the model state that belongs to best_params; None for a task without one.
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
    best_model_state: Any = None

    @property
    def exit_code(self) -> int:
        """An exit status for programs: 130 after Ctrl-C, else 0, also after SIGTERM."""
        return 130 if self.signal == signal.SIGINT else 0


class StoppedBySignal(SystemExit):
    """Raised by `fit(..., raise_on_signal=True)` after a signal; the run is saved and can continue.

    It is a `SystemExit`, so that a script that does not catch it ends with the status 128 + the
    number of the signal.

    Attributes:
      results: a list of `FitResult`: the result of `fit`, or of each lane of `fit_lanes`.
    """

    def __init__(self, results: list[FitResult]) -> None:
        self.results = results
        super().__init__(128 + int(results[0].signal or 0))


Callback = Callable[[int, TrainState, dict[str, float]], None]
"""Called with the number of steps, the train state and the metrics by name, see `fit`."""


class Engine(Protocol):
    """The arrays of a run, or of several runs side by side, and the functions that change them. For
    several runs the arrays have a leading axis over the runs, which count from 0.
    """

    state: TrainState
    eval_data: Any

    def batches(self, start: int) -> Iterator[list[Batch]]:
        """Yields for each step, from `start` on, the batch of each run, finished runs included."""

    def advance(self, batches: list[Batch], running: list[int]) -> Metrics:
        """Trains the runs `running` for a step and returns its metrics; the rest stays."""

    def evaluate(self) -> tuple[list[dict[str, float]], bool]:
        """Returns the metrics of each run, and True if this call compiled the evaluation."""

    def learning_rates(self) -> dict[str, np.ndarray]:
        """Returns the learning rates of the last update by name; {} if there are none."""

    def state_for_callbacks(self) -> TrainState:
        """Returns the train state on the devices, without an axis over devices."""

    def data_state(self) -> Any:
        """Returns the position in the training data as JSON; None if they are read by step."""

    def keep_best(self, numbers: list[int]) -> None:
        """Stores the present parameters of the runs with these numbers as their best ones."""

    def fetch_carry(self) -> Carry:
        """Returns the carried state as NumPy arrays or None; all processes must call it."""

    def fetch(self, carry: Carry, records: list[Record]) -> tuple[TrainState, Params]:
        """Returns the train state and the best parameters (`best_of`) as NumPy arrays. Before the
        first evaluation of a run its best parameters are the last ones.
        """

    def to_record(self, step: int, records: list[Record], pending: Metrics) -> Line:
        """Returns the progress for the record of a checkpoint, see `Restored.run`."""

    def compilations(self) -> int:
        """Returns the number of step functions that were compiled for this run so far."""


@dataclasses.dataclass
class TrainingRun:
    """The variables of the training loop."""

    engine: Engine
    work: Workdir
    meter: Meter
    shared: Shared
    step: int
    resumed: bool
    stop_when: Callable[[int], bool] | None = None
    callbacks: tuple[Callback, ...] = ()
    shapes: set[tuple[Any, ...]] = dataclasses.field(default_factory=set)
    reach: Reach | None = None
    seen: Seen = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.seen = Seen(self.step)

    @property
    def over(self) -> bool:
        """True if all runs have ended."""
        return not self.meter.running()


def train(run: TrainingRun, signals: Signals) -> int | None:
    """Trains until all runs have ended or a signal comes.

    The order in a round is: step, log, evaluate, callbacks, decide about the end, check for a
    signal and ask `stop_when`, save. A state is therefore evaluated before it is saved, and no
    batch is read in between. If the data end before `num_steps`, the run ends after its last step.
    A run that stops earlier is neither logged nor evaluated for that, because its checkpoint must
    be that of an unbroken run at this step.

    Args:
      run: the variables of the loop, which it changes.
      signals: the context that records SIGTERM and SIGINT.

    Returns:
      The number of the signal that stopped the run, such as 15; None without a signal.
    """
    work, engine, config = run.work, run.engine, run.work.config
    work.show(run.step, run.resumed)
    profile = Profile(work)
    first_step, stop = run.step, False
    batches = engine.batches(first_step)
    run.meter.interval = Interval()
    try:
        while not run.over and not stop:
            profile.before_step(run.step - first_step, engine.state)
            batch = next(batches, None)
            if batch is not None:
                _step(run, batch)
            # A save that failed is reported soon after it, not at the next checkpoint.
            work.report_saved()
            at_end = batch is None or run.step >= config.num_steps
            metrics: dict[str, float] = {}
            # Without a batch the step may be logged and evaluated already.
            if run.meter.pending and (run.step % config.log_every == 0 or at_end):
                metrics = run.meter.log(run.step, engine.learning_rates())
                if run.reach is not None:
                    run.reach.refuse()
                    run.reach = None
            if _evaluates(run, at_end):
                metrics |= _evaluate(run)
            if metrics:
                _call_back(run, metrics)
            if batch is None:
                _warn_of_end(run)
            _decide(run, at_end)
            # The check comes before the save, so that a run that stops is always saved.
            stop = _should_stop(run, signals) or _is_last_step(run)
            if run.step % config.checkpoint_every == 0 or run.over or stop:
                _save(run)
        work.settle()
    finally:
        profile.stop(engine.state)
    # A signal during the last step is returned, because a program may start another run next.
    return _find_signal(run, signals)


def _evaluates(run: TrainingRun, at_end: bool) -> bool:
    if run.engine.eval_data is None or not (at_end or run.step % run.work.config.eval_every == 0):
        return False
    histories = [run.meter.records[number].history for number in run.meter.running()]
    return any(not history or history[-1]["step"] != run.step for history in histories)


def _call_back(run: TrainingRun, metrics: dict[str, float]) -> None:
    if run.callbacks:
        state = run.engine.state_for_callbacks()
        for callback in run.callbacks:
            # Each callback gets a copy, so that it may change its metrics.
            callback(run.step, state, dict(metrics))


def _warn_of_end(run: TrainingRun) -> None:
    warnings.warn(
        f"train_data ended after {run.step} batches, and so does the run, although num_steps is "
        f"{run.work.config.num_steps}: repeat the data, as dataset.repeat() of grain does, or give "
        "fewer steps",
        RuntimeWarning,
        stacklevel=4,
    )


def _step(run: TrainingRun, batches: list[Batch]) -> None:
    first, view, meter = batches[0], run.work.view, run.meter
    for batch in batches:
        check_batch(batch, f"the batch of step {run.step}")
    if run.work.several:
        # A single process compares no digests, so it saves the time of hashing.
        run.seen.add(first)
    # Each new shape is compiled, and a gradient of another shape may reach other parameters.
    shape = tuple(sorted((name, np.shape(value)) for name, value in first.items()))
    new = shape not in run.shapes
    began = time.perf_counter()
    if new:
        run.shapes.add(shape)
        if run.reach is not None:
            run.reach.look(first)
        view.phase("compile")
    metrics = run.engine.advance(batches, meter.running())
    if new:
        # The time of the compilation is measured, so that speeds and the estimated end leave it
        # out.
        jax.block_until_ready(metrics)
        seconds = time.perf_counter() - began
        meter.interval.compiling += seconds
        view.once(seconds, steps=1)
        view.phase("train")
        run.work.event("compiled", run.step)
    meter.add(run.step, refuse_mean_loss(metrics, fresh=run.step == 0), batches)
    run.step += 1
    run.work.event("step", run.step)
    view.step(run.step)


def _evaluate(run: TrainingRun) -> dict[str, float]:
    """Evaluates the runs, logs them and stores the best parameters; returns mean metrics."""
    work, meter, step = run.work, run.meter, run.step
    work.view.phase("evaluate")
    work.event("evaluate", step)
    # Lines about skipped updates come before those of later steps, wherever the run was stopped.
    meter.check_skipped()
    began = time.perf_counter()
    values, compiled = run.engine.evaluate()
    improved = []
    for number in meter.running():
        meter.write(number, {"split": "eval", "step": step, **values[number]})
        work.view.message(f"step {step}{meter.title(number)}: {format_metrics(values[number])}")
        if meter.records[number].add_evaluation(step, values[number], work.config):
            improved.append(number)
    if improved:
        run.engine.keep_best(improved)
    seconds = time.perf_counter() - began
    # An evaluation takes no part in the speed of training, so the interval begins later by its
    # time.
    meter.interval.began += seconds
    if compiled:
        work.view.once(seconds)
        work.event("compiled", step)
    work.view.phase("train")
    rows = [values[number] for number in meter.running()]
    return {f"eval_{name}": float(np.mean([row[name] for row in rows])) for name in rows[0]}


def _is_last_step(run: TrainingRun) -> bool:
    return run.stop_when is not None and not run.over and run.stop_when(run.step)


def _decide(run: TrainingRun, at_end: bool) -> None:
    for record in run.meter.records:
        # A lane that has ended keeps the step at which it ended.
        if record.finished is None:
            record.step = run.step
            record.finished = record.find_end_reason(run.step, run.work.config)
            if record.finished is None and at_end:
                record.finished = "done"


def _should_stop(run: TrainingRun, signals: Signals) -> bool:
    if run.work.several and run.step % run.work.config.log_every:
        return False
    return _find_signal(run, signals) is not None


def _find_signal(run: TrainingRun, signals: Signals) -> int | None:
    if not run.work.several:
        return signals.received
    return max_over_processes(signals.received or 0) or None


def _save(run: TrainingRun) -> None:
    engine, work, meter = run.engine, run.work, run.meter
    # The record of the checkpoint has the number of updates that were skipped in a row.
    meter.check_skipped()
    # All processes take part in fetching the carried state and in the comparison.
    carry = engine.fetch_carry()
    if work.several:
        state, best = engine.fetch(carry, meter.records)
        # The comparison comes before the save, so that parameters that drifted apart are not saved.
        run.seen.compare(run.step, state.params)
    # Only process 0 continues here, so no exchange between processes may follow.
    if work.store is None:
        return
    work.view.phase("save")
    work.event("save", run.step)
    if not work.several:
        state, best = engine.fetch(carry, meter.records)
    record = engine.to_record(run.step, meter.records, meter.pending)
    data = engine.data_state()
    record = {"run": record} | dataclasses.asdict(run.shared)
    work.save(run.step, state, best, record if data is None else record | {"data": data})
    work.view.phase("train")


def report_finished(run: TrainingRun) -> None:
    """Prints a notice if all runs of the workdir have ended, because no step will be trained."""
    if run.over and run.resumed and run.work.reports:
        config, last = run.work.config, max(record.step for record in run.meter.records)
        longer = ", or a larger num_steps to continue it"
        early = any(record.finished == "early" for record in run.meter.records)
        run.work.view.notice(
            f"{run.work.path} holds a finished run of {last} steps: nothing is trained, and its "
            "result is returned. Use another workdir to train anew"
            f"{'' if early or config.optimizer.schedule in TO_ZERO else longer}."
        )


def results_of(run: TrainingRun, number: int | None) -> list[FitResult]:
    """Returns a list with the `FitResult` of each run; all processes must call it."""
    engine, records = run.engine, run.meter.records
    trees = engine.fetch(engine.fetch_carry(), records)
    lanes = [trees]
    if not run.meter.alone:
        lanes = [jax.tree.map(lambda x, i=i: x[i], trees) for i in range(len(records))]
    return [
        FitResult(
            state=state,
            best_params=split_best(best, state.model_state)[0],
            best_model_state=split_best(best, state.model_state)[1],
            best_step=record.best_step if record.best_metrics else record.step,
            best_metrics=record.best_metrics,
            history=record.history,
            stopped=(record.finished or "done") if run.over or number is None else "signal",
            steps=record.step,
            compilations=engine.compilations(),
            signal=number,
        )
        for record, (state, best) in zip(records, lanes, strict=True)
    ]
