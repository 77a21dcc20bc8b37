"""Names of a package that are imported on first use, so that the package itself loads quickly."""

import ast
import importlib
import sys
from collections.abc import Callable
from typing import Any


def attach(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Returns `__getattr__`, `__dir__` and `__all__` of a package that imports names, as `x as x`,
    only for a type checker: under `if TYPE_CHECKING`.
    """
    # The statements are read, because a second list of the names would have to agree with them.
    loader: Any = sys.modules[package].__loader__
    places = {
        alias.name: str(node.module)
        for node in ast.walk(ast.parse(loader.get_source(package)))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == alias.asname
    }

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if places[name] == package:  # the name is a package below it
            return importlib.import_module(f"{package}.{name}")
        return getattr(importlib.import_module(places[name]), name)

    names = sorted(places)
    return get, lambda: names, names
