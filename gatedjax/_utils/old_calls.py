"""Calls in the form of the release before, with a DeprecationWarning that names the new form."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from gatedjax._utils.deprecation import warn_deprecated

Function = TypeVar("Function", bound=Callable[..., Any])
Positional = tuple[Any, ...]


def accepts_positional(
    name: str,
    index: int,
    is_old: Callable[[Positional, Mapping[str, Any]], bool] = lambda args, options: True,
) -> Callable[[Function], Function]:
    """Returns a decorator: the function accepts a keyword-only argument in its former position."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if len(args) > index and name not in options and is_old(args, options):
                _warn(function, f"{name} as a positional argument")
                options[name] = args[index]
                args = (*args[:index], *args[index + 1 :])
            return function(*args, **options)

        return call  # type: ignore[return-value]

    return decorate


def accepts_old_name(old: str, new: str) -> Callable[[Function], Function]:
    """Returns a decorator that makes a function accept a keyword argument under its former name."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if old in options:
                if new in options:
                    raise TypeError(
                        f"{new} of {function.__name__}() must be given once, got it also as {old}, "
                        f"its former name: leave out {old}"
                    )
                _warn(function, f"the argument {new} under its former name {old}")
                options[new] = options.pop(old)
            return function(*args, **options)

        return call  # type: ignore[return-value]

    return decorate


def is_mask(value: object) -> bool:
    """Returns True if an argument is None or has the dtype bool, like a mask."""
    if value is None:
        return True
    dtype = value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype
    return bool(dtype == np.bool_)


def _warn(function: Callable[..., Any], old_form: str) -> None:
    # Annotations of shapes would make the signature in the message several lines long.
    signature = inspect.signature(function)
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    plain = signature.replace(parameters=parameters, return_annotation=signature.empty)
    name = function.__name__
    warn_deprecated(f"{name} with {old_form}", f"the call is now {name}{plain}", stacklevel=3)
