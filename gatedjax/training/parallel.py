"""Several devices: batches split by shardings or by pmap, parameters split, or one device."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import numpy as np
import optax
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from gatedjax._utils.filler import FILLER_ID
from gatedjax.training._placement import (
    ParamRule,
    as_auto_mesh,
    as_entry,
    check_batch_axis,
    fsdp_rule,
    opt_state_shardings,
    param_shardings,
    without_axes,
)
from gatedjax.training._programs import SharedProgram
from gatedjax.training.step import TrainState, make_train_step
from gatedjax.training.task import AnyTask, Batch, Carry, call_evaluate


def pad_rows(batch: Batch, multiple: int) -> Batch:
    """Adds filler rows (zeros, example_id -1, weight 0) up to a multiple of the number of rows."""
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
      kind: "sharding" (jit with the batch sharded over a mesh), "fsdp" (parameters and optimizer
        state are sharded too), "pmap", or "single".
      devices: the devices to use, of all processes.
      accumulate: the number of parts in which a step computes the gradient of a batch.
      mesh: the mesh of "sharding" and "fsdp" (default: the axis "data" over the devices).
      param_sharding: a rule (path, array) -> PartitionSpec for the parameters, or None.
      batch_axis: the mesh axis, or several mesh axes, over which the rows of a batch are split.

    Attributes:
      kind: the way to use several devices: "sharding", "fsdp", "pmap" or "single".
      devices: the devices of all processes that are used.
      accumulate: the number of parts in which a step computes the gradient of a batch.
      mesh: the mesh of devices, with automatic axes; None for "single" and "pmap".
      splits_params: True if devices may have parts of parameters in place of copies.
      traces: the number of traces of steps so far, which is the number of their compilations.
      several_processes: True if devices of other processes are in use.
    """

    def __init__(
        self,
        kind: str,
        devices: Sequence[jax.Device],
        accumulate: int = 1,
        *,
        mesh: jax.sharding.Mesh | None = None,
        param_sharding: ParamRule | None = None,
        batch_axis: str | Sequence[str] = "data",
    ) -> None:
        self.kind = kind
        self.devices = list(devices)
        self.accumulate = accumulate
        self.traces = 0
        self._eval_steps: dict[int, tuple[AnyTask, Callable[..., Any]]] = {}
        process = jax.process_index()
        self._local = [device for device in self.devices if device.process_index == process]
        self.several_processes = len(self._local) < len(self.devices)
        # Such a device needs no placement of the arrays of a step, which costs more than a small
        # step.
        self.is_one_device = (
            kind != "pmap" and len(self.devices) == 1 and not self.several_processes
        )
        # A mesh of the user may have axes that the metadata of parameters name.
        self.splits_params = kind == "fsdp" or mesh is not None or param_sharding is not None
        self.mesh: jax.sharding.Mesh | None = None
        # The rows of a batch are a multiple of this number.
        self._parts = len(self.devices)
        if kind == "single":
            return
        if mesh is None:
            # pmap takes the arrays of a process, jit the arrays of all processes.
            placed = self._local if kind == "pmap" else self.devices
            mesh = jax.make_mesh(
                (len(placed),), ("data",), axis_types=(jax.sharding.AxisType.Auto,), devices=placed
            )
        mesh = as_auto_mesh(mesh)
        self._batch_axes = check_batch_axis(mesh, batch_axis)
        self._split = NamedSharding(mesh, PartitionSpec(as_entry(self._batch_axes)))
        self._whole = NamedSharding(mesh, PartitionSpec())
        if kind == "pmap":
            return
        self.mesh = mesh
        self._parts = math.prod(mesh.shape[axis] for axis in self._batch_axes)
        default = fsdp_rule(mesh, self._batch_axes) if kind == "fsdp" else _copy_rule
        self._rule = param_sharding or default

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

        def assemble(x: Any, sharding: Any) -> jax.Array:
            return jax.make_array_from_callback(
                np.shape(x), sharding, lambda index: np.asarray(x)[index]
            )

        if isinstance(sharding, NamedSharding):
            return jax.tree.map(lambda x: assemble(x, sharding), tree)
        return jax.tree.map(assemble, tree, sharding)

    def param_shardings(self, params: Any) -> Any:
        """Returns a tree of the shardings of parameters; None for "single" and "pmap".

        A parameter is placed by the metadata of Linen (`nn.with_partitioning`) where it carries
        them and parameters may be split, else by the rule.

            >>> parallel = make_parallel("fsdp", jax.devices()[:1])
            >>> parallel.param_shardings({"w": np.zeros((64, 16))})["w"].spec
            P('data',)

        Args:
          params: the parameters, or their shapes and dtypes.

        Raises:
          TypeError, ValueError: if the rule or the metadata do not fit the mesh or the shapes.
        """
        if self.mesh is None:
            return None
        if not self.splits_params:
            return jax.tree.map(lambda _: self._whole, params)
        return param_shardings(params, self.mesh, self._rule)

    def state_shardings(self, state: TrainState) -> Any:
        """Returns the shardings of a train state; None for "single" and "pmap".

        The optimizer state is split like the parameters. The step and the model state are copied to
        each device; the rows of the carried state are split like a batch. Where a single sharding
        stands for a tree, all arrays of the tree have it.

        Args:
          state: the train state, or its shapes and dtypes.

        Returns:
          A `TrainState` with a `NamedSharding`, or a tree of them, in each field.

        Raises:
          TypeError, ValueError: if the rule or the metadata do not fit the mesh or the shapes.
        """
        if self.mesh is None:
            return None
        if not self.splits_params:
            return self._state_of_copies()
        params = self.param_shardings(state.params)
        opt_state = opt_state_shardings(state.opt_state, state.params, params, self.mesh)
        return dataclasses.replace(self._state_of_copies(), params=params, opt_state=opt_state)

    def _state_of_copies(self) -> Any:
        whole: Any = self._whole
        return TrainState(whole, whole, whole, carry=self._split, model_state=whole)

    def _gather(self, params: Any) -> Any:
        """Returns parameters that are whole along the batch axes, for a loss or an evaluation."""
        # Otherwise the compiler may gather a kernel in each step of a recurrence.
        split = self.param_shardings(params)
        whole = without_axes(split, self._batch_axes)
        constrain = jax.lax.with_sharding_constraint

        @jax.custom_vjp
        def gather(params: Any) -> Any:
            return constrain(params, whole)

        # JAX's own derivative would first add up whole gradients on each device.
        gather.defvjp(lambda p: (constrain(p, whole), None), lambda _, g: (constrain(g, split),))
        return gather(params)

    def replicate(self, tree: Any) -> Any:
        """Returns a tree of arrays with a copy of each array on each device.

        With "pmap" the copies are along a new first axis.
        """
        if self.kind == "single":
            return jax.device_put(tree, self.devices[0])
        if self.kind != "pmap":
            return self._put(tree, self._whole)
        count = len(self._local)
        tree = jax.tree.map(lambda x: np.broadcast_to(x, (count, *np.shape(x))), tree)
        return self._put(tree, self._split)

    def place_params(self, params: Any) -> Any:
        """Returns `params`, a tree of arrays, with its arrays on the devices.

        Each device has a copy or, if `splits_params` is True, its part of an array.
        """
        if not self.splits_params:
            return self.replicate(params)
        return self._put(params, self.param_shardings(params))

    def local(self, tree: Any) -> Any:
        """Returns a tree of replicated arrays as arrays on the first device of this process."""
        return jax.tree.map(lambda x: x.addressable_data(0), tree)

    def host(self, tree: Any) -> Any:
        """Returns a tree of replicated or split arrays as NumPy arrays, each whole and once.

        If parameters are split over several processes, all processes must call it.
        """
        if self.several_processes and self.splits_params:
            # The arrays are gathered in turn, so that a device has only one of them whole.
            return jax.tree.map(
                lambda x: np.asarray(multihost_utils.process_allgather(x, tiled=True)), tree
            )
        if self.kind == "pmap":
            tree = jax.tree.map(
                lambda x: np.asarray(x.addressable_data(0)).reshape(x.shape[1:]), tree
            )
        return jax.device_get(tree)

    def shard(self, batch: Batch) -> Batch:
        """Splits the rows of a batch over the devices, after adding filler rows if necessary.

        The result is the batch, a dict of arrays, on the devices. The number of rows becomes a
        multiple of the number of devices along the batch axis times `accumulate`, see `pad_rows`.
        With "pmap" the arrays have the shape [devices, rows per device, ...].
        """
        return self._split_rows(pad_rows(batch, self._parts * self.accumulate))

    def shard_carry(self, carry: Carry) -> Carry:
        """Splits the rows of a carried state over the devices as `shard` splits those of a batch.

        `carry` is a tree of arrays with rows first, and so is the result, with its arrays on the
        devices. Filler rows are 0; None stays None.
        """

        def pad(array: Any) -> np.ndarray:
            array = np.asarray(array)
            extra = -len(array) % (self._parts * self.accumulate)
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

        The rows of its carried state are split over the devices, parameters and optimizer state
        perhaps too, see `state_shardings`. Of all other arrays each device gets a copy.
        """
        carry, state = state.carry, dataclasses.replace(state, carry=None)
        if self.splits_params:
            rest = self.replicate(dataclasses.replace(state, params=None, opt_state=None))
            shardings = self.state_shardings(state)
            placed = dataclasses.replace(
                rest,
                params=self._put(state.params, shardings.params),
                opt_state=self._put(state.opt_state, shardings.opt_state),
            )
        else:
            placed = self.replicate(state)
        return dataclasses.replace(placed, carry=self.shard_carry(carry))

    def initialise(
        self, make: Callable[..., TrainState], like: TrainState, *args: Any
    ) -> TrainState:
        """Returns a new train state as NumPy arrays; all processes must call it.

        Args:
          make: a compiled function that returns the `TrainState` for `args`.
          like: shapes and dtypes of the train state.
          *args: the arguments of `make`, such as a PRNG key.
        """
        if not self.splits_params:
            return jax.device_get(make(*args))
        # A device need not have room for the whole state.
        shardings = dataclasses.replace(self.state_shardings(like), carry=self._whole)
        return self.host(jax.jit(make, out_shardings=shardings)(*args))

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
          state: the train state with its arrays on the devices, as from `place`.
          carry: the carried state as NumPy arrays or None, as from `fetch_carry`. It becomes the
            carry of the returned state.
        """
        return dataclasses.replace(self.host(dataclasses.replace(state, carry=None)), carry=carry)

    def _pmap(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        devices = None if self.several_processes else self.devices
        return jax.pmap(self._count_traces(function), axis_name="data", devices=devices, **options)

    def on_params(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Compiles a function of (params, opt_state) whose result is like the parameters.

        The result of the method is a function with the same arguments, the parameters and the state
        of the optimizer. Its arguments and its result are on the devices as `place` places them.
        """
        if self.kind == "single":
            return jax.jit(function)
        if self.kind == "pmap":
            # The copies of pmap are a single array with a leading axis over the devices.
            return jax.jit(jax.vmap(function), out_shardings=self._split)
        if not self.splits_params:
            return jax.jit(function, out_shardings=self._whole)
        return _jit_for(function, lambda params, opt_state: self.param_shardings(params))

    def train_step(
        self, task: AnyTask, tx: optax.GradientTransformation, *, check_loss: bool = False
    ) -> Callable[..., Any]:
        """Compiles the training step (state, batch, seed_key) -> (state, metrics).

        The state is donated, so that the old state cannot be used afterwards.

        Args:
          task: the task, a model with its loss (see `Task`).
          tx: the optimizer, as Optax transformation.
          check_loss: True adds an entry to the metrics, a `Ratio` with total 1 if the loss is a
            mean over the rows, which `refuse_mean_loss` checks and removes.

        Returns:
          The compiled step. It takes a `TrainState` and a batch on the devices, and the key of the
          seed, and returns the new state and a dict of `Ratio`s.
        """
        if self.kind == "pmap":
            step = make_train_step(
                task, tx, axis_name="data", accumulate=self.accumulate, check_loss=check_loss
            )
            # The metrics are equal on all devices, so that a single copy suffices.
            return self._pmap(step, in_axes=(0, 0, None), out_axes=(0, None), donate_argnums=0)
        gather = self._gather if self.splits_params else None
        step = self._count_traces(
            make_train_step(
                task, tx, accumulate=self.accumulate, check_loss=check_loss, gather=gather
            )
        )
        if self.kind == "single":
            return SharedProgram(step, 1, self._place, donate_argnums=0)
        # Without out_shardings the state might be split in another way, and the step would be
        # compiled again.
        if not self.splits_params:
            outputs = self._state_of_copies(), self._whole
            return SharedProgram(step, 1, self._place, donate_argnums=0, out_shardings=outputs)
        return _jit_for(
            step,
            lambda state, batch, key: (self.state_shardings(state), self._whole),
            donate_argnums=0,
        )

    def eval_step(self, task: AnyTask) -> Callable[..., Any]:
        """Compiles the evaluation of a task.

        The result is a function from (params, batch, carry, model_state) to (metrics, predictions,
        carry). The metrics are `Ratio`s by name. The predictions are arrays [B, ...] by name, in
        the order of the B rows of the batch. The carry and the model state are None for a task
        without them. The function is cached for each task, so that a test after training does
        not compile the evaluation again.
        """
        if id(task) not in self._eval_steps:
            # The task is stored with its step, so that no other object can get its id.
            self._eval_steps[id(task)] = (task, self._make_eval_step(task))
        return self._eval_steps[id(task)][1]

    def _make_eval_step(self, task: Any) -> Callable[..., Any]:
        def evaluate(params: Any, batch: Batch, carry: Carry, model_state: Any = None) -> Any:
            if self.splits_params:
                params = self._gather(params)
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


def _copy_rule(path: str, array: Any) -> PartitionSpec:
    return PartitionSpec()


def _jit_for(
    function: Callable[..., Any], out_shardings: Callable[..., Any], **options: Any
) -> Callable[..., Any]:
    """Returns a compiled function; its first arguments determine its out_shardings."""
    compiled: list[Any] = []

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        if not compiled:
            compiled.append(jax.jit(function, out_shardings=out_shardings(*args), **options))
        return compiled[0](*args)

    return call


def make_parallel(
    kind: Literal["sharding", "fsdp", "pmap", "single"] = "sharding",
    devices: Sequence[jax.Device] | None = None,
    *,
    accumulate: int = 1,
    mesh: jax.sharding.Mesh | None = None,
    param_sharding: ParamRule | None = None,
    batch_axis: str | Sequence[str] = "data",
) -> Parallel:
    """Returns a `Parallel`, which `fit` and `evaluate` use to spread arrays over devices.

    "fsdp" (fully sharded data parallelism) splits parameters and optimizer state over the devices
    by `fsdp_rule`. Each device stores its part, and a step gathers the parameters for the rows of
    the device. With a mesh and a rule of your own, parameters are split over any axes, and the
    compiler (GSPMD) adds the communication. All kinds give the numbers of one device, up to
    rounding.

        >>> make_parallel("single").kind
        'single'
        >>> from jax.sharding import PartitionSpec as P
        >>> mesh = jax.make_mesh((1, 1), ("data", "model"), devices=jax.devices()[:1])
        >>> rule = lambda path, array: P(None, "model") if path.endswith("kernel") else P()
        >>> parallel = make_parallel(mesh=mesh, param_sharding=rule)
        >>> parallel.param_shardings({"kernel": np.zeros((2, 3))})["kernel"].spec
        P(None, 'model')

    Args:
      kind: "sharding" (jit with the batch sharded over a mesh), "fsdp" (parameters and optimizer
        state are sharded too), "pmap", or "single", which uses the first device.
      devices: the devices (default: all devices of all processes); None with a mesh.
      accumulate: the number of parts in which a step computes the gradient of a batch.
      mesh: a mesh in place of the mesh with the axis "data" over the devices. Explicit axes are
        made automatic.
      param_sharding: a rule (path, array) -> `jax.sharding.PartitionSpec` for the parameters, where
        a path is like "dense/kernel" and `array` has a shape and a dtype. The default copies a
        parameter to each device, or with "fsdp" is `fsdp_rule`. Parameters with metadata of Linen
        (`nn.with_partitioning`) are placed by their metadata. The optimizer state follows its
        parameters.
      batch_axis: the mesh axis, or a tuple of mesh axes, over which the rows of a batch are split.

    Returns:
      The `Parallel`.

    Raises:
      TypeError: if mesh is no `jax.sharding.Mesh`, or param_sharding is no function.
      ValueError: if the kind is unknown, there are no devices, accumulate is below 1, the mesh
        lacks the batch axis, "single" is used with several processes, or "single" or "pmap" with
        mesh or param_sharding.
    """
    if kind not in ("sharding", "fsdp", "pmap", "single"):
        raise ValueError(f"kind must be 'sharding', 'fsdp', 'pmap' or 'single', got {kind!r}")
    if accumulate < 1:
        raise ValueError(f"accumulate must be at least 1, got {accumulate}")
    if mesh is not None and not isinstance(mesh, jax.sharding.Mesh):
        raise TypeError(f"mesh must be a jax.sharding.Mesh, got {mesh!r}: call jax.make_mesh")
    if param_sharding is not None and not callable(param_sharding):
        raise TypeError(
            "param_sharding must be a function (path, array) -> PartitionSpec, got "
            f"{type(param_sharding).__name__}"
        )
    for name, value in (("mesh", mesh), ("param_sharding", param_sharding)):
        if value is not None and kind in ("pmap", "single"):
            raise ValueError(
                f"{name} must be None with kind {kind!r}, got {value!r:.80}: give kind 'sharding' "
                "or 'fsdp'"
            )
    if mesh is not None and devices is not None:
        raise ValueError(
            f"devices must be None with a mesh, which has its devices, got {devices!r:.80}"
        )
    if mesh is not None:
        devices = list(mesh.devices.flat)
    device_list = jax.devices() if devices is None else list(devices)
    if not device_list:
        raise ValueError(f"devices must not be empty, got {devices!r}")
    if kind == "single":
        if devices is None and jax.process_count() > 1:
            raise ValueError(
                f"parallel must be 'sharding' or 'pmap' for {jax.process_count()} processes, got "
                "'single', which uses one device of one process"
            )
        device_list = device_list[:1]
    return Parallel(
        kind,
        device_list,
        accumulate,
        mesh=mesh,
        param_sharding=param_sharding,
        batch_axis=batch_axis,
    )
