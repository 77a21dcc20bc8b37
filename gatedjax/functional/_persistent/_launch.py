"""Calls of the kernels from JAX, with rules for `vmap` and for batches on several devices.

A call has arrays with named axes: b rows, t steps, d directions, h units, g gate columns, s saved
columns. An array that a recurrence does not use has the shape (1,), and "" as its axes.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from gatedjax.functional._devices import has_manual_axes, vary_together
from gatedjax.functional._persistent._compiler import KERNELS, compile_ptx
from gatedjax.functional._persistent._plan import Card, Kind, Plan, choose_plan
from gatedjax.functional._types import Tree

PLATFORM = "cuda"
"""The platform whose programs call the kernels, in the names of `jax.lax.platform_dependent`."""
_TARGET = "__gpu$xla.gpu.ptx"


class Variant(NamedTuple):
    """The properties of a recurrence that its kernels are compiled for."""

    kind: Kind
    has_restarts: bool
    has_dropout: bool
    bound: float | None
    scale: float
    card: Card

    def constants(self) -> dict[str, Any]:
        """Returns the macros of `recurrence.cu` for these properties, such as {"DROPOUT": 1}."""
        macros = {
            "RESTARTS": int(self.has_restarts),
            "DROPOUT": int(self.has_dropout),
            "SCALE": f"{self.scale:.9e}f",
        }
        if self.bound is not None:
            macros["BOUND"] = f"{self.bound:.9e}f"
        return macros


def axes_of(variant: Variant, kernel: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the axes of the operands and of the results of a kernel ("forward", "saving" or
    "backward") without `meta`, as letters: b rows, t steps, d directions, h units, g gate columns,
    s saved columns, "" an unused array.
    """
    has_cell = variant.kind.name == "lstm"
    state, cell = "dbh", "dbh" if has_cell else ""
    fresh, fresh_cell = (axes if variant.has_restarts else "" for axes in (state, cell))
    dropout = state if variant.has_dropout else ""
    if kernel == "backward":
        operands = ("d", "dhg", "dbt", "btds", "btdh", dropout, "btdh", state, cell)
        return operands, ("btdg", state, cell, fresh, fresh_cell)
    extra = "dh" if variant.kind.name == "gru_after" else ""
    starts = (state, cell, extra, fresh, fresh_cell, dropout)
    saved = ("btds", "btdh" if has_cell else "") if kernel == "saving" else ()
    return ("d", "btdg", "dhg", "dbt", *starts), ("btdh", state, cell, *saved)


def launch(variant: Variant, kernel: str, operands: Sequence[jax.Array]) -> list[jax.Array]:
    """Calls a kernel; operands are in the order of `axes_of`. Supports `vmap` and sharded rows."""
    return _batched(variant, kernel)(*operands)


def unused() -> jax.Array:
    """Returns zeros of the shape (1,), the operand for an array that a recurrence does not use."""
    return jnp.zeros((1,), jnp.float32)


@functools.cache
def _batched(variant: Variant, kernel: str) -> Callable[..., list[jax.Array]]:
    """Returns a function of the operands that calls a kernel, with its rule for `vmap`."""
    operand_axes, result_axes = axes_of(variant, kernel)

    @custom_vmap
    def call(*operands: jax.Array) -> list[jax.Array]:
        # Inside `jax.shard_map` the arrays have the rows of one device.
        if has_manual_axes():
            return _call(variant, kernel, *operands)
        return list(_partitioned(variant, kernel)(*operands))

    @call.def_vmap
    def rule(size: int, is_batched: list[bool], *operands: jax.Array) -> tuple[Tree, Tree]:
        """Calls the kernel for `size` calls at once, as a rule for `vmap`."""
        pairs = list(zip(operand_axes, operands, is_batched, strict=True))
        # A block reads one set of weights, so rows are merged only if all calls share them.
        shares_weights = not any(batched and "b" not in axes for axes, _, batched in pairs if axes)
        axis = "b" if shares_weights else "d"
        merged = [_merge(*pair, axis, size) for pair in pairs]
        results = _batched(variant, kernel)(*merged)
        split = [_split(*pair, axis, size) for pair in zip(result_axes, results, strict=True)]
        return split, [axis in axes for axes in result_axes]

    return call


def _merge(axes: str, array: jax.Array, is_batched: bool, axis: str, size: int) -> jax.Array:
    """Merges the axis of `vmap` calls, the first, into the axis `axis` of a single call."""
    if axis not in axes:
        # Only an unused operand can be batched without this axis, and no kernel reads it.
        return array[0] if is_batched else array
    if not is_batched:
        array = jnp.broadcast_to(array[None], (size, *array.shape))
    place = axes.index(axis)
    array = jnp.moveaxis(array, 0, place)
    shape = array.shape
    return array.reshape(*shape[:place], size * shape[place + 1], *shape[place + 2 :])


def _split(axes: str, array: jax.Array, axis: str, size: int) -> jax.Array:
    if axis not in axes:
        return array
    place, shape = axes.index(axis), array.shape
    array = array.reshape(*shape[:place], size, shape[place] // size, *shape[place + 1 :])
    return jnp.moveaxis(array, place, 0)


@functools.cache
def _partitioned(variant: Variant, kernel: str) -> Callable[..., Sequence[jax.Array]]:
    """Returns a function of the operands that calls a kernel for rows that may be sharded."""
    operand_axes, result_axes = axes_of(variant, kernel)
    call = functools.partial(_call, variant, kernel)

    def function(*operands: jax.Array) -> list[jax.Array]:
        return call(*operands)

    def run_on_device(*operands: jax.Array) -> list[jax.Array]:
        # The program of a device has no mesh, where constraints of a mesh have no meaning.
        with jax.sharding.use_abstract_mesh(AbstractMesh((), ())):
            return call(*operands)

    def partition(mesh: Any, operands: Tree, results: Tree) -> tuple[Any, ...]:
        """Returns the mesh, the function of a device, and the shardings of results and operands."""
        del results
        rows = None
        for axes, operand in zip(operand_axes, operands, strict=True):
            if "b" in axes and rows is None:
                spec = (*operand.sharding.spec, *[None] * len(axes))
                rows = spec[axes.index("b")]

        def place(axes: str) -> NamedSharding:
            spec = [rows if axis == "b" else None for axis in axes]
            return NamedSharding(mesh, PartitionSpec(*spec))

        # JAX wants the containers that `function` has for its results and operands.
        of_results = [place(axes) for axes in result_axes]
        return mesh, run_on_device, of_results, tuple(place(axes) for axes in operand_axes)

    partitioned = custom_partitioning(function)
    # Only the rows of a batch are independent, so only they may be sharded. XLA wants the axes in
    # the order in which the rule names them.
    names = dict.fromkeys("".join(operand_axes + result_axes))
    partitioned.def_partition(
        partition,
        sharding_rule=_sharding_rule(operand_axes, result_axes),
        need_replication_factors=tuple(axis for axis in names if axis != "b"),
    )
    return partitioned


def _sharding_rule(operand_axes: tuple[str, ...], result_axes: tuple[str, ...]) -> str:
    """Returns the axes of a call for `custom_partitioning`, such as "d, d b h -> b t d h"."""
    count = 0

    def term(axes: str) -> str:
        nonlocal count
        if axes:
            return " ".join(axes)
        count += 1
        return f"unused{count}"

    operands, results = (", ".join(map(term, part)) for part in (operand_axes, result_axes))
    return f"{operands} -> {results}"


def _call(variant: Variant, kernel: str, *operands: jax.Array) -> list[jax.Array]:
    """Calls a kernel for the rows of one device; returns its results in the order of `axes_of`."""
    operand_axes, result_axes = axes_of(variant, kernel)
    sizes = {
        name: size
        for axes, operand in zip(operand_axes, operands, strict=True)
        for name, size in zip(axes, operand.shape, strict=False)
    }
    hidden, batch, directions = (sizes[axis] for axis in "hbd")
    sizes["s"] = variant.kind.saved * hidden
    plan = choose_plan(variant.kind, hidden, batch, directions, variant.card)
    # `choose_backend` has compared the weights with the card, and a plan with fewer rows also fits.
    assert plan is not None
    # `custom_partitioning` permits no constant array.
    meta = jnp.concatenate([jnp.full(1, size, jnp.int32) for size in (sizes["t"], batch)])
    shapes = [
        jax.ShapeDtypeStruct(tuple(sizes[axis] for axis in axes) or (1,), jnp.float32)
        for axes in result_axes
    ]
    # The blocks of a cluster are neighbours along x, and y is the direction.
    grid = plan.blocks(batch, directions) // directions, directions
    varying = vary_together((meta, *operands))
    results = call_kernel(variant, plan, kernel, grid, shapes, varying)
    return list(vary_together(tuple(results), varying))


def call_kernel(
    variant: Variant,
    plan: Plan,
    kernel: str,
    grid: tuple[int, int],
    shapes: Sequence[jax.ShapeDtypeStruct],
    operands: Sequence[jax.Array],
) -> Sequence[jax.Array]:
    """Calls a kernel by XLA's custom call for PTX; the first operand is `meta`, (steps, rows)."""
    threads = plan.threads(kernel == "backward")
    call = jax.ffi.ffi_call(_TARGET, list(shapes))
    return call(
        *operands,
        name=f"run_{kernel}",
        kernel_type="ptx",
        kernel_data=compile_ptx(options_for(variant, plan, kernel)),
        grid_x=np.int32(grid[0]),
        grid_y=np.int32(grid[1]),
        grid_z=np.int32(1),
        block_x=np.int32(threads),
        block_y=np.int32(1),
        block_z=np.int32(1),
        shared_mem_bytes=np.int32(0),
    )


def options_for(variant: Variant, plan: Plan, kernel: str) -> tuple[str, ...]:
    """Returns the options with which NVRTC compiles a kernel, such as "-DHIDDEN=100"."""
    # The PTX of an older architecture also runs on newer cards.
    arch = "compute_90" if variant.card.has_clusters else "compute_80"
    constants = plan.constants() | variant.constants() | {"ONLY": 1 + KERNELS.index(kernel)}
    macros = [f"-D{name}={value}" for name, value in constants.items()]
    return "--std=c++17", f"-arch={arch}", "--ftz=true", *macros


def flags_of(
    mask: jax.Array | None, goes_on: jax.Array | None, shape: tuple[int, ...]
) -> jax.Array:
    """Returns the flags [B, T] of the kernels: bit 0 real, bit 1 a start with a new carry."""
    real = jnp.ones(shape, jnp.uint8) if mask is None else mask.astype(jnp.uint8)
    return real if goes_on is None else real + 2 * (~goes_on).astype(jnp.uint8)
