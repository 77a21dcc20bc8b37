"""Conversion of values and configurations to Python and to standard JSON, and back."""

import dataclasses
import functools
import json
import sys
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from gatedjax._utils.tracing import is_traced

T = TypeVar("T")


def to_json(value: Any, **layout: Any) -> str:
    """Returns a value as JSON; NaN and infinities, which JSON does not allow, become null."""
    try:
        # Most values are finite, so the slow copy is made only if this fails.
        return json.dumps(value, allow_nan=False, default=_convert, **layout)
    except ValueError:
        text = json.dumps(value, default=_convert)
        finite = json.loads(text, parse_constant=lambda _: None)
        return json.dumps(finite, allow_nan=False, **layout)


def to_json_values(value: Any, name: str = "the value") -> Any:
    """Converts dataclasses, mappings, tuples and NumPy numbers to the types of JSON; NaN stays."""
    return json.loads(json.dumps(value, default=functools.partial(_convert, name=name)))


def _convert(value: Any, name: str = "the value") -> Any:
    """Converts a value that `json` does not know to a dict or a number."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    # `plain` returns the value itself if it is no number of NumPy or JAX.
    number = plain(value)
    if number is value:
        raise TypeError(f"{name} must be a value that JSON can store, got {type(value).__name__}")
    return number


def from_json(kind: type[T], values: Mapping[str, Any]) -> T:
    """Returns the dataclass `kind` of a dict from JSON, which has lists in place of tuples."""
    return kind(**{n: tuple(v) if isinstance(v, list) else v for n, v in values.items()})


def plain(value: Any) -> Any:
    """Converts numbers, texts and arrays with one axis of NumPy and JAX to Python, for options."""
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
    return jax is not None and isinstance(value, jax.Array) and not is_traced(value)
