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
    """The arrays of a run, spread over the devices of a `Parallel`, and its compiled step.

    It has the methods of the protocol `Engine`, which the training loop calls.

    Args:
      task: the task, a model with its loss (see `Task`).
      tx: the Optax chain, a `GradientTransformation`.
      data: the batches of training.
      eval_data: the batches of an evaluation pass, or None.
      config: the training options.
      parallel: the devices.
      initial: a `Restored` with the train state and the best parameters at the start.
      rates: a `LearningRates`, which finds the learning rates in the state of the chain.
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
        """Yields for each step, from `start` on, a list with its single batch, a dict of arrays."""
        return ([batch] for batch in self.data.read(start, self.config.num_steps))

    def advance(self, batches: list[Batch], running: list[int]) -> Metrics:
        """Trains for a step, and returns the metrics of the step: a sum and a count by name.

        `batches` has the single batch of the step, a dict of arrays. `running`, the numbers of the
        runs that have not ended, is not used, because there is a single run.
        """
        if self.parallel.is_one_device:
            batch = pad_rows(batches[0], self.parallel.accumulate)
            self.state, metrics = self.train_step(self.state, batch, self.seed_key)
            return metrics
        batch = self.parallel.shard(batches[0])
        self.state, metrics = self.train_step(self.state, batch, self.seed_key)
        return self.parallel.local(metrics)

    def evaluate(self) -> tuple[list[dict[str, float]], bool]:
        """Evaluates the present parameters on the evaluation data.

        Returns:
          A list with the dict of the metrics by name; and True if the evaluation was compiled by
          this call.
        """
        traces = self.parallel.traces
        params, state = self.point(self.state.params, self.state.opt_state), self.state.model_state
        metrics, _ = run_evaluation(
            self.task, params, self.eval_data, self.parallel, state, predicts=False
        )
        return [metrics], self.parallel.traces > traces

    def learning_rates(self) -> dict[str, np.ndarray]:
        """Returns the learning rates of the last update, scalar arrays by name.

        The names are like "learning_rate"; the dict is empty if the optimizer stores no rate.
        """
        return self.rates.read(self._without_devices(self.state.opt_state))

    def state_for_callbacks(self) -> TrainState:
        """Returns the train state on the devices, without an axis over devices."""
        state = self._without_devices(dataclasses.replace(self.state, carry=None))
        return dataclasses.replace(state, carry=self.state.carry)

    def _without_devices(self, tree: Any) -> Any:
        """Returns a tree of arrays without the first axis, that over devices, which "pmap" adds.

        The part of the first device of the process is taken. With other kinds of parallelism `tree`
        is returned unchanged.
        """
        if self.parallel.kind != "pmap":
            return tree
        return jax.tree.map(lambda x: x.addressable_data(0).reshape(x.shape[1:]), tree)

    def data_state(self) -> Any:
        """Returns the position in the training data for a checkpoint, as a JSON value.

        It is None for data that are read by the number of a step.
        """
        return self.data.state()

    def keep_best(self, numbers: list[int]) -> None:
        """Stores the present parameters as the best ones, in the memory of the host.

        `numbers`, the numbers of the runs, is not used, because there is a single run.
        """
        params = self.point(self.state.params, self.state.opt_state)
        self.best_params = self.parallel.host(best_of(params, self.state.model_state))

    def fetch_carry(self) -> Carry:
        """Returns the carried state of a `StatefulTask` as NumPy arrays; None for other tasks.

        All processes must call it.
        """
        return self.parallel.fetch_carry(self.state.carry, len(self.data.first["weight"]))

    def fetch(self, carry: Carry, records: list[Record]) -> tuple[TrainState, Params]:
        """Returns the train state and the best parameters as NumPy arrays.

        Args:
          carry: the carried state, a tree of NumPy arrays or None, as from `fetch_carry`.
          records: a list with the progress of the run. Before its first evaluation the best
            parameters are the present ones.
        """
        state = self.parallel.fetch(self.state, carry)
        if records[0].best_metrics:
            return state, self.best_params
        params = jax.device_get(self.point_on_host(state.params, state.opt_state))
        return state, best_of(params, state.model_state)

    def to_record(self, step: int, records: list[Record], pending: Metrics) -> Line:
        """Returns the fields of the `Record` of the run as a dict, for the JSON of a checkpoint.

        Args:
          step: the number of steps so far, which is not used, because the record has it.
          records: a list with the progress of the run; its `pending` is set.
          pending: a sum and a count of each metric by name since the last line of metrics.jsonl.
        """
        records[0].pending = to_json(pending)
        return dataclasses.asdict(records[0])

    def compilations(self) -> int:
        """Returns the number of step functions that were compiled for this run so far."""
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

    It returns a `TrainingRun`, the variables of the training loop, from which `train` starts.

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
    """Returns the shapes and dtypes of the train state before the first step.

    The values of the batch `first` are known here, so that the checks of the task see them. The
    arguments are those of `init_state`.
    """
    state: TrainState = jax.eval_shape(
        lambda key, params: init_state(task, tx, key, first, params), key, params
    )
    return state


def _make_init(
    task: AnyTask, tx: optax.GradientTransformation, first: Batch
) -> Callable[[jax.Array, Any], TrainState]:
    """Returns a function of (key, params), compiled, that makes the first train state.

    The first batch depends on the seed. It is an argument of the program, so that runs with other
    seeds share the program. If the task computes with the values of the batch in Python, the batch
    is a constant of the program.

    Args:
      task: the task, which initialises the parameters.
      tx: the Optax chain.
      first: a batch of training.
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
    """Warns that a run continues at `step` with other batches than an unbroken run.

    `step` is the number of steps so far. The data were given with repeatable=False.
    """
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
      eval_data: the batches of an evaluation pass, which is iterated for each evaluation, or read
        by index up to its length if it has no `__iter__`; None for a run without evaluations.
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
      stop_when: called after each step, and after the callbacks, with the number of steps so far.
        If it returns True, the run is saved and ends, for example because the time is up. A run
        that continues from there is bit-equal to an unbroken one, so the stop adds no evaluation:
        the best parameters are those of the evaluations so far, or the last ones if there was none.
        It requires a single process.
      keep_memory: False leaves the allocator of the process as it is. By default a run on a CPU
        calls `keep_freed_memory`: the steps are faster, and the process keeps the memory that it
        frees.

    Returns:
      The result. After SIGTERM or Ctrl-C the run is saved, if it has a workdir, and `stopped` is
      "signal". A program that continues must check it, or set raise_on_signal.

    Raises:
      TypeError, ValueError: before files are written, for a task, data or configuration that cannot
        work: a missing method, metrics that are no `Ratio`, no metric "loss", an evaluation without
        the metric `best_metric`, too few batches, batches without rows, an iterator as evaluation
        data, an iterator as training data without repeatable=False, other names or shapes in
        `params` or numbers there that are not finite, or an optimizer that requires other arguments
        than fit passes. After the first step, for a loss that is a mean, not a sum. At the first
        line of metrics.jsonl, for parameters that no gradient has reached, unless the task has them
        in `frozen` or the optimizer does not update them.
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
