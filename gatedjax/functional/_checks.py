"""Checks made while tracing: they see shapes and dtypes, never values under `jit`."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from gatedjax.functional._tracing import is_traced, known


def check_floating(**arrays: Any) -> None:
    """Raises TypeError unless every array has a floating dtype."""
    for name, array in arrays.items():
        dtype = jnp.result_type(array)
        if not jnp.issubdtype(dtype, jnp.floating):
            raise TypeError(f"{name} must be floating point, got dtype {dtype}")


def check_same_shape(**arrays: Any) -> None:
    """Raises ValueError unless all arrays that are not None have one shape."""
    shapes = {name: jnp.shape(array) for name, array in arrays.items() if array is not None}
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"expected one common shape, got {listed}")


def check_mask(mask: Any, shape: tuple[int, ...], name: str = "mask") -> None:
    """Raises unless mask is bool and broadcasts to shape without adding axes."""
    if mask is None:
        return
    dtype = jnp.result_type(mask)
    if dtype != jnp.bool_:
        raise TypeError(f"{name} must be bool (True = real), got dtype {dtype}")
    got = jnp.shape(mask)
    fits = len(got) == len(shape) and all(g in (1, s) for g, s in zip(got, shape, strict=True))
    if not fits:
        raise ValueError(
            f"{name} must have shape {shape} (an axis may be 1 to broadcast), got {got}"
        )


def check_axis(axis: int, ndim: int, name: str = "axis") -> int:
    """Returns axis counted from the left; raises ValueError if there is no such axis."""
    if not -ndim <= axis < ndim:
        raise ValueError(f"{name} must be in [{-ndim}, {ndim}), got {axis}")
    return axis % ndim


def check_positive(**numbers: Any) -> None:
    """Raises ValueError unless every number that is known now is positive and finite.

    A traced value is not known while tracing and passes.
    """
    for name, number in numbers.items():
        if is_traced(number):
            continue
        # NumPy: a JAX call would itself be traced
        values = np.ravel(np.asarray(number, np.float64)).tolist()
        if not all(math.isfinite(value) and value > 0 for value in values):
            raise ValueError(f"{name} must be positive and finite, got {number}")


def check_not_negative(values: Any, mask: Any = None, *, name: str, hint: str = "") -> None:
    """Raises ValueError if a value that is known now, and real by the mask, is below 0."""
    if not known(values, mask):
        return
    values = np.asarray(values)
    bad = (values < 0) & (True if mask is None else np.asarray(mask))
    if bad.any():
        smallest = np.broadcast_to(values, bad.shape)[bad].min()
        raise ValueError(f"{name} must not be negative, got {smallest}{hint}")


def wide_dtype(*arrays: Any) -> Any:
    """The dtype for softmax, noise and sums: at least float32, float64 where it was given."""
    return jnp.promote_types(jnp.result_type(*arrays), jnp.float32)
