"""Allowed values of options, and the nearest allowed name to a misspelt one."""

import difflib
import functools
import types
from collections.abc import Iterable
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


@functools.cache
def choices_of(kind: type) -> dict[str, tuple[Any, ...]]:
    """Returns the allowed values of each field with a `Literal` type, by the name of the field."""
    choices = {}
    for name, hint in get_type_hints(kind).items():
        parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        if {get_origin(part) or part for part in parts} <= {Literal, types.NoneType}:
            inner = [get_args(part) if part is not types.NoneType else (None,) for part in parts]
            choices[name] = tuple(value for values in inner for value in values)
    if "dtype" in choices:  # tests compute in float64; no command offers it
        choices["dtype"] = tuple(dict.fromkeys((*choices["dtype"], "float64")))
    return choices


def check_choice(choices: Any, **values: object) -> None:
    """Raises ValueError unless all values are among `choices`, a tuple or a `Literal`."""
    allowed = choices if isinstance(choices, tuple) else get_args(choices)
    for name, value in values.items():
        if value not in allowed:
            listed = ", ".join(map(repr, allowed))
            raise ValueError(f"{name} must be one of {listed}, got {value!r}")


def check_choices(config: object) -> None:
    """Raises ValueError unless each field with a `Literal` type has an allowed value."""
    kind: Any = type(config)  # because mypy takes a metaclass for unhashable
    for name, choices in choices_of(kind).items():
        check_choice(choices, **{name: getattr(config, name)})


def suggestion(name: object, names: Iterable[str], cutoff: float = 0.6) -> str:
    """Returns " Did you mean ...?" with the nearest of `names` to `name`, or "" if none is near."""
    matches = difflib.get_close_matches(str(name), list(names), n=1, cutoff=cutoff)
    return f" Did you mean {matches[0]!r}?" if matches else ""
