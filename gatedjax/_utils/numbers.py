"""Conversion of numbers of NumPy and JAX to Python numbers, for options, JSON and hashes."""

import dataclasses
import functools
import numbers
import sys
import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from gatedjax._utils.nested import with_changes
from gatedjax._utils.tracing import is_traced


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


def make_plain(config: object) -> None:
    """Converts the numbers in the fields of a dataclass to Python, in place; 1e3 is an integer. A
    field that is a dataclass itself takes a dict of its options.
    """
    config_class: Any = type(config)  # because mypy takes a metaclass for unhashable
    for name, kind, is_optional in field_types(config_class):
        original = getattr(config, name)
        value = plain(original)
        if kind is int and isinstance(value, float) and value.is_integer():
            value = int(value)
        if value is not None or not is_optional:
            check_type(name, value, kind)
        if value is not original:
            object.__setattr__(config, name, value)
    _make_groups(config)


def _make_groups(config: Any) -> None:
    """Replaces dicts of options by the dataclass that the field is a group of, in place."""
    for field in dataclasses.fields(config):
        default, value = getattr(type(config), field.name, None), getattr(config, field.name)
        if not dataclasses.is_dataclass(default) or isinstance(value, type(default)):
            continue
        group = type(default).__name__
        if not isinstance(value, Mapping):
            raise TypeError(
                f"{field.name} must be a {group} or a dict of its options, got "
                f"{type(value).__name__}"
            )
        changed = with_changes(default, value, _no_option)
        object.__setattr__(config, field.name, changed)


def _no_option(kind: type, name: str, _: str) -> Exception:
    return TypeError(
        f"a dict of options of {kind.__name__} must have names of its fields, got {name!r}"
    )


def check_type(name: str, value: Any, kind: type | None) -> None:
    """Raises TypeError unless a value has the type `kind`; `name` is the name of the field."""
    is_bool = isinstance(value, bool | np.bool_)
    fits, expected = True, ""
    if kind is int:
        fits, expected = isinstance(value, numbers.Integral) and not is_bool, "an integer"
    elif kind is float:
        is_number = isinstance(value, numbers.Real) or getattr(value, "shape", None) == ()
        fits, expected = is_number and not is_bool, "a number"
    elif kind is bool:
        is_bit = isinstance(value, numbers.Integral) and value in (0, 1)
        fits, expected = is_bool or is_bit, "True or False"
    elif kind is tuple:
        fits, expected = isinstance(value, tuple | list), "a tuple"
    if not fits:
        raise TypeError(f"{name} must be {expected}, got {value!r}")


@functools.cache
def field_types(kind: Any) -> tuple[tuple[str, type | None, bool], ...]:
    """Returns (name, type, is_optional) of each field; other types than numbers are None."""
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]
    return tuple((name, *_simplify(hints[name])) for name in names)


def _simplify(hint: Any) -> tuple[type | None, bool]:
    is_union = get_origin(hint) in (Union, types.UnionType)
    parts = set(get_args(hint)) if is_union else {hint}
    is_optional = types.NoneType in parts
    kinds = {get_origin(part) or part for part in parts - {types.NoneType}}
    kind = kinds.pop() if len(kinds) == 1 else None
    return (kind if kind in (int, float, bool, tuple) else None), is_optional
