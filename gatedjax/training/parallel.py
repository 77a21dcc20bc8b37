"""Several devices: a batch split by shardings or by pmap, parameters split, or a single device."""

import collections
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import numpy as np
import optax
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from gatedjax.training.data import pad_rows
from gatedjax.training.metrics import Metrics, Sums
from gatedjax.training.step import TrainState, make_train_step, path_of
from gatedjax.training.task import Batch, Carried, Trainable, call_evaluate

Rule = Callable[[str, Any], P]
"""A function (path, array) -> PartitionSpec of an array of the train state."""
MOST_PROGRAMS = 16
"""The number of compiled functions that a `Parallel` keeps for later runs."""


def fsdp_rule(
    mesh: Mesh, batch_axis: str | Sequence[str] = "data", *, min_size: int = 1024
) -> Rule:
    """Returns a rule that splits each large array of a train state over the batch axis.

    The rule splits the largest dimension that the number of devices divides, and the first of
    several equal ones.

        >>> rule = fsdp_rule(jax.make_mesh((1,), ("data",), devices=jax.devices()[:1]))
        >>> rule("dense/kernel", jax.ShapeDtypeStruct((64, 256), "float32"))
        P(None, 'data')

    Args:
      mesh: the mesh of devices, as for `make_parallel`.
      batch_axis: the mesh axis, or several, over which the rows of a batch are split.
      min_size: an array with fewer numbers is copied to each device, as is an array without a
        dimension that the number of devices divides.

    Returns:
      A function (path, array) -> PartitionSpec, for `make_parallel(param_sharding=...)`.

    Raises:
      ValueError: if the mesh lacks the batch axis.
    """
    axes = _batch_axes(mesh, batch_axis)
    count = math.prod(mesh.shape[axis] for axis in axes)

    def rule(path: str, array: Any) -> P:
        fitting = [n for n, size in enumerate(array.shape) if size and size % count == 0]
        if not fitting or math.prod(array.shape) < min_size:
            return P()
        largest = max(fitting, key=lambda n: array.shape[n])
        return P(*[None] * largest, axes[0] if len(axes) == 1 else axes)

    return rule


def _batch_axes(mesh: Mesh, batch_axis: str | Sequence[str]) -> tuple[str, ...]:
    axes = (batch_axis,) if isinstance(batch_axis, str) else tuple(batch_axis)
    if not axes or any(axis not in mesh.axis_names for axis in axes):
        raise ValueError(
            f"mesh must have the axis over which the rows of a batch are split, batch_axis="
            f"{batch_axis!r}, got the axes {mesh.axis_names}: name one of them as batch_axis"
        )
    return axes


class Parallel:
    """The placement of arrays and the compilation of steps. All kinds give the same numbers.

    Each process has the whole batch, which depends only on the step, and passes the rows of its
    devices to them. The train state has the same arrays for all kinds. `make_parallel` makes the
    object.

        >>> parallel = make_parallel("single")
        >>> parallel.put_batch({"x": np.arange(3.0), "weight": np.ones(3)})["x"].shape
        (3,)

    Attributes:
      kind: "sharding", "fsdp", "pmap" or "single".
      mesh: the mesh of devices, with automatic axes.
      accumulate: the number of parts in which a step computes the gradient of a batch.
      rule: a rule (path, array) -> PartitionSpec for the arrays of the train state, or None.
      rows: the sharding of arrays with a first axis that is split over the devices.
      whole: the sharding of arrays of which each device has a copy.
      several: True if devices of other processes are in use.
    """

    def __init__(
        self, kind: str, mesh: Mesh, accumulate: int, rule: Rule | None, axes: tuple[str, ...]
    ) -> None:
        self.kind, self.mesh, self.accumulate, self.rule = kind, mesh, accumulate, rule
        self.rows, self.whole = NamedSharding(mesh, P(axes)), NamedSharding(mesh, P())
        self.parts = math.prod(mesh.shape[axis] for axis in axes)
        devices = list(mesh.devices.flat)
        self.several = any(d.process_index != jax.process_index() for d in devices)
        self._axes = axes
        self._programs: collections.OrderedDict[Any, Any] = collections.OrderedDict()

    def shardings(self, tree: Any) -> Any:
        """Returns the sharding of each array of `tree`, a train state or parameters.

        The rows of carried arrays are split like a batch; all other arrays follow the rule.

        Raises:
          TypeError, ValueError: if the rule does not fit the mesh or the shapes.
        """

        def place(path: Any, leaf: Any) -> NamedSharding:
            name = path_of(path)
            if name.startswith("carried/rows"):
                return self.rows
            if self.rule is None or not np.ndim(leaf):
                return self.whole
            name = name.removeprefix("params/")
            spec = self.rule(name, jax.ShapeDtypeStruct(leaf.shape, leaf.dtype))
            if not isinstance(spec, P):
                raise TypeError(
                    f"param_sharding must return a jax.sharding.PartitionSpec, got {spec!r} for "
                    f"{name!r}: return PartitionSpec() to copy it to each device"
                )
            try:
                sharding = NamedSharding(self.mesh, spec)
                sharding.shard_shape(leaf.shape)
            except (ValueError, IndexError) as error:
                raise ValueError(f"the sharding of {name!r}, {spec}, must fit: {error}") from error
            return sharding

        return jax.tree_util.tree_map_with_path(place, tree)

    def put(self, tree: Any, shardings: Any) -> Any:
        """Returns `tree` on the devices of all processes; `shardings` is a sharding or a tree."""
        if not self.several:
            return jax.device_put(tree, shardings)
        if isinstance(shardings, NamedSharding):
            shardings = jax.tree.map(lambda _: shardings, tree)

        def make(x: Any, sharding: NamedSharding) -> jax.Array:
            return jax.make_array_from_callback(
                np.shape(x), sharding, lambda index: np.asarray(x)[index]
            )

        return jax.tree.map(make, tree, shardings)

    def pad(self, batch: Batch) -> Batch:
        """Adds filler rows to `batch`, so that all devices and their parts have equally many."""
        return pad_rows(batch, self.parts * self.accumulate)

    def put_batch(self, batch: Batch) -> Batch:
        """Splits the rows of `batch`, a dict of arrays, over the devices, after `pad`."""
        batch = self.pad(batch)
        # A compiled function places the arrays of a single device faster than `device_put`.
        return batch if self.mesh.size == 1 else self.put(batch, self.rows)

    def fetch(self, tree: Any) -> Any:
        """Returns the arrays of `tree` as NumPy arrays, each whole; all processes must call it."""
        is_key = lambda x: jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)  # noqa: E731
        tree = jax.tree.map(lambda x: jax.random.key_data(x) if is_key(x) else x, tree)
        if self.several:
            # The arrays are gathered in turn, so that a device has only a single whole array.
            gather = functools.partial(multihost_utils.process_allgather, tiled=True)
            return jax.tree.map(lambda x: np.asarray(gather(x)), tree)
        return jax.device_get(tree)

    def train_step(
        self,
        task: Trainable,
        tx: optax.GradientTransformation,
        like: TrainState,
        batch: Batch,
        seed_key: jax.Array,
    ) -> tuple[Callable[..., tuple[TrainState, Sums, jax.Array]], Sums]:
        """Compiles the training step, which also adds its metrics to sums.

        `like` has the shapes and dtypes of the train state. Returns a function (state, sums, batch,
        seed_key) -> (state, sums, skipped) of arrays on the devices, and the shape and dtype of the
        sums. State and sums are donated; skipped is 1.0 for an update that was skipped.
        """
        shardings = self.shardings(like)
        compile_step = functools.partial(self._train_step, task, tx, shardings)
        if is_constant(task):
            traced, step = self._keep(("step", task, tx, str(shardings)), compile_step)
        else:  # a later run may have changed the task
            traced, step = compile_step()
        put = jax.tree.map(lambda x, at: x.update(sharding=at), like, shardings)
        # The loss checks its results, and the program shares this trace.
        metrics = jax.eval_shape(traced, put, self.put_batch(batch), seed_key)[1]
        return step, jax.eval_shape(Sums.of, metrics)

    def _train_step(self, task: Trainable, tx: Any, shardings: TrainState) -> Any:
        """Returns the step of one program over all devices, and the compiled step with sums."""
        options: dict[str, Any] = {"accumulate": self.accumulate, "reach": True}
        if self.kind == "pmap":
            step = make_train_step(task, tx, axis_name="data", **options)
            # Only rows have an axis over the devices; the rest of the state is a copy on each.
            none: Any = None
            axes = TrainState(none, none, none, Carried(rows=0))
            mapped = self._pmap(
                step, in_axes=(axes, 0, None), out_axes=(axes, None), donate_argnums=0
            )
            add = jax.jit(add_metrics)

            def run(state: TrainState, sums: Sums, batch: Batch, key: jax.Array) -> Any:
                state = with_rows(state, self._fold)
                state, metrics = mapped(state, self._fold(batch), key)
                return with_rows(state, _unfold), *add(sums, metrics)

            return make_train_step(task, tx, **options), run
        if self.rule is not None:
            options["gather"] = functools.partial(self._gather, shardings.params)
        traced = jax.jit(make_train_step(task, tx, **options), inline=True)

        def step_and_add(state: TrainState, sums: Sums, batch: Batch, key: jax.Array) -> Any:
            state, metrics = traced(state, batch, key)
            return state, *add_metrics(sums, metrics)

        outputs = shardings, self.whole, self.whole
        return traced, jax.jit(step_and_add, donate_argnums=(0, 1), out_shardings=outputs)

    def evaluation(self, task: Any) -> Callable[..., Any]:
        """Compiles `task.evaluate` as (params, batch, carried) -> (metrics, predictions, carried).

        It is compiled once for a task, so that a test after training shares the program.
        """
        # The task is stored, because another object may get its id only after it is gone.
        key = ("evaluate", task if is_constant(task) else id(task))
        return self._keep(key, lambda: (task, self._evaluation(task)))[1]

    def _keep(self, key: Any, make: Callable[[], Any]) -> Any:
        """Returns the result of `make` for an equal key, or calls it."""
        if key not in self._programs:
            self._programs[key] = make()
        self._programs.move_to_end(key)
        while len(self._programs) > MOST_PROGRAMS:
            self._programs.popitem(last=False)
        return self._programs[key]

    def _evaluation(self, task: Any) -> Callable[..., Any]:
        if self.kind != "pmap":

            def evaluate(params: Any, batch: Batch, carried: Carried) -> Any:
                if self.rule is not None:
                    params = self._gather(self.shardings(params), params)
                return call_evaluate(task, params, batch, carried)

            rows = self.whole if self.several else None
            return jax.jit(evaluate, out_shardings=(self.whole, rows, None))

        def evaluate_and_sum(params: Any, batch: Batch, carried: Carried) -> Any:
            metrics, predictions, carried = call_evaluate(task, params, batch, carried)
            return jax.lax.psum(metrics, "data"), predictions, carried

        axes: Any = Carried(rows=0)
        mapped = self._pmap(evaluate_and_sum, in_axes=(None, 0, axes), out_axes=(None, 0, axes))

        def run(params: Any, batch: Batch, carried: Carried) -> Any:
            carried = dataclasses.replace(carried, rows=self._fold(carried.rows))
            metrics, predictions, carried = mapped(params, self._fold(batch), carried)
            carried = dataclasses.replace(carried, rows=_unfold(carried.rows))
            return metrics, _unfold(predictions), carried

        return run

    def _gather(self, split: Any, params: Any) -> Any:
        """Returns parameters that are whole along the batch axes, for a loss or an evaluation."""
        # Otherwise the compiler may gather a kernel in each step of a recurrence.
        constrain = jax.lax.with_sharding_constraint
        gathered = jax.tree.map(self._without_batch_axes, split)

        @jax.custom_vjp
        def gather(params: Any) -> Any:
            return constrain(params, gathered)

        # JAX's own derivative would first add up gathered gradients on each device.
        gather.defvjp(lambda p: (constrain(p, gathered), None), lambda _, g: (constrain(g, split),))
        return gather(params)

    def _without_batch_axes(self, sharding: NamedSharding) -> NamedSharding:
        entries = [(e,) if isinstance(e, str) else tuple(e or ()) for e in sharding.spec]
        remaining = [tuple(axis for axis in axes if axis not in self._axes) for axes in entries]
        return NamedSharding(self.mesh, P(*(axes or None for axes in remaining)))

    def _pmap(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        return jax.pmap(function, "data", devices=list(self.mesh.devices.flat), **options)

    def _fold(self, tree: Any) -> Any:
        return jax.tree.map(lambda x: x.reshape(self.parts, -1, *x.shape[1:]), tree)


def _unfold(tree: Any) -> Any:
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


def add_metrics(sums: Sums, metrics: Metrics) -> tuple[Sums, jax.Array]:
    """Returns the sums with the metrics added, and 1.0 if the update was skipped."""
    return sums + Sums.of(metrics), metrics["skipped"].total


def with_rows(state: TrainState, change: Callable[[Any], Any]) -> TrainState:
    """Returns a train state with `change` of its carried rows."""
    return dataclasses.replace(
        state, carried=dataclasses.replace(state.carried, rows=change(state.carried.rows))
    )


def is_constant(task: Any) -> bool:
    """Returns True for a frozen dataclass that can be hashed, which no run can have changed."""
    # A subclass that is no dataclass may have other attributes than the fields of its base.
    options = vars(type(task)).get("__dataclass_params__")
    try:
        return options is not None and options.frozen and hash(task) is not None
    except TypeError:
        return False


def make_parallel(
    kind: Literal["sharding", "fsdp", "pmap", "single"] = "sharding",
    devices: Sequence[jax.Device] | None = None,
    *,
    accumulate: int = 1,
    mesh: Mesh | None = None,
    param_sharding: Rule | None = None,
    batch_axis: str | Sequence[str] = "data",
) -> Parallel:
    """Returns a `Parallel`, which `fit` and `evaluate` use to spread arrays over devices.

    "fsdp" (fully sharded data parallelism) splits parameters and optimizer state over the devices
    by `fsdp_rule`. Each device stores its part, and a step gathers the parameters for the rows of
    the device. With your mesh and your rule, arrays are split over any axes, and the compiler
    (GSPMD) adds the communication. All kinds give the numbers of a single device, up to rounding.

        >>> make_parallel("single").kind
        'single'
        >>> mesh = jax.make_mesh((1, 1), ("data", "model"), devices=jax.devices()[:1])
        >>> rule = lambda path, array: P(None, "model") if path.endswith("kernel") else P()
        >>> parallel = make_parallel(mesh=mesh, param_sharding=rule)
        >>> parallel.shardings({"kernel": np.zeros((2, 3))})["kernel"].spec
        P(None, 'model')

    Args:
      kind: "sharding" (jit with the batch sharded over a mesh), "fsdp" (the train state is sharded
        too), "pmap" (the devices of one process), or "single", which uses the first device.
      devices: the devices (default: all devices of all processes); None with a mesh.
      accumulate: the number of parts in which a step computes the gradient of a batch.
      mesh: a mesh in place of the mesh with the axis "data" over the devices. Explicit axes are
        made automatic.
      param_sharding: a rule (path, array) -> `jax.sharding.PartitionSpec`. It is called for each
        array of the train state, so that moments, with paths that end like the parameters' paths,
        are split like them: test the end of a path such as "dense/kernel".
      batch_axis: the mesh axis, or a tuple of mesh axes, over which the rows of a batch are split.

    Returns:
      The `Parallel`.

    Raises:
      TypeError, ValueError: if an argument is of another kind, or the arguments do not fit.
    """
    if kind not in ("sharding", "fsdp", "pmap", "single"):
        raise ValueError(f"kind must be 'sharding', 'fsdp', 'pmap' or 'single', got {kind!r}")
    if accumulate < 1:
        raise ValueError(f"accumulate must be at least 1, got {accumulate}")
    if mesh is not None and not isinstance(mesh, Mesh):
        raise TypeError(f"mesh must be a jax.sharding.Mesh, got {mesh!r}: call jax.make_mesh")
    if param_sharding is not None and not callable(param_sharding):
        raise TypeError(
            "param_sharding must be a function (path, array) -> PartitionSpec, got "
            f"{type(param_sharding).__name__}"
        )
    for name, value in (("mesh", mesh), ("param_sharding", param_sharding)):
        if value is not None and kind in ("pmap", "single"):
            raise ValueError(f"{name} must be None with kind {kind!r}, got {value!r:.80}")
    if mesh is not None and devices is not None:
        raise ValueError(f"devices must be None with a mesh, got {devices!r:.80}")
    if mesh is None:
        device_list = list(jax.devices() if devices is None else devices)
        if not device_list:
            raise ValueError(f"devices must not be empty, got {devices!r}")
        if kind == "single" and devices is not None:
            device_list = device_list[:1]
        this_process = {jax.process_index()}
        if kind in ("single", "pmap") and {d.process_index for d in device_list} != this_process:
            raise ValueError(
                f"kind must be 'sharding' or 'fsdp' for {jax.process_count()} processes, got "
                f"{kind!r}"
            )
        mesh = Mesh(np.array(device_list[:1] if kind == "single" else device_list), ("data",))
    axes = _batch_axes(mesh, batch_axis)
    mesh = Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * mesh.devices.ndim)
    if kind == "fsdp" and param_sharding is None:
        param_sharding = fsdp_rule(mesh, axes)
    return Parallel(kind, mesh, accumulate, param_sharding, axes)
