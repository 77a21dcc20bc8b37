"""Names for types that have no narrower type."""

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]
"""A JSON object: a configuration, facts, a line of metrics.jsonl."""
Record = Json
"""The record of a run."""
Records = list[Record]
"""Records of the seeds of a cell, or lines of a log."""
Config = Any
"""The configuration of a run: a dataclass with preset, workdir, cpu_devices, data, model, train."""
Task = Any
"""A `gatedjax.training.Task`, or a task with a state that is carried between batches."""
Batches = Any
"""Batches by step, or the batches of an ordered pass."""
Params = Any
"""A tree of arrays."""
Array = Any
"""An array of JAX or NumPy."""
Batch = dict[str, Array]
"""The columns of a batch."""
Fields = Mapping[str, Any]
"""Values by name: options of a function, fields of a configuration."""
