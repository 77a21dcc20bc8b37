"""Limits of options, declared in the types of their fields and checked by `check_options`."""

import functools
import math
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from gatedjax._utils.choices import check_choices
from gatedjax._utils.field_checks import check_dropout, check_range
from gatedjax._utils.limits import MOST_WIDTH, check_most
from gatedjax._utils.numbers import make_plain
from gatedjax._utils.tracing import is_traced


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
