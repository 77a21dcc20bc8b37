"""Whether a configuration has only values that its types offer; the command line asks by itself."""

import functools
import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


@functools.cache
def choices_of(kind: type) -> dict[str, tuple[Any, ...]]:
    """The values of every field of a class that is a `Literal`, or one of those and None."""
    found = {}
    for name, hint in get_type_hints(kind).items():
        parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        if any(get_origin(part) is Literal for part in parts):
            inner = [get_args(part) if part is not types.NoneType else (None,) for part in parts]
            found[name] = tuple(value for values in inner for value in values)
    if "dtype" in found:  # what checks compute in, under jax_enable_x64; no command offers it
        found["dtype"] = tuple(dict.fromkeys((*found["dtype"], "float64")))
    return found


def check_choices(config: object) -> None:
    """Raises ValueError unless every field that is a `Literal` has one of its values.

    A misspelt choice would be another one: most are told apart by comparing with some of them.
    """
    kind: Any = type(config)  # mypy takes a metaclass for unhashable
    for name, choices in choices_of(kind).items():
        value = getattr(config, name)
        if value not in choices:
            raise ValueError(f"{name} must be one of {choices}, got {value!r}")
