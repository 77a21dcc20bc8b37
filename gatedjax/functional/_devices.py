"""Support for the multi-device modes of JAX, all in this module.

The type of an array contains, under `jax.shard_map`, the manual axes over which it varies, and
under a mesh with explicit axes (`jax.set_mesh`) its sharding. JAX cannot derive these types for
some loops, gradients and gathers; the functions here set them. Without a mesh they do nothing.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, PartitionSpec

from gatedjax.functional._types import Tree

exported_for = jax.make_user_context(default_value=None)
"""Sets, as a context, the platform of the program that is traced; `jit` traces again for another.

None is the default, outside an export.
"""


def target_platform() -> str:
    """Returns the platform of the program that is traced, such as "cpu", "gpu", "cuda" or "tpu".

    It is the platform of the export, and outside an export the default backend of JAX.
    """
    return exported_for.value or jax.default_backend()


def _varying(array: Tree) -> frozenset[str]:
    kind = array if isinstance(array, jax.ShapeDtypeStruct) else jax.typeof(array)
    manual = getattr(kind, "manual_axis_type", None)
    # JAX 0.10 calls them vma
    return frozenset(getattr(kind, "vma", ()) if manual is None else manual.varying)


def vary_together(tree: Tree, extra: Tree = ()) -> Tree:
    """Casts the arrays of a tree to vary over the manual axes of any array in it or in `extra`.
    Loops need it for a carry that keeps its type, and `custom_vjp` for cotangents of equal types.
    """
    axes = {axis for leaf in jax.tree.leaves((tree, extra)) for axis in _varying(leaf)}
    if not axes:
        return tree

    def cast(leaf: Tree) -> Tree:
        return lax.pcast(leaf, tuple(sorted(axes - _varying(leaf))), to="varying")

    return jax.tree.map(cast, tree)


def has_manual_axes() -> bool:
    """Returns True inside `jax.shard_map`."""
    return bool(jax.sharding.get_abstract_mesh().manual_axes)


def has_explicit_axes() -> bool:
    """Returns True inside a mesh with explicit axes."""
    return AxisType.Explicit in jax.sharding.get_abstract_mesh().axis_types


def leading_spec(*arrays: Any, axes: int = 1) -> PartitionSpec:
    """Returns the sharding of the leading axes in the first array that shards any of them."""
    for array in arrays:
        spec = tuple(jax.typeof(array).sharding.spec)[:axes]
        if any(part is not None for part in spec):
            return PartitionSpec(*spec)
    return PartitionSpec()


def on_rows(
    function: Callable[..., Tree], *arguments: Tree, rows: Tree = None, axes: int = 1
) -> Tree:
    """Calls `function`, which closes over no array, with the explicit axes of the mesh made
    automatic. Results get the sharding of the first array in `rows` (None: the arguments) that
    shards one of its leading `axes`.
    """
    if not has_explicit_axes():
        return function(*arguments)
    spec = leading_spec(*jax.tree.leaves(arguments if rows is None else rows), axes=axes)
    return jax.sharding.auto_axes(function, out_sharding=spec)(*arguments)


def compile_outside_jit(*static: int) -> Callable[..., Tree]:
    """Decorates a module-level function so that calls outside `jit` compile once per shape. A loop
    in the function would otherwise compile in each call, because its body closes over arrays.
    """
    return functools.partial(jax.jit, static_argnums=static, inline=True)


@compile_outside_jit(0, 1)
def _run_compiled(core: Callable[..., Tree], static: tuple[Any, ...], arguments: Tree) -> Tree:
    return core(*static, *arguments)


def run_core(
    core: Callable[..., Tree], static: tuple[Any, ...], arguments: Tree, rows: Tree, axes: int = 1
) -> Tree:
    """Calls core(*static, *arguments) in all modes of JAX; a call outside `jit` compiles once.
    `core` must be a module-level function, because its identity is the key of the compiled program.
    """
    if jax.sharding.get_abstract_mesh().empty:
        return _run_compiled(core, static, arguments)
    run = functools.partial(_run_compiled, core, static)
    return on_rows(run, vary_together(arguments), rows=rows, axes=axes)


def take_rows(table: jax.Array, index: jax.Array) -> jax.Array:
    """Returns table[index] [..., D], with the sharding of the index."""
    # `jnp.take` gives NaN for an index beyond the table, whereas indexing reads the last row.
    take = functools.partial(jnp.take, axis=0)
    if jax.sharding.get_abstract_mesh().empty:  # the usual case, in which a reader sees the lookup
        return take(table, index)
    return on_rows(take, table, index, rows=index, axes=index.ndim)


def rows_like(tree: Tree, *like: jax.Array) -> Tree:
    """Shards the rows of all arrays in a tree like the first array in `like` that is sharded."""
    if not has_explicit_axes():
        return tree
    (rows,) = tuple(leading_spec(*like)) or (None,)

    def place(leaf: Tree) -> Tree:
        trailing = tuple(jax.typeof(leaf).sharding.spec)[1:]
        return jax.sharding.reshard(leaf, PartitionSpec(rows, *trailing))

    return jax.tree.map(place, tree)
