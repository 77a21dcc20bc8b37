"""Nested parameters as flat dotted names, and comparison of two sets of parameters."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from gatedjax._utils.types import Params, Tree

# Deeper trees would raise RecursionError.
MAX_DEPTH = 100


class ParamsMismatch(ValueError):
    """Raised if parameters do not have the expected names, shapes or dtypes."""


class Leaf(NamedTuple):
    """The dtype and the shape of an array, without its values."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


def name_fault(name: str) -> str | None:
    """Returns the fault of a dotted name, such as "looks like a path", or None."""
    if not all(name.split(".")):
        return "has an empty part between its dots"
    if name.count(".") >= MAX_DEPTH:
        return f"is nested more than {MAX_DEPTH} deep"
    # Other readers of the file might use names as paths that leave a folder.
    if "/" in name or "\\" in name or name.startswith("~"):
        return "looks like a path"
    if not name.isprintable():
        return "has characters that cannot be printed"
    return None


def flatten(params: Params, argument: str = "params") -> dict[str, Tree]:
    """Returns the leaves of nested mappings by dotted name: {"a": {"b": x}} becomes {"a.b": x}."""
    if not isinstance(params, Mapping):
        raise TypeError(f"{argument} must be nested dicts of arrays, got {type(params).__name__}")
    flat: dict[str, Tree] = {}
    _collect(params, "", flat, argument)
    return flat


def _collect(tree: Mapping[str, Tree], prefix: str, flat: dict[str, Tree], argument: str) -> None:
    """Adds the arrays in nested mappings to the dict `flat`, dotted name -> array."""
    if not tree:
        where = f"{argument}[{prefix!r}]" if prefix else argument
        raise ValueError(f"{where} must hold at least one array, got an empty dict")
    for key, value in tree.items():
        if not isinstance(key, str):
            raise TypeError(f"{argument} must have str keys, got {key!r} below {prefix!r}")
        if "." in key:
            raise ValueError(
                f"{argument} must have keys without dots, got {key!r} below {prefix!r}"
            )
        name = f"{prefix}.{key}" if prefix else key
        if fault := name_fault(name):
            raise ValueError(f"{argument} must not have the name {name!r}, which {fault}")
        if isinstance(value, Mapping):
            _collect(value, name, flat, argument)
        elif isinstance(value, list | tuple) or not hasattr(value, "dtype"):
            raise TypeError(
                f"{argument} must have arrays as leaves, got {type(value).__name__} at {name!r}"
            )
        else:
            flat[name] = value


def unflatten(flat: Mapping[str, Tree]) -> dict[str, Tree]:
    """Builds nested dicts of arrays, the inverse of `flatten`."""
    tree: dict[str, Tree] = {}
    for name, value in flat.items():
        *path, last = name.split(".")
        node = tree
        for part in path:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                break
        if not isinstance(node, dict) or last in node:
            raise ValueError(
                f"the name {name!r} must be an array or a dict of arrays, got both: rename one"
            )
        node[last] = value
    return tree


def host_arrays(flat: Mapping[str, Tree], argument: str = "params") -> dict[str, np.ndarray]:
    """Copies the arrays of `flat`, dotted name -> array, to NumPy arrays with the same names."""
    if all(isinstance(value, np.ndarray) for value in flat.values()):
        # Contiguous, because `safetensors` ignores strides.
        return {name: np.require(value, requirements="C") for name, value in flat.items()}
    import jax  # Imported here, because arrays of NumPy need no JAX.

    for name, value in flat.items():
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended):
            raise TypeError(f"{argument} must hold plain arrays, got {value.dtype} at {name!r}")
    values = jax.device_get(dict(flat))
    return {name: np.require(value, requirements="C") for name, value in values.items()}


def leaves(params: Params, argument: str) -> dict[str, Leaf]:
    """Returns the dtype and shape of each leaf of nested dicts: dotted name -> `Leaf`."""
    flat = flatten(params, argument)
    return {name: Leaf(str(x.dtype), tuple(x.shape)) for name, x in flat.items()}


def check_same(got: Mapping[str, Leaf], expected: Mapping[str, Leaf], where: str) -> None:
    """Raises ParamsMismatch if two sets of parameters differ in names, dtypes or shapes."""
    lines = [
        f"  {name}: wanted {expected.get(name, 'nothing')}, got {got.get(name, 'nothing')}"
        for name in sorted(got.keys() | expected.keys())
        if got.get(name) != expected.get(name)
    ]
    if lines:
        raise ParamsMismatch(f"{where} does not hold the expected parameters:\n" + "\n".join(lines))
