"""Several seeds (and values of a hyperparameter) side by side in one compiled program.

Every lane is a run of its own: parameters, optimiser state, data order, noise, skipped updates,
early stopping and best parameters. The lanes share the program, and are spread over the devices.
"""

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from gatedjax.training._checks import (
    check_batch,
    check_config,
    check_outputs,
    check_task,
    first_batch,
    first_evaluation_batch,
)
from gatedjax.training._record import Record
from gatedjax.training._restore import restore_or_begin
from gatedjax.training._signals import Signals
from gatedjax.training._verify import killer
from gatedjax.training.checkpoint import CheckpointStore
from gatedjax.training.config import TrainConfig, eval_params, make_optimizer
from gatedjax.training.identity import identity
from gatedjax.training.lock import WorkdirLock
from gatedjax.training.log import MetricsLog
from gatedjax.training.loop import (
    IN_FLIGHT,
    FitResult,
    NonFiniteError,
    StoppedBySignal,
    closing,
)
from gatedjax.training.metrics import Metrics, Ratio, from_json, to_json
from gatedjax.training.parallel import pad_rows
from gatedjax.training.progress import ProgressView, summary
from gatedjax.training.step import TrainState, init_state, make_train_step, refuse_mean_loss
from gatedjax.training.task import Batch, Task, frozen_parameters, is_stateful


@dataclasses.dataclass(frozen=True)
class Lane:
    """One of the runs that are trained side by side.

    Attributes:
      seed: its seed.
      value: its value of `sweep_over`; None without a sweep.
      config: the configuration of the single run that the lane equals. A swept number that belongs
        to the task is not in it.
    """

    seed: int
    value: float | None
    config: TrainConfig


def lanes_of(config: TrainConfig) -> list[Lane]:
    """The lanes that a configuration asks for: every seed with every value.

    Raises:
      ValueError: if a value of the sweep is not finite.
    """
    solo = dataclasses.replace(config, seeds=1, sweep=(), sweep_over=TrainConfig().sweep_over)
    lanes = []
    values: Sequence[float | None] = config.sweep or (None,)
    for value, number in itertools.product(values, range(config.seeds)):
        if value is not None and not math.isfinite(value):
            raise ValueError(f"sweep must hold finite numbers, got {value}")
        one = dataclasses.replace(solo, seed=config.seed + number)
        if value is not None and config.sweep_over == "learning_rate":
            optimizer = dataclasses.replace(config.optimizer, learning_rate=value)
            make_optimizer(optimizer, config.num_steps)  # refuses what no run could use
            one = dataclasses.replace(one, optimizer=optimizer)
        lanes.append(Lane(seed=one.seed, value=value, config=one))
    return lanes


def _varied(task: Any, name: str, value: Any) -> Any:
    """The task with another value of one of its numbers.

    Raises:
      ValueError: if the task cannot vary that number.
    """
    known = tuple(getattr(task, "sweepable", ()))
    if name not in known:
        raise ValueError(
            f"sweep_over must be one of {sorted(('learning_rate', *known))}, got {name!r}"
        )
    return task.with_value(name, value)


def make_lane_step(task: Task, config: TrainConfig) -> Callable[..., Any]:
    """The step of all lanes: (states, batches, seed_keys, active, values) -> (states, metrics).

    Every argument has a leading axis over the lanes. A lane that is not active keeps its state.
    """
    swept = bool(config.sweep)

    def step(
        state: TrainState, batch: Batch, key: jax.Array, active: jax.Array, value: jax.Array
    ) -> tuple[TrainState, Metrics]:
        rate = value if swept and config.sweep_over == "learning_rate" else None
        tx = make_optimizer(
            config.optimizer, config.num_steps, learning_rate=rate, frozen=frozen_parameters(task)
        )
        own = _varied(task, config.sweep_over, value) if swept and rate is None else task
        new, metrics = make_train_step(own, tx, accumulate=config.accumulate, check_loss=True)(
            state, batch, key
        )
        kept = jax.tree.map(lambda n, o: jnp.where(active, n, o), new, state)
        return kept, metrics

    return jax.vmap(step)


def _stack(batches: Sequence[Batch]) -> Batch:
    shapes = {tuple(sorted((k, np.shape(v)) for k, v in batch.items())) for batch in batches}
    if len(shapes) > 1:
        raise ValueError(
            "lanes need training data whose batches have one shape at every step, got "
            + " and ".join(str(dict(shape)) for shape in sorted(shapes)[:2])
        )
    return {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}


def _lane_floats(metrics: Metrics) -> list[dict[str, float]]:
    """Every lane's metrics as floats."""
    host = jax.device_get(metrics)
    count = len(next(iter(host.values())).total)
    return [
        {name: Ratio(total=r.total[i], count=r.count[i]).value() for name, r in host.items()}
        for i in range(count)
    ]


class _Lanes:
    """The state of one call of `fit_lanes`."""

    def __init__(
        self,
        task: Task,
        train_data: Callable[[int], Any],
        eval_data: Any,
        config: TrainConfig,
        workdir: Path,
        metadata: dict[str, Any],
        devices: Sequence[jax.Device],
        on_event: Callable[[str, int], None] | None,
        on_log: Callable[[dict[str, Any]], None] | None,
    ) -> None:
        self.task, self.config, self.workdir = task, config, workdir
        self.eval_data, self.metadata = eval_data, metadata
        self.event, self.on_log = killer(on_event), on_log
        self.lanes = lanes_of(config)
        self.identity = identity(metadata, config)
        # every device gets as many lanes as the others; the lanes added for that are not reported
        width = min(len(devices), len(self.lanes))
        self.padded = self.lanes + [self.lanes[-1]] * (-len(self.lanes) % width)
        data = {lane.seed: train_data(lane.seed) for lane in self.lanes}
        self.train_data = [data[lane.seed] for lane in self.padded]
        mesh = jax.make_mesh(
            (width,), ("lane",), axis_types=(jax.sharding.AxisType.Auto,), devices=devices[:width]
        )
        self.split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("lane"))
        self.whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        self.keys = jnp.stack([jax.random.key(lane.seed) for lane in self.padded])
        values = [math.nan if lane.value is None else lane.value for lane in self.padded]
        self.values = jax.device_put(np.array(values, np.float32), self.split)
        self.traces = self.eval_traces = 0
        vmapped = make_lane_step(task, config)

        def step(*args: Any) -> Any:
            self.traces += 1
            return vmapped(*args)

        self.train_step = jax.jit(step, donate_argnums=0, out_shardings=self.split)
        of_task = bool(config.sweep) and config.sweep_over != "learning_rate"

        def evaluate(params: Any, value: jax.Array, batch: Batch) -> Metrics:
            self.eval_traces += 1
            own = _varied(task, config.sweep_over, value) if of_task else task
            return own.evaluate(params, batch)[0]

        self.eval_step = jax.jit(jax.vmap(evaluate, (0, 0, None)), out_shardings=self.split)
        self.records = [Record() for _ in self.lanes]
        self.step = 0
        self.pending: Metrics = {}
        self.view = ProgressView(config.num_steps, 0, False)
        self.recent: list[tuple[int, Any, np.ndarray]] = []
        self.store = CheckpointStore(self.workdir / "checkpoints", config.keep_checkpoints)
        self.lock: WorkdirLock | None = None
        self.log: MetricsLog | None = None

    def start(self) -> None:
        """Restores or initialises."""
        tx = make_optimizer(
            self.config.optimizer, self.config.num_steps, frozen=frozen_parameters(self.task)
        )
        firsts = [first_batch(data, self.config.num_steps) for data in self.train_data]
        evaluation = first_evaluation_batch(self.eval_data)
        first = firsts[0]
        make = lambda key: init_state(self.task, tx, key, first)  # noqa: E731
        like = jax.eval_shape(jax.vmap(make), self.keys[: len(self.lanes)])
        params = jax.eval_shape(make, self.keys[0]).params
        check_outputs(self.task, params, first, evaluation, self.config.best_metric)
        self.workdir.mkdir(parents=True, exist_ok=True)
        self.lock = WorkdirLock(self.workdir)
        self.log = MetricsLog(self.workdir / "metrics.jsonl")
        found = restore_or_begin(
            self.store, self.identity, self.metadata, self.config, self.workdir, like
        )
        if found is None:
            # One lane after the other, with the program of a single run: the same first bits.
            # (On a CPU the vmapped initialisation of eight GA-Nets also hung, in jax 0.10.)
            one = jax.jit(make)
            each = [jax.device_get(one(key)) for key in self.keys[: len(self.lanes)]]
            state = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
            self.best = jax.tree.map(np.array, state.params)
        else:
            run, state, best = found
            self.best = jax.tree.map(np.array, best)
            self.records = [Record(**one) for one in run["lanes"]]
            self.step = run["step"]
            self.pending = from_json(run["pending"])
        self.resumed = None if found is None else self.step
        self.log.begin(self.resumed)
        # checkpoints hold the lanes alone: another number of devices may continue them
        rows = [min(i, len(self.lanes) - 1) for i in range(len(self.padded))]
        self.state = jax.device_put(jax.tree.map(lambda x: x[np.array(rows)], state), self.split)
        self.pending = jax.tree.map(lambda x: x[np.array(rows)], self.pending)

    def run(self, signals: Signals) -> tuple[Literal["done", "signal"], int | None]:
        """Trains until every lane is over, or a signal."""
        config = self.config
        self.view = ProgressView(config.num_steps, self.step, config.progress)
        if self.resumed is not None:
            self.view.message(f"resuming {self.workdir} from step {self.step}")
        for record in self.records:
            # more steps than before continue a run that was done
            if record.finished == "done" and self.step < config.num_steps:
                record.finished = None
        begun = self.step
        try:
            while self._active().any():
                if signals.received is not None and self.step > begun:
                    self._save()
                    return "signal", signals.received
                self._round()
            self.store.wait()
            self._check_workdir()
            self._tell_saved()
            return "done", signals.received
        finally:
            self.view.close()

    def stopping(self) -> None:
        self.view.notice("stopping after this step; again to stop now")

    def _check_workdir(self) -> None:
        if self.lock is not None:
            self.lock.check()

    def _active(self) -> np.ndarray:
        return np.array([record.finished is None for record in self.records])

    def _round(self) -> None:
        config = self.config
        active = self._active()
        spare = len(self.padded) - len(self.lanes)
        self._tell_saved()
        began, traces = time.perf_counter(), self.traces
        batches = [pad_rows(data[self.step], config.accumulate) for data in self.train_data]
        check_batch(batches[0], f"the batch of step {self.step}")
        batch = jax.device_put(_stack(batches), self.split)
        flags = jax.device_put(np.append(active, [active[-1]] * spare), self.split)
        self.state, metrics = self.train_step(self.state, batch, self.keys, flags, self.values)
        if self.traces > traces:
            jax.block_until_ready(metrics)
            self.view.once(time.perf_counter() - began, steps=1)
        metrics = refuse_mean_loss(metrics, fresh=self.step == 0)
        self.pending = jax.tree.map(jnp.add, self.pending, metrics) if self.pending else metrics
        self.recent.append((self.step, metrics["skipped"].total, active))
        if len(self.recent) > IN_FLIGHT:
            jax.block_until_ready(self.recent[-1 - IN_FLIGHT][1])
        self.step += 1
        self.event("step", self.step)
        self.view.step(self.step)
        at_end = self.step >= config.num_steps
        if self.step % config.log_every == 0 or at_end:
            self._log(active)
        if self.eval_data is not None and (self.step % config.eval_every == 0 or at_end):
            self._evaluate(active)
        for record, was in zip(self.records, active, strict=True):
            if was:
                record.step = self.step
                record.finished = record.ended(self.step, config)
        if self.step % config.checkpoint_every == 0 or not self._active().any():
            self._save()

    def _check_skipped(self) -> None:
        fetched = jax.device_get([flags for _, flags, _ in self.recent])
        for (step, _, active), skipped in zip(self.recent, fetched, strict=True):
            for i, (lane, record) in enumerate(zip(self.lanes, self.records, strict=True)):
                if not active[i] or not skipped[i]:
                    record.skipped_in_a_row = 0
                    continue
                record.skipped_in_a_row += 1
                ids = [int(n) for n in self.train_data[i][step]["example_id"] if n >= 0]
                self._write({"split": "skipped", "step": step + 1, "example_id": ids}, lane)
                if record.skipped_in_a_row > self.config.max_skipped:
                    raise NonFiniteError(
                        f"seed {lane.seed}: {record.skipped_in_a_row} updates in a row had a "
                        "loss, gradient or updated parameters that are not finite (limit "
                        f"{self.config.max_skipped}), the last at step {step + 1} with examples "
                        f"{ids}"
                    )
        self.recent = []

    def _write(self, line: dict[str, Any], lane: Lane) -> None:
        line = {**line, "seed": lane.seed}
        if lane.value is not None:
            line[self.config.sweep_over] = lane.value
        assert self.log is not None, "start() comes first"
        self.log.write(line)
        if self.on_log is not None:
            self.on_log(line)

    def _log(self, active: np.ndarray) -> None:
        self._check_skipped()
        each = _lane_floats(self.pending)
        for lane, values, on in zip(self.lanes, each, active, strict=False):
            if on:
                self._write({"split": "train", "step": self.step, **values}, lane)
        shown = [values for values, on in zip(each, active, strict=False) if on]
        self.view.log(self.step, {k: float(np.mean([v[k] for v in shown])) for k in shown[0]})
        self.pending = {}

    def _evaluate(self, active: np.ndarray) -> None:
        self.event("evaluate", self.step)
        began, traces = time.perf_counter(), self.eval_traces
        params = eval_params(self.state.params, self.state.opt_state)
        totals: Metrics = {}
        for batch in self.eval_data:
            one = self.eval_step(params, self.values, jax.device_put(batch, self.whole))
            totals = jax.tree.map(jnp.add, totals, one) if totals else one
        host, each = None, _lane_floats(totals)
        if self.eval_traces > traces:
            self.view.once(time.perf_counter() - began)
        for i, (lane, values) in enumerate(zip(self.lanes, each, strict=False)):
            if not active[i]:
                continue
            self._write({"split": "eval", "step": self.step, **values}, lane)
            swept = "" if lane.value is None else f", {self.config.sweep_over} {lane.value:g}"
            self.view.message(f"step {self.step}, seed {lane.seed}{swept}: {summary(values)}")
            if self.records[i].evaluated(self.step, values, self.config):
                host = host if host is not None else jax.device_get(params)
                for kept, new in zip(
                    jax.tree.leaves(self.best), jax.tree.leaves(host), strict=True
                ):
                    kept[i] = new[i]

    def _save(self) -> None:
        self._check_skipped()
        self.event("save", self.step)
        self._check_workdir()
        if self.log is not None:
            self.log.sync()
        own = lambda x: x[: len(self.lanes)]  # noqa: E731
        state = jax.tree.map(own, jax.device_get(self.state))
        run = {
            "lanes": [dataclasses.asdict(record) for record in self.records],
            "step": self.step,
            "pending": to_json(jax.tree.map(own, self.pending)),
        }
        best = jax.tree.map(np.array, self.best)
        # as in `fit`: a lane that was never evaluated has no better parameters than its last ones
        fresh = np.array([not record.best_metrics for record in self.records])
        if fresh.any():
            last = eval_params(state.params, state.opt_state)
            for kept, new in zip(jax.tree.leaves(best), jax.tree.leaves(last), strict=True):
                kept[fresh] = new[fresh]
        self.store.save(self.step, state, best, {"run": run, "metadata": self.identity})

    def _tell_saved(self) -> None:
        for step in self.store.poll():
            self.event("saved", step)

    def results(self, stopped: Literal["done", "signal"], number: int | None) -> list[FitResult]:
        """One result per lane, as `fit` would return it."""
        host = jax.device_get(self.state)
        last = eval_params(host.params, host.opt_state)
        found = []
        for i, record in enumerate(self.records):
            pick = lambda tree, i=i: jax.tree.map(lambda x: x[i], tree)  # noqa: E731
            over = record.finished if stopped == "done" and record.finished else "signal"
            found.append(
                FitResult(
                    state=pick(host),
                    best_params=pick(self.best if record.best_metrics else last),
                    best_step=record.best_step if record.best_metrics else record.step,
                    best_metrics=record.best_metrics,
                    history=record.history,
                    stopped=over,
                    steps=record.step,
                    compilations=self.traces,
                    signal=number,
                )
            )
        return found


def fit_lanes(
    task: Task,
    train_data: Callable[[int], Any],
    eval_data: Any,
    config: TrainConfig,
    workdir: str | Path,
    *,
    metadata: dict[str, Any] | None = None,
    devices: Sequence[jax.Device] | None = None,
    on_event: Callable[[str, int], None] | None = None,
    on_log: Callable[[dict[str, Any]], None] | None = None,
    raise_on_signal: bool = False,
) -> list[FitResult]:
    """Trains `config.seeds` seeds, each with every value of `config.sweep`, in one program.

    A lane equals `fit` with its seed (and value) on one device, up to the order of float32 sums:
    parameters to about 1e-5 relative after a hundred steps. It continues after a kill like `fit`.

    Args:
      task: what is trained.
      train_data: from a seed to its training data (see `fit`). At one step the batches of all
        seeds have one shape, as `gatedjax.data.Batches` of one set of texts do.
      eval_data: batches of one evaluation pass, shared by the lanes; None evaluates nothing.
      config: how to train.
      workdir: gets one metrics.jsonl, whose lines name their seed, and one set of checkpoints.
      metadata: as in `fit`.
      devices: the lanes are spread over them (default: all of this process).
      on_event: as in `fit`.
      on_log: as in `fit`.
      raise_on_signal: as in `fit`.

    Returns:
      The result of every lane, in the order of `lanes_of(config)`.

    Raises:
      ValueError: for pmap, several processes, tensorboard, profile_steps, or a sweep over what the
        task cannot vary.
      TypeError, CheckpointMismatch, RuntimeError, StoppedBySignal: as in `fit`.
      NonFiniteError: as in `fit`, for the first lane that reaches the limit; it ends all of them.
    """
    check_config(config)
    check_task(task, eval_data is not None)
    if config.parallel == "pmap":
        raise ValueError("several seeds are spread over the devices by sharding, not by pmap")
    if config.tensorboard or config.profile_steps:
        raise ValueError("tensorboard and profile_steps are for one seed, not for several")
    if is_stateful(task):
        raise ValueError("several seeds need a task that carries nothing from batch to batch")
    if jax.process_count() > 1:
        raise ValueError("several seeds are trained by one process, not by several")
    chosen = list(devices) if devices is not None else jax.local_devices()
    if config.parallel == "single":
        chosen = chosen[:1]
    if config.sweep and config.sweep_over != "learning_rate":
        for value in config.sweep:
            _varied(task, config.sweep_over, value)
    workdir = Path(workdir)
    loop = _Lanes(
        task, train_data, eval_data, config, workdir, metadata or {}, chosen, on_event, on_log
    )
    with closing(loop), Signals(loop.stopping) as signals:
        loop.start()
        stopped, number = loop.run(signals)
        results = loop.results(stopped, number)
    if raise_on_signal and number is not None:
        raise StoppedBySignal(results)
    return results
