"""Names for types that modules have as fields."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from jax import Array

Initializer: TypeAlias = Callable[..., Array]
"""(key, shape, dtype) -> the initial values of a parameter."""
Table: TypeAlias = np.ndarray | Array
"""Word vectors to start from, one row per word."""
