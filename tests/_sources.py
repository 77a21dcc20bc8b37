"""The sources of the packages, which a process parses once."""

import ast
import functools
from pathlib import Path

from tests.conftest import ROOT

PACKAGES = ("gatedjax", "experiments")


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """The syntax tree of every module by its path."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def trees_of_the_library() -> dict[Path, ast.Module]:
    return {path: tree for path, tree in trees().items() if path.is_relative_to(ROOT / "gatedjax")}


def dotted(path: Path) -> str:
    """The name by which a module is imported."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
