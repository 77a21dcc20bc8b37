"""Type aliases for values that Python's type system cannot describe."""

from typing import Any, TypeAlias

Tree: TypeAlias = Any
"""A pytree of arrays, or a single array."""
ArrayLike: TypeAlias = Any
"""An array or a value that JAX converts to an array. Checks must not assume more than that."""
Weights: TypeAlias = Any
"""The tuple of weights of a recurrence."""
Carry: TypeAlias = Any
"""The state between two steps: an array or a tuple of arrays."""
Dtype: TypeAlias = Any
"""A value that JAX converts to a dtype: a type, a name or a dtype."""
