"""The test for arrays that JAX is tracing; the only module that uses JAX's tracer class."""

from typing import Any

import jax


def is_traced(value: Any) -> bool:
    """Returns True for an array that JAX is tracing, whose numbers are not known.

    A tree of arrays is not searched and gives False.
    """
    return isinstance(value, jax.core.Tracer)
