"""Names that others import: they may grow in number, none may go, and no default may change.

A module that moves leaves its public path for one release.
"""

import dataclasses
import importlib
import inspect
import pkgutil
import sys
import types
from typing import Any

import pytest

import gatedjax
from tests.equality._golden import golden, not_smaller

MODULES = (
    "gatedjax.functional",
    "gatedjax.gates",
    "gatedjax.nn",
    "gatedjax.models",
    "gatedjax.data",
    "gatedjax.data.builders",
    "gatedjax.training",
    "gatedjax.analysis",
    "gatedjax.analysis.trees",
    "gatedjax.analysis.phrases",
    "gatedjax.export",
)
# names that a module uses itself and does not offer
INNER = ("LinesBuilder",)


def public(module: types.ModuleType) -> dict[str, Any]:
    """What a module offers: not the modules and foreign names that it uses itself."""
    found = {}
    for name in dir(module):
        value = getattr(module, name)
        home = sys.modules.get(str(getattr(value, "__module__", "")))
        foreign = home is not None and not home.__name__.startswith("gatedjax")
        # Literal[...] is of typing, which does not have it by our name
        borrowed = foreign and getattr(home, name, None) is value
        inner = name.startswith("_") or name in INNER or inspect.ismodule(value)
        if not (inner or borrowed):
            found[name] = value
    return found


def arguments(value: Any) -> list[str]:
    """The arguments of a function or class."""
    try:
        return list(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return []


def defaults(value: Any) -> str:
    """The arguments of a function or class whose default is a plain value or a configuration."""
    kinds = (bool, int, float, str, tuple)
    listed = inspect.signature(value).parameters.values() if arguments(value) else ()
    told = [
        x
        for x in listed
        if isinstance(x.default, kinds) or dataclasses.is_dataclass(type(x.default))
    ]
    return "; ".join(f"{one.name}={one.default!r}" for one in told)


def members(value: type) -> list[str]:
    """Methods and attributes that a class has of its own or of a base of ours."""
    ours = [one for one in value.__mro__ if one.__module__.startswith("gatedjax")]
    return sorted({name for one in ours for name in vars(one) if not name.startswith("_")})


def paths() -> list[str]:
    """Dotted paths of the modules that have no underscore."""
    walked = pkgutil.walk_packages(gatedjax.__path__, "gatedjax.")
    names = [module.name for module in walked]
    return sorted(name for name in names if "._" not in name and "__main__" not in name)


def found() -> dict[str, Any]:
    """Public paths, and the names, arguments, defaults and members of what the modules offer."""
    told: dict[str, str] = {}
    result: dict[str, Any] = {"modules": paths(), "defaults": told}
    for path in MODULES:
        offered = public(importlib.import_module(path))
        result[path] = list(offered)
        for name, value in offered.items():
            if callable(value):
                result[f"{path}.{name}(...)"] = arguments(value)
                if text := defaults(value):
                    told[f"{path}.{name}"] = text
            # what a builder is made of is its own affair: its name and version are formats
            if inspect.isclass(value) and not path.endswith("builders"):
                result[f"{path}.{name}, members"] = members(value)
    return {name: listed for name, listed in result.items() if listed}


@pytest.mark.slow
def test_no_public_module_name_member_or_argument_has_gone():
    now, before = found(), golden("names")
    not_smaller(now, before)
    split = [{x: text.split("; ") for x, text in one["defaults"].items()} for one in (now, before)]
    not_smaller(*split)


def test_public_modules_import_and_have_what_they_had():
    for name in golden("names")["modules"]:
        importlib.import_module(name)
    assert set(MODULES) < set(golden("names"))
