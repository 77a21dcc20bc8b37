"""Conversion of values and configurations to standard JSON."""

import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import Any

from gatedjax._utils.numbers import plain


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
