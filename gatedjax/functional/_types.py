"""Names for what the types of Python cannot say."""

from typing import Any, TypeAlias

Tree: TypeAlias = Any
"""A tree of arrays, in containers that JAX knows, or one array."""
ArrayLike: TypeAlias = Any
"""What JAX takes for an array. A check must not rely on what it is there to find out."""
Weights: TypeAlias = Any
"""The tuple of weights of a recurrence."""
Carry: TypeAlias = Any
"""The state between two steps: an array or a tuple of arrays."""
Dtype: TypeAlias = Any
"""What JAX takes for a dtype: a type, a name or a dtype."""
