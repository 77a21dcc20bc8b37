"""What JAX's multi-device modes ask of a function; the only place that knows them.

Under `jax.shard_map` an array is typed by the manual axes over which it varies; under a mesh with
explicit axes (`jax.set_mesh`), by how it is sharded. Where JAX cannot derive the types of loops,
gradients and gathers on its own, the functions here say them. Without a mesh they do nothing.
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
    """The manual axes over which an array varies, or one of which only the type is known."""
    kind = array if isinstance(array, jax.ShapeDtypeStruct) else jax.typeof(array)
    manual = getattr(kind, "manual_axis_type", None)
    # JAX 0.10 calls them vma
    return frozenset(getattr(kind, "vma", ()) if manual is None else manual.varying)


def vary_together(tree: Tree, others: Tree = ()) -> Tree:
    """Casts every array of a tree to vary over the manual axes over which any of them does.

    A loop keeps the type of its carry and a `custom_vjp` that of its arguments, so both need it.
    The derivative of the cast sums over the devices what comes back to a replicated array.

    Args:
      tree: what is cast.
      others: arrays, or their types, whose axes count as well.
    """
    axes = {axis for leaf in jax.tree.leaves((tree, others)) for axis in _varying(leaf)}
    if not axes:
        return tree

    def cast(leaf: Tree) -> Tree:
        return lax.pcast(leaf, tuple(sorted(axes - _varying(leaf))), to="varying")

    return jax.tree.map(cast, tree)


def has_manual_axes() -> bool:
    """True inside `jax.shard_map`."""
    return bool(jax.sharding.get_abstract_mesh().manual_axes)


def has_explicit_axes() -> bool:
    """True inside a mesh some of whose axes are explicit."""
    return AxisType.Explicit in jax.sharding.get_abstract_mesh().axis_types


def leading_spec(*arrays: Any, axes: int = 1) -> PartitionSpec:
    """How the leading axes are sharded in the first of some arrays that shards any of them."""
    for array in arrays:
        spec = tuple(jax.typeof(array).sharding.spec)[:axes]
        if any(part is not None for part in spec):
            return PartitionSpec(*spec)
    return PartitionSpec()


def on_rows(
    function: Callable[..., Tree], *arguments: Tree, rows: Tree = None, axes: int = 1
) -> Tree:
    """function(*arguments), with explicit axes left to the compiler meanwhile.

    The results are sharded along their leading axes as one of rows is, and nowhere else.

    Args:
      function: closes over no array.
      rows: arrays whose leading axes are those of all results, None among them; None is arguments.
      axes: how many axes that is.
    """
    if not has_explicit_axes():
        return function(*arguments)
    spec = leading_spec(*jax.tree.leaves(arguments if rows is None else rows), axes=axes)
    return jax.sharding.auto_axes(function, out_sharding=spec)(*arguments)


def compiled(*static: int) -> Callable[..., Tree]:
    """Compiles a function of a module where it is called outside `jit`, once for every shape.

    Inside `jit` it is as if nothing had been said. Without it, the loop of every call is another
    one to JAX, whose body closes over the arrays of that call.

    Args:
      static: the positions of arguments that are known while tracing, hashable.
    """
    return functools.partial(jax.jit, static_argnums=static, inline=True)


@compiled(0, 1)
def _compiled(core: Callable[..., Tree], static: tuple[Any, ...], arguments: Tree) -> Tree:
    return core(*static, *arguments)


def run_core(
    core: Callable[..., Tree], static: tuple[Any, ...], arguments: Tree, rows: Tree, axes: int = 1
) -> Tree:
    """core(*static, *arguments) in every mode; a call outside `jit` compiles once.

    Args:
      core: a function of a module, for it is known by its identity.
      static: what is known while tracing, hashable.
      arguments: trees of arrays.
      rows, axes: see `on_rows`.
    """
    run = functools.partial(_compiled, core, static)
    return on_rows(run, vary_together(arguments), rows=rows, axes=axes)


def take_rows(table: jax.Array, index: jax.Array) -> jax.Array:
    """table[index], as `jnp.take`; the result is sharded as index is."""
    take = functools.partial(jnp.take, axis=0)
    return on_rows(take, table, index, rows=index, axes=index.ndim)


def rows_like(tree: Tree, *like: jax.Array) -> Tree:
    """The arrays of a tree with their rows sharded as those of the first of like that are."""
    if not has_explicit_axes():
        return tree
    (rows,) = tuple(leading_spec(*like)) or (None,)

    def place(leaf: Tree) -> Tree:
        others = tuple(jax.typeof(leaf).sharding.spec)[1:]
        return jax.sharding.reshard(leaf, PartitionSpec(rows, *others))

    return jax.tree.map(place, tree)
