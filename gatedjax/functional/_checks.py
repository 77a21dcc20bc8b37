"""Checks of arguments while tracing: of shapes and dtypes, and of values outside `jit`."""

import math
import numbers
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gatedjax._utils.fields import check_dropout
from gatedjax._utils.tracing import is_traced
from gatedjax.functional._types import ArrayLike


def is_known(*values: ArrayLike) -> bool:
    """Returns True if all arrays can be read: not traced, and on the devices of this process."""
    leaves = jax.tree.leaves(values)
    return not any(
        is_traced(leaf) or not getattr(leaf, "is_fully_addressable", True) for leaf in leaves
    )


def check_floating(**arrays: ArrayLike) -> None:
    """Raises TypeError unless all arrays have a floating dtype."""
    check_dtype(jnp.floating, "floating point", arrays)


def check_integers(**arrays: ArrayLike) -> None:
    """Raises TypeError unless all arrays have an integer dtype, and ValueError for a lost value."""
    for name, array in arrays.items():
        integers_of(name, array)


def integers_of(name: str, array: ArrayLike) -> Array:
    """Checks integers; returns them with at least 32 bits, because sizes need not fit in int8."""
    check_dtype(jnp.integer, "integers", {name: array})
    dtype = jnp.result_type(array)
    # Only a dtype that JAX narrows can lose values: 2^32 + 1 becomes 1. Python integers have no
    # dtype and count as 64 bits.
    if getattr(array, "dtype", np.int64) != dtype and is_known(array):
        values, limits = np.asarray(array), jnp.iinfo(dtype)
        bad = values[(values < limits.min) | (values > limits.max)]
        if bad.size:
            raise ValueError(f"{name} must fit into {dtype}, got {bad[0]}")
    array = jnp.asarray(array)
    return array.astype(jnp.int32) if dtype.itemsize < 4 else array


def check_dtype(kinds: Any, requirement: str, arrays: dict[str, ArrayLike]) -> None:
    """Raises TypeError unless all are arrays of a dtype in `kinds`, such as `jnp.floating`."""
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    for name, array in arrays.items():
        error = None
        try:
            # None has the dtype float32 for JAX.
            dtype = None if array is None else jnp.result_type(array)
        except (TypeError, ValueError) as caught:  # a list or another object
            dtype, error = None, caught
        if dtype is None:
            kind = type(array).__name__
            raise TypeError(f"{name} must be an array of {requirement}, got {kind}") from error
        if not any(jnp.issubdtype(dtype, kind) for kind in kinds):
            raise TypeError(f"{name} must be {requirement}, got dtype {dtype}")


def check_numbers(**values: ArrayLike) -> None:
    """Raises TypeError unless all values are numbers, or arrays of numbers."""
    for name, value in values.items():
        if isinstance(value, str):  # "float32" has a dtype for JAX
            raise TypeError(f"{name} must be a number, got {value!r}")
    check_dtype((jnp.number, jnp.bool_), "numbers", values)


def check_that(fits: bool, message: str, *got: ArrayLike) -> None:
    """Raises ValueError with the message and the shapes of the arrays `got`, unless `fits`."""
    if not fits:
        raise ValueError(f"{message}, got {' and '.join(str(jnp.shape(array)) for array in got)}")


def check_shape(shape: tuple[int, ...], **arrays: ArrayLike) -> None:
    """Raises ValueError unless all arrays that are not None have the shape."""
    for name, array in arrays.items():
        if array is not None and (got := jnp.shape(array)) != shape:
            raise ValueError(f"{name} must have shape {shape}, got {got}")


def width_error(name: str, inputs: ArrayLike, width: int, source: str) -> ValueError:
    """Returns the error for inputs [..., D] whose width is not that of the weights."""
    got = jnp.shape(inputs)
    return ValueError(
        f"{name} must have width D = {width}, the rows of {source}, got width {got[-1]} in shape "
        f"{got}"
    )


def check_not_both(**arguments: object) -> None:
    """Raises ValueError if two arguments are both given, so that neither is None."""
    if all(value is not None for value in arguments.values()):
        raise ValueError(f"{' or '.join(arguments)} must be None, got both: give one of the two")


def check_rate(rate: float) -> None:
    """Raises ValueError unless a dropout rate is in [0, 1), and TypeError for no known number."""
    if not is_traced(rate):
        check_numbers(rate=rate)
        check_that(jnp.ndim(rate) == 0, "rate must be a single number", rate)
    check_dropout("rate", rate)


def check_same_shape(**arrays: ArrayLike) -> None:
    """Raises ValueError unless all arrays that are not None have the same shape."""
    shapes = {name: jnp.shape(array) for name, array in arrays.items() if array is not None}
    if len(set(shapes.values())) > 1:
        named_shapes = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"{' and '.join(shapes)} must have the same shape, got {named_shapes}")


def check_mask(mask: ArrayLike, shape: tuple[int, ...], name: str = "mask") -> None:
    """Raises unless the mask is None or a bool that broadcasts to `shape` without adding axes."""
    if mask is not None:
        check_dtype(jnp.bool_, "bool (True = real)", {name: mask})
        check_broadcasts(shape, **{name: mask})


def check_broadcasts(shape: tuple[int, ...], **arrays: ArrayLike) -> None:
    """Raises ValueError unless all arrays broadcast to `shape` without adding axes."""
    for name, array in arrays.items():
        got = jnp.shape(array)
        if len(got) != len(shape) or any(g not in (1, s) for g, s in zip(got, shape, strict=True)):
            requirement = f"{shape} (an axis may be 1 to broadcast)"
            raise ValueError(f"{name} must have shape {requirement}, got {got}")


def check_axis(axis: int, ndim: int, name: str = "axis") -> int:
    """Returns the axis counted from the left, in [0, ndim), for an axis in [-ndim, ndim)."""
    if not isinstance(axis, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {axis!r}")
    if not -ndim <= axis < ndim:
        raise ValueError(f"{name} must be in [{-ndim}, {ndim}), got {axis}")
    return axis % ndim


def check_positive(**values: ArrayLike) -> None:
    """Raises ValueError unless all numbers that are known while tracing are positive and finite."""
    for name, number in values.items():
        if not all(math.isfinite(entry) and entry > 0 for entry in _known_entries(name, number)):
            raise ValueError(f"{name} must be positive and finite, got {number}")


def check_finite(**values: ArrayLike) -> None:
    """Raises ValueError unless all numbers that are known while tracing are finite."""
    for name, number in values.items():
        if not all(map(math.isfinite, _known_entries(name, number))):
            raise ValueError(f"{name} must be finite, got {number}")


def _known_entries(name: str, number: ArrayLike) -> list[float]:
    if is_traced(number):
        return []
    if isinstance(number, float):
        return [number]
    check_numbers(**{name: number})
    # NumPy, because a call of JAX would be traced.
    entries: list[float] = np.ravel(np.asarray(number, np.float64)).tolist()
    return entries


def check_temperature(temperature: ArrayLike, shape: tuple[int, ...]) -> None:
    """Raises unless a temperature is positive and finite, and broadcasts to `shape`."""
    check_positive(temperature=temperature)
    got = jnp.shape(temperature)
    fits = len(got) <= len(shape) and all(
        g in (1, s) for g, s in zip(got[::-1], shape[::-1], strict=False)
    )
    check_that(fits, f"temperature must be a number, or broadcast to {shape}", temperature)


def check_values(
    name: str,
    values: ArrayLike,
    mask: ArrayLike,
    wrong: Callable[[np.ndarray], np.ndarray],
    requirement: str,
) -> None:
    """Raises ValueError, with what values must be, if a known one at a real position is wrong."""
    if not is_known(values, mask):
        return
    values = np.asarray(values)
    with np.errstate(invalid="ignore"):  # comparing a bfloat16 NaN warns
        bad = wrong(values) & (True if mask is None else np.asarray(mask))
    if bad.any():
        # Gates with an axis of size 1 broadcast against the mask.
        got = np.broadcast_to(values, bad.shape)[bad][0]
        requirement, _, hint = requirement.partition(";")
        raise ValueError(f"{name} must {requirement}, got {got}{hint and ';' + hint}")


def listed_as_array(values: ArrayLike) -> ArrayLike:
    """Converts a list or tuple to a NumPy array, which keeps 64-bit integers."""
    return np.asarray(values) if isinstance(values, list | tuple) else values


def promote(*arrays: ArrayLike) -> tuple[Array, ...]:
    """Returns the arrays in their common dtype, even if promotion of dtypes is "strict"."""
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.result_type(*arrays)
    return tuple(jnp.asarray(array, dtype) for array in arrays)


def wide_dtype(*arrays: ArrayLike) -> np.dtype:
    """Returns the dtype for softmax, noise and sums: float32, or float64 if an array has it."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.promote_types(jnp.result_type(*arrays), jnp.float32)
