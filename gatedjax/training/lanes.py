"""Several seeds, and values of a hyperparameter, as a vmapped axis under the loop of `fit`."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from gatedjax._utils.cpu import keep_freed_memory_on_cpu
from gatedjax.training.config import TrainConfig, make_optimizer
from gatedjax.training.config import eval_params as default_point
from gatedjax.training.data import TrainData, check_batch, eval_batches, first_eval_batch, pad_rows
from gatedjax.training.fit import (
    Start,
    check_evaluation,
    check_optimizer,
    check_options,
    point_of,
    rates_of,
    reachable_of,
    summary_of,
)
from gatedjax.training.identity import array_digests, identity_of, mapping_of, settings_of
from gatedjax.training.loop import FitResult, Hook, Program, Run, rows_of, train_all
from gatedjax.training.metrics import Metrics, Sums, merge
from gatedjax.training.parallel import Parallel, add_metrics
from gatedjax.training.step import TrainState, make_train_step
from gatedjax.training.task import Batch, Carried, Trainable, call_evaluate


@dataclasses.dataclass(frozen=True)
class Lane:
    """A run that is trained side by side with other runs: its seed, its value of the number that
    `TrainConfig.sweep_over` names (None without a sweep), and the configuration with which `fit`
    would train it, which lacks a swept number of the task.
    """

    seed: int
    value: float | None
    config: TrainConfig


def lanes_of(config: TrainConfig) -> list[Lane]:
    """Lists the runs that `fit_lanes` trains: a run for each pair of a swept value and a seed.

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


def vary(task: Any, name: str, value: Any) -> Any:
    """Returns the task with another value of a number in `task.sweepable`."""
    sweepable = tuple(getattr(task, "sweepable", ()))
    if name not in sweepable:
        raise ValueError(
            f"sweep_over must be one of {sorted(('learning_rate', *sweepable))}, got {name!r}"
        )
    return task.with_value(name, value)


def stack(batches: Sequence[Batch], kind: str = "training") -> Batch:
    """Stacks the batches of all lanes into arrays [L, B, ...]."""
    shapes = {tuple(sorted((k, np.shape(v)) for k, v in batch.items())) for batch in batches}
    if len(shapes) > 1:
        raise ValueError(
            f"the {kind} batches of a step must have the same shapes for all seeds, got "
            + " and ".join(str(dict(shape)) for shape in sorted(shapes)[:2])
        )
    return {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}


class LaneData:
    """The batches of all lanes by step, with a first axis over the lanes."""

    def __init__(self, sources: Sequence[Any], accumulate: int) -> None:
        self.sources, self.accumulate = sources, accumulate

    def __getitem__(self, step: int) -> Batch:
        batches = [check_batch(data[step], f"the batch of step {step}") for data in self.sources]
        return stack([pad_rows(batch, self.accumulate) for batch in batches])


def fit_lanes(
    task: Trainable,
    train_data: Callable[[int], Any],
    eval_data: Any = None,
    config: TrainConfig | None = None,
    workdir: str | Path | None = None,
    *,
    steps: int | None = None,
    params: Any = None,
    settings: object = None,
    metadata: object = None,
    hook: Hook | None = None,
    optimizer: optax.GradientTransformation | optax.MultiSteps | None = None,
    devices: Sequence[jax.Device] | None = None,
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
        ...         return {"loss": Ratio.of((params["w"] * batch["x"] - 2) ** 2, batch["weight"])}
        >>> batch = {"x": np.ones(2, np.float32), "weight": np.ones(2, np.float32)}
        >>> config = TrainConfig(num_steps=1, seeds=2, progress=False)
        >>> [result.steps for result in fit_lanes(Scale(), lambda seed: [batch], config=config)]
        [1, 1]

    Args:
      task: the task to train, without carried rows. A sweep over a number of the task needs its
        attribute `sweepable`, names of numbers, and `with_value(name, value)`.
      train_data: a function from a seed to its training data, with the batch of a step as
        `data[step]`. At each step the batches of all seeds must have the same shapes.
      eval_data: the batches of an evaluation pass, shared by the lanes; or a function from a seed
        to its batches, which must be equally many and of the same shapes for all seeds; or None.
      config, steps, params, settings, metadata: as in `fit`.
      workdir: the folder for a single metrics.jsonl, with the seed in each line, and for a single
        set of checkpoints; None writes no files.
      hook: as in `fit`. The state has the arrays of all lanes, with a first axis over them.
      optimizer: an Optax transformation for all lanes, in place of `config.optimizer`. A sweep must
        then vary a number of the task, because the transformation has its learning rate.
      devices: the devices over which the lanes are spread (default: all devices of this process).

    Returns:
      The `FitResult` of each lane, in the order of `lanes_of(config)`.

    Raises:
      ValueError: for pmap, fsdp, several processes, carried rows, a sweep over a number that the
        task cannot vary, or a sweep over the learning rate of a given optimizer.
      NonFiniteError: after more than `config.max_skipped` skipped updates in a row of a lane. The
        first lane that reaches the limit ends all lanes. The errors of `fit` come on top.
    """
    keep_freed_memory_on_cpu()
    config = check_options(task, eval_data, config, steps, workdir)
    of_rate = bool(config.sweep) and config.sweep_over == "learning_rate"
    of_task = bool(config.sweep) and not of_rate
    if optimizer is not None and of_rate:
        raise ValueError(
            "sweep_over must be a number of the task if optimizer is given, which has its own "
            "learning rate, got 'learning_rate': give config.optimizer in its place"
        )
    tx = check_optimizer(optimizer, config)
    if config.parallel not in ("sharding", "single"):
        raise ValueError(
            f"parallel must be 'sharding' or 'single' for several seeds, got {config.parallel!r}"
        )
    if jax.process_count() > 1:
        raise ValueError(
            f"several seeds must be trained by a single process, got {jax.process_count()}"
        )
    lanes = lanes_of(config)
    tasks = [vary(task, config.sweep_over, lane.value) if of_task else task for lane in lanes]
    device_list = list(jax.local_devices() if devices is None else devices)
    width = 1 if config.parallel == "single" else min(len(device_list), len(lanes))
    # All devices have equally many lanes. The additional lanes are copies of the last lane.
    rows = np.minimum(np.arange(-(-len(lanes) // width) * width), len(lanes) - 1)
    padded = [lanes[row] for row in rows]
    mesh = Mesh(np.array(device_list[:width]), ("lane",))
    parallel = Parallel("sharding", mesh, 1, lambda path, array: P("lane"), ("lane",))

    sources = {lane.seed: train_data(lane.seed) for lane in lanes}
    for source in sources.values():
        if not hasattr(source, "__getitem__"):
            raise TypeError(
                "train_data(seed) must give the batch of a step as data[step], got "
                f"{type(source).__name__}"
            )
    firsts = {seed: TrainData(data, config.num_steps).first for seed, data in sources.items()}
    data = TrainData(LaneData([sources[lane.seed] for lane in padded], config.accumulate), 0)
    per_seed = callable(eval_data)
    tests = [eval_data(lane.seed) for lane in padded] if per_seed else [eval_data]
    evaluation = first_eval_batch(tests[0])
    first = pad_rows(firsts[lanes[0].seed], config.accumulate)
    keys = [jax.random.key(lane.seed) for lane in padded]
    start = Start.of(task, tx, keys[0], first, params)
    if jax.tree.leaves(start.like.carried.rows):
        raise ValueError(
            "task must not carry rows from batch to batch for several seeds, got "
            f"{type(task).__name__}"
        )
    solo = make_train_step(task, tx, accumulate=config.accumulate, reach=True)
    metrics = jax.eval_shape(solo, start.like, first, keys[0])[1]
    check_evaluation(task, start.like, evaluation, config.best_metric)
    identity: dict[str, Any] = {"settings": settings_of(settings, config)}
    metadata_values = mapping_of({} if metadata is None else metadata, "metadata")
    if workdir is not None:
        identity |= identity_of(
            task, tx, default_point, config.accumulate, start.like, first, tests[0], evaluation,
            start.params,
        )  # fmt: skip
        identity["train_data"] = {f"seed {s}": array_digests(b) for s, b in firsts.items()}
    lift = lambda tree: jax.tree.map(  # noqa: E731
        lambda x: jax.ShapeDtypeStruct((len(rows), *x.shape), x.dtype), tree
    )
    like = lift(start.like)
    # NaN stands for a lane without a value, because the program takes an array of numbers.
    values = np.array([math.nan if n.value is None else n.value for n in padded], np.float32)
    values, seeds = parallel.put((values, jnp.stack(keys)), parallel.rows)

    def lane_step(
        state: TrainState, sums: Sums, batch: Batch, active: Any, key: Any, value: Any
    ) -> tuple[TrainState, Sums, jax.Array]:
        rule = tx
        if of_rate:
            # The optimiser is built here, because its rate is an argument of the program.
            rule = make_optimizer(config.optimizer, config.num_steps, learning_rate=value)
        varied = vary(task, config.sweep_over, value) if of_task else task
        step = make_train_step(varied, rule, accumulate=config.accumulate, reach=True)
        new, metrics = step(state, batch, key)
        # A lane that has ended stays in the program, because another number of lanes would be
        # compiled again.
        return jax.tree.map(lambda n, o: jnp.where(active, n, o), new, state), *add_metrics(
            sums, metrics
        )

    def lane_evaluate(best: Any, value: Any, batch: Batch) -> Any:
        varied = vary(task, config.sweep_over, value) if of_task else task
        metrics, predictions, _ = call_evaluate(
            varied, best["params"], batch, Carried(shared=best["shared"])
        )
        # Predictions that no function reads are not computed.
        return metrics, predictions if hasattr(task, "summarise") else {}

    outputs = parallel.shardings(like), parallel.whole, parallel.whole
    step = jax.jit(jax.vmap(lane_step), donate_argnums=(0, 1), out_shardings=outputs)
    test = jax.jit(jax.vmap(lane_evaluate, (0, 0, 0 if per_seed else None)))
    point = jax.jit(jax.vmap(lambda state: point_of(task, default_point, state)))

    def train_step(state: TrainState, sums: Sums, batch: Batch, running: list[int]) -> Any:
        active = parallel.put(np.isin(rows, running), parallel.rows)
        return step(state, sums, parallel.put(batch, parallel.rows), active, seeds, values)

    def init() -> TrainState:
        # They are made in turn by the program of a single run, which gives the same bits.
        states = [start.make(key, start.params) for key in keys]
        state = jax.tree.map(lambda *x: jnp.stack(x), *states)
        return parallel.put(state, parallel.shardings(like))

    def evaluate(state: TrainState) -> list[dict[str, float]]:
        best, parts = point(state), []
        totals: Metrics = {}
        for batches in zip(*map(eval_batches, tests), strict=True):
            batch = stack(batches, "evaluation") if per_seed else batches[0]
            batch = parallel.put(batch, parallel.rows if per_seed else parallel.whole)
            sums, predictions = test(best, values, batch)
            totals = merge(totals, jax.device_get(sums))
            parts.append((np.asarray(batch["weight"]) > 0, jax.device_get(predictions)))
        measured = rows_of(totals)
        for number, varied in enumerate(tasks):
            of_lane = lambda x, i=number: x[i]  # noqa: E731
            lane = [(of_lane(real) if per_seed else real, jax.tree.map(of_lane, columns))
                    for real, columns in parts]  # fmt: skip
            measured[number], _ = summary_of(varied, measured[number], lane)
        return measured

    def cut(trees: Any) -> Any:
        return jax.tree.map(lambda x: x[: len(lanes)], trees) if len(rows) > len(lanes) else trees

    def fill(trees: dict[str, Any]) -> dict[str, Any]:
        if len(rows) == len(lanes):
            return trees
        copies = jax.tree.map(lambda x: x[rows], trees)
        placed = {name: parallel.put(copies[name], parallel.rows) for name in ("state", "best")}
        return placed | {"sums": parallel.put(copies["sums"], parallel.whole)}

    program = Program(
        like=like,
        sums=lift(jax.eval_shape(Sums.of, metrics)),
        init=init,
        step=train_step,
        evaluate=None if eval_data is None else evaluate,
        point=point,
        cut=cut,
        fill=fill,
        data=data,
        names=[
            {"seed": lane.seed} | ({} if lane.value is None else {config.sweep_over: lane.value})
            for lane in lanes
        ],
        # The lines of a sweep have the peak of their lane under the same name.
        rates=(lambda opt_state: {})
        if of_rate
        else rates_of(config if optimizer is None else None),
        reachable=reachable_of(task, start.like),
    )
    return train_all(Run(program, config, parallel, workdir, identity, metadata_values, hook))
