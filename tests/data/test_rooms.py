"""The rooms of gatedjax.data: imports point one way, deferred ones too, and form no circle."""

import ast
import graphlib
import re
from pathlib import Path

import pytest

import gatedjax.data
from gatedjax.data.sets import _all

HOME = Path(gatedjax.data.__file__).parent
ORDER = ("files", "text", "sets", "tfds", "batches", "account", "_load", "builders", "__init__")
"""A room may use those before it."""
MODULES = {
    ".".join(path.relative_to(HOME).with_suffix("").parts): path for path in HOME.rglob("*.py")
}


def imports(module: str) -> set[str]:
    """The modules of gatedjax.data that a module imports anywhere, in functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}: a relative import"
            names.add(node.module or "")
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    inside = {name.removeprefix("gatedjax.data.") for name in names}
    return {name for name in inside if name in MODULES}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_room_imports_only_what_stands_before_it(module):
    room = module.partition(".")[0]
    rooms = {name.partition(".")[0] for name in imports(module)}
    assert room in ORDER
    assert all(ORDER.index(name) <= ORDER.index(room) for name in rooms), rooms


def test_modules_form_no_circle():
    order = list(graphlib.TopologicalSorter({m: imports(m) for m in MODULES}).static_order())
    assert set(order) == set(MODULES)


def test_only_the_list_of_sets_knows_the_files_of_all_sets():
    general = {"sets._all", "sets._declaration", "sets._split"}
    for module in MODULES:
        if module.startswith(("tfds.", "account.")):
            sets = {name for name in imports(module) if name.startswith("sets.")}
            assert sets <= general, f"{module} knows {sets - general}"
            words = set(re.findall(r"\w+", MODULES[module].read_text("utf-8").lower()))
            assert not words & (set(_all.SETS) | set(_all.CONFIGS) | {"senteval"}), module


def test_every_file_that_declares_a_set_is_listed():
    declaring = {
        module
        for module, path in MODULES.items()
        if module.startswith("sets.") and "\nDECLARED = " in path.read_text("utf-8")
    }
    assert declaring == {f"sets.{file}" for file in _all._FILES}
    assert set(_all.SETS) | set(_all.EMBEDDED) <= set(_all.names())


def test_a_set_is_read_in_one_way_from_its_tfds_form():
    for name, declared in _all.SETS.items():
        assert (declared.tfds is None) != (declared.tfds_rows is None), name
