"""The command line of this paper's runs."""

from experiments.core import cli
from experiments.rau.config import PRESETS, Config


def parse(args: list[str], prog: str, description: str) -> Config:
    """Reads a run's options; those that are not given come from the preset."""
    return cli.parse(args, PRESETS, default="digits", prog=prog, description=description)
