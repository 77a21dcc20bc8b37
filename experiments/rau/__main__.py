"""Trains and evaluates one RAU, GRU or LSTM: `python -m experiments.rau --preset digits`."""

import sys

from experiments.core.cli import run_command
from experiments.rau.cli import parse

DESCRIPTION = """Train a recurrent attention unit, or a baseline with --model.cell, and evaluate it
on the test set. Options that are not given come from --preset. Press Ctrl-C to stop: the run is
saved, and the same command continues it."""


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    args = sys.argv[1:] if args is None else args
    config = parse(args, "python -m experiments.rau", DESCRIPTION)

    from experiments.rau.report import print_run
    from experiments.rau.run import default_workdir, run

    return run_command(lambda: run(config), print_run, default_workdir(config), config.cpu_devices)


if __name__ == "__main__":
    sys.exit(main())
