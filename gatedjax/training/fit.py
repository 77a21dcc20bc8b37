"""`fit`, which trains a task, and `evaluate`, which tests its parameters."""

import dataclasses
import functools
import numbers
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gatedjax._utils.cpu import keep_freed_memory_on_cpu
from gatedjax.training.checkpoint import describe, differences, named
from gatedjax.training.config import OptimizerConfig, TrainConfig, learning_rate_of, make_optimizer
from gatedjax.training.config import eval_params as default_point
from gatedjax.training.data import TrainData, eval_batches, first_eval_batch, pad_rows
from gatedjax.training.distributed import Seen, gather
from gatedjax.training.identity import identity_of, mapping_of, settings_of
from gatedjax.training.loop import FitResult, Hook, Program, Run, train_all
from gatedjax.training.metrics import Metrics, merge, to_floats
from gatedjax.training.parallel import Parallel, is_constant, make_parallel, with_rows
from gatedjax.training.step import TrainState, fill_in, init_state, path_of, trained
from gatedjax.training.task import Batch, Carried, Trainable, call_evaluate, init_carried

# Equal runs of a process share compiled programs, which belong to these objects.
shared_optimizer = functools.lru_cache(maxsize=16)(make_optimizer)
shared_parallel = functools.lru_cache(maxsize=16)(
    lambda kind, accumulate, devices: make_parallel(kind, accumulate=accumulate)
)


def fit(
    task: Trainable,
    train_data: Any,
    eval_data: Any = None,
    config: TrainConfig | None = None,
    workdir: str | Path | None = None,
    *,
    steps: int | None = None,
    params: Any = None,
    settings: object = None,
    metadata: object = None,
    hook: Hook | None = None,
    parallel: Parallel | None = None,
    optimizer: optax.GradientTransformation | optax.MultiSteps | None = None,
    eval_params: Callable[[Any, Any], Any] = default_point,
    repeatable: bool = True,
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
        ...         return {"loss": Ratio.of((params["w"] * batch["x"] - 2) ** 2, batch["weight"])}
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
      hook: called with (event, step, state, metrics); True saves and ends the run. The events are
        "step", "compiled", "evaluate", "save" and "saved", without metrics, and "train", "eval" and
        "skipped", with a line of metrics.jsonl as a dict. The next step donates the state.
      parallel: the devices (default: `make_parallel` with the options in config).
      optimizer: an Optax transformation in place of `config.optimizer`.
      eval_params: maps (params, opt_state) to the parameters to evaluate and to save as the best.
        Frozen parameters are None.
      repeatable: False for data that give other batches when they are read again.

    Returns:
      A `FitResult`. After SIGTERM or Ctrl-C the run is saved, and `stopped` is "signal".

    Raises:
      TypeError, ValueError: before files are written, if an argument cannot work; and after ten
        steps, for parameters that no gradient has reached.
      CheckpointMismatch: if workdir belongs to another run; the message lists the differences.
    """
    keep_freed_memory_on_cpu()
    config = check_options(task, eval_data, config, steps, workdir)
    if config.seeds > 1 or config.sweep:
        raise ValueError(
            "config must have seeds = 1 and an empty sweep for fit, got "
            f"{config.seeds} and {config.sweep}: call fit_lanes"
        )
    tx = check_optimizer(optimizer, config)
    if parallel is None:
        make = shared_parallel if is_constant(task) else shared_parallel.__wrapped__
        parallel = make(config.parallel, config.accumulate, tuple(jax.devices()))
    # The step would use the number of `parallel`, while the checkpoints record that of config.
    if parallel.accumulate != config.accumulate:
        raise ValueError(
            f"parallel must have the accumulate of config, {config.accumulate}, got "
            f"{parallel.accumulate}"
        )
    data = TrainData(train_data, config.num_steps, repeatable)
    key, rows = jax.random.key(config.seed), len(data.first["weight"])
    first = parallel.pad(data.first)
    start = Start.of(task, tx, key, first, params)
    evaluation = first_eval_batch(eval_data)
    like = start.like
    step, sums = parallel.train_step(task, tx, like, first, key)
    check_evaluation(task, like, evaluation, config.best_metric)
    check_eval_params(eval_params, task, like)
    identity: dict[str, Any] = {"settings": settings_of(settings, config)}
    metadata_values = mapping_of({} if metadata is None else metadata, "metadata")
    if workdir is not None or parallel.several:
        # The identity has no filler rows, because their number depends on the devices.
        base = pad_rows(data.first, config.accumulate)
        same = len(base["weight"]) == len(first["weight"])
        alone = like if same else Start.of(task, tx, key, base, params).like
        identity |= identity_of(
            task, tx, eval_params, config.accumulate, alone, base, eval_data, evaluation,
            start.params,
        )  # fmt: skip
        if not data.repeatable:  # their first batch is another each time
            del identity["train_data"], identity["programs"]["init"]
    best_of = functools.partial(point_of, task, eval_params)
    point = jax.jit(best_of, out_shardings=parallel.shardings(jax.eval_shape(best_of, like)))

    def fill(trees: dict[str, Any]) -> dict[str, Any]:
        pad = lambda x: np.pad(x, [(0, -len(x) % len(first["weight"]))] + [(0, 0)] * (x.ndim - 1))  # noqa: E731
        put = lambda x: parallel.put(pad(parallel.fetch(x)), parallel.rows)  # noqa: E731
        refill = lambda tree: jax.tree.map(put, tree)  # noqa: E731
        return trees | {"state": with_rows(trees["state"], refill)}

    def cut(trees: dict[str, Any]) -> dict[str, Any]:
        drop = lambda tree: jax.tree.map(lambda x: x[:rows], tree)  # noqa: E731
        return trees | {"state": with_rows(trees["state"], drop)}

    program = Program(
        like=like,
        sums=sums,
        init=lambda: start.put(parallel),
        step=lambda state, sums, batch, running: step(state, sums, parallel.put_batch(batch), key),
        evaluate=None
        if eval_data is None
        else lambda state: [pass_over(task, point(state), eval_data, parallel, predicts=False)[0]],
        point=point,
        cut=cut,
        fill=fill,
        data=data,
        names=[{}],
        rates=rates_of(None if optimizer is not None else config),
        reachable=reachable_of(task, like),
    )
    return train_all(Run(program, config, parallel, workdir, identity, metadata_values, hook))[0]


@dataclasses.dataclass(frozen=True)
class Start:
    """The first train state of a run: a function that makes it, and its shapes and dtypes."""

    make: Callable[..., TrainState]
    like: TrainState
    key: jax.Array
    params: Any  # None takes the result of `task.init`

    def put(self, parallel: Parallel) -> TrainState:
        """Returns the state with its arrays on the devices."""
        shardings = parallel.shardings(self.like)
        if parallel.rule is None:
            return parallel.put(self.make(self.key, self.params), shardings)
        # A device need not have room for the whole state.
        return jax.jit(self.make, out_shardings=shardings)(self.key, self.params)

    @classmethod
    def of(cls, task: Trainable, tx: Any, key: jax.Array, first: Batch, params: Any) -> "Start":
        """Returns the start of a run with this key and first batch, after checking `params`."""
        if params is not None:
            params = check_params(params, jax.eval_shape(lambda key: task.init(key, first), key))
        make = jax.jit(lambda key, params: init_state(task, tx, key, first, params))
        like = make.eval_shape(key, params)
        for path, leaf in jax.tree.leaves_with_path((like.params, like.carried)):
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                raise TypeError(
                    f"{path_of(path)} must not be a PRNG key: keep jax.random.key_data(key), or "
                    "draw from the rngs of the loss"
                )
        for path, leaf in jax.tree.leaves_with_path(like.params):
            if not jnp.issubdtype(leaf.dtype, jnp.inexact):
                raise TypeError(
                    f"params.{path_of(path)} must be an array of floating-point numbers, got "
                    f"{leaf.dtype}{list(leaf.shape)}: what is not trained belongs into "
                    "Carried(shared=...)"
                )
        return cls(make, like, key, params)


def check_options(task: Any, eval_data: Any, config: Any, steps: Any, workdir: Any) -> TrainConfig:
    """Returns the training options, with `steps` in place of `num_steps`, after checks."""
    config = TrainConfig() if config is None else config
    if not isinstance(config, TrainConfig):
        raise TypeError(f"config must be a TrainConfig, got {type(config).__name__}")
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, numbers.Integral)):
        raise TypeError(f"steps must be an integer, got {steps!r}")
    for name in ("init", "loss", "evaluate")[: 2 if eval_data is None else 3]:
        if not callable(getattr(task, name, None)):
            raise TypeError(f"task must have a method {name!r}, got {type(task).__name__} without")
    if workdir == "":
        # `Path("")` is the current folder, which an empty string is unlikely to mean.
        raise ValueError("workdir must be the path of a folder, got '': give None for no files")
    return config if steps is None else dataclasses.replace(config, num_steps=int(steps))


def check_optimizer(optimizer: Any, config: TrainConfig) -> optax.GradientTransformation:
    """Returns the optimizer of a run as Optax transformation."""
    if optimizer is None:
        return shared_optimizer(config.optimizer, config.num_steps)
    if isinstance(optimizer, optax.MultiSteps):
        # The method gradient_transformation() of MultiSteps would drop extra arguments.
        return optax.GradientTransformationExtraArgs(optimizer.init, optimizer.update)
    if not isinstance(optimizer, optax.GradientTransformation):
        is_config = isinstance(optimizer, OptimizerConfig)
        hint = ": an OptimizerConfig belongs into TrainConfig(optimizer=...)" if is_config else ""
        raise TypeError(
            "optimizer must be an optax.GradientTransformation, got "
            f"{type(optimizer).__name__}{hint}"
        )
    if config.optimizer != OptimizerConfig():
        raise ValueError("optimizer must be None with config.optimizer, got both: give one of them")
    return optimizer


def check_params(params: Any, like: Any) -> Any:
    """Returns given parameters in the structure of `like`, after comparing names and shapes."""
    # JAX stores float64 arrays of NumPy as float32 unless 64 bits are enabled.
    arrays = {name: jnp.asarray(leaf) for name, leaf in named(params).items()}
    if lines := differences(describe(like), describe(arrays), ("wanted", "got")):
        raise ValueError(
            "\n  ".join(["params must have the names, shapes and dtypes of task.init:", *lines])
        )
    # A step changes no parameter while one of them is not finite, so that nothing would be trained.
    for name, x in arrays.items():
        if count := int(jnp.sum(~jnp.isfinite(x))):
            raise ValueError(
                f"params must have finite numbers, got {count} of {x.size} numbers of {name} that "
                "are NaN or infinite: give parameters of an earlier checkpoint"
            )
    return jax.tree.unflatten(jax.tree.structure(like), [arrays[name] for name in named(like)])


def check_evaluation(task: Any, like: Any, evaluation: Batch | None, best_metric: str) -> None:
    """Traces the evaluation, which checks its results, and looks for the best metric."""
    if evaluation is None:
        return

    def evaluate(params: Any, batch: Batch, shared: Any) -> Metrics:
        carried = Carried(init_carried(task, jax.random.key(0), batch).rows, shared)
        return call_evaluate(task, params, batch, carried)[0]

    names = jax.eval_shape(evaluate, like.params, evaluation, like.carried.shared)
    # The names of `summarise` are known only after an evaluation, see `Record.add`.
    if best_metric not in names and not hasattr(task, "summarise"):
        raise ValueError(
            f"best_metric must be one of {sorted(names)}, the metrics of evaluate, got "
            f"{best_metric!r}: give config=TrainConfig(best_metric=...)"
        )


def check_eval_params(point: Callable[[Any, Any], Any], task: Any, like: TrainState) -> None:
    """Checks a function for `fit(eval_params=...)` by the shapes of its result."""
    params = trained(task, like.params)
    try:
        result = jax.eval_shape(point, params, like.opt_state)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise TypeError(
            "eval_params must compute parameters from (params, opt_state) of this task and "
            f"optimizer, got an error, so give fit another eval_params=: {error}"
        ) from error
    lines = differences(describe(params), describe(result), ("wanted", "got"))
    # The structure is compared as well, because two trees may have the same dotted names.
    structures: list[Any] = [jax.tree.structure(tree) for tree in (params, result)]
    if lines or structures[0] != structures[1]:
        raise ValueError(
            "eval_params must return parameters with the names, shapes and dtypes of those of the "
            "task:\n  " + "\n  ".join(lines)
        )


def point_of(task: Any, eval_params: Callable[[Any, Any], Any], state: TrainState) -> Any:
    """Returns the arrays that an evaluation uses: parameters, and the shared carried arrays."""
    params = eval_params(trained(task, state.params), state.opt_state)
    return {"params": fill_in(params, state.params), "shared": state.carried.shared}


def reachable_of(task: Any, like: TrainState) -> list[str]:
    """Returns the paths of the trained parameters as in "reached"; "" for an array of size 0."""
    leaves = jax.tree.leaves_with_path(trained(task, like.params))
    return [path_of(path) if leaf.size else "" for path, leaf in leaves]


def rates_of(config: TrainConfig | None) -> Callable[[Any], dict[str, Any]]:
    """Returns a function (opt_state) -> the learning rate of the last update by name.

    The rate of another optimizer, for config None, is found if `optax.inject_hyperparams` keeps it.
    """
    if config is None:

        def injected(opt_state: Any) -> dict[str, Any]:
            rates = optax.tree.get_all_with_path(opt_state, "learning_rate")
            values = [value for _, value in rates if isinstance(value, jax.Array)]
            return {"learning_rate": jax.device_get(values[0])} if len(values) == 1 else {}

        return injected
    rate = learning_rate_of(config.optimizer, config.num_steps)
    if not callable(rate):
        return lambda opt_state: {"learning_rate": rate}
    # A compiled schedule costs less than its many small operations.
    scheduled = jax.jit(lambda count: rate(jnp.maximum(count - 1, 0)))
    is_count = lambda node: isinstance(node, optax.ScaleByScheduleState)  # noqa: E731

    def at_count(opt_state: Any) -> dict[str, Any]:
        nodes = filter(is_count, jax.tree.leaves(opt_state, is_leaf=is_count))
        return {"learning_rate": np.asarray(scheduled(jax.device_get(next(nodes).count)))}

    return at_count


def evaluate(
    task: Any, params: Any, data: Any, parallel: Parallel | None = None, shared: Any = None
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Evaluates parameters in a pass over data.

        >>> from gatedjax.training import Ratio
        >>> class Scale:
        ...     def evaluate(self, params, batch):
        ...         y = params["w"] * batch["x"]
        ...         return {"mean": Ratio.of(y, batch["weight"])}, {"y": y}
        >>> batch = {"x": np.array([1.0, 3.0, 0.0]), "weight": np.array([1.0, 1.0, 0.0])}
        >>> metrics, predictions = evaluate(Scale(), {"w": np.array(0.5)}, [batch])
        >>> metrics["mean"], predictions["y"].tolist()
        (1.0, [0.5, 1.5])

    Args:
      task: the task, a model with its loss (see `Task`).
      params: parameters, not replicated over devices.
      data: batches, in a list, another iterable, or an object with `__getitem__` and `__len__`.
        Each new shape of a batch is compiled. Filler rows have weight 0.
      parallel: the devices (default: `make_parallel()`). Pass the object that `fit` received to
        share its compiled evaluation.
      shared: the shared carried arrays, such as `FitResult.best_shared`; None without any.

    Returns:
      (metrics, predictions): metrics as Python floats, with the metrics of `task.summarise`, and
      NumPy arrays with the predictions for all real rows in the order of the data, both by name.

    Raises:
      ValueError: if `shared` is missing, or is given to a task without shared carried arrays.
    """
    parallel = parallel or make_parallel()
    best = {"params": params, "shared": shared}
    best = parallel.put(best, parallel.shardings(jax.tree.map(jnp.asarray, best)))
    return pass_over(task, best, data, parallel, predicts=True)


def pass_over(
    task: Any, best: Any, data: Any, parallel: Parallel, *, predicts: bool
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Evaluates parameters on the devices; without `predicts` only for `task.summarise` are
    predictions fetched.
    """
    step, collects = parallel.evaluation(task), predicts or hasattr(task, "summarise")
    metrics: Metrics = {}
    parts: list[tuple[np.ndarray, dict[str, Any]]] = []
    carried, seen = None, Seen()
    for batch in eval_batches(data, "data" if predicts else "eval_data"):
        if parallel.several:
            seen.add(batch)
        if carried is None:  # rows start anew, once per pass
            new = init_carried(task, jax.random.key(0), parallel.pad(batch))
            structure: Any = jax.tree.structure(new.shared)
            if structure != jax.tree.structure(best["shared"]):
                raise ValueError(
                    f"shared must fit {type(task).__name__}, with the arrays of its init_carried, "
                    f"got {best['shared']!r:.80}: give result.best_shared with result.best_params"
                )
            carried = Carried(parallel.put(new.rows, parallel.rows), best["shared"])
        sums, predictions, carried = step(best["params"], parallel.put_batch(batch), carried)
        metrics = merge(metrics, jax.device_get(sums))
        if collects:
            parts.append((np.asarray(batch["weight"]) > 0, jax.device_get(predictions)))
    if parallel.several:
        seen.compare("evaluation batches")
    return summary_of(task, to_floats(metrics), parts)


def summary_of(
    task: Any, metrics: dict[str, float], parts: list[tuple[np.ndarray, dict[str, Any]]]
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Joins the real rows of predictions, and adds the metrics of `task.summarise`."""
    rows: dict[str, np.ndarray] = {}
    for name in parts[0][1] if parts else ():
        # There may be filler rows in the batch, and more at the end for the devices.
        arrays = [np.asarray(found[name])[: len(real)][real] for real, found in parts]
        shapes = sorted({array.shape[1:] for array in arrays})
        if len(shapes) > 1:
            raise ValueError(
                f"predictions {name!r} must have the same shape in all batches, except for the "
                f"rows, got {list(map(list, shapes[:2]))}: pad them in evaluate"
            )
        rows[name] = np.concatenate(arrays)
    if not hasattr(task, "summarise"):
        return metrics, rows
    summary = task.summarise(rows)
    if not isinstance(summary, Mapping):
        raise TypeError(
            f"summarise must return a dict of floats by name, got {type(summary).__name__}"
        )
    for name, value in summary.items():
        if np.ndim(value) or not np.issubdtype(np.asarray(value).dtype, np.number):
            raise TypeError(f"summarise must return numbers, {name!r} is {value!r:.80}")
        if name in {*metrics, "step", "split", "time"}:
            raise ValueError(
                f"summarise must return other names than evaluate and metrics.jsonl, got {name!r}: "
                "rename it"
            )
    values = np.array([float(value) for value in summary.values()], np.float64)
    # All processes must take the same decisions, such as when to stop.
    values = gather(values.view(np.uint32))[0].view(np.float64)
    return metrics | dict(zip(summary, values.tolist(), strict=True)), rows
