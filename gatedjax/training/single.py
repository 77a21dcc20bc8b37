"""`fit`, which trains a single run."""

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from gatedjax._utils.cpu import keep_freed_memory_on_cpu
from gatedjax.training._agreement import agree, collect_shared_values
from gatedjax.training._averages import eval_params as find_eval_params
from gatedjax.training._averages import is_computed
from gatedjax.training._batches import Batches, open_batches
from gatedjax.training._checks import (
    check_arrays,
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
from gatedjax.training._meter import Meter
from gatedjax.training._programs import SharedProgram
from gatedjax.training._rates import LearningRates
from gatedjax.training._reach import Reach
from gatedjax.training._record import Record
from gatedjax.training._restore import Restored, Shared, records_of, restore_everywhere
from gatedjax.training._signals import Signals
from gatedjax.training._transforms import is_key, keys_as_data, train_all_but
from gatedjax.training._verify import NEXT_BATCHES, write_digests
from gatedjax.training._workdir import Line, Params, Workdir
from gatedjax.training.config import TrainConfig, make_optimizer
from gatedjax.training.evaluation import run_evaluation
from gatedjax.training.identity import eval_params_digest, metadata_of, settings_of
from gatedjax.training.loop import (
    Callback,
    FitResult,
    StoppedBySignal,
    TrainingRun,
    report_finished,
    results_of,
    train,
)
from gatedjax.training.metrics import Metrics, from_json, to_json
from gatedjax.training.parallel import Parallel, make_parallel, pad_rows
from gatedjax.training.step import TrainState, best_of, init_state, make_train_step, refuse_parts
from gatedjax.training.task import AnyTask, Batch, Carry, frozen_parameters


class _Single:
    """The `Engine` of a single run, spread over the devices of a `Parallel`."""

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
    """Checks the arguments of `fit`, then restores the run or initialises it."""
    config, frozen = work.config, frozen_parameters(task)
    tx = make_optimizer(config.optimizer, config.num_steps, frozen=frozen)
    if optimizer is not None:
        tx = train_all_but(optimizer, frozen) if frozen else optimizer
    first, evaluation = data.first, first_evaluation_batch(eval_data)
    seed_key = jax.random.key(config.seed)
    if params is not None:
        params = fit_params(params, jax.eval_shape(lambda key: task.init(key, first), seed_key))
    like = _describe_state(task, tx, seed_key, first, params)
    check_arrays(like)
    program = None if optimizer is None else digest_optimizer(tx, like.params)
    if any(map(is_key, jax.tree.leaves(like.opt_state))):
        tx = keys_as_data(tx)
        like = _describe_state(task, tx, seed_key, first, params)
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
        state = parallel.initialise(_make_init(task, tx, first), like, seed_key, params)
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


def _describe_state(
    task: AnyTask, tx: optax.GradientTransformation, key: jax.Array, first: Batch, params: Any
) -> TrainState:
    state: TrainState = jax.eval_shape(
        lambda key, params: init_state(task, tx, key, first, params), key, params
    )
    return state


def _make_init(
    task: AnyTask, tx: optax.GradientTransformation, first: Batch
) -> Callable[[jax.Array, Any], TrainState]:
    """Returns the compiled `init_state`. The first batch, which depends on the seed, is an
    argument, so that runs with other seeds share the program.
    """
    with_batch = SharedProgram(
        lambda key, batch, params: init_state(task, tx, key, batch, params), None, "init"
    )
    with_constant = SharedProgram(
        lambda key, params: init_state(task, tx, key, first, params), None, "init"
    )

    def make(key: jax.Array, params: Any) -> TrainState:
        try:
            state: TrainState = with_batch(key, first, params)
        except (TypeError, IndexError):  # JAX's errors for values that are not known while tracing
            state = with_constant(key, params)
        return state

    return make


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
    keep_memory: bool = True,
) -> FitResult:
    """Trains a task. If the run stops, make the same call again to resume it, bit for bit.

    A call resumes from the newest checkpoint in workdir, if settings, compiled functions and first
    batches are unchanged. An edited task therefore needs a new workdir. The result of a finished
    run is returned without training. The page "Training" has examples and details.

        >>> from gatedjax.training import Ratio
        >>> class Scale:
        ...     def init(self, key, batch):
        ...         return {"w": np.zeros((), np.float32)}
        ...     def loss(self, params, batch, rngs):
        ...         errors = batch["weight"] * (params["w"] * batch["x"] - 2) ** 2
        ...         return errors.sum(), {"loss": Ratio.of(errors, batch["weight"])}
        >>> batch = {"x": np.ones(2, np.float32), "weight": np.ones(2, np.float32)}
        >>> float(fit(Scale(), [batch], steps=1, optimizer=optax.sgd(0.25)).best_params["w"])
        1.0

    Args:
      task: the task to train, see `Task`.
      train_data: batches by step, an iterator with `get_state`, or (repeatable=False) an iterable.
      eval_data: the batches of an evaluation pass, or None.
      config: the training options (default: `TrainConfig()`).
      workdir: the folder for checkpoints and metrics.jsonl; None writes no files.
      steps: the number of updates, in place of `config.num_steps`.
      params: the parameters to start from, in place of the result of `task.init`.
      settings: a mapping or dataclass of values that a checkpoint must share with this run.
      metadata: a mapping or dataclass of values that are recorded and not compared.
      on_event: called with ("step" | "evaluate" | "save" | "saved" | "compiled", step).
      on_log: called with each line of metrics.jsonl as a dict, for other trackers.
      callbacks: functions (step, state, metrics), called after steps that are logged or evaluated.
      parallel: the devices (default: `make_parallel` with the options in config).
      optimizer: an Optax transformation in place of `config.optimizer`.
      eval_params: maps (params, opt_state) to the parameters to evaluate and to save as the best.
      repeatable: False for data that give other batches when they are read again.
      raise_on_signal: raises `StoppedBySignal` after SIGTERM or Ctrl-C instead of returning.
      stop_when: called after the callbacks with the number of steps; True saves and ends the run.
      keep_memory: False leaves the allocator alone; a CPU run calls `keep_freed_memory` otherwise.

    Returns:
      A `FitResult`. After SIGTERM or Ctrl-C the run is saved, and `stopped` is "signal".

    Raises:
      TypeError, ValueError: before files are written, if an argument cannot work.
      CheckpointMismatch: if workdir belongs to another run; the message lists the differences.
    """
    if keep_memory:
        keep_freed_memory_on_cpu()
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
