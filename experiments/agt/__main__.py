"""Trains and evaluates one AGT: `python -m experiments.agt --preset sst1`."""

import sys

from experiments.agt.paper import PAPER
from experiments.core import command


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    return command.run(PAPER, args)


if __name__ == "__main__":
    sys.exit(main())
