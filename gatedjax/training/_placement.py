"""Shardings of parameters and of optimizer states: which part of an array each device has."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from flax import linen
from jax.sharding import Mesh, NamedSharding, PartitionSpec

ParamRule = Callable[[str, Any], PartitionSpec]
"""A function (path, array) -> PartitionSpec of a parameter; `array` has a shape and a dtype."""


def fsdp_rule(mesh: Mesh, batch_axis: str | Sequence[str] = "data", *, min_size: int = 1024) -> Any:
    """Returns a rule that splits each large parameter over the devices of the batch axis.

    The rule splits the largest dimension that the number of devices divides, and the first of
    several equal ones. A parameter without such a dimension, or with fewer than `min_size` numbers,
    is copied to each device.

        >>> mesh = jax.make_mesh((1,), ("data",), devices=jax.devices()[:1])
        >>> rule = fsdp_rule(mesh)
        >>> rule("dense/kernel", jax.ShapeDtypeStruct((64, 256), "float32"))
        P(None, 'data')

    Args:
      mesh: the mesh on which the parameters are placed, as for `make_parallel`.
      batch_axis: the mesh axis, or several mesh axes, over which the rows of a batch are split.
      min_size: the smallest number of elements of a parameter that is split. A smaller parameter
        takes more time to exchange than it saves memory.

    Returns:
      A function (path, array) -> PartitionSpec, for `make_parallel(param_sharding=...)`. You can
      also call it in a rule of your own, for the parameters without a special placement.

    Raises:
      ValueError: if the mesh lacks the batch axis.
    """
    axes = check_batch_axis(mesh, batch_axis)
    count = math.prod(mesh.shape[axis] for axis in axes)

    def rule(path: str, array: Any) -> PartitionSpec:
        fitting = [n for n, size in enumerate(array.shape) if size and size % count == 0]
        if not fitting or math.prod(array.shape) < min_size:
            return PartitionSpec()
        largest = max(fitting, key=lambda n: array.shape[n])
        return PartitionSpec(*[None] * largest, as_entry(axes))

    return rule


def check_batch_axis(mesh: Mesh, batch_axis: str | Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the batch axes as a tuple, after checking that the mesh has them."""
    axes = (batch_axis,) if isinstance(batch_axis, str) else tuple(batch_axis)
    missing = [axis for axis in axes if axis not in mesh.axis_names]
    if missing or not axes:
        raise ValueError(
            f"mesh must have the axis over which the rows of a batch are split, batch_axis="
            f"{batch_axis!r}, got the axes {mesh.axis_names}: name one of them as batch_axis"
        )
    return axes


def as_auto_mesh(mesh: Mesh) -> Mesh:
    """Returns the mesh with the same devices and axes, all of the type `AxisType.Auto`."""
    auto = (jax.sharding.AxisType.Auto,) * len(mesh.axis_names)
    return Mesh(mesh.devices, mesh.axis_names, axis_types=auto)


def param_shardings(params: Any, mesh: Mesh, rule: ParamRule) -> Any:
    """Returns the sharding of each parameter; names in Linen's metadata come before the rule."""

    def place(path: Any, leaf: Any) -> Any:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if _is_box(leaf):
            spec = _spec_of_box(name, leaf, mesh)
            return leaf.replace(value=_sharding(name, spec, leaf.value.shape, mesh))
        shape = jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
        return _sharding(name, rule(name, shape), leaf.shape, mesh)

    return jax.tree_util.tree_map_with_path(place, params, is_leaf=_is_box)


def opt_state_shardings(opt_state: Any, params: Any, shardings: Any, mesh: Mesh) -> Any:
    """Returns the sharding of each array of an optimizer state. An array whose path ends with that
    of a parameter, like the moments of Adam, is split like it, perhaps after a first axis over past
    updates; the others, such as counters, are copied to each device.
    """
    placed = {
        _names(path): (leaf.shape, sharding.spec)
        for (path, leaf), sharding in zip(
            jax.tree.leaves_with_path(params), jax.tree.leaves(shardings), strict=True
        )
    }

    def place(path: Any, leaf: Any) -> NamedSharding:
        names = _names(path)
        for start in range(len(names) + 1):
            shape, spec = placed.get(names[start:], (None, None))
            if shape is None:
                continue
            if leaf.shape == shape:
                return NamedSharding(mesh, spec)
            if leaf.shape[1:] == shape:
                return NamedSharding(mesh, PartitionSpec(None, *spec))
        return NamedSharding(mesh, PartitionSpec())

    return jax.tree_util.tree_map_with_path(place, opt_state)


def without_axes(shardings: Any, axes: Sequence[str]) -> Any:
    """Returns shardings that are not split over some mesh axes."""

    def drop(sharding: NamedSharding) -> NamedSharding:
        kept = [tuple(a for a in _axes(entry) if a not in axes) for entry in sharding.spec]
        return NamedSharding(sharding.mesh, PartitionSpec(*map(as_entry, kept)))

    return jax.tree.map(drop, shardings)


def _names(path: Any) -> tuple[str, ...]:
    return tuple(jax.tree_util.keystr((key,), simple=True) for key in path)


def _is_box(leaf: Any) -> bool:
    return isinstance(leaf, linen.Partitioned)


def _spec_of_box(name: str, box: Any, mesh: Mesh) -> PartitionSpec:
    """Returns the PartitionSpec in Linen's metadata of a parameter, in axes of the mesh."""
    spec = PartitionSpec(*box.names)
    if not isinstance(box, linen.LogicallyPartitioned):
        return spec
    rules = box.rules or linen.get_logical_axis_rules()
    translated = {rule[0] for rule in rules}
    unknown = [n for n in box.names if n is not None and n not in translated]
    if any(axis not in mesh.axis_names for axis in unknown):
        raise ValueError(
            f"the logical axes of parameter {name!r}, {box.names}, must each have a rule, got none "
            f"for {unknown}: call fit inside `with nn.logical_axis_rules(rules):` with a pair "
            "(logical name, mesh axis or None) for each name"
        )
    return linen.logical_to_mesh_axes(box.names, rules) or PartitionSpec()


def as_entry(axes: tuple[str, ...]) -> Any:
    """Returns mesh axes as an entry of a PartitionSpec: None, a name or a tuple of names."""
    if len(axes) > 1:
        return axes
    return axes[0] if axes else None


def _axes(entry: Any) -> tuple[Any, ...]:
    if entry is None:
        return ()
    return tuple(entry) if isinstance(entry, tuple | list) else (entry,)


def _sharding(name: str, spec: Any, shape: tuple[int, ...], mesh: Mesh) -> NamedSharding:
    """Returns the sharding of a parameter on the mesh, after checking its PartitionSpec."""
    if not isinstance(spec, PartitionSpec):
        raise TypeError(
            f"param_sharding must return a jax.sharding.PartitionSpec, got {spec!r} for the "
            f"parameter {name!r}: return PartitionSpec() to copy it to each device"
        )
    problem = f"the sharding of parameter {name!r}, {spec}, must fit its shape {list(shape)}"
    if len(spec) > len(shape):
        raise ValueError(f"{problem}: it must have at most {len(shape)} entries, got {len(spec)}")
    used: list[Any] = []
    for number, entry in enumerate(spec):
        axes = _axes(entry)
        if missing := [axis for axis in axes if axis not in mesh.axis_names]:
            raise ValueError(
                f"the sharding of parameter {name!r}, {spec}, must name axes of the mesh, got "
                f"{missing[0]!r}, but the mesh has {mesh.axis_names}: name one of them, or give "
                "make_parallel a mesh with this axis"
            )
        used.extend(axes)
        count = math.prod(mesh.shape[axis] for axis in axes)
        if shape[number] % count:
            raise ValueError(
                f"{problem}: dimension {number} has {shape[number]} numbers, which {count} devices "
                "must share equally. Leave the dimension whole (None), or make its size a multiple "
                f"of {count}"
            )
    if len(set(used)) < len(used):
        raise ValueError(f"{problem}: a mesh axis must split only one dimension")
    return NamedSharding(mesh, spec)
