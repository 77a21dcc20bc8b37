"""What functions, modules and networks return can be saved, mapped over, and written by JAX."""

import dataclasses
import importlib
import pkgutil

import flax.linen as nn
import jax
import ml_dtypes
import numpy as np
import pytest
from flax import serialization
from jax import export

PACKAGES = ("functional", "gates", "nn", "models")
PARTS = {
    *(
        "Cell",
        "Product",
        "Terms",
        "Layer",
        "RAUOptions",
        "Recurrence",
        "Restarts",
        "Unit",
    ),  # of the recurrences
    *("Request", "Static", "Masks", "Floats"),  # of the kernels of the recurrences
    *("Variant", "Kind", "Card", "Plan"),  # of the constants of these kernels
    *("Family", "BitLayout", "Sample"),  # of gates
    "LayerBytes",  # of the random bits of a network
}
"""Tuples inside of a computation, which no public function takes or returns."""
ON_HOST = {"ModeRow"}
"""Tuples of numbers, which no program returns."""


def structures():
    """Every named tuple and every dataclass of Flax, by its name."""
    found = {}
    for package in PACKAGES:
        root = importlib.import_module(f"gatedjax.{package}")
        for module in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
            for name, kind in vars(importlib.import_module(module.name)).items():
                is_ours = getattr(kind, "__module__", "").startswith(root.__name__)
                if is_ours and not name.startswith("_") and is_structure(kind):
                    found[name] = kind
    return {name: found[name] for name in sorted(found)}


def is_structure(kind):
    if not isinstance(kind, type) or issubclass(kind, nn.Module):
        return False
    return hasattr(kind, "_fields") or hasattr(kind, "_flax_dataclass")


RETURNED = {name: kind for name, kind in structures().items() if name not in PARTS}


def filled(kind):
    """One with an array of another size and dtype in each of its fields, but None in the last."""
    names = getattr(kind, "_fields", None) or [field.name for field in dataclasses.fields(kind)]
    dtypes = (np.float32, np.int32, bool, ml_dtypes.bfloat16)
    values = [np.arange(i + 1).astype(dtypes[i % 4]) for i in range(len(names))]
    return kind(*values[:-1], None), len(names) - 1


def assert_equal(got, want):
    def compare(a, b):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)

    assert type(got) is type(want)
    jax.tree.map(compare, got, want)


def test_the_structures_are_found():
    assert {"Selection", "HopOutput", "GANetOutput", "LSTMState", "Truth"} <= RETURNED.keys()
    assert structures().keys() >= (PARTS | ON_HOST)


@pytest.mark.parametrize("name", RETURNED)
def test_a_structure_is_a_tree_that_flax_saves(name):
    value, count = filled(RETURNED[name])
    assert len(jax.tree.leaves(value)) == count
    template = jax.tree.map(np.zeros_like, value)
    assert_equal(serialization.from_bytes(template, serialization.to_bytes(value)), value)


@pytest.mark.slow
def test_structures_can_be_written_by_jax_export():
    """One program that takes and returns all of them."""
    given = {name: filled(kind)[0] for name, kind in RETURNED.items() if name not in ON_HOST}
    data = export.export(jax.jit(lambda x: x))(given).serialize()
    found = export.deserialize(data).call(given)
    for name, value in given.items():
        assert_equal(found[name], value)
