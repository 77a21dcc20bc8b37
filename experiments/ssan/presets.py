"""The presets of every kind of task."""

from experiments.ssan import config, task_config
from experiments.ssan.config import RunConfig

# one mapping, whoever imports it: those of the other tasks join those of the probes
config.PRESETS.update(task_config.TASK_PRESETS)
PRESETS: dict[str, RunConfig] = config.PRESETS
