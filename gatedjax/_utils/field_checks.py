"""Checks of the fields of modules and configurations. The messages name the field."""

import functools
import math
from typing import Any, get_type_hints

from gatedjax._utils.choices import check_choice, choices_of
from gatedjax._utils.limits import MOST_LAYERS, MOST_LENGTH, MOST_WIDTH, MOST_WORDS, check_most
from gatedjax._utils.numbers import check_type, field_types
from gatedjax._utils.tracing import is_traced

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


def check_fields(module: object, **least: int) -> None:
    """Raises unless the fields of a module have values that it can use: an int of at least 1 (or
    `least`), a dropout in [0, 1), another float finite, a literal of its type, `config` of its
    class. Other types are not checked, nor are the fields that a subclass of a user adds.
    """
    kind = next(c for c in type(module).__mro__ if c.__module__.startswith("gatedjax."))
    config_class, config = _config_class(kind), getattr(module, "config", None)
    if config_class is not None and not isinstance(config, config_class):
        raise TypeError(f"config must be an instance of {config_class.__name__}, got {config!r}")
    for name, choices in choices_of(kind).items():
        check_choice(choices, **{name: getattr(module, name)})
    for name, (field_type, is_optional) in _number_fields(kind).items():
        value: Any = getattr(module, name)
        if (is_traced(value) and not name.endswith("dropout")) or (value is None and is_optional):
            continue
        check_type(name, value, field_type)
        if field_type is int or name in least:
            check_range(name, value, least.get(name, 1), _MOST.get(name, MOST_WIDTH))
        elif name.endswith("dropout"):
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
