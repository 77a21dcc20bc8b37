"""Tests for values that are known while tracing; the only module that uses JAX's tracer class."""

import jax

from gatedjax.functional._types import Tree


def is_traced(value: Tree) -> bool:
    """Returns True for an array that JAX is tracing, whose numbers are not known.

    A tree of arrays is not searched and gives False.
    """
    return isinstance(value, jax.core.Tracer)


def is_known(*values: Tree) -> bool:
    """Returns True if the numbers of all arrays in the trees `values` can be read.

    Traced arrays, and arrays that are partly on the devices of another process, cannot be read.
    """
    leaves = jax.tree.leaves(values)
    return not any(
        is_traced(leaf) or not getattr(leaf, "is_fully_addressable", True) for leaf in leaves
    )
