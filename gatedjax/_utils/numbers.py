"""Conversion of numbers of NumPy and JAX to Python numbers, for options, JSON and hashes."""

import dataclasses
import functools
import sys
from typing import Any, get_args, get_type_hints

import numpy as np


def plain(value: Any) -> Any:
    """Converts a number or text of NumPy or JAX to Python; returns other values unchanged.

    An array with one axis becomes a tuple of Python numbers, and the values in a tuple are
    converted. Options may therefore come from `np.arange` or `np.logspace`.
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(map(plain, value))
    if _is_array(value) and value.ndim < 2:
        return tuple(value.tolist()) if value.ndim else value.item()
    return value


def _is_array(value: Any) -> bool:
    """Returns True for an array of NumPy, or of JAX if its numbers are known."""
    if isinstance(value, np.ndarray):
        return True
    # There is an array of JAX only if JAX is imported, which takes seconds.
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(value, jax.Array):
        return False
    from gatedjax.functional._tracing import is_traced

    return not is_traced(value)


def make_plain(config: object) -> None:
    """Converts the numbers in the fields of a dataclass from NumPy or JAX to Python, in place.

    Args:
      config: the dataclass, which may be frozen.

    Raises:
      TypeError: if a field of type int has a number that is not whole; 1e3 is whole.
    """
    kind: Any = type(config)  # because mypy takes a metaclass for unhashable
    for name, is_whole in _fields(kind):
        original = getattr(config, name)
        value = plain(original)
        if is_whole and isinstance(value, float):
            if not value.is_integer():
                raise TypeError(f"{name} must be an integer, got {value!r}")
            value = int(value)
        if value is not original:
            object.__setattr__(config, name, value)


@functools.cache
def _fields(kind: Any) -> tuple[tuple[str, bool], ...]:
    """Returns a tuple of (name, is_whole) for each field of the dataclass `kind`.

    `is_whole` is True if the type of the field is int or `int | None`.
    """
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]
    return tuple((n, {*(get_args(hints[n]) or (hints[n],))} - {type(None)} == {int}) for n in names)
