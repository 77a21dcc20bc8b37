"""Numbers of NumPy and JAX as Python's: what options, JSON and hashes are made of."""

import dataclasses
import functools
from typing import Any, get_args, get_type_hints

import jax
import numpy as np


def plain(value: Any) -> Any:
    """Returns a number or text of NumPy or JAX as Python's; another value is returned as it is.

    Arrays of one axis become tuples of such numbers, and tuples are looked into. So the values that
    a search draws with `np.arange` or `np.logspace` are options like those that are typed.
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(map(plain, value))
    is_array = isinstance(value, np.ndarray | jax.Array) and not isinstance(value, jax.core.Tracer)
    if is_array and value.ndim < 2:
        return tuple(value.tolist()) if value.ndim else value.item()
    return value


def make_plain(config: object) -> None:
    """Makes the numbers in the fields of a dataclass, which may be frozen, Python's.

    Args:
      config: changed in place.

    Raises:
      TypeError: if a field for an integer has a number that is none; 1e3 is one.
    """
    kind: Any = type(config)  # mypy takes a metaclass for unhashable
    for name, is_whole in _fields(kind):
        given = getattr(config, name)
        value = plain(given)
        if is_whole and isinstance(value, float):
            if not value.is_integer():
                raise TypeError(f"{name} must be an integer, got {value}")
            value = int(value)
        if value is not given:
            object.__setattr__(config, name, value)


@functools.cache
def _fields(kind: Any) -> tuple[tuple[str, bool], ...]:
    """The fields of a dataclass, each with whether its type is int, or int or None."""
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]
    return tuple((n, {*(get_args(hints[n]) or (hints[n],))} - {type(None)} == {int}) for n in names)


def json_number(value: object) -> Any:
    """Returns a number of NumPy as JSON can hold it: the `default` of `json.dumps`.

    Raises:
      TypeError: for another value, as `json.dumps` raises it.
    """
    number = plain(value)
    if number is not value:
        return number
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
