"""Names that others import: they may grow in number, none may go.

A module that moves leaves its public path for one release.
"""

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


def members(value: type) -> list[str]:
    """Methods and attributes that a class has of its own or of a base of ours."""
    ours = [one for one in value.__mro__ if one.__module__.startswith("gatedjax")]
    return sorted({name for one in ours for name in vars(one) if not name.startswith("_")})


def paths() -> list[str]:
    """Dotted paths of the modules that have no underscore."""
    walked = pkgutil.walk_packages(gatedjax.__path__, "gatedjax.")
    names = [module.name for module in walked]
    return sorted(name for name in names if "._" not in name and "__main__" not in name)


def found() -> dict[str, list[str]]:
    """Public paths, and the names, arguments and members of what the modules offer."""
    result = {"modules": paths()}
    for path in MODULES:
        offered = public(importlib.import_module(path))
        result[path] = list(offered)
        for name, value in offered.items():
            if callable(value):
                result[f"{path}.{name}(...)"] = arguments(value)
            # what a builder is made of is its own affair: its name and version are formats
            if inspect.isclass(value) and not path.endswith("builders"):
                result[f"{path}.{name}, members"] = members(value)
    return {name: listed for name, listed in result.items() if listed}


@pytest.mark.slow
def test_no_public_module_name_member_or_argument_has_gone():
    not_smaller(found(), golden("names"))


def test_public_modules_import_and_have_what_they_had():
    for name in golden("names")["modules"]:
        importlib.import_module(name)
    assert set(MODULES) < set(golden("names"))
