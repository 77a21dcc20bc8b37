"""The command line of this paper's runs."""

from experiments.agt.config import OPTIMIZERS, PRESETS, Config, with_optimizer
from experiments.core import cli


def parse(args: list[str], prog: str, description: str) -> Config:
    """Reads a run's options; those that are not given come from the presets.

    An optimiser preset changes the update rule of every preset before other options do.
    """
    presets = PRESETS
    name = cli.option_value(args, "--optimizer-preset")
    if name is not None:
        cli.preset_named(name, OPTIMIZERS)
        presets = {preset: with_optimizer(config, name) for preset, config in PRESETS.items()}
    return cli.parse(args, presets, default="sst1", prog=prog, description=description)
