"""Type aliases for the fields of modules."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from jax import Array

Initializer: TypeAlias = Callable[..., Array]
"""A function (key, shape, dtype) that returns the initial values of a parameter."""
Table: TypeAlias = np.ndarray | Array
"""Initial word vectors, with a row for each word."""
