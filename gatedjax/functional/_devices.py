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


def _varying(array: Tree) -> frozenset[str]:
    """Returns the names of the manual mesh axes over which an array varies.

    A `jax.ShapeDtypeStruct`, too, is accepted as the array. The set is empty outside of
    `jax.shard_map`.
    """
    kind = array if isinstance(array, jax.ShapeDtypeStruct) else jax.typeof(array)
    manual = getattr(kind, "manual_axis_type", None)
    # JAX 0.10 calls them vma
    return frozenset(getattr(kind, "vma", ()) if manual is None else manual.varying)


def vary_together(tree: Tree, extra: Tree = ()) -> Tree:
    """Casts the arrays of a tree to vary over the union of their manual axes.

    Loops need this because their carry must keep its type, and `custom_vjp` because the cotangents
    have the types of the arguments. The derivative of the cast sums the cotangent of a replicated
    array over the devices.

    Args:
      tree: the arrays that are cast, a pytree.
      extra: a pytree of arrays, or of their types (`jax.ShapeDtypeStruct`), that contribute axes to
        the union.

    Returns:
      The cast arrays, in the structure of tree.
    """
    axes = {axis for leaf in jax.tree.leaves((tree, extra)) for axis in _varying(leaf)}
    if not axes:
        return tree

    def cast(leaf: Tree) -> Tree:
        """Returns the array `leaf`, cast to vary over the manual mesh axes of all arrays."""
        return lax.pcast(leaf, tuple(sorted(axes - _varying(leaf))), to="varying")

    return jax.tree.map(cast, tree)


def has_manual_axes() -> bool:
    """Returns True inside `jax.shard_map`."""
    return bool(jax.sharding.get_abstract_mesh().manual_axes)


def has_explicit_axes() -> bool:
    """Returns True inside a mesh with explicit axes."""
    return AxisType.Explicit in jax.sharding.get_abstract_mesh().axis_types


def leading_spec(*arrays: Any, axes: int = 1) -> PartitionSpec:
    """Returns the sharding of the leading axes in the first array that shards any of them.

    arrays are `jax.Array`s of any shapes, traced or not. `axes` is the number of leading axes. The
    result is a `PartitionSpec` with at most this number of entries, and an empty one if no array
    shards these axes.
    """
    for array in arrays:
        spec = tuple(jax.typeof(array).sharding.spec)[:axes]
        if any(part is not None for part in spec):
            return PartitionSpec(*spec)
    return PartitionSpec()


def on_rows(
    function: Callable[..., Tree], *arguments: Tree, rows: Tree = None, axes: int = 1
) -> Tree:
    """Calls `function` with the explicit axes of the mesh made automatic.

    The results are sharded along their leading axes like the first sharded array in `rows`.

    Args:
      function: a function of arrays that closes over no array.
      *arguments: its arguments, pytrees of arrays.
      rows: a pytree of arrays that share their leading axes, such as the rows of a batch, with all
        results; None means the arguments.
      axes: the number of leading axes that are shared.

    Returns:
      The result of the function, a pytree of arrays. Outside a mesh with explicit axes it is
      function(*arguments).
    """
    if not has_explicit_axes():
        return function(*arguments)
    spec = leading_spec(*jax.tree.leaves(arguments if rows is None else rows), axes=axes)
    return jax.sharding.auto_axes(function, out_sharding=spec)(*arguments)


def compile_outside_jit(*static: int) -> Callable[..., Tree]:
    """Decorates a module-level function so that calls outside `jit` compile once per shape.

    Inside `jit` the function is inlined. Without this decorator a loop in the function would
    compile again in each call, because its body closes over the arrays of that call. The result is
    the decorator: it maps the function to its compiled form with the same arguments.

    Args:
      *static: the positions, from 0, of hashable arguments that are known while tracing.
    """
    return functools.partial(jax.jit, static_argnums=static, inline=True)


@compile_outside_jit(0, 1)
def _run_compiled(core: Callable[..., Tree], static: tuple[Any, ...], arguments: Tree) -> Tree:
    """Returns core(*static, *arguments), compiled once for each core, `static` and shapes.

    `core` is a module-level function of arrays, `static` are its first arguments, hashable values
    that are known while tracing, and `arguments` is a tuple of pytrees of arrays.
    """
    return core(*static, *arguments)


def run_core(
    core: Callable[..., Tree], static: tuple[Any, ...], arguments: Tree, rows: Tree, axes: int = 1
) -> Tree:
    """Calls core(*static, *arguments) in all modes of JAX; a call outside `jit` compiles once.

    Args:
      core: a module-level function, because the cache of compiled programs uses its identity.
      static: hashable arguments that are known while tracing.
      arguments: a tuple of trees of arrays.
      rows: arrays that share their leading axes with all results; inside a mesh with explicit axes
        the results are sharded along these axes like the first sharded array in rows.
      axes: the number of leading axes that are shared.

    Returns:
      The result of core, a tree of arrays.
    """
    run = functools.partial(_run_compiled, core, static)
    return on_rows(run, vary_together(arguments), rows=rows, axes=axes)


def take_rows(table: jax.Array, index: jax.Array) -> jax.Array:
    """Returns table[index] [..., D], with the sharding of the index.

    table is [V, D], V rows of width D, and index is an int array of any shape [...] with numbers of
    rows from 0. A row is NaN if its index is V or more.
    """
    # `jnp.take` gives NaN for an index beyond the table, whereas indexing reads the last row.
    take = functools.partial(jnp.take, axis=0)
    return on_rows(take, table, index, rows=index, axes=index.ndim)


def rows_like(tree: Tree, *like: jax.Array) -> Tree:
    """Shards the rows of all arrays in a tree like the first array in `like` that is sharded.

    Rows are the first axis of an array; the sharding of its other axes stays. Returns the tree of
    arrays, unchanged outside a mesh with explicit axes.
    """
    if not has_explicit_axes():
        return tree
    (rows,) = tuple(leading_spec(*like)) or (None,)

    def place(leaf: Tree) -> Tree:
        """Returns the array `leaf` with its first axis, the rows, sharded like that of `like`.

        The sharding of its other axes does not change.
        """
        trailing = tuple(jax.typeof(leaf).sharding.spec)[1:]
        return jax.sharding.reshard(leaf, PartitionSpec(rows, *trailing))

    return jax.tree.map(place, tree)
