"""The presets of every kind of task."""

from experiments.ssan import config, task_config
from experiments.ssan.config import RunConfig

PRESETS: dict[str, RunConfig] = {**config.PRESETS, **task_config.TASK_PRESETS}
