"""Checks of arguments while tracing: of shapes and dtypes, and of values outside `jit`."""

import math
import numbers
from collections.abc import Callable
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gatedjax.functional._tracing import is_known, is_traced
from gatedjax.functional._types import ArrayLike


def check_floating(**arrays: ArrayLike) -> None:
    """Raises TypeError unless all arrays have a floating dtype."""
    check_dtype(jnp.floating, "floating point", arrays)


def check_integers(**arrays: ArrayLike) -> None:
    """Raises TypeError unless all arrays have an integer dtype, and ValueError for a lost value."""
    check_dtype(jnp.integer, "integers", arrays)
    for name, array in arrays.items():
        dtype = jnp.result_type(array)
        # Only a dtype that JAX narrows can lose values: 2^32 + 1 becomes 1. Python integers have no
        # dtype and count as 64 bits.
        if getattr(array, "dtype", np.int64) != dtype and is_known(array):
            values, limits = np.asarray(array), jnp.iinfo(dtype)
            bad = values[(values < limits.min) | (values > limits.max)]
            if bad.size:
                raise ValueError(f"{name} must fit into {dtype}, got {bad[0]}")


def dtype_of(name: str, array: ArrayLike, wanted_kind: str) -> np.dtype:
    """Returns the dtype of an array in JAX; raises TypeError for a list or another object."""
    if array is None:  # which has the dtype float32 for JAX
        raise TypeError(f"{name} must be an array of {wanted_kind}, got NoneType")
    try:
        return jnp.result_type(array)
    except (TypeError, ValueError) as error:
        kind = type(array).__name__
        raise TypeError(f"{name} must be an array of {wanted_kind}, got {kind}") from error


def check_dtype(kind: type, kind_name: str, arrays: dict[str, ArrayLike]) -> None:
    """Raises TypeError unless all arrays have a dtype of `kind`, such as `jnp.floating`."""
    for name, array in arrays.items():
        dtype = dtype_of(name, array, kind_name)
        if not jnp.issubdtype(dtype, kind):
            raise TypeError(f"{name} must be {kind_name}, got dtype {dtype}")


def check_numbers(**values: ArrayLike) -> None:
    """Raises TypeError unless all values are numbers, or arrays of numbers."""
    for name, value in values.items():
        if isinstance(value, str) or not _is_numeric(name, value):
            raise TypeError(f"{name} must be a number, got {value!r}")


def _is_numeric(name: str, value: ArrayLike) -> bool:
    dtype = dtype_of(name, value, "numbers")
    return jnp.issubdtype(dtype, jnp.number) or dtype == jnp.bool_


def check_that(fits: bool, message: str, *got: ArrayLike) -> None:
    """Raises ValueError with the message and the shapes of the arrays `got`, unless `fits`."""
    if not fits:
        raise ValueError(f"{message}, got {' and '.join(str(jnp.shape(array)) for array in got)}")


def check_shape(shape: tuple[int, ...], **arrays: ArrayLike) -> None:
    """Raises ValueError unless all arrays that are not None have the shape."""
    for name, array in arrays.items():
        fits = array is None or jnp.shape(array) == shape
        check_that(fits, f"{name} must have shape {shape}", array)


def check_choice(choices: Any, **values: object) -> None:
    """Raises ValueError unless all values are among `choices`."""
    allowed = choices if isinstance(choices, tuple) else get_args(choices)
    for name, value in values.items():
        if value not in allowed:
            listed = ", ".join(map(repr, allowed))
            raise ValueError(f"{name} must be one of {listed}, got {value!r}")


def check_not_both(**arguments: object) -> None:
    """Raises ValueError if two arguments are both given, so that neither is None."""
    if all(value is not None for value in arguments.values()):
        raise ValueError(f"{' or '.join(arguments)} must be None, got both: give one of the two")


def check_rate(rate: float, name: str = "rate") -> None:
    """Raises ValueError unless a dropout rate is in [0, 1), and TypeError for no known number."""
    if is_traced(rate):
        raise TypeError(
            f"{name} must be a number that is known while tracing, got {rate}: pass it as a static "
            "argument of jax.jit"
        )
    check_numbers(**{name: rate})
    check_that(jnp.ndim(rate) == 0, f"{name} must be a single number", rate)
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"{name} must be in [0, 1), got {rate}")


def check_same_shape(**arrays: ArrayLike) -> None:
    """Raises ValueError unless all arrays that are not None have the same shape."""
    shapes = {name: jnp.shape(array) for name, array in arrays.items() if array is not None}
    if len(set(shapes.values())) > 1:
        named_shapes = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"{' and '.join(shapes)} must have the same shape, got {named_shapes}")


def check_mask(mask: ArrayLike, shape: tuple[int, ...], name: str = "mask") -> None:
    """Raises unless the mask is None or a bool that broadcasts to `shape` without adding axes."""
    if mask is None:
        return
    dtype = dtype_of(name, mask, "bool")
    if dtype != jnp.bool_:
        raise TypeError(f"{name} must be bool (True = real), got dtype {dtype}")
    check_broadcasts(shape, **{name: mask})


def check_broadcasts(shape: tuple[int, ...], **arrays: ArrayLike) -> None:
    """Raises ValueError unless all arrays broadcast to `shape` without adding axes."""
    for name, array in arrays.items():
        got = jnp.shape(array)
        fits = len(got) == len(shape) and all(g in (1, s) for g, s in zip(got, shape, strict=True))
        check_that(fits, f"{name} must have shape {shape} (an axis may be 1 to broadcast)", array)


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


def check_share(values: ArrayLike, mask: ArrayLike = None, *, name: str) -> None:
    """Raises ValueError if a known value at a real position is outside [0, 1]."""
    bad = _known_and_real(values, mask, lambda x: (x < 0) | (x > 1))
    if bad.size:
        raise ValueError(f"{name} must be in [0, 1], got {bad[0]}")


def check_not_negative(
    values: ArrayLike, mask: ArrayLike = None, *, name: str, hint: str = ""
) -> None:
    """Raises ValueError if a known value at a real position is below 0."""
    bad = _known_and_real(values, mask, lambda x: x < 0)
    if bad.size:
        raise ValueError(f"{name} must not be negative, got {bad.min()}{hint}")


def check_not_positive(
    values: ArrayLike, mask: ArrayLike = None, *, name: str, hint: str = ""
) -> None:
    """Raises ValueError if a known value at a real position is above 0."""
    bad = _known_and_real(values, mask, lambda x: x > 0)
    if bad.size:
        raise ValueError(f"{name} must not be positive, got {bad.max()}{hint}")


def check_lengths(lengths: ArrayLike, size: int) -> None:
    """Raises unless lengths (any shape) are integers, in [0, size] if they are known."""
    check_integers(lengths=lengths)
    most = size if isinstance(size, int) else math.inf  # jax.export may leave the size open
    bad = _known_and_real(lengths, None, lambda x: (x < 0) | (x > most))
    if bad.size:
        raise ValueError(f"lengths must be in [0, {size}], got {bad[0]}")


def check_hard(values: ArrayLike, mask: ArrayLike = None, *, name: str, hint: str = "") -> None:
    """Raises ValueError if a known value at a real position is not 0 or 1."""
    bad = _known_and_real(values, mask, lambda x: (x != 0) & (x != 1))
    if bad.size:
        raise ValueError(f"{name} must be 0 or 1, got {bad[0]}{hint}")


def _known_and_real(
    values: ArrayLike, mask: ArrayLike, which: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Returns a vector of the values at real positions that `which` selects; empty if traced."""
    if not is_known(values, mask):
        return np.zeros(0)
    values = np.asarray(values)
    with np.errstate(invalid="ignore"):  # comparing a bfloat16 NaN warns
        selected = which(values) & (True if mask is None else np.asarray(mask))
    # Gates with an axis of size 1 broadcast against the mask.
    return np.broadcast_to(values, selected.shape)[selected]


def listed_as_array(values: ArrayLike) -> ArrayLike:
    """Converts a list or tuple to a NumPy array, which keeps 64-bit integers."""
    return np.asarray(values) if isinstance(values, list | tuple) else values


def wide_integers(integers: ArrayLike) -> Array:
    """Casts integers of less than 32 bits to int32, because sizes need not fit in int8."""
    integers = jnp.asarray(integers)
    return integers.astype(jnp.int32) if integers.dtype.itemsize < 4 else integers


def promote(*arrays: ArrayLike) -> tuple[Array, ...]:
    """Returns the arrays in their common dtype, even if promotion of dtypes is "strict"."""
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.result_type(*arrays)
    return tuple(jnp.asarray(array, dtype) for array in arrays)


def wide_dtype(*arrays: ArrayLike) -> np.dtype:
    """Returns the dtype for softmax, noise and sums: float32, or float64 if an array has it."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.promote_types(jnp.result_type(*arrays), jnp.float32)
