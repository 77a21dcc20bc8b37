"""Data parallelism: batches split over the devices by shardings or by pmap, or on one device."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import numpy as np
import optax
from jax.experimental import multihost_utils

from gatedjax._utils.filler import FILLER_ID
from gatedjax.training._programs import SharedProgram
from gatedjax.training.step import TrainState, make_train_step
from gatedjax.training.task import AnyTask, Batch, Carry, call_evaluate


def pad_rows(batch: Batch, multiple: int) -> Batch:
    """Adds filler rows (zeros, example_id -1, weight 0) to a batch.

    Args:
      batch: a dict of arrays with the same number of rows, among them "weight".
      multiple: the number of rows becomes a multiple of this integer.

    Returns:
      The batch with filler rows at its end.

    Raises:
      ValueError: if the batch has no "weight".
    """
    if "weight" not in batch:
        raise ValueError(f"batch must have 'weight' (1 = example, 0 = filler), got {sorted(batch)}")
    rows = len(batch["weight"])
    extra = -rows % multiple
    if not extra:
        return batch

    def pad(name: str, array: Any) -> np.ndarray:
        array = np.asarray(array)
        # 0 is the id of a real example, so filler rows need another id.
        value = FILLER_ID if name == "example_id" else 0
        widths = [(0, extra)] + [(0, 0)] * (array.ndim - 1)
        return np.pad(array, widths, constant_values=value)

    return {name: pad(name, array) for name, array in batch.items()}


class Parallel:
    """The compilation of steps for several devices. All kinds give the same numbers up to rounding.

    Each process has the whole batch, which depends only on the step, and passes the rows of its
    devices to them. The rows do not depend on the number of processes.

        >>> parallel = Parallel("single", jax.devices()[:1])
        >>> batch = parallel.shard({"x": np.arange(3.0), "weight": np.ones(3)})
        >>> batch["x"].shape
        (3,)

    Args:
      kind: "sharding" (jit with the batch sharded over a mesh), "pmap", or "single".
      devices: the devices to use, of all processes.
      accumulate: the number of parts in which a step computes the gradient of a batch.

    Attributes:
      kind: the way to use several devices: "sharding", "pmap" or "single".
      devices: the devices of all processes that are used.
      accumulate: the number of parts in which a step computes the gradient of a batch.
      traces: the number of traces of steps so far, which is the number of their compilations.
      several_processes: True if devices of other processes are in use.
    """

    def __init__(self, kind: str, devices: Sequence[jax.Device], accumulate: int = 1) -> None:
        self.kind = kind
        self.devices = list(devices)
        self.accumulate = accumulate
        self.traces = 0
        self._eval_steps: dict[int, tuple[AnyTask, Callable[..., Any]]] = {}
        process = jax.process_index()
        self._local = [device for device in self.devices if device.process_index == process]
        self.several_processes = len(self._local) < len(self.devices)
        if kind != "single":
            # pmap takes the arrays of a process, jit the arrays of all processes.
            placed = self._local if kind == "pmap" else self.devices
            auto = (jax.sharding.AxisType.Auto,)
            mesh = jax.make_mesh((len(placed),), ("data",), axis_types=auto, devices=placed)
            self._split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
            self._whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    @property
    def _place(self) -> tuple[Any, ...]:
        return self.kind, tuple(self.devices), self.several_processes

    def _count_traces(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def count_and_call(*args: Any) -> Any:
            self.traces += 1
            return function(*args)

        return count_and_call

    def _put(self, tree: Any, sharding: Any) -> Any:
        if not self.several_processes:
            return jax.device_put(tree, sharding)
        if self.kind == "pmap":
            return tree  # the tree has the rows of this process, and pmap places it
        return jax.tree.map(
            lambda x: jax.make_array_from_callback(
                np.shape(x), sharding, lambda index: np.asarray(x)[index]
            ),
            tree,
        )

    def replicate(self, tree: Any) -> Any:
        """Returns a tree of arrays with a copy of each array on each device.

        With "pmap" the copies are along a new first axis.
        """
        if self.kind == "single":
            return jax.device_put(tree, self.devices[0])
        if self.kind == "sharding":
            return self._put(tree, self._whole)
        count = len(self._local)
        tree = jax.tree.map(lambda x: np.broadcast_to(x, (count, *np.shape(x))), tree)
        return self._put(tree, self._split)

    def local(self, tree: Any) -> Any:
        """Returns a tree of replicated arrays as arrays on the first device of this process."""
        return jax.tree.map(lambda x: x.addressable_data(0), tree)

    def host(self, tree: Any) -> Any:
        """Returns a tree of replicated arrays as NumPy arrays, a single copy of each array."""
        if self.kind == "pmap":
            tree = jax.tree.map(
                lambda x: np.asarray(x.addressable_data(0)).reshape(x.shape[1:]), tree
            )
        return jax.device_get(tree)

    def shard(self, batch: Batch) -> Batch:
        """Splits the rows of a batch over the devices, after adding filler rows if necessary.

        The number of rows becomes a multiple of the number of devices times `accumulate`, see
        `pad_rows`. With "pmap" the arrays have the shape [devices, rows per device, ...].
        """
        return self._split_rows(pad_rows(batch, len(self.devices) * self.accumulate))

    def shard_carry(self, carry: Carry) -> Carry:
        """Splits the rows of a carried state over the devices as `shard` splits those of a batch.

        `carry` is a tree of arrays with rows first. Filler rows are 0; None stays None.
        """

        def pad(array: Any) -> np.ndarray:
            array = np.asarray(array)
            extra = -len(array) % (len(self.devices) * self.accumulate)
            return np.pad(array, [(0, extra)] + [(0, 0)] * (array.ndim - 1))

        return self._split_rows(jax.tree.map(pad, carry))

    def _split_rows(self, tree: Any) -> Any:
        if self.kind == "single":
            return jax.device_put(tree, self.devices[0])
        if self.kind == "pmap":
            count = len(self.devices)
            tree = jax.tree.map(lambda x: np.reshape(x, (count, -1, *np.shape(x)[1:])), tree)
            if self.several_processes:
                # pmap takes only the rows for the devices of this process.
                mine = [device in self._local for device in self.devices]
                tree = jax.tree.map(lambda x: x[mine], tree)
        return self._put(tree, self._split)

    def place(self, state: TrainState) -> TrainState:
        """Returns a train state with its arrays on the devices.

        The rows of its carried state are split over the devices; of all other arrays each device
        gets a copy.
        """
        replicated = self.replicate(dataclasses.replace(state, carry=None))
        return dataclasses.replace(replicated, carry=self.shard_carry(state.carry))

    def fetch_carry(self, carry: Carry, rows: int) -> Carry:
        """Returns the carried state as NumPy arrays with `rows` rows; all processes must call it.

        Args:
          carry: a carried state on the devices, a tree of arrays with rows first, or None.
          rows: the number of rows without filler rows.
        """
        if self.several_processes:
            carry = multihost_utils.process_allgather(carry, tiled=True)
        carry = jax.device_get(carry)
        if self.kind == "pmap":
            carry = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), carry)
        return jax.tree.map(lambda x: np.asarray(x)[:rows], carry)

    def fetch(self, state: TrainState, carry: Carry) -> TrainState:
        """Returns a train state on the devices as NumPy arrays.

        Args:
          state: the train state, see `place`.
          carry: the result of `fetch_carry`, which becomes the carry of the returned state.
        """
        return dataclasses.replace(self.host(dataclasses.replace(state, carry=None)), carry=carry)

    def _pmap(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        devices = None if self.several_processes else self.devices
        return jax.pmap(self._count_traces(function), axis_name="data", devices=devices, **options)

    def on_copies(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Compiles a function of trees of replicated arrays; its result is replicated too.

        A replicated array has a copy on each device.
        """
        if self.kind == "single":
            return jax.jit(function)
        if self.kind == "sharding":
            return jax.jit(function, out_shardings=self._whole)
        # The copies of pmap are a single array with a leading axis over the devices.
        return jax.jit(jax.vmap(function), out_shardings=self._split)

    def train_step(
        self, task: AnyTask, tx: optax.GradientTransformation, *, check_loss: bool = False
    ) -> Callable[..., Any]:
        """Compiles the training step (state, batch, seed_key) -> (state, metrics).

        The state is donated, so that the old state cannot be used afterwards.

        Args:
          task: the task.
          tx: the Optax chain.
          check_loss: True adds an entry to the metrics from which `refuse_mean_loss` detects a loss
            that is a mean.
        """
        if self.kind == "pmap":
            step = make_train_step(
                task, tx, axis_name="data", accumulate=self.accumulate, check_loss=check_loss
            )
            # The metrics are equal on all devices, so that a single copy suffices.
            return self._pmap(step, in_axes=(0, 0, None), out_axes=(0, None), donate_argnums=0)
        step = self._count_traces(
            make_train_step(task, tx, accumulate=self.accumulate, check_loss=check_loss)
        )
        if self.kind == "single":
            return SharedProgram(step, 1, self._place, donate_argnums=0)
        # Without out_shardings the state might be split in another way, and the step would be
        # compiled again.
        replicated: Any = self._whole
        state = TrainState(
            replicated, replicated, replicated, carry=self._split, model_state=replicated
        )
        return SharedProgram(
            step, 1, self._place, donate_argnums=0, out_shardings=(state, replicated)
        )

    def eval_step(self, task: AnyTask) -> Callable[..., Any]:
        """Compiles the evaluation of a task.

        It maps (params, batch, carry, model_state) to (metrics, predictions, carry). The rows of
        the predictions are in the order of the batch. The carry and the model state are None for a
        task without them. The function is cached for each task, so that a test after training does
        not compile the evaluation again.
        """
        if id(task) not in self._eval_steps:
            # The task is stored with its step, so that no other object can get its id.
            self._eval_steps[id(task)] = (task, self._make_eval_step(task))
        return self._eval_steps[id(task)][1]

    def _make_eval_step(self, task: Any) -> Callable[..., Any]:
        def evaluate(params: Any, batch: Batch, carry: Carry, model_state: Any = None) -> Any:
            return call_evaluate(task, params, batch, carry, model_state)

        if self.kind == "pmap":

            def evaluate_and_sum(*args: Any) -> Any:
                metrics, predictions, carry = evaluate(*args)
                return jax.lax.psum(metrics, "data"), predictions, carry

            mapped = self._pmap(evaluate_and_sum, out_axes=(None, 0, 0))

            def run(*args: Any) -> Any:
                metrics, predictions, carry = mapped(*args)
                if self.several_processes:
                    # A process has only the predictions of its devices, and the caller expects all
                    # rows.
                    predictions = multihost_utils.process_allgather(predictions, tiled=True)
                rows = {k: np.reshape(v, (-1, *v.shape[2:])) for k, v in predictions.items()}
                return metrics, rows, carry

            return run
        step = self._count_traces(evaluate)
        if self.kind == "single":
            return SharedProgram(step, 1, self._place)
        # Each process reads the predictions of all rows.
        rows = self._whole if self.several_processes else None
        return SharedProgram(step, 1, self._place, out_shardings=(rows, rows, self._split))


def make_parallel(
    kind: Literal["sharding", "pmap", "single"] = "sharding",
    devices: Sequence[jax.Device] | None = None,
    *,
    accumulate: int = 1,
) -> Parallel:
    """Returns a `Parallel`, which `fit` and `evaluate` use to spread batches over devices.

        >>> make_parallel("single").kind
        'single'

    Args:
      kind: "sharding" (jit with the batch sharded over a mesh), "pmap", or "single", which uses the
        first device.
      devices: the devices (default: all devices of all processes).
      accumulate: the number of parts in which a step computes the gradient of a batch.

    Returns:
      The `Parallel`.

    Raises:
      ValueError: if the kind is unknown, there are no devices, accumulate is below 1, or "single"
        is used with several processes.
    """
    if kind not in ("sharding", "pmap", "single"):
        raise ValueError(f"kind must be 'sharding', 'pmap' or 'single', got {kind!r}")
    if accumulate < 1:
        raise ValueError(f"accumulate must be at least 1, got {accumulate}")
    device_list = jax.devices() if devices is None else list(devices)
    if not device_list:
        raise ValueError("devices must not be empty")
    if kind == "single":
        if devices is None and jax.process_count() > 1:
            raise ValueError(
                f"parallel 'single' uses one device of one process, but {jax.process_count()} "
                "processes run: use 'sharding' or 'pmap'"
            )
        device_list = device_list[:1]
    return Parallel(kind, device_list, accumulate)
