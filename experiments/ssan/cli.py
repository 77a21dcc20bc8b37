"""The command line of this paper's runs."""

from experiments.common import cli
from experiments.ssan.config import RunConfig
from experiments.ssan.presets import PRESETS


def parse(args: list[str], prog: str, description: str) -> RunConfig:
    """Reads a run's options; those that are not given come from the preset.

    Which options there are depends on the preset: every kind of task has its own.
    """
    return cli.parse(args, PRESETS, default="bshift", prog=prog, description=description)
