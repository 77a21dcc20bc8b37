"""`fit`, and the training loop in `train`."""

import dataclasses
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import jax
import numpy as np
import optax

from gatedjax.training._agreement import Seen, agree, collect_shared_values
from gatedjax.training._averages import eval_params as find_eval_params
from gatedjax.training._averages import is_computed
from gatedjax.training._batches import Batches, open_batches
from gatedjax.training._checks import (
    check_arrays,
    check_batch,
    check_callbacks,
    check_eval_params,
    check_optimizer,
    check_outputs,
    check_task,
    config_with_steps,
    digest_optimizer,
    first_evaluation_batch,
    fit_params,
)
from gatedjax.training._digests import compared_digests, digest_or_none, run_digests
from gatedjax.training._meter import Interval, Meter
from gatedjax.training._meter import NonFiniteError as NonFiniteError
from gatedjax.training._programs import SharedProgram
from gatedjax.training._rates import LearningRates
from gatedjax.training._reach import Reach
from gatedjax.training._record import Record
from gatedjax.training._restore import Restored, Shared, records_of, restore_everywhere
from gatedjax.training._signals import Signals
from gatedjax.training._transforms import is_key, keys_as_data, train_all_but
from gatedjax.training._verify import NEXT_BATCHES, write_digests
from gatedjax.training._workdir import Line, Params, Profile, Workdir
from gatedjax.training.config import TO_ZERO, TrainConfig, make_optimizer
from gatedjax.training.distributed import max_over_processes
from gatedjax.training.evaluation import run_evaluation
from gatedjax.training.identity import eval_params_digest, metadata_of, settings_of
from gatedjax.training.metrics import Metrics, from_json, to_json
from gatedjax.training.parallel import Parallel, make_parallel, pad_rows
from gatedjax.training.progress import format_metrics
from gatedjax.training.step import (
    TrainState,
    best_of,
    init_state,
    make_train_step,
    refuse_mean_loss,
    refuse_parts,
    split_best,
)
from gatedjax.training.task import AnyTask, Batch, Carry, frozen_parameters


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
      stopped: "done" after all steps or at the end of the data, "early" after early stopping,
        "signal" after a signal.
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
    """The arrays of a run, or of several runs side by side, and the functions that change them.

    Attributes:
      state: the train state; for several runs its arrays have a leading axis over the runs.
      eval_data: the evaluation data, or None.
    """

    state: TrainState
    eval_data: Any

    def batches(self, start: int) -> Iterator[list[Batch]]:
        """Yields for each step, from `start` on, a list with the batch of each run.

        A single run gives lists of one batch.
        """

    def advance(self, batches: list[Batch], running: list[int]) -> Metrics:
        """Trains runs for a step and returns the metrics of the step.

        Args:
          batches: the batch of each run, a dict of arrays, finished runs included.
          running: the numbers of the runs that have not ended; the state of the remaining runs does
            not change.

        Returns:
          The sums and counts of metrics by name; for several runs side by side with an axis over
          the runs.
        """

    def evaluate(self) -> tuple[list[dict[str, float]], bool]:
        """Evaluates all runs on the evaluation data.

        Returns:
          For each run the metrics by name, with the metrics of `task.summarise`; and True if the
          evaluation was compiled by this call.
        """

    def learning_rates(self) -> dict[str, np.ndarray]:
        """Returns the learning rates of the last update by name, see `LearningRates.read`."""

    def state_for_callbacks(self) -> TrainState:
        """Returns the train state on the devices, without an axis over devices."""

    def data_state(self) -> Any:
        """Returns the position in the training data for a checkpoint, see `Batches.state`."""

    def keep_best(self, numbers: list[int]) -> None:
        """Stores the present parameters of the runs with these numbers as their best ones."""

    def fetch_carry(self) -> Carry:
        """Returns the carried state of a `StatefulTask` as NumPy arrays; None for other tasks.

        All processes must call it.
        """

    def fetch(self, carry: Carry, records: list[Record]) -> tuple[TrainState, Params]:
        """Returns the train state and the best parameters (see `best_of`) as NumPy arrays.

        For several runs the arrays have a leading axis over the runs. Before the first evaluation
        of a run its best parameters are the last ones.

        Args:
          carry: the result of `fetch_carry`.
          records: the record of each run.
        """

    def to_record(self, step: int, records: list[Record], pending: Metrics) -> Line:
        """Returns the progress of the runs for the JSON record of a checkpoint.

        It is a dict of the fields of the `Record` of a single run. For several runs it is {"lanes":
        a dict per run, "step": `step`, "pending": sums and counts by name}.

        Args:
          step: the number of steps so far.
          records: the record of each run.
          pending: the sums and counts of metrics since the last line of metrics.jsonl.
        """

    def compilations(self) -> int:
        """Returns the number of step functions that were compiled for this run so far."""


@dataclasses.dataclass
class TrainingRun:
    """The variables of the training loop.

    Attributes:
      engine: the arrays of the run, or of several runs side by side.
      work: the work folder.
      meter: the metrics since the last line of metrics.jsonl.
      shared: the entries that all checkpoints record.
      step: the number of steps so far.
      resumed: True if the run continues from a checkpoint.
      stop_when: maps the number of steps so far to True if the run ends there, before `num_steps`.
      callbacks: functions (step, state, metrics), see `fit`.
      shapes: the shapes of the batches so far, because each new shape is compiled.
      reach: a search for parameters that no gradient reaches, until the first line of a new run.
      seen: hashes of the batches since the processes of the run last compared them.
    """

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
    signal, save. A state is therefore evaluated before it is saved, and no batch is read in
    between. If the data end before `num_steps`, the run ends after its last step.

    Returns:
      The number of the signal, or None.
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
            at_end = batch is None or run.step >= config.num_steps or _is_last_step(run)
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
            stop = _should_stop(run, signals)
            if run.step % config.checkpoint_every == 0 or run.over or stop:
                _save(run)
        work.settle()
    finally:
        profile.stop(engine.state)
    # A signal during the last step is returned, because a program may start another run next.
    return _find_signal(run, signals)


def _evaluates(run: TrainingRun, at_end: bool) -> bool:
    """Returns True if the runs are evaluated after this step, and have not been at this step."""
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
    check_batch(first, f"the batch of step {run.step}")
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
    """Evaluates, writes the lines, and stores the best parameters.

    It returns the metrics by name with the prefix "eval_"; for several runs their means.
    """
    work, meter, step = run.work, run.meter, run.step
    work.view.phase("evaluate")
    work.event("evaluate", step)
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
    return run.stop_when is not None and run.stop_when(run.step)


def _decide(run: TrainingRun, at_end: bool) -> None:
    for record in run.meter.records:
        # A lane that has ended keeps the step at which it ended.
        if record.finished is None:
            record.step = run.step
            record.finished = record.find_end_reason(run.step, run.work.config)
            if record.finished is None and at_end:
                record.finished = "done"


def _should_stop(run: TrainingRun, signals: Signals) -> bool:
    """Returns True if a signal such as SIGTERM or Ctrl-C came and the run stops after this step.

    Several processes agree on it, and only at the steps where they log; at other steps it is False.
    """
    if run.work.several and run.step % run.work.config.log_every:
        return False
    return _find_signal(run, signals) is not None


def _find_signal(run: TrainingRun, signals: Signals) -> int | None:
    """Returns the number of a signal that came to any of the processes; None without a signal.

    All processes must call it at the same point, because all of them stop together.
    """
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
    """Prints a notice if the workdir has a finished run, because no step will be trained."""
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
    """Returns a list with the `FitResult` of each run; all processes must call it.

    Args:
      run: the variables of the loop after training.
      number: the number of the signal that stopped the runs, or None.
    """
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
            stopped=record.finished if run.over and record.finished else "signal",
            steps=record.step,
            compilations=engine.compilations(),
            signal=number,
        )
        for record, (state, best) in zip(records, lanes, strict=True)
    ]


class _Single:
    """The arrays of a run, spread over the devices of a `Parallel`; see `Engine`.

    Args:
      task: the task.
      tx: the Optax chain.
      data: the batches of training.
      eval_data: the batches of an evaluation pass, or None.
      config: the training options.
      parallel: the devices.
      initial: the train state and the best parameters at the start.
      rates: the learning rates of the chain.
      point: maps (params, opt_state) to the parameters to evaluate.

    Attributes:
      state: the train state on the devices.
      best_params: the parameters of the best evaluation so far.
      eval_data: the batches of an evaluation pass, or None.
    """

    def __init__(
        self,
        task: AnyTask,
        tx: optax.GradientTransformation,
        data: Batches,
        eval_data: Any,
        config: TrainConfig,
        parallel: Parallel,
        initial: Restored,
        rates: LearningRates,
        point: Callable[[Any, Any], Any],
    ) -> None:
        self.task, self.data, self.eval_data = task, data, eval_data
        self.config, self.parallel, self.rates = config, parallel, rates
        self.seed_key = jax.random.key(config.seed)
        self.traces_before = parallel.traces
        self.train_step = parallel.train_step(task, tx, check_loss=True)
        self.state = parallel.place(initial.state)
        self.best_params = initial.best
        self.point = self.point_on_host = point
        # A function that only looks up its result needs no program; a computation is compiled once
        # for the devices and once for the host.
        if point is not find_eval_params or is_computed(initial.state.opt_state):
            self.point, self.point_on_host = parallel.on_params(point), jax.jit(point)

    def batches(self, start: int) -> Iterator[list[Batch]]:
        return ([batch] for batch in self.data.read(start, self.config.num_steps))

    def advance(self, batches: list[Batch], running: list[int]) -> Metrics:
        if self.parallel.is_one_device:
            batch = pad_rows(batches[0], self.parallel.accumulate)
            self.state, metrics = self.train_step(self.state, batch, self.seed_key)
            return metrics
        batch = self.parallel.shard(batches[0])
        self.state, metrics = self.train_step(self.state, batch, self.seed_key)
        return self.parallel.local(metrics)

    def evaluate(self) -> tuple[list[dict[str, float]], bool]:
        traces = self.parallel.traces
        params, state = self.point(self.state.params, self.state.opt_state), self.state.model_state
        metrics, _ = run_evaluation(
            self.task, params, self.eval_data, self.parallel, state, predicts=False
        )
        return [metrics], self.parallel.traces > traces

    def learning_rates(self) -> dict[str, np.ndarray]:
        return self.rates.read(self._without_devices(self.state.opt_state))

    def state_for_callbacks(self) -> TrainState:
        state = self._without_devices(dataclasses.replace(self.state, carry=None))
        return dataclasses.replace(state, carry=self.state.carry)

    def _without_devices(self, tree: Any) -> Any:
        if self.parallel.kind != "pmap":
            return tree
        return jax.tree.map(lambda x: x.addressable_data(0).reshape(x.shape[1:]), tree)

    def data_state(self) -> Any:
        return self.data.state()

    def keep_best(self, numbers: list[int]) -> None:
        params = self.point(self.state.params, self.state.opt_state)
        self.best_params = self.parallel.host(best_of(params, self.state.model_state))

    def fetch_carry(self) -> Carry:
        return self.parallel.fetch_carry(self.state.carry, len(self.data.first["weight"]))

    def fetch(self, carry: Carry, records: list[Record]) -> tuple[TrainState, Params]:
        state = self.parallel.fetch(self.state, carry)
        if records[0].best_metrics:
            return state, self.best_params
        params = jax.device_get(self.point_on_host(state.params, state.opt_state))
        return state, best_of(params, state.model_state)

    def to_record(self, step: int, records: list[Record], pending: Metrics) -> Line:
        records[0].pending = to_json(pending)
        return dataclasses.asdict(records[0])

    def compilations(self) -> int:
        return self.parallel.traces - self.traces_before


def _begin(
    task: AnyTask,
    data: Batches,
    eval_data: Any,
    work: Workdir,
    settings: object,
    metadata: object,
    parallel: Parallel,
    optimizer: optax.GradientTransformation | None,
    eval_params: Callable[[Any, Any], Any] | None,
    params: Any,
) -> TrainingRun:
    """Checks the arguments of `fit`, then restores the run or initialises it.

    It returns the variables of the training loop.

    Args:
      task: the task to train.
      data: the batches of training.
      eval_data: the batches of an evaluation pass, or None.
      work: the work folder with the training options.
      settings: values that a checkpoint must share with the run, as a mapping or a dataclass.
      metadata: values that are recorded and not compared, as a mapping or a dataclass.
      parallel: the devices.
      optimizer: an Optax transformation in place of the configured one, or None.
      eval_params: maps (params, opt_state) to the parameters to evaluate; None for the default.
      params: the parameters to start from; None starts from the result of `task.init`.
    """
    config, frozen = work.config, frozen_parameters(task)
    tx = make_optimizer(config.optimizer, config.num_steps, frozen=frozen)
    if optimizer is not None:
        tx = train_all_but(optimizer, frozen) if frozen else optimizer
    first, evaluation = data.first, first_evaluation_batch(eval_data)
    seed_key = jax.random.key(config.seed)
    if params is not None:
        params = fit_params(params, jax.eval_shape(lambda key: task.init(key, first), seed_key))
    make = SharedProgram(lambda key, params: init_state(task, tx, key, first, params), None, "init")
    like = make.eval_shape(seed_key, params)  # traced only here; the call below uses the same trace
    check_arrays(like)
    program = None if optimizer is None else digest_optimizer(tx, like.params)
    if any(map(is_key, jax.tree.leaves(like.opt_state))):
        tx = keys_as_data(tx)
        make = SharedProgram(
            lambda key, params, tx=tx: init_state(task, tx, key, first, params), None, "init"
        )
        like = make.eval_shape(seed_key, params)
    unreached = check_outputs(task, like, first, evaluation, config.best_metric)
    point = eval_params or find_eval_params
    check_eval_params(point, like)
    compared, rows = settings_of(settings, config, program), len(first["weight"])
    if eval_params is not None:
        compared["eval_params"] = eval_params_digest(point, like.params, like.opt_state)
    digests: dict[str, Any] = {}
    if work.several or work.path is not None:
        # A run without a workdir in a single process compares the digests with nothing.
        digests = run_digests(task, like, first, evaluation, eval_data, params)
    shared = Shared(
        compared,
        metadata_of(metadata),
        compared_digests(compared, digests, is_repeatable=data.is_repeatable),
    )
    if work.several:
        step = digest_or_none("a step of the run", make_train_step(task, tx), like, first, seed_key)
        agree(collect_shared_values(compared, config, digests, like.params, eval_data, step))
        if rows < jax.process_count():
            raise ValueError(
                f"a batch must have at least one example for each of the {jax.process_count()} "
                f"processes, got {rows} examples"
            )
    parallel.state_shardings(like)  # raises for a wrong rule, before files are written
    restored = initial = restore_everywhere(work, shared, like)
    if restored is not None:
        data.restore(restored.data)
    if initial is None:
        state = parallel.initialise(make, like, seed_key, params)
        # A new state passes through the host like a restored state, so that both are placed on the
        # devices in the same way.
        best = best_of(state.params, state.model_state)
        initial = Restored(dataclasses.asdict(Record()), state, best)
    records = records_of([initial.run], initial.run["step"], config)
    rates = LearningRates(tx, config.optimizer if optimizer is None else None, config.num_steps)
    engine = _Single(task, tx, data, eval_data, config, parallel, initial, rates, point)
    meter = Meter(work, records, [{}], from_json(records[0].pending))
    run = TrainingRun(engine, work, meter, shared, records[0].step, restored is not None)
    if run.resumed and not run.over and not data.is_repeatable:
        _warn_of_other_batches(run.step)
    run.reach = Reach.begin(task, tx, like, unreached, run.step < config.log_every)
    return run


def _warn_of_other_batches(step: int) -> None:
    warnings.warn(
        f"the run continues from step {step} with the next batches that train_data give, because "
        "repeatable=False: its result differs from that of an unbroken run, and examples may be "
        "trained on again or left out",
        RuntimeWarning,
        stacklevel=4,
    )


def fit(
    task: AnyTask,
    train_data: Any,
    eval_data: Any = None,
    config: TrainConfig | None = None,
    workdir: str | Path | None = None,
    *,
    steps: int | None = None,
    params: Any = None,
    settings: object = None,
    metadata: object = None,
    on_event: Callable[[str, int], None] | None = None,
    on_log: Callable[[dict[str, Any]], None] | None = None,
    callbacks: Sequence[Callback] = (),
    parallel: Parallel | None = None,
    optimizer: optax.GradientTransformation | optax.MultiSteps | None = None,
    eval_params: Callable[[Any, Any], Any] | None = None,
    repeatable: bool = True,
    raise_on_signal: bool = False,
    stop_when: Callable[[int], bool] | None = None,
) -> FitResult:
    """Trains a task, and continues from the newest checkpoint in workdir with the same bits.

    A checkpoint is matched to a run by the settings, by digests of the lowered `task.init`,
    `task.loss` (with its gradient) and `task.evaluate`, and by the first batches. An edited task
    and other data therefore need another workdir. The digests take the time of lowering these
    functions, without compilation. If workdir has a finished run, a line on standard error reports
    it, and the result of that run is returned. Without a workdir no file is written, and a run that
    is stopped cannot continue.

        >>> from gatedjax.training import Ratio
        >>> class Scale:
        ...     def init(self, key, batch):
        ...         return {"w": np.zeros((), np.float32)}
        ...     def loss(self, params, batch, rngs):
        ...         errors = batch["weight"] * (params["w"] * batch["x"] - 2) ** 2
        ...         return errors.sum(), {"loss": Ratio.of(errors, batch["weight"])}
        >>> batch = {"x": np.ones(2, np.float32), "weight": np.ones(2, np.float32)}
        >>> quiet = TrainConfig(progress=False)
        >>> result = fit(Scale(), [batch], config=quiet, steps=1, optimizer=optax.sgd(0.25))
        >>> result.steps, float(result.best_params["w"])
        (1, 1.0)

    Args:
      task: the task to train, see `Task`.
      train_data: the batches of training, of one of these kinds. `train_data[step]` is the batch
        of a step and must depend only on the step, as in a list or a `grain.MapDataset`; if there
        is a method `train_data.iterate(start, stop)`, it must yield the same batches, and may
        prepare them in advance. Or the iterator of the data has `get_state` and `set_state`, as in
        a `grain.IterDataset` or a `grain.DataLoader`; checkpoints save its state. Or, with
        repeatable=False, any other iterable of batches: an iterator, which ends the run if it ends
        before the last step, or a loader, which is iterated again for each epoch.
      eval_data: the batches of an evaluation pass, which is iterated for each evaluation; None for
        a run without evaluations.
      config: the training options (default: `TrainConfig()`).
      workdir: the folder for metrics.jsonl, config.json, environment.json and checkpoints/; None
        writes no files.
      steps: the number of updates, in place of `config.num_steps`.
      params: the parameters to start from, with the names, shapes and dtypes of the result of
        `task.init`, which is then not computed. A run that continues from a checkpoint must be
        given the same parameters.
      settings: values that a checkpoint must share with this run, such as the configuration of the
        network and the digest of the vocabulary, as a mapping or a dataclass of values that JSON
        can represent. The training options are added as "train"; entries of a given "train" replace
        them. A setting with the name "init", "loss", "evaluate", "train_data" or "eval_data" is
        compared in place of the digest, for example if the loss is rewritten during a run.
      metadata: values that are recorded in config.json and in all checkpoints and not compared,
        such as the name of an experiment, as a mapping or a dataclass of values that JSON can
        represent.
      parallel: the devices (default: `make_parallel` with the options in config). Its `accumulate`
        must be that of config. Pass the same object to `evaluate` to share its compiled steps.
      on_event: called with ("step" | "evaluate" | "save" | "saved" | "compiled", step). "saved"
        comes when the checkpoint is complete on disk, some steps after "save". "compiled" comes
        after a step or an evaluation that compiled a program; the time since the event before it is
        mostly compilation.
      on_log: called with each line of metrics.jsonl as a dict, for other trackers.
      callbacks: functions (step, state, metrics), called after each step that is logged or
        evaluated, before the checkpoint of the step is saved. `state` is the `TrainState` on the
        devices. The next step donates its buffers: a callback may read or compute with them, and
        must copy the arrays that it stores, for example by `jax.device_get`. `metrics` are floats
        by name: the line of training in metrics.jsonl, and the metrics of an evaluation with the
        prefix "eval_". After a step that is only logged or only evaluated it has only these. With
        several processes each of them calls its callbacks.
      optimizer: an Optax transformation in place of `config.optimizer`, which must then be the
        default. It is compared by a digest of its lowered program for these parameters, so that
        another learning rate is refused; with `settings["optimizer"]` that value is compared
        instead. If it accepts `value=`, `grad=` or `value_fn=`, it receives them, see
        `make_train_step`.
      eval_params: maps (params, opt_state) to the parameters that are evaluated and saved as the
        best ones. It is compared by a digest. The default is `gatedjax.training.eval_params`,
        which finds moving averages and schedule-free optimizers of Optax.
      repeatable: False for data that give other batches when they are read again. A run that
        continues from a checkpoint then goes on with the next batches that the data give, and
        warns that its result differs from that of an unbroken run.
      raise_on_signal: True raises `StoppedBySignal` after a signal instead of returning, so that
        the program does not go on after Ctrl-C or SIGTERM as if the run had ended.
      stop_when: called after each step with the number of steps so far. If it returns True, the run
        is logged, evaluated and saved, and ends, for example because the time is up. It requires a
        single process.

    Returns:
      The result. After SIGTERM or Ctrl-C the run is saved, if it has a workdir, and `stopped` is
      "signal". A program that continues must check it, or set raise_on_signal.

    Raises:
      TypeError, ValueError: before files are written, for a task, data or configuration that cannot
        work: a missing method, metrics that are no `Ratio`, no metric "loss", an evaluation without
        the metric `best_metric`, too few batches, batches without rows, an iterator as evaluation
        data, an iterator as training data without repeatable=False, other names or shapes in
        `params`, or an optimizer that requires other arguments than fit passes. After the first
        step, for a loss that is a mean, not a sum. At the first line of metrics.jsonl, for
        parameters that no gradient has reached, unless the task has them in `frozen` or the
        optimizer does not update them.
      StoppedBySignal: with raise_on_signal, after the run was saved.
      ProcessMismatch: on all of several processes, if their settings, packages, tasks or data
        differ; before the first step, or at the next checkpoint if batches or parameters differ
        later.
      WorkdirLost: if workdir was removed or replaced during the run.
      CheckpointMismatch: if workdir belongs to another run; the message lists the differences.
      CheckpointNotSaved: soon after a checkpoint could not be written, for example because the disk
        is full.
      WorkdirBusy: if another run is writing into workdir.
      FileExistsError: if workdir has a config.json, environment.json or metrics.jsonl that no run
        wrote.
      RuntimeError: if there are checkpoints and none can be read. A damaged checkpoint is moved to
        checkpoints-bad/ with a RuntimeWarning, and the newest good checkpoint is used.
      NonFiniteError: after more than `config.max_skipped` skipped updates in a row.
    """
    config = config_with_steps(config, steps)
    optimizer = check_optimizer(optimizer, config)
    callbacks = check_callbacks(callbacks)
    check_task(task, eval_data is not None)
    refuse_parts(task, config.accumulate)
    if config.seeds > 1 or config.sweep:
        raise ValueError(
            "config must have seeds = 1 and an empty sweep for fit, got "
            f"{config.seeds} and {config.sweep}: call fit_lanes"
        )
    parallel = parallel or make_parallel(config.parallel, accumulate=config.accumulate)
    # The step would use the number of `parallel`, while the checkpoints record the number of the
    # configuration.
    if parallel.accumulate != config.accumulate:
        raise ValueError(
            f"parallel must have the accumulate of config, {config.accumulate}, got "
            f"{parallel.accumulate}"
        )
    work = Workdir(workdir, config, on_event, on_log, parallel.several_processes)
    if stop_when is not None and work.several:
        raise ValueError(
            "stop_when must be None with several processes, which could stop at different steps"
        )
    data = open_batches(train_data, config.num_steps, repeatable)
    with work, Signals(work.announce_stop) as signals:
        run = _begin(
            task,
            data,
            eval_data,
            work,
            settings,
            metadata,
            parallel,
            optimizer,
            eval_params,
            params,
        )
        run.stop_when, run.callbacks = stop_when, callbacks
        report_finished(run)
        number = None if run.over else train(run, signals)
        (result,) = results_of(run, number)
    if work.reports and result.stopped != "signal":
        record = dataclasses.asdict(run.meter.records[0])
        next_batches = data.read(result.steps, result.steps + NEXT_BATCHES)
        write_digests(result.state, result.best_params, record, next_batches, work.path)
    if raise_on_signal and number is not None:
        raise StoppedBySignal([result])
    return result
