"""Command-line parts that the commands of this paper share."""

import difflib
import sys
from typing import NoReturn

import tyro

from experiments.ga_net.config import PRESETS, Config


def fail(message: str) -> NoReturn:
    """Prints an error and exits with status 2, as for any wrong command line."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def preset_named(name: str) -> Config:
    """Returns a preset; an unknown name is refused with a suggestion."""
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        fail(f"unknown preset {name!r}.{hint} Presets: {', '.join(PRESETS)}.")
    return PRESETS[name]


def parse(args: list[str], prog: str, description: str) -> Config:
    """Reads a run's options; those that are not given come from the preset."""
    name = "polarity"
    for i, arg in enumerate(args):
        if arg.startswith("--preset="):
            name = arg.removeprefix("--preset=")
        elif arg == "--preset" and i + 1 < len(args):
            name = args[i + 1]
    return tyro.cli(
        Config, args=args, prog=prog, description=description, default=preset_named(name)
    )
