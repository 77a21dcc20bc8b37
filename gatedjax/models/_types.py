"""Names for what the tasks of all networks take and return."""

from typing import TypeAlias

from jax import Array

from gatedjax.training import Ratio

Batch: TypeAlias = dict[str, Array]
"""The arrays of a batch; every network says which."""
Metrics: TypeAlias = dict[str, Ratio]
"""Sums and counts by name."""
Predictions: TypeAlias = dict[str, Array]
"""What is told of every example."""
