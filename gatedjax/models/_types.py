"""Type aliases for the arguments and results of all tasks."""

from typing import TypeAlias

from jax import Array

from gatedjax.training import Ratio

# In all tasks "weight" [B] is 1 for examples and 0 for rows that fill up a batch.
Batch: TypeAlias = dict[str, Array]
"""The arrays of a batch by name; the docstring of each network lists its arrays."""
Metrics: TypeAlias = dict[str, Ratio]
"""Metrics by name, as sums and counts."""
Predictions: TypeAlias = dict[str, Array]
"""Arrays by name, with an entry for each example."""
