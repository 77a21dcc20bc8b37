"""`fit`, and the one loop of training: `train` shows the order of a round."""

import dataclasses
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, Protocol

import jax
import numpy as np
import optax

from gatedjax.training._agreement import Seen, agree, given
from gatedjax.training._averages import eval_params as find_eval_params
from gatedjax.training._averages import is_computed
from gatedjax.training._checks import (
    check_arrays,
    check_batch,
    check_config,
    check_eval_params,
    check_optimizer,
    check_outputs,
    check_task,
    first_batch,
    first_evaluation_batch,
    optimizer_program,
)
from gatedjax.training._digests import compared_digests, digest_or_none, run_digests
from gatedjax.training._meter import Interval, Meter, floats_of
from gatedjax.training._meter import NonFiniteError as NonFiniteError
from gatedjax.training._reach import Reach
from gatedjax.training._record import Record
from gatedjax.training._restore import Restored, Shared, records_of, restore_everywhere
from gatedjax.training._signals import Signals
from gatedjax.training._transforms import is_key, keys_as_data, train_all_but
from gatedjax.training._verify import write_digests
from gatedjax.training._workdir import Line, Params, Profile, Workdir
from gatedjax.training.config import TO_ZERO, TrainConfig, make_optimizer
from gatedjax.training.distributed import largest
from gatedjax.training.evaluation import run_evaluation
from gatedjax.training.identity import eval_params_digest, metadata_of, settings_of
from gatedjax.training.metrics import Metrics, from_json, to_json
from gatedjax.training.parallel import Parallel, make_parallel
from gatedjax.training.progress import summary
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


class Engine(Protocol):
    """The arrays of one run, or of several side by side; the loop knows of no device."""

    state: TrainState
    eval_data: Any

    def batches(self, start: int) -> Iterator[list[Batch]]:
        """Every run's batch, step by step."""

    def advance(self, batches: list[Batch], running: list[int]) -> Metrics:
        """Makes a step of the runs with these numbers."""

    def evaluate(self) -> tuple[Metrics, bool]:
        """The metrics on the evaluation data, and whether a step was compiled for them."""

    def keep_best(self, numbers: list[int]) -> None:
        """Notes the parameters of these runs as their best ones."""

    def fetch_carry(self) -> Carry:
        """What is carried to the next batch, as NumPy arrays; every process must call it."""

    def fetch(self, carry: Carry, records: list[Record]) -> tuple[TrainState, Params]:
        """State and best parameters as NumPy arrays; the last ones where nothing was evaluated."""

    def to_record(self, step: int, records: list[Record], pending: Metrics) -> Line:
        """What a checkpoint remembers beside arrays."""

    def compilations(self) -> int:
        """How many step functions were compiled."""


@dataclasses.dataclass
class Run:
    """What the rounds of a run, or of several side by side, read and change."""

    engine: Engine
    work: Workdir
    meter: Meter
    shared: Shared
    """Entries of the record of every checkpoint."""
    step: int
    resumed: bool
    stop_when: Callable[[int], bool] | None = None
    """From a step to whether it is the last one, though `num_steps` are not made."""
    shapes: set[tuple[Any, ...]] = dataclasses.field(default_factory=set)
    """Of the batches so far: another shape is another program."""
    reach: Reach | None = None
    """Looks for parameters that no gradient reaches, until the first line of a new run."""
    seen: Seen = dataclasses.field(init=False)
    """What several processes have trained on since they last compared it."""

    def __post_init__(self) -> None:
        self.seen = Seen(self.step)

    @property
    def over(self) -> bool:
        """Whether nothing is left to do."""
        return not self.meter.running()


def train(run: Run, signals: Signals) -> int | None:
    """Trains until every run is over or a signal comes; returns the signal's number.

    A round: step, log, evaluate, decide, ask whether to stop, save. What is saved has been
    evaluated, and no batch was taken after it.
    """
    work, engine, config = run.work, run.engine, run.work.config
    work.show(run.step, run.resumed)
    profile = Profile(work)
    begun, stop = run.step, False
    batches = engine.batches(begun)
    run.meter.interval = Interval()
    try:
        while not run.over and not stop:
            profile.before_step(run.step - begun, engine.state)
            _step(run, next(batches))
            work.tell_saved()
            at_end = run.step >= config.num_steps or _ends_here(run)
            if run.step % config.log_every == 0 or at_end:
                run.meter.log(run.step)
                if run.reach is not None:
                    run.reach.refuse()
                    run.reach = None
            if engine.eval_data is not None and (run.step % config.eval_every == 0 or at_end):
                _evaluate(run)
            _decide(run, at_end)
            # asked once a round, and before the save, so that what stops is always saved
            stop = _asked_to_stop(run, signals)
            if run.step % config.checkpoint_every == 0 or run.over or stop:
                _save(run)
        work.settle()
    finally:
        profile.stop(engine.state)
    # a signal that came with the last step is not lost on who starts the next run
    return _signal(run, signals)


def _step(run: Run, batches: list[Batch]) -> None:
    first, view, meter = batches[0], run.work.view, run.meter
    check_batch(first, f"the batch of step {run.step}")
    if run.work.several:
        run.seen.add(first)
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
        jax.block_until_ready(metrics)
        seconds = time.perf_counter() - began
        meter.interval.compiling += seconds
        view.once(seconds, steps=1)
        view.phase("train")
    meter.add(run.step, refuse_mean_loss(metrics, fresh=run.step == 0), batches)
    run.step += 1
    run.work.event("step", run.step)
    view.step(run.step)


def _evaluate(run: Run) -> None:
    work, meter, step = run.work, run.meter, run.step
    work.view.phase("evaluate")
    work.event("evaluate", step)
    began = time.perf_counter()
    metrics, compiled = run.engine.evaluate()
    values, improved = floats_of(metrics), []
    for number in meter.running():
        meter.write(number, {"split": "eval", "step": step, **values[number]})
        work.view.message(f"step {step}{meter.title(number)}: {summary(values[number])}")
        if meter.records[number].evaluated(step, values[number], work.config):
            improved.append(number)
    if improved:
        run.engine.keep_best(improved)
    seconds = time.perf_counter() - began
    meter.interval.began += seconds
    if compiled:
        work.view.once(seconds)
    work.view.phase("train")


def _ends_here(run: Run) -> bool:
    return run.stop_when is not None and run.stop_when(run.step)


def _decide(run: Run, at_end: bool) -> None:
    for record in run.meter.records:
        if record.finished is None:
            record.step = run.step
            record.finished = record.ended(run.step, run.work.config)
            if record.finished is None and at_end:
                record.finished = "done"


def _asked_to_stop(run: Run, signals: Signals) -> bool:
    """Whether a signal came; several processes agree on it wherever they log."""
    if run.work.several and run.step % run.work.config.log_every:
        return False
    return _signal(run, signals) is not None


def _signal(run: Run, signals: Signals) -> int | None:
    """The signal that came, to whichever process; every one must ask at the same point.

    All of them stop for it, and so all of them have to tell.
    """
    if not run.work.several:
        return signals.received
    return largest(signals.received or 0) or None


def _save(run: Run) -> None:
    engine, work, meter = run.engine, run.work, run.meter
    meter.check_skipped()
    # all processes take part in fetching what is carried, and compare what they have
    carry = engine.fetch_carry()
    if work.several:
        run.seen.compare(run.step, engine.fetch(carry, meter.records)[0].params)
    if not work.writes:
        return
    work.view.phase("save")
    work.event("save", run.step)
    state, best = engine.fetch(carry, meter.records)
    record = engine.to_record(run.step, meter.records, meter.pending)
    work.save(run.step, state, best, {"run": record} | dataclasses.asdict(run.shared))
    work.view.phase("train")


def report_finished(run: Run) -> None:
    """Says so where the workdir holds a run that is over, because nothing will be trained."""
    if run.over and run.resumed and run.work.writes:
        config, last = run.work.config, max(record.step for record in run.meter.records)
        longer = ", or a larger num_steps to continue it"
        early = any(record.finished == "early" for record in run.meter.records)
        run.work.view.notice(
            f"{run.work.path} holds a finished run of {last} steps: nothing is trained, and its "
            "result is returned. Use another workdir to train anew"
            f"{'' if early or config.optimizer.schedule in TO_ZERO else longer}."
        )


def results_of(run: Run, number: int | None) -> list[FitResult]:
    """One result for every run, after a signal or none; every process must call it."""
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
    """The arrays of one run, spread as `Parallel` says; see `Engine`."""

    def __init__(
        self,
        task: AnyTask,
        tx: optax.GradientTransformation,
        train_data: Any,
        eval_data: Any,
        config: TrainConfig,
        parallel: Parallel,
        begun: Restored,
        rows: int,
        point: Callable[[Any, Any], Any],
    ) -> None:
        self.task, self.train_data, self.eval_data = task, train_data, eval_data
        self.config, self.parallel, self.rows = config, parallel, rows
        self.seed_key = jax.random.key(config.seed)
        self.traces_before = parallel.traces
        self.train_step = parallel.train_step(task, tx, check_loss=True)
        self.state = parallel.place(begun.state)
        self.best_params = begun.best
        self.point = self.point_on_host = point
        if point is not find_eval_params or is_computed(begun.state.opt_state):
            self.point, self.point_on_host = parallel.on_copies(point), jax.jit(point)

    def batches(self, start: int) -> Iterator[list[Batch]]:
        steps = start, self.config.num_steps
        if hasattr(self.train_data, "iterate"):
            return ([batch] for batch in self.train_data.iterate(*steps))
        return ([self.train_data[step]] for step in range(*steps))

    def advance(self, batches: list[Batch], running: list[int]) -> Metrics:
        batch = self.parallel.shard(batches[0])
        self.state, metrics = self.train_step(self.state, batch, self.seed_key)
        return self.parallel.local(metrics)

    def evaluate(self) -> tuple[Metrics, bool]:
        traces = self.parallel.traces
        params, state = self.point(self.state.params, self.state.opt_state), self.state.model_state
        metrics, _ = run_evaluation(self.task, params, self.eval_data, self.parallel, state)
        return metrics, self.parallel.traces > traces

    def keep_best(self, numbers: list[int]) -> None:
        params = self.point(self.state.params, self.state.opt_state)
        self.best_params = self.parallel.host(best_of(params, self.state.model_state))

    def fetch_carry(self) -> Carry:
        return self.parallel.fetch_carry(self.state.carry, self.rows)

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
    train_data: Any,
    eval_data: Any,
    work: Workdir,
    settings: object,
    metadata: object,
    parallel: Parallel,
    optimizer: optax.GradientTransformation | None,
    eval_params: Callable[[Any, Any], Any] | None,
) -> Run:
    """Refuses what cannot work, then restores the run or initialises it."""
    config, frozen = work.config, frozen_parameters(task)
    tx = make_optimizer(config.optimizer, config.num_steps, frozen=frozen)
    if optimizer is not None:
        tx = train_all_but(optimizer, frozen) if frozen else optimizer
    first = first_batch(train_data, config.num_steps)
    evaluation = first_evaluation_batch(eval_data)
    make = jax.jit(lambda key: init_state(task, tx, key, first))
    seed_key = jax.random.key(config.seed)
    like = make.eval_shape(seed_key)  # traced here, for the call below too
    check_arrays(like)
    program = None if optimizer is None else optimizer_program(tx, like.params)
    if any(map(is_key, jax.tree.leaves(like.opt_state))):
        tx = keys_as_data(tx)
        make = jax.jit(lambda key, tx=tx: init_state(task, tx, key, first))
        like = make.eval_shape(seed_key)
    unreached = check_outputs(task, like, first, evaluation, config.best_metric)
    point = eval_params or find_eval_params
    check_eval_params(point, like)
    compared, rows = settings_of(settings, config, program), len(first["weight"])
    if eval_params is not None:
        compared["eval_params"] = eval_params_digest(point, like.params, like.opt_state)
    digests = run_digests(task, like, first, evaluation, eval_data)
    shared = Shared(compared, metadata_of(metadata), compared_digests(compared, digests))
    if work.several:
        step = digest_or_none("a step of the run", make_train_step(task, tx), like, first, seed_key)
        agree(given(compared, config, digests, like.params, eval_data, step))
        if rows < jax.process_count():
            raise ValueError(
                f"a batch has {rows} examples for {jax.process_count()} processes: every process "
                "needs at least one"
            )
    restored = begun = restore_everywhere(work, shared, like)
    if begun is None:
        state = jax.device_get(make(seed_key))
        best = best_of(state.params, state.model_state)
        begun = Restored(dataclasses.asdict(Record()), state, best)
    records = records_of([begun.run], begun.run["step"], config)
    engine = _Single(task, tx, train_data, eval_data, config, parallel, begun, rows, point)
    meter = Meter(work, records, [{}], from_json(records[0].pending))
    run = Run(engine, work, meter, shared, records[0].step, restored is not None)
    run.reach = Reach.begin(task, tx, like, unreached, run.step < config.log_every)
    return run


def fit(
    task: AnyTask,
    train_data: Any,
    eval_data: Any,
    config: TrainConfig,
    workdir: str | Path,
    *,
    settings: object = None,
    metadata: object = None,
    on_event: Callable[[str, int], None] | None = None,
    on_log: Callable[[dict[str, Any]], None] | None = None,
    parallel: Parallel | None = None,
    optimizer: optax.GradientTransformation | optax.MultiSteps | None = None,
    eval_params: Callable[[Any, Any], Any] | None = None,
    raise_on_signal: bool = False,
    stop_when: Callable[[int], bool] | None = None,
) -> FitResult:
    """Trains a task; continues where the checkpoints in workdir end, with the same bits.

    A checkpoint knows its run by the settings, by digests of the lowered `task.init`, `task.loss`
    (with its gradient) and `task.evaluate`, and by the first batches: an edited task or other data
    want another workdir. The digests cost the lowering of these functions and no compilation.
    Where a run in workdir is finished, one line on standard error says so, and its result is
    returned.

    Args:
      task: what is trained.
      train_data: `train_data[step]` is the batch of a step, a pure function of the step number;
        `train_data.iterate(start, stop)`, where it exists, yields the same batches ahead of use.
      eval_data: batches of one evaluation pass, iterated again for each; None evaluates nothing.
      config: how to train.
      workdir: gets metrics.jsonl, config.json, environment.json and checkpoints/.
      settings: what a checkpoint must share with this run to be continued, such as the
        configuration of the network and the digest of the vocabulary: a mapping or a dataclass of
        values that JSON can hold. The training options join them as "train", where an entry of this
        name takes the place of the options that it has. A value with the name "init", "loss",
        "evaluate", "train_data" or "eval_data" is compared in place of the digest, as for a loss
        that is rewritten during a run.
      metadata: what is recorded in config.json and in every checkpoint and never compared, such as
        the name of an experiment: a mapping or a dataclass of values that JSON can hold.
      parallel: the devices, made with the `accumulate` of config (default: as config says); give
        the same one to `evaluate` to share its compiled steps.
      on_event: called with ("step" | "evaluate" | "save" | "saved", step); "saved" comes when
        the checkpoint is whole on disk, some steps after "save".
      on_log: called with every line of metrics.jsonl as a dict, for other trackers.
      optimizer: takes the place of `config.optimizer`, which must be the default then. A
        checkpoint knows it by a digest of its compiled program for these parameters, so that
        another learning rate is refused; or by `settings["optimizer"]` alone, if that is given.
        One that asks for `value=`, `grad=` or `value_fn=` gets them, see `make_train_step`.
      eval_params: from (params, opt_state) to the parameters that are evaluated and kept as the
        best ones (default: `gatedjax.training.eval_params`, which finds moving averages and
        schedule-free optimizers of Optax by itself). A checkpoint knows it by a digest, too.
      raise_on_signal: raise `StoppedBySignal` in place of returning, so that the program does not
        go on after Ctrl-C or SIGTERM as if the run had ended.
      stop_when: asked after every step with the number of steps so far; True makes it the last one:
        it is logged, evaluated and saved, as where a time is up. For one process.

    Returns:
      The result. After SIGTERM or Ctrl-C the run is saved and `stopped` is "signal": a program
      that goes on must look at it, or ask for raise_on_signal.

    Raises:
      TypeError, ValueError: before anything is written, for a task, data or configuration that
        cannot work: a missing method, metrics that are no `Ratio`, no metric "loss", a
        `best_metric` that evaluate does not give, too few batches, batches without rows, or an
        iterator as evaluation data, an optimizer that needs what fit does not hand on. After the
        first step, for a loss that is a mean, not a sum. At the first line of metrics.jsonl, for
        parameters that no gradient has reached, unless the task has them in `frozen` or the
        optimizer leaves them as they are.
      StoppedBySignal: with raise_on_signal, after the run was saved.
      ProcessMismatch: on every process of several, if they were not given the same settings,
        packages, task and data; before the first step, or at the next checkpoint for batches or
        parameters that differ later.
      WorkdirLost: if workdir was removed or replaced during the run.
      CheckpointMismatch: if workdir belongs to another run, with every difference by name.
      CheckpointNotSaved: soon after a checkpoint could not be written, as on a full disk.
      WorkdirBusy: if another run is writing into workdir.
      FileExistsError: if workdir has a config.json, environment.json or metrics.jsonl that no run
        wrote.
      RuntimeError: if none of its checkpoints can be read. A damaged one is moved to
        checkpoints-bad/ with a RuntimeWarning, and the newest good one is used.
      NonFiniteError: after more than `config.max_skipped` skipped updates in a row.
    """
    check_config(config)
    optimizer = check_optimizer(optimizer, config)
    check_task(task, eval_data is not None)
    refuse_parts(task, config.accumulate)
    if config.seeds > 1 or config.sweep:
        raise ValueError("fit trains one seed; fit_lanes trains several seeds or a sweep")
    parallel = parallel or make_parallel(config.parallel, accumulate=config.accumulate)
    if parallel.accumulate != config.accumulate:
        raise ValueError(
            f"parallel was made with accumulate {parallel.accumulate}, the configuration "
            f"wants {config.accumulate}"
        )
    work = Workdir(workdir, config, on_event, on_log, parallel.several_processes)
    if stop_when is not None and work.several:
        raise ValueError("stop_when must be None with several processes: they would not agree")
    with work, Signals(work.stopping) as signals:
        run = _begin(
            task,
            train_data,
            eval_data,
            work,
            settings,
            metadata,
            parallel,
            optimizer,
            eval_params,
        )
        run.stop_when = stop_when
        report_finished(run)
        number = None if run.over else train(run, signals)
        (result,) = results_of(run, number)
    if work.writes and result.stopped != "signal":
        record = dataclasses.asdict(run.meter.records[0])
        write_digests(result.state, result.best_params, record, train_data, work.path)
    if raise_on_signal and number is not None:
        raise StoppedBySignal([result])
    return result
