"""Training of several seeds, and values of a hyperparameter, side by side in a compiled program.

Each run is a lane with separate parameters, optimiser state, data order, noise, skipped updates,
early stopping and best parameters. The lanes share the program and are spread over the devices.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gatedjax._utils.cpu import keep_freed_memory_on_cpu
from gatedjax.training._averages import is_computed
from gatedjax.training._batches import first_batch
from gatedjax.training._checks import (
    check_arrays,
    check_batch,
    check_optimizer,
    check_outputs,
    check_task,
    config_with_steps,
    digest_optimizer,
    first_evaluation_batch,
    fit_params,
    iterate_batches,
)
from gatedjax.training._digests import array_digests, compared_digests, run_digests
from gatedjax.training._meter import Meter, floats_of
from gatedjax.training._rates import LearningRates
from gatedjax.training._reach import Reach
from gatedjax.training._record import Record
from gatedjax.training._restore import Restored, Shared, records_of, restore_or_begin
from gatedjax.training._signals import Signals
from gatedjax.training._transforms import is_key, keys_as_data, train_all_but
from gatedjax.training._workdir import Line, Params, Workdir
from gatedjax.training.config import TrainConfig, eval_params, make_optimizer
from gatedjax.training.evaluation import concatenate_rows
from gatedjax.training.identity import metadata_of, settings_of
from gatedjax.training.loop import (
    FitResult,
    StoppedBySignal,
    TrainingRun,
    report_finished,
    results_of,
    train,
)
from gatedjax.training.metrics import Metrics, from_json, to_json
from gatedjax.training.parallel import pad_rows
from gatedjax.training.step import (
    TrainState,
    best_of,
    init_state,
    make_train_step,
    refuse_parts,
)
from gatedjax.training.task import (
    Batch,
    Carry,
    LaneTask,
    call_evaluate,
    call_summarise,
    frozen_parameters,
    has_summary,
    is_stateful,
)


@dataclasses.dataclass(frozen=True)
class Lane:
    """A run that is trained side by side with other runs.

    Attributes:
      seed: the seed of the run.
      value: the value in this run of the hyperparameter that `TrainConfig.sweep_over` names, such
        as the learning rate; None without a sweep.
      config: the configuration with which `fit` would train the same run. It lacks a swept number
        that belongs to the task.
    """

    seed: int
    value: float | None
    config: TrainConfig


def lanes_of(config: TrainConfig) -> list[Lane]:
    """Lists the runs that `fit_lanes` trains: one for each pair of a swept value and a seed.

        >>> config = TrainConfig(seeds=2, sweep=(0.1, 0.2))
        >>> [(lane.seed, lane.value) for lane in lanes_of(config)]
        [(0, 0.1), (1, 0.1), (0, 0.2), (1, 0.2)]

    Args:
      config: the configuration to pass to `fit_lanes`. Its `seeds` is the number of seeds, and
        `sweep` has the values.

    Returns:
      A `Lane` for each run, with `seed`, `value` and a `config` that trains this run by `fit`. The
      lanes are in the order of the results of `fit_lanes`.

    Raises:
      ValueError: if a value of the sweep is not finite, or is a learning rate out of range.
    """
    solo = dataclasses.replace(config, seeds=1, sweep=(), sweep_over=TrainConfig().sweep_over)
    lanes = []
    values: Sequence[float | None] = config.sweep or (None,)
    for value, number in itertools.product(values, range(config.seeds)):
        if value is not None and not math.isfinite(value):
            raise ValueError(f"sweep must hold finite numbers, got {value}")
        lane_config = dataclasses.replace(solo, seed=config.seed + number)
        if value is not None and config.sweep_over == "learning_rate":
            optimizer = dataclasses.replace(config.optimizer, learning_rate=value)
            make_optimizer(optimizer, config.num_steps)  # raises ValueError for a rate out of range
            lane_config = dataclasses.replace(lane_config, optimizer=optimizer)
        lanes.append(Lane(seed=lane_config.seed, value=value, config=lane_config))
    return lanes


def _vary(task: Any, name: str, value: Any) -> Any:
    sweepable = tuple(getattr(task, "sweepable", ()))
    if name not in sweepable:
        raise ValueError(
            f"sweep_over must be one of {sorted(('learning_rate', *sweepable))}, got {name!r}"
        )
    return task.with_value(name, value)


def make_lane_step(
    task: LaneTask, config: TrainConfig, optimizer: optax.GradientTransformation | None = None
) -> Callable[..., Any]:
    """Builds the training step of all lanes: (states, batches, seed_keys, active, values) to
    (states, metrics), all with a leading axis over the lanes. The state of a lane that is not
    active stays; `values` of `config.sweep_over` are not used without a sweep.
    """
    swept = bool(config.sweep)

    def step(
        state: TrainState, batch: Batch, key: jax.Array, active: jax.Array, value: jax.Array
    ) -> tuple[TrainState, Metrics]:
        # The optimiser is built inside the traced function, because its rate is an argument of the
        # program.
        rate = value if swept and config.sweep_over == "learning_rate" else None
        tx = optimizer
        if tx is None:
            frozen = frozen_parameters(task)
            tx = make_optimizer(
                config.optimizer, config.num_steps, learning_rate=rate, frozen=frozen
            )
        varied = _vary(task, config.sweep_over, value) if swept and rate is None else task
        lane_step = make_train_step(varied, tx, accumulate=config.accumulate, check_loss=True)
        new, metrics = lane_step(state, batch, key)
        # A lane that has ended stays in the program, because another number of lanes would be
        # compiled again.
        return jax.tree.map(lambda n, o: jnp.where(active, n, o), new, state), metrics

    return jax.vmap(step)


def _stack(batches: Sequence[Batch], kind: str = "training") -> Batch:
    shapes = {tuple(sorted((k, np.shape(v)) for k, v in batch.items())) for batch in batches}
    if len(shapes) > 1:
        raise ValueError(
            f"the {kind} batches of a step must have the same shapes for all seeds, got "
            + " and ".join(str(dict(shape)) for shape in sorted(shapes)[:2])
        )
    return {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}


class _Lanes:
    """The `Engine` of several runs side by side. All devices have equally many lanes; the lanes
    added for this are neither reported nor saved, so that a run can continue on other devices.
    """

    def __init__(
        self,
        task: LaneTask,
        lanes: list[Lane],
        train_data: list[Any],
        eval_data: Any,
        config: TrainConfig,
        devices: Sequence[jax.Device],
        initial: Restored,
        tx: optax.GradientTransformation,
        is_configured: bool,
    ) -> None:
        self.rates = LearningRates(
            tx, config.optimizer if is_configured else None, config.num_steps
        )
        self.sweeps_rate = bool(config.sweep) and config.sweep_over == "learning_rate"
        self.accumulate = config.accumulate
        self.count, width = len(lanes), min(len(devices), len(lanes))
        # The additional lanes are copies of the last lane.
        self.rows = np.minimum(np.arange(-(-self.count // width) * width), self.count - 1)
        padded = [lanes[row] for row in self.rows]
        self.train_data = [train_data[row] for row in self.rows]
        self.eval_data, self.own = eval_data, callable(eval_data)
        if self.own:
            data_of = {lane.seed: eval_data(lane.seed) for lane in lanes}
            self.eval_data = [data_of[lane.seed] for lane in padded]
        mesh = jax.make_mesh(
            (width,), ("lane",), axis_types=(jax.sharding.AxisType.Auto,), devices=devices[:width]
        )
        self.split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("lane"))
        self.whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        self.keys = jnp.stack([jax.random.key(lane.seed) for lane in padded])
        # NaN stands for a lane without a value, because the program takes an array of numbers.
        values = [math.nan if lane.value is None else lane.value for lane in padded]
        self.values = jax.device_put(np.array(values, np.float32), self.split)
        self.traces = self.eval_traces = 0
        lane_step = make_lane_step(task, config, None if is_configured else tx)
        of_task = bool(config.sweep) and not self.sweeps_rate

        def step(*args: Any) -> tuple[TrainState, Metrics]:
            self.traces += 1
            return lane_step(*args)

        def evaluate(params: Params, value: jax.Array, batch: Batch, state: Any) -> Any:
            self.eval_traces += 1
            varied = _vary(task, config.sweep_over, value) if of_task else task
            metrics, predictions, _ = call_evaluate(varied, params, batch, model_state=state)
            # Predictions that no function reads are not computed.
            return metrics, predictions if has_summary(task) else {}

        # The tasks of the lanes differ in the swept number, which `summarise` may read.
        self.varied = [
            _vary(task, config.sweep_over, lane.value) if of_task else task for lane in lanes
        ]
        self.point = eval_params
        # These parameters are a computation for a single run, so that it is mapped over the lanes.
        if is_computed(initial.state.opt_state):
            self.point = jax.jit(jax.vmap(eval_params))

        self.train_step = jax.jit(step, donate_argnums=0, out_shardings=self.split)
        over = (0, 0, 0 if self.own else None, 0)
        self.eval_step = jax.jit(jax.vmap(evaluate, over), out_shardings=self.split)
        self.state = jax.device_put(jax.tree.map(lambda x: x[self.rows], initial.state), self.split)
        # The arrays are copied, because `keep_best` writes into them.
        self.best_params = jax.tree.map(np.array, initial.best)

    def batches(self, start: int) -> Iterator[list[Batch]]:
        return ([data[step] for data in self.train_data] for step in itertools.count(start))

    def advance(self, batches: list[Batch], running: list[int]) -> Metrics:
        padded = [pad_rows(batch, self.accumulate) for batch in batches]
        batch = jax.device_put(_stack(padded), self.split)
        active = jax.device_put(np.isin(self.rows, running), self.split)
        self.state, metrics = self.train_step(self.state, batch, self.keys, active, self.values)
        return metrics

    def evaluate(self) -> tuple[list[dict[str, float]], bool]:
        traces = self.eval_traces
        params = self.point(self.state.params, self.state.opt_state)
        totals: Metrics = {}
        parts: list[Any] = []
        for batch in self.evaluation_batches():
            metrics, predictions = self.eval_step(
                params, self.values, batch, self.state.model_state
            )
            totals = jax.tree.map(jnp.add, totals, metrics) if totals else metrics
            if predictions:
                parts.append(jax.device_get((batch["weight"], predictions)))
        values = floats_of(totals)[: self.count]
        for number, task in enumerate(self.varied if parts else ()):
            rows = _real_rows(parts, number)
            values[number] |= call_summarise(task, rows, values[number])
        return values, self.eval_traces > traces

    def learning_rates(self) -> dict[str, np.ndarray]:
        # The lines of a sweep have the peak of their lane under the same name.
        if self.sweeps_rate:
            return {}
        # A rate without an axis is that of all lanes.
        return {
            name: rate[: self.count] if np.ndim(rate) else rate
            for name, rate in self.rates.read(self.state.opt_state).items()
        }

    def state_for_callbacks(self) -> TrainState:
        return self.state

    def data_state(self) -> Any:
        # Lanes read their data by the number of a step.
        return None

    def evaluation_batches(self) -> Iterator[Batch]:
        if not self.own:
            for number, batch in enumerate(iterate_batches(self.eval_data)):
                check_batch(batch, f"evaluation batch {number}")
                yield jax.device_put(batch, self.whole)
            return
        for number, batches in enumerate(zip(*map(iterate_batches, self.eval_data), strict=True)):
            for batch in batches:
                check_batch(batch, f"evaluation batch {number}")
            yield jax.device_put(_stack(batches, "evaluation"), self.split)

    def keep_best(self, numbers: list[int]) -> None:
        params = self.point(self.state.params, self.state.opt_state)
        last = jax.device_get(best_of(params, self.state.model_state))
        _copy_lanes(last, self.best_params, numbers)

    def fetch_carry(self) -> Carry:
        # `fit_lanes` refuses tasks with a carried state.
        return None

    def fetch(self, carry: Carry, records: list[Record]) -> tuple[TrainState, Params]:
        state = jax.tree.map(lambda x: x[: self.count], jax.device_get(self.state))
        # The arrays are copied, because only the result has the last parameters of lanes without an
        # evaluation.
        best = jax.tree.map(np.array, self.best_params)
        fresh = [number for number, record in enumerate(records) if not record.best_metrics]
        params = jax.device_get(self.point(state.params, state.opt_state))
        _copy_lanes(best_of(params, state.model_state), best, fresh)
        return state, best

    def to_record(self, step: int, records: list[Record], pending: Metrics) -> Line:
        return {
            "lanes": [dataclasses.asdict(record) for record in records],
            "step": step,
            "pending": to_json(jax.tree.map(lambda x: x[: self.count], pending)),
        }

    def compilations(self) -> int:
        return self.traces


def _real_rows(parts: list[Any], number: int) -> dict[str, np.ndarray]:
    rows: dict[str, list[np.ndarray]] = {}
    for weight, predictions in parts:
        is_real = np.atleast_2d(weight)[number if np.ndim(weight) == 2 else 0] > 0
        for name, values in predictions.items():
            rows.setdefault(name, []).append(np.asarray(values)[number][is_real])
    return {name: concatenate_rows(name, arrays) for name, arrays in rows.items()}


def _copy_lanes(source: Params, target: Params, numbers: list[int]) -> None:
    for old, new in zip(jax.tree.leaves(target), jax.tree.leaves(source), strict=True):
        old[numbers] = new[numbers]


def _begin(
    task: LaneTask,
    lanes: list[Lane],
    train_data: Callable[[int], Any],
    eval_data: Any,
    work: Workdir,
    settings: object,
    metadata: object,
    devices: Sequence[jax.Device],
    optimizer: optax.GradientTransformation | None,
    params: Any,
) -> TrainingRun:
    """Checks the arguments of `fit_lanes`, then restores the lanes or initialises them."""
    config, frozen = work.config, frozen_parameters(task)
    tx = make_optimizer(config.optimizer, config.num_steps, frozen=frozen)
    if optimizer is not None:
        tx = train_all_but(optimizer, frozen) if frozen else optimizer
    data = {lane.seed: train_data(lane.seed) for lane in lanes}
    firsts = {seed: first_batch(batches, config.num_steps) for seed, batches in data.items()}
    of_first = eval_data(lanes[0].seed) if callable(eval_data) else eval_data
    evaluation = first_evaluation_batch(of_first)
    first = firsts[lanes[0].seed]
    keys = [jax.random.key(lane.seed) for lane in lanes]
    if params is not None:
        params = fit_params(params, jax.eval_shape(lambda key: task.init(key, first), keys[0]))
    make = jax.jit(lambda key, params: init_state(task, tx, key, first, params))
    of_one = make.eval_shape(
        keys[0], params
    )  # traced only here; the calls below use the same trace
    check_arrays(of_one)
    program = None if optimizer is None else digest_optimizer(tx, of_one.params)
    compared = settings_of(settings, config, program)
    if any(map(is_key, jax.tree.leaves(of_one.opt_state))):
        tx = keys_as_data(tx)
        make = jax.jit(lambda key, params, tx=tx: init_state(task, tx, key, first, params))
        of_one = make.eval_shape(keys[0], params)
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct((len(keys), *x.shape), x.dtype), of_one)
    unreached = check_outputs(task, of_one, first, evaluation, config.best_metric)
    digests: dict[str, Any] = {}
    if work.path is not None:
        # A run without a workdir compares the digests with nothing.
        digests = run_digests(task, of_one, first, evaluation, of_first, params)
        digests["train_data"] = {f"seed {s}": array_digests(batch) for s, batch in firsts.items()}
    shared = Shared(compared, metadata_of(metadata), compared_digests(compared, digests))
    restored = initial = restore_or_begin(work, shared, like)
    if initial is None:
        # The lanes are initialised in turn by the program of a single run, because it gives the
        # same bits as that run. (On a CPU the vmapped initialisation of eight GA-Nets also hung
        # with jax 0.10.)
        states = [jax.device_get(make(key, params)) for key in keys]
        state = jax.tree.map(lambda *leaves: np.stack(leaves), *states)
        records = [dataclasses.asdict(Record()) for _ in lanes]
        best = best_of(state.params, state.model_state)
        initial = Restored({"lanes": records, "step": 0, "pending": {}}, state, best)
    run, data_of = initial.run, [data[lane.seed] for lane in lanes]
    engine = _Lanes(
        task, lanes, data_of, eval_data, config, devices, initial, tx, optimizer is None
    )
    names = [
        {"seed": lane.seed} | ({} if lane.value is None else {config.sweep_over: lane.value})
        for lane in lanes
    ]
    pending = jax.tree.map(lambda x: x[engine.rows], from_json(run["pending"]))
    meter = Meter(work, records_of(run["lanes"], run["step"], config), names, pending)
    lanes_run = TrainingRun(engine, work, meter, shared, run["step"], restored is not None)
    lanes_run.reach = Reach.begin(task, tx, of_one, unreached, lanes_run.step < config.log_every)
    return lanes_run


def fit_lanes(
    task: LaneTask,
    train_data: Callable[[int], Any],
    eval_data: Any = None,
    config: TrainConfig | None = None,
    workdir: str | Path | None = None,
    *,
    steps: int | None = None,
    params: Any = None,
    settings: object = None,
    metadata: object = None,
    optimizer: optax.GradientTransformation | optax.MultiSteps | None = None,
    devices: Sequence[jax.Device] | None = None,
    on_event: Callable[[str, int], None] | None = None,
    on_log: Callable[[dict[str, Any]], None] | None = None,
    raise_on_signal: bool = False,
    keep_memory: bool = True,
) -> list[FitResult]:
    """Trains several seeds, and values of a hyperparameter, side by side in a compiled program.

    There is a lane for each of `config.seeds` seeds and each value of `config.sweep`. A lane equals
    the result of `fit` with its seed and value on a single device, up to the order of float32 sums:
    the parameters agree to about 1e-5 relative after a hundred steps. Like `fit` it continues from
    the checkpoints in the workdir.

        >>> from gatedjax.training import Ratio
        >>> class Scale:
        ...     def init(self, key, batch):
        ...         return {"w": jax.random.normal(key)}
        ...     def loss(self, params, batch, rngs):
        ...         errors = batch["weight"] * (params["w"] * batch["x"] - 2) ** 2
        ...         return errors.sum(), {"loss": Ratio.of(errors, batch["weight"])}
        >>> batch = {"x": np.ones(2, np.float32), "weight": np.ones(2, np.float32)}
        >>> config = TrainConfig(num_steps=1, seeds=2, progress=False)
        >>> results = fit_lanes(Scale(), lambda seed: [batch], config=config)
        >>> [result.steps for result in results]
        [1, 1]

    Args:
      task: the task to train.
      train_data: a function from a seed to its training data (see `fit`). At each step the batches
        of all seeds must have the same shapes, as with `gatedjax.data.Batches` of the same texts.
      eval_data: the batches of an evaluation pass, shared by the lanes; or a function from a seed
        to its batches, which must be equally many and of the same shapes for all seeds. None
        evaluates no data.
      workdir: the folder for a single metrics.jsonl, with the seed in each line, and for a single
        set of checkpoints; None writes no files.
      optimizer: an Optax transformation for all lanes, in place of `config.optimizer`. A sweep must
        then vary a number of the task, because the transformation has its learning rate.
      devices: the devices over which the lanes are spread (default: all devices of this process).
      config, steps, params, settings, metadata, on_event, on_log, raise_on_signal, keep_memory: as
        in `fit`. Lanes have no callbacks, because one train state has the arrays of all lanes.

    Returns:
      The `FitResult` of each lane, in the order of `lanes_of(config)`.

    Raises:
      ValueError: for pmap, fsdp, several processes, tensorboard, profile_steps, a sweep over a
        number that the task cannot vary, or a sweep over the learning rate of a given optimizer.
      NonFiniteError: after more than `config.max_skipped` skipped updates in a row of a lane. The
        first lane that reaches the limit ends all lanes. The errors of `fit` come on top.
    """
    if keep_memory:
        keep_freed_memory_on_cpu()
    config = config_with_steps(config, steps)
    optimizer = check_optimizer(optimizer, config)
    if optimizer is not None and config.sweep and config.sweep_over == "learning_rate":
        raise ValueError(
            "sweep_over must be a number of the task if optimizer is given, which has its own "
            "learning rate, got 'learning_rate': give config.optimizer in its place"
        )
    check_task(task, eval_data is not None)
    refuse_parts(task, config.accumulate)
    if config.parallel not in ("sharding", "single"):
        raise ValueError(
            f"parallel must be 'sharding' or 'single' for several seeds, got {config.parallel!r}"
        )
    if config.tensorboard or config.profile_steps:
        raise ValueError(
            "tensorboard and profile_steps must be left out for several seeds, got "
            f"{config.tensorboard} and {config.profile_steps}"
        )
    if is_stateful(task):
        raise ValueError(
            "task must not carry a state from batch to batch for several seeds, got "
            f"{type(task).__name__}"
        )
    if jax.process_count() > 1:
        raise ValueError(
            f"several seeds must be trained by a single process, got {jax.process_count()}"
        )
    lane_devices = list(devices) if devices is not None else jax.local_devices()
    if config.parallel == "single":
        lane_devices = lane_devices[:1]
    if config.sweep and config.sweep_over != "learning_rate":
        # A value that the task cannot have is refused here, before files are written, and not
        # during the first trace.
        for value in config.sweep:
            _vary(task, config.sweep_over, value)
    lanes, work = lanes_of(config), Workdir(workdir, config, on_event, on_log, False)
    with work, Signals(work.announce_stop) as signals:
        run = _begin(
            task,
            lanes,
            train_data,
            eval_data,
            work,
            settings,
            metadata,
            lane_devices,
            optimizer,
            params,
        )
        report_finished(run)
        number = train(run, signals)
        results = results_of(run, number)
    if raise_on_signal and number is not None:
        raise StoppedBySignal(results)
    return results
