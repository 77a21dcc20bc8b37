"""The command line of this paper's runs."""

import dataclasses
import sys

from experiments.core import cli
from experiments.ssan.config import RunConfig, short_warmup
from experiments.ssan.presets import PRESETS
from gatedjax._terminal import say

STEPS, WARMUP = "--train.num-steps", "--train.optimizer.warmup-steps"


def parse(args: list[str], prog: str, description: str) -> RunConfig:
    """Reads a run's options; those that are not given come from the preset.

    Which options there are depends on the preset: every kind of task has its own. Fewer steps than
    a preset's also shorten its warm-up, as they do in the tables.
    """
    presets, given = PRESETS, cli.option_value(args, STEPS) or ""
    if given.isdecimal():
        presets = {
            name: dataclasses.replace(config, train=short_warmup(config.train, int(given)))
            for name, config in PRESETS.items()
        }
    config = cli.parse(args, presets, default="bshift", prog=prog, description=description)
    usual = PRESETS[config.preset].train.optimizer.warmup_steps
    warmup = config.train.optimizer.warmup_steps
    if warmup < usual and cli.option_value(args, WARMUP) is None:
        say(
            f"warm-up: {warmup:,} steps, a quarter of {STEPS} (preset: {usual:,}); "
            f"{WARMUP} sets it",
            file=sys.stderr,
        )
    return config
