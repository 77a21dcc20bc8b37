"""Names for what the types of Python cannot say; `gatedjax.functional._types` has others."""

from typing import Any, TypeAlias

Tree: TypeAlias = Any
"""A tree of arrays, in containers that JAX knows, or one array, or the shapes and dtypes of one."""
Params: TypeAlias = Any
"""The parameters of a network: nested dicts of arrays."""
Output: TypeAlias = Any
"""What a network returns: a struct with `logits`, and what analysis needs."""
Options: TypeAlias = dict[str, Any]
"""Keyword arguments that are handed on."""
Json: TypeAlias = dict[str, Any]
"""An object as JSON holds it."""
