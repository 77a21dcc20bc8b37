"""Configurations inside configurations: changes by dotted name, and reading from JSON."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def with_changes(
    config: T, changes: Mapping[str, Any], unknown: Callable[[type, str, str], Exception]
) -> T:
    """Returns a copy of a dataclass with other values, by dotted name such as "gates.density". A
    dict for a field that is a dataclass changes only the options in it. A name without a field
    raises `unknown(class, rest of the name, its first part)`.
    """
    # The new values are set together, because the checks of a dataclass compare them.
    parts: dict[str, dict[str, Any]] = {}
    values: dict[str, Any] = {}
    copy: Any = config
    names = {field.name for field in dataclasses.fields(copy)}
    for path, value in changes.items():
        name, _, inner_path = path.partition(".")
        if name not in names:
            raise unknown(type(config), path, name)
        present = getattr(config, name)
        if inner_path:
            parts.setdefault(name, {})[inner_path] = value
        elif dataclasses.is_dataclass(present) and isinstance(value, Mapping):
            parts.setdefault(name, {}).update(value)
        elif isinstance(present, tuple) and isinstance(value, list):
            values[name] = tuple(value)
        else:
            values[name] = value
    for name, inner in parts.items():
        values[name] = with_changes(values.get(name, getattr(config, name)), inner, unknown)
    return dataclasses.replace(copy, **values) if values else config


def from_json(kind: type[T], values: Mapping[str, Any]) -> T:
    """Returns the dataclass `kind` of a dict from JSON, which has lists in place of tuples."""
    return kind(**{n: tuple(v) if isinstance(v, list) else v for n, v in values.items()})
