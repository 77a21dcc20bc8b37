"""Which values are known while tracing; the only place that names JAX's tracer."""

import jax

from gatedjax.functional._types import Tree


def is_traced(value: Tree) -> bool:
    """True for a value that JAX is tracing, whose numbers are not known yet."""
    return isinstance(value, jax.core.Tracer)


def known(*values: Tree) -> bool:
    """True if the numbers of every value can be read here and now.

    Not those of traced arrays, nor of arrays of which another process holds a part.
    """
    leaves = jax.tree.leaves(values)
    return not any(
        is_traced(leaf) or not getattr(leaf, "is_fully_addressable", True) for leaf in leaves
    )
