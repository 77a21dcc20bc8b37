"""Names of what has no narrower type."""

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]
"""An object as JSON has it: a configuration, facts, a line of metrics.jsonl."""
Record = Json
"""Of one run."""
Records = list[Record]
"""Of the seeds of one cell, or lines of a log."""
Config = Any
"""Of one run: a dataclass with preset, workdir, cpu_devices, data, model and train."""
Task = Any
"""A `gatedjax.training.Task`, or one with a carried state."""
Batches = Any
"""Batches by step, or of one ordered pass."""
Params = Any
"""A tree of arrays."""
Array = Any
"""Of JAX or NumPy."""
Batch = dict[str, Array]
"""Columns of one batch."""
Fields = Mapping[str, Any]
"""Values by name: options of a function, fields of a configuration."""
