"""Data parallelism: one batch split over the devices, by shardings, by pmap, or not at all."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import numpy as np
import optax

from gatedjax._filler import FILLER_ID
from gatedjax.training.step import make_train_step
from gatedjax.training.task import Batch, Task


def pad_rows(batch: Batch, multiple: int) -> Batch:
    """Adds filler rows (zeros, example_id -1, weight 0) until the rows divide by multiple."""
    if "weight" not in batch:
        raise ValueError(f"batch needs 'weight' (1 = example, 0 = filler), got {sorted(batch)}")
    rows = len(batch["weight"])
    extra = -rows % multiple
    if not extra:
        return batch

    def pad(name: str, array: Any) -> np.ndarray:
        array = np.asarray(array)
        value = FILLER_ID if name == "example_id" else 0
        widths = [(0, extra)] + [(0, 0)] * (array.ndim - 1)
        return np.pad(array, widths, constant_values=value)

    return {name: pad(name, array) for name, array in batch.items()}


class Parallel:
    """How a step runs on several devices; all kinds give the same numbers to rounding.

    Attributes:
      kind: "sharding" (jit with the batch sharded over a mesh), "pmap", or "single".
      devices: the devices in use.
      traces: how often a step was traced, which is how often it was compiled.
    """

    def __init__(self, kind: str, devices: Sequence[jax.Device]) -> None:
        self.kind = kind
        self.devices = list(devices)
        self.traces = 0
        self._eval_steps: dict[int, tuple[Task, Callable[..., Any]]] = {}
        if kind != "single":
            auto = (jax.sharding.AxisType.Auto,)
            mesh = jax.make_mesh(
                (len(self.devices),), ("data",), axis_types=auto, devices=self.devices
            )
            self._split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
            self._whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def traced(*args: Any) -> Any:
            self.traces += 1
            return function(*args)

        return traced

    def replicate(self, tree: Any) -> Any:
        """Puts a copy of every array on every device."""
        if self.kind == "pmap":
            count = len(self.devices)
            tree = jax.tree.map(lambda x: np.broadcast_to(x, (count, *np.shape(x))), tree)
            return jax.device_put(tree, self._split)
        if self.kind == "sharding":
            return jax.device_put(tree, self._whole)
        return jax.device_put(tree, self.devices[0])

    def host(self, tree: Any) -> Any:
        """One copy of replicated arrays, as NumPy arrays."""
        if self.kind == "pmap":
            tree = jax.tree.map(lambda x: x[0], tree)
        return jax.device_get(tree)

    def shard(self, batch: Batch) -> Batch:
        """Splits the rows over the devices, with filler rows where they do not divide."""
        count = len(self.devices)
        batch = pad_rows(batch, count)
        if self.kind == "pmap":
            batch = {
                name: np.reshape(array, (count, -1, *np.shape(array)[1:]))
                for name, array in batch.items()
            }
        return jax.device_put(batch, self.devices[0] if self.kind == "single" else self._split)

    def train_step(self, task: Task, tx: optax.GradientTransformation) -> Callable[..., Any]:
        """The compiled step (state, batch, seed_key) -> (state, metrics); the state is donated."""
        if self.kind == "pmap":
            step = self._counted(make_train_step(task, tx, axis_name="data"))
            return jax.pmap(
                step,
                axis_name="data",
                in_axes=(0, 0, None),
                out_axes=(0, None),  # metrics are equal on all devices: one copy
                devices=self.devices,
                donate_argnums=0,
            )
        step = self._counted(make_train_step(task, tx))
        if self.kind == "single":
            return jax.jit(step, donate_argnums=0)
        # said outright: a state that came back split another way would compile the step again
        return jax.jit(step, donate_argnums=0, out_shardings=self._whole)

    def eval_step(self, task: Task) -> Callable[..., Any]:
        """The compiled evaluation (params, batch) -> (metrics, predictions with rows in order).

        One per task: a test pass after training compiles nothing that validation has compiled.
        """
        if id(task) not in self._eval_steps:
            # the task is kept with its step, so that its id stays its own
            self._eval_steps[id(task)] = (task, self._make_eval_step(task))
        return self._eval_steps[id(task)][1]

    def _make_eval_step(self, task: Task) -> Callable[..., Any]:
        if self.kind == "pmap":

            def evaluate(params: Any, batch: Batch) -> Any:
                metrics, predictions = task.evaluate(params, batch)
                return jax.lax.psum(metrics, "data"), predictions

            mapped = jax.pmap(
                self._counted(evaluate), axis_name="data", out_axes=(None, 0), devices=self.devices
            )

            def run(params: Any, batch: Batch) -> Any:
                metrics, predictions = mapped(params, batch)
                rows = {k: np.reshape(v, (-1, *v.shape[2:])) for k, v in predictions.items()}
                return metrics, rows

            return run
        return jax.jit(self._counted(task.evaluate))


def make_parallel(
    kind: Literal["sharding", "pmap", "single"] = "sharding",
    devices: Sequence[jax.Device] | None = None,
) -> Parallel:
    """Returns the engine of a kind over the given devices (default: all of this process).

    Raises:
      ValueError: if the kind is unknown or there are no devices.
    """
    if kind not in ("sharding", "pmap", "single"):
        raise ValueError(f"kind must be 'sharding', 'pmap' or 'single', got {kind!r}")
    chosen = jax.local_devices() if devices is None else list(devices)
    if not chosen:
        raise ValueError("devices must not be empty")
    return Parallel(kind, chosen[:1] if kind == "single" else chosen)
