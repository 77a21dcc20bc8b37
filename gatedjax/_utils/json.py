"""JSON that every reader accepts."""

import json
import math
import numbers
from typing import Any


def to_json(value: Any, **layout: Any) -> str:
    """Returns a value as JSON; NaN and infinities become null.

    Python would write them as NaN and Infinity, which are no JSON: browsers, jq and most other
    readers refuse the whole text.

    Args:
      value: what `json.dumps` takes.
      **layout: further arguments of `json.dumps`, as `indent`.
    """
    try:
        return json.dumps(value, allow_nan=False, **layout)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, **layout)


def _finite(value: Any) -> Any:
    """Returns a copy with None for every number that is not finite."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, numbers.Real) and not math.isfinite(value) else value
