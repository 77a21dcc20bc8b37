"""Small models with their data, runs of them, and what tests read of a run."""

import dataclasses
import functools
import json
import signal
import time
from pathlib import Path
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from gatedjax.training import (
    Carried,
    CheckpointStore,
    OptimizerConfig,
    Ratio,
    TrainConfig,
    fit,
    fit_lanes,
    make_parallel,
)

assert_close = functools.partial(chex.assert_trees_all_close, rtol=1e-4, atol=1e-5)
assert_equal = chex.assert_trees_all_equal


# Runs of tasks that are equal share their compiled steps: a frozen dataclass is equal to itself.
@dataclasses.dataclass(frozen=True)
class Tiny:
    """Logistic regression with noise that belongs to the example."""

    def init(self, key, batch):
        return {"w": jax.random.normal(key, (batch["x"].shape[-1],))}

    def loss(self, params, batch, rngs):
        draw = lambda i: jax.random.normal(jax.random.fold_in(rngs["gate"], i), ())  # noqa: E731
        logit = batch["x"] @ params["w"] + 0.1 * jax.vmap(draw)(batch["example_id"])
        each = jax.nn.softplus(logit) - logit * batch["label"]
        return {"loss": Ratio.of(each, batch["weight"])}

    def evaluate(self, params, batch):
        correct = ((batch["x"] @ params["w"] > 0) == (batch["label"] > 0)).astype(np.float32)
        return {"accuracy": Ratio.of(correct, batch["weight"])}, {
            "correct": correct,
            "example_id": batch["example_id"],
        }


class Batches:
    """Batches as a function of the step. Their first row may be NaN in one step."""

    def __init__(self, shift=0, poison=None):
        self.shift, self.poison = shift, poison

    def __getitem__(self, step):
        step += self.shift
        batch = self.make(step)
        if step == self.poison:
            batch["x"][0] = np.nan
        rows = len(batch["x"])
        ids = np.arange(rows, dtype=np.int32) + rows * step
        return batch | {"example_id": ids, "weight": np.ones(rows, np.float32)}


class Data(Batches):
    """A few rows a step. A pause makes the run last."""

    def __init__(self, pause=0.0, rows=8, shift=0):
        super().__init__(shift)
        self.pause, self.rows = pause, rows

    def __len__(self):
        return 6

    def make(self, step):
        time.sleep(self.pause)
        x = np.random.default_rng([3, step]).normal(size=(self.rows, 4)).astype(np.float32)
        return {"x": x, "label": (x[:, 0] > x[:, 1]).astype(np.float32)}


class Changed(Data):
    """Data of which some arrays are made by a function of step and batch."""

    def __init__(self, change, shift=0):
        super().__init__(shift=shift)
        self.change = change

    def __getitem__(self, step):
        batch = super().__getitem__(step)
        return batch | self.change(step, batch)


def poisoned(*steps, shift=0):
    """Data with inputs that are NaN in some steps, from 0."""
    nan = np.float32(np.nan)
    return Changed(lambda step, batch: {"x": batch["x"] * nan} if step in steps else {}, shift)


EVALUATION = [Data()[1000]]
W = np.array([[1.0, -2.0], [0.5, 1.0], [2.0, 0.0]], np.float32)


@dataclasses.dataclass(frozen=True)
class Plane:
    """Linear regression with a weight and an offset, and perhaps more parameters."""

    dtype: Any = jnp.float32
    frozen: tuple[str, ...] = ()
    more: dict[str, Any] | None = None

    def init(self, key, batch):
        params = {"w": np.ones((3, 2), self.dtype), "b": np.zeros(2, self.dtype)}
        return params | (self.more or {})

    def loss(self, params, batch, rngs):
        predicted = batch["x"] @ params["w"] + params["b"][None]
        each = ((predicted - batch["y"]) ** 2).sum(-1).astype(jnp.float32)
        return {"loss": Ratio.of(each, batch["weight"])}

    def evaluate(self, params, batch):
        return self.loss(params, batch, {}), {}


class Points(Batches):
    def make(self, step):
        x = np.random.default_rng([6, step]).normal(size=(8, 3)).astype(np.float32)
        return {"x": x, "y": x @ W + 1}


HELD_OUT = [Points()[1000]]


def mean_error(params):
    """The loss of a plane on HELD_OUT, by NumPy."""
    (batch,) = HELD_OUT
    return (((batch["x"] @ params["w"] + params["b"] - batch["y"]) ** 2).sum(-1)).mean()


def descend(batches, params=None, rate=0.05):
    """The parameters of a plane after gradient descent on the batches, by NumPy."""
    params = params or Plane().init(None, None)
    for batch in batches:
        error = 2 * (batch["x"] @ params["w"] + params["b"] - batch["y"]) / len(batch["x"])
        params = {
            "w": params["w"] - rate * batch["x"].T @ error,
            "b": params["b"] - rate * error.sum(0),
        }
    return params


def loop(tx, steps, given=()):
    """Parameters of a plane and state of an optimizer after some steps of a loop of one's own."""
    params = Plane().init(None, None)
    state = jax.jit(tx.init)(params)

    @jax.jit
    def step(params, state, batch):
        mean = lambda params: Plane().loss(params, batch, {})["loss"].total / 8  # noqa: E731
        value, grad = jax.value_and_grad(mean)(params)
        extra = {"value": value, "grad": grad, "value_fn": mean}
        extra = {name: extra[name] for name in given}
        updates, state = tx.update(grad, state, params, **extra)
        return optax.apply_updates(params, updates), state

    for number in range(steps):
        params, state = step(params, state, Points()[number])
    return jax.device_get((params, state))


@dataclasses.dataclass(frozen=True)
class Memory:
    """Predicts y_t from m_t = 0.9 m_{t-1} + x_t, so that what came before decides what is seen."""

    def init(self, key, batch):
        return {"w": jax.random.normal(key, ())}

    def init_carried(self, key, batch):
        rows = len(batch["weight"])
        return Carried(rows={"memory": jnp.zeros(rows), "seen": jnp.zeros(rows)})

    def _step(self, params, batch, carried):
        start = {name: jnp.where(batch["reset"], 0, x) for name, x in carried.rows.items()}
        new = 0.9 * start["memory"] + batch["x"]
        error = (params["w"] * new - batch["y"]) ** 2
        return error, carried.replace(rows={"memory": new, "seen": start["seen"] + 1})

    def loss(self, params, batch, rngs, carried):
        error, carried = self._step(params, batch, carried)
        return {"loss": Ratio.of(error, batch["weight"])}, carried

    def evaluate(self, params, batch, carried):
        error, carried = self._step(params, batch, carried)
        return {"loss": Ratio.of(error, batch["weight"])}, {"seen": carried.rows["seen"]}, carried


class Rows(Batches):
    """Six rows that go on from step to step for 7 steps, then begin anew."""

    def make(self, step):
        x, y = np.random.default_rng([5, step]).normal(size=(2, 6)).astype(np.float32)
        return {"x": x, "y": y, "reset": np.full(6, step % 7 == 0)}


class Normalised:
    """A line behind BatchNorm; rows of weight 0 are outside of the statistics."""

    norm = nn.BatchNorm(momentum=0.5)

    def _apply(self, params, batch, model_state, train):
        variables = {"params": params["norm"], "batch_stats": model_state}
        mask = batch["weight"][:, None] > 0
        options = {"use_running_average": not train, "mask": mask}
        x, new = self.norm.apply(variables, batch["x"], mutable=["batch_stats"], **options)
        error = (x @ params["w"] - batch["y"]) ** 2
        return error, new.get("batch_stats", model_state)

    def init(self, key, batch):
        variables = self.norm.init(key, batch["x"], use_running_average=False)
        return {"norm": variables["params"], "w": jax.random.normal(key, (2,))}

    def init_carried(self, key, batch):
        variables = self.norm.init(key, batch["x"], use_running_average=False)
        return Carried(shared=variables["batch_stats"])

    def loss(self, params, batch, rngs, carried):
        error, shared = self._apply(params, batch, carried.shared, True)
        return {"loss": Ratio.of(error, batch["weight"])}, carried.replace(shared=shared)

    def evaluate(self, params, batch, carried):
        error, _ = self._apply(params, batch, carried.shared, False)
        return {"loss": Ratio.of(error, batch["weight"])}, {"error": error}, carried


class Far(Batches):
    """Six rows around 100, whose scale BatchNorm must know."""

    def make(self, step):
        x = np.random.default_rng([4, step]).normal(100, 5, size=(6, 2)).astype(np.float32)
        return {"x": x, "y": (x[:, 0] - x[:, 1]) / 10}


# -- runs ------------------------------------------------------------------------------------------

FEW = {"num_steps": 12, "log_every": 3, "eval_every": 4, "checkpoint_every": 5}
SIXTY = {"num_steps": 60, "log_every": 7, "eval_every": 10, "checkpoint_every": 4,
         "optimizer": OptimizerConfig(learning_rate=0.05)}  # fmt: skip
_parallel = functools.cache(make_parallel)
_OPTIONS = {field.name for field in dataclasses.fields(TrainConfig)}


def options(**changes):
    """Options of a short run on one device."""
    fixed = {"best_metric": "accuracy", "progress": False, "parallel": "single"}
    return TrainConfig(**(FEW | fixed | changes))


def run(workdir=None, task=None, train=None, evaluation=EVALUATION, *, devices=0, on=None, **given):
    """Calls `fit`, or `fit_lanes` for several seeds or a sweep, with options and other arguments.

    Args:
      devices: the number of devices, if others than all are meant.
      on: a `Parallel`.
      **given: fields of `TrainConfig` and keywords of the call.
    """
    own = {k: v for k, v in given.items() if k not in _OPTIONS}
    if not isinstance(given.get("optimizer"), OptimizerConfig | None):
        own["optimizer"] = given.pop("optimizer")
    config = options(**{k: v for k, v in given.items() if k in _OPTIONS})
    task, train = task or Tiny(), Data() if train is None else train
    if config.seeds > 1 or config.sweep:
        own |= {"devices": jax.devices()[:devices]} if devices else {}
        source = train if callable(train) else lambda seed: train
        return fit_lanes(task, source, evaluation, config, workdir, **own)
    if devices:
        on = _parallel(config.parallel, (*jax.devices()[:devices],), accumulate=config.accumulate)
    return fit(task, train, evaluation, config, workdir, parallel=on, **own)


def plane(workdir=None, train=None, evaluation=None, *, task=None, **given):
    """A run of four steps of linear regression; see `run`."""
    few = {"num_steps": 4, "log_every": 2, "eval_every": 2, "checkpoint_every": 2}
    train = Points() if train is None else train
    return run(workdir, task or Plane(), train, evaluation, **few | {"best_metric": "loss"} | given)


def assert_same_run(one, other):
    """Checks that two results have the same bits and the same past."""
    assert_equal((one.state, one.best_params), (other.state, other.best_params))
    for name in ("steps", "stopped", "best_step", "best_metrics", "history"):
        assert getattr(one, name) == getattr(other, name), name


def lines(source, split=None):
    """The lines of a log, or those of one kind, without what takes time; nothing but JSON.

    Args:
      source: the folder of a run, or what `lines_to` has collected.
    """

    def refuse(word):
        raise ValueError(f"not JSON: {word}")

    if not isinstance(source, list):
        text = (Path(source) / "metrics.jsonl").read_text().splitlines()
        source = [json.loads(line, parse_constant=refuse) for line in text]
    timing = ("time", "steps_per_s", "compile_s")
    found = [{k: v for k, v in line.items() if k not in timing} for line in source]
    return [line for line in found if split in (None, line["split"])]


def saved(workdir):
    """The steps of the checkpoints of a run."""
    return CheckpointStore(Path(workdir) / "checkpoints").steps()


def contents(folder):
    """The bytes of all files but the locks."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files if "lock" not in path.name}


# -- hooks -----------------------------------------------------------------------------------------


def interrupt(*at, number=signal.SIGTERM):
    """A hook that sends this process a signal, once: a second one would end it.

    Args:
      at: the name of an event and perhaps its step.
    """
    sent = []

    def send(*event):
        if event[: len(at)] == at and not sent:
            sent.append(event)
            signal.raise_signal(number)

    return send


def stop_at(*steps):
    """A hook that ends the run after these steps."""
    return lambda event, step, *rest: event == "step" and step in steps


def lines_to(found):
    """A hook that appends each line of metrics.jsonl to a list."""
    return lambda event, step, state, metrics: found.append(metrics) if metrics else None


def events_to(found):
    """A hook that appends the name and the step of each event to a list."""
    return lambda event, step, *rest: found.append((event, step))
