"""Tests for values that are known while tracing."""

import jax

from gatedjax._utils.tracing import is_traced as is_traced
from gatedjax.functional._types import Tree


def is_known(*values: Tree) -> bool:
    """Returns True if all arrays can be read: not traced, and on the devices of this process."""
    leaves = jax.tree.leaves(values)
    return not any(
        is_traced(leaf) or not getattr(leaf, "is_fully_addressable", True) for leaf in leaves
    )
