"""Fields of modules and configurations: checks, limits in their types, and changes by name."""

import dataclasses
import functools
import math
import numbers
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from gatedjax._utils.choices import check_choice, check_choices, choices_of
from gatedjax._utils.json import plain
from gatedjax._utils.limits import MOST_LAYERS, MOST_LENGTH, MOST_WIDTH, MOST_WORDS, check_most
from gatedjax._utils.tracing import is_traced

T = TypeVar("T")

_MOST = {
    "num_layers": MOST_LAYERS,
    **dict.fromkeys(("cap", "block", "max_offset"), MOST_LENGTH),
    **dict.fromkeys(("vocab_size", "target_vocab_size", "num_embeddings"), MOST_WORDS),
}


def check_range(name: str, value: float, least: float, most: int = MOST_WIDTH) -> None:
    """Raises ValueError unless a number is at least `least` and at most `most`."""
    # The comparison in this form also refuses NaN.
    if not value >= least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    check_most(name, value, most)


def check_size(**sizes: Any) -> None:
    """Raises unless each argument is an integer of at least 1; the keyword is its name."""
    for name, size in sizes.items():
        check_type(name, size, int)
        check_range(name, size, 1)


def check_dropout(name: str, rate: Any) -> None:
    """Raises ValueError unless a number is in [0, 1), and TypeError if it is being traced."""
    if is_traced(rate):
        raise TypeError(
            f"{name} must be a number that is known while tracing, got {rate}: pass it as a static "
            "argument of jax.jit"
        )
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"{name} must be in [0, 1), got {rate}")


class Limit(NamedTuple):
    """A limit of the value in a field; `help` shows its text with the type of the field."""

    text: str
    check: Callable[[str, Any], None]  # (name of the field, value); raises ValueError

    def __repr__(self) -> str:
        return self.text


def at_least(least: float, most: int = MOST_WIDTH) -> Limit:
    """Returns the limit of a number from `least` to `most`, both included."""
    return Limit(f"at least {least}", functools.partial(check_range, least=least, most=most))


def at_most(most: int) -> Limit:
    """Returns the limit of a number up to `most`, for a field with another limit below."""
    return Limit(f"at most {most:,}", functools.partial(check_most, most=most))


def _where(text: str, holds: Callable[[Any], bool]) -> Limit:
    def check(name: str, value: Any) -> None:
        # A number that JAX is tracing is not known.
        if not is_traced(value) and not holds(value):
            raise ValueError(f"{name} must be {text}, got {value}")

    return Limit(text, check)


# Comparisons in these forms also refuse NaN.
FINITE = _where("finite", math.isfinite)
ABOVE_0 = _where("positive", lambda value: value > 0)
POSITIVE = _where("positive and finite", lambda value: 0 < value < math.inf)
NOT_NEGATIVE = _where("at least 0 and finite", lambda value: 0 <= value < math.inf)
RATE = Limit("in [0, 1)", check_dropout)
SHARE = _where("in (0, 1)", lambda value: 0 < value < 1)
SHARE_OR_ALL = _where("in (0, 1]", lambda value: 0 < value <= 1)


def check_options(config: object) -> None:
    """Converts the numbers of a configuration to Python, and raises unless all its options have
    the type, the choices and the limits that its fields declare.
    """
    make_plain(config)
    check_choices(config)
    check_limits(config)


def check_limits(config: object, place: str = "") -> None:
    """Raises ValueError unless all fields that are not None have values within their limits;
    messages have `place` before the name of the field.
    """
    kind: Any = type(config)  # because mypy takes a metaclass for unhashable
    for name, limit in limits_of(kind):
        if (value := getattr(config, name)) is not None:
            limit.check(place + name, value)


@functools.cache
def limits_of(kind: type) -> tuple[tuple[str, Limit], ...]:
    """Returns (name of the field, limit) for each limit that the fields of a class declare."""
    hints = get_type_hints(kind, include_extras=True).items()
    declared = [(name, get_args(hint)) for name, hint in hints if get_origin(hint) is Annotated]
    return tuple((name, x) for name, parts in declared for x in parts if isinstance(x, Limit))


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


def check_fields(module: object, **least: int) -> None:
    """Raises unless the fields of a module have values that it can use: an int of at least 1 (or
    `least`), a dropout in [0, 1), another float finite, a literal of its type, `config` of its
    class. Other types are not checked, nor are the fields that a subclass of a user adds.
    """
    kind = next(c for c in type(module).__mro__ if c.__module__.startswith("gatedjax."))
    config_class, config = _config_class(kind), getattr(module, "config", None)
    if config_class is not None and not isinstance(config, config_class):
        raise TypeError(f"config must be an instance of {config_class.__name__}, got {config!r}")
    # Fields are compared here, and only a wrong one enters the function with its message: a forward
    # pass checks dozens of fields.
    for name, choices in choices_of(kind).items():
        if getattr(module, name) not in choices:
            check_choice(choices, **{name: getattr(module, name)})
    for name, (field_type, is_optional) in _number_fields(kind).items():
        value: Any = getattr(module, name)
        if (is_traced(value) and not name.endswith("dropout")) or (value is None and is_optional):
            continue
        if type(value) is not field_type:
            check_type(name, value, field_type)
        if field_type is int or name in least:
            low, most = least.get(name, 1), _MOST.get(name, MOST_WIDTH)
            if not low <= value <= most:
                check_range(name, value, low, most)
        elif name.endswith("dropout"):
            if is_traced(value) or not 0.0 <= value < 1.0:
                check_dropout(name, value)
        elif field_type is float and not math.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value}")


@functools.cache
def _config_class(kind: Any) -> type | None:
    hint = get_type_hints(kind).get("config")
    return hint if isinstance(hint, type) else None


@functools.cache
def _number_fields(kind: Any) -> dict[str, tuple[type, bool]]:
    return {
        name: (field_type, is_optional)
        for name, field_type, is_optional in field_types(kind)
        if field_type in (int, float, bool)
    }


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
