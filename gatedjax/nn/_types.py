"""Type aliases for the fields of modules, and their use as options of a layer inside."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from jax import Array

from gatedjax._utils.types import Keywords

Initializer: TypeAlias = Callable[..., Array]
"""A function (key, shape, dtype) that returns the initial values of a parameter."""
Table: TypeAlias = np.ndarray | Array
"""Initial word vectors, with a row for each word."""


def take_fields(module: object, *names: str) -> Keywords:
    """Returns fields of a module by name, as options of a layer inside."""
    return {name: getattr(module, name) for name in names}
