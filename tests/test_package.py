"""What the library promises about itself as a whole."""

import ast
import re

import pytest

import gatedjax
from tests.conftest import ROOT
from tests.lower_bounds import constraints, requirements

SOURCES = sorted((ROOT / "gatedjax").rglob("*.py"))


def _imports(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_functional_imports_no_flax_and_no_other_part():
    for path in (ROOT / "gatedjax" / "functional").glob("*.py"):
        for name in _imports(path):
            assert not name.startswith(("flax", "optax")), (path, name)
            if name.startswith("gatedjax."):
                assert name.startswith("gatedjax.functional"), (path, name)


def test_training_knows_no_model():
    for path in (ROOT / "gatedjax" / "training").glob("*.py"):
        assert not any(name.startswith("gatedjax.models") for name in _imports(path)), path


def test_nothing_in_the_library_imports_experiments():
    for path in SOURCES:
        assert not any(name.startswith("experiments") for name in _imports(path)), path


def test_only_the_checkpoint_module_imports_orbax():
    users = {p.name for p in SOURCES if any(n.startswith("orbax") for n in _imports(p))}
    assert users == {"checkpoint.py"}


def test_unknown_attribute_is_named():
    with pytest.raises(AttributeError, match="no attribute 'attention'"):
        _ = gatedjax.attention


def test_every_public_function_documents_itself():
    for package in ("functional", "nn", "models", "data", "training", "analysis", "export"):
        module = getattr(gatedjax, package)
        for name in dir(module):
            item = getattr(module, name)
            public = not name.startswith("_") and getattr(item, "__module__", "").startswith(
                f"gatedjax.{package}"
            )
            if public and callable(item):
                assert item.__doc__, f"{package}.{name}"


def test_every_dependency_has_one_lower_bound():
    for name, written in requirements().items():
        assert len(written) == 1, (name, written)
        lower = [bound for (bounds,) in [written] for bound in bounds if bound.startswith(">=")]
        assert len(lower) == 1, (name, written)


def test_orbax_and_nothing_else_has_an_upper_bound():
    upper = {
        name: bounds
        for name, (bounds,) in requirements().items()
        if any(not bound.startswith(">=") for bound in bounds)
    }
    assert upper == {"orbax-checkpoint": (">=0.12", "<1")}


def test_constraints_are_the_lower_bounds_and_written_nowhere_else():
    assert "flax==0.12.7" in constraints()
    assert len(constraints()) == len(requirements())
    for path in (ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / "README.md"):
        assert not any(line in path.read_text("utf-8") for line in constraints())


def test_every_python_of_setup_cfg_is_one_of_the_tiers():
    text = (ROOT / "setup.cfg").read_text("utf-8")
    versions = re.findall(r"Programming Language :: Python :: (3\.\d+)", text)
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert f"OLDEST_PYTHON ?= python{versions[0]}\n" in makefile
    assert f"python_requires = >={versions[0]}\n" in text
    assert f"NEWEST_PYTHON ?= python{versions[-1]}\n" in makefile
