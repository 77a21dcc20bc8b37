"""Trains and evaluates one AGT: `python -m experiments.agt --preset sst1`."""

import sys

from experiments.agt.cli import parse
from experiments.core.cli import run_command

DESCRIPTION = """Train an attention gated transformation network, or a baseline with --model.system,
and evaluate it on the test sentences. Options that are not given come from --preset. Press Ctrl-C
to stop: the run is saved, and the same command continues it."""


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    args = sys.argv[1:] if args is None else args
    config = parse(args, "python -m experiments.agt", DESCRIPTION)

    from experiments.agt.report import print_run
    from experiments.agt.run import default_workdir, run

    return run_command(lambda: run(config), print_run, default_workdir(config), config.cpu_devices)


if __name__ == "__main__":
    sys.exit(main())
